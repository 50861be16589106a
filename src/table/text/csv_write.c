/* CSV: a header line, then a line per row. Cells are quoted only if necessary: with a delimiter, a quote or a line
 * end in them, and empty texts, which would otherwise be nulls. Lists are JSON in their cell, binary values Base64. */
#include <string.h>

#include "base/mem.h"
#include "table/io/io.h"
#include "table/values/values.h"
#include "text.h"

struct csv {
    const struct mr_schema *schema;
    struct mr_out out;
    struct mr_buf list; /* the JSON of a cell */
    struct mr_arena scratch;
    char delimiter;
};

static void text_put(struct csv *w, mr_str text)
{
    struct mr_buf *b = &w->out.text;
    bool is_plain = text.len > 0 && text.ptr[0] != '\xef'; /* the first byte of a byte order mark */

    for (size_t i = 0; i < text.len && is_plain; i++) {
        const char c = text.ptr[i];
        is_plain = c != '"' && c != '\n' && c != '\r' && c != w->delimiter;
    }
    if (is_plain) {
        mr_buf_str(b, text);
        return;
    }
    mr_buf_char(b, '"');
    while (text.len > 0) {
        const char *quote = memchr(text.ptr, '"', text.len);
        const size_t n = quote ? (size_t)(quote - text.ptr) + 1 : text.len;
        mr_buf_append(b, text.ptr, n);
        if (quote) {
            mr_buf_char(b, '"');
        }
        text = mr_str_n(text.ptr + n, text.len - n);
    }
    mr_buf_char(b, '"');
}

/* The text of a JSON string without its quotes; any other value unchanged. */
static mr_str json_text(struct csv *w, mr_str text)
{
    struct mr_err err;
    struct mr_json j;
    mr_str string;

    mr_arena_reset(&w->scratch);
    mr_json_init(&j, text, &w->scratch, 0, &err);
    return mr_json_peek(&j) == MR_JSON_STRING && mr_json_string(&j, &string) == MR_OK ? string
                                                                                      : text;
}

static void cell_put(struct csv *w, const struct mr_field *f, const struct mr_column *c,
                     uint64_t row)
{
    if (mr_column_is_null(c, row)) {
        return;
    }
    switch (f->type) {
    case MR_COLUMN_STRING: {
        const mr_bytes bytes = mr_column_bytes(c, row);
        const mr_str text = mr_str_n((const char *)bytes.ptr, bytes.len);
        text_put(w, f->is_json ? json_text(w, text) : text);
        break;
    }
    case MR_COLUMN_LIST:
    case MR_COLUMN_FIXED_LIST:
        mr_buf_reset(&w->list);
        mr_put_json(&w->list, f, c, row);
        text_put(w, mr_buf_view(&w->list));
        w->out.text.failed = w->out.text.failed || w->list.failed;
        break;
    case MR_COLUMN_BINARY:
        if (mr_column_bytes(c, row).len == 0) {
            MR_BUF_LIT(&w->out.text, "\"\"");
        } else {
            mr_put_scalar(&w->out.text, f, c, row);
        }
        break;
    default: mr_put_scalar(&w->out.text, f, c, row); break;
    }
}

static void csv_free(void *state)
{
    struct csv *w = state;

    mr_out_fini(&w->out);
    mr_buf_fini(&w->list);
    mr_arena_fini(&w->scratch);
    mr_free(w);
}

static int csv_open(void **out, int fd, const struct mr_schema *schema,
                    const struct mr_writer_options *options, struct mr_err *err)
{
    const char delimiter = options->delimiter ? options->delimiter : ',';
    struct csv *w;

    /* Characters of numbers and times, which are written without a check. */
    if ((delimiter >= '0' && delimiter <= '9') || memchr("\"\n\r+-.:", delimiter, 7) ||
        ((unsigned)delimiter | 0x20) - 'a' < 26) {
        return MR_FAIL(err, MR_E_INVALID, "'%c' cannot be the delimiter", delimiter);
    }
    w = MR_NEW(struct csv);
    w->schema = schema;
    w->delimiter = delimiter;
    mr_buf_init(&w->list, SIZE_MAX / 2);
    mr_arena_init(&w->scratch, 4096, SIZE_MAX / 2);
    int rc = mr_out_init(&w->out, fd, options, err);
    if (rc < 0) {
        csv_free(w);
        return rc;
    }
    for (size_t i = 0; !options->has_no_header && i < schema->count; i++) {
        if (i > 0) {
            mr_buf_char(&w->out.text, w->delimiter);
        }
        text_put(w, mr_str_c(schema->fields[i].name));
    }
    mr_buf_c(&w->out.text, options->has_no_header ? "" : "\n");
    *out = w;
    return MR_OK;
}

static int csv_put(void *state, const struct mr_rows *rows, uint64_t first, uint64_t count,
                   struct mr_err *err)
{
    struct csv *w = state;
    int rc = MR_OK;

    for (uint64_t row = first; rc == MR_OK && row < first + count; row++) {
        for (size_t i = 0; i < w->schema->count; i++) {
            if (i > 0) {
                mr_buf_char(&w->out.text, w->delimiter);
            }
            cell_put(w, &w->schema->fields[i], &rows->columns[i], row);
        }
        mr_buf_char(&w->out.text, '\n');
        rc = mr_out_row(&w->out, err);
    }
    return rc;
}

static uint64_t csv_bytes(const void *state)
{
    return mr_out_bytes(&((const struct csv *)state)->out);
}

static int csv_flush(void *state, struct mr_err *err)
{
    return mr_out_flush(&((struct csv *)state)->out, err);
}

static int csv_finish(void *state, struct mr_err *err)
{
    return mr_out_finish(&((struct csv *)state)->out, err);
}

const struct mr_writer_ops mr_csv_writer_ops = {
    .open = csv_open,
    .put = csv_put,
    .flush = csv_flush,
    .bytes = csv_bytes,
    .finish = csv_finish,
    .free = csv_free,
};
