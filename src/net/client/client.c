/* The HTTP client: calls, and which connection takes which.
 *
 * A call first waits. mr_client_pump gives waiting calls, oldest first, to connections that can take
 * one and opens further connections within the limit. With HTTP/1.1 a connection takes one call at a
 * time and goes back to the pool of idle ones; with HTTP/2 there is one connection for all calls, and
 * another when the peer retires it.
 *
 * A server may close an idle connection at the moment when we write on it. A call that dies this way,
 * on a connection that had served before and without one byte of its response, is sent once more. That,
 * a stream, and one that must not be sent twice get a connection of which the system knows no such end.
 *
 * No callback runs within mr_client_send: its failures are reported by the call's timer. */
#include "net/client.h"

#include <stdio.h>
#include <sys/un.h>

#include "client_priv.h"

#define CONNECT_TIMEOUT_NS (5 * MR_NS_PER_S)
#define RESPONSE_BYTES_MAX ((int64_t)1 << 30)
#define CONNECTIONS_MAX    64
/* Of a peer of HTTP/2 that was asked something, at least, until a call in vain is the end of its connection. */
#define SILENCE_NS (5 * MR_NS_PER_S)
/* More is cut off by libuv, and the rest may be the path of another server. */
#define SOCKET_PATH_MAX (sizeof((struct sockaddr_un *)0)->sun_path - 1)

static void on_timeout(struct mr_timer *t)
{
    struct mr_client_call *call = MR_CONTAINER_OF(t, struct mr_client_call, timer);
    struct mr_client *c = call->client;
    struct mr_client_conn *conn = call->conn;
    struct mr_err err;

    mr_err_set(&err, MR_E_DEADLINE, MR_HERE, "no answer from %s within %.3g s", c->address,
               (double)call->timeout_ns / (double)MR_NS_PER_S);
    if (conn && conn->h2) {
        /* Not a word for long: the connection may be dead without an end, as after a change of routes. */
        conn->is_draining |=
            mr_loop_now_ns(c->loop) - MR_MAX(conn->asked_ns, conn->heard_ns) >= SILENCE_NS;
        mr_client_h2_cancel(conn, call);
        mr_client_call_end(call, MR_E_DEADLINE, &err);
        return;
    }
    if (conn) {
        /* An HTTP/1.1 connection with a pending answer cannot be reused. */
        mr_client_conn_fail(conn, MR_E_DEADLINE, &err);
        return;
    }
    mr_client_call_end(call, MR_E_DEADLINE, &err);
}

static void on_failed(struct mr_timer *t)
{
    struct mr_client_call *call = MR_CONTAINER_OF(t, struct mr_client_call, timer);

    mr_client_call_end(call, call->failed_rc, &call->failed_err);
}

/* ---- giving calls to connections ---- */

static bool can_take(struct mr_client_conn *conn, const struct mr_client_call *call)
{
    const bool is_http2 = conn->client->options.http2;

    if (conn->state != MR_CONN_OPEN ||
        !(is_http2 ? mr_client_h2_can_take(conn) : mr_client_h1_is_idle(conn))) {
        return false;
    }
    if ((!call->never_repeat && !call->was_retried && !call->stream) ||
        !mr_client_conn_is_stale(conn)) {
        return true;
    }
    if (!is_http2) {
        mr_client_conn_close(
            conn); /* makes room for another one; with HTTP/2 the loop reads the end */
    }
    return false;
}

/* Rather one whose server has the memory of the call already. */
static struct mr_client_conn *find_taker(struct mr_client *c, const struct mr_client_call *call)
{
    struct mr_client_conn *conn, *found = NULL;

    LIST_FOREACH (conn, &c->conns, link) {
        const bool can = can_take(conn, call);
        if (can && (!call->memory.id || conn->memory_id == call->memory.id)) {
            return conn;
        }
        found = can ? conn : found;
    }
    return found;
}

static void count_conns(const struct mr_client *c, size_t *out_usable, size_t *out_connecting)
{
    const struct mr_client_conn *conn;

    *out_usable = *out_connecting = 0;
    LIST_FOREACH (conn, &c->conns, link) {
        *out_usable += conn->state != MR_CONN_CLOSING && !conn->is_draining;
        *out_connecting += conn->state == MR_CONN_CONNECTING;
    }
}

void mr_client_pump(struct mr_client *c)
{
    struct mr_client_conn *conn;
    size_t usable;
    size_t connecting;

    while (!c->is_closing && c->waiting_count > 0 &&
           (conn = find_taker(c, TAILQ_FIRST(&c->waiting)))) {
        struct mr_client_call *call = TAILQ_FIRST(&c->waiting);
        mr_client_call_unlink(call);
        call->conn = conn;
        TAILQ_INSERT_TAIL(&conn->calls, call, link);
        if (c->options.http2) {
            mr_client_h2_start(conn, call);
        } else {
            mr_client_h1_start(conn, call);
        }
    }
    count_conns(c, &usable, &connecting);
    size_t wanted = c->options.http2 ? c->waiting_count > 0 : c->waiting_count;
    while (!c->is_closing && connecting < wanted && usable < c->options.max_connections) {
        mr_client_conn_start(c);
        connecting++;
        usable++;
    }
}

void mr_client_connect_failed(struct mr_client *c, const struct mr_err *err)
{
    const struct mr_client_conn *conn;
    size_t left = c->waiting_count;

    LIST_FOREACH (conn, &c->conns, link) {
        if (conn->state == MR_CONN_OPEN && !conn->is_draining) {
            return; /* the waiting calls will get that one's turn */
        }
    }
    /* Calls that the callbacks add are not this failure's. */
    while (left-- > 0 && c->waiting_count > 0 && !c->is_closing) {
        mr_client_call_end(TAILQ_FIRST(&c->waiting), err->status, err);
    }
    if (!c->is_closing) {
        mr_client_pump(c);
    }
}

/* ---- making a call ---- */

static void fail_later(struct mr_client *c, struct mr_client_call *call)
{
    TAILQ_INSERT_TAIL(&c->failed, call, link);
    mr_timer_start(c->loop, &call->timer, 0, 0, on_failed);
}

void mr_client_call_start(struct mr_client *c, struct mr_client_call *call)
{
    /* The loop may not be running yet, and its time would be old. */
    mr_loop_resume(c->loop);
    if (call->failed_rc < 0) {
        fail_later(c, call);
        return;
    }
    if (call->timeout_ns > 0) {
        mr_timer_start(c->loop, &call->timer, call->timeout_ns, 0, on_timeout);
    }
    mr_client_call_wait(call);
    mr_client_pump(c);
}

struct mr_client_call *mr_client_send(struct mr_client *c, const struct mr_client_request *r,
                                      mr_client_done_fn *done, void *ctx)
{
    struct mr_client_call *call = mr_client_call_new(c, r, done, ctx);

    mr_client_call_start(c, call);
    return call;
}

void mr_client_cancel(struct mr_client_call *call)
{
    struct mr_client *c = call->client;
    struct mr_client_conn *conn = call->conn;

    if (call->failed_rc < 0 || c->is_closing) {
        return; /* it ends as failed, or with the client, as cancelled */
    }
    if (conn && conn->h2) {
        mr_client_h2_cancel(conn, call);
    }
    mr_timer_stop(&call->timer);
    mr_client_call_unlink(call);
    call->failed_rc =
        mr_err_set(&call->failed_err, MR_E_CANCELLED, MR_HERE, "the call was cancelled");
    fail_later(c, call);
    if (conn && !conn->h2) {
        mr_client_conn_close(conn); /* an answer is on its way that no other call may get */
        mr_client_pump(c);
    }
}

struct mr_client_call *mr_client_refuse(struct mr_client *c, const struct mr_client_request *r,
                                        int rc, const char *why, mr_client_done_fn *done, void *ctx)
{
    struct mr_client_call *call = mr_client_call_new(c, r, done, ctx);

    mr_loop_resume(c->loop);
    call->failed_rc = mr_err_set(&call->failed_err, rc, MR_HERE, "%s", why);
    fail_later(c, call);
    return call;
}

/* ---- the client ---- */

static void apply_defaults(struct mr_client_options *o)
{
    if (o->connect_timeout_ns <= 0) {
        o->connect_timeout_ns = CONNECT_TIMEOUT_NS;
    }
    if (o->max_response_bytes <= 0) {
        o->max_response_bytes = RESPONSE_BYTES_MAX;
    }
    if (o->max_connections == 0) {
        o->max_connections = o->http2 ? 1 : CONNECTIONS_MAX;
    }
}

void mr_client_set_response_max(struct mr_client *c, int64_t bytes)
{
    c->options.max_response_bytes = MR_MAX(bytes, INT64_C(1));
}

/* "host:port", "[v6]:port"; the host is a part of the text. */
static int split_address(const char *address, mr_str *out_host, int *out_port, struct mr_err *err)
{
    const char *colon = strrchr(address, ':');
    uint64_t port;

    if (!colon || !mr_str_to_u64(mr_str_c(colon + 1), &port) || port == 0 || port > 65535) {
        return MR_FAIL(
            err, MR_E_INVALID,
            "'%s' is not an address: expected host:port, the port 1 to 65535, or unix:/path",
            address);
    }
    mr_str host = mr_str_n(address, (size_t)(colon - address));
    if (host.len > 2 && host.ptr[0] == '[' && host.ptr[host.len - 1] == ']') {
        host = mr_str_sub(host, 1, host.len - 1);
    } else if (mr_str_find(host, ':') >= 0) {
        return MR_FAIL(err, MR_E_INVALID, "'%s': an IPv6 address is written [address]:port",
                       address);
    }
    if (host.len == 0) {
        return MR_FAIL(err, MR_E_INVALID, "'%s' has no host", address);
    }
    *out_host = host;
    *out_port = (int)port;
    return MR_OK;
}

static bool is_socket(const char *address)
{
    return strncmp(address, "unix:", 5) == 0;
}

/* The host of "unix:/path" is the path, the port 0. */
static int read_address(const char *address, mr_str *out_host, int *out_port, struct mr_err *err)
{
    if (!mr_client_is_clean(mr_str_c(address))) {
        return MR_FAIL(err, MR_E_INVALID, "an address holds a line end");
    }
    if (!is_socket(address)) {
        return split_address(address, out_host, out_port, err);
    }
    const mr_str path = mr_str_c(address + 5);
    if (path.len == 0) {
        return MR_FAIL(err, MR_E_INVALID, "'%s' has no path", address);
    }
    if (path.len > SOCKET_PATH_MAX) {
        return MR_FAIL(err, MR_E_INVALID,
                       "'%.100s...': the path of a socket has %zu bytes, and at most %zu fit",
                       address, path.len, SOCKET_PATH_MAX);
    }
    *out_host = path;
    *out_port = 0;
    return MR_OK;
}

int mr_client_address_check(const char *address, struct mr_err *err)
{
    mr_str host;
    int port;

    return read_address(address, &host, &port, err);
}

static int address_take(struct mr_client *c, const char *address, struct mr_err *err)
{
    mr_str host = {0};
    const int rc = read_address(address, &host, &c->port_number, err);

    c->address = mr_strndup(address, strlen(address));
    if (rc < 0) {
        return rc;
    }
    c->is_unix = is_socket(address);
    c->host = mr_strndup(host.ptr, host.len);
    if (c->is_unix) {
        c->authority = mr_strndup("localhost", 9);
        return MR_OK;
    }
    snprintf(c->port, sizeof c->port, "%d", c->port_number);
    const bool is_usual = c->port_number == (c->options.tls ? 443 : 80);
    c->authority =
        mr_strndup(address, is_usual ? (size_t)(strrchr(address, ':') - address) : strlen(address));
    return MR_OK;
}

static void client_free(struct mr_client *c)
{
    mr_client_headers_fini(c);
    mr_free(c->address);
    mr_free(c->authority);
    mr_free(c->host);
    mr_free(c);
}

int mr_client_new(struct mr_client **out, struct mr_loop *loop, const char *address,
                  const struct mr_client_options *options, struct mr_err *err)
{
    struct mr_client *c = MR_NEW(struct mr_client);

    c->loop = loop;
    TAILQ_INIT(&c->waiting);
    TAILQ_INIT(&c->failed);
    c->options = options ? *options : (struct mr_client_options){0};
    apply_defaults(&c->options);
    int rc = address_take(c, address, err);
    if (rc == MR_OK) {
        rc = mr_client_headers_read(c, err);
    }
    if (rc < 0) {
        client_free(c);
        return rc;
    }
    *out = c;
    return MR_OK;
}

void mr_client_free(struct mr_client **io_c)
{
    struct mr_client *c = *io_c;
    struct mr_client_conn *conn;
    struct mr_client_call *call;
    struct mr_err err;

    *io_c = NULL;
    if (!c) {
        return;
    }
    c->is_closing = true;
    mr_err_set(&err, MR_E_CANCELLED, MR_HERE, "the client of %s was closed", c->address);
    while ((call = TAILQ_FIRST(&c->waiting))) {
        mr_client_call_end(call, MR_E_CANCELLED, &err);
    }
    while ((call = TAILQ_FIRST(&c->failed))) {
        mr_client_call_end(call, call->failed_rc, &call->failed_err);
    }
    if (LIST_EMPTY(&c->conns)) {
        client_free(c);
        return;
    }
    /* Each connection takes itself off the list later, in its close callback. */
    LIST_FOREACH (conn, &c->conns, link) {
        mr_client_conn_fail(conn, MR_E_CANCELLED, &err);
    }
}

void mr_client_conn_gone(struct mr_client *c, struct mr_client_conn *conn)
{
    LIST_REMOVE(conn, link);
    if (c->is_closing && LIST_EMPTY(&c->conns)) {
        client_free(c);
    }
}
