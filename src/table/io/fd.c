/* Writing to descriptors, and copying ranges of files. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "io.h"

#define BLOCK ((size_t)1 << 20)

static int write_failed(struct mr_err *err)
{
    const int full = errno == ENOSPC || errno == EDQUOT || errno == EFBIG;
    return MR_FAIL(err, full ? MR_E_EXHAUSTED : MR_E_IO, "cannot write: %s", strerror(errno));
}

/* True if a failed write may be retried. */
static bool may_write_again(const struct mr_no_room *no_room, int error, const struct mr_err *err)
{
    return no_room && no_room->fn &&
           (error == ENOSPC || error == EDQUOT || error == EIO || error == EROFS) &&
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
        if (n < 0 && errno == EAGAIN) { /* a non-blocking pipe from outside */
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

int mr_merge_open(const struct mr_merge_part *part, struct mr_err *err)
{
    const int fd = openat(part->dir, part->name, O_RDONLY | O_CLOEXEC, 0);

    return fd < 0 ? MR_FAIL(err, MR_E_IO, "cannot open %s: %s", part->name, strerror(errno)) : fd;
}

static int copy_by_hand(int fd, const char *name, uint64_t from, uint64_t bytes, int out,
                        struct mr_err *err)
{
    char *block = mr_alloc(BLOCK);
    int rc = MR_OK;

    while (bytes > 0 && rc == MR_OK) {
        const ssize_t n = pread(fd, block, MR_MIN(bytes, (uint64_t)BLOCK), (off_t)from);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n <= 0) {
            rc = MR_FAIL(err, MR_E_IO, "cannot read %s: %s", name,
                         n < 0 ? strerror(errno) : "it has become shorter");
            break;
        }
        rc = mr_fd_write(out, block, (size_t)n, err);
        from += (uint64_t)n;
        bytes -= (uint64_t)n;
    }
    mr_free(block);
    return rc;
}

int mr_merge_copy(const struct mr_merge_part *part, uint64_t from, uint64_t bytes, int out,
                  struct mr_err *err)
{
    const int fd = mr_merge_open(part, err);
    off_t at = (off_t)from;
    int rc = MR_OK;

    if (fd < 0) {
        return fd;
    }
    while (bytes > 0) {
        const ssize_t n =
            copy_file_range(fd, &at, out, NULL, MR_MIN(bytes, (uint64_t)INT32_MAX), 0);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n <= 0) {
            /* Not possible between these files or on this kernel, or an error that will occur again. */
            rc = copy_by_hand(fd, part->name, (uint64_t)at, bytes, out, err);
            break;
        }
        bytes -= (uint64_t)n;
    }
    close(fd);
    return rc;
}

int mr_merge_size(int fd, const char *name, uint64_t *out, struct mr_err *err)
{
    struct stat st;

    if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode)) {
        return MR_FAIL(err, MR_E_IO, "cannot read %s: no plain file", name);
    }
    *out = (uint64_t)st.st_size;
    return MR_OK;
}
