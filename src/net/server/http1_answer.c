/* HTTP/1 connections, the writing half: heads, bodies by length or chunks, error answers.
 *
 * Everything goes to the connection's queue, in order. Large borrowed data of the handler is offered to the socket
 * first, and only the part that it does not take is copied.
 *
 * While an answer is written the call is detached from the connection (mr_h1_take_call): a write error ends the
 * connection, and must not cancel a call that has just been answered.
 *
 * Thread: loop. */
#include "http1.h"

#include <stdio.h>

#include "server.h"

#define FIXED_BYTES 512 /* status line, date, server, length, connection */

struct status_line {
    int status;
    mr_str line;
};

#define LINE(code, reason)                                                                         \
    {                                                                                              \
        code, MR_STR_INIT("HTTP/1.1 " #code " " reason "\r\n")                                     \
    }
static const struct status_line status_lines[] = {
    LINE(200, "OK"),
    LINE(400, "Bad Request"),
    LINE(404, "Not Found"),
    LINE(503, "Service Unavailable"),
    LINE(500, "Internal Server Error"),
    LINE(201, "Created"),
    LINE(202, "Accepted"),
    LINE(204, "No Content"),
    LINE(301, "Moved Permanently"),
    LINE(302, "Found"),
    LINE(304, "Not Modified"),
    LINE(401, "Unauthorized"),
    LINE(403, "Forbidden"),
    LINE(405, "Method Not Allowed"),
    LINE(406, "Not Acceptable"),
    LINE(408, "Request Timeout"),
    LINE(409, "Conflict"),
    LINE(411, "Length Required"),
    LINE(412, "Precondition Failed"),
    LINE(413, "Content Too Large"),
    LINE(415, "Unsupported Media Type"),
    LINE(417, "Expectation Failed"),
    LINE(422, "Unprocessable Content"),
    LINE(429, "Too Many Requests"),
    LINE(431, "Request Header Fields Too Large"),
    LINE(499, "Client Closed Request"),
    LINE(501, "Not Implemented"),
    LINE(502, "Bad Gateway"),
    LINE(504, "Gateway Timeout"),
    LINE(505, "HTTP Version Not Supported"),
};
#undef LINE

/* ---- heads ---------------------------------------------------------------------------------- */

static char *put(char *p, const void *s, size_t n)
{
    memcpy(p, s, n);
    return p + n;
}

#define PUT(p, lit) put((p), (lit), sizeof(lit) - 1)

static char *put_status(char *p, int status)
{
    for (size_t i = 0; i < sizeof status_lines / sizeof status_lines[0]; i++) {
        if (status_lines[i].status == status) {
            return put(p, status_lines[i].line.ptr, status_lines[i].line.len);
        }
    }
    p = PUT(p, "HTTP/1.1 ");
    p = mr_u64_put(p, (uint64_t)(status >= 100 && status <= 999 ? status : 500));
    return PUT(p, " Status\r\n");
}

enum length_kind { LENGTH_KNOWN, LENGTH_CHUNKED, LENGTH_UNTIL_CLOSE, LENGTH_NONE };

struct answer {
    int status;
    const struct mr_header *headers;
    size_t header_count;
    enum length_kind kind;
    uint64_t length;
    bool keep_alive;
    bool for_http10;
    const struct mr_call_impl *call; /* NULL: an error before a call existed */
};

static char *put_fixed(struct mr_conn *c, char *p, const struct answer *a)
{
    const struct mr_http_options *o = c->part->options;

    p = put_status(p, a->status);
    p = PUT(p, "date: ");
    p = put(p, mr_loop_date(c->loop), 29);
    p = PUT(p, "\r\n");
    if (o->server_name) {
        p = PUT(p, "server: ");
        p = put(p, o->server_name, strlen(o->server_name));
        p = PUT(p, "\r\n");
    }
    if (a->kind == LENGTH_KNOWN) {
        p = PUT(p, "content-length: ");
        p = mr_u64_put(p, a->length);
        p = PUT(p, "\r\n");
    } else if (a->kind == LENGTH_CHUNKED) {
        p = PUT(p, "transfer-encoding: chunked\r\n");
    }
    if (!a->keep_alive) {
        p = PUT(p, "connection: close\r\n");
    } else if (a->for_http10) {
        p = PUT(p, "connection: keep-alive\r\n");
    }
    return p;
}

static void append_header(struct mr_outq *q, const struct mr_header *h)
{
    size_t n = h->name.len + h->value.len + 4;

    /* A handler may use outside data in headers; a line break in it would forge another answer. */
    if (!mr_http1_is_token(h->name) || !mr_http1_is_value(h->value)) {
        return;
    }
    if (n > MR_OUTQ_RESERVE_MAX) {
        mr_outq_append(q, h->name.ptr, h->name.len);
        mr_outq_append(q, ": ", 2);
        mr_outq_append(q, h->value.ptr, h->value.len);
        mr_outq_append(q, "\r\n", 2);
        return;
    }
    char *base = mr_outq_reserve(q, n);
    if (base) {
        char *p = put(base, h->name.ptr, h->name.len);
        p = PUT(p, ": ");
        p = put(p, h->value.ptr, h->value.len);
        p = PUT(p, "\r\n");
        mr_outq_commit(q, n);
    }
}

static void append_head(struct mr_conn *c, const struct answer *a)
{
    char *base = mr_outq_reserve(&c->out, FIXED_BYTES);

    if (!base) {
        return;
    }
    mr_outq_commit(&c->out, (size_t)(put_fixed(c, base, a) - base));
    for (size_t i = 0; i < a->header_count; i++) {
        append_header(&c->out, &a->headers[i]);
    }
    for (size_t i = 0; a->call && i < a->call->own_header_count; i++) {
        append_header(&c->out, &a->call->own_headers[i]);
    }
    mr_outq_append(&c->out, "\r\n", 2);
}

static bool has_no_body(int status)
{
    return status < 200 || status == 204 || status == 304;
}

/* ---- one-piece answers ---------------------------------------------------------------------- */

static void append_body(struct mr_conn *c, const struct mr_piece *pieces, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const struct mr_piece *p = &pieces[i];
        if (p->block || p->len <= MR_OUTQ_LARGE_BYTES || c->blocked) {
            mr_pieces_append(&c->out, p, 1);
            continue;
        }
        size_t done = mr_conn_write_through(c, (mr_bytes){p->ptr, p->len});
        if (c->closing) {
            mr_pieces_drop(p + 1, count - i - 1);
            return;
        }
        if (done < p->len) {
            struct mr_piece rest = {.ptr = (const char *)p->ptr + done, .len = p->len - done};
            mr_pieces_append(&c->out, &rest, 1);
        }
    }
}

static void h1_reply(struct mr_call_impl *call, const struct mr_reply *reply)
{
    struct mr_conn *c = call->conn;
    bool keep = mr_h1_can_keep(c, reply->close);
    bool bodyless = has_no_body(reply->status);
    struct answer a = {
        .status = reply->status,
        .headers = reply->headers,
        .header_count = reply->header_count,
        .kind = bodyless ? LENGTH_NONE : LENGTH_KNOWN,
        .length = mr_pieces_bytes(reply->pieces, reply->piece_count),
        .keep_alive = keep,
        .for_http10 = call->pub.version == MR_CALL_HTTP10,
        .call = call,
    };

    mr_h1_take_call(c);
    append_head(c, &a);
    if (call->pub.head_only || bodyless) {
        mr_pieces_drop(reply->pieces, reply->piece_count);
    } else {
        append_body(c, reply->pieces, reply->piece_count);
    }
    mr_call_impl_free(call);
    if (!c->closing) {
        mr_h1_answered(c, keep);
    }
}

/* ---- answers in parts ----------------------------------------------------------------------- */

static void h1_begin(struct mr_call_impl *call, int status, const struct mr_header *headers,
                     size_t count)
{
    struct mr_conn *c = call->conn;
    struct mr_h1 *h = &c->h1;
    bool is_http10 = call->pub.version == MR_CALL_HTTP10;
    bool bodyless = has_no_body(status);
    bool keep = mr_h1_can_keep(c, false) && (!is_http10 || bodyless);
    struct answer a = {
        .status = status,
        .headers = headers,
        .header_count = count,
        .kind = bodyless    ? LENGTH_NONE
                : is_http10 ? LENGTH_UNTIL_CLOSE
                            : LENGTH_CHUNKED,
        .keep_alive = keep,
        .for_http10 = is_http10,
        .call = call,
    };

    h->answer_to_head = call->pub.head_only || bodyless;
    h->chunked_answer = a.kind == LENGTH_CHUNKED;
    h->keep_alive = keep;
    append_head(c, &a);
    mr_conn_kick(c);
}

static void h1_write(struct mr_call_impl *call, const struct mr_piece *pieces, size_t count)
{
    struct mr_conn *c = call->conn;
    size_t n = mr_pieces_bytes(pieces, count);

    if (c->h1.answer_to_head || n == 0) {
        mr_pieces_drop(pieces, count);
        return;
    }
    if (c->h1.chunked_answer) {
        char line[24];
        int len = snprintf(line, sizeof line, "%zx\r\n", n);
        mr_outq_append(&c->out, line, (size_t)len);
    }
    mr_pieces_append(&c->out, pieces, count);
    if (c->h1.chunked_answer) {
        mr_outq_append(&c->out, "\r\n", 2);
    }
    mr_conn_kick(c);
}

static void h1_end(struct mr_call_impl *call, const struct mr_header *trailers, size_t count)
{
    struct mr_conn *c = call->conn;
    struct mr_h1 *h = &c->h1;

    (void)trailers;
    (void)count;
    mr_h1_take_call(c);
    if (h->chunked_answer && !h->answer_to_head) {
        mr_outq_append(&c->out, "0\r\n\r\n", 5);
    }
    mr_call_impl_free(call);
    mr_h1_answered(c, mr_h1_can_keep(c, false));
}

static bool h1_is_backlogged(const struct mr_call_impl *call, bool with_input)
{
    (void)with_input;
    return mr_conn_is_backlogged(call->conn, call->conn->out.memory);
}

static void h1_pause(struct mr_call_impl *call, bool paused)
{
    struct mr_conn *c = call->conn;

    if (!paused) {
        c->h1.body_due_ns = mr_due_start(c->loop->now_ns, c->part->options->body_timeout_ns);
    }
    mr_conn_kick(c);
}

static void h1_want_room(struct mr_call_impl *call)
{
    mr_conn_kick(call->conn);
}

static void h1_abort(struct mr_call_impl *call, uint32_t h2_error)
{
    struct mr_conn *c = call->conn;

    (void)h2_error;
    mr_h1_take_call(c);
    mr_call_impl_free(call);
    mr_conn_close(c);
}

const struct mr_call_ops mr_h1_call_ops = {
    .reply = h1_reply,
    .begin = h1_begin,
    .write = h1_write,
    .end = h1_end,
    .is_backlogged = h1_is_backlogged,
    .pause = h1_pause,
    .want_room = h1_want_room,
    .abort = h1_abort,
};

/* ---- answers without a handler --------------------------------------------------------------------- */

void mr_h1_send_continue(struct mr_conn *c)
{
    c->h1.owes_continue = false;
    mr_outq_append(&c->out, "HTTP/1.1 100 Continue\r\n\r\n", 25);
}

void mr_h1_error(struct mr_conn *c, int status, const char *text)
{
    char body[256];
    bool has_begun = c->h1.call && c->h1.call->begun;

    mr_count_add(&c->loop->stats.protocol_errors, 1);
    /* Ends the call first: its handler may still write to the connection. */
    c->proto->end(c);
    if (has_begun || c->closing) {
        mr_conn_close(c);
        return;
    }
    int len = snprintf(body, sizeof body, "{\"error\":\"%s\"}", text);
    static const struct mr_header type = {MR_STR_INIT("content-type"),
                                          MR_STR_INIT("application/json")};
    struct answer a = {
        .status = status,
        .headers = &type,
        .header_count = 1,
        .kind = LENGTH_KNOWN,
        .length = (uint64_t)len,
    };
    mr_http_count(c->loop, status);
    append_head(c, &a);
    mr_outq_append(&c->out, body, (size_t)len);
    c->h1.stage = MR_H1_HEAD;
    mr_conn_close_soon(c, true);
}
