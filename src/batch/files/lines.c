/* See lines.h. The buffer holds what was read and not given yet, and the line that was given last. */
#include "lines.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "file.h"

#define CHUNK ((size_t)256 << 10)

int lines_open(struct lines *l, const char *path, size_t most, struct mr_err *err)
{
    *l = (struct lines){
        .fd = openat(AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0), .path = path, .most = most};
    mr_buf_init(&l->buf, most + 2 * CHUNK);
    return l->fd < 0 ? batch_file_fail(err, "open", path) : MR_OK;
}

void lines_close(struct lines *l)
{
    if (l->fd >= 0) {
        close(l->fd);
    }
    l->fd = -1;
    mr_buf_fini(&l->buf);
}

static int more(struct lines *l, struct mr_err *err)
{
    ssize_t n;

    mr_buf_consume(&l->buf, l->at);
    l->at = 0;
    char *to = mr_buf_reserve(&l->buf, CHUNK);
    if (!to) {
        return MR_FAIL(err, MR_E_EXHAUSTED, "no memory for a line of %s", l->path);
    }
    do {
        n = read(l->fd, to, CHUNK);
    } while (n < 0 && errno == EINTR);
    if (n < 0) {
        return batch_file_fail(err, "read", l->path);
    }
    l->buf.len += (size_t)n;
    l->is_over = n == 0;
    return MR_OK;
}

int lines_next(struct lines *l, struct line *out, bool *out_is_there, struct mr_err *err)
{
    const char *end = NULL;
    bool is_too_long = false;
    size_t seen = 0;

    for (;;) {
        const size_t n = l->buf.len - l->at;
        end = n > seen ? memchr(l->buf.ptr + l->at + seen, '\n', n - seen) : NULL;
        if (end || l->is_over) {
            break;
        }
        seen = n;
        if (n > l->most) {
            is_too_long = true;
            l->at = l->buf.len;
            seen = 0;
        }
        int rc = more(l, err);
        if (rc < 0) {
            return rc;
        }
    }
    const size_t n = end ? (size_t)(end - l->buf.ptr) - l->at : l->buf.len - l->at;
    *out_is_there = end || n > 0 || is_too_long;
    if (!*out_is_there) {
        return MR_OK;
    }
    is_too_long = is_too_long || n > l->most;
    *out = (struct line){.number = l->number,
                         .is_too_long = is_too_long,
                         .text = is_too_long ? MR_STR("") : mr_str_n(l->buf.ptr + l->at, n)};
    l->number++;
    l->last = l->at;
    l->at += n + (end != NULL);
    return MR_OK;
}

void lines_return(struct lines *l)
{
    l->at = l->last;
    l->number--;
}
