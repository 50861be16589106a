/* One connection of the HTTP client: name look-up, connecting, reading, closing.
 *
 * Addresses of a name are tried one after the other, each on a fresh handle, all within one connect
 * timeout. Literal addresses and Unix sockets need no look-up.
 *
 * The struct lives until libuv has let go of it: a look-up that is running or a handle that is closing
 * keeps it. Everything that ends a connection goes through begin_close, which does that once. */
#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <sys/socket.h>

#include "client_priv.h"
#include "net/tls/tls_priv.h"

static void try_next_address(struct mr_client_conn *conn);

/* ---- closing ---- */

static void conn_free(struct mr_client_conn *conn)
{
    mr_client_conn_writes_end(conn);
    if (conn->h2) {
        nghttp2_session_del(conn->h2);
    }
    SSL_free(conn->ssl);
    mr_buf_fini(&conn->h1.lines);
    mr_client_conn_gone(conn->client, conn);
    mr_free(conn);
}

static void on_closed(uv_handle_t *handle)
{
    struct mr_client_conn *conn = handle->data;

    mr_loop_resume(conn->client->loop);
    if (handle == &conn->uv.handle) {
        conn->has_handle = false;
    } else {
        conn->has_poll = false;
    }
    if (conn->state != MR_CONN_CLOSING) {
        try_next_address(conn);
    } else if (!conn->has_handle && !conn->has_poll && !conn->is_resolving) {
        conn_free(conn);
    }
}

/* Nothing of libuv's is left to wait for, but the caller may still look at the connection. */
static void on_free_later(struct mr_timer *t)
{
    conn_free(MR_CONTAINER_OF(t, struct mr_client_conn, timer));
}

static void begin_close(struct mr_client_conn *conn)
{
    if (conn->state == MR_CONN_CLOSING) {
        return;
    }
    conn->state = MR_CONN_CLOSING;
    mr_timer_stop(&conn->timer);
    mr_flush_cancel(conn->client->loop, &conn->flush);
    if (conn->addresses) {
        uv_freeaddrinfo(conn->addresses);
        conn->addresses = NULL;
    }
    if (conn->is_resolving) {
        uv_cancel((uv_req_t *)&conn->resolve_req);
    }
    if (conn->has_handle) {
        mr_client_tls_end(conn);
        mr_client_conn_writes_stop(conn, on_closed);
        if (!uv_is_closing(&conn->uv.handle)) {
            uv_close(&conn->uv.handle, on_closed);
        }
    } else if (!conn->is_resolving) {
        mr_timer_start(conn->client->loop, &conn->timer, 0, 0, on_free_later);
    }
}

void mr_client_conn_close(struct mr_client_conn *conn)
{
    begin_close(conn);
}

void mr_client_conn_fail(struct mr_client_conn *conn, int rc, const struct mr_err *err)
{
    struct mr_client *c = conn->client;
    struct mr_err copy = *err; /* it may live in a call or in the connection */

    begin_close(conn);
    /* From the last one on: each is put back at the front, so that their order stays. */
    struct mr_client_call *call;
    while ((call = TAILQ_LAST(&conn->calls, mr_call_list))) {
        mr_client_call_broken(call, rc, &copy);
    }
    if (!c->is_closing) {
        mr_client_pump(c);
    }
}

static void on_fail_later(struct mr_timer *t)
{
    struct mr_client_conn *conn = MR_CONTAINER_OF(t, struct mr_client_conn, timer);

    mr_client_conn_fail(conn, conn->fail_rc, &conn->fail_err);
}

void mr_client_conn_fail_later(struct mr_client_conn *conn, int rc, const char *what)
{
    if (conn->state == MR_CONN_CLOSING || conn->fail_rc < 0) {
        return;
    }
    conn->fail_rc = mr_err_set(&conn->fail_err, rc, MR_HERE, "%s: %s", conn->client->address, what);
    mr_timer_stop(&conn->timer);
    mr_timer_start(conn->client->loop, &conn->timer, 0, 0, on_fail_later);
}

/* ---- reading ---- */

static void shared_room(struct mr_client_conn *conn, uv_buf_t *out)
{
    uint8_t *buf = mr_loop_read_buf(conn->client->loop);

    *out = uv_buf_init((char *)buf, buf ? MR_READ_BUF_BYTES : 0);
}

void mr_client_conn_room(struct mr_client_conn *conn, uv_buf_t *out)
{
    if (conn->h2 || !mr_client_h1_direct(conn, out)) {
        shared_room(conn, out);
    }
}

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *out)
{
    struct mr_client_conn *conn = handle->data;

    (void)suggested;
    mr_loop_resume(conn->client->loop);
    if (conn->ssl) {
        shared_room(conn, out);
    } else {
        mr_client_conn_room(conn, out);
    }
}

void mr_client_conn_deliver(struct mr_client_conn *conn, mr_bytes data)
{
    if (conn->h2) {
        mr_client_h2_read(conn, data);
    } else {
        mr_client_h1_read(conn, data);
    }
}

#define TOLD_BYTES 60

/* RFC 9113 section 3.4: HTTP/2 begins with SETTINGS, whose length is less than 2^16 at any server. */
const char *mr_client_stranger(mr_bytes data, char *text, size_t room)
{
    size_t n = 0;

    while (n < MR_MIN(data.len, (size_t)TOLD_BYTES) && data.ptr[n] >= ' ' && data.ptr[n] < 0x7f) {
        n++;
    }
    if (data.len >= 4 && data.ptr[0] == 0 && data.ptr[3] == NGHTTP2_SETTINGS) {
        snprintf(text, room, "it answered in HTTP/2, as servers of gRPC do");
    } else if (n > 0) {
        snprintf(text, room, "it answered '%.*s'", (int)n, (const char *)data.ptr);
    } else {
        snprintf(text, room, "it answered in bytes of another protocol");
    }
    return text;
}

static void broken(struct mr_client_conn *conn, const char *why)
{
    struct mr_err err;

    mr_err_set(&err, MR_E_UNAVAILABLE, MR_HERE, "%s: %s", conn->client->address, why);
    mr_client_conn_fail(conn, MR_E_UNAVAILABLE, &err);
}

void mr_client_conn_ended(struct mr_client_conn *conn, bool is_declared)
{
    if (conn->h2) {
        broken(conn, conn->is_heard ? "connection closed by the server"
                                    : "connection closed by the server before it spoke HTTP/2");
    } else if (!is_declared && TAILQ_FIRST(&conn->calls) && conn->h1.state == MR_CLIENT_H1_TO_END) {
        broken(conn, "the answer was cut off");
    } else {
        mr_client_h1_eof(conn);
    }
}

static void on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *buf)
{
    struct mr_client_conn *conn = stream->data;
    mr_bytes data = {(const uint8_t *)buf->base, n > 0 ? (size_t)n : 0};

    mr_loop_resume(conn->client->loop);
    if (conn->state == MR_CONN_CLOSING || n == 0) {
        return;
    }
    if (n > 0 && conn->ssl) {
        mr_client_tls_read(conn, data);
    } else if (n > 0) {
        mr_client_conn_deliver(conn, data);
    } else if (conn->state == MR_CONN_CONNECTING) {
        mr_client_conn_connect_failed(conn, "the server ended the TLS handshake");
    } else if (n == UV_EOF) {
        mr_client_conn_ended(conn, conn->ssl == NULL);
    } else {
        broken(conn, uv_strerror((int)n));
    }
}

bool mr_client_conn_is_stale(struct mr_client_conn *conn)
{
    uv_os_fd_t fd;
    char byte;

    if (uv_fileno(&conn->uv.handle, &fd) < 0) {
        return true;
    }
    const ssize_t n = recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    return n < 0 ? errno != EAGAIN && errno != EINTR : n == 0 || !conn->h2;
}

/* ---- connecting ---- */

/* "cannot connect to 127.0.0.1:8000: Connection refused" */
void mr_client_conn_connect_failed(struct mr_client_conn *conn, const char *why)
{
    struct mr_client *c = conn->client;
    struct mr_err err;
    bool was_closing = conn->state == MR_CONN_CLOSING;

    begin_close(conn);
    if (was_closing || c->is_closing) {
        return;
    }
    mr_err_set(&err, MR_E_UNAVAILABLE, MR_HERE, "cannot connect to %s: %s", c->address, why);
    mr_client_connect_failed(c, &err);
}

static const char *error_text(int uv_error)
{
    if (uv_error == UV_EAI_NONAME) {
        return "unknown host name";
    }
    /* The system's own words where it has some; libuv's numbers below -1000 are its own. */
    return uv_error > -1000 ? strerror(-uv_error) : uv_strerror(uv_error);
}

static void on_connect_timeout(struct mr_timer *t)
{
    struct mr_client_conn *conn = MR_CONTAINER_OF(t, struct mr_client_conn, timer);
    char why[64];

    snprintf(why, sizeof why, "no answer within %.3g s",
             (double)conn->client->options.connect_timeout_ns / (double)MR_NS_PER_S);
    mr_client_conn_connect_failed(conn, why);
}

void mr_client_conn_usable(struct mr_client_conn *conn)
{
    struct mr_err err;

    mr_timer_stop(&conn->timer);
    conn->state = MR_CONN_OPEN;
    conn->heard_ns = mr_loop_now_ns(conn->client->loop);
    if (conn->client->options.http2 && mr_client_h2_open(conn, &err) < 0) {
        mr_client_conn_connect_failed(conn, err.msg);
        return;
    }
    mr_client_pump(conn->client);
}

static void connected(struct mr_client_conn *conn)
{
    if (conn->addresses) {
        uv_freeaddrinfo(conn->addresses);
        conn->addresses = NULL;
    }
    if (!conn->client->is_unix) {
        uv_tcp_nodelay(&conn->uv.tcp, 1);
    }
    int rc = uv_read_start(&conn->uv.stream, on_alloc, on_read);
    if (rc == 0 && conn->client->options.tls) {
        rc = mr_client_tls_begin(conn);
    } else if (rc == 0) {
        mr_client_conn_usable(conn);
    }
    if (rc < 0) {
        mr_client_conn_connect_failed(conn, uv_strerror(rc));
    }
}

static void on_connect(uv_connect_t *req, int status)
{
    struct mr_client_conn *conn = req->data;

    mr_loop_resume(conn->client->loop);
    if (conn->state == MR_CONN_CLOSING) {
        return;
    }
    if (status == 0) {
        connected(conn);
        return;
    }
    conn->connect_error = status;
    /* A socket that failed to connect cannot try again: close it, go on in on_closed. */
    uv_close(&conn->uv.handle, on_closed);
}

static int connect_tcp(struct mr_client_conn *conn, const struct sockaddr *address)
{
    int rc = uv_tcp_init(mr_loop_uv(conn->client->loop), &conn->uv.tcp);

    if (rc < 0) {
        return rc;
    }
    conn->has_handle = true;
    conn->uv.handle.data = conn;
    return uv_tcp_connect(&conn->connect_req, &conn->uv.tcp, address, on_connect);
}

static void connect_unix(struct mr_client_conn *conn)
{
    uv_pipe_init(mr_loop_uv(conn->client->loop), &conn->uv.pipe, 0);
    conn->has_handle = true;
    conn->uv.handle.data = conn;
    uv_pipe_connect(&conn->connect_req, &conn->uv.pipe, conn->client->host, on_connect);
}

static void try_next_address(struct mr_client_conn *conn)
{
    while (conn->next_address && !conn->has_handle) {
        const struct addrinfo *a = conn->next_address;
        conn->next_address = a->ai_next;
        int rc = connect_tcp(conn, a->ai_addr);
        if (rc == 0) {
            return;
        }
        conn->connect_error = rc;
        if (conn->has_handle) {
            uv_close(&conn->uv.handle, on_closed);
            return;
        }
    }
    mr_client_conn_connect_failed(conn, error_text(conn->connect_error));
}

static void on_resolved(uv_getaddrinfo_t *req, int status, struct addrinfo *addresses)
{
    struct mr_client_conn *conn = req->data;

    mr_loop_resume(conn->client->loop);
    conn->is_resolving = false;
    conn->client->loop->open_handles--;
    if (conn->state == MR_CONN_CLOSING) {
        uv_freeaddrinfo(addresses);
        conn_free(conn);
        return;
    }
    if (status < 0) {
        mr_client_conn_connect_failed(conn, error_text(status));
        return;
    }
    conn->addresses = addresses;
    conn->next_address = addresses;
    try_next_address(conn);
}

static int begin_tcp(struct mr_client_conn *conn)
{
    struct mr_client *c = conn->client;
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;

    if (uv_ip4_addr(c->host, c->port_number, &v4) == 0) {
        return connect_tcp(conn, (struct sockaddr *)&v4);
    }
    if (uv_ip6_addr(c->host, c->port_number, &v6) == 0) {
        return connect_tcp(conn, (struct sockaddr *)&v6);
    }
    conn->resolve_req.data = conn;
    int rc = uv_getaddrinfo(mr_loop_uv(c->loop), &conn->resolve_req, on_resolved, c->host, c->port,
                            &hints);
    conn->is_resolving = rc == 0;
    c->loop->open_handles += rc == 0;
    return rc;
}

/* The timer reports an immediate failure, as the caller may be mr_client_send. */
static void on_start_failed(struct mr_timer *t)
{
    struct mr_client_conn *conn = MR_CONTAINER_OF(t, struct mr_client_conn, timer);

    mr_client_conn_connect_failed(conn, error_text(conn->connect_error));
}

void mr_client_conn_start(struct mr_client *c)
{
    struct mr_client_conn *conn = MR_NEW(struct mr_client_conn);

    conn->client = c;
    conn->state = MR_CONN_CONNECTING;
    conn->connect_req.data = conn;
    conn->flush.run = mr_client_h2_flush;
    mr_buf_init(&conn->h1.lines, MR_CLIENT_HEAD_MAX);
    TAILQ_INIT(&conn->calls);
    STAILQ_INIT(&conn->writes);
    LIST_INSERT_HEAD(&c->conns, conn, link);
    if (c->is_unix) {
        connect_unix(conn);
    } else {
        conn->connect_error = begin_tcp(conn);
    }
    if (conn->connect_error < 0) {
        mr_timer_start(c->loop, &conn->timer, 0, 0, on_start_failed);
    } else {
        mr_timer_start(c->loop, &conn->timer, c->options.connect_timeout_ns, 0, on_connect_timeout);
    }
}
