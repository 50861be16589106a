/* Streams and requests in parts, with many threads on one client, beside a server in this process: each message of a stream gets two
 * answers, one of the id "bad" an error. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "millrace/client.h"
#include "net/grpc.h"
#include "net/loop.h"
#include "oip/oip.h"

#define STREAMS  4
#define REQUESTS 200
#define CALLERS  3
#define NUMBERS  1024
#define LIMIT    20000u /* bytes, a few messages */

/* ---- the server ---- */

struct server {
    struct mr_loop *loop;
    pthread_t thread;
    struct mr_http_server *http;
    char urls[2][64]; /* of the same server: two hosts for the parts of a request */
    _Atomic bool is_closed;
};

static void on_head(void *ctx, struct mr_call *call)
{
    (void)ctx;
    call->streaming = mr_str_eq_c(call->path, "/inference.GRPCInferenceService/ModelStreamInfer");
}

/* Inputs as outputs. */
static void answer(struct mr_grpc_call *g, mr_bytes message, bool is_stream, bool is_final)
{
    const struct mr_oip_param mark = {
        .key = MR_STR("triton_final_response"), .kind = MR_OIP_BOOL, .b = is_final};
    struct mr_oip_response r = {.params = &mark, .param_count = is_stream};
    struct mr_oip_encoded e = {0};
    struct mr_oip_request q;
    struct mr_arena arena;
    struct mr_buf buf;
    struct mr_err err;

    mr_arena_init(&arena, 4096, 1 << 24);
    mr_buf_init(&buf, 0);
    if (mr_oip_pb_decode_request(message, NULL, &arena, &q, &err) == MR_OK) {
        r.model_name = q.model_name;
        r.model_version = MR_STR("1");
        r.id = q.id;
        r.outputs = q.inputs;
        r.output_count = q.input_count;
        mr_oip_pb_encode_response(&r, is_stream, &buf, &arena, &e, &err);
    }
    if (is_stream && mr_str_eq_c(q.id, "bad")) {
        mr_buf_reset(&buf);
        mr_oip_pb_encode_stream_error(MR_STR("as asked"), &(struct mr_oip_response){.id = q.id},
                                      &buf);
        const struct mr_piece piece = {buf.ptr, buf.len, NULL};
        mr_grpc_send(g, &piece, 1, MR_GRPC_IDENTITY);
    } else if (is_stream) {
        mr_grpc_send(g, e.pieces, e.piece_count, MR_GRPC_IDENTITY);
    } else {
        mr_grpc_reply(g, e.pieces, e.piece_count, MR_GRPC_IDENTITY);
    }
    mr_buf_fini(&buf);
    mr_arena_fini(&arena);
}

static void on_body(void *ctx, struct mr_call *call)
{
    struct mr_grpc_call g;
    mr_bytes message;
    struct mr_err err;

    (void)ctx;
    if (mr_grpc_begin(&g, call, 1 << 24) == MR_OK) {
        if (mr_grpc_message(&g, &message, &err) == MR_OK) {
            answer(&g, message, false, true);
        } else {
            mr_grpc_fail(&g, MR_GRPC_INVALID_ARGUMENT, mr_str_c(err.msg));
        }
    }
}

static void on_stream_message(void *ctx, mr_bytes message, struct mr_block *block)
{
    (void)block;
    answer(ctx, message, true, false);
    answer(ctx, message, true, true);
}

static void on_data(void *ctx, struct mr_call *call, mr_bytes data, bool last)
{
    struct mr_grpc_call *g = call->user;
    struct mr_err err;

    (void)ctx;
    if (!g) {
        g = call->user = MR_ARENA_NEW(call->arena, struct mr_grpc_call);
        if (mr_grpc_begin(g, call, 1 << 24) < 0) {
            return;
        }
    }
    const int rc = mr_grpc_feed(g, data, on_stream_message, g, &err);
    if (rc != MR_E_CLOSED && (rc < 0 || last)) {
        mr_grpc_finish(g, mr_status_grpc(rc), mr_str_c(rc < 0 ? err.msg : ""));
    }
}

static void on_cancel(void *ctx, struct mr_call *call)
{
    (void)ctx;
    mr_call_abort(call, 8); /* CANCEL */
}

static void on_refused(void *ctx, struct mr_call *call, int status)
{
    const struct mr_reply reply = {.status = 413};

    (void)ctx;
    (void)status;
    mr_call_reply(call, &reply);
}

static void *loop_main(void *loop)
{
    mr_loop_run(loop);
    return NULL;
}

static void server_start(struct server *s)
{
    const struct mr_http_handler handler = {.on_head = on_head,
                                            .on_body = on_body,
                                            .on_data = on_data,
                                            .on_cancel = on_cancel,
                                            .on_body_refused = on_refused};
    struct mr_http_options options;
    struct mr_err err;
    uint16_t port;

    memset(s, 0, sizeof *s);
    mr_http_options_init(&options);
    assert_int_equal(mr_loop_new(&s->loop, NULL, &err), MR_OK);
    assert_int_equal(mr_http_server_new(&s->http, &options, &handler, &err), MR_OK);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(mr_http_listen(s->http, &s->loop, 1, "127.0.0.1:0", 1, false, &port, &err),
                         MR_OK);
        snprintf(s->urls[i], sizeof s->urls[i], "grpc://127.0.0.1:%u", port);
    }
    pthread_create(&s->thread, NULL, loop_main, s->loop);
}

static void on_closed(void *ctx)
{
    struct server *s = ctx;

    atomic_store(&s->is_closed, true);
    mr_loop_stop(s->loop);
}

static void server_stop(struct server *s)
{
    mr_http_server_close(s->http, on_closed, s);
    pthread_join(s->thread, NULL);
    assert_true(atomic_load(&s->is_closed));
    mr_loop_free(&s->loop);
    mr_http_server_free(&s->http);
}

/* ---- the client ---- */

static const int64_t shape[2] = {64, NUMBERS / 64};
static int32_t numbers[NUMBERS];

static struct mr_sdk *client_new(const struct server *s, uint32_t delivery)
{
    const char *urls[2] = {s->urls[0], s->urls[1]};
    const struct mr_sdk_options o = {.size = sizeof o,
                                     .delivery = delivery,
                                     .urls = urls,
                                     .url_count = 2,
                                     .timeout_ms = 600000,
                                     .attempt_timeout_ms = 600000,
                                     .package_size = 32};
    struct mr_sdk *client;
    struct mr_err err;

    assert_int_equal(mr_sdk_create(&client, &o, &err), MR_OK);
    for (size_t i = 0; i < NUMBERS; i++) {
        numbers[i] = (int32_t)i;
    }
    return client;
}

static struct mr_sdk_stream *stream_new(struct mr_sdk *client, mr_sdk_stream_fn *notify, void *ctx)
{
    const struct mr_sdk_stream_options o = {.size = sizeof o,
                                            .model = "m",
                                            .max_unread_bytes = LIMIT,
                                            .max_unsent_bytes = LIMIT,
                                            .notify = notify,
                                            .ctx = ctx};
    struct mr_sdk_stream *s;
    struct mr_err err;

    assert_int_equal(mr_sdk_stream_open(client, &o, &s, &err), MR_OK);
    return s;
}

static int stream_send(struct mr_sdk_stream *s, const char *id, int64_t wait_ms, struct mr_err *err)
{
    const struct mr_sdk_tensor in = {.size = sizeof in,
                                     .name = "IN",
                                     .dtype = MR_DTYPE_INT32,
                                     .shape = shape,
                                     .rank = 2,
                                     .data = numbers,
                                     .bytes = sizeof numbers};
    const struct mr_sdk_request q = {.size = sizeof q, .id = id, .inputs = &in, .input_count = 1};

    return mr_sdk_stream_send(s, &q, wait_ms, err);
}

static bool is_right(struct mr_sdk_result *r)
{
    struct mr_sdk_tensor out = {.size = sizeof out};

    return mr_sdk_result_output(r, 0, &out) == MR_OK && out.bytes == sizeof numbers &&
           out.shape[0] == shape[0] && memcmp(out.data, numbers, sizeof numbers) == 0;
}

struct talk {
    struct mr_sdk *client;
    struct mr_sdk_stream *stream;
    int sent, good, finals, bad, wrong, end;
};

static void *send_main(void *arg)
{
    struct talk *t = arg;
    struct mr_err err;

    while (t->sent < REQUESTS && stream_send(t->stream, "good", -1, &err) == MR_OK) {
        t->sent++;
    }
    mr_sdk_stream_done(t->stream);
    return NULL;
}

static void count(struct talk *t, struct mr_sdk_answer *a)
{
    if (a->status < 0) {
        t->bad++;
        t->wrong += strcmp(mr_sdk_result_id(a->result), "bad") != 0 ||
                    strcmp(a->message, "as asked") != 0 || !a->is_final;
    } else {
        t->good++;
        t->finals += a->is_final != 0;
        t->wrong += !is_right(a->result) || a->message[0] != '\0';
    }
    mr_sdk_result_free(&a->result);
}

static void *read_main(void *arg)
{
    struct mr_sdk_answer a = {.size = sizeof a};
    struct talk *t = arg;
    struct mr_err err;

    while ((t->end = mr_sdk_stream_read(t->stream, -1, &a, &err)) > 0) {
        count(t, &a);
    }
    return NULL;
}

/* Two of three calls are waited for in steps. */
static int infer(struct mr_sdk *client, const struct mr_sdk_request *q, int i,
                 struct mr_sdk_result **r)
{
    struct mr_sdk_call *call;

    if (i % 3 == 0) {
        return mr_sdk_infer(client, q, r, NULL);
    }
    int rc = mr_sdk_infer_start(client, q, NULL, NULL, &call, NULL);
    if (rc < 0) {
        return rc;
    }
    while ((rc = mr_sdk_call_wait(call, i % 3 - 1, r, NULL)) == 0) {
    }
    mr_sdk_call_free(&call);
    return rc;
}

static void *call_main(void *arg)
{
    struct talk *t = arg;
    const struct mr_sdk_tensor in = {.size = sizeof in,
                                     .flags = MR_SDK_PACK_ON,
                                     .name = "IN",
                                     .dtype = MR_DTYPE_INT32,
                                     .shape = shape,
                                     .rank = 2,
                                     .data = numbers,
                                     .bytes = sizeof numbers};
    const struct mr_sdk_request q = {
        .size = sizeof q, .model = "m", .inputs = &in, .input_count = 1};
    struct mr_sdk_result *r;

    for (int i = 0; i < REQUESTS / 4; i++) {
        if (infer(t->client, &q, i, &r) < 0) {
            t->bad++;
            continue;
        }
        t->good++;
        t->wrong += !is_right(r) || mr_sdk_result_attempts(r) != 2;
        mr_sdk_result_free(&r);
    }
    return NULL;
}

static void callers_start(struct mr_sdk *client, struct talk *callers, pthread_t *calls)
{
    for (int i = 0; i < CALLERS; i++) {
        callers[i] = (struct talk){.client = client};
        pthread_create(&calls[i], NULL, call_main, &callers[i]);
    }
}

static void callers_end(const struct talk *callers, const pthread_t *calls)
{
    for (int i = 0; i < CALLERS; i++) {
        pthread_join(calls[i], NULL);
        assert_int_equal(callers[i].good, REQUESTS / 4);
        assert_int_equal(callers[i].wrong, 0);
    }
}

/* The client's loop goes from caller to caller. */
static void callers_alone(void **state)
{
    struct talk callers[CALLERS];
    pthread_t calls[CALLERS];
    struct server s;

    (void)state;
    server_start(&s);
    struct mr_sdk *client = client_new(&s, MR_SDK_THREAD);
    callers_start(client, callers, calls);
    callers_end(callers, calls);
    mr_sdk_free(&client);
    server_stop(&s);
}

/* Senders, readers and calls in parts at once, while other streams come and go. */
static void many_threads(void **state)
{
    struct talk talks[STREAMS], callers[CALLERS];
    pthread_t senders[STREAMS], readers[STREAMS], calls[CALLERS];
    struct server s;

    (void)state;
    server_start(&s);
    struct mr_sdk *client = client_new(&s, MR_SDK_THREAD);
    for (int i = 0; i < STREAMS; i++) {
        talks[i] = (struct talk){.stream = stream_new(client, NULL, NULL)};
        pthread_create(&senders[i], NULL, send_main, &talks[i]);
        pthread_create(&readers[i], NULL, read_main, &talks[i]);
    }
    callers_start(client, callers, calls);
    for (int i = 0; i < 50; i++) {
        struct mr_sdk_stream *other = stream_new(client, NULL, NULL);
        stream_send(other, "other", 0, NULL);
        if (i % 2) {
            mr_sdk_stream_cancel(other);
        }
        mr_sdk_stream_free(&other);
    }
    for (int i = 0; i < STREAMS; i++) {
        pthread_join(senders[i], NULL);
        pthread_join(readers[i], NULL);
        assert_int_equal(talks[i].sent, REQUESTS);
        assert_int_equal(talks[i].good, 2 * REQUESTS);
        assert_int_equal(talks[i].finals, REQUESTS);
        assert_int_equal(talks[i].wrong, 0);
        assert_int_equal(talks[i].end, MR_E_CLOSED);
        mr_sdk_stream_free(&talks[i].stream);
    }
    callers_end(callers, calls);
    mr_sdk_free(&client);
    server_stop(&s);
}

static void on_notify(void *ctx)
{
    *(bool *)ctx = true;
}

/* A program with a loop of its own: nothing waits but poll. */
static void without_waiting(void **state)
{
    struct mr_sdk_answer a = {.size = sizeof a};
    struct talk t = {0};
    bool has_news = true;
    struct server s;
    struct mr_err err;
    int rc;

    (void)state;
    server_start(&s);
    struct mr_sdk *client = client_new(&s, MR_SDK_PROCESS);
    struct pollfd events = {.fd = mr_sdk_fd(client), .events = POLLIN};
    t.stream = stream_new(client, on_notify, &has_news);
    while (t.end == 0) {
        while (!has_news) {
            poll(&events, 1, -1);
            mr_sdk_process(client);
        }
        has_news = false;
        while (t.sent < REQUESTS &&
               (rc = stream_send(t.stream, t.sent % 10 == 5 ? "bad" : "good", 0, &err)) == MR_OK) {
            t.sent++;
        }
        if (t.sent == REQUESTS) {
            mr_sdk_stream_done(t.stream);
        } else {
            assert_int_equal(rc, MR_E_EXHAUSTED);
        }
        while ((rc = mr_sdk_stream_read(t.stream, 0, &a, &err)) > 0) {
            count(&t, &a);
        }
        t.end = rc;
    }
    assert_int_equal(t.end, MR_E_CLOSED);
    assert_int_equal(t.bad, 2 * REQUESTS / 10);
    assert_int_equal(t.good, 2 * (REQUESTS - REQUESTS / 10));
    assert_int_equal(t.finals, REQUESTS - REQUESTS / 10);
    assert_int_equal(t.wrong, 0);
    mr_sdk_stream_free(&t.stream);
    mr_sdk_free(&client);
    server_stop(&s);
}

/* A client that is freed ends its streams; what came before is still there to be read. */
static void freed_client(void **state)
{
    struct mr_sdk_answer a = {.size = sizeof a}, sizeless = {0};
    struct mr_sdk_tensor nothing = {0};
    struct server s;
    struct mr_err err;

    (void)state;
    server_start(&s);
    struct mr_sdk *client = client_new(&s, MR_SDK_THREAD);
    struct mr_sdk_stream *open = stream_new(client, NULL, NULL);
    struct mr_sdk_stream *idle = stream_new(client, NULL, NULL);
    assert_int_equal(stream_send(open, "one", -1, &err), MR_OK);
    assert_int_equal(mr_sdk_stream_read(open, -1, NULL, &err), MR_E_INVALID);
    assert_int_equal(mr_sdk_stream_read(open, -1, &sizeless, &err),
                     MR_E_INVALID); /* and takes none */
    assert_int_equal(mr_sdk_stream_read(open, -1, &a, &err), 1);
    assert_int_equal(mr_sdk_result_output(a.result, 0, NULL), MR_E_INVALID);
    assert_int_equal(mr_sdk_result_output(a.result, 0, &nothing), MR_E_INVALID);
    assert_true(is_right(a.result) && !a.is_final);
    assert_string_equal(mr_sdk_result_host(a.result), mr_sdk_stream_host(open));
    mr_sdk_result_free(&a.result);
    assert_int_equal(mr_sdk_stream_read(open, -1, &a, &err), 1);
    mr_sdk_free(&client);
    assert_true(is_right(a.result) && a.is_final);
    mr_sdk_result_free(&a.result);
    assert_int_equal(mr_sdk_stream_read(open, -1, &a, &err), MR_E_CANCELLED);
    assert_int_equal(mr_sdk_stream_read(idle, 0, &a, &err), MR_E_CANCELLED);
    assert_int_equal(stream_send(idle, "x", -1, &err), MR_E_CLOSED);
    mr_sdk_stream_free(&open);
    mr_sdk_stream_free(&idle);
    server_stop(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(callers_alone),
        cmocka_unit_test(many_threads),
        cmocka_unit_test(without_waiting),
        cmocka_unit_test(freed_client),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
