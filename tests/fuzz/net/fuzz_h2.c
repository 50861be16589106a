/* Arbitrary bytes into a server connection in memory: what a peer sends, cut as the first bytes of
 * the input say, with a peer that takes answers slowly or not, and a handler that answers in every
 * way there is. HTTP/1 or HTTP/2 (with or without the preface added), gRPC on top.
 *
 *   byte 0   bit 0: put preface and SETTINGS in front; bit 1: the socket takes 100 bytes at a time;
 *            bit 2: it takes nothing while input lasts; bit 3: the peer ends before it is answered;
 *            bits 4 to 7: not 0 = an allocation fails, the later the larger
 *   byte 1   how input is cut: 0 = at once, else pieces of that many bytes */
#include "fuzz.h"

#include <errno.h>

#include "net/grpc.h"
#include "net/server/call.h"
#include "net/server/server.h"

#define PENDING_MAX 64

static struct {
    struct mr_loop *loop;
    struct mr_http_server *server;
    struct mr_server_part part;
    struct mr_call *pending[PENDING_MAX]; /* answered later */
    size_t pending_count;
    int64_t live; /* calls the handler owes an answer to */
    /* the peer */
    const uint8_t *input;
    size_t left;
    size_t piece;
    size_t writable;
    bool ended;
    bool gone;
} f;

/* ---- the transport -------------------------------------------------------------------------- */

static ssize_t memory_read(struct mr_conn *c, void *buf, size_t n)
{
    (void)c;
    REQUIRE(n > 0 && !f.gone);
    n = MR_MIN(MR_MIN(n, f.left), f.piece);
    if (n == 0) {
        return f.ended ? 0 : -EAGAIN;
    }
    memcpy(buf, f.input, n);
    f.input += n;
    f.left -= n;
    return (ssize_t)n;
}

static ssize_t memory_write(struct mr_conn *c, const struct iovec *iov, int count)
{
    size_t done = 0;
    volatile uint8_t sink = 0;

    (void)c;
    REQUIRE(!f.gone && count > 0);
    for (int i = 0; i < count && done < f.writable; i++) {
        size_t n = MR_MIN(iov[i].iov_len, f.writable - done);
        REQUIRE(iov[i].iov_len > 0);
        for (size_t k = 0; k < n; k += 64) {
            sink = sink ^ ((const uint8_t *)iov[i].iov_base)[k];
        }
        sink = sink ^ ((const uint8_t *)iov[i].iov_base)[n - 1];
        done += n;
    }
    return done ? (ssize_t)done : -EAGAIN;
}

static void memory_want(struct mr_conn *c, int events)
{
    (void)c;
    (void)events;
}

static void memory_end_output(struct mr_conn *c)
{
    (void)c;
}

static void memory_close(struct mr_conn *c)
{
    (void)c;
    f.gone = true;
}

static const struct mr_transport memory_transport = {
    .read = memory_read,
    .write = memory_write,
    .want = memory_want,
    .end_output = memory_end_output,
    .close = memory_close,
};

/* ---- the handler: the first letter of the path selects what it does ------------------------- */

static char letter(const struct mr_call *call)
{
    return call->path.len > 1 ? call->path.ptr[1] : '\0';
}

static void reply(struct mr_call *call, int status)
{
    struct mr_header header = {MR_STR("x-path"), call->path};
    struct mr_piece pieces[2] = {{call->body.ptr, call->body.len, NULL}, {"tail", 4, NULL}};

    if (call->body_block) {
        pieces[0].block = mr_block_ref(call->body_block);
    }
    struct mr_reply r = {.status = status,
                         .headers = &header,
                         .header_count = 1,
                         .pieces = pieces,
                         .piece_count = 2,
                         .close = letter(call) == 'c'};
    f.live--;
    mr_call_reply(call, &r);
}

static void reply_in_parts(struct mr_call *call)
{
    struct mr_header trailer = {MR_STR("x-trailer"), MR_STR("v")};
    struct mr_piece piece = {"0123456789", 10, NULL};

    mr_call_begin(call, 200, NULL, 0);
    for (int i = 0; i < 3; i++) {
        mr_call_write(call, &piece, 1);
    }
    f.live--;
    mr_call_end(call, &trailer, 1);
}

static void answer_grpc(struct mr_call *call)
{
    struct mr_grpc_call g;
    mr_bytes message = {0};
    struct mr_err err;

    f.live--;
    if (mr_grpc_begin(&g, call, 5000) < 0) {
        return;
    }
    int rc = mr_grpc_message(&g, &message, &err);
    if (rc < 0) {
        mr_grpc_fail(&g, mr_status_grpc(rc), mr_str_c(err.msg));
        return;
    }
    struct mr_piece piece = {message.ptr, message.len, NULL};
    mr_grpc_reply(&g, &piece, 1, g.encoding);
}

static void on_head(void *ctx, struct mr_call *call)
{
    (void)ctx;
    f.live++;
    REQUIRE(call->header_count == 0 || call->headers);
    call->body_limit = 20000;
    switch (letter(call)) {
    case 'e': reply(call, 403); break;
    case 'a':
        f.live--;
        mr_call_abort(call, 2);
        break;
    case 's':
    case 'g': call->streaming = true; break;
    case 'l': call->body_align_at = 13; break;
    default: break;
    }
}

static void on_body(void *ctx, struct mr_call *call)
{
    (void)ctx;
    if (call->is_grpc && letter(call) != 'w') {
        answer_grpc(call);
        return;
    }
    switch (letter(call)) {
    case 'p': reply_in_parts(call); break;
    case 'w':
        if (f.pending_count < PENDING_MAX) {
            f.pending[f.pending_count++] = call;
            break;
        }
        reply(call, 503);
        break;
    case 'n': reply(call, 204); break;
    default: reply(call, 200);
    }
}

static void on_message(void *ctx, mr_bytes message, struct mr_block *block)
{
    struct mr_grpc_call *g = ctx;
    struct mr_piece piece = {message.ptr, message.len, block ? mr_block_ref(block) : NULL};

    if (message.len == 1) {
        mr_block_unref(&piece.block);
        f.live--;
        mr_grpc_finish(g, 9, MR_STR("one"));
        return;
    }
    mr_grpc_send(g, &piece, 1, MR_GRPC_GZIP);
}

static void grpc_data(struct mr_call *call, mr_bytes data, bool last)
{
    struct mr_grpc_call *g = call->user;
    struct mr_err err;

    if (!g) {
        g = call->user = MR_ARENA_NEW(call->arena, struct mr_grpc_call);
        if (!g) {
            f.live--;
            mr_call_abort(call, 2);
            return;
        }
        if (mr_grpc_begin(g, call, 5000) < 0) {
            f.live--;
            return;
        }
    }
    int rc = mr_grpc_feed(g, data, on_message, g, &err);
    if (rc != MR_E_CLOSED && (rc < 0 || last)) {
        f.live--;
        mr_grpc_finish(g, mr_status_grpc(rc), MR_STR("end"));
    }
}

static void on_data(void *ctx, struct mr_call *call, mr_bytes data, bool last)
{
    (void)ctx;
    if (call->is_grpc && letter(call) == 'g') {
        grpc_data(call, data, last);
        return;
    }
    if (last) {
        reply(call, 200);
        return;
    }
    /* Paused until the harness resumes it. */
    if (!call->user && f.pending_count < PENDING_MAX && data.len % 2) {
        call->user = call;
        f.pending[f.pending_count++] = call;
        mr_call_pause(call, true);
    }
}

static void on_cancel(void *ctx, struct mr_call *call)
{
    (void)ctx;
    for (size_t i = 0; i < f.pending_count; i++) {
        if (f.pending[i] == call) {
            f.pending[i] = f.pending[--f.pending_count];
            break;
        }
    }
    reply(call, 499);
}

static void on_body_refused(void *ctx, struct mr_call *call, int status)
{
    (void)ctx;
    reply(call, status == MR_E_TOO_LARGE ? 413 : 503);
}

static void body_place(void *ctx, struct mr_call *call, mr_bytes have)
{
    (void)ctx;
    call->body_align_at = mr_grpc_align_hint(have, 7);
}

static void answer_pending(void)
{
    while (f.pending_count > 0) {
        struct mr_call *call = f.pending[--f.pending_count];
        if (call->streaming) {
            mr_call_pause(call, false);
        } else {
            reply(call, 200);
        }
    }
}

/* ---- the run -------------------------------------------------------------------------------- */

static void set_up(void)
{
    struct mr_http_options o;
    struct mr_http_handler h = {.on_head = on_head,
                                .on_body = on_body,
                                .on_data = on_data,
                                .on_cancel = on_cancel,
                                .on_body_refused = on_body_refused,
                                .body_place = body_place};

    mr_http_options_init(&o);
    o.max_header_bytes = 20000;
    o.max_headers = 20;
    o.max_output_backlog = 3000;
    o.h2_max_streams = 20;
    o.h2_max_resets = 50;
    if (mr_loop_new(&f.loop, NULL, NULL) < 0 || mr_http_server_new(&f.server, &o, &h, NULL) < 0) {
        abort();
    }
    mr_conn_memory_init(f.loop);
    f.part = (struct mr_server_part){.server = f.server,
                                     .loop = f.loop,
                                     .handler = &f.server->handler,
                                     .options = &f.server->options};
    TAILQ_INIT(&f.part.waits_memory);
    mr_loop_enter(f.loop);
}

/* What the loop does between events. */
static void turn(struct mr_conn *c, int events)
{
    if (!f.gone) {
        mr_conn_ready(c, events);
    }
    struct mr_flush *flush;
    while ((flush = TAILQ_FIRST(&f.loop->flushes))) {
        mr_flush_cancel(f.loop, flush);
        flush->run(flush);
    }
}

static void run(struct mr_conn *c, size_t step, uint8_t flags)
{
    static const uint8_t hello[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0";
    const uint8_t *input = f.input;
    size_t left = f.left;

    f.piece = SIZE_MAX;
    f.writable = flags & 4 ? 0 : flags & 2 ? 100 : SIZE_MAX;
    if (flags & 1) {
        f.input = hello;
        f.left = sizeof hello - 1;
        turn(c, MR_WANT_READ);
    }
    f.input = input;
    f.left = left;
    for (size_t i = 0; f.left > 0 && !f.gone && (c->wanted & MR_WANT_READ) && i < 2000; i++) {
        f.piece = step ? step : SIZE_MAX;
        turn(c, MR_WANT_READ | (flags & 4 ? 0 : MR_WANT_WRITE));
        if (i % 4 == 3 && !(flags & 8)) {
            answer_pending();
        }
    }
    f.ended = true;
    turn(c, MR_WANT_READ | MR_WANT_HUP);
    answer_pending();
    f.writable = SIZE_MAX;
    turn(c, MR_WANT_WRITE);
    turn(c, MR_WANT_READ | MR_WANT_WRITE);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2) {
        return 0;
    }
    if (!f.loop) {
        set_up();
    }
    uint64_t failing = data[0] >> 4;
    f.input = data + 2;
    f.left = size - 2;
    f.ended = f.gone = false;
    mr_mem_fail_after(failing * failing);
    atomic_fetch_add(&f.server->connections, 1);
    f.part.live++;
    struct mr_conn *c = mr_conn_open(&f.part, &memory_transport, -1, 1, true, NULL);
    if (!c) {
        f.part.live--;
        mr_mem_fail_after(0);
        return 0;
    }
    mr_conn_start(c);
    run(c, data[1], data[0]);
    if (!f.gone) {
        mr_conn_close(c);
    }
    answer_pending();
    mr_mem_fail_after(0);
    REQUIRE(f.gone && f.live == 0);
    mr_conn_gone(c);
    REQUIRE(f.part.live == 0 && LIST_EMPTY(&f.part.conns) && f.loop->wheel.count == 0);
    return 0;
}
