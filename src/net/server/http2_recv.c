/* HTTP/2, nghttp2's callbacks: frames of the peer become calls.
 *
 * Bodies are copied once, to their final place (body.c); those read in place are not copied. Flow control: windows
 * are opened as bytes are used. Collected bodies count as used at once, as they have limits of their own; a paused
 * stream keeps its own window closed, but not the connection's.
 *
 * A call and its stream end independently. If the stream ends first (reset), the handler is informed and must still
 * answer; such zombies are counted, and new streams are refused while there are as many as allowed streams: a peer
 * cannot get more work done by opening and resetting.
 *
 * Callbacks never close the connection, as that would delete the session while nghttp2 uses it.
 *
 * Thread: loop. */
#include "http2.h"

#include <pthread.h>

#include "server.h"

#define FRAME_USUAL     (16 * 1024)
#define FRAME_LARGE     (256 * 1024) /* for peers with large bodies, which are read in place */
#define LARGE_BODY      ((size_t)128 * 1024)
#define WINDOW_SPARE    (16 * 1024)
#define LEAST_FRAME     4096 /* shorter ones are the last of a body */
#define TALLY_PERIOD_NS (30 * MR_NS_PER_S)
#define JUNK_MAX        10000
/* Frames of one header block after the first: with the largest --max-header-bytes, in frames of the usual size. */
#define CONTINUATIONS_MAX 1024
#define STREAM_SHARE      ((size_t)64 * 1024) /* what a stream may leave unread, whatever others do */
#define HEADERS_FIRST     16
#define HEADER_OVERHEAD   32 /* RFC 9113 6.5.2 */

/* ---- calls and streams ---------------------------------------------------------------------- */

void mr_h2_unlink_waiting(struct mr_h2 *h, struct mr_call_impl *call)
{
    if (call->waits) {
        call->waits = false;
        TAILQ_REMOVE(&h->waiting, call, waiting);
    }
}

void mr_h2_settle_call(struct mr_call_impl *call)
{
    struct mr_h2 *h = call->conn->h2;

    if (call->owes || call->on_stream) {
        return;
    }
    if (call->is_zombie) {
        h->zombies--;
    }
    h->handler_bytes -= call->handler_bytes;
    if (h->reading == call) {
        h->reading = NULL;
        h->head_due_ns = 0;
    }
    LIST_REMOVE(call, link);
    mr_call_impl_free(call);
}

void mr_h2_stop_collecting(struct mr_call_impl *call)
{
    if (call->is_collecting) {
        call->is_collecting = false;
        call->conn->h2->collecting--;
    }
}

void mr_h2_drop_output(struct mr_call_impl *call)
{
    call->conn->h2->pending -= call->out.memory;
    call->conn->h2->complete -= call->ended ? call->out.memory : 0;
    mr_outq_fini(&call->out);
}

struct mr_call_impl *mr_h2_stream_call(nghttp2_session *session, int32_t stream_id)
{
    return nghttp2_session_get_stream_user_data(session, stream_id);
}

static int on_begin_headers(nghttp2_session *session, const nghttp2_frame *frame, void *user_data)
{
    struct mr_h2 *h = user_data;
    struct mr_conn *c = h->conn;

    h->reading = NULL;
    h->head_due_ns = 0;
    if (frame->hd.type != NGHTTP2_HEADERS || frame->headers.cat != NGHTTP2_HCAT_REQUEST) {
        return 0;
    }
    struct mr_call_impl *call = NULL;
    if (h->zombies < mr_h2_max_streams(c)) {
        call = mr_call_impl_new(c, &mr_h2_call_ops);
    }
    if (!call) { /* the request has had no effect: the client may repeat it */
        return nghttp2_submit_rst_stream(session, NGHTTP2_FLAG_NONE, frame->hd.stream_id,
                                         NGHTTP2_REFUSED_STREAM) == 0
                   ? 0
                   : NGHTTP2_ERR_CALLBACK_FAILURE;
    }
    call->stream_id = frame->hd.stream_id;
    call->on_stream = true;
    call->owes = false; /* until the handler has seen it */
    atomic_store_explicit(&call->is_unread, h->is_unread, memory_order_relaxed);
    call->pub.version = MR_CALL_HTTP2;
    mr_outq_init(&call->out, c->loop);
    mr_outq_init(&call->held, c->loop);
    nghttp2_session_set_stream_user_data(session, call->stream_id, call);
    LIST_INSERT_HEAD(&h->calls, call, link);
    h->streams++;
    h->is_untidy = true;
    h->reading = call;
    h->head_due_ns = mr_due_start(c->loop->now_ns, c->part->options->header_timeout_ns);
    return 0;
}

/* ---- heads ---------------------------------------------------------------------------------- */

static bool add_header(struct mr_call_impl *call, mr_str name, mr_str value)
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

/* Common names are static and need no copy. */
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

static bool take_header(struct mr_call_impl *call, mr_str name, mr_str value)
{
    struct mr_call *pub = &call->pub;
    mr_str kept_name = known_name(name);
    bool is_pseudo = name.len > 0 && name.ptr[0] == ':';
    /* As in HTTP/1.1, blanks around a value are not part of it. */
    mr_str kept = mr_arena_str(&call->arena, is_pseudo ? value : mr_str_trim(value));

    if (!kept.ptr) {
        return false;
    }
    if (is_pseudo) {
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

#define RELAY_HEADERS 16
#define RELAY_BYTES   8192

/* Headers of HTTP/1 are counted without an overhead, so that many of them may be more here. */
static bool is_head_too_large(const struct mr_call_impl *call, const struct mr_http_options *o)
{
    bool is_relayed = mr_conn_is_relay(call->conn);
    int64_t more = is_relayed ? RELAY_BYTES + o->max_headers * HEADER_OVERHEAD : 0;

    return (int64_t)call->header_bytes > o->max_header_bytes + more ||
           (int64_t)call->pub.header_count >= o->max_headers + (is_relayed ? RELAY_HEADERS : 0);
}

static int on_header(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name,
                     size_t name_len, const uint8_t *value, size_t value_len, uint8_t flags,
                     void *user_data)
{
    struct mr_h2 *h = user_data;
    struct mr_call_impl *call = h->reading;

    (void)session;
    (void)frame;
    (void)flags;
    if (!call || call->head_too_large || call->head_lost) {
        /* Trailers, which are ignored, or a refused stream. */
        return 0;
    }
    call->header_bytes += name_len + value_len + HEADER_OVERHEAD;
    if (is_head_too_large(call, h->conn->part->options)) {
        call->head_too_large = true;
    } else {
        call->head_lost = !take_header(call, mr_str_n((const char *)name, name_len),
                                       mr_str_n((const char *)value, value_len));
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

/* A client may wait for leave to send its body. Those of gRPC do not, and take an interim answer for the answer. */
static mr_str expectation(const struct mr_call *call)
{
    return call->is_grpc ? (mr_str){NULL, 0} : mr_call_header(call, "expect");
}

/* True if no handler is to see the call: it was answered. */
static bool head_is_refused(struct mr_call_impl *call)
{
    mr_str expect = expectation(&call->pub);

    if (call->head_too_large) {
        mr_h2_refuse_head(call, 431, "request header too large (--max-header-bytes)");
    } else if (call->head_lost) {
        call->ops->abort(call, NGHTTP2_REFUSED_STREAM);
    } else if (expect.ptr && !mr_str_ieq(expect, MR_STR("100-continue"))) {
        mr_h2_refuse_head(call, 417, "unknown expectation");
    } else {
        return false;
    }
    return true;
}

static void complete_body(struct mr_call_impl *call);

/* The head is complete: calls the handler. */
static void complete_head(struct mr_call_impl *call, bool is_last)
{
    struct mr_h2 *h = call->conn->h2;
    struct mr_call *pub = &call->pub;
    int32_t id = call->stream_id;

    h->reading = NULL;
    h->head_due_ns = 0;
    call->head_done = true;
    pub->is_grpc =
        mr_str_eq(pub->method, MR_STR("POST")) && is_grpc_type(mr_call_header(pub, "content-type"));
    if (head_is_refused(call)) {
        return;
    }
    mr_str length = mr_call_header(pub, "content-length");
    if (length.ptr && !mr_str_to_i64(length, &pub->content_length)) {
        pub->content_length = -1;
    }
    call->body.expect = pub->content_length;
    call->body_due_ns = mr_due_start(pub->loop->now_ns, h->conn->part->options->body_timeout_ns);
    call->owes = true;
    mr_call_impl_head(call);
    /* The call still exists: it stays until its stream is closed, which a handler cannot do at once. */
    call = mr_h2_stream_call(h->session, id);
    if (!call || !call->owes || is_last) {
        return;
    }
    if (!pub->streaming && pub->body_limit >= 0 && pub->content_length > pub->body_limit) {
        mr_call_impl_refuse(call, MR_E_TOO_LARGE);
        return;
    }
    if (expectation(pub).ptr && !call->begun) {
        mr_h2_send_continue(call);
    }
    if (!pub->streaming) {
        call->is_collecting = true;
        if (h->collecting++ == 0) {
            h->body_check_ns =
                mr_ns_after(pub->loop->now_ns, h->conn->part->options->body_timeout_ns);
        }
    }
}

/* ---- bodies --------------------------------------------------------------------------------- */

bool mr_h2_is_backlogged(const struct mr_conn *c)
{
    const struct mr_h2 *h = c->h2;
    size_t calls = h->answered * (sizeof(struct mr_call_impl) + MR_ICALL_ARENA_BYTES);

    return mr_conn_is_backlogged(c, c->out.memory + h->complete + calls);
}

bool mr_h2_call_is_backlogged(const struct mr_call_impl *call, bool with_input)
{
    const struct mr_conn *c = call->conn;
    const struct mr_h2 *h = c->h2;
    size_t own = call->out.memory, all = c->out.memory + h->pending;

    if (with_input) {
        own += (size_t)call->handler_bytes;
        all += (size_t)h->handler_bytes;
    }
    return mr_h2_is_backlogged(c) || (own > STREAM_SHARE && mr_conn_is_backlogged(c, all));
}

bool mr_h2_has_input(const struct mr_call_impl *call)
{
    return call->held.bytes > 0 || (call->end_stream_seen && !call->body_done);
}

void mr_h2_note_room(struct mr_call_impl *call)
{
    struct mr_h2 *h = call->conn->h2;

    h->wants_room = h->wants_room || call->wants_room;
    h->must_deliver = h->must_deliver || (call->pub.streaming && mr_h2_has_input(call));
}

void mr_h2_judge_unread(struct mr_conn *c)
{
    struct mr_h2 *h = c->h2;
    uint64_t backlog = (uint64_t)c->part->options->max_output_backlog;
    uint64_t memory = c->out.memory + h->pending;
    struct mr_call_impl *call;

    if (!h->is_unread && memory <= backlog) {
        return;
    }
    uint64_t most = MR_MAX(mr_block_share(), backlog);
    bool is_unread = memory > (h->is_unread ? most / 2 : most);
    if (is_unread == h->is_unread) {
        return;
    }
    h->is_unread = is_unread;
    LIST_FOREACH (call, &h->calls, link) {
        atomic_store_explicit(&call->is_unread, is_unread, memory_order_relaxed);
    }
}

void mr_h2_held_is_done(struct mr_call_impl *call, size_t n)
{
    size_t again = MR_MIN(n, call->unread_bytes);

    call->unread_bytes -= again;
    call->conn->h2->owed += n - again;
}

void mr_h2_drop_held(struct mr_call_impl *call)
{
    if (call->pub.streaming) {
        mr_h2_held_is_done(call, call->held.bytes);
    }
    mr_outq_fini(&call->held);
}

size_t mr_h2_deliver(struct mr_call_impl *call, mr_bytes data, bool is_last)
{
    const struct mr_http_handler *handler = call->conn->part->handler;

    if (is_last) {
        call->body_done = true;
        call->pub.recv_end_ns = call->pub.loop->now_ns;
    }
    call->put_back = 0;
    call->streamed_bytes += data.len;
    handler->on_data(handler->ctx, &call->pub, data, is_last);
    return call->put_back;
}

/* END_STREAM was seen. */
static void complete_body(struct mr_call_impl *call)
{
    struct mr_h2 *h = call->conn->h2;

    call->end_stream_seen = true;
    if (call->is_collecting && call->held.bytes > 0) {
        return; /* until there is memory for the held input */
    }
    mr_h2_stop_collecting(call);
    if (!call->owes || call->refused) {
        return;
    }
    if (call->pub.streaming) {
        if (call->held.bytes == 0 && mr_call_impl_is_ready(call)) {
            mr_h2_deliver(call, (mr_bytes){0}, true);
        } else {
            h->must_deliver = true;
        }
        return;
    }
    call->body_done = true;
    mr_body_publish(call);
    if (mr_h2_is_backlogged(h->conn)) {
        call->waits = true;
        TAILQ_INSERT_TAIL(&h->waiting, call, waiting);
        return;
    }
    mr_call_impl_body(call);
}

/* Takes the expected length from the first five bytes of a gRPC message. */
static void expect_message(struct mr_call_impl *call, const uint8_t *data, size_t len)
{
    struct mr_body *b = &call->body;
    uint8_t prefix[5];

    if (b->expect >= 0 || !call->pub.is_grpc || b->len >= 5 || b->len + len < 5) {
        return;
    }
    for (size_t i = 0; i < 5; i++) {
        prefix[i] = i < b->len ? b->base[i] : data[i - b->len];
    }
    b->expect = 5 + ((int64_t)prefix[1] << 24 | prefix[2] << 16 | prefix[3] << 8 | prefix[4]);
}

/* Allows larger frames to a peer that fills its frames with a large body. */
static void allow_large_frames(struct mr_h2 *h, const struct mr_call_impl *call)
{
    nghttp2_settings_entry setting = {NGHTTP2_SETTINGS_MAX_FRAME_SIZE, FRAME_LARGE};
    const struct mr_body *b = &call->body;

    if (!h->has_large_frames && h->frame_bytes == FRAME_USUAL &&
        (b->len >= LARGE_BODY || b->expect >= (int64_t)LARGE_BODY)) {
        h->has_large_frames = true;
        nghttp2_submit_settings(h->session, NGHTTP2_FLAG_NONE, &setting, 1);
    }
}

/* Opens the stream's window by the room allocated for the body, so that the peer need not wait for updates. */
static void open_stream_window(struct mr_call_impl *call)
{
    struct mr_h2 *h = call->conn->h2;
    const struct mr_body *b = &call->body;
    int64_t room = b->block ? MR_MIN(b->expect, (int64_t)b->cap) : 0;

    h->has_large_body = h->has_large_body || room >= (int64_t)LARGE_BODY;
    if (room > call->window / 2 && room > h->conn->part->options->h2_window_bytes) {
        /* nghttp2 sends an update when half of a window is used: with twice the room it never does. */
        call->window = (int32_t)MR_MIN(2 * room + WINDOW_SPARE, INT32_MAX);
        nghttp2_session_set_local_window_size(h->session, NGHTTP2_FLAG_NONE, call->stream_id,
                                              call->window);
    }
}

static void collect(struct mr_call_impl *call, const uint8_t *data, size_t len)
{
    const struct mr_body *b = &call->body;

    expect_message(call, data, len);
    if (call->pub.is_grpc && b->expect >= 0) {
        /* What follows the message makes the call invalid: one byte of it says so. */
        len = MR_MIN(len, (size_t)b->expect + 1 - MR_MIN(b->len, (size_t)b->expect + 1));
    }
    allow_large_frames(call->conn->h2, call);
    /* The declared length alone is reason to refuse. */
    int rc = call->pub.body_limit >= 0 && call->body.expect > call->pub.body_limit
                 ? MR_E_TOO_LARGE
                 : mr_body_append(call, data, len);
    if (rc < 0) {
        mr_h2_stop_collecting(call);
        mr_call_impl_refuse(call, rc);
    } else {
        open_stream_window(call);
    }
}

/* If the chunk needs memory and little is left, holds it as received and stops reading. Not while answers wait for
 * the peer, whose window updates come on the same connection. */
static bool hold_back(struct mr_call_impl *call, const uint8_t *data, size_t len)
{
    struct mr_conn *c = call->conn;
    bool can_wait = call->is_collecting && c->h2->pending == 0 && !c->blocked;

    if (call->held.bytes == 0 && !(can_wait && mr_body_should_wait(call, len))) {
        return false;
    }
    mr_outq_append(&call->held, data, len);
    c->h2->failed = c->h2->failed || call->held.failed;
    mr_memory_backpressure_add(c);
    return true;
}

/* Adds the held input to the body; may answer the call. */
static void collect_held(struct mr_call_impl *call)
{
    mr_bytes data;

    while (call->is_collecting && (data = mr_outq_front(&call->held)).len > 0) {
        collect(call, data.ptr, data.len);
        mr_outq_consume(&call->held, data.len);
    }
    mr_outq_fini(&call->held);
    if (call->is_collecting && call->end_stream_seen) {
        complete_body(call);
    }
}

static void restart_bodies(struct mr_h2 *h)
{
    struct mr_call_impl *call;

    LIST_FOREACH (call, &h->calls, link) {
        call->body_due_ns =
            mr_due_start(h->conn->loop->now_ns, h->conn->part->options->body_timeout_ns);
    }
    if (h->head_due_ns) {
        h->head_due_ns =
            mr_due_start(h->conn->loop->now_ns, h->conn->part->options->header_timeout_ns);
    }
}

static struct mr_call_impl *first_held(struct mr_h2 *h)
{
    struct mr_call_impl *call;

    LIST_FOREACH (call, &h->calls, link) {
        if (call->is_collecting && call->held.bytes > 0) {
            return call;
        }
    }
    return NULL;
}

/* Adds all held input to the bodies; unless forced, only while memory is not scarce. False: some still waits. */
static bool take_held(struct mr_conn *c, bool is_forced)
{
    struct mr_call_impl *call;

    /* From the front each time: a handler may end other calls. */
    while (!c->closing && (call = first_held(c->h2))) {
        if (!is_forced && mr_block_is_scarce()) {
            return false;
        }
        collect_held(call);
    }
    return true;
}

void mr_h2_memory_back(struct mr_conn *c)
{
    if (!take_held(c, false)) {
        mr_memory_backpressure_add(c);
    } else if (!c->closing) {
        restart_bodies(c->h2);
        c->h2->heard_ns = c->loop->now_ns;
    }
}

void mr_h2_wait_no_more(struct mr_conn *c)
{
    mr_memory_backpressure_remove(c);
    if (take_held(c, true) && !c->closing) {
        restart_bodies(c->h2);
    }
}

bool mr_h2_refuse_held(struct mr_conn *c)
{
    struct mr_call_impl *call = first_held(c->h2);

    if (call && call->body_due_ns > c->loop->now_ns) {
        return false;
    }
    mr_memory_backpressure_remove(c);
    while (!c->closing && (call = first_held(c->h2))) {
        mr_outq_fini(&call->held);
        mr_h2_stop_collecting(call);
        mr_call_impl_refuse(call, MR_E_EXHAUSTED);
    }
    if (!c->closing) {
        restart_bodies(c->h2);
    }
    return true;
}

/* Delivers a piece of a stream's input; returns how much of its end is held until the call is ready. */
static size_t stream_data(struct mr_call_impl *call, mr_bytes data)
{
    struct mr_h2 *h = call->conn->h2;
    bool is_ready = call->held.bytes == 0 && mr_call_impl_is_ready(call);
    size_t kept = is_ready ? mr_h2_deliver(call, data, false) : data.len;

    if (kept == 0 || !call->owes) {
        return 0;
    }
    mr_outq_append(&call->held, data.ptr + data.len - kept, kept);
    h->failed = h->failed || call->held.failed;
    h->must_deliver = true;
    return kept;
}

void mr_h2_open_window(struct mr_conn *c)
{
    struct mr_h2 *h = c->h2;

    if (h->owed == 0 || mr_h2_is_backlogged(c)) {
        return;
    }
    if (nghttp2_session_consume_connection(h->session, h->owed) == NGHTTP2_ERR_NOMEM) {
        h->failed = true;
    }
    h->owed = 0;
}

static int on_data_chunk(nghttp2_session *session, uint8_t flags, int32_t stream_id,
                         const uint8_t *data, size_t len, void *user_data)
{
    struct mr_h2 *h = user_data;
    struct mr_call_impl *call = mr_h2_stream_call(session, stream_id);

    (void)flags;
    h->junk.count = 0;
    h->frame_left -= MR_MIN(len, h->frame_left);
    if (call) {
        const struct mr_http_options *o = h->conn->part->options;
        call->body_due_ns = mr_due_moved(call->body_due_ns, call->pub.loop->now_ns, len,
                                         o->body_timeout_ns, o->min_rate);
    }
    size_t kept = 0;
    if (call && call->owes && !call->refused && call->pub.streaming) {
        kept = stream_data(call, (mr_bytes){data, len});
    } else if (call && call->owes && !call->refused && !hold_back(call, data, len)) {
        collect(call, data, len);
    }
    /* The handler may have ended the stream; consuming is then harmless. */
    int rc = nghttp2_session_consume_stream(session, stream_id, len - kept);
    h->owed += len - kept;
    mr_h2_open_window(h->conn);
    return rc == NGHTTP2_ERR_NOMEM ? NGHTTP2_ERR_CALLBACK_FAILURE : 0;
}

/* ---- frames and streams --------------------------------------------------------------------- */

static bool is_in(const int32_t *ring, size_t n, int32_t stream_id)
{
    for (size_t i = 0; i < n; i++) {
        if (ring[i] == stream_id && stream_id != 0) {
            return true;
        }
    }
    return false;
}

bool mr_h2_is_ended(const struct mr_h2 *h, int32_t stream_id)
{
    return is_in(h->ended, MR_H2_ENDED, stream_id);
}

int mr_h2_go_away(struct mr_h2 *h, uint32_t error)
{
    mr_count_add(&h->conn->loop->stats.protocol_errors, 1);
    return nghttp2_session_terminate_session(h->session, error) == 0 ? 0
                                                                     : NGHTTP2_ERR_CALLBACK_FAILURE;
}

static int tally(struct mr_h2 *h, struct mr_h2_tally *t, uint32_t frames, uint32_t most)
{
    int64_t now_ns = h->conn->loop->now_ns;

    if (now_ns - t->since_ns > TALLY_PERIOD_NS) {
        *t = (struct mr_h2_tally){.since_ns = now_ns};
    }
    t->count += frames;
    return t->count > most ? mr_h2_go_away(h, NGHTTP2_ENHANCE_YOUR_CALM) : 0;
}

/* A stream was reset, by the peer or because of it. Another server does so for each of its clients that goes away. */
static int count_reset(struct mr_h2 *h)
{
    return mr_conn_is_relay(h->conn)
               ? 0
               : tally(h, &h->resets, 1, h->conn->part->options->h2_max_resets);
}

int mr_h2_count_junk(struct mr_h2 *h, uint32_t frames)
{
    return tally(h, &h->junk, frames, JUNK_MAX);
}

/* Checks HEADERS for a closed or skipped stream (RFC 9113 5.1, 5.1.1). Late trailers on a stream that this side has
 * reset are allowed. */
static int check_head_stream(struct mr_h2 *h, int32_t stream_id)
{
    if (stream_id > h->last_stream) {
        h->last_stream = stream_id;
        return 0;
    }
    if (stream_id <= 0 || h->drain != MR_H2_SERVING ||
        nghttp2_session_find_stream(h->session, stream_id) ||
        is_in(h->dropped, MR_H2_DROPPED, stream_id)) {
        return 0;
    }
    return mr_h2_go_away(h, mr_h2_is_ended(h, stream_id) ? NGHTTP2_STREAM_CLOSED
                                                         : NGHTTP2_PROTOCOL_ERROR);
}

/* Notes the frame length of a large body, to predict the next ones. */
static void note_body_frame(struct mr_h2 *h, const nghttp2_frame_hd *hd)
{
    h->body_stream = hd->stream_id;
    if (hd->length == h->body_frame) {
        h->steady++;
    } else if (hd->length >= LEAST_FRAME) {
        h->body_frame = hd->length;
    }
}

static int on_begin_frame(nghttp2_session *session, const nghttp2_frame_hd *hd, void *user_data)
{
    struct mr_h2 *h = user_data;

    (void)session;
    h->frame_bytes = hd->type == NGHTTP2_DATA ? hd->length : 0;
    h->frame_left = hd->flags & NGHTTP2_FLAG_PADDED ? 0 : h->frame_bytes;
    h->frame_stream = hd->stream_id;
    if (hd->type == NGHTTP2_DATA) {
        note_body_frame(h, hd);
    }
    switch (hd->type) {
    case NGHTTP2_HEADERS: return check_head_stream(h, hd->stream_id);
    /* Resets are counted separately; window updates are many, and useful, while a large answer is sent.
     */
    case NGHTTP2_DATA:
    case NGHTTP2_CONTINUATION:
    case NGHTTP2_RST_STREAM:
    case NGHTTP2_WINDOW_UPDATE: return 0;
    /* Needs no answer, unlike a ping of the peer. */
    case NGHTTP2_PING: return hd->flags & NGHTTP2_FLAG_ACK ? 0 : mr_h2_count_junk(h, 1);
    default: return mr_h2_count_junk(h, 1);
    }
}

static int on_request_frame(nghttp2_session *session, const nghttp2_frame *frame, struct mr_h2 *h)
{
    struct mr_call_impl *call = mr_h2_stream_call(session, frame->hd.stream_id);
    bool is_last = (frame->hd.flags & NGHTTP2_FLAG_END_STREAM) != 0;

    if (frame->hd.type == NGHTTP2_DATA && frame->hd.length == 0 && !is_last) {
        return mr_h2_count_junk(h, 1);
    }
    h->junk.count = 0;
    if (!call) {
        return 0;
    }
    if (!call->head_done) {
        complete_head(call, is_last);
    }
    if (is_last && (call = mr_h2_stream_call(session, frame->hd.stream_id))) {
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
        struct mr_call_impl *call = mr_h2_stream_call(session, frame->hd.stream_id);
        if (call && !call->end_stream_seen) {
            /* Answered before the request was complete: the rest is not needed (RFC 9113 8.1). */
            mr_h2_reset(call, NGHTTP2_NO_ERROR);
        }
    } else if (frame->hd.type == NGHTTP2_RST_STREAM) {
        h->dropped[h->dropped_at++ % MR_H2_DROPPED] = frame->hd.stream_id;
        return frame->rst_stream.error_code == NGHTTP2_NO_ERROR ? 0 : count_reset(h);
    }
    return 0;
}

static int on_stream_close(nghttp2_session *session, int32_t stream_id, uint32_t error_code,
                           void *user_data)
{
    struct mr_h2 *h = user_data;
    struct mr_call_impl *call = mr_h2_stream_call(session, stream_id);

    (void)error_code;
    if (!call) {
        return 0;
    }
    nghttp2_session_set_stream_user_data(session, stream_id, NULL);
    call->on_stream = false;
    h->streams--;
    mr_h2_stop_collecting(call);
    mr_h2_unlink_waiting(h, call);
    mr_h2_drop_output(call);
    mr_h2_drop_held(call);
    h->answered -= call->ended;
    h->conn->idle_since_ns = h->conn->loop->now_ns;
    if (!call->owes) {
        mr_h2_settle_call(call);
        return 0;
    }
    call->is_zombie = true;
    h->zombies++;
    mr_call_impl_cancel(call);
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
    /* gRPC leaves blanks around metadata to the server, and its C core accepts them. */
    nghttp2_option_set_no_rfc9113_leading_and_trailing_ws_validation(option, 1);
#ifdef MR_NGHTTP2_HAS_stream_reset_rate_limit
    nghttp2_option_set_stream_reset_rate_limit(option, UINT32_MAX, UINT32_MAX); /* h2_max_resets */
#endif
#ifdef MR_NGHTTP2_HAS_max_continuations
    nghttp2_option_set_max_continuations(option, CONTINUATIONS_MAX); /* max_header_bytes */
#endif
}

int mr_h2_session_new(struct mr_h2 *h, nghttp2_mem *mem)
{
    pthread_once(&once, make_callbacks);
    return callbacks ? nghttp2_session_server_new3(&h->session, callbacks, h, option, mem)
                     : NGHTTP2_ERR_NOMEM;
}
