/* Writers: one table of functions for each format. */
#include <errno.h>
#include <poll.h>
#include <string.h>

#include "base/mem.h"
#include "formats.h"

struct mr_writer {
    const struct mr_writer_ops *ops;
    void *state;
};

static int write_failed(struct mr_err *err)
{
    const int full = errno == ENOSPC || errno == EDQUOT || errno == EFBIG;
    return MR_FAIL(err, full ? MR_E_EXHAUSTED : MR_E_IO, "cannot write: %s", strerror(errno));
}

/* After a failure that may pass. */
static bool may_write_again(const struct mr_no_room *no_room, int error, const struct mr_err *err)
{
    return no_room && no_room->fn && (error == ENOSPC || error == EDQUOT || error == EIO) &&
           no_room->fn(no_room->ctx, err);
}

int mr_fd_writev(int fd, struct iovec *pieces, int count, const struct mr_no_room *no_room,
                 struct mr_err *err)
{
    struct mr_err why;

    while (count > 0) {
        if (pieces->iov_len == 0) {
            pieces++;
            count--;
            continue;
        }
        const ssize_t n = writev(fd, pieces, count);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0 && errno == EAGAIN) { /* a pipe that somebody else made so */
            poll(&(struct pollfd){fd, POLLOUT, 0}, 1, -1);
            continue;
        }
        if (n <= 0) {
            const int error = errno;
            const int rc = write_failed(&why);
            if (may_write_again(no_room, error, &why)) {
                continue;
            }
            if (err) {
                *err = why;
            }
            return rc;
        }
        for (size_t left = (size_t)n; left > 0;) {
            const size_t step = MR_MIN(left, pieces->iov_len);
            pieces->iov_base = (char *)pieces->iov_base + step;
            pieces->iov_len -= step;
            left -= step;
            if (pieces->iov_len == 0) {
                pieces++;
                count--;
            }
        }
    }
    return MR_OK;
}

int mr_fd_write(int fd, const void *data, size_t bytes, struct mr_err *err)
{
    return mr_fd_writev(fd, &(struct iovec){(void *)data, bytes}, 1, NULL, err);
}

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
