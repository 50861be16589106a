/* HTTP/2 connections, the writing half: answers are submitted to nghttp2 at once and framed when the connection works
 * next (http2.c, pack), so that head, body and trailers are sent in one write. A body waits in the call's queue;
 * frames take references to its blocks, not copies.
 *
 * Thread: loop. */
#include "http2.h"

#include <stdio.h>

#include "server.h"

#define NV_STACK   24
#define OWN_NVS    4 /* :status, content-length, date, server */
#define LONG_QUEUE ((size_t)1024 * 1024)

static nghttp2_nv make_nv(mr_str name, mr_str value, uint8_t flags)
{
    return (nghttp2_nv){.name = (uint8_t *)name.ptr,
                        .value = (uint8_t *)value.ptr,
                        .namelen = name.len,
                        .valuelen = value.len,
                        .flags = flags};
}

#define STATIC_NAME NGHTTP2_NV_FLAG_NO_COPY_NAME
#define STATIC_PAIR (NGHTTP2_NV_FLAG_NO_COPY_NAME | NGHTTP2_NV_FLAG_NO_COPY_VALUE)

static bool has_no_body(int status)
{
    return status < 200 || status == 204 || status == 304;
}

/* ---- frames --------------------------------------------------------------------------------- */

void mr_h2_reset(struct mr_call_impl *call, uint32_t h2_error)
{
    struct mr_h2 *h = call->conn->h2;

    if (nghttp2_submit_rst_stream(h->session, NGHTTP2_FLAG_NONE, call->stream_id, h2_error) != 0) {
        h->failed = true;
    }
}

/* No memory for the answer: gRPC's clients map this code to RESOURCE_EXHAUSTED. */
static void give_up(struct mr_call_impl *call)
{
    mr_h2_reset(call, NGHTTP2_ENHANCE_YOUR_CALM);
}

static ssize_t read_body(nghttp2_session *session, int32_t stream_id, uint8_t *buf, size_t length,
                         uint32_t *data_flags, nghttp2_data_source *source, void *user_data)
{
    struct mr_call_impl *call = source->ptr;
    size_t n = MR_MIN(length, call->out.bytes);

    (void)buf;
    (void)user_data;
    if (n == 0 && !call->ended) {
        call->deferred = true;
        return NGHTTP2_ERR_DEFERRED;
    }
    *data_flags |= NGHTTP2_DATA_FLAG_NO_COPY;
    if (!call->ended || n < call->out.bytes) {
        return (ssize_t)n;
    }
    *data_flags |= NGHTTP2_DATA_FLAG_EOF;
    if (call->trailer_count > 0) {
        nghttp2_nv nv[NV_STACK];
        size_t count = MR_MIN(call->trailer_count, (size_t)NV_STACK);
        for (size_t i = 0; i < count; i++) {
            nv[i] = make_nv(call->trailers[i].name, call->trailers[i].value, NGHTTP2_NV_FLAG_NONE);
        }
        *data_flags |= NGHTTP2_DATA_FLAG_NO_END_STREAM;
        if (nghttp2_submit_trailer(session, stream_id, nv, count) != 0) {
            give_up(call);
            return NGHTTP2_ERR_DEFERRED;
        }
    }
    return (ssize_t)n;
}

int mr_h2_send_data(nghttp2_session *session, nghttp2_frame *frame, const uint8_t *framehd,
                    size_t length, nghttp2_data_source *source, void *user_data)
{
    struct mr_call_impl *call = source->ptr;
    struct mr_h2 *h = user_data;
    struct mr_conn *c = h->conn;
    const struct mr_http_options *o = c->part->options;

    (void)session;
    (void)frame;
    if (c->out.bytes > LONG_QUEUE) {
        h->pack_again = true;
        return NGHTTP2_ERR_WOULDBLOCK;
    }
    size_t before = call->out.memory;
    h->junk.count = 0;
    mr_outq_append(&c->out, framehd, 9);
    mr_outq_move(&c->out, &call->out, length);
    h->pending -= before - call->out.memory;
    h->complete -= call->ended ? before - call->out.memory : 0;
    mr_h2_note_room(call);
    h->out_due_ns =
        mr_due_moved(h->out_due_ns, c->loop->now_ns, length, o->write_timeout_ns, o->min_rate);
    call->out_due_ns =
        mr_due_moved(call->out_due_ns, c->loop->now_ns, length, o->write_timeout_ns, o->min_rate);
    return 0;
}

/* ---- heads ---------------------------------------------------------------------------------- */

static mr_str status_text(int status, char buf[4])
{
    if (status == 200) {
        return MR_STR("200");
    }
    snprintf(buf, 4, "%03d", status >= 100 && status <= 999 ? status : 500);
    return mr_str_n(buf, 3);
}

/* length < 0: unknown. gRPC answers have only the headers that gRPC requires. */
static bool submit_head(struct mr_call_impl *call, int status, const struct mr_header *headers,
                        size_t count, int64_t length, bool has_data)
{
    struct mr_conn *c = call->conn;
    const struct mr_http_options *o = c->part->options;
    nghttp2_nv stack[NV_STACK];
    nghttp2_nv *nv = stack;
    char status_buf[4];
    char length_buf[MR_I64_TEXT];
    size_t n = 0;

    size_t most = count + call->own_header_count + OWN_NVS;
    if (most > NV_STACK) {
        nv = mr_arena_try_array(&call->arena, most, sizeof *nv, _Alignof(nghttp2_nv));
        if (!nv) {
            return false;
        }
    }
    nv[n++] = make_nv(MR_STR(":status"), status_text(status, status_buf), STATIC_NAME);
    for (size_t i = 0; i < count; i++) {
        if (mr_http1_is_value(headers[i].value)) {
            nv[n++] = make_nv(headers[i].name, headers[i].value, NGHTTP2_NV_FLAG_NONE);
        }
    }
    for (size_t i = 0; i < call->own_header_count; i++) {
        const struct mr_header *h = &call->own_headers[i];
        nv[n++] = make_nv(h->name, h->value, NGHTTP2_NV_FLAG_NONE);
    }
    if (!call->pub.is_grpc) {
        if (length >= 0) {
            size_t len = (size_t)(mr_i64_put(length_buf, length) - length_buf);
            nv[n++] = make_nv(MR_STR("content-length"), mr_str_n(length_buf, len), STATIC_NAME);
        }
        nv[n++] = make_nv(MR_STR("date"), mr_str_n(mr_loop_date(c->loop), 29), STATIC_NAME);
        if (o->server_name) {
            nv[n++] = make_nv(MR_STR("server"), mr_str_c(o->server_name), STATIC_PAIR);
        }
    }
    nghttp2_data_provider provider = {.source = {.ptr = call}, .read_callback = read_body};
    return nghttp2_submit_response(c->h2->session, call->stream_id, nv, n,
                                   has_data ? &provider : NULL) == 0;
}

/* ---- the operations ------------------------------------------------------------------------- */

static void queue_pieces(struct mr_call_impl *call, const struct mr_piece *pieces, size_t count)
{
    struct mr_h2 *h = call->conn->h2;
    size_t before = call->out.memory;
    int64_t due_ns =
        mr_due_start(call->pub.loop->now_ns, call->conn->part->options->write_timeout_ns);

    if (h->pending == 0) {
        h->out_due_ns = h->out_check_ns = due_ns;
    }
    if (before == 0) {
        call->out_due_ns = due_ns;
    }
    bool had_failed = call->out.failed;
    mr_pieces_append(&call->out, pieces, count);
    if (call->out.failed && !had_failed) {
        give_up(call);
    }
    h->pending += call->out.memory - before;
    mr_h2_judge_unread(call->conn);
}

static void keep_trailers(struct mr_call_impl *call, const struct mr_header *trailers, size_t count)
{
    struct mr_header *copy = MR_ARENA_ARRAY(&call->arena, struct mr_header, count);
    size_t n = 0;

    for (size_t i = 0; copy && i < count; i++) {
        copy[n].name = mr_arena_str(&call->arena, trailers[i].name);
        copy[n].value = mr_arena_str(&call->arena, trailers[i].value);
        n += copy[n].name.ptr && copy[n].value.ptr && mr_http1_is_value(copy[n].value);
    }
    call->trailers = copy;
    call->trailer_count = n;
    if (n < count) {
        /* A missing trailer could turn an error into a success. */
        give_up(call);
    }
}

/* Frees memory that a waiting answer does not need: all of the arena but its first chunk, which holds the trailers. */
static void slim(struct mr_call_impl *call)
{
    struct mr_arena old = call->arena;

    if (!MR_CACHE_NOTHING && old.used <= old.first_bytes) {
        return;
    }
    mr_arena_init(&call->arena, old.first_bytes, old.limit);
    if (call->trailer_count > 0) {
        keep_trailers(call, call->trailers, call->trailer_count);
    }
    mr_arena_fini(&old);
}

/* The handler has answered completely; the request is no longer needed. */
static void answered(struct mr_call_impl *call)
{
    struct mr_conn *c = call->conn;

    call->owes = false;
    call->ended = true;
    c->h2->complete += call->out.memory;
    c->h2->answered += call->on_stream;
    mr_h2_unlink_waiting(
        c->h2, call); /* it may be answered, as cancelled, before the handler has its body */
    mr_h2_stop_collecting(call);
    mr_block_unref(&call->body.block);
    if (call->pub.streaming) {
        mr_h2_drop_held(call);
    }
    slim(call);
    if (call->deferred) {
        call->deferred = false;
        nghttp2_session_resume_data(c->h2->session, call->stream_id);
    }
    mr_h2_settle_call(call);
    mr_conn_kick(c);
}

static void h2_reply(struct mr_call_impl *call, const struct mr_reply *reply)
{
    size_t bytes = mr_pieces_bytes(reply->pieces, reply->piece_count);
    bool has_data = bytes > 0 && !call->pub.head_only && !has_no_body(reply->status);

    if (!call->on_stream ||
        !submit_head(call, reply->status, reply->headers, reply->header_count,
                     has_no_body(reply->status) ? -1 : (int64_t)bytes, has_data)) {
        if (call->on_stream) {
            give_up(call);
        }
        has_data = false;
    }
    if (has_data) {
        queue_pieces(call, reply->pieces, reply->piece_count);
    } else {
        mr_pieces_drop(reply->pieces, reply->piece_count);
    }
    answered(call);
}

static void h2_begin(struct mr_call_impl *call, int status, const struct mr_header *headers,
                     size_t count)
{
    if (call->on_stream && !submit_head(call, status, headers, count, -1, true)) {
        give_up(call);
    }
    mr_conn_kick(call->conn);
}

static void h2_write(struct mr_call_impl *call, const struct mr_piece *pieces, size_t count)
{
    if (!call->on_stream || call->pub.head_only) {
        mr_pieces_drop(pieces, count);
        return;
    }
    queue_pieces(call, pieces, count);
    if (call->deferred) {
        call->deferred = false;
        nghttp2_session_resume_data(call->conn->h2->session, call->stream_id);
    }
    mr_conn_kick(call->conn);
}

static void h2_end(struct mr_call_impl *call, const struct mr_header *trailers, size_t count)
{
    if (call->on_stream && count > 0) {
        keep_trailers(call, trailers, count);
    }
    answered(call);
}

static struct mr_call_waits *h2_waits(struct mr_call_impl *call)
{
    return &call->conn->h2->readers;
}

static void h2_pause(struct mr_call_impl *call, bool paused)
{
    if (!paused) {
        call->conn->h2->must_deliver = true;
        mr_conn_kick(call->conn);
    }
}

/* The windows were opened for it already; the stream's is again, so that the client may send that much more. */
static void h2_unread(struct mr_call_impl *call, mr_bytes data)
{
    struct mr_h2 *h = call->conn->h2;
    struct mr_outq rest = call->held;

    mr_outq_init(&call->held, call->pub.loop);
    mr_outq_append(&call->held, data.ptr, data.len);
    mr_outq_move(&call->held, &rest, rest.bytes);
    mr_outq_fini(&rest);
    call->unread_bytes += data.len;
    h->failed = h->failed || call->held.failed;
    call->body_done = false;
    h2_pause(call, false);
}

static void h2_hold(struct mr_call_impl *call, int64_t bytes)
{
    struct mr_h2 *h = call->conn->h2;

    call->handler_bytes += bytes;
    h->handler_bytes += bytes;
    if (bytes >= 0) {
        return;
    }
    mr_h2_note_room(call);
    if (h->must_deliver || h->wants_room) {
        mr_conn_kick(call->conn);
    }
}

static void h2_want_room(struct mr_call_impl *call)
{
    call->conn->h2->wants_room = true;
    mr_conn_kick(call->conn);
}

static void h2_abort(struct mr_call_impl *call, uint32_t h2_error)
{
    if (call->on_stream) {
        mr_h2_reset(call, h2_error);
    }
    answered(call);
}

const struct mr_call_ops mr_h2_call_ops = {
    .reply = h2_reply,
    .begin = h2_begin,
    .write = h2_write,
    .end = h2_end,
    .is_backlogged = mr_h2_call_is_backlogged,
    .waits = h2_waits,
    .pause = h2_pause,
    .unread = h2_unread,
    .hold = h2_hold,
    .want_room = h2_want_room,
    .abort = h2_abort,
};

/* ---- answers without a handler --------------------------------------------------------------- */

void mr_h2_send_continue(struct mr_call_impl *call)
{
    struct mr_h2 *h = call->conn->h2;
    nghttp2_nv nv = make_nv(MR_STR(":status"), MR_STR("100"), STATIC_PAIR);

    if (nghttp2_submit_headers(h->session, NGHTTP2_FLAG_NONE, call->stream_id, NULL, &nv, 1,
                               NULL) != 0) {
        h->failed = true;
    }
}

void mr_h2_refuse_head(struct mr_call_impl *call, int status, const char *text)
{
    static const struct mr_header type = {MR_STR_INIT("content-type"),
                                          MR_STR_INIT("application/json")};
    const struct mr_header grpc[] = {{MR_STR("content-type"), MR_STR("application/grpc")},
                                     {MR_STR("grpc-status"), MR_STR("8")}, /* RESOURCE_EXHAUSTED */
                                     {MR_STR("grpc-message"), mr_str_c(text)}};
    char json[128];
    int len = snprintf(json, sizeof json, "{\"error\":\"%s\"}", text);
    struct mr_piece body = {.ptr = json, .len = (size_t)len};
    struct mr_reply reply = {
        .status = status, .headers = &type, .header_count = 1, .pieces = &body, .piece_count = 1};

    if (call->pub.is_grpc) {
        reply = (struct mr_reply){.status = 200, .headers = grpc, .header_count = 3};
    }
    mr_count_add(&call->pub.loop->stats.protocol_errors, 1);
    mr_call_reply(&call->pub, &reply);
}
