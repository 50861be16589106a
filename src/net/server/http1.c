/* HTTP/1 connections, the reading half.
 *
 * One request at a time (struct mr_h1): head, body, wait for the answer, next. Heads and small bodies are used in
 * place in the input buffer; a body that does not fit is collected by body.c, and its bytes are read straight into
 * its block once it has one. Pipelined requests stay in the buffer. During a call input is still read into the free
 * part of the buffer, to notice the peer's end; when the buffer is full the transport watches for the end only.
 *
 * h1_work is a loop and never re-entered: answers given by handlers within it only queue output and change the stage.
 *
 * Thread: loop. */
#include "http1.h"

#include "server.h"

#define DRAIN_BYTES    ((int64_t)256 * 1024)
#define BODY_ROOM      ((size_t)4096) /* room after a head through which its body is read */
#define DIRECT_BYTES   16384 /* smaller remainders are read together with the following data */
#define HEADS_PER_TURN 64    /* pipelined requests served before other connections */
#define DIRECT_MOST    ((size_t)512 * 1024) /* read at once, as others wait */
#define CHUNKS_MAX     65536
#define OVERHEAD_BYTES 16384
/* Clients match this text. */
#define TOO_MANY_CHUNKS                                                                            \
    "Chunked request body exceeds maximum of " MR_STRINGIFY(                                       \
        CHUNKS_MAX) " non-empty chunks. Send fewer or larger HTTP chunks."

/* ---- answers and the current request -------------------------------------------------------- */

struct mr_call_impl *mr_h1_take_call(struct mr_conn *c)
{
    struct mr_call_impl *call = c->h1.call;

    c->h1.call = NULL;
    return call;
}

static void detach_call(struct mr_conn *c)
{
    struct mr_call_impl *call = mr_h1_take_call(c);

    if (!call) {
        return;
    }
    /* The call's slices point into the input buffer. */
    call->held_input = c->in.ptr;
    call->held_cap = c->in.cap;
    c->in = (struct mr_conn_input){0};
    mr_call_impl_detach(call);
}

bool mr_h1_can_keep(const struct mr_conn *c, bool wants_close)
{
    const struct mr_h1 *h = &c->h1;
    bool is_whole = h->stage == MR_H1_WAIT;

    if (!h->keep_alive || wants_close || c->draining) {
        return false;
    }
    /* A peer that got no 100-continue may or may not send its body, so the start of the next request is unknown. */
    return is_whole ||
           (!h->owes_continue &&
            (h->is_chunked || h->body_left <= DRAIN_BYTES + (int64_t)(c->in.end - c->in.pos)));
}

static void next_request(struct mr_conn *c)
{
    c->h1.stage = MR_H1_HEAD;
    c->in.start = c->in.pos;
    c->idle_since_ns = c->loop->now_ns;
}

void mr_h1_answered(struct mr_conn *c, bool keep_alive)
{
    struct mr_h1 *h = &c->h1;
    bool is_whole = h->stage == MR_H1_WAIT;

    if (!keep_alive) {
        mr_conn_close_soon(c, !is_whole || c->in.end > c->in.pos);
    } else if (is_whole) {
        next_request(c);
    } else {
        h->stage = MR_H1_DRAIN;
        h->drained = -(int64_t)(c->in.end - c->in.pos); /* as mr_h1_can_keep counts */
        c->in.start = c->in.pos;
    }
    mr_conn_kick(c);
}

/* Records n more bytes of the body. */
static void body_moved(struct mr_conn *c, size_t n)
{
    const struct mr_http_options *o = c->part->options;

    c->h1.body_due_ns = mr_due_moved(c->h1.body_due_ns, c->loop->now_ns, n, o->body_timeout_ns,
                                     c->h1.call && c->h1.call->pub.streaming ? 0 : o->min_rate);
}

/* ---- body ----------------------------------------------------------------------------------- */

static void body_complete(struct mr_conn *c)
{
    struct mr_h1 *h = &c->h1;
    struct mr_call_impl *call = h->call;

    if (h->stage == MR_H1_DRAIN) {
        next_request(c);
        return;
    }
    h->stage = MR_H1_WAIT;
    h->owes_continue = false;
    call->body_done = true;
    if (!call->refused && !call->pub.streaming) {
        if (call->body.len > 0) {
            mr_body_publish(call);
        }
        mr_call_impl_body(call);
    }
}

/* True if the body of the same call continues after a callback. */
static bool is_same(const struct mr_conn *c, const struct mr_call_impl *call)
{
    return !c->closing && c->h1.call == call && c->h1.stage == MR_H1_BODY;
}

/* Delivers one run of body bytes. False if the connection or the call changed. */
static bool body_bytes(struct mr_conn *c, mr_bytes data, bool is_last)
{
    struct mr_h1 *h = &c->h1;
    struct mr_call_impl *call = h->call;
    const struct mr_http_handler *handler = c->part->handler;

    if (h->stage == MR_H1_DRAIN) {
        h->drained += (int64_t)data.len;
        if (h->drained > DRAIN_BYTES && !is_last) {
            mr_conn_close_soon(c, true);
            return false;
        }
        return true;
    }
    if (call->refused) {
        return true;
    }
    if (call->pub.streaming) {
        if (is_last) {
            h->stage = MR_H1_WAIT;
            call->body_done = true;
            call->pub.recv_end_ns = c->loop->now_ns;
        }
        call->streamed_bytes += data.len;
        handler->on_data(handler->ctx, &call->pub, data, is_last);
        return is_same(c, call);
    }
    int rc = mr_body_append(call, data.ptr, data.len);
    if (rc < 0) {
        mr_call_impl_refuse(call, rc);
        return is_same(c, call);
    }
    return true;
}

/* True if all of the body fits into the input buffer. */
static bool fits_in_place(const struct mr_conn *c)
{
    const struct mr_h1 *h = &c->h1;

    return !h->is_chunked && h->stage == MR_H1_BODY && !h->call->refused &&
           !h->call->pub.streaming && !h->call->body.base &&
           h->body_left <= (int64_t)(c->in.cap - c->in.pos);
}

static bool body_in_place(struct mr_conn *c)
{
    struct mr_h1 *h = &c->h1;
    size_t len = (size_t)h->body_left;

    if (c->in.end - c->in.pos < len) {
        return false;
    }
    mr_bytes data = {(const uint8_t *)c->in.ptr + c->in.pos, len};
    c->in.pos += len;
    h->body_left = 0;
    int rc = mr_body_in_place(h->call, data);
    if (rc < 0) {
        struct mr_call_impl *call = h->call;
        mr_call_impl_refuse(call, rc);
        if (!is_same(c, call)) {
            return true;
        }
    }
    body_complete(c);
    return true;
}

/* Reuses the room of consumed body bytes, after the head while a call needs it. */
static void reuse_input(struct mr_conn *c)
{
    if (c->h1.stage == MR_H1_DRAIN) {
        c->in.start = c->in.pos;
    } else if (c->in.pos == c->in.end) {
        c->in.pos = c->in.end = c->h1.body_at;
    }
}

/* Reads a body with Content-Length. True if the stage changed. */
static bool read_sized_body(struct mr_conn *c)
{
    struct mr_h1 *h = &c->h1;

    if (fits_in_place(c)) {
        return body_in_place(c);
    }
    size_t have = c->in.end - c->in.pos;
    size_t n = (int64_t)have < h->body_left ? have : (size_t)h->body_left;
    if (n > 0) {
        mr_bytes data = {(const uint8_t *)c->in.ptr + c->in.pos, n};
        c->in.pos += n;
        h->body_left -= (int64_t)n;
        body_moved(c, n);
        if (!body_bytes(c, data, h->body_left == 0)) {
            return true;
        }
    }
    if (h->body_left == 0) {
        body_complete(c);
        return true;
    }
    reuse_input(c);
    return false;
}

static bool read_chunked_body(struct mr_conn *c)
{
    struct mr_h1 *h = &c->h1;

    for (;;) {
        size_t used = 0;
        mr_bytes data = {0};
        enum mr_http1_chunk got = mr_http1_chunk_next(&h->chunked, c->in.ptr + c->in.pos,
                                                      c->in.end - c->in.pos, &used, &data);
        if (got == MR_CHUNK_BAD && h->stage == MR_H1_DRAIN) { /* it has its answer */
            mr_count_add(&c->loop->stats.protocol_errors, 1);
            mr_conn_close_soon(c, true);
            return true;
        }
        if (got == MR_CHUNK_BAD) {
            mr_h1_error(c, 400,
                        h->chunked.chunks > CHUNKS_MAX ? TOO_MANY_CHUNKS
                                                       : "invalid chunked coding");
            return true;
        }
        c->in.pos += used;
        if (used) {
            body_moved(c, used);
        }
        if (got == MR_CHUNK_MORE) {
            reuse_input(c);
            return false;
        }
        if (got == MR_CHUNK_END) {
            if (h->stage == MR_H1_BODY && h->call->pub.streaming && !h->call->refused &&
                !body_bytes(c, (mr_bytes){0}, true)) {
                return true;
            }
            body_complete(c);
            return true;
        }
        if (!body_bytes(c, data, false)) {
            return true;
        }
        if (h->call && h->call->paused) {
            return false;
        }
    }
}

/* True if the body needs memory and little is left. */
static bool waits_for_memory(struct mr_conn *c)
{
    const struct mr_call_impl *call = c->h1.call;

    if (!c->waits_memory && c->h1.stage == MR_H1_BODY && !call->refused && !call->pub.streaming &&
        !fits_in_place(c) && mr_body_should_wait(call, c->in.end - c->in.pos)) {
        mr_memory_backpressure_add(c);
    }
    return c->waits_memory;
}

/* True if the stage changed; false: more bytes are needed, or the call is paused or waits for memory. */
static bool read_body(struct mr_conn *c)
{
    struct mr_h1 *h = &c->h1;

    if ((h->stage == MR_H1_BODY && h->call->paused) || waits_for_memory(c)) {
        return false;
    }
    if (h->is_chunked ? c->in.ptr && read_chunked_body(c) : read_sized_body(c)) {
        return true;
    }
    if (c->peer_eof && !c->closing && !(h->call && h->call->paused)) {
        /* The body was cut short: an answer cannot arrive. */
        mr_conn_close(c);
    }
    return false;
}

/* ---- head ----------------------------------------------------------------------------------- */

/* True if there is a complete head, with its length in h1.scan.at. Answers errors. */
static bool find_head(struct mr_conn *c)
{
    struct mr_h1 *h = &c->h1;
    struct mr_conn_input *in = &c->in;
    size_t limit = (size_t)c->part->options->max_header_bytes;

    size_t n = in->end - in->start;
    enum mr_http1_found found = MR_HTTP1_MORE;
    while (n > 0 && (found = mr_http1_scan(&h->scan, in->ptr + in->start, n)) == MR_HTTP1_FOUND &&
           h->scan.lines == 0) {
        /* An empty line in front of a request (RFC 9112 2.2). */
        in->start = in->pos = in->start + h->scan.at;
        h->scan = (struct mr_http1_scan){0};
        n = in->end - in->start;
    }
    if (n == 0) {
        if (c->peer_eof) {
            mr_conn_close_soon(c, false);
        }
        return false;
    }
    if (found == MR_HTTP1_BAD ||
        (found == MR_HTTP1_MORE && h->scan.lines == 0 &&
         !mr_http1_is_plausible(in->ptr + in->start, n) && in->ptr[in->start] != '\r')) {
        mr_h1_error(c, 400, "invalid request");
        return false;
    }
    if (h->scan.at > limit) {
        mr_h1_error(c, 431, "request header too large (--max-header-bytes)");
        return false;
    }
    if (found == MR_HTTP1_FOUND) {
        return true;
    }
    if (c->peer_eof) {
        mr_conn_close_soon(c, false);
    } else if (h->head_start_ns == 0) {
        h->head_start_ns = c->loop->now_ns;
    }
    return false;
}

/* Makes room after the head, through which the body is read. Nothing points into the buffer yet. */
static bool make_body_room(struct mr_conn *c, size_t head_len, size_t room)
{
    struct mr_conn_input *in = &c->in;

    if (in->cap - in->start - head_len >= room) {
        return true;
    }
    mr_conn_input_to_front(in);
    return in->cap - head_len >= room ||
           mr_conn_input_make_room(c, MR_MAX(in->cap, head_len + room) - in->end, true);
}

static void fill_call(struct mr_conn *c, struct mr_call_impl *call,
                      const struct mr_http1_head *head)
{
    struct mr_h1 *h = &c->h1;
    struct mr_call *pub = &call->pub;

    pub->version = head->minor == 0 ? MR_CALL_HTTP10 : MR_CALL_HTTP11;
    pub->method = head->method;
    pub->head_only = mr_str_eq(head->method, MR_STR("HEAD"));
    pub->path = head->path;
    pub->query = head->query;
    pub->headers = head->headers;
    pub->header_count = head->header_count;
    pub->content_length = head->is_chunked ? -1 : MR_MAX(head->content_length, 0);
    if (h->head_start_ns) {
        pub->recv_start_ns = h->head_start_ns;
    }
    call->body.expect = pub->content_length;
    h->head_start_ns = 0;
    h->call = call;
    h->keep_alive = head->keep_alive;
    h->is_chunked = head->is_chunked;
    h->chunked =
        (struct mr_http1_chunked){.max_chunks = CHUNKS_MAX, .max_overhead = OVERHEAD_BYTES};
    h->body_left = head->is_chunked ? 0 : pub->content_length;
    h->owes_continue = head->expects_continue;
    h->body_due_ns = mr_due_start(c->loop->now_ns, c->part->options->body_timeout_ns);
    h->stage = head->has_body ? MR_H1_BODY : MR_H1_WAIT;
}

/* Parse the head of h1.scan.at bytes into a new call; NULL when an error was answered. */
static struct mr_call_impl *parse_head(struct mr_conn *c)
{
    struct mr_h1 *h = &c->h1;
    struct mr_conn_input *in = &c->in;
    size_t len = h->scan.at;
    size_t lines = h->scan.lines - 1;
    struct mr_http1_head head;

    if (lines > (size_t)c->part->options->max_headers) {
        mr_h1_error(c, 431, "too many headers (--max-headers)");
        return NULL;
    }
    struct mr_call_impl *call = mr_call_impl_new(c, &mr_h1_call_ops);
    struct mr_header *table =
        call ? mr_arena_try(&call->arena, MR_MAX(lines, (size_t)1) * sizeof *table,
                            _Alignof(struct mr_header))
             : NULL;
    if (!table || !make_body_room(c, len, BODY_ROOM)) {
        mr_conn_close(c);
    } else {
        if (c->part->options->keep_head_case) {
            call->pub.head_sent =
                mr_arena_str(&call->arena, mr_str_n(in->ptr + in->start, len)).ptr;
        }
        int rc = mr_http1_parse_request(in->ptr + in->start, len, table, lines, &head);
        if (rc == 0 && head.content_length > (int64_t)(in->cap - in->start - len) &&
            in->start > 0 && head.content_length <= (int64_t)(in->cap - len)) {
            /* The body fits once the request moves to the front; the slices must be adjusted. */
            mr_conn_input_to_front(in);
            rc = mr_http1_parse_request(in->ptr, len, table, lines, &head);
        }
        if (rc == 0) {
            call->pub.head = in->ptr + in->start;
            call->pub.head_len = len;
            fill_call(c, call, &head);
            return call;
        }
        mr_h1_error(c, rc, head.error);
    }
    if (call) {
        mr_call_impl_free(call);
    }
    return NULL;
}

/* Reads a head and calls the handler. False if no head is complete. */
static bool read_head(struct mr_conn *c)
{
    struct mr_h1 *h = &c->h1;

    if (!find_head(c)) {
        return false;
    }
    struct mr_call_impl *call = parse_head(c);
    if (!call) {
        return false;
    }
    c->in.pos = h->body_at = c->in.start + h->scan.at;
    h->scan = (struct mr_http1_scan){0};
    if (!mr_call_impl_head(call) || h->call != call) {
        return true;
    }
    if (!call->pub.streaming && call->pub.body_limit >= 0 &&
        call->pub.content_length > call->pub.body_limit) {
        mr_call_impl_refuse(call, MR_E_TOO_LARGE);
        return true;
    }
    if (h->stage == MR_H1_WAIT) {
        call->body_done = true;
        call->pub.recv_end_ns = c->loop->now_ns;
        if (call->pub.streaming) {
            const struct mr_http_handler *handler = c->part->handler;
            handler->on_data(handler->ctx, &call->pub, (mr_bytes){0}, true);
        } else {
            mr_call_impl_body(call);
        }
    } else if (h->owes_continue && c->in.end == c->in.pos) {
        mr_h1_send_continue(c);
    }
    h->owes_continue = h->owes_continue && h->call == call && c->in.end == c->in.pos;
    return true;
}

/* ---- the protocol's entry points ------------------------------------------------------------ */

static bool is_backlogged(const struct mr_conn *c)
{
    return mr_conn_is_backlogged(c, c->out.memory);
}

/* The handler works on the call. True: it makes more when what it has made has been written. */
static bool wait_stage(struct mr_conn *c)
{
    struct mr_h1 *h = &c->h1;

    if ((c->peer_eof || c->peer_hup) && h->call) {
        mr_call_impl_cancel(h->call);
    }
    if (!h->call || !h->call->wants_room || c->closing) {
        return false;
    }
    if (is_backlogged(c)) {
        return true;
    }
    mr_call_impl_room(h->call);
    return !c->closing && h->stage == MR_H1_WAIT && h->call && h->call->wants_room;
}

static bool h1_work(struct mr_conn *c)
{
    struct mr_h1 *h = &c->h1;
    bool goes_on = true;
    int heads = 0;

    while (goes_on && !c->closing && !c->close_soon) {
        switch (h->stage) {
        case MR_H1_HEAD:
            if (is_backlogged(c)) {
                return true;
            }
            if (heads++ == HEADS_PER_TURN) {
                c->yielding = true;
                return false;
            }
            if (c->draining && c->in.start == c->in.end) {
                mr_conn_close_soon(c, false);
            }
            goes_on = !c->close_soon && read_head(c);
            break;
        case MR_H1_BODY:
        case MR_H1_DRAIN: goes_on = read_body(c); break;
        case MR_H1_WAIT:
            if (wait_stage(c)) {
                return true;
            }
            goes_on = h->stage != MR_H1_WAIT;
            break;
        }
    }
    return false;
}

/* The final place for body bytes; NULL: read through the input buffer. */
static uint8_t *direct_room(struct mr_conn *c, size_t *out_room)
{
    struct mr_h1 *h = &c->h1;
    uint64_t left = h->is_chunked ? mr_http1_chunk_left(&h->chunked) : (uint64_t)h->body_left;
    size_t room;

    if (h->stage != MR_H1_BODY || h->call->refused || h->call->pub.streaming ||
        c->in.pos != c->in.end || left < DIRECT_BYTES) {
        return NULL;
    }
    uint8_t *at = mr_body_room(h->call, &room);
    *out_room = MR_MIN(left < room ? (size_t)left : room, DIRECT_MOST);
    return at;
}

static void read_direct(struct mr_conn *c, uint8_t *at, size_t room)
{
    struct mr_h1 *h = &c->h1;
    size_t n = mr_conn_read(c, at, room);

    if (n == 0) {
        return;
    }
    h->call->body.len += n;
    body_moved(c, n);
    if (!h->is_chunked) {
        h->body_left -= (int64_t)n;
        return;
    }
    mr_http1_chunk_skip(&h->chunked, n);
}

static void h1_input(struct mr_conn *c)
{
    struct mr_h1 *h = &c->h1;
    size_t room = 0;

    if (c->peer_eof || !mr_proto_http1.wants_input(c)) {
        return;
    }
    uint8_t *direct = direct_room(c, &room);
    if (direct) {
        read_direct(c, direct, room);
        return;
    }
    bool can_move = h->stage == MR_H1_HEAD || h->stage == MR_H1_DRAIN;
    /* A quarter of a buffer, so that a request in two parts does not shift the buffer each time. */
    if (!mr_conn_input_make_room(c, can_move ? MR_CONN_INPUT_BYTES / 4 : 1, can_move)) {
        mr_conn_close(c);
        return;
    }
    size_t n = mr_conn_read(c, c->in.ptr + c->in.end, c->in.cap - c->in.end);
    c->in.end += n;
    if (n > 0 && fits_in_place(c)) { /* it is used when all of it is here */
        body_moved(c, n);
    }
}

static bool has_room(const struct mr_conn *c)
{
    return !c->in.ptr || c->in.end < c->in.cap;
}

static bool h1_wants_input(const struct mr_conn *c)
{
    if (c->waits_memory) {
        return false;
    }
    switch (c->h1.stage) {
    /* While it yields, whole requests wait in the buffer, which would grow as fast as the peer can send. */
    case MR_H1_HEAD: return !c->close_soon && !c->yielding && !is_backlogged(c);
    case MR_H1_WAIT: return has_room(c);
    default: return !c->close_soon && (!c->h1.call || !c->h1.call->paused || has_room(c));
    }
}

static int64_t after(int64_t start_ns, int64_t limit_ns)
{
    return limit_ns > 0 ? mr_ns_after(start_ns, limit_ns) : 0;
}

static int64_t h1_deadline(const struct mr_conn *c)
{
    const struct mr_http_options *o = c->part->options;
    const struct mr_h1 *h = &c->h1;

    switch (h->stage) {
    case MR_H1_HEAD:
        return h->head_start_ns   ? after(h->head_start_ns, o->header_timeout_ns)
               : c->out.bytes > 0 ? 0 /* an answer is on its way */
                                  : after(c->idle_since_ns, o->idle_timeout_ns);
    case MR_H1_WAIT: return 0;
    default: return h->call && h->call->paused ? 0 : h->body_due_ns;
    }
}

static size_t h1_coming(const struct mr_conn *c)
{
    const struct mr_h1 *h = &c->h1;

    return h->stage == MR_H1_BODY && !h->is_chunked && h->call->body.block && !h->call->refused
               ? (size_t)h->body_left
               : 0;
}

static void h1_memory_back(struct mr_conn *c)
{
    c->h1.body_due_ns = mr_due_start(c->loop->now_ns, c->part->options->body_timeout_ns);
}

static void h1_expired(struct mr_conn *c)
{
    struct mr_h1 *h = &c->h1;

    mr_count_add(&c->loop->stats.timeouts, 1);
    if (c->waits_memory) {
        mr_memory_backpressure_remove(c);
        h1_memory_back(c);
        mr_call_impl_refuse(h->call, MR_E_EXHAUSTED);
    } else if (h->stage == MR_H1_BODY || (h->stage == MR_H1_HEAD && h->head_start_ns)) {
        mr_h1_error(c, 408, "request timed out (--header-timeout, --body-timeout)");
    } else {
        mr_conn_close(c);
    }
}

static void h1_drain(struct mr_conn *c)
{
    c->draining = true;
    mr_conn_kick(c);
}

static void h1_rest(struct mr_conn *c)
{
    if (c->out.bytes > 0 || c->h1.had_output) {
        c->idle_since_ns = c->loop->now_ns;
    }
    c->h1.had_output = c->out.bytes > 0;
    if (!c->h1.call && c->in.start == c->in.end && c->in.pos == c->in.start && c->in.ptr) {
        mr_conn_input_release(c);
    }
}

void mr_h1_start(struct mr_conn *c)
{
    c->proto = &mr_proto_http1;
}

const struct mr_proto mr_proto_http1 = {
    .input = h1_input,
    .work = h1_work,
    .wants_input = h1_wants_input,
    .coming = h1_coming,
    .deadline = h1_deadline,
    .expired = h1_expired,
    .drain = h1_drain,
    .memory_back = h1_memory_back,
    .rest = h1_rest,
    .end = detach_call,
};
