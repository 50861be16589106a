#include "ipc/frame.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define READ_BYTES 65536

struct head {
    uint32_t type;
    uint32_t bytes;
};

static int send_all(int fd, const uint8_t *data, size_t len, struct mr_err *err)
{
    while (len > 0) {
        const ssize_t n = send(fd, data, len, MSG_NOSIGNAL);
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
            struct pollfd p = {.fd = fd, .events = POLLOUT};
            poll(&p, 1, 1000);
            continue;
        }
        if (n < 0 && errno != EINTR) {
            return MR_FAIL(err, MR_E_CLOSED, "the other process is gone: %s", strerror(errno));
        }
        if (n > 0) {
            data += n;
            len -= (size_t)n;
        }
    }
    return MR_OK;
}

int mr_frame_send(int fd, enum mr_frame_type type, mr_bytes body, struct mr_err *err)
{
    const struct head h = {type, (uint32_t)body.len};

    if (body.len > MR_FRAME_MAX) {
        return MR_FAIL(err, MR_E_TOO_LARGE, "a message of %zu bytes to or from a worker process",
                       body.len);
    }
    const int rc = send_all(fd, (const uint8_t *)&h, sizeof h, err);
    return rc < 0 ? rc : send_all(fd, body.ptr, body.len, err);
}

void mr_frame_append(struct mr_buf *out, enum mr_frame_type type, mr_bytes body)
{
    const struct head h = {type, (uint32_t)MR_MIN(body.len, UINT32_MAX)};

    mr_buf_append(out, &h, sizeof h);
    mr_buf_append(out, body.ptr, body.len);
}

int mr_frame_flush(int fd, struct mr_buf *out, struct mr_err *err)
{
    while (out->len > 0) {
        const ssize_t n = send(fd, out->ptr, out->len, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
            return MR_OK;
        }
        if (n < 0 && errno != EINTR) {
            return MR_FAIL(err, MR_E_CLOSED, "the other process is gone: %s", strerror(errno));
        }
        mr_buf_consume(out, n > 0 ? (size_t)n : 0);
    }
    return MR_OK;
}

int mr_frame_next(const struct mr_buf *in, struct mr_frame *out, struct mr_err *err)
{
    struct head h;

    if (in->len < sizeof h) {
        return 0;
    }
    memcpy(&h, in->ptr, sizeof h);
    if (h.type < 1 || h.type >= MR_FRAME_TYPES || h.bytes > MR_FRAME_MAX) {
        return MR_FAIL(err, MR_E_INVALID, "message %u of %u bytes from a worker process", h.type,
                       h.bytes);
    }
    if (in->len - sizeof h < h.bytes) {
        return 0;
    }
    *out = (struct mr_frame){h.type, {(const uint8_t *)in->ptr + sizeof h, h.bytes}};
    return 1;
}

void mr_frame_drop(struct mr_buf *in, const struct mr_frame *f)
{
    mr_buf_consume(in, sizeof(struct head) + f->body.len);
}

int mr_frame_read(int fd, struct mr_buf *in, struct mr_err *err)
{
    char *to = mr_buf_reserve(in, READ_BYTES);
    ssize_t n;

    if (!to) {
        return MR_FAIL(err, MR_E_EXHAUSTED, "no memory for a message of a worker process");
    }
    do {
        n = read(fd, to, READ_BYTES);
    } while (n < 0 && errno == EINTR);
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
        return 0;
    }
    if (n <= 0) {
        return MR_FAIL(err, MR_E_CLOSED, "the other process is gone");
    }
    in->len += (size_t)n;
    return 1;
}
