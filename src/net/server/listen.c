/* Listening: addresses, sockets, accepting.
 *
 * TCP: each loop has a listening socket of its own (SO_REUSEPORT), so that the kernel spreads
 * connections and no descriptor is shared. Unless the caller wants to share the port with other processes, the first
 * one is bound without SO_REUSEPORT, so that the bind fails if the port is in use; the option is set afterwards, for
 * the further sockets. Unix: one socket, a descriptor per loop.
 *
 * When the process runs out of descriptors, accepting pauses for a moment and connections wait in
 * the kernel's queue.
 *
 * Sockets are made on the boot thread, handles on the loop (by mail, also before the loop runs). */
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "server.h"

#define BACKLOG        4096
#define ACCEPTS_OWN    64  /* per wake-up, so that many new connections do not block requests */
#define ACCEPTS_SHARED 8   /* leave some to the other loops */
#define ACCEPTS_LAST   512 /* before the socket is closed, which resets what still waits */
#define RETRY_NS       (250 * MR_NS_PER_MS)

struct mr_listener {
    struct mr_listener *next;     /* of the server */
    struct mr_listener *next_own; /* of the part */
    struct mr_server_part *part;
    uv_poll_t poll;
    struct mr_mail start_mail;
    int fd; /* -1 when closed */
    int tag;
    bool over_unix;
    bool on_loopback;
    bool has_handle;
    struct mr_tls *tls; /* NULL: none */
    char *unlink_path;  /* of a Unix address */
    dev_t dev;
    ino_t ino;
};

/* ---- addresses ------------------------------------------------------------------------------ */

struct address {
    union {
        struct sockaddr any;
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
        struct sockaddr_un un;
        struct sockaddr_storage storage;
    };
    socklen_t len;
};

static int unix_address(const char *path, struct address *out, struct mr_err *err)
{
    size_t len = strlen(path);

    if (len == 0 || len >= sizeof out->un.sun_path) {
        return MR_FAIL(err, MR_E_INVALID, "unix:%s: path must have 1..%zu bytes", path,
                       sizeof out->un.sun_path - 1);
    }
    *out = (struct address){.len = (socklen_t)sizeof out->un};
    out->un.sun_family = AF_UNIX;
    memcpy(out->un.sun_path, path, len + 1);
    return MR_OK;
}

/* Split "host:port" or "[v6]:port" into NUL-terminated parts. */
static bool split_host_port(const char *text, char host[256], char port[8])
{
    const char *colon = strrchr(text, ':');
    size_t host_len = colon ? (size_t)(colon - text) : 0;
    uint64_t number;

    if (!colon || !mr_str_to_u64(mr_str_c(colon + 1), &number) || number > 65535) {
        return false;
    }
    if (host_len >= 2 && text[0] == '[' && colon[-1] == ']') {
        text++;
        host_len -= 2;
    } else if (memchr(text, ':', host_len)) {
        return false;
    }
    if (host_len == 0 || host_len > 255) {
        return false;
    }
    memcpy(host, text, host_len);
    host[host_len] = '\0';
    snprintf(port, 8, "%u", (unsigned)number);
    return true;
}

/* flags: AI_NUMERICHOST: a name is an error. */
static int tcp_address(const char *text, int flags, struct address *out, struct mr_err *err)
{
    char host[256];
    char port[8];
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM,
                             .ai_flags = AI_PASSIVE | AI_NUMERICSERV | flags};
    struct addrinfo *list = NULL;

    if (!split_host_port(text, host, port)) {
        return MR_FAIL(err, MR_E_INVALID,
                       "'%s' is not an address: expected host:port, [v6]:port or unix:/path", text);
    }
    int rc = getaddrinfo(host, port, &hints, &list);
    if (rc != 0) {
        return MR_FAIL(err, MR_E_INVALID, "address '%s': %s", text, gai_strerror(rc));
    }
    /* For a name with both families ("localhost"): IPv4, which every client tries. */
    const struct addrinfo *best = list;
    for (const struct addrinfo *a = list; a; a = a->ai_next) {
        if (a->ai_family == AF_INET) {
            best = a;
            break;
        }
    }
    *out = (struct address){.len = best->ai_addrlen};
    memcpy(&out->storage, best->ai_addr, best->ai_addrlen);
    freeaddrinfo(list);
    return MR_OK;
}

/* ---- sockets -------------------------------------------------------------------------------- */

static int fail_errno(struct mr_err *err, const char *address, const char *what)
{
    int e = errno;

    return MR_FAIL(err, MR_E_IO, "cannot listen on %s: %s%s%s", address, what, what[0] ? ": " : "",
                   strerror(e));
}

static void set_option(int fd, int level, int name, int value)
{
    (void)setsockopt(fd, level, name, &value, sizeof value);
}

/* A bound and listening socket. Accepted ones inherit its options. */
static int socket_listen(const char *text, const struct address *a, bool reuse_port, int *out_fd,
                         struct mr_err *err)
{
    int fd = socket(a->any.sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    int rc = MR_OK;

    if (fd < 0) {
        return fail_errno(err, text, "socket");
    }
    if (a->any.sa_family != AF_UNIX) {
        set_option(fd, SOL_SOCKET, SO_REUSEADDR, 1);
        set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
        set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
        set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, 120);
        if (reuse_port) {
            set_option(fd, SOL_SOCKET, SO_REUSEPORT, 1);
        }
    }
    if (bind(fd, &a->any, a->len) < 0) {
        rc = fail_errno(err, text, "");
    } else if (listen(fd, BACKLOG) < 0) {
        rc = fail_errno(err, text, "");
    }
    if (rc < 0) {
        close(fd);
        return rc;
    }
    *out_fd = fd;
    return MR_OK;
}

/* All or none of `count` sockets on one TCP address; *io_a gets the port. */
static int tcp_listen_all(const char *text, struct address *a, bool reuse_port, int *fds,
                          size_t count, struct mr_err *err)
{
    int rc = socket_listen(text, a, reuse_port, &fds[0], err);
    size_t have = rc == MR_OK ? 1 : 0;

    if (rc == MR_OK && getsockname(fds[0], &a->any, &a->len) < 0) {
        rc = fail_errno(err, text, "getsockname");
    }
    if (rc == MR_OK && count > 1 && !reuse_port) {
        /* The port is exclusive; now the other sockets may join. */
        set_option(fds[0], SOL_SOCKET, SO_REUSEPORT, 1);
    }
    while (rc == MR_OK && have < count) {
        rc = socket_listen(text, a, true, &fds[have], err);
        have += rc == MR_OK ? 1 : 0;
    }
    if (rc < 0) {
        while (have > 0) {
            close(fds[--have]);
        }
    }
    return rc;
}

/* Returns 0, or an errno: ECONNREFUSED: no process listens there. */
static int try_connect(const struct address *a)
{
    int fd = socket(a->any.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (fd < 0) {
        return errno;
    }
    int e = connect(fd, &a->any, a->len) < 0 ? errno : 0;
    if (e == EINPROGRESS && poll(&(struct pollfd){.fd = fd, .events = POLLOUT}, 1, 1) == 1) {
        socklen_t len = sizeof e;
        getsockopt(fd, SOL_SOCKET, SO_ERROR, &e, &len);
    }
    close(fd);
    return e;
}

/* Removes a socket file without a listener; any other file is an error. */
static int unix_clear(const char *text, const struct address *a, struct mr_err *err)
{
    struct stat st;

    if (lstat(a->un.sun_path, &st) < 0) {
        return errno == ENOENT ? MR_OK : fail_errno(err, text, "");
    }
    if (!S_ISSOCK(st.st_mode)) {
        return MR_FAIL(err, MR_E_IO,
                       "cannot listen on %s: there is a file of that name, and it is no socket",
                       text);
    }
    int e = try_connect(a);
    if (e != ECONNREFUSED) {
        return MR_FAIL(err, MR_E_IO, "cannot listen on %s: %s", text,
                       e == 0 || e == EAGAIN ? "in use by another process" : strerror(e));
    }
    return unlink(a->un.sun_path) == 0 ? MR_OK
                                       : fail_errno(err, text, "the old socket cannot be removed");
}

static int unix_listen_all(const char *text, struct address *a, int *fds, size_t count,
                           struct mr_err *err)
{
    int rc = unix_clear(text, a, err);
    size_t have = 0;

    if (rc == MR_OK) {
        rc = socket_listen(text, a, false, &fds[0], err);
        have = rc == MR_OK ? 1 : 0;
    }
    while (rc == MR_OK && have < count) {
        fds[have] = fcntl(fds[0], F_DUPFD_CLOEXEC, 0);
        if (fds[have] < 0) {
            rc = fail_errno(err, text, "dup");
        } else {
            have++;
        }
    }
    if (rc < 0 && have > 0) {
        while (have > 0) {
            close(fds[--have]);
        }
        unlink(a->un.sun_path);
    }
    return rc;
}

/* ---- accepting ------------------------------------------------------------------------------ */

static void listener_wait(struct mr_listener *l, bool on);

static void on_retry(struct mr_deadline *d)
{
    struct mr_server_part *part = MR_CONTAINER_OF(d, struct mr_server_part, retry);

    for (struct mr_listener *l = part->listeners; l; l = l->next_own) {
        listener_wait(l, true);
    }
}

/* Out of descriptors or memory: connections wait in the kernel's queue. */
static void pause_accepting(struct mr_server_part *part)
{
    for (struct mr_listener *l = part->listeners; l; l = l->next_own) {
        listener_wait(l, false);
    }
    part->retry.fn = on_retry;
    mr_deadline_set(part->loop, &part->retry, mr_ns_after(part->loop->now_ns, RETRY_NS));
}

static void refuse(struct mr_listener *l, int fd)
{
    static const char answer[] = "HTTP/1.1 503 Service Unavailable\r\n"
                                 "content-type: application/json\r\n"
                                 "content-length: 52\r\n"
                                 "retry-after: 1\r\n"
                                 "connection: close\r\n\r\n"
                                 "{\"error\":\"too many connections (--max-connections)\"}";
    static const char alert[] = "\x15\x03\x03\x00\x02\x02\x50"; /* fatal: internal_error */
    const char *last = l->tls ? alert : answer;
    size_t last_len = (l->tls ? sizeof alert : sizeof answer) - 1;
    char sink[4096];

    mr_count_add(&l->part->loop->stats.refused, 1);
    (void)!send(fd, last, last_len, MSG_DONTWAIT | MSG_NOSIGNAL);
    /* Unread data at close would reset the connection and lose the answer. */
    shutdown(fd, SHUT_WR);
    (void)!recv(fd, sink, sizeof sink, MSG_DONTWAIT);
    close(fd);
}

static void welcome(struct mr_listener *l, int fd, const struct address *peer)
{
    struct mr_server_part *part = l->part;
    struct sockaddr_in6 from = {0};

    if (!mr_server_admit(part->server)) {
        refuse(l, fd);
        return;
    }
    memcpy(&from, &peer->storage, MR_MIN(sizeof from, (size_t)peer->len));
    const struct mr_transport *transport = l->tls ? &mr_transport_tls : &mr_transport_plain;
    struct mr_conn *c = mr_conn_open(part, transport, fd, l->tag, l->over_unix, &from);
    part->live++;
    if (!c) {
        close(fd);
        mr_server_forget(part);
        return;
    }
    c->on_loopback = l->on_loopback;
    c->draining = part->draining;
    mr_count_add(&part->loop->stats.accepted, 1);
    if ((l->tls ? mr_transport_tls_start(c, l->tls) : mr_transport_plain_start(c)) < 0) {
        mr_conn_abandon(c);
        return;
    }
    mr_conn_start(c);
    if (part->draining) {
        mr_conn_ready(c, MR_WANT_READ); /* the drain closes it unless a request has begun */
    }
}

static void accept_up_to(struct mr_listener *l, int most)
{
    for (int i = 0; i < most; i++) {
        struct address peer = {.len = sizeof peer.storage};
        int fd = accept4(l->fd, &peer.any, &peer.len, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd >= 0) {
            welcome(l, fd, &peer);
        } else if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS) {
            pause_accepting(l->part);
            return;
        } else if (errno != ECONNABORTED && errno != EINTR && errno != EPROTO) {
            return;
        }
    }
}

static void on_acceptable(uv_poll_t *poll, int status, int events)
{
    struct mr_listener *l = poll->data;

    (void)status;
    (void)events;
    mr_loop_enter(l->part->loop);
    accept_up_to(l, l->over_unix ? ACCEPTS_SHARED : ACCEPTS_OWN);
}

static void listener_wait(struct mr_listener *l, bool on)
{
    if (!l->has_handle || uv_is_closing((uv_handle_t *)&l->poll)) {
        return;
    }
    if (on) {
        uv_poll_start(&l->poll, UV_READABLE, on_acceptable);
    } else {
        uv_poll_stop(&l->poll);
    }
}

static void listener_start(struct mr_mail *mail)
{
    struct mr_listener *l = MR_CONTAINER_OF(mail, struct mr_listener, start_mail);
    struct mr_server_part *part = l->part;

    if (part->draining || uv_poll_init(&part->loop->uv, &l->poll, l->fd) < 0) {
        close(l->fd);
        l->fd = -1;
        return;
    }
    l->poll.data = l;
    l->has_handle = true;
    part->live++;
    l->next_own = part->listeners;
    part->listeners = l;
    listener_wait(l, true);
}

static void on_listener_closed(uv_handle_t *handle)
{
    struct mr_listener *l = handle->data;

    l->has_handle = false;
    mr_part_let_go(l->part);
}

void mr_listeners_stop(struct mr_server_part *part)
{
    while (part->listeners) {
        struct mr_listener *l = part->listeners;
        if (!part->closing) {
            accept_up_to(l, ACCEPTS_LAST);
        }
        part->listeners = l->next_own;
        uv_close((uv_handle_t *)&l->poll, on_listener_closed);
        close(l->fd);
        l->fd = -1;
    }
    mr_deadline_clear(part->loop, &part->retry);
}

/* ---- boot ----------------------------------------------------------------------------------- */

void mr_listeners_unlink(struct mr_http_server *s)
{
    struct stat st;

    if (atomic_exchange_explicit(&s->unlinked, true, memory_order_relaxed)) {
        return;
    }
    for (struct mr_listener *l = s->all_listeners; l; l = l->next) {
        /* Only if it is still the same file: it may have been replaced. */
        if (l->unlink_path && lstat(l->unlink_path, &st) == 0 && st.st_dev == l->dev &&
            st.st_ino == l->ino) {
            unlink(l->unlink_path);
        }
    }
}

void mr_listeners_free(struct mr_http_server *s)
{
    while (s->all_listeners) {
        struct mr_listener *l = s->all_listeners;
        s->all_listeners = l->next;
        mr_free(l->unlink_path);
        mr_free(l);
    }
}

static struct mr_server_part *part_for(struct mr_http_server *s, struct mr_loop *loop)
{
    struct mr_server_part *part = s->parts;

    while (part && part->loop != loop) {
        part = part->next;
    }
    if (!part) {
        mr_conn_memory_init(loop);
        part = MR_NEW(struct mr_server_part);
        part->server = s;
        part->loop = loop;
        part->handler = &s->handler;
        part->options = &s->options;
        TAILQ_INIT(&part->waits_memory);
        part->next = s->parts;
        s->parts = part;
        atomic_fetch_add_explicit(&s->parts_open, 1, memory_order_relaxed);
        atomic_fetch_add_explicit(&s->parts_listening, 1, memory_order_relaxed);
        atomic_fetch_add_explicit(&s->refs, 1, memory_order_relaxed);
    }
    return part;
}

static bool is_loopback(const struct address *a)
{
    switch (a->any.sa_family) {
    case AF_INET: return ntohl(a->v4.sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
    case AF_INET6:
        return IN6_IS_ADDR_LOOPBACK(&a->v6.sin6_addr) ||
               (IN6_IS_ADDR_V4MAPPED(&a->v6.sin6_addr) &&
                a->v6.sin6_addr.s6_addr[12] == IN_LOOPBACKNET);
    default: return false;
    }
}

bool mr_http_is_unused(const char *address)
{
    struct address a;
    bool is_unix = strncmp(address, "unix:", 5) == 0;
    int rc = is_unix ? unix_address(address + 5, &a, NULL)
                     : tcp_address(address, AI_NUMERICHOST, &a, NULL);

    return rc == MR_OK && (is_unix || is_loopback(&a)) && try_connect(&a) == ECONNREFUSED;
}

bool mr_http_is_local(const char *address)
{
    size_t len = strcspn(address, ":");
    char host[INET_ADDRSTRLEN] = "";
    struct in_addr in;

    if (strncmp(address, "[::1]:", 6) == 0 || strncmp(address, "unix:", 5) == 0 ||
        strncmp(address, "localhost:", 10) == 0) {
        return true;
    }
    memcpy(host, address, len < sizeof host ? len : 0);
    return strncmp(host, "127.", 4) == 0 && inet_pton(AF_INET, host, &in) == 1;
}

static void listener_add(struct mr_http_server *s, struct mr_loop *loop, int fd, int tag,
                         struct mr_tls *tls, const struct address *a)
{
    struct mr_listener *l = MR_NEW(struct mr_listener);
    struct stat st;

    l->part = part_for(s, loop);
    l->fd = fd;
    l->tag = tag;
    l->tls = tls;
    const char *unix_path = a->any.sa_family == AF_UNIX ? a->un.sun_path : NULL;
    l->over_unix = unix_path != NULL;
    l->on_loopback = is_loopback(a);
    if (unix_path && lstat(unix_path, &st) == 0) {
        l->unlink_path = mr_strndup(unix_path, strlen(unix_path));
        l->dev = st.st_dev;
        l->ino = st.st_ino;
    }
    l->next = s->all_listeners;
    s->all_listeners = l;
    l->start_mail.run = listener_start;
    mr_loop_post(loop, &l->start_mail);
}

int mr_http_listen(struct mr_http_server *s, struct mr_loop *const *loops, size_t loop_count,
                   const char *address, int tag, bool reuse_port, uint16_t *out_port,
                   struct mr_err *err)
{
    return mr_http_listen_tls(s, loops, loop_count, address, tag, reuse_port, NULL, out_port, err);
}

int mr_http_listen_tls(struct mr_http_server *s, struct mr_loop *const *loops, size_t loop_count,
                       const char *address, int tag, bool reuse_port, struct mr_tls *tls,
                       uint16_t *out_port, struct mr_err *err)
{
    bool is_unix = strncmp(address, "unix:", 5) == 0;
    struct address a;
    int rc = is_unix ? unix_address(address + 5, &a, err) : tcp_address(address, 0, &a, err);

    if (rc < 0) {
        return rc;
    }
    if (loop_count == 0) {
        return MR_FAIL(err, MR_E_INVALID, "%s: no loop to listen on", address);
    }
    int *fds = MR_NEW_ARRAY(int, loop_count);
    rc = is_unix ? unix_listen_all(address, &a, fds, loop_count, err)
                 : tcp_listen_all(address, &a, reuse_port, fds, loop_count, err);
    if (rc == MR_OK) {
        for (size_t i = 0; i < loop_count; i++) {
            listener_add(s, loops[i], fds[i], tag, tls, &a);
        }
        if (out_port) {
            *out_port =
                is_unix ? 0 : ntohs(a.any.sa_family == AF_INET6 ? a.v6.sin6_port : a.v4.sin_port);
        }
    }
    mr_free(fds);
    return rc;
}
