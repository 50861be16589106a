/* The plain transport: a non-blocking stream socket under uv_poll. uv_poll and not uv_tcp, because
 * the reader chooses where bytes go (a buffer, or a body's final place), and because the peer's end
 * can be watched for without reading. Thread: loop. */
#include "conn.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "server.h"

/* Bytes: a client that allocates in a file keeps others from writing to it for so long. */
#define PASSED_MOST   ((int64_t)1 << 30)
#define CLOSINGS_MOST 64

static ssize_t result(ssize_t n)
{
    if (n >= 0) {
        return n;
    }
    return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR ? -EAGAIN : -errno;
}

/* ---- descriptors of clients ---- */

/* Those that are being closed, in the process. */
static _Atomic int closings;

static void *close_main(void *fd)
{
    close((int)(intptr_t)fd);
    atomic_fetch_sub_explicit(&closings, 1, memory_order_relaxed); /* a count alone */
    return NULL;
}

/* On a thread of its own, as the client decides how long it takes: it may be the last of a large file, or the file of a
 * process that does not answer (FUSE). */
static void close_aside(int fd)
{
    void *arg = (void *)(intptr_t)fd;
    pthread_attr_t attr;
    pthread_t thread;

    atomic_fetch_add_explicit(&closings, 1, memory_order_relaxed);
    pthread_attr_init(&attr);
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&attr, (size_t)64 * 1024);
    if (pthread_create(&thread, &attr, close_main, arg) != 0) {
        close_main(arg);
    }
    pthread_attr_destroy(&attr);
}

void mr_conn_drop_passed(struct mr_conn *c)
{
    if (c->passed_fd >= 0) {
        close_aside(c->passed_fd);
        c->passed_fd = -1;
    }
}

static void take_passed(struct mr_conn *c, int fd)
{
    const int size_sealed = F_SEAL_SHRINK | F_SEAL_GROW;
    const int seals = fcntl(fd, F_GET_SEALS); /* fails for what is not memory */
    struct stat st;

    mr_conn_drop_passed(c);
    if (seals < 0 || (seals & size_sealed) != size_sealed || fstat(fd, &st) < 0 ||
        st.st_size > PASSED_MOST) {
        close_aside(fd);
        return;
    }
    c->passed_fd = fd;
    c->passed_bytes = (uint64_t)st.st_size;
}

/* A message with room for one descriptor; the kernel closes further ones. While too many are being closed there is no room, and
 * a descriptor ends the connection: its requests must not meet the memory of an earlier one. */
static ssize_t receive(struct mr_conn *c, struct iovec *iov, int count)
{
    const bool has_room = atomic_load_explicit(&closings, memory_order_relaxed) < CLOSINGS_MOST;
    union {
        struct cmsghdr head;
        char room[CMSG_SPACE(sizeof(int))];
    } control;
    struct msghdr msg = {.msg_iov = iov,
                         .msg_iovlen = (size_t)count,
                         .msg_control = has_room ? &control : NULL,
                         .msg_controllen = has_room ? CMSG_LEN(sizeof(int)) : 0};
    ssize_t n = recvmsg(c->fd, &msg, MSG_CMSG_CLOEXEC);
    if (n >= 0 && !has_room && (msg.msg_flags & MSG_CTRUNC)) {
        errno = ECONNABORTED;
        return -1;
    }
    const struct cmsghdr *h = n >= 0 ? CMSG_FIRSTHDR(&msg) : NULL;
    int fd;

    if (h && h->cmsg_level == SOL_SOCKET && h->cmsg_type == SCM_RIGHTS &&
        h->cmsg_len == CMSG_LEN(sizeof fd)) {
        memcpy(&fd, CMSG_DATA(h), sizeof fd);
        take_passed(c, fd);
    }
    return n;
}

/* ---- the transport ---- */

static bool takes_memory(const struct mr_conn *c)
{
    return c->over_unix && c->part->options->takes_memory;
}

static ssize_t plain_read(struct mr_conn *c, void *buf, size_t n)
{
    if (takes_memory(c)) {
        return result(receive(c, &(struct iovec){buf, n}, 1));
    }
    return result(recv(c->fd, buf, n, 0));
}

static ssize_t plain_readv(struct mr_conn *c, const struct iovec *iov, int count)
{
    if (takes_memory(c)) {
        return result(receive(c, (struct iovec *)iov, count));
    }
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
