/* The plain transport: a non-blocking stream socket under uv_poll. uv_poll and not uv_tcp, because
 * the reader chooses where bytes go (a buffer, or a body's final place), and because the peer's end
 * can be watched for without reading. Thread: loop. */
#include "conn.h"

#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

static ssize_t result(ssize_t n)
{
    if (n >= 0) {
        return n;
    }
    return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR ? -EAGAIN : -errno;
}

static ssize_t plain_read(struct mr_conn *c, void *buf, size_t n)
{
    return result(recv(c->fd, buf, n, 0));
}

static ssize_t plain_readv(struct mr_conn *c, const struct iovec *iov, int count)
{
    return result(readv(c->fd, iov, count));
}

static ssize_t plain_write(struct mr_conn *c, const struct iovec *iov, int count)
{
    if (count == 1) {
        return result(send(c->fd, iov->iov_base, iov->iov_len, MSG_NOSIGNAL));
    }
    struct msghdr msg = {.msg_iov = (struct iovec *)iov, .msg_iovlen = (size_t)count};
    return result(sendmsg(c->fd, &msg, MSG_NOSIGNAL));
}

static void on_poll(uv_poll_t *poll, int status, int events)
{
    struct mr_conn *c = poll->data;

    mr_loop_enter(c->loop);
    if (status < 0) {
        /* Reset by the peer: libuv has stopped the handle. */
        c->wanted = 0;
        mr_conn_close(c);
        return;
    }
    mr_conn_ready(c, (events & UV_READABLE ? MR_WANT_READ : 0) |
                         (events & UV_WRITABLE ? MR_WANT_WRITE : 0) |
                         (events & UV_DISCONNECT ? MR_WANT_HUP : 0));
}

int mr_transport_plain_start(struct mr_conn *c)
{
    c->poll.data = c;
    return uv_poll_init(&c->loop->uv, &c->poll, c->fd);
}

void mr_plain_want(struct mr_conn *c, int events)
{
    int uv_events = (events & MR_WANT_READ ? UV_READABLE : 0) |
                    (events & MR_WANT_WRITE ? UV_WRITABLE : 0) |
                    (events & MR_WANT_HUP ? UV_DISCONNECT : 0);

    if (uv_events) {
        uv_poll_start(&c->poll, uv_events, on_poll);
    } else {
        uv_poll_stop(&c->poll);
    }
}

static void plain_end_output(struct mr_conn *c)
{
    shutdown(c->fd, SHUT_WR);
}

static void on_closed(uv_handle_t *handle)
{
    mr_conn_gone(handle->data);
}

static void plain_close(struct mr_conn *c)
{
    uv_close((uv_handle_t *)&c->poll, on_closed);
    close(c->fd);
    c->fd = -1;
}

const struct mr_transport mr_transport_plain = {
    .read = plain_read,
    .readv = plain_readv,
    .write = plain_write,
    .want = mr_plain_want,
    .end_output = plain_end_output,
    .close = plain_close,
};
