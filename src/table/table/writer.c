/* Writers: one table of functions for each format. */

#include "base/mem.h"
#include "table/arrow/arrow.h"
#include "table/parquet/parquet.h"
#include "table/rows/formats.h"
#include "table/text/text.h"

struct mr_writer {
    const struct mr_writer_ops *ops;
    void *state;
};

static const struct mr_writer_ops *ops_of(enum mr_table_format format)
{
    switch (format) {
    case MR_TABLE_ARROW: return &mr_arrow_writer_ops;
    case MR_TABLE_CSV: return &mr_csv_writer_ops;
    case MR_TABLE_JSONL: return &mr_jsonl_writer_ops;
    case MR_TABLE_PARQUET: return &mr_parquet_writer_ops;
    default: return NULL;
    }
}

int mr_writer_new(struct mr_writer **out, int fd, const struct mr_schema *schema,
                  const struct mr_writer_options *options, struct mr_err *err)
{
    const struct mr_writer_ops *ops = ops_of(options->format);
    void *state;

    if (!ops) {
        return MR_FAIL(err, MR_E_UNSUPPORTED, "tables of the format '%s' cannot be written",
                       mr_table_format_name(options->format));
    }
    int rc = ops->open(&state, fd, schema, options, err);
    if (rc < 0) {
        return rc;
    }
    *out = MR_NEW(struct mr_writer);
    **out = (struct mr_writer){ops, state};
    return MR_OK;
}

int mr_writer_put(struct mr_writer *w, const struct mr_rows *rows, uint64_t first, uint64_t count,
                  struct mr_err *err)
{
    return w->ops->put(w->state, rows, first, count, err);
}

uint64_t mr_writer_bytes(const struct mr_writer *w)
{
    return w->ops->bytes(w->state);
}

int mr_writer_flush(struct mr_writer *w, struct mr_err *err)
{
    return w->ops->flush ? w->ops->flush(w->state, err) : MR_OK;
}

int mr_writer_finish(struct mr_writer *w, struct mr_err *err)
{
    return w->ops->finish(w->state, err);
}

void mr_writer_free(struct mr_writer **w)
{
    if (*w) {
        (*w)->ops->free((*w)->state);
        mr_freep(w);
    }
}
