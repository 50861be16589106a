/* HTTP/2 connections, the reading half: nghttp2 sessions.
 *
 * Input is read into the loop's read buffer and given to nghttp2, which keeps none of it; a session
 * holds no buffer of ours while it is idle. Bodies are copied once, to where they stay (body.c).
 *
 * Flow control: windows are opened as bytes are used. Collected bodies count as used at once, as they
 * have limits of their own; a paused stream keeps its window shut, but not the connection's.
 *
 * A call and its stream end apart. When the stream goes first (reset), the handler is told and owes its
 * answer still; such zombies are counted, and new streams are refused while there are as many as
 * streams are allowed: a peer cannot keep more work running by opening and resetting.
 *
 * A peer that does not take its answers gets no new ones made: complete requests wait (h2->waiting)
 * while the backlog is over the limit.
 *
 * nghttp2's callbacks never close the connection, as that would delete the session under its own feet.
 *
 * Thread: loop. */
#include "http2.h"

#include <pthread.h>

#include "server.h"

#define CONNECTION_WINDOWS 16
#define FRAME_BYTES        (256 * 1024) /* larger frames than usual, to be read to their place */
#define DIRECT_BYTES       ((size_t)16 * 1024)
#define RESET_PERIOD_NS    (30 * MR_NS_PER_S)
#define JUNK_MAX           10000
#define PACK_BYTES         ((size_t)256 * 1024)
#define QUEUE_MAX          4096 /* control frames waiting behind a blocked socket */
#define DRAIN_GRACE_NS     (500 * MR_NS_PER_MS)
#define PING_WAIT_NS       (20 * MR_NS_PER_S)
#define HEADERS_FIRST      16
#define HEADER_OVERHEAD    32 /* RFC 9113 6.5.2 */

/* ---- calls and streams ---------------------------------------------------------------------- */

static void unlink_call(struct mr_h2 *h, struct mr_icall *call)
{
    if (call->prev) {
        call->prev->next = call->next;
    } else {
        h->calls = call->next;
    }
    if (call->next) {
        call->next->prev = call->prev;
    }
}

static void unlink_waiting(struct mr_h2 *h, struct mr_icall *call)
{
    struct mr_icall **link = &h->waiting;
    struct mr_icall *prev = NULL;

    if (!call->waits) {
        return;
    }
    while (*link != call) {
        prev = *link;
        link = &prev->next_waiting;
    }
    *link = call->next_waiting;
    if (h->waiting_last == call) {
        h->waiting_last = prev;
    }
    call->waits = false;
}

void mr_h2_settle_call(struct mr_icall *call)
{
    struct mr_h2 *h = call->conn->h2;

    if (call->owes || call->on_stream) {
        return;
    }
    if (call->is_zombie) {
        h->zombies--;
    }
    if (h->reading == call) {
        h->reading = NULL;
    }
    unlink_call(h, call);
    mr_icall_free(call);
}

void mr_h2_stop_collecting(struct mr_icall *call)
{
    if (call->is_collecting) {
        call->is_collecting = false;
        call->conn->h2->collecting--;
    }
}

void mr_h2_drop_output(struct mr_icall *call)
{
    call->conn->h2->pending -= call->out.bytes;
    mr_outq_fini(&call->out);
}

static struct mr_icall *stream_call(nghttp2_session *session, int32_t stream_id)
{
    return nghttp2_session_get_stream_user_data(session, stream_id);
}

static int on_begin_headers(nghttp2_session *session, const nghttp2_frame *frame, void *user_data)
{
    struct mr_h2 *h = user_data;
    struct mr_conn *c = h->conn;

    h->reading = NULL;
    if (frame->hd.type != NGHTTP2_HEADERS || frame->headers.cat != NGHTTP2_HCAT_REQUEST) {
        return 0;
    }
    if (h->zombies >= c->part->options->h2_max_streams) {
        nghttp2_submit_rst_stream(session, NGHTTP2_FLAG_NONE, frame->hd.stream_id,
                                  NGHTTP2_REFUSED_STREAM);
        return 0;
    }
    struct mr_icall *call = mr_icall_new(c, &mr_h2_call_ops);
    if (!call) {
        return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    }
    call->stream_id = frame->hd.stream_id;
    call->on_stream = true;
    call->owes = false; /* until the handler has seen it */
    call->pub.version = MR_CALL_HTTP2;
    mr_outq_init(&call->out, c->loop);
    mr_outq_init(&call->held, c->loop);
    nghttp2_session_set_stream_user_data(session, call->stream_id, call);
    call->next = h->calls;
    if (call->next) {
        call->next->prev = call;
    }
    h->calls = call;
    h->streams++;
    h->reading = call;
    return 0;
}

/* ---- heads ---------------------------------------------------------------------------------- */

static bool add_header(struct mr_icall *call, mr_str name, mr_str value)
{
    if (call->pub.header_count == call->header_cap) {
        size_t cap = call->header_cap ? call->header_cap * 2 : HEADERS_FIRST;
        struct mr_header *table = mr_arena_try(&call->arena, cap * sizeof *table, _Alignof(mr_str));
        if (!table) {
            return false;
        }
        if (call->header_cap) {
            memcpy(table, call->pub.headers, call->header_cap * sizeof *table);
        }
        call->pub.headers = table;
        call->header_cap = cap;
    }
    struct mr_header *h = (struct mr_header *)&call->pub.headers[call->pub.header_count++];
    h->name = name;
    h->value = value;
    return true;
}

static void split_path(struct mr_call *pub, mr_str path)
{
    const char *mark = path.len ? memchr(path.ptr, '?', path.len) : NULL;
    size_t n = mark ? (size_t)(mark - path.ptr) : path.len;

    pub->path = mr_str_sub(path, 0, n);
    pub->query = mr_str_sub(path, mark ? n + 1 : n, path.len);
}

/* Names of requests that are always the same need no copy. */
static mr_str known_name(mr_str name)
{
    static const mr_str known[] = {
        MR_STR_INIT("te"),
        MR_STR_INIT("accept"),
        MR_STR_INIT("user-agent"),
        MR_STR_INIT("content-type"),
        MR_STR_INIT("grpc-timeout"),
        MR_STR_INIT("content-length"),
        MR_STR_INIT("accept-encoding"),
        MR_STR_INIT("grpc-accept-encoding"),
    };

    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        if (mr_str_eq(name, known[i])) {
            return known[i];
        }
    }
    return (mr_str){NULL, 0};
}

static bool take_header(struct mr_icall *call, mr_str name, mr_str value)
{
    struct mr_call *pub = &call->pub;
    mr_str kept_name = known_name(name);
    mr_str kept = mr_arena_str(&call->arena, value);

    if (!kept.ptr) {
        return false;
    }
    if (name.len > 0 && name.ptr[0] == ':') {
        if (mr_str_eq(name, MR_STR(":path"))) {
            split_path(pub, kept);
        } else if (mr_str_eq(name, MR_STR(":method"))) {
            pub->method = kept;
            pub->head_only = mr_str_eq(kept, MR_STR("HEAD"));
        } else if (mr_str_eq(name, MR_STR(":authority"))) {
            return add_header(call, MR_STR("host"), kept);
        }
        return true;
    }
    if (!kept_name.ptr) {
        kept_name = mr_arena_str(&call->arena, name);
    }
    return kept_name.ptr && add_header(call, kept_name, kept);
}

static int on_header(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name,
                     size_t name_len, const uint8_t *value, size_t value_len, uint8_t flags,
                     void *user_data)
{
    struct mr_h2 *h = user_data;
    struct mr_icall *call = h->reading;
    const struct mr_http_options *o = h->conn->part->options;

    (void)session;
    (void)frame;
    (void)flags;
    if (!call || call->head_too_large) {
        /* Trailers, which nobody wants here, or a stream that was refused. */
        return 0;
    }
    call->header_bytes += name_len + value_len + HEADER_OVERHEAD;
    if ((int64_t)call->header_bytes > o->max_header_bytes ||
        (int64_t)call->pub.header_count >= o->max_headers ||
        !take_header(call, mr_str_n((const char *)name, name_len),
                     mr_str_n((const char *)value, value_len))) {
        call->head_too_large = true;
    }
    return 0;
}

static bool is_grpc_type(mr_str type)
{
    mr_str grpc = MR_STR("application/grpc");

    if (!mr_str_starts(type, grpc)) {
        return false;
    }
    mr_str rest = mr_str_sub(type, grpc.len, type.len);
    return rest.len == 0 || rest.ptr[0] == ';' || mr_str_eq(rest, MR_STR("+proto")) ||
           mr_str_starts(rest, MR_STR("+proto;"));
}

static void complete_body(struct mr_icall *call);

/* The head is complete: ask the handler. */
static void complete_head(struct mr_icall *call, bool is_last)
{
    struct mr_h2 *h = call->conn->h2;
    struct mr_call *pub = &call->pub;
    int32_t id = call->stream_id;

    h->reading = NULL;
    call->head_done = true;
    if (call->head_too_large) {
        mr_h2_error(call, 431, "request header too large (--max-header-bytes)");
        return;
    }
    mr_str length = mr_call_header(pub, "content-length");
    if (length.ptr && !mr_str_to_i64(length, &pub->content_length)) {
        pub->content_length = -1;
    }
    pub->is_grpc =
        mr_str_eq(pub->method, MR_STR("POST")) && is_grpc_type(mr_call_header(pub, "content-type"));
    call->body.expect = pub->content_length;
    call->data_seen_ns = pub->loop->now_ns;
    call->owes = true;
    mr_icall_head(call);
    /* The call is there still: it stays until its stream is closed, which no handler can do at once. */
    call = stream_call(h->session, id);
    if (!call || !call->owes || is_last) {
        return;
    }
    if (!pub->streaming && pub->body_limit >= 0 && pub->content_length > pub->body_limit) {
        mr_icall_refuse(call, MR_E_TOO_LARGE);
    } else if (!pub->streaming) {
        call->is_collecting = true;
        if (h->collecting++ == 0) {
            h->body_check_ns =
                mr_ns_after(pub->loop->now_ns, h->conn->part->options->body_timeout_ns);
        }
    }
}

/* ---- bodies --------------------------------------------------------------------------------- */

static size_t backlog(const struct mr_conn *c)
{
    return c->out.bytes + c->h2->pending;
}

static bool is_backlogged(const struct mr_conn *c)
{
    return (int64_t)backlog(c) > c->part->options->max_output_backlog;
}

static void deliver(struct mr_icall *call, mr_bytes data, bool is_last)
{
    const struct mr_http_handler *handler = call->conn->part->handler;

    if (is_last) {
        call->body_done = true;
        call->pub.recv_end_ns = call->pub.loop->now_ns;
    }
    handler->on_data(handler->ctx, &call->pub, data, is_last);
}

/* END_STREAM was seen. */
static void complete_body(struct mr_icall *call)
{
    struct mr_h2 *h = call->conn->h2;

    call->end_stream_seen = true;
    mr_h2_stop_collecting(call);
    if (!call->owes || call->refused) {
        return;
    }
    if (call->pub.streaming) {
        if (!call->paused && call->held.bytes == 0) {
            deliver(call, (mr_bytes){0}, true);
        }
        return;
    }
    call->body_done = true;
    mr_body_publish(call);
    if (is_backlogged(h->conn)) {
        call->waits = true;
        call->next_waiting = NULL;
        if (h->waiting) {
            h->waiting_last->next_waiting = call;
        } else {
            h->waiting = call;
        }
        h->waiting_last = call;
        return;
    }
    mr_icall_body(call);
}

/* What a gRPC message says about its length in its first five bytes. */
static void expect_message(struct mr_icall *call, const uint8_t *data, size_t len)
{
    struct mr_body *b = &call->body;

    if (b->expect < 0 && b->len == 0 && call->pub.is_grpc && len >= 5) {
        b->expect = 5 + ((int64_t)data[1] << 24 | data[2] << 16 | data[3] << 8 | data[4]);
    }
}

static void collect(struct mr_icall *call, const uint8_t *data, size_t len)
{
    expect_message(call, data, len);
    int rc = mr_body_append(call, data, len);
    if (rc < 0) {
        mr_h2_stop_collecting(call);
        mr_icall_refuse(call, rc);
    }
}

static int on_data_chunk(nghttp2_session *session, uint8_t flags, int32_t stream_id,
                         const uint8_t *data, size_t len, void *user_data)
{
    struct mr_h2 *h = user_data;
    struct mr_icall *call = stream_call(session, stream_id);

    (void)flags;
    h->junk = 0;
    h->frame_left -= MR_MIN(len, h->frame_left);
    if (call) {
        call->data_seen_ns = call->pub.loop->now_ns;
    }
    if (call && call->owes && !call->refused && call->pub.streaming) {
        if (call->paused || call->held.bytes > 0) {
            mr_outq_append(&call->held, data, len);
            h->failed = h->failed || call->held.failed;
            return nghttp2_session_consume_connection(session, len);
        }
        deliver(call, (mr_bytes){data, len}, false);
    } else if (call && call->owes && !call->refused) {
        collect(call, data, len);
    }
    /* The handler may have ended the stream; consuming is harmless then. */
    int rc = nghttp2_session_consume(session, stream_id, len);
    return rc == NGHTTP2_ERR_NOMEM ? NGHTTP2_ERR_CALLBACK_FAILURE : 0;
}

/* ---- frames and streams --------------------------------------------------------------------- */

static int calm_down(struct mr_h2 *h)
{
    mr_count_add(&h->conn->loop->stats.protocol_errors, 1);
    return nghttp2_session_terminate_session(h->session, NGHTTP2_ENHANCE_YOUR_CALM) == 0
               ? 0
               : NGHTTP2_ERR_CALLBACK_FAILURE;
}

/* A stream was reset, by the peer or because of it. */
static int count_reset(struct mr_h2 *h)
{
    int64_t now_ns = h->conn->loop->now_ns;

    if (now_ns - h->resets_since_ns > RESET_PERIOD_NS) {
        h->resets_since_ns = now_ns;
        h->resets = 0;
    }
    return ++h->resets > h->conn->part->options->h2_max_resets ? calm_down(h) : 0;
}

static int count_junk(struct mr_h2 *h)
{
    return ++h->junk > JUNK_MAX ? calm_down(h) : 0;
}

static int on_begin_frame(nghttp2_session *session, const nghttp2_frame_hd *hd, void *user_data)
{
    struct mr_h2 *h = user_data;

    (void)session;
    h->frame_left = hd->type == NGHTTP2_DATA && !(hd->flags & NGHTTP2_FLAG_PADDED) ? hd->length : 0;
    h->frame_stream = hd->stream_id;
    switch (hd->type) {
    case NGHTTP2_DATA:
    case NGHTTP2_HEADERS:
    case NGHTTP2_CONTINUATION:
    case NGHTTP2_RST_STREAM: /* counted by themselves */
    case NGHTTP2_WINDOW_UPDATE: /* many, and of use, while a large answer leaves */ return 0;
    default: return count_junk(h);
    }
}

static int on_request_frame(nghttp2_session *session, const nghttp2_frame *frame, struct mr_h2 *h)
{
    struct mr_icall *call = stream_call(session, frame->hd.stream_id);
    bool is_last = (frame->hd.flags & NGHTTP2_FLAG_END_STREAM) != 0;

    if (frame->hd.type == NGHTTP2_DATA && frame->hd.length == 0 && !is_last) {
        return count_junk(h);
    }
    h->junk = 0;
    if (!call) {
        return 0;
    }
    if (!call->head_done) {
        complete_head(call, is_last);
    }
    if (is_last && (call = stream_call(session, frame->hd.stream_id))) {
        complete_body(call);
    }
    return 0;
}

static int on_frame_recv(nghttp2_session *session, const nghttp2_frame *frame, void *user_data)
{
    struct mr_h2 *h = user_data;

    switch (frame->hd.type) {
    case NGHTTP2_DATA:
    case NGHTTP2_HEADERS: return on_request_frame(session, frame, h);
    case NGHTTP2_RST_STREAM: return count_reset(h);
    case NGHTTP2_PING:
        if (frame->hd.flags & NGHTTP2_FLAG_ACK) {
            h->ping_sent_ns = 0;
        }
        return 0;
    default: return 0;
    }
}

static int on_invalid_frame(nghttp2_session *session, const nghttp2_frame *frame, int error,
                            void *user_data)
{
    struct mr_h2 *h = user_data;

    (void)session;
    (void)frame;
    (void)error;
    mr_count_add(&h->conn->loop->stats.protocol_errors, 1);
    return 0;
}

static int on_frame_send(nghttp2_session *session, const nghttp2_frame *frame, void *user_data)
{
    struct mr_h2 *h = user_data;
    bool is_last = (frame->hd.type == NGHTTP2_DATA || frame->hd.type == NGHTTP2_HEADERS) &&
                   (frame->hd.flags & NGHTTP2_FLAG_END_STREAM);

    if (is_last) {
        struct mr_icall *call = stream_call(session, frame->hd.stream_id);
        if (call && !call->end_stream_seen) {
            /* Answered before the request was complete: the rest need not come (RFC 9113 8.1). */
            nghttp2_submit_rst_stream(session, NGHTTP2_FLAG_NONE, frame->hd.stream_id,
                                      NGHTTP2_NO_ERROR);
        }
    } else if (frame->hd.type == NGHTTP2_RST_STREAM &&
               frame->rst_stream.error_code != NGHTTP2_NO_ERROR) {
        return count_reset(h);
    }
    return 0;
}

static int on_stream_close(nghttp2_session *session, int32_t stream_id, uint32_t error_code,
                           void *user_data)
{
    struct mr_h2 *h = user_data;
    struct mr_icall *call = stream_call(session, stream_id);

    (void)error_code;
    if (!call) {
        return 0;
    }
    nghttp2_session_set_stream_user_data(session, stream_id, NULL);
    call->on_stream = false;
    h->streams--;
    mr_h2_stop_collecting(call);
    unlink_waiting(h, call);
    mr_h2_drop_output(call);
    mr_outq_fini(&call->held);
    h->conn->idle_since_ns = h->conn->loop->now_ns;
    if (!call->owes) {
        mr_h2_settle_call(call);
        return 0;
    }
    call->is_zombie = true;
    h->zombies++;
    mr_icall_cancel(call);
    return 0;
}

/* ---- sessions ------------------------------------------------------------------------------- */

/* Made once, read by all loops. */
static nghttp2_session_callbacks *callbacks;
static nghttp2_option *option;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void make_callbacks(void)
{
    if (nghttp2_session_callbacks_new(&callbacks) != 0 || nghttp2_option_new(&option) != 0) {
        callbacks = NULL;
        return;
    }
    nghttp2_session_callbacks_set_on_begin_headers_callback(callbacks, on_begin_headers);
    nghttp2_session_callbacks_set_on_header_callback(callbacks, on_header);
    nghttp2_session_callbacks_set_on_begin_frame_callback(callbacks, on_begin_frame);
    nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, on_frame_recv);
    nghttp2_session_callbacks_set_on_invalid_frame_recv_callback(callbacks, on_invalid_frame);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, on_data_chunk);
    nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, on_stream_close);
    nghttp2_session_callbacks_set_on_frame_send_callback(callbacks, on_frame_send);
    nghttp2_session_callbacks_set_send_data_callback(callbacks, mr_h2_send_data);
    nghttp2_option_set_no_auto_window_update(option, 1);
    nghttp2_option_set_no_closed_streams(option, 1);
}

static bool session_open(struct mr_h2 *h, nghttp2_mem *mem)
{
    const struct mr_http_options *o = h->conn->part->options;
    nghttp2_settings_entry settings[] = {
        {NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, o->h2_max_streams},
        {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, o->h2_window_bytes},
        {NGHTTP2_SETTINGS_MAX_FRAME_SIZE, FRAME_BYTES},
        {NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, (uint32_t)o->max_header_bytes},
        {NGHTTP2_SETTINGS_NO_RFC7540_PRIORITIES, 1},
    };

    pthread_once(&once, make_callbacks);
    if (!callbacks || nghttp2_session_server_new3(&h->session, callbacks, h, option, mem) != 0) {
        return false;
    }
    return nghttp2_submit_settings(h->session, NGHTTP2_FLAG_NONE, settings,
                                   sizeof settings / sizeof settings[0]) == 0 &&
           nghttp2_session_set_local_window_size(
               h->session, NGHTTP2_FLAG_NONE, 0,
               (int32_t)(o->h2_window_bytes * CONNECTION_WINDOWS)) == 0;
}

static void feed(struct mr_conn *c, const uint8_t *data, size_t n)
{
    struct mr_h2 *h = c->h2;

    h->heard_ns = c->loop->now_ns;
    ssize_t used = nghttp2_session_mem_recv(h->session, data, n);
    if (used < 0 || h->failed) {
        mr_count_add(&c->loop->stats.protocol_errors, 1);
        mr_conn_close(c);
    }
}

void mr_h2_start(struct mr_conn *c)
{
    nghttp2_mem mem = mr_h2mem(c->loop);
    struct mr_h2 *h = mem.calloc(1, sizeof *h, c->loop);
    struct mr_input in = c->in;

    if (!h) {
        mr_conn_close(c);
        return;
    }
    h->conn = c;
    h->progress_ns = h->heard_ns = h->resets_since_ns = c->loop->now_ns;
    c->proto = &mr_proto_http2;
    c->h2 = h;
    if (!session_open(h, &mem)) {
        mr_conn_close(c);
        return;
    }
    c->in = (struct mr_input){0};
    feed(c, (const uint8_t *)in.ptr, in.end);
    mr_input_free(c->loop, in.ptr, in.cap);
}

static void h2_end(struct mr_conn *c)
{
    struct mr_h2 *h = c->h2;
    nghttp2_mem mem = mr_h2mem(c->loop);

    if (!h) {
        return;
    }
    while (h->calls) {
        struct mr_icall *call = h->calls;
        unlink_call(h, call);
        mr_icall_detach(call);
    }
    nghttp2_session_del(h->session);
    mem.free(h, c->loop);
    c->h2 = NULL;
}

/* ---- work ----------------------------------------------------------------------------------- */

/* Requests that were held back, while there is room for their answers. */
static void release_waiting(struct mr_conn *c)
{
    struct mr_h2 *h = c->h2;

    while (h->waiting && !is_backlogged(c)) {
        struct mr_icall *call = h->waiting;
        unlink_waiting(h, call);
        mr_icall_body(call);
    }
}

/* Bytes that came while the stream was paused. */
static void deliver_held(struct mr_h2 *h, struct mr_icall *call)
{
    int32_t id = call->stream_id;
    mr_bytes data;

    while (call && call->owes && !call->paused && (data = mr_outq_front(&call->held)).len > 0) {
        uint8_t copy[4096];
        size_t n = MR_MIN(data.len, sizeof copy);
        memcpy(copy, data.ptr, n);
        mr_outq_consume(&call->held, n);
        nghttp2_session_consume_stream(h->session, id, n);
        deliver(call, (mr_bytes){copy, n}, false);
        call = stream_call(h->session, id);
    }
    if (call && call->owes && !call->paused && call->end_stream_seen && !call->body_done) {
        deliver(call, (mr_bytes){0}, true);
    }
}

static bool is_deliverable(const struct mr_icall *call)
{
    return call->pub.streaming && call->on_stream && call->owes && !call->paused &&
           (call->held.bytes > 0 || (call->end_stream_seen && !call->body_done));
}

static void deliver_all(struct mr_h2 *h)
{
    if (!h->must_deliver) {
        return;
    }
    h->must_deliver = false;
    /* From the front each time: a handler may end other calls meanwhile. */
    struct mr_icall *call = h->calls;
    while (call) {
        if (is_deliverable(call)) {
            deliver_held(h, call);
            call = h->calls;
        } else {
            call = call->next;
        }
    }
}

/* Frame what can be framed, until the queue is long enough for one write. */
static bool pack(struct mr_conn *c)
{
    struct mr_h2 *h = c->h2;

    h->pack_again = false;
    while (c->out.bytes < PACK_BYTES) {
        const uint8_t *data;
        ssize_t n = nghttp2_session_mem_send(h->session, &data);
        if (n < 0) {
            mr_conn_close(c);
            return false;
        }
        if (n == 0) {
            return h->pack_again;
        }
        mr_outq_append(&c->out, data, (size_t)n);
    }
    return true;
}

static bool is_over(const struct mr_conn *c)
{
    const struct mr_h2 *h = c->h2;
    bool is_idle = h->streams == 0 && h->zombies == 0;

    if (h->drain == MR_H2_LAST && h->streams == 0) {
        return true;
    }
    if (c->peer_eof) {
        return is_idle;
    }
    return !nghttp2_session_want_read(h->session) && !nghttp2_session_want_write(h->session);
}

static bool h2_work(struct mr_conn *c)
{
    struct mr_h2 *h = c->h2;

    if (c->blocked && c->out.bytes > 0) {
        return false;
    }
    deliver_all(h);
    release_waiting(c);
    bool more = pack(c);
    if (!c->closing && !more && is_over(c)) {
        c->close_soon = true;
        c->lingers = true;
    }
    return more || (!c->closing && h->waiting && !is_backlogged(c));
}

/* The peer sends no more. Answers can still be written; requests cannot be completed. */
static void input_ended(struct mr_conn *c)
{
    struct mr_h2 *h = c->h2;
    struct mr_icall *call = h->calls;

    while (call) {
        if (call->told_cancel || !call->on_stream || !call->owes) {
            call = call->next;
            continue;
        }
        if (!call->end_stream_seen) {
            nghttp2_submit_rst_stream(h->session, NGHTTP2_FLAG_NONE, call->stream_id,
                                      NGHTTP2_CANCEL);
        }
        mr_icall_cancel(call);
        call = h->calls;
    }
}

/* In the middle of a large DATA frame its bytes can be read to where they stay. NULL: not now. */
static uint8_t *direct_room(struct mr_h2 *h, size_t *out_room)
{
    struct mr_icall *call =
        h->frame_left >= DIRECT_BYTES ? stream_call(h->session, h->frame_stream) : NULL;
    size_t room = 0;

    if (!call || !call->is_collecting || call->refused) {
        return NULL;
    }
    uint8_t *at = mr_body_room(call, &room);
    *out_room = MR_MIN(room, h->frame_left);
    return at;
}

static void h2_input(struct mr_conn *c)
{
    size_t room = 0;

    if (c->peer_eof || !mr_proto_http2.wants_input(c)) {
        return;
    }
    uint8_t *buf = direct_room(c->h2, &room);
    if (!buf) {
        buf = mr_loop_read_buf(c->loop);
        room = MR_READ_BUF_BYTES;
    }
    if (!buf) {
        mr_conn_close(c);
        return;
    }
    size_t n = mr_conn_read(c, buf, room);
    if (n > 0) {
        feed(c, buf, n);
    } else if (c->peer_eof && !c->closing) {
        input_ended(c);
    }
}

static bool h2_wants_input(const struct mr_conn *c)
{
    /* Behind a blocked socket answers to control frames pile up in nghttp2. */
    return !c->close_soon &&
           !(c->blocked && nghttp2_session_get_outbound_queue_size(c->h2->session) > QUEUE_MAX);
}

/* ---- time ----------------------------------------------------------------------------------- */

static int64_t sooner(int64_t a, int64_t since_ns, int64_t limit_ns)
{
    int64_t b = limit_ns > 0 ? mr_ns_after(since_ns, limit_ns) : 0;

    return a == 0 ? b : b == 0 ? a : MR_MIN(a, b);
}

static int64_t h2_deadline(const struct mr_conn *c)
{
    const struct mr_http_options *o = c->part->options;
    const struct mr_h2 *h = c->h2;
    int64_t at_ns = 0;

    if (h->streams == 0 && h->zombies == 0) {
        at_ns = sooner(at_ns, c->idle_since_ns, o->idle_timeout_ns);
    }
    if (h->collecting > 0 && o->body_timeout_ns > 0) {
        at_ns = sooner(at_ns, h->body_check_ns, 1);
    }
    if (h->pending > 0) {
        at_ns = sooner(at_ns, h->progress_ns, o->write_timeout_ns);
    }
    if (h->ping_sent_ns) {
        at_ns = sooner(at_ns, h->ping_sent_ns, PING_WAIT_NS);
    } else {
        at_ns = sooner(at_ns, h->heard_ns, o->h2_ping_interval_ns);
    }
    if (h->drain == MR_H2_NOTICED) {
        at_ns = sooner(at_ns, h->drain_ns, DRAIN_GRACE_NS);
    }
    return at_ns;
}

/* Streams whose body stopped coming are reset. */
static void check_bodies(struct mr_conn *c)
{
    struct mr_h2 *h = c->h2;
    int64_t limit_ns = c->part->options->body_timeout_ns;
    int64_t oldest_ns = c->loop->now_ns;

    for (struct mr_icall *call = h->calls; call; call = call->next) {
        if (!call->is_collecting) {
            continue;
        }
        if (call->data_seen_ns + limit_ns <= c->loop->now_ns) {
            mr_count_add(&c->loop->stats.timeouts, 1);
            mr_h2_stop_collecting(call);
            nghttp2_submit_rst_stream(h->session, NGHTTP2_FLAG_NONE, call->stream_id,
                                      NGHTTP2_CANCEL);
        } else {
            oldest_ns = MR_MIN(oldest_ns, call->data_seen_ns);
        }
    }
    h->body_check_ns = mr_ns_after(oldest_ns, limit_ns);
}

static void last_goaway(struct mr_conn *c)
{
    struct mr_h2 *h = c->h2;

    h->drain = MR_H2_LAST;
    nghttp2_submit_goaway(h->session, NGHTTP2_FLAG_NONE,
                          nghttp2_session_get_last_proc_stream_id(h->session), NGHTTP2_NO_ERROR,
                          NULL, 0);
}

static bool is_past(const struct mr_conn *c, int64_t since_ns, int64_t limit_ns)
{
    return limit_ns > 0 && mr_ns_after(since_ns, limit_ns) <= c->loop->now_ns;
}

static void h2_expired(struct mr_conn *c)
{
    const struct mr_http_options *o = c->part->options;
    struct mr_h2 *h = c->h2;
    bool is_idle = h->streams == 0 && h->zombies == 0;

    if ((h->pending > 0 && is_past(c, h->progress_ns, o->write_timeout_ns)) ||
        (h->ping_sent_ns && is_past(c, h->ping_sent_ns, PING_WAIT_NS))) {
        mr_count_add(&c->loop->stats.timeouts, 1);
        mr_conn_close(c);
        return;
    }
    if (is_idle && is_past(c, c->idle_since_ns, o->idle_timeout_ns)) {
        mr_count_add(&c->loop->stats.timeouts, 1);
        last_goaway(c);
    }
    if (h->collecting > 0 && h->body_check_ns <= c->loop->now_ns) {
        check_bodies(c);
    }
    if (!h->ping_sent_ns && is_past(c, h->heard_ns, o->h2_ping_interval_ns)) {
        h->ping_sent_ns = c->loop->now_ns;
        nghttp2_submit_ping(h->session, NGHTTP2_FLAG_NONE, NULL);
    }
    if (h->drain == MR_H2_NOTICED && is_past(c, h->drain_ns, DRAIN_GRACE_NS)) {
        last_goaway(c);
    }
}

/* Requests on their way when the peer reads our notice are still served; then the last word. */
static void h2_drain(struct mr_conn *c)
{
    struct mr_h2 *h = c->h2;

    c->draining = true;
    if (h->drain != MR_H2_SERVING) {
        return;
    }
    if (h->streams == 0) {
        last_goaway(c);
    } else {
        h->drain = MR_H2_NOTICED;
        h->drain_ns = c->loop->now_ns;
        nghttp2_submit_shutdown_notice(h->session);
    }
    mr_conn_kick(c);
}

static void h2_rest(struct mr_conn *c)
{
    (void)c;
}

const struct mr_proto mr_proto_http2 = {
    .input = h2_input,
    .work = h2_work,
    .wants_input = h2_wants_input,
    .deadline = h2_deadline,
    .expired = h2_expired,
    .drain = h2_drain,
    .rest = h2_rest,
    .end = h2_end,
};
