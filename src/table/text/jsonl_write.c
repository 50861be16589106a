/* JSON lines: an object per row, its members in the order of the schema. The text before each value, `,"name":`, is
 * prepared once. */
#include "base/mem.h"
#include "table/io/io.h"
#include "table/values/values.h"
#include "text.h"

struct jsonl {
    const struct mr_schema *schema;
    struct mr_out out;
    struct mr_buf names;
    size_t *name_ends;
};

static void jsonl_free(void *state)
{
    struct jsonl *w = state;

    mr_out_fini(&w->out);
    mr_buf_fini(&w->names);
    mr_free(w->name_ends);
    mr_free(w);
}

static int jsonl_open(void **out, int fd, const struct mr_schema *schema,
                      const struct mr_writer_options *options, struct mr_err *err)
{
    struct jsonl *w = MR_NEW(struct jsonl);

    w->schema = schema;
    w->name_ends = MR_NEW_ARRAY(size_t, schema->count);
    mr_buf_init(&w->names, 0);
    for (size_t i = 0; i < schema->count; i++) {
        mr_buf_char(&w->names, i > 0 ? ',' : '{');
        mr_json_put_string(&w->names, mr_str_c(schema->fields[i].name));
        mr_buf_char(&w->names, ':');
        w->name_ends[i] = w->names.len;
    }
    int rc = mr_out_init(&w->out, fd, options, err);
    if (rc == MR_OK && w->names.failed) {
        rc = MR_FAIL(err, MR_E_EXHAUSTED, "no memory for the names of the columns");
    }
    if (rc < 0) {
        jsonl_free(w);
        return rc;
    }
    *out = w;
    return MR_OK;
}

static int jsonl_put(void *state, const struct mr_rows *rows, uint64_t first, uint64_t count,
                     struct mr_err *err)
{
    struct jsonl *w = state;
    int rc = MR_OK;

    for (uint64_t row = first; rc == MR_OK && row < first + count; row++) {
        size_t name = 0;
        for (size_t i = 0; i < w->schema->count; i++) {
            mr_buf_append(&w->out.text, w->names.ptr + name, w->name_ends[i] - name);
            name = w->name_ends[i];
            mr_put_json(&w->out.text, &w->schema->fields[i], &rows->columns[i], row);
        }
        if (w->schema->count == 0) {
            mr_buf_char(&w->out.text, '{');
        }
        MR_BUF_LIT(&w->out.text, "}\n");
        rc = mr_out_row(&w->out, err);
    }
    return rc;
}

static uint64_t jsonl_bytes(const void *state)
{
    return mr_out_bytes(&((const struct jsonl *)state)->out);
}

static int jsonl_flush(void *state, struct mr_err *err)
{
    return mr_out_flush(&((struct jsonl *)state)->out, err);
}

static int jsonl_finish(void *state, struct mr_err *err)
{
    return mr_out_finish(&((struct jsonl *)state)->out, err);
}

const struct mr_writer_ops mr_jsonl_writer_ops = {
    .open = jsonl_open,
    .put = jsonl_put,
    .flush = jsonl_flush,
    .bytes = jsonl_bytes,
    .finish = jsonl_finish,
    .free = jsonl_free,
};
