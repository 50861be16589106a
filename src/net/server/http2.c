/* HTTP/2 connections: a session of nghttp2 between the transport and the calls (http2_recv.c reads,
 * http2_answer.c answers).
 *
 * Input is read into the loop's read buffer and given to nghttp2, which keeps none of it; an idle session holds no
 * buffer. Large bodies are read to their final place (http2_direct.c).
 *
 * No new answers are made for a peer that does not read: complete requests wait (h2->waiting) while complete answers take more
 * than the limit. What is not read of streams does not count there, as they stop themselves: each goes on while it has little
 * unread, whatever others have, so that a stream that is not read does not hold up the other streams of its connection.
 *
 * nghttp2 is set to forget closed streams (it would keep 256 of them, some 80 KB per connection); the last few that
 * the peer had ended are remembered here, to report an error if it continues one.
 *
 * Thread: loop. */
#include "http2.h"

#include "server.h"

#define CONNECTION_WINDOWS 16
#define RELAY_STREAMS      100000 /* the largest h2_max_streams */
#define PREFACE_BYTES      24
#define FIRST_BYTES        ((size_t)16 * 1024)
#define USUAL_BYTES        ((size_t)128 * 1024)
#define PACK_BYTES         ((size_t)1024 * 1024)
#define QUEUE_MAX          4096 /* control frames waiting for a blocked socket */
#define DRAIN_GRACE_NS     (500 * MR_NS_PER_MS)
#define TIDY_NS            (2 * MR_NS_PER_S)
#define PING_WAIT_NS       (20 * MR_NS_PER_S)

/* ---- sessions ------------------------------------------------------------------------------- */

uint32_t mr_h2_max_streams(const struct mr_conn *c)
{
    return mr_conn_is_relay(c) ? RELAY_STREAMS : c->part->options->h2_max_streams;
}

static bool session_open(struct mr_h2 *h)
{
    const struct mr_http_options *o = h->conn->part->options;
    nghttp2_settings_entry settings[] = {
        {NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, mr_h2_max_streams(h->conn)},
        {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, o->h2_window_bytes},
        {NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, (uint32_t)o->max_header_bytes},
    };

    if (mr_h2_open_session(h) != 0) {
        return false;
    }
    return nghttp2_submit_settings(h->session, NGHTTP2_FLAG_NONE, settings,
                                   sizeof settings / sizeof settings[0]) == 0 &&
           nghttp2_session_set_local_window_size(
               h->session, NGHTTP2_FLAG_NONE, 0,
               (int32_t)(o->h2_window_bytes * CONNECTION_WINDOWS)) == 0;
}

/* Checks the head of a frame. False: DATA on a stream that the peer had ended, which nghttp2 ignores silently, as it
 * has dropped the stream. */
static bool check_frame(struct mr_h2 *h, const uint8_t p[9])
{
    uint8_t type = p[3];
    bool is_last = (type == NGHTTP2_DATA || type == NGHTTP2_HEADERS) && (p[4] & 1);
    int32_t id = (int32_t)((uint32_t)(p[5] & 0x7f) << 24 | (uint32_t)p[6] << 16 |
                           (uint32_t)p[7] << 8 | p[8]);

    if (type == NGHTTP2_DATA && mr_h2_is_ended(h, id)) {
        return false;
    }
    h->strange += type > NGHTTP2_CONTINUATION;
    if (is_last || type == NGHTTP2_RST_STREAM) {
        h->ended[h->ended_at++ % MR_H2_ENDED] = id;
    }
    return true;
}

/* Checks the heads of all frames in the input. False as check_frame. */
static bool check_frames(struct mr_h2 *h, const uint8_t *data, size_t n)
{
    bool ok = true;

    while (n > 0) {
        if (h->walk_skip > 0) {
            size_t part = MR_MIN(n, h->walk_skip);
            h->walk_skip -= part;
            data += part;
            n -= part;
            continue;
        }
        h->walk_head[h->walk_have++] = *data++;
        n--;
        if (h->walk_have == sizeof h->walk_head) {
            const uint8_t *p = h->walk_head;
            h->walk_have = 0;
            h->walk_skip = (size_t)p[0] << 16 | (size_t)p[1] << 8 | p[2];
            ok = check_frame(h, p) && ok;
        }
    }
    return ok;
}

void mr_h2_feed(struct mr_conn *c, const uint8_t *data, size_t n)
{
    struct mr_h2 *h = c->h2;
    bool ok = check_frames(h, data, n);

    h->heard_ns = c->loop->now_ns;
    h->ping_sent_ns = 0;
    ssize_t used = nghttp2_session_mem_recv(h->session, data, n);
    if (!ok && used >= 0 && mr_h2_go_away(h, NGHTTP2_STREAM_CLOSED) != 0) {
        used = NGHTTP2_ERR_CALLBACK_FAILURE;
    }
    if (h->strange > 0 && used >= 0 && mr_h2_count_junk(h, h->strange) != 0) {
        used = NGHTTP2_ERR_CALLBACK_FAILURE;
    }
    h->strange = 0;
    if (used < 0 || h->failed) {
        mr_count_add(&c->loop->stats.protocol_errors, 1);
        mr_conn_close(c);
    }
}

void mr_h2_start(struct mr_conn *c)
{
    struct mr_h2 *h = mr_h2_new(c->loop);
    struct mr_conn_input in = c->in;

    if (!h) {
        mr_conn_close(c);
        return;
    }
    h->conn = c;
    h->walk_skip = PREFACE_BYTES;
    h->heard_ns = h->resets.since_ns = h->junk.since_ns = c->loop->now_ns;
    c->proto = &mr_proto_http2;
    c->h2 = h;
    if (!session_open(h)) {
        mr_conn_close(c);
        return;
    }
    c->in = (struct mr_conn_input){0};
    mr_h2_feed(c, (const uint8_t *)in.ptr, in.end);
    mr_conn_input_free(c->loop, in.ptr, in.cap);
}

static void h2_end(struct mr_conn *c)
{
    struct mr_h2 *h = c->h2;

    if (!h) {
        return;
    }
    struct mr_call_impl *call;
    while ((call = LIST_FIRST(&h->calls))) {
        LIST_REMOVE(call, link);
        mr_call_impl_detach(call);
    }
    mr_h2_free(h);
    c->h2 = NULL;
}

/* ---- work ----------------------------------------------------------------------------------- */

/* Runs delayed requests while there is room for their answers. */
static void release_waiting(struct mr_conn *c)
{
    struct mr_h2 *h = c->h2;
    struct mr_call_impl *call;

    while ((call = TAILQ_FIRST(&h->waiting)) && !mr_h2_is_backlogged(c)) {
        mr_h2_unlink_waiting(h, call);
        mr_call_impl_body(call);
    }
}

/* Runs the waiters of mr_call_wait_read. */
static void run_waits(struct mr_conn *c)
{
    struct mr_h2 *h = c->h2;
    struct mr_call_wait *w;

    mr_h2_judge_unread(c);
    while (!h->is_unread && (w = TAILQ_FIRST(&h->readers))) {
        mr_call_wait_end(w);
        w->run(w);
    }
}

static struct mr_call_impl *next_without_room(const struct mr_h2 *h)
{
    struct mr_call_impl *call;

    LIST_FOREACH (call, &h->calls, link) {
        if (call->wants_room && call->owes && !mr_h2_call_is_backlogged(call, false)) {
            return call;
        }
    }
    return NULL;
}

/* Lets handlers that stopped making answers continue while there is room. */
static void report_room(struct mr_conn *c)
{
    struct mr_h2 *h = c->h2;

    while (h->wants_room && !c->closing && !mr_h2_is_backlogged(c)) {
        /* Searched again each time: a handler may end other calls. */
        struct mr_call_impl *call = next_without_room(h);
        if (call) {
            mr_call_impl_room(call);
        } else {
            h->wants_room = false;
        }
    }
}

/* Delivers bytes that arrived while the stream was paused. */
static void deliver_held(struct mr_h2 *h, struct mr_call_impl *call)
{
    int32_t id = call->stream_id;
    mr_bytes data;

    while (mr_call_impl_is_ready(call) && (data = mr_outq_front(&call->held)).len > 0) {
        uint8_t copy[4096];
        size_t n = MR_MIN(data.len, sizeof copy);
        memcpy(copy, data.ptr, n);
        n -= mr_h2_deliver(call, (mr_bytes){copy, n}, false);
        if (!(call = mr_h2_stream_call(h->session, id)) || !call->owes) {
            return;
        }
        mr_outq_consume(&call->held, n);
        mr_h2_held_is_done(call, n);
        nghttp2_session_consume_stream(h->session, id, n);
    }
    if (call->held.bytes == 0 && mr_call_impl_is_ready(call) && call->end_stream_seen &&
        !call->body_done) {
        mr_h2_deliver(call, (mr_bytes){0}, true);
    }
}

/* Of the streams that can continue, the one with the oldest turn. */
static struct mr_call_impl *next_deliverable(struct mr_h2 *h)
{
    struct mr_call_impl *best = NULL;
    struct mr_call_impl *call;

    LIST_FOREACH (call, &h->calls, link) {
        if (call->pub.streaming && call->on_stream && call->owes && mr_call_impl_is_ready(call) &&
            mr_h2_has_input(call) && (!best || call->turn < best->turn)) {
            best = call;
        }
    }
    return best;
}

static void deliver_all(struct mr_conn *c)
{
    struct mr_h2 *h = c->h2;
    struct mr_call_impl *call;

    while (h->must_deliver && !mr_h2_is_backlogged(c)) {
        /* Searched again each time: a handler may end other calls. */
        if ((call = next_deliverable(h))) {
            call->turn = ++h->turn;
            deliver_held(h, call);
        } else {
            h->must_deliver = false;
        }
    }
}

/* Frames output until the queue is long enough for one write. */
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

/* True if there is input to process, now or when the queue has been written. */
static bool can_make_more(const struct mr_conn *c)
{
    const struct mr_h2 *h = c->h2;
    bool is_held = h->must_deliver || h->wants_room || !TAILQ_EMPTY(&h->waiting);

    return c->out.bytes > 0 ? is_held || h->is_unread || h->owed > 0
                            : is_held && !mr_h2_is_backlogged(c);
}

static bool h2_work(struct mr_conn *c)
{
    struct mr_h2 *h = c->h2;

    if (c->blocked && c->out.bytes > 0) {
        return false;
    }
    run_waits(c);
    deliver_all(c);
    release_waiting(c);
    report_room(c);
    mr_h2_open_window(c);
    bool more = pack(c);
    if (!c->closing && h->failed) {
        mr_conn_close(c);
    }
    if (c->closing) {
        return false;
    }
    if (c->waits_memory && h->pending > 0) {
        mr_h2_wait_no_more(c); /* answers wait for window updates, which have to be read */
        more = true;           /* what it has refused or answered at once */
    }
    if (!c->closing && !more && is_over(c)) {
        c->close_soon = true;
        c->lingers = true;
    }
    return !c->closing && (more || can_make_more(c));
}

/* The peer has ended its side. Answers can still be written; requests cannot be completed. */
static void input_ended(struct mr_conn *c)
{
    struct mr_h2 *h = c->h2;
    struct mr_call_impl *call = LIST_FIRST(&h->calls);

    while (call) {
        if (call->told_cancel || !call->on_stream || !call->owes) {
            call = LIST_NEXT(call, link);
            continue;
        }
        if (!call->end_stream_seen) {
            mr_h2_reset(call, NGHTTP2_CANCEL);
        }
        mr_call_impl_cancel(call);
        call = LIST_FIRST(&h->calls);
    }
}

static void h2_input(struct mr_conn *c)
{
    struct mr_h2 *h = c->h2;

    if (c->peer_eof || !mr_proto_http2.wants_input(c)) {
        return;
    }
    if (!mr_h2_read_direct(c)) {
        /* The less of a large body arrives with its head, the less is copied. */
        size_t room = h->has_large_body ? FIRST_BYTES : USUAL_BYTES;
        uint8_t *buf = mr_loop_read_buf(c->loop);
        size_t n = buf ? mr_conn_read(c, buf, room) : 0;
        if (!buf) {
            mr_conn_close(c);
        } else if (n > 0) {
            h->has_large_body = h->has_large_body && n < room;
            mr_h2_feed(c, buf, n);
        }
    }
    if (c->peer_eof && !c->closing) {
        input_ended(c);
    }
}

static bool h2_wants_input(const struct mr_conn *c)
{
    /* While the socket is blocked, answers to control frames pile up in nghttp2. */
    return !c->close_soon && !c->waits_memory &&
           !(c->blocked && nghttp2_session_get_outbound_queue_size(c->h2->session) > QUEUE_MAX);
}

/* ---- time ----------------------------------------------------------------------------------- */

static int64_t sooner(int64_t a, int64_t since_ns, int64_t limit_ns)
{
    int64_t b = limit_ns > 0 ? mr_ns_after(since_ns, limit_ns) : 0;

    return a == 0 ? b : b == 0 ? a : MR_MIN(a, b);
}

/* There are bodies that must make progress; h->body_check_ns says when they are next looked at. */
static bool has_due_bodies(const struct mr_conn *c)
{
    return c->h2->collecting > 0 && c->part->options->body_timeout_ns > 0;
}

static int64_t h2_deadline(const struct mr_conn *c)
{
    const struct mr_http_options *o = c->part->options;
    const struct mr_h2 *h = c->h2;
    int64_t at_ns = 0;

    if (h->streams == 0 && h->zombies == 0) {
        at_ns = sooner(at_ns, c->idle_since_ns, o->idle_timeout_ns);
        at_ns = h->is_untidy ? sooner(at_ns, c->idle_since_ns, TIDY_NS) : at_ns;
    }
    if (has_due_bodies(c)) {
        at_ns = sooner(at_ns, h->body_check_ns, 1);
    }
    if (h->head_due_ns && !c->waits_memory) { /* its rest is not read now */
        at_ns = sooner(at_ns, h->head_due_ns, 1);
    }
    if (h->pending > 0 && h->out_due_ns) {
        at_ns = sooner(at_ns, MR_MIN(h->out_due_ns, h->out_check_ns), 1);
    }
    if (c->waits_memory) {
        /* it neither reads nor answers pings */
    } else if (h->ping_sent_ns) {
        at_ns = sooner(at_ns, h->ping_sent_ns, PING_WAIT_NS);
    } else {
        at_ns = sooner(at_ns, h->heard_ns, o->h2_ping_interval_ns);
    }
    if (h->drain == MR_H2_NOTICED) {
        at_ns = sooner(at_ns, h->drain_ns, DRAIN_GRACE_NS);
    }
    return at_ns;
}

/* Resets streams whose body has stopped. */
static void check_bodies(struct mr_conn *c)
{
    struct mr_h2 *h = c->h2;
    struct mr_call_impl *call;
    int64_t next_ns = INT64_MAX;

    if (c->waits_memory && !mr_h2_refuse_held(c)) {
        h->body_check_ns = mr_ns_after(c->loop->now_ns, MR_NS_PER_S);
        return;
    }
    LIST_FOREACH (call, &h->calls, link) {
        if (!call->is_collecting) {
            continue;
        }
        if (call->body_due_ns <= c->loop->now_ns) {
            mr_count_add(&c->loop->stats.timeouts, 1);
            mr_h2_stop_collecting(call);
            mr_h2_reset(call, NGHTTP2_CANCEL);
        } else {
            next_ns = MR_MIN(next_ns, call->body_due_ns);
        }
    }
    h->body_check_ns = next_ns;
}

/* Resets streams whose window stays closed, even if others make progress. */
static void check_answers(struct mr_conn *c)
{
    const struct mr_http_options *o = c->part->options;
    struct mr_h2 *h = c->h2;
    struct mr_call_impl *call;

    h->out_check_ns = mr_due_start(c->loop->now_ns, o->write_timeout_ns);
    LIST_FOREACH (call, &h->calls, link) {
        if (!call->on_stream || call->out.bytes == 0 ||
            nghttp2_session_get_stream_remote_window_size(h->session, call->stream_id) > 0) {
            continue;
        }
        if (call->out_due_ns <= c->loop->now_ns) {
            mr_count_add(&c->loop->stats.timeouts, 1);
            mr_h2_reset(call, NGHTTP2_CANCEL);
            call->out_due_ns = h->out_check_ns; /* so that the reset is sent */
        } else {
            h->out_check_ns = MR_MIN(h->out_check_ns, call->out_due_ns);
        }
    }
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

/* An answer is not read, a head does not end, or nothing came after a ping. */
static bool has_failed(const struct mr_conn *c)
{
    const struct mr_h2 *h = c->h2;

    return (h->pending > 0 && h->out_due_ns && is_past(c, h->out_due_ns, 1)) ||
           (h->head_due_ns && !c->waits_memory && is_past(c, h->head_due_ns, 1)) ||
           (h->ping_sent_ns && !c->waits_memory && is_past(c, h->ping_sent_ns, PING_WAIT_NS));
}

static void idle_expired(struct mr_conn *c)
{
    struct mr_h2 *h = c->h2;

    if (is_past(c, c->idle_since_ns, c->part->options->idle_timeout_ns)) {
        mr_count_add(&c->loop->stats.timeouts, 1);
        last_goaway(c);
    }
    if (h->is_untidy && is_past(c, c->idle_since_ns, TIDY_NS)) {
        h->is_untidy = false;
        mr_h2region_tidy(&h->mem.region);
    }
}

static void h2_expired(struct mr_conn *c)
{
    const struct mr_http_options *o = c->part->options;
    struct mr_h2 *h = c->h2;

    if (has_failed(c)) {
        mr_count_add(&c->loop->stats.timeouts, 1);
        mr_conn_close(c);
        return;
    }
    if (h->pending > 0 && h->out_due_ns && is_past(c, h->out_check_ns, 1)) {
        check_answers(c);
    }
    if (h->streams == 0 && h->zombies == 0) {
        idle_expired(c);
    }
    if (has_due_bodies(c) && h->body_check_ns <= c->loop->now_ns) {
        check_bodies(c);
    }
    if (!h->ping_sent_ns && !c->waits_memory && is_past(c, h->heard_ns, o->h2_ping_interval_ns)) {
        h->ping_sent_ns = c->loop->now_ns;
        nghttp2_submit_ping(h->session, NGHTTP2_FLAG_NONE, NULL);
    }
    if (h->drain == MR_H2_NOTICED && is_past(c, h->drain_ns, DRAIN_GRACE_NS)) {
        last_goaway(c);
    }
}

/* Requests sent before the peer reads the notice are still served; then the final GOAWAY follows. */
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
    .coming = mr_h2_coming,
    .deadline = h2_deadline,
    .expired = h2_expired,
    .drain = h2_drain,
    .memory_back = mr_h2_memory_back,
    .rest = h2_rest,
    .end = h2_end,
};
