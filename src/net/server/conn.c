/* Connections: on readiness the protocol works and output is sent; the next events to wait for are set once, at the
 * end of each turn (conn_settle).
 *
 * A connection holds no buffer while it is idle. Its input buffer is taken from the loop's cache when bytes arrive
 * and returned when all of them are consumed; the cache is a stack, so one warm buffer serves a busy loop. The same
 * holds for output chunks.
 *
 * Nothing here is freed under a caller: mr_conn_close leaves the struct in place until the loop has
 * closed the handle, so callers check c->closing.
 *
 * Thread: loop. Not here: accepting (listen.c), protocols (http1.c, http2.c). */
#include "conn.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <unistd.h>

#include "call.h"
#include "http1.h"
#include "http2.h"
#include "server.h"

#define IOV_MAX_USED 256
#define TURNS_MAX    16
#define INPUTS_MAX   4
#define BACKLOG_DUE  ((size_t)64 * 1024)
/* Many clients read their answer only after they have sent everything: the rest is read and dropped up to these
 * limits. More than a body's usual limit, as bodies over that limit are the ones refused. */
#define LINGER_NS      (30 * MR_NS_PER_S)
#define LINGER_IDLE_NS (5 * MR_NS_PER_S)
#define LINGER_BYTES   ((int64_t)1024 * 1024 * 1024)
#define CACHED_INPUTS  64
#define CACHED_CONNS   256
#define CACHED_CALLS   256

void mr_conn_memory_init(struct mr_loop *loop)
{
    if (loop->conn_memory_fini) {
        return;
    }
    loop->conn_memory_fini = mr_h2mem_fini;
    mr_h2mem_init(loop);
    mr_free_list_init(&loop->inputs, MR_CONN_INPUT_BYTES, CACHED_INPUTS);
    mr_free_list_init(&loop->conns, sizeof(struct mr_conn), CACHED_CONNS);
    mr_call_impl_cache_init(&loop->calls, CACHED_CALLS);
}

/* ---- output --------------------------------------------------------------------------------- */

/* Write the queue and then `extra`; returns bytes of extra that were written. */
static size_t write_out(struct mr_conn *c, mr_bytes extra)
{
    const struct mr_http_options *o = c->part->options;
    size_t extra_done = 0;

    while (!c->blocked && (c->out.bytes > 0 || extra_done < extra.len)) {
        struct iovec iov[IOV_MAX_USED + 1];
        int count = mr_outq_iov(&c->out, iov, IOV_MAX_USED);
        size_t want = 0;
        for (int i = 0; i < count; i++) {
            want += iov[i].iov_len;
        }
        if (want == c->out.bytes && extra_done < extra.len) {
            iov[count++] = (struct iovec){(void *)(extra.ptr + extra_done), extra.len - extra_done};
            want += extra.len - extra_done;
        }
        ssize_t n = c->transport->write(c, iov, count);
        if (n < 0 && n != -EAGAIN) {
            mr_conn_close(c);
            return extra_done;
        }
        size_t done = n > 0 ? (size_t)n : 0;
        size_t queued = MR_MIN(done, c->out.bytes);
        mr_count_add(&c->loop->stats.bytes_out, done);
        mr_outq_consume(&c->out, queued);
        extra_done += done - queued;
        c->blocked = done < want;
        c->out_due_ns = c->out_due_ns ? mr_due_moved(c->out_due_ns, c->loop->now_ns, done,
                                                     o->write_timeout_ns, o->min_rate)
                                      : mr_due_start(c->loop->now_ns, o->write_timeout_ns);
    }
    if (!c->blocked) {
        c->out_due_ns = 0;
    }
    return extra_done;
}

bool mr_conn_is_backlogged(const struct mr_conn *c, size_t memory)
{
    return (int64_t)memory > c->part->options->max_output_backlog ||
           (memory > BACKLOG_DUE && mr_block_is_half_used());
}

size_t mr_conn_write_through(struct mr_conn *c, mr_bytes extra)
{
    return c->handshaking || c->closing ? 0 : write_out(c, extra);
}

/* ---- input ---------------------------------------------------------------------------------- */

static size_t read_result(struct mr_conn *c, size_t wanted, ssize_t got)
{
    mr_gather_note(c, wanted, got > 0 ? (size_t)got : 0);
    if (got > 0) {
        mr_count_add(&c->loop->stats.bytes_in, (uint64_t)got);
        return (size_t)got;
    }
    if (got == 0) {
        c->peer_eof = true;
    } else if (got != -EAGAIN) {
        mr_conn_close(c);
    }
    return 0;
}

size_t mr_conn_read(struct mr_conn *c, void *buf, size_t n)
{
    return read_result(c, n, c->transport->read(c, buf, n));
}

/* Reads to one place after the other. An end or an error after some bytes is reported by the next call. */
static ssize_t read_places(struct mr_conn *c, const struct iovec *iov, int count)
{
    ssize_t all = 0;

    for (int i = 0; i < count; i++) {
        ssize_t n = c->transport->read(c, iov[i].iov_base, iov[i].iov_len);
        if (n <= 0) {
            c->input_inside = all > 0 && n != -EAGAIN;
            return all > 0 ? all : n;
        }
        all += n;
        if ((size_t)n < iov[i].iov_len) {
            break;
        }
    }
    return all;
}

size_t mr_conn_readv(struct mr_conn *c, const struct iovec *iov, int count)
{
    size_t wanted = 0;

    for (int i = 0; i < count; i++) {
        wanted += iov[i].iov_len;
    }
    return read_result(c, wanted,
                       c->transport->readv ? c->transport->readv(c, iov, count)
                                           : read_places(c, iov, count));
}

void mr_conn_input_free(struct mr_loop *loop, char *ptr, size_t cap)
{
    if (ptr && (cap != MR_CONN_INPUT_BYTES || !mr_free_list_put(&loop->inputs, ptr))) {
        mr_free(ptr);
    }
}

void mr_conn_input_release(struct mr_conn *c)
{
    mr_conn_input_free(c->loop, c->in.ptr, c->in.cap);
    c->in = (struct mr_conn_input){0};
}

void mr_conn_input_to_front(struct mr_conn_input *in)
{
    if (in->start > 0) {
        memmove(in->ptr, in->ptr + in->start, in->end - in->start);
        in->pos -= in->start;
        in->end -= in->start;
        in->start = 0;
    }
}

bool mr_conn_input_make_room(struct mr_conn *c, size_t room, bool can_move)
{
    struct mr_conn_input *in = &c->in;

    if (!in->ptr && room <= MR_CONN_INPUT_BYTES) {
        in->ptr = mr_free_list_take(&c->loop->inputs, NULL);
        in->cap = in->ptr ? MR_CONN_INPUT_BYTES : 0;
        return in->ptr != NULL;
    }
    if (in->cap - in->end >= room) {
        return true;
    }
    if (!can_move) {
        return false;
    }
    mr_conn_input_to_front(in);
    if (in->cap - in->end >= room) {
        return true;
    }
    size_t cap = MR_MAX(in->cap * 2, in->end + room);
    char *ptr = mr_try_alloc(cap);
    if (!ptr) {
        return false;
    }
    if (in->ptr) {
        memcpy(ptr, in->ptr, in->end);
        mr_conn_input_free(c->loop, in->ptr, in->cap);
    }
    in->ptr = ptr;
    in->cap = cap;
    return true;
}

/* ---- turns ---------------------------------------------------------------------------------- */

static int64_t earliest(int64_t a, int64_t b)
{
    return a == 0 ? b : b == 0 ? a : MR_MIN(a, b);
}

static int64_t output_deadline(const struct mr_conn *c)
{
    return c->blocked || c->yielding ? c->out_due_ns : 0;
}

static bool wants_input(const struct mr_conn *c)
{
    return c->handshaking || (!c->peer_eof && c->proto->wants_input(c));
}

/* Sets the events to wait for, by the current state. */
static void conn_settle(struct mr_conn *c)
{
    int wanted = c->blocked || c->yielding ? MR_WANT_WRITE : 0;
    size_t coming = 0;

    if (wants_input(c)) {
        coming = c->proto->coming ? c->proto->coming(c) : 0;
        wanted |= c->input_blocked ? MR_WANT_WRITE : MR_WANT_READ;
        /* The socket is usually writable, so this returns in the next iteration. */
        wanted |= c->input_inside ? MR_WANT_WRITE : 0;
    } else if (!c->peer_eof && !c->peer_hup) {
        wanted |= MR_WANT_HUP;
    }
    c->proto->rest(c);
    mr_gather_settle(c, coming);
    if (wanted != c->wanted) {
        c->wanted = wanted;
        c->transport->want(c, wanted);
    }
    int64_t at_ns = earliest(c->proto->deadline(c), output_deadline(c));
    if (at_ns != c->deadline.at_ns) {
        mr_deadline_set(c->loop, &c->deadline, at_ns);
    }
}

static void start_linger(struct mr_conn *c)
{
    c->proto = &mr_proto_linger;
    c->idle_since_ns = c->loop->now_ns;
    c->linger_until_ns = mr_ns_after(c->loop->now_ns, c->draining ? LINGER_IDLE_NS : LINGER_NS);
    c->lingered = 0;
}

/* All output has been sent and no more will follow. */
static void finish(struct mr_conn *c)
{
    if (c->peer_eof || !c->lingers) {
        mr_conn_close(c);
        return;
    }
    c->proto->end(c);
    mr_memory_backpressure_remove(c);
    c->close_soon = false;
    c->transport->end_output(c);
    start_linger(c);
    mr_conn_input_release(c);
}

/* Runs the protocol and writes, until neither can do more. */
static void conn_advance(struct mr_conn *c)
{
    bool more = true;

    c->yielding = false;
    for (int turn = 0; more && !c->closing; turn++) {
        more = c->proto->work(c);
        if (c->out.bytes > 0 && !c->blocked && !c->closing) {
            write_out(c, (mr_bytes){0});
        }
        if (c->blocked) {
            more = false;
        } else if (more && turn == TURNS_MAX) {
            c->yielding = true;
            more = false;
        }
    }
    if (c->yielding && c->out_due_ns == 0) {
        /* Continues when the socket has room, which may be never. */
        c->out_due_ns = mr_due_start(c->loop->now_ns, c->part->options->write_timeout_ns);
    }
    if (!c->closing && c->out.failed) {
        mr_conn_close(c);
    }
    if (!c->closing && c->close_soon && c->out.bytes == 0 && !c->yielding) {
        finish(c);
    }
}

static void conn_work(struct mr_conn *c)
{
    conn_advance(c);
    if (!c->closing) {
        conn_settle(c);
    }
}

/* Handles input, and what the transport has buffered; bounded, as other connections wait. */
static void conn_input(struct mr_conn *c)
{
    c->proto->input(c);
    for (int i = 1; i < INPUTS_MAX && c->input_inside && !c->closing && wants_input(c); i++) {
        conn_advance(c);
        if (!c->closing && c->input_inside && wants_input(c)) {
            c->proto->input(c);
        }
    }
}

void mr_conn_ready(struct mr_conn *c, int events)
{
    if (c->closing) {
        return;
    }
    c->running = true;
    if ((events & MR_WANT_WRITE) && c->input_blocked) {
        c->input_blocked = false;
        events |= MR_WANT_READ;
    }
    if (c->handshaking) {
        int rc = c->transport->handshake(c);
        if (rc < 0 && rc != -EAGAIN) {
            mr_conn_close(c);
        }
        c->handshaking = rc != 0;
        events |= MR_WANT_READ;
    }
    if (!c->closing && !c->handshaking) {
        c->blocked = c->blocked && !(events & MR_WANT_WRITE);
        if (c->input_inside || (events & (MR_WANT_READ | MR_WANT_HUP))) {
            c->peer_hup = c->peer_hup || (events & MR_WANT_HUP) != 0;
            conn_input(c);
        }
        conn_work(c);
    } else if (!c->closing) {
        conn_settle(c);
    }
    c->running = false;
}

void mr_conn_run(struct mr_conn *c)
{
    if (!c->closing && !c->handshaking) {
        c->running = true;
        conn_work(c);
        c->running = false;
    }
}

static void conn_flush(struct mr_flush *f)
{
    mr_conn_run(MR_CONTAINER_OF(f, struct mr_conn, flush));
}

void mr_conn_kick(struct mr_conn *c)
{
    if (!c->running && !c->closing) {
        mr_flush_queue(c->loop, &c->flush);
    }
}

static void conn_expired(struct mr_deadline *d)
{
    struct mr_conn *c = MR_CONTAINER_OF(d, struct mr_conn, deadline);
    int64_t now_ns = c->loop->now_ns;
    int64_t stuck_ns = output_deadline(c);
    int64_t at_ns = c->proto->deadline(c);

    c->running = true;
    if (stuck_ns && stuck_ns <= now_ns) {
        mr_count_add(&c->loop->stats.timeouts, 1);
        mr_conn_close(c);
    } else if (at_ns && at_ns <= now_ns) {
        c->proto->expired(c);
    }
    if (!c->closing) {
        conn_work(c);
    }
    c->running = false;
}

/* ---- life ----------------------------------------------------------------------------------- */

struct mr_conn *mr_conn_open(struct mr_server_part *part, const struct mr_transport *transport,
                             int fd, int tag, bool over_unix, const struct sockaddr_in6 *peer)
{
    struct mr_loop *loop = part->loop;
    struct mr_conn *c = mr_free_list_take(&loop->conns, NULL);

    if (!c) {
        return NULL;
    }
    memset(c, 0, sizeof *c);
    c->loop = loop;
    c->part = part;
    c->transport = transport;
    c->proto = &mr_proto_sniff;
    c->fd = fd;
    c->passed_fd = -1;
    c->tag = tag;
    c->over_unix = over_unix;
    c->handshaking = transport->handshake != NULL;
    c->flush.run = conn_flush;
    c->deadline.fn = conn_expired;
    c->idle_since_ns = loop->now_ns;
    if (peer) {
        c->peer = *peer;
    }
    mr_outq_init(&c->out, loop);
    mr_gather_init(&c->gather);
    LIST_INSERT_HEAD(&part->conns, c, link);
    return c;
}

void mr_conn_start(struct mr_conn *c)
{
    conn_settle(c);
}

void mr_conn_close(struct mr_conn *c)
{
    if (c->closing) {
        return;
    }
    c->closing = true;
    c->proto->end(c);
    mr_memory_backpressure_remove(c);
    mr_flush_cancel(c->loop, &c->flush);
    mr_deadline_clear(c->loop, &c->deadline);
    mr_timer_stop(&c->gather.timer);
    mr_outq_fini(&c->out);
    mr_conn_input_release(c);
    mr_conn_drop_passed(c);
    LIST_REMOVE(c, link);
    c->transport->close(c);
}

void mr_conn_abandon(struct mr_conn *c)
{
    c->closing = true;
    LIST_REMOVE(c, link);
    close(c->fd);
    mr_conn_gone(c);
}

void mr_conn_close_soon(struct mr_conn *c, bool linger)
{
    c->close_soon = true;
    c->lingers = c->lingers || linger;
    mr_conn_kick(c);
}

void mr_conn_linger(struct mr_conn *c)
{
    start_linger(c);
    mr_conn_close_soon(c, true);
}

void mr_conn_bad_start(struct mr_conn *c, const char *why)
{
    const struct mr_http_handler *h = c->part->handler;

    if (h->on_bad_start) {
        h->on_bad_start(h->ctx, c->tag, mr_conn_peer(c), why);
    }
}

void mr_conn_gone(struct mr_conn *c)
{
    struct mr_loop *loop = c->loop;
    struct mr_server_part *part = c->part;

    mr_count_add(&loop->stats.closed, 1);
    if (!mr_free_list_put(&loop->conns, c)) {
        mr_free(c);
    }
    mr_server_forget(part);
}

const char *mr_conn_peer(struct mr_conn *c)
{
    char host[INET6_ADDRSTRLEN] = "?";
    const struct sockaddr_in *v4 = (const struct sockaddr_in *)&c->peer;

    if (c->over_unix) {
        return "unix";
    }
    if (c->peer_text[0] == '\0') {
        if (c->peer.sin6_family == AF_INET6) {
            inet_ntop(AF_INET6, &c->peer.sin6_addr, host, sizeof host);
            snprintf(c->peer_text, sizeof c->peer_text, "[%s]:%u", host, ntohs(c->peer.sin6_port));
        } else if (c->peer.sin6_family == AF_INET) {
            inet_ntop(AF_INET, &v4->sin_addr, host, sizeof host);
            snprintf(c->peer_text, sizeof c->peer_text, "%s:%u", host, ntohs(v4->sin_port));
        } else {
            snprintf(c->peer_text, sizeof c->peer_text, "?");
        }
    }
    return c->peer_text;
}

bool mr_conn_is_of_machine(const struct mr_conn *c)
{
    union {
        struct sockaddr any;
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
    } own, from;
    socklen_t len = sizeof own;

    memcpy(&from, &c->peer, sizeof c->peer);
    if (getsockname(c->fd, &own.any, &len) < 0 || own.any.sa_family != from.any.sa_family) {
        return false;
    }
    if (own.any.sa_family == AF_INET) {
        return own.v4.sin_addr.s_addr == from.v4.sin_addr.s_addr ||
               ntohl(from.v4.sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
    }
    return own.any.sa_family == AF_INET6 &&
           IN6_ARE_ADDR_EQUAL(&own.v6.sin6_addr, &from.v6.sin6_addr);
}

/* ---- the first bytes: which protocol? ------------------------------------------------------- */

#define TLS_HANDSHAKE 0x16 /* type of the first record */
static const char h2_preface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
#define PREFACE_BYTES (sizeof h2_preface - 1)

static void sniff_input(struct mr_conn *c)
{
    struct mr_conn_input *in = &c->in;

    if (!mr_conn_input_make_room(c, PREFACE_BYTES, true)) {
        mr_conn_close(c);
        return;
    }
    size_t n = mr_conn_read(c, in->ptr + in->end, in->cap - in->end);
    if (n == 0) {
        if (c->peer_eof) {
            mr_conn_close(c);
        }
        return;
    }
    if (in->end == 0) {
        c->h1.head_start_ns = c->loop->now_ns;
    }
    in->end += n;
    size_t compared = MR_MIN(in->end, PREFACE_BYTES);
    if (in->ptr[0] == TLS_HANDSHAKE) {
        mr_conn_bad_start(c, "the client speaks TLS, which this port does not");
        mr_h1_start(c);
        mr_h1_error(c, 400, "this port does not speak TLS");
    } else if (memcmp(in->ptr, h2_preface, compared) != 0) {
        mr_h1_start(c);
    } else if (compared == PREFACE_BYTES) {
        mr_h2_start(c);
    }
}

static bool no_work(struct mr_conn *c)
{
    (void)c;
    return false;
}

static bool always_wants_input(const struct mr_conn *c)
{
    (void)c;
    return true;
}

static int64_t sniff_deadline(const struct mr_conn *c)
{
    const struct mr_http_options *o = c->part->options;
    /* A TLS client sends first, and at once. */
    int64_t start_ns = c->handshaking ? c->idle_since_ns : c->h1.head_start_ns;

    if (start_ns) {
        return o->header_timeout_ns > 0 ? mr_ns_after(start_ns, o->header_timeout_ns) : 0;
    }
    return o->idle_timeout_ns > 0 ? mr_ns_after(c->idle_since_ns, o->idle_timeout_ns) : 0;
}

static void close_expired(struct mr_conn *c)
{
    mr_count_add(&c->loop->stats.timeouts, 1);
    mr_conn_close(c);
}

static void no_op(struct mr_conn *c)
{
    (void)c;
}

static void sniff_rest(struct mr_conn *c)
{
    if (c->in.end == 0) {
        mr_conn_input_release(c);
    }
}

const struct mr_proto mr_proto_sniff = {
    .input = sniff_input,
    .work = no_work,
    .wants_input = always_wants_input,
    .deadline = sniff_deadline,
    .expired = close_expired,
    .drain = mr_conn_close,
    .memory_back = no_op,
    .rest = sniff_rest,
    .end = no_op,
};

/* ---- the last bytes ------------------------------------------------------------------------- */

static void linger_input(struct mr_conn *c)
{
    uint8_t *buf = mr_loop_read_buf(c->loop);
    size_t n = buf ? mr_conn_read(c, buf, MR_READ_BUF_BYTES) : 0;

    c->lingered += (int64_t)n;
    c->idle_since_ns = c->loop->now_ns;
    if (!c->closing && (!buf || c->peer_eof || c->lingered > LINGER_BYTES)) {
        mr_conn_close(c);
    }
}

static int64_t linger_deadline(const struct mr_conn *c)
{
    return MR_MIN(c->linger_until_ns, mr_ns_after(c->idle_since_ns, LINGER_IDLE_NS));
}

static void linger_drain(struct mr_conn *c)
{
    c->linger_until_ns = MR_MIN(c->linger_until_ns, mr_ns_after(c->loop->now_ns, LINGER_IDLE_NS));
    mr_conn_kick(c); /* to wait for it */
}

const struct mr_proto mr_proto_linger = {
    .input = linger_input,
    .work = no_work,
    .wants_input = always_wants_input,
    .deadline = linger_deadline,
    .expired = mr_conn_close,
    .drain = linger_drain,
    .memory_back = no_op,
    .rest = no_op,
    .end = no_op,
};
