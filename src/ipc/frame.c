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

/* The control message of descriptors. */
union fds_space {
    struct cmsghdr head;
    char bytes[CMSG_SPACE(MR_FRAME_FDS_MAX * sizeof(int))];
};

int mr_frame_send_fds(int fd, enum mr_frame_type type, const int *fds, uint32_t count,
                      struct mr_err *err)
{
    struct head h = {type, 0};
    union fds_space space = {0};
    struct iovec piece = {&h, sizeof h};
    const struct msghdr m = {.msg_iov = &piece,
                             .msg_iovlen = 1,
                             .msg_control = space.bytes,
                             .msg_controllen = CMSG_SPACE(count * sizeof(int))};
    ssize_t n;

    MR_ASSERT(count > 0 && count <= MR_FRAME_FDS_MAX);
    struct cmsghdr *c = CMSG_FIRSTHDR(&m);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(count * sizeof(int));
    memcpy(CMSG_DATA(c), fds, count * sizeof(int));
    do {
        n = sendmsg(fd, &m, MSG_NOSIGNAL);
    } while (n < 0 && errno == EINTR);
    return n == (ssize_t)sizeof h
               ? MR_OK
               : MR_FAIL(err, MR_E_CLOSED, "the other process is gone: %s", strerror(errno));
}

static void fds_take(struct msghdr *m, struct mr_frame_fds *out)
{
    for (struct cmsghdr *c = CMSG_FIRSTHDR(m); c; c = CMSG_NXTHDR(m, c)) {
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) {
            continue;
        }
        const size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < count; i++) {
            int fd;
            memcpy(&fd, CMSG_DATA(c) + i * sizeof fd, sizeof fd);
            if (out && out->count < MR_FRAME_FDS_MAX) {
                out->at[out->count++] = fd;
            } else {
                close(fd);
            }
        }
    }
}

int mr_frame_read(int fd, struct mr_buf *in, struct mr_frame_fds *fds, struct mr_err *err)
{
    char *to = mr_buf_reserve(in, READ_BYTES);
    union fds_space space;
    struct iovec piece = {to, READ_BYTES};
    struct msghdr m = {.msg_iov = &piece, .msg_iovlen = 1};
    ssize_t n;

    if (!to) {
        return MR_FAIL(err, MR_E_EXHAUSTED, "no memory for a message of a worker process");
    }
    do {
        m.msg_control = space.bytes;
        m.msg_controllen = sizeof space.bytes;
        n = recvmsg(fd, &m, MSG_CMSG_CLOEXEC);
    } while (n < 0 && errno == EINTR);
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
        return 0;
    }
    if (n <= 0) {
        return MR_FAIL(err, MR_E_CLOSED, "the other process is gone");
    }
    fds_take(&m, fds);
    in->len += (size_t)n;
    return 1;
}
