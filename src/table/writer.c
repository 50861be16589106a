/* Writers: one table of functions for each format. */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "formats.h"

struct mr_writer {
    const struct mr_writer_ops *ops;
    void *state;
};

int mr_fd_write(int fd, const void *data, size_t bytes, struct mr_err *err)
{
    const char *from = data;

    while (bytes > 0) {
        const ssize_t n = write(fd, from, bytes);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n <= 0) {
            const int full = errno == ENOSPC || errno == EDQUOT || errno == EFBIG;
            return MR_FAIL(err, full ? MR_E_EXHAUSTED : MR_E_IO, "cannot write: %s",
                           strerror(errno));
        }
        from += n;
        bytes -= (size_t)n;
    }
    return MR_OK;
}

static const struct mr_writer_ops *ops_of(enum mr_table_format format)
{
    return format == MR_TABLE_JSONL ? &mr_jsonl_writer_ops : NULL;
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
