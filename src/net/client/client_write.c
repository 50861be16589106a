/* Writing on a connection, without libuv: its writes raise SIGPIPE on a socket that the peer has closed, which would end a program that
 * has this library and leaves the signal as it is; and they pass no descriptors.
 *
 * What the socket takes at once is written at once. The rest waits for it in order, watched by a handle of its own on a
 * duplicate of the descriptor, as libuv's stream has the original. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sys/socket.h>
#include <unistd.h>

#include "client_priv.h"

_Static_assert(sizeof(uv_buf_t) == sizeof(struct iovec), "libuv's buffers are those of the system");

static int stream_fd(struct mr_client_conn *conn)
{
    uv_os_fd_t fd = -1;

    uv_fileno(&conn->uv.handle, &fd);
    return fd;
}

/* With the descriptor *io_pass, unless it is -1, which it is afterwards. Bytes, or a negative errno. */
static ssize_t send_once(int fd, struct iovec *iov, size_t count, int *io_pass)
{
    union {
        struct cmsghdr head;
        char room[CMSG_SPACE(sizeof(int))];
    } control = {.head = {.cmsg_len = CMSG_LEN(sizeof(int)),
                          .cmsg_level = SOL_SOCKET,
                          .cmsg_type = SCM_RIGHTS}};
    struct msghdr msg = {.msg_iov = iov, .msg_iovlen = MR_MIN(count, (size_t)IOV_MAX)};
    ssize_t n;

    if (*io_pass >= 0) {
        memcpy(CMSG_DATA(&control.head), io_pass, sizeof *io_pass);
        msg.msg_control = &control;
        msg.msg_controllen = sizeof control;
    }
    do {
        n = sendmsg(fd, &msg, MSG_NOSIGNAL | MSG_DONTWAIT);
    } while (n < 0 && errno == EINTR);
    if (n < 0) {
        return -errno;
    }
    *io_pass = -1;
    return n;
}

/* Writes what the socket takes now. 1: all; 0: the rest is in w; negative: an errno. */
static int advance(int fd, struct mr_client_write *w)
{
    while (w->at < w->count) {
        ssize_t n = send_once(fd, w->iov + w->at, w->count - w->at, &w->pass_fd);
        if (n < 0) {
            return n == -EAGAIN ? 0 : (int)n;
        }
        while (w->at < w->count && (size_t)n >= w->iov[w->at].iov_len) {
            n -= (ssize_t)w->iov[w->at++].iov_len;
        }
        if (n > 0) {
            w->iov[w->at].iov_base = (char *)w->iov[w->at].iov_base + n;
            w->iov[w->at].iov_len -= (size_t)n;
        }
    }
    return 1;
}

static void iov_free(struct mr_client_write *w)
{
    if (w->iov != w->few) {
        mr_free(w->iov);
    }
    w->iov = NULL;
}

static void end_first(struct mr_client_conn *conn, int status)
{
    struct mr_client_write *w = STAILQ_FIRST(&conn->writes);

    STAILQ_REMOVE_HEAD(&conn->writes, link);
    iov_free(w);
    w->done(w, status);
}

static void on_writable(uv_poll_t *poll, int status, int events)
{
    struct mr_client_conn *conn = poll->data;
    int rc = status < 0 ? status : 1;

    (void)events;
    mr_loop_resume(conn->client->loop);
    while (rc != 0 && conn->state != MR_CONN_CLOSING && !STAILQ_EMPTY(&conn->writes)) {
        rc = rc < 0 ? rc : advance(conn->write_fd, STAILQ_FIRST(&conn->writes));
        if (rc != 0) {
            end_first(conn, MR_MIN(rc, 0));
        }
    }
    if (conn->state != MR_CONN_CLOSING && STAILQ_EMPTY(&conn->writes)) {
        uv_poll_stop(poll);
    }
}

/* Negative (uv) without a descriptor. */
static int watch(struct mr_client_conn *conn, int fd)
{
    if (!conn->has_poll) {
        conn->write_fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
        int rc = conn->write_fd < 0
                     ? -errno
                     : uv_poll_init(mr_loop_uv(conn->client->loop), &conn->poll, conn->write_fd);
        if (rc < 0) {
            if (conn->write_fd >= 0) {
                close(conn->write_fd);
            }
            return rc;
        }
        conn->poll.data = conn;
        conn->has_poll = true;
    }
    return uv_poll_start(&conn->poll, UV_WRITABLE, on_writable);
}

int mr_client_conn_write(struct mr_client_conn *conn, struct mr_client_write *w,
                         const uv_buf_t *bufs, size_t count, mr_client_written_fn *done)
{
    const int fd = stream_fd(conn);
    const bool is_first = STAILQ_EMPTY(&conn->writes);

    w->done = done;
    w->at = 0;
    w->count = count;
    w->iov = count <= sizeof w->few / sizeof *w->few ? w->few : MR_NEW_ARRAY(struct iovec, count);
    memcpy(w->iov, bufs, count * sizeof *bufs);
    int rc = is_first ? advance(fd, w) : 0;
    if (rc == 0) {
        rc = is_first ? watch(conn, fd) : 0;
    }
    if (rc == 0) {
        STAILQ_INSERT_TAIL(&conn->writes, w, link);
        return 0;
    }
    iov_free(w);
    return rc;
}

void mr_client_conn_write_now(struct mr_client_conn *conn, mr_bytes data)
{
    struct iovec iov = {(void *)(uintptr_t)data.ptr, data.len};
    int none = -1;

    if (STAILQ_EMPTY(&conn->writes)) {
        send_once(stream_fd(conn), &iov, 1, &none);
    }
}

void mr_client_conn_writes_stop(struct mr_client_conn *conn, uv_close_cb closed)
{
    if (conn->has_poll) {
        uv_close((uv_handle_t *)&conn->poll, closed);
        close(conn->write_fd);
    }
}

void mr_client_conn_writes_end(struct mr_client_conn *conn)
{
    while (!STAILQ_EMPTY(&conn->writes)) {
        end_first(conn, UV_ECANCELED);
    }
}
