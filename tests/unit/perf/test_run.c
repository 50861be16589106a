/* Load runs against net's own server on a loop of its own: every request is accounted for, and a stall of
 * the server shows in every slot that it delayed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "../net/server_fixture.h"
#include "perf/perf.h"

struct bench {
    struct server server;
    char address[64];
    struct mr_perf_body body;
    struct mr_perf_target target;
    struct mr_perf_load load;
    struct mr_perf_result *result;
};

static void setup(struct bench *b, const char *path)
{
    static const char text[] = "{\"inputs\":[]}";

    memset(b, 0, sizeof *b);
    server_start(&b->server);
    snprintf(b->address, sizeof b->address, "127.0.0.1:%u", b->server.port);
    b->body = (struct mr_perf_body){mr_block_new(sizeof text), sizeof text - 1, -1};
    memcpy(b->body.block->data, text, sizeof text);
    b->target = (struct mr_perf_target){.address = b->address,
                                        .path = path,
                                        .bodies = &b->body,
                                        .body_count = 1,
                                        .timeout_ns = PATIENCE_NS};
    b->load =
        (struct mr_perf_load){.threads = 1, .connections = 4, .max_connections = 4, .streams = 1};
    b->result = MR_NEW(struct mr_perf_result);
}

static void teardown(struct bench *b)
{
    mr_perf_result_fini(b->result);
    mr_free(b->result);
    mr_block_unref(&b->body.block);
    server_stop(&b->server);
}

static void run(struct bench *b)
{
    struct mr_err err = {0};

    if (mr_perf_run(&b->target, &b->load, NULL, b->result, &err) < 0) {
        fail_msg("%s", err.msg);
    }
    assert_int_equal(b->result->answered + b->result->failed, b->result->sent);
}

/* The answers of all windows are the answers of the whole. */
static void windows_add_up(const struct mr_perf_result *r)
{
    uint64_t answered = 0;
    uint64_t failed = 0;

    for (size_t i = 0; i < r->windows.len; i++) {
        answered += r->windows.at[i].answered;
        failed += r->windows.at[i].failed;
    }
    assert_int_equal(answered, r->answered);
    assert_int_equal(failed, r->failed);
}

/* Each measured request once, with its values in the total. */
static void samples_add_up(const struct mr_perf_result *r, size_t count)
{
    uint64_t failed = 0;
    uint64_t late = 0;
    uint64_t longest = 0;

    assert_int_equal(r->samples.len, count);
    for (size_t i = 0; i < count; i++) {
        const struct mr_perf_sample *s = &r->samples.at[i];
        failed += s->is_failed;
        late += s->is_late;
        longest = MR_MAX(longest, (uint64_t)s->took_ns);
        assert_true(s->is_latency);
    }
    assert_int_equal(failed, r->failed);
    assert_int_equal(late, r->late);
    assert_int_equal(longest, r->latency.max);
}

static void closed_loop(uint32_t threads)
{
    struct bench b;

    setup(&b, "/x");
    b.load.concurrency = 4;
    b.load.threads = threads;
    b.load.requests = 501;
    run(&b);
    assert_int_equal(b.result->answered, 501);
    assert_int_equal(b.result->latency.total, 501);
    assert_int_equal(b.result->connections, 4);
    assert_int_equal(atomic_load(&b.server.bodies), 501 + 4);
    assert_true(b.result->rate > 0 && b.result->latency.min > 0);
    windows_add_up(b.result);
    teardown(&b);
}

static void closed_loop_counts(void **state)
{
    (void)state;
    closed_loop(1);
}

static void threads_share_the_count(void **state)
{
    (void)state;
    closed_loop(3);
}

static void every_slot_of_the_time(void **state)
{
    struct bench b;

    (void)state;
    setup(&b, "/x");
    b.load.rate = 200;
    b.load.warmup_ns = 100 * MR_NS_PER_MS;
    b.load.duration_ns = 500 * MR_NS_PER_MS;
    b.load.max_connections = 64;
    b.load.keeps_samples = true;
    run(&b);
    samples_add_up(b.result, 100);
    assert_int_equal(b.result->warmup_sent, 20);
    assert_int_equal(b.result->answered, 100);
    assert_int_equal(atomic_load(&b.server.bodies), 120 + 4);
    windows_add_up(b.result);
    teardown(&b);
}

static void poisson_counts(void **state)
{
    struct bench b;

    (void)state;
    setup(&b, "/x");
    b.load.rate = 3000;
    b.load.poisson = true;
    b.load.threads = 2;
    b.load.requests = 300;
    run(&b);
    assert_int_equal(b.result->answered, 300);
    teardown(&b);
}

/* ---- a server that stalls ---- */

struct stall {
    struct mr_mail mail;
    struct server *server;
    pthread_t thread;
    int64_t took_ns;
    int bodies; /* that had come when it began */
};

static void stand_still(struct mr_mail *mail)
{
    struct stall *s = MR_CONTAINER_OF(mail, struct stall, mail);
    int64_t begin = mr_now_ns();

    s->bodies = atomic_load(&s->server->bodies);
    usleep(300000);
    s->took_ns = mr_now_ns() - begin;
}

/* In the middle of the run, as the server counts. */
static void *stall_thread(void *arg)
{
    struct stall *s = arg;

    wait_until(&s->server->bodies, 100);
    s->mail.run = stand_still;
    mr_loop_post(s->server->loops[0], &s->mail);
    return NULL;
}

/* Slots lie 2 ms apart, so a stop of S ms makes (S - 100) / 2 of them wait for more than 100 ms, whatever the
 * client does in between. A client that waits for answers before it continues would have a handful. Other delays
 * of the machine can only add to it, unless the stop began late or lasted long: then fewer slots than that were
 * left for it. False: so it was, or the machine made every slot slow; that proves nothing. */
static bool is_shown(uint32_t max_connections)
{
    struct bench b;
    struct stall s = {0};
    uint64_t slow = 0;
    bool is_fair;

    setup(&b, "/x");
    s.server = &b.server;
    b.load.rate = 500;
    b.load.requests = 600;
    b.load.max_connections = max_connections;
    pthread_create(&s.thread, NULL, stall_thread, &s);
    run(&b);
    pthread_join(s.thread, NULL);
    assert_int_equal(b.result->answered, 600);
    for (unsigned i = mr_hdr_bucket(100 * MR_NS_PER_MS) + 1; i < MR_HDR_BUCKETS; i++) {
        slow += b.result->latency.count[i];
    }
    uint64_t expected = (uint64_t)(s.took_ns / MR_NS_PER_MS - 100) / 2;
    is_fair = slow < 600 && s.bodies + (uint64_t)s.took_ns / (2 * MR_NS_PER_MS) < 600;
    if (is_fair) {
        assert_true(slow + 2 >= expected);
        if (max_connections == 4) {
            assert_true(b.result->waited + 2 >= expected);
        } else {
            assert_int_equal(b.result->waited, 0);
            assert_true(b.result->grown + 4 + 2 >= expected);
        }
    }
    assert_true(max_connections > 4 || b.result->grown == 0);
    teardown(&b);
    return is_fair;
}

static void stalled(uint32_t max_connections)
{
    for (int tries = 1; !is_shown(max_connections); tries++) {
        assert_true(tries < 10);
    }
}

static void a_stall_is_in_every_slot(void **state)
{
    (void)state;
    stalled(1000);
}

static void a_stall_is_in_every_slot_of_few_connections(void **state)
{
    (void)state;
    stalled(4);
}

/* ---- errors ---- */

static void failures_are_no_latencies(void **state)
{
    struct bench b;
    char name[32];

    (void)state;
    setup(&b, "/early");
    b.load.concurrency = 2;
    b.load.connections = 2;
    b.load.requests = 50;
    run(&b);
    assert_int_equal(b.result->failed, 50);
    assert_int_equal(b.result->latency.total, 0);
    assert_int_equal(b.result->errors.count, 1);
    assert_int_equal(b.result->errors.kinds[0].count, 50);
    assert_string_equal(b.result->errors.kinds[0].text, "early");
    mr_perf_error_name(&b.result->errors.kinds[0], name);
    assert_string_equal(name, "HTTP 403");
    windows_add_up(b.result);
    teardown(&b);
}

/* The time-out counts from the loop's time, which lies before the making of the request: by a little, or by all the
 * time for which the machine did not let the loop run. False: by half of the time-out. */
static bool is_given_up_with_its_time(void)
{
    struct bench b;

    setup(&b, "/later");
    b.target.timeout_ns = 100 * MR_NS_PER_MS;
    b.load.concurrency = 3;
    b.load.connections = 3;
    b.load.requests = 9;
    run(&b);
    assert_int_equal(b.result->failed, 9);
    assert_int_equal(b.result->gave_up, 9);
    assert_int_equal(b.result->latency.total, 9);
    bool is_long = b.result->latency.min >= 50 * MR_NS_PER_MS;
    assert_int_equal(b.result->errors.kinds[0].status, MR_E_DEADLINE);
    release_later(&b.server);
    teardown(&b);
    return is_long;
}

static void what_is_given_up_counts_with_its_time(void **state)
{
    (void)state;
    for (int tries = 1; !is_given_up_with_its_time(); tries++) {
        assert_true(tries < 10);
    }
}

/* Four connections and no answers: requests that could not be sent are reported as well. */
static void unsent_slots_are_told(void **state)
{
    struct bench b;

    (void)state;
    setup(&b, "/later");
    b.target.timeout_ns = 400 * MR_NS_PER_MS;
    b.load.rate = 100;
    b.load.duration_ns = 500 * MR_NS_PER_MS;
    b.load.keeps_samples = true;
    run(&b);
    samples_add_up(b.result, 50);
    assert_int_equal(b.result->sent, 50);
    assert_int_equal(b.result->gave_up, 50);
    assert_int_equal(b.result->latency.total, 50);
    assert_int_equal(b.result->errors.count, 2);
    assert_true(b.result->waited > 0);
    release_later(&b.server);
    teardown(&b);
}

static void closed_connections_are_made_anew(void **state)
{
    struct bench b;

    (void)state;
    setup(&b, "/close");
    b.load.concurrency = 4;
    b.load.requests = 100;
    run(&b);
    assert_int_equal(b.result->answered, 100);
    teardown(&b);
}

static void nobody_listens(void **state)
{
    struct bench b;
    struct mr_err err = {0};

    (void)state;
    setup(&b, "/x");
    server_stop(&b.server);
    b.load.concurrency = 4;
    b.load.requests = 10;
    assert_int_equal(mr_perf_run(&b.target, &b.load, NULL, b.result, &err), MR_E_UNAVAILABLE);
    assert_non_null(strstr(err.msg, b.address));
    mr_free(b.result);
    mr_block_unref(&b.body.block);
}

/* ---- HTTP/2, gRPC, the end ---- */

static void grpc_with_streams(void **state)
{
    struct bench b;

    (void)state;
    setup(&b, "/inference.GRPCInferenceService/ModelInfer");
    b.target.grpc = b.target.http2 = true;
    b.load.concurrency = 9;
    b.load.connections = 2;
    b.load.streams = 8;
    b.load.requests = 400;
    run(&b);
    assert_int_equal(b.result->answered, 400);
    assert_int_equal(b.result->connections, 2);
    memset(b.result, 0, offsetof(struct mr_perf_result, windows));
    b.load.concurrency = 0;
    b.load.rate = 2000;
    run(&b);
    assert_int_equal(b.result->answered, 400);
    teardown(&b);
}

static void set_flag(void *ctx, const struct mr_perf_second *second)
{
    (void)second;
    atomic_store((atomic_bool *)ctx, true);
}

static void stopped_early(void **state)
{
    struct bench b;
    atomic_bool flag = false;
    struct mr_perf_hooks hooks = {.progress = set_flag, .ctx = &flag, .stop = &flag};
    struct mr_err err;

    (void)state;
    setup(&b, "/x");
    b.load.rate = 100;
    b.load.duration_ns = 3600 * MR_NS_PER_S;
    assert_int_equal(mr_perf_run(&b.target, &b.load, &hooks, b.result, &err), MR_OK);
    assert_true(b.result->sent >= 90);
    assert_int_equal(b.result->answered, b.result->sent);
    assert_true(b.result->seconds > 0.9 && b.result->seconds < 3000);
    teardown(&b);
}

/* Requests that had been sent when a closed loop that was stopped in its warm-up ended. */
static uint64_t sent_in_warmup(void)
{
    struct bench b;
    atomic_bool flag = true;
    const struct mr_perf_hooks hooks = {.stop = &flag};

    setup(&b, "/later");
    b.target.timeout_ns = 100 * MR_NS_PER_MS;
    b.load.concurrency = b.load.connections = 1;
    b.load.warmup_ns = b.load.duration_ns = 3600 * MR_NS_PER_S;
    assert_int_equal(mr_perf_run(&b.target, &b.load, &hooks, b.result, NULL), MR_OK);
    uint64_t sent = b.result->warmup_sent;
    assert_int_equal(b.result->sent, 0);
    teardown(&b);
    return sent;
}

static void stopped_in_the_warmup(void **state)
{
    (void)state;
    /* That it is to stop may be noticed later than an answer. */
    for (int tries = 1; sent_in_warmup() > 1; tries++) {
        assert_true(tries < 10);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(closed_loop_counts),
        cmocka_unit_test(threads_share_the_count),
        cmocka_unit_test(every_slot_of_the_time),
        cmocka_unit_test(poisson_counts),
        cmocka_unit_test(a_stall_is_in_every_slot),
        cmocka_unit_test(a_stall_is_in_every_slot_of_few_connections),
        cmocka_unit_test(failures_are_no_latencies),
        cmocka_unit_test(what_is_given_up_counts_with_its_time),
        cmocka_unit_test(unsent_slots_are_told),
        cmocka_unit_test(closed_connections_are_made_anew),
        cmocka_unit_test(nobody_listens),
        cmocka_unit_test(grpc_with_streams),
        cmocka_unit_test(stopped_early),
        cmocka_unit_test(stopped_in_the_warmup),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
