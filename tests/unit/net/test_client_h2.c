/* The client against net's own server: HTTP/2 and gRPC, and large bodies both ways over both versions. */
#include "server_fixture.h"

#include "base/buf.h"
#include "net/client.h"

struct outcome {
    struct mr_loop *loop;
    int left; /* calls to come; the loop stops at 0 */
    int ok;
    int rc; /* of the last */
    struct mr_err err;
    int status;
    struct mr_buf body;
    char trailer[64];
    int grpc_status;
};

struct rig {
    struct server s;
    struct outcome o;
    struct mr_client *c;
};

static void on_done(void *ctx, int rc, const struct mr_err *err, const struct mr_client_response *r)
{
    struct outcome *o = ctx;

    o->rc = rc;
    o->err = *err;
    o->ok += rc == MR_OK;
    if (r) {
        o->status = r->status;
        o->grpc_status = r->grpc_status;
        mr_buf_reset(&o->body);
        mr_buf_append(&o->body, r->body.ptr, r->body.len);
        if (r->trailer_count) {
            snprintf(o->trailer, sizeof o->trailer, "%.*s", MR_STR_ARG(r->trailers[0].value));
        }
    }
    if (--o->left == 0) {
        mr_loop_stop(o->loop);
    }
}

static void rig_open(struct rig *r, bool http2)
{
    struct mr_client_options options = {.http2 = http2};
    char address[64];

    memset(r, 0, sizeof *r);
    server_start(&r->s);
    mr_buf_init(&r->o.body, 0);
    snprintf(address, sizeof address, "127.0.0.1:%u", r->s.port);
    assert_int_equal(mr_loop_new(&r->o.loop, NULL, NULL), MR_OK);
    assert_int_equal(mr_client_new(&r->c, r->o.loop, address, &options, NULL), MR_OK);
}

static void rig_close(struct rig *r)
{
    mr_client_free(&r->c);
    mr_loop_free(&r->o.loop);
    server_stop(&r->s);
    mr_buf_fini(&r->o.body);
}

static struct mr_client_call *ask(struct rig *r, const char *path, const struct mr_header *header,
                                  const struct mr_piece *pieces, size_t count, int64_t timeout_ns)
{
    struct mr_client_request request = {.method = count ? "POST" : "GET",
                                        .path = mr_str_c(path),
                                        .headers = header,
                                        .header_count = header != NULL,
                                        .pieces = pieces,
                                        .piece_count = count,
                                        .timeout_ns = timeout_ns};

    r->o.left++;
    return mr_client_send(r->c, &request, on_done, &r->o);
}

static void run(struct rig *r)
{
    mr_loop_run(r->o.loop);
}

/* A body in three pieces, the middle one by reference. */
static void echo(struct rig *r, size_t bytes)
{
    struct mr_block *block = mr_block_new(bytes + 1);
    char *expected = malloc(bytes + 10);
    fill_pattern((char *)block->data, bytes);
    struct mr_piece pieces[] = {
        {"head:", 5, NULL}, {block->data, bytes, block}, {":tail", 5, NULL}};

    memcpy(expected, "head:", 5);
    memcpy(expected + 5, block->data, bytes);
    memcpy(expected + 5 + bytes, ":tail", 5);
    ask(r, "/echo", NULL, pieces, 3, PATIENCE_NS);
    run(r);
    assert_string_equal(r->o.err.msg, "");
    assert_int_equal(r->o.status, 200);
    assert_int_equal(r->o.body.len, bytes + 10);
    assert_memory_equal(r->o.body.ptr, expected, bytes + 10);
    free(expected);
}

static void bodies_over(bool http2)
{
    static const size_t sizes[] = {0, 1, 1000, 16384, 70000, 1 << 20, 9 << 20};
    struct rig r;

    rig_open(&r, http2);
    for (size_t i = 0; i < COUNT(sizes); i++) {
        echo(&r, sizes[i]);
    }
    rig_close(&r);
}

static void bodies_http1(void **state)
{
    (void)state;
    bodies_over(false);
}

static void bodies_http2(void **state)
{
    (void)state;
    bodies_over(true);
}

static void parts_and_trailers(void **state)
{
    (void)state;
    struct mr_header n = {MR_STR("x-parts"), MR_STR("3")};
    struct rig r;

    for (int http2 = 0; http2 < 2; http2++) {
        rig_open(&r, http2);
        ask(&r, "/bytes", &n, NULL, 0, PATIENCE_NS);
        run(&r);
        assert_int_equal(r.o.rc, MR_OK);
        assert_string_equal(mr_buf_cstr(&r.o.body), "abcdefghij");
        if (http2) {
            assert_string_equal(r.o.trailer, "end");
        }
        rig_close(&r);
    }
}

/* All at once over one connection; more than the server lets run at a time (256). */
static void many_streams(void **state)
{
    (void)state;
    struct mr_piece piece = {"hello", 5, NULL};
    struct rig r;

    rig_open(&r, true);
    for (int i = 0; i < 600; i++) {
        ask(&r, "/echo", NULL, &piece, 1, PATIENCE_NS);
    }
    run(&r);
    assert_string_equal(r.o.err.msg, "");
    assert_int_equal(r.o.ok, 600);
    assert_int_equal(mr_http_server_connections(r.s.http), 1);
    rig_close(&r);
}

/* A call given up does not disturb the others, and the server learns of it. */
static void timeout_resets_stream(void **state)
{
    (void)state;
    struct mr_piece piece = {"hello", 5, NULL};
    struct rig r;

    rig_open(&r, true);
    ask(&r, "/later", NULL, NULL, 0, 50 * MR_NS_PER_MS);
    run(&r);
    assert_int_equal(r.o.rc, MR_E_DEADLINE);
    ask(&r, "/echo", NULL, &piece, 1, PATIENCE_NS);
    run(&r);
    assert_int_equal(r.o.rc, MR_OK);
    assert_true(wait_until(&r.s.cancels, 1));
    assert_int_equal(mr_http_server_connections(r.s.http), 1);
    rig_close(&r);
}

/* Cancels calls once the server has `wanted` of them. */
struct canceller {
    struct mr_timer timer;
    struct rig *rig;
    struct mr_client_call *calls[2];
    int wanted;
};

static void on_tick(struct mr_timer *t)
{
    struct canceller *x = MR_CONTAINER_OF(t, struct canceller, timer);

    if (atomic_load(&x->rig->s.pending_count) < x->wanted) {
        return;
    }
    mr_timer_stop(t);
    int before = x->rig->o.left;
    for (int i = 0; i < x->wanted; i++) {
        mr_client_cancel(x->calls[i]);
        mr_client_cancel(x->calls[i]);
    }
    assert_int_equal(x->rig->o.left, before); /* nothing is reported from within the call */
}

/* Stops the loop once the server has both calls. */
static void on_pending(struct mr_timer *t)
{
    struct canceller *x = MR_CONTAINER_OF(t, struct canceller, timer);

    if (atomic_load(&x->rig->s.pending_count) == 2) {
        mr_timer_stop(t);
        mr_loop_stop(x->rig->o.loop);
    }
}

/* The server is notified, other calls continue, and a call that waits for a connection is never sent. */
static void cancelled(void **state)
{
    (void)state;
    struct mr_piece piece = {"hello", 5, NULL};

    for (int http2 = 0; http2 < 2; http2++) {
        struct mr_client_options options = {.max_connections = 1, .http2 = http2};
        struct rig r;
        char address[64];
        rig_open(&r, http2);
        mr_client_free(&r.c);
        snprintf(address, sizeof address, "127.0.0.1:%u", r.s.port);
        assert_int_equal(mr_client_new(&r.c, r.o.loop, address, &options, NULL), MR_OK);
        struct canceller x = {.rig = &r, .wanted = 1 + http2};
        x.calls[0] = ask(&r, "/later", NULL, NULL, 0, PATIENCE_NS);
        x.calls[1] = ask(&r, "/later", NULL, NULL, 0, PATIENCE_NS);
        if (!http2) {
            mr_client_cancel(x.calls[1]);
        }
        mr_timer_start(r.o.loop, &x.timer, 0, MR_NS_PER_MS, on_tick);
        run(&r);
        assert_int_equal(r.o.rc, MR_E_CANCELLED);
        ask(&r, "/echo", NULL, &piece, 1, PATIENCE_NS);
        run(&r);
        assert_int_equal(r.o.rc, MR_OK);
        assert_true(wait_until(&r.s.cancels, x.wanted));
        assert_int_equal(atomic_load(&r.s.bodies), x.wanted + 1);
        rig_close(&r);
    }
}

static void cancel_other(void *ctx, int rc, const struct mr_err *err,
                         const struct mr_client_response *r)
{
    struct mr_client_call **other = ctx;

    (void)err, (void)r;
    assert_int_equal(rc, MR_E_CANCELLED);
    mr_client_cancel(*other);
}

/* A call that is cancelled while its client is freed ends with it, once. */
static void cancelled_while_freed(void **state)
{
    (void)state;
    const struct mr_client_request request = {.method = "GET", .path = MR_STR("/later")};
    struct mr_client_call *other;
    struct canceller x = {.wanted = 0};
    struct rig r;

    rig_open(&r, true);
    x.rig = &r;
    other = ask(&r, "/later", NULL, NULL, 0, PATIENCE_NS);
    mr_client_send(r.c, &request, cancel_other, &other); /* the last one ends first */
    mr_timer_start(r.o.loop, &x.timer, 0, MR_NS_PER_MS, on_pending);
    run(&r);
    mr_client_free(&r.c);
    assert_int_equal(r.o.rc, MR_E_CANCELLED);
    assert_int_equal(r.o.left, 0);
    rig_close(&r);
}

static void reset_by_server(void **state)
{
    (void)state;
    struct rig r;

    for (int http2 = 0; http2 < 2; http2++) {
        rig_open(&r, http2);
        ask(&r, "/abort", NULL, NULL, 0, PATIENCE_NS);
        run(&r);
        assert_int_equal(r.o.rc, MR_E_UNAVAILABLE);
        rig_close(&r);
    }
}

/* An answer before the body was taken. */
static void early_answer(void **state)
{
    (void)state;
    size_t bytes = 3 << 20;
    struct rig r;

    for (int http2 = 0; http2 < 2; http2++) {
        struct mr_block *block = mr_block_new(bytes);
        struct mr_piece piece = {block->data, bytes, block};
        memset(block->data, 'x', bytes);
        rig_open(&r, http2);
        ask(&r, "/early", NULL, &piece, 1, PATIENCE_NS);
        run(&r);
        assert_string_equal(r.o.err.msg, "");
        assert_int_equal(r.o.status, 403);
        rig_close(&r);
    }
}

/* The server retires the connection (GOAWAY) while a call runs on it: that one is answered. */
static void drained(void **state)
{
    (void)state;
    struct rig r;

    rig_open(&r, true);
    ask(&r, "/later", NULL, NULL, 0, PATIENCE_NS);
    ask(&r, "/x", NULL, NULL, 0, PATIENCE_NS);
    r.o.left = 1; /* stop after the answer of /x */
    run(&r);
    assert_int_equal(r.o.rc, MR_OK);
    mr_http_server_drain(r.s.http);
    release_later(&r.s);
    r.o.left = 1;
    run(&r);
    assert_string_equal(r.o.err.msg, "");
    assert_string_equal(mr_buf_cstr(&r.o.body), "late");
    rig_close(&r);
}

static void freed_in_flight(void **state)
{
    (void)state;
    struct rig r;

    for (int http2 = 0; http2 < 2; http2++) {
        rig_open(&r, http2);
        ask(&r, "/later", NULL, NULL, 0, 0);
        ask(&r, "/x", NULL, NULL, 0, 0);
        r.o.left = 1;
        run(&r);
        r.o.left = 10;
        mr_client_free(&r.c);
        assert_int_equal(r.o.rc, MR_E_CANCELLED);
        rig_close(&r);
    }
}

static void free_inside(void *ctx, int rc, const struct mr_err *err,
                        const struct mr_client_response *response)
{
    struct rig *r = ctx;

    (void)err;
    (void)response;
    r->o.rc = rc;
    r->o.left--;
    if (r->c) {
        mr_client_free(&r->c);
        mr_loop_stop(r->o.loop);
    }
}

/* The callback of one call frees the client under the others. */
static void freed_by_callback(void **state)
{
    (void)state;
    struct mr_client_request request = {.method = "GET", .path = MR_STR("/x")};
    struct rig r;

    for (int http2 = 0; http2 < 2; http2++) {
        rig_open(&r, http2);
        for (int i = 0; i < 20; i++) {
            r.o.left++;
            mr_client_send(r.c, &request, free_inside, &r);
        }
        run(&r);
        assert_int_equal(r.o.left, 0);
        rig_close(&r);
    }
}

/* ---- gRPC ---- */

static void grpc(struct rig *r, const struct mr_piece *pieces, size_t count)
{
    r->o.left++;
    const struct mr_client_grpc_request request = {
        .path = "/a.B/Echo", .pieces = pieces, .piece_count = count, .timeout_ns = PATIENCE_NS};
    mr_client_grpc(r->c, &request, on_done, &r->o);
    run(r);
}

static void grpc_unary(void **state)
{
    (void)state;
    struct mr_piece pieces[] = {{"ab", 2, NULL}, {"cd", 2, NULL}};
    struct rig r;

    rig_open(&r, true);
    grpc(&r, pieces, 2);
    assert_string_equal(r.o.err.msg, "");
    assert_string_equal(mr_buf_cstr(&r.o.body), "abcd");
    grpc(&r, NULL, 0);
    assert_int_equal(r.o.rc, MR_OK);
    assert_int_equal(r.o.body.len, 0);
    rig_close(&r);
}

static void grpc_status(void **state)
{
    (void)state;
    struct mr_block *block = mr_block_new(2 << 20);
    struct mr_piece piece = {block->data, 2 << 20, block};
    struct rig r;

    memset(block->data, 1, 2 << 20);
    rig_open(&r, true);
    grpc(&r, &piece, 1); /* the server takes 1 MiB */
    assert_int_equal(r.o.rc, MR_E_EXHAUSTED);
    assert_true(r.o.err.msg[0] != '\0');
    rig_close(&r);
}

/* Metadata goes to the server, and its own status comes back beside the one that it is folded into. */
static void grpc_raw_status(void **state)
{
    (void)state;
    static const struct {
        int code;
        int rc;
    } rows[] = {{9, MR_E_INVALID}, {11, MR_E_INVALID}, {3, MR_E_INVALID}, {8, MR_E_EXHAUSTED}};
    struct rig r;

    rig_open(&r, true);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char code[8];
        const struct mr_header metadata = {
            MR_STR("x-status"),
            mr_str_n(code, (size_t)snprintf(code, sizeof code, "%d", rows[i].code))};
        const struct mr_client_grpc_request request = {
            .path = "/a.B/Echo", .metadata = &metadata, .metadata_count = 1};
        r.o.left++;
        mr_client_grpc(r.c, &request, on_done, &r.o);
        run(&r);
        assert_int_equal(r.o.rc, rows[i].rc);
        assert_int_equal(r.o.grpc_status, rows[i].code);
        assert_string_equal(r.o.err.msg, "as asked");
    }
    rig_close(&r);
}

static void grpc_message_is_cut_at_a_character(void **state)
{
    (void)state;
    const struct mr_header metadata[] = {{MR_STR("x-status"), MR_STR("3")},
                                         {MR_STR("x-long"), MR_STR("290")}};
    const struct mr_client_grpc_request request = {
        .path = "/a.B/Echo", .metadata = metadata, .metadata_count = 2};
    struct rig r;

    rig_open(&r, true);
    r.o.left++;
    mr_client_grpc(r.c, &request, on_done, &r.o);
    run(&r);
    assert_int_equal(strlen(r.o.err.msg), sizeof r.o.err.msg - 2);
    assert_true(mr_utf8_valid(mr_str_c(r.o.err.msg)));
    rig_close(&r);
}

/* A server that answers without gRPC: its HTTP status gives the error. */
static void grpc_to_others(void **state)
{
    (void)state;
    struct rig r;

    rig_open(&r, true);
    r.o.left++;
    mr_client_grpc(r.c,
                   &(struct mr_client_grpc_request){.path = "/early", .timeout_ns = PATIENCE_NS},
                   on_done, &r.o);
    run(&r);
    assert_int_equal(r.o.rc, MR_E_FORBIDDEN);
    assert_non_null(strstr(r.o.err.msg, "HTTP status 403"));
    rig_close(&r);
}

/* ---- gRPC streams ---- */

struct talk {
    struct rig rig;
    struct mr_client_stream *stream;
    struct mr_buf heard; /* messages, each followed by a '|' */
    int more;            /* still to be sent, one for each that comes */
    int ends;            /* calls of on_end */
    int stop_at;         /* the loop stops at that many messages */
    int messages;
    bool cancels; /* at the first message */
    int rc;
    int grpc_status;
    struct mr_err err;
};

static void tell(struct talk *t, const void *text, size_t len)
{
    struct mr_piece piece = {text, len, NULL};

    assert_int_equal(mr_client_stream_send(t->stream, &piece, 1, NULL), MR_OK);
}

static void on_message(void *ctx, mr_bytes message)
{
    struct talk *t = ctx;

    mr_buf_append(&t->heard, message.ptr, message.len);
    mr_buf_char(&t->heard, '|');
    if (++t->messages == t->stop_at) {
        mr_loop_stop(t->rig.o.loop);
    }
    if (t->cancels) {
        mr_client_stream_cancel(t->stream);
        assert_int_equal(t->ends, 0);
    }
    if (t->more > 0 && --t->more == 0) {
        mr_client_stream_end(t->stream);
    } else if (t->more > 0) {
        tell(t, "x", 1);
    }
}

static void on_end(void *ctx, int rc, const struct mr_err *err,
                   const struct mr_client_response *response)
{
    struct talk *t = ctx;

    t->grpc_status = response ? response->grpc_status : -1;
    t->ends++;
    t->rc = rc;
    t->err = *err;
    mr_loop_stop(t->rig.o.loop);
}

static void talk_open(struct talk *t, const char *path, bool http2)
{
    static const struct mr_client_stream_events events = {on_message, on_end};

    memset(t, 0, sizeof *t);
    rig_open(&t->rig, http2);
    mr_buf_init(&t->heard, 0);
    t->stream =
        mr_client_grpc_stream(t->rig.c, &(struct mr_client_grpc_request){.path = path}, &events, t);
    assert_int_equal(t->ends, 0);
}

static void talk_close(struct talk *t)
{
    assert_int_equal(t->ends, 1);
    mr_buf_fini(&t->heard);
    rig_close(&t->rig);
}

static void stream_both_ways(void **state)
{
    (void)state;
    size_t large = 700000;
    struct mr_block *block = mr_block_new(large);
    struct mr_piece pieces[] = {{"<", 1, NULL}, {block->data, large, block}, {">", 1, NULL}};
    struct talk t;

    fill_pattern((char *)block->data, large);
    talk_open(&t, GRPC_STREAM, true);
    tell(&t, "one", 3);
    tell(&t, "", 0);
    mr_block_ref(block);
    assert_int_equal(mr_client_stream_send(t.stream, pieces, 3, NULL), MR_OK);
    t.more = 20;
    mr_loop_run(t.rig.o.loop);
    assert_string_equal(t.err.msg, "");
    assert_int_equal(t.rc, MR_OK);
    /* Three, and one more for each but the one that was the signal to end; all that was sent comes back. */
    assert_memory_equal(t.heard.ptr, "one||<", 6);
    assert_memory_equal(t.heard.ptr + 6, block->data, large);
    assert_int_equal(t.heard.len, 6 + large + 2 + 19 * 2);
    assert_memory_equal(t.heard.ptr + 6 + large, ">|x|x|", 6);
    mr_block_unref(&block);
    talk_close(&t);
}

static void stream_with_a_status(void **state)
{
    (void)state;
    struct talk t;

    talk_open(&t, GRPC_STREAM, true);
    tell(&t, "enough", 6);
    tell(&t, "too late", 8);
    mr_loop_run(t.rig.o.loop);
    assert_int_equal(t.rc, MR_E_EXHAUSTED);
    assert_int_equal(t.grpc_status, MR_GRPC_RESOURCE_EXHAUSTED);
    assert_string_equal(t.err.msg, "no more");
    assert_string_equal(mr_buf_cstr(&t.heard), "enough|");
    talk_close(&t);
}

/* Of two messages that arrive together the second is not reported any more. */
static void stream_cancelled(void **state)
{
    (void)state;
    struct talk t;

    talk_open(&t, GRPC_STREAM, true);
    t.cancels = true;
    tell(&t, "one", 3);
    tell(&t, "two", 3);
    mr_loop_run(t.rig.o.loop);
    assert_int_equal(t.rc, MR_E_CANCELLED);
    assert_int_equal(t.messages, 1);
    assert_true(wait_until(&t.rig.s.cancels, 1));
    talk_close(&t);
}

/* A paused stream gets a window of 16 MiB and no more, while calls beside it are answered. */
static void stream_paused(void **state)
{
    (void)state;
    enum {
        COUNT = 40,
        BYTES = 1 << 19,
        WINDOW = 31 /* messages within 16 MiB, with their prefixes */
    };
    char *text = calloc(BYTES, 1);
    struct mr_piece piece = {"hello", 5, NULL};
    struct talk t;

    talk_open(&t, GRPC_STREAM, true);
    mr_client_stream_pause(t.stream, true);
    for (int i = 0; i < COUNT; i++) {
        tell(&t, text, BYTES);
    }
    assert_int_equal(mr_client_stream_backlog(t.stream), COUNT * (BYTES + 5));
    t.stop_at = WINDOW;
    mr_loop_run(t.rig.o.loop);
    ask(&t.rig, "/echo", NULL, &piece, 1, PATIENCE_NS);
    run(&t.rig);
    assert_int_equal(t.rig.o.rc, MR_OK);
    assert_int_equal(t.messages, WINDOW);
    mr_client_stream_pause(t.stream, false);
    mr_client_stream_end(t.stream);
    mr_loop_run(t.rig.o.loop);
    assert_int_equal(t.rc, MR_OK);
    assert_int_equal(t.messages, COUNT);
    assert_int_equal(t.heard.len, COUNT * (BYTES + 1));
    free(text);
    talk_close(&t);
}

static void stream_to_others(void **state)
{
    (void)state;
    struct talk t;

    talk_open(&t, "/early", true);
    tell(&t, "a", 1);
    mr_loop_run(t.rig.o.loop);
    assert_int_equal(t.rc, MR_E_FORBIDDEN);
    talk_close(&t);
    talk_open(&t, GRPC_STREAM, false);
    tell(&t, "a", 1);
    mr_loop_run(t.rig.o.loop);
    assert_int_equal(t.rc, MR_E_INVALID);
    talk_close(&t);
}

static void stream_freed(void **state)
{
    (void)state;
    struct mr_block *block = mr_block_new(8);
    struct mr_piece piece = {block->data, 8, mr_block_ref(block)};
    struct talk t;
    struct mr_err err;

    talk_open(&t, GRPC_STREAM, true);
    tell(&t, "a", 1);
    mr_client_stream_end(t.stream);
    assert_int_equal(mr_client_stream_send(t.stream, &piece, 1, &err), MR_E_CLOSED);
    mr_block_unref(&block);
    mr_client_free(&t.rig.c);
    assert_int_equal(t.rc, MR_E_CANCELLED);
    talk_close(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bodies_http1),
        cmocka_unit_test(bodies_http2),
        cmocka_unit_test(parts_and_trailers),
        cmocka_unit_test(many_streams),
        cmocka_unit_test(timeout_resets_stream),
        cmocka_unit_test(cancelled),
        cmocka_unit_test(cancelled_while_freed),
        cmocka_unit_test(reset_by_server),
        cmocka_unit_test(early_answer),
        cmocka_unit_test(drained),
        cmocka_unit_test(freed_in_flight),
        cmocka_unit_test(freed_by_callback),
        cmocka_unit_test(grpc_unary),
        cmocka_unit_test(grpc_status),
        cmocka_unit_test(grpc_raw_status),
        cmocka_unit_test(grpc_message_is_cut_at_a_character),
        cmocka_unit_test(grpc_to_others),
        cmocka_unit_test(stream_both_ways),
        cmocka_unit_test(stream_with_a_status),
        cmocka_unit_test(stream_cancelled),
        cmocka_unit_test(stream_paused),
        cmocka_unit_test(stream_to_others),
        cmocka_unit_test(stream_freed),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
