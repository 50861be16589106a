/* Submit, inline path, queue policies, cancellation, time-outs. */
#include <errno.h>
#include <sched.h>
#include <time.h>

#include "harness.h"
#include "sched/sched_priv.h"

/* The fault backend sleeps as it executes. While the gate is shut that sleep lasts until the test opens it, so that
 * an execution is under way for as long as a test needs, not for a time that a busy machine outlasts. */
static struct {
    pthread_mutex_t mutex;
    pthread_cond_t moved;
    bool is_shut;
    int inside;
} gate = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, false, 0};

__attribute__((visibility("default"))) int nanosleep(const struct timespec *ts,
                                                     struct timespec *rest)
{
    pthread_mutex_lock(&gate.mutex);
    bool is_shut = gate.is_shut;
    gate.inside++;
    pthread_cond_broadcast(&gate.moved);
    while (gate.is_shut) {
        pthread_cond_wait(&gate.moved, &gate.mutex);
    }
    gate.inside--;
    pthread_mutex_unlock(&gate.mutex);
    errno = is_shut ? 0 : clock_nanosleep(CLOCK_MONOTONIC, 0, ts, rest);
    return errno == 0 ? 0 : -1;
}

static void gate_set(bool is_shut)
{
    pthread_mutex_lock(&gate.mutex);
    gate.is_shut = is_shut;
    pthread_cond_broadcast(&gate.moved);
    pthread_mutex_unlock(&gate.mutex);
}

static void gate_wait(int inside)
{
    pthread_mutex_lock(&gate.mutex);
    while (gate.inside < inside) {
        pthread_cond_wait(&gate.moved, &gate.mutex);
    }
    pthread_mutex_unlock(&gate.mutex);
}

static bool has_idle_thread(struct harness *h)
{
    struct mr_sched *s = h->version.sched;

    pthread_mutex_lock(&s->mutex);
    bool is_there = s->idle_threads > 0;
    pthread_mutex_unlock(&s->mutex);
    return is_there;
}

static void wait_until_ns(int64_t until_ns)
{
    while (mr_now_ns() <= until_ns) {
        sched_yield();
    }
}

static void runs_and_counts(void **state)
{
    struct harness h;
    struct ask a;
    struct mr_sched_stats st;
    struct mr_batch_stat b;
    (void)state;

    harness_init(&h);
    harness_open(&h, "identity", NULL, 0);
    ask_init(&a, &h, 1, 7);
    assert_int_equal(ask_submit(&a), MR_OK); /* no threshold: never inline */
    ask_wait(&h, &a);
    ask_check(&a, 1);
    assert_true(a.infer.times.queued <= a.infer.times.start &&
                a.infer.times.start <= a.infer.times.infer_start);
    assert_true(a.infer.times.infer_start <= a.infer.times.infer_end &&
                a.infer.times.infer_end <= a.infer.times.end);
    ask_fini(&a);
    mr_sched_stats_sum(&h.version, &st);
    assert_int_equal(mr_count_get(&st.inference_count), 1);
    assert_int_equal(mr_count_get(&st.execution_count), 1);
    assert_int_equal(mr_count_get(&st.inline_count), 0);
    assert_int_equal(mr_count_get(&st.success.count), 1);
    assert_int_equal(mr_count_get(&st.closed[MR_CLOSE_SINGLE]), 1);
    assert_true(mr_sched_batch_stat(&h.version, 1, &b));
    assert_int_equal(mr_count_get(&b.compute_infer.count), 1);
    assert_false(mr_sched_batch_stat(&h.version, 2, &b));
    harness_close(&h);
}

/* Measured on an instance thread first, then run on the submitting thread. */
static void becomes_inline(void **state)
{
    struct harness h;
    struct ask a;
    struct mr_sched_stats st;
    (void)state;

    harness_init(&h);
    h.options.inline_threshold_ns = 3600 * MR_NS_PER_S;
    harness_open(&h, "identity", NULL, 0);
    ask_init(&a, &h, 1, 1);
    assert_int_equal(ask_submit(&a), MR_OK);
    ask_wait(&h, &a);
    ask_fini(&a);
    for (int i = 0; i < 5; i++) {
        ask_init(&a, &h, 1, i);
        assert_int_equal(ask_submit(&a), MR_SCHED_DONE);
        ask_check(&a, 1);
        ask_fini(&a);
    }
    mr_sched_stats_sum(&h.version, &st);
    assert_int_equal(mr_count_get(&st.inline_count), 5);
    assert_int_equal(mr_count_get(&st.execution_count), 6);
    harness_close(&h);
}

static int submit_in_round(struct harness *h, int64_t round_ns)
{
    struct ask a;

    ask_init(&a, h, 1, 1);
    a.infer.round_ns = round_ns;
    int rc = ask_submit(&a);
    if (rc == MR_OK) {
        ask_wait(h, &a);
    }
    ask_check(&a, 1);
    ask_fini(&a);
    return rc;
}

/* A round has so much time for executions, however long it lasts by the rest of its work. */
static void executions_of_a_round_are_bounded(void **state)
{
    struct harness h;
    int64_t long_ago_ns = mr_now_ns() - 3600 * MR_NS_PER_S;
    int64_t taken_ns;
    (void)state;

    harness_init(&h);
    h.options.inline_threshold_ns = 3600 * MR_NS_PER_S;
    harness_open(&h, "identity", NULL, 0);
    assert_int_equal(submit_in_round(&h, 0), MR_OK);
    assert_int_equal(submit_in_round(&h, long_ago_ns), MR_SCHED_DONE);
    assert_int_equal(h.reply_loop.round_ns, long_ago_ns);
    taken_ns = h.reply_loop.inline_ns;
    assert_true(taken_ns > 0);
    h.reply_loop.inline_ns = 0; /* on a busy machine it may have taken all there is */
    assert_int_equal(submit_in_round(&h, long_ago_ns), MR_SCHED_DONE);
    h.reply_loop.inline_ns = MR_NS_PER_S;
    assert_int_equal(submit_in_round(&h, long_ago_ns), MR_OK);
    assert_int_equal(submit_in_round(&h, long_ago_ns + 1), MR_SCHED_DONE); /* the next round */
    harness_close(&h);
}

/* One execution that lasts far longer than usual leaves the round to the others; two do not. */
static void one_preempted_execution_ends_no_round(void **state)
{
    struct harness h;
    const struct mr_setting slow[] = {{"execute_delay_ms", "6"}};
    int64_t long_ago_ns = mr_now_ns() - 3600 * MR_NS_PER_S, usual_ns = 1000;
    (void)state;

    harness_init(&h);
    h.options.inline_threshold_ns = 3600 * MR_NS_PER_S;
    harness_open(&h, "identity", slow, 1);
    assert_int_equal(submit_in_round(&h, 0), MR_OK);
    assert_int_equal(submit_in_round(&h, 0), MR_SCHED_DONE);
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < COST_BUCKETS; i++) {
            stats_slot_get(h.version.sched, h.reply_loop.epoch_slot)->cost_ns[i] = usual_ns;
        }
        assert_int_equal(submit_in_round(&h, long_ago_ns + round), MR_SCHED_DONE);
        assert_true(h.reply_loop.inline_ns <= 8 * usual_ns);
        assert_int_equal(submit_in_round(&h, long_ago_ns + round), MR_SCHED_DONE);
        assert_true(h.reply_loop.inline_ns > 5 * MR_NS_PER_MS);
        assert_int_equal(submit_in_round(&h, long_ago_ns + round), MR_OK);
    }
    harness_close(&h);
}

static void slow_models_stay_queued(void **state)
{
    struct harness h;
    struct ask a;
    const struct mr_setting slow[] = {{"execute_delay_ms", "5"}};
    (void)state;

    harness_init(&h);
    h.options.inline_threshold_ns = 100 * MR_NS_PER_US;
    harness_open(&h, "identity", slow, 1);
    for (int i = 0; i < 3; i++) {
        ask_init(&a, &h, 1, i);
        assert_int_equal(ask_submit(&a), MR_OK);
        ask_wait(&h, &a);
        ask_check(&a, 1);
        ask_fini(&a);
    }
    harness_close(&h);
}

/* Both requests come while one thread is idle; the second instance starts for what it leaves. They run side by side:
 * the gate opens when both are inside. */
static void instances_share_a_burst(void **state)
{
    const struct mr_setting slow[] = {{"delay_ms", "1"}};
    struct harness h;
    struct ask a[2];
    (void)state;

    harness_init(&h);
    h.group.count = 2;
    harness_open(&h, "fault", slow, 1);
    ask_init(&a[0], &h, 1, 0);
    ask_submit(&a[0]);
    ask_wait(&h, &a[0]);
    ask_fini(&a[0]);
    while (!has_idle_thread(&h)) {
        sched_yield();
    }
    gate_set(true);
    ask_init(&a[0], &h, 1, 0);
    ask_init(&a[1], &h, 1, 1);
    ask_submit(&a[0]);
    ask_submit(&a[1]);
    gate_wait(2);
    gate_set(false);
    ask_wait(&h, &a[0]);
    ask_wait(&h, &a[1]);
    ask_check(&a[0], 1);
    ask_check(&a[1], 1);
    ask_fini(&a[0]);
    ask_fini(&a[1]);
    harness_close(&h);
}

static void backend_failure_is_told(void **state)
{
    struct harness h;
    struct ask a;
    struct mr_sched_stats st;
    const struct mr_setting bad[] = {{"fail_status", "UNAVAILABLE"}, {"fail_message", "no luck"}};
    (void)state;

    harness_init(&h);
    harness_open(&h, "fault", bad, 2);
    ask_init(&a, &h, 1, 1);
    ask_submit(&a);
    ask_wait(&h, &a);
    assert_int_equal(a.infer.status, MR_E_UNAVAILABLE);
    assert_non_null(strstr(a.infer.err.msg, "no luck"));
    ask_fini(&a);
    mr_sched_stats_sum(&h.version, &st);
    assert_int_equal(mr_count_get(&st.failed[MR_FAIL_BACKEND]), 1);
    assert_int_equal(mr_count_get(&st.inference_count), 0);
    harness_close(&h);
}

static void wrong_outputs_are_internal_errors(void **state)
{
    static const char *const faults[] = {"wrong_size",     "wrong_dtype",  "wrong_rank",
                                         "missing_output", "negative_dim", "twice",
                                         "bad_index"};
    (void)state;

    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        const struct mr_setting bad[] = {{faults[i], "true"}};
        struct harness h;
        struct ask a;
        harness_init(&h);
        harness_open(&h, "fault", bad, 1);
        ask_init(&a, &h, 1, 1);
        ask_submit(&a);
        ask_wait(&h, &a);
        if (a.infer.status == MR_OK) {
            fail_msg("%s was not noticed", faults[i]);
        }
        ask_fini(&a);
        harness_close(&h);
    }
}

/* Fills the queue after a request that runs until the gate is opened: queued requests stay until then. */
static void open_slow(struct harness *h, struct ask *blocker)
{
    const struct mr_setting slow[] = {{"delay_ms", "1"}};

    harness_open(h, "fault", slow, 1);
    gate_set(true);
    ask_init(blocker, h, 1, 0);
    assert_int_equal(ask_submit(blocker), MR_OK);
    gate_wait(1);
}

static void cancel_takes_out_of_the_queue(void **state)
{
    struct harness h;
    struct ask blocker, a, b;
    struct mr_sched_stats st;
    (void)state;

    harness_init(&h);
    open_slow(&h, &blocker);
    ask_init(&a, &h, 1, 1);
    ask_init(&b, &h, 1, 2);
    ask_submit(&a);
    ask_submit(&b);
    assert_true(mr_sched_cancel(&a.infer));
    assert_int_equal(a.infer.status, MR_E_CANCELLED);
    assert_int_equal(mr_sched_pending(&h.version), 1);
    assert_false(mr_sched_cancel(&blocker.infer)); /* it runs */
    gate_set(false);
    ask_wait(&h, &b);
    ask_check(&b, 1);
    assert_true(blocker.is_done);
    assert_false(a.is_done);
    ask_fini(&a);
    ask_fini(&b);
    ask_fini(&blocker);
    mr_sched_stats_sum(&h.version, &st);
    assert_int_equal(mr_count_get(&st.failed[MR_FAIL_CANCELED]), 1);
    assert_int_equal(mr_count_get(&st.execution_count), 2);
    harness_close(&h);
}

static void full_queue_refuses(void **state)
{
    struct harness h;
    struct ask blocker, a, b;
    (void)state;

    harness_init(&h);
    h.options.max_queue_size = 1;
    open_slow(&h, &blocker);
    ask_init(&a, &h, 1, 1);
    ask_init(&b, &h, 1, 2);
    assert_int_equal(mr_sched_submit(&a.infer), MR_OK);
    assert_int_equal(mr_sched_submit(&b.infer), MR_E_UNAVAILABLE);
    assert_string_equal(b.infer.err.msg, "Exceeds maximum queue size (1: --max-queue-size)");
    gate_set(false);
    ask_wait(&h, &a);
    ask_fini(&a);
    ask_fini(&b);
    ask_fini(&blocker);
    harness_close(&h);
}

/* A request whose client does not read comes back without having run, and can be submitted again. */
static void unread_comes_back(void **state)
{
    struct harness h;
    struct ask blocker, a, b;
    _Atomic bool is_unread = true;
    struct mr_sched_stats st;
    (void)state;

    harness_init(&h);
    open_slow(&h, &blocker);
    ask_init(&a, &h, 1, 1);
    ask_init(&b, &h, 1, 2);
    a.infer.is_unread = &is_unread;
    assert_int_equal(ask_submit(&a), MR_OK);
    assert_int_equal(ask_submit(&b), MR_OK);
    gate_set(false);
    ask_wait(&h, &a);
    ask_wait(&h, &b);
    ask_check(&b, 1);
    assert_int_equal(a.infer.status, MR_SCHED_UNREAD);
    assert_false(mr_sched_cancel(&a.infer));
    is_unread = false;
    a.is_done = false;
    ask_submit(&a);
    ask_wait(&h, &a);
    ask_check(&a, 1);
    ask_fini(&a);
    ask_fini(&b);
    ask_fini(&blocker);
    mr_sched_stats_sum(&h.version, &st);
    assert_int_equal(mr_count_get(&st.execution_count), 3);
    harness_close(&h);
}

/* Without a thread to run it the request is refused, and the next one tries again. */
static void no_thread_to_be_had(void **state)
{
    struct harness h;
    struct ask a;
    (void)state;

    harness_init(&h);
    harness_open(&h, "identity", NULL, 0);
    for (int i = 0; i < 2; i++) {
        ask_init(&a, &h, 1, 1);
        mr_mem_fail_after(1);
        assert_int_equal(ask_submit(&a), MR_E_UNAVAILABLE);
        mr_mem_fail_after(0);
        assert_int_equal(a.infer.status, MR_E_UNAVAILABLE);
        assert_int_equal(a.infer.err.flags, MR_ERR_RETRYABLE);
        assert_non_null(strstr(a.infer.err.msg, "no thread to run the model on"));
        assert_int_equal(mr_sched_pending(&h.version), 0);
        ask_fini(&a);
    }
    ask_init(&a, &h, 1, 1);
    assert_int_equal(ask_submit(&a), MR_OK);
    ask_wait(&h, &a);
    ask_check(&a, 1);
    ask_fini(&a);
    harness_close(&h);
}

/* A second thread that cannot be started leaves its work to the first. */
static void one_thread_is_enough(void **state)
{
    const struct mr_setting slow[] = {{"delay_ms", "1"}};
    struct harness h;
    struct ask a[3];
    (void)state;

    harness_init(&h);
    h.group.count = 2;
    harness_open(&h, "fault", slow, 1);
    for (int i = 0; i < 3; i++) {
        ask_init(&a[i], &h, 1, i);
    }
    gate_set(true);
    assert_int_equal(ask_submit(&a[0]), MR_OK);
    gate_wait(1); /* it runs, and allocates nothing */
    mr_mem_fail_after(1);
    assert_int_equal(ask_submit(&a[1]), MR_OK);
    mr_mem_fail_after(1);
    assert_int_equal(ask_submit(&a[2]), MR_OK);
    mr_mem_fail_after(0);
    gate_set(false);
    for (int i = 0; i < 3; i++) {
        ask_wait(&h, &a[i]);
        ask_check(&a[i], 1);
        ask_fini(&a[i]);
    }
    harness_close(&h);
}

/* A deadline that passes while queued: reported by the reply loop's timer, not run. */
static void deadline_in_the_queue(void **state)
{
    struct harness h;
    struct ask blocker, a;
    struct mr_sched_stats st;
    (void)state;

    harness_init(&h);
    open_slow(&h, &blocker);
    ask_init(&a, &h, 1, 1);
    a.infer.deadline_ns = mr_now_ns() + MR_NS_PER_MS;
    assert_int_equal(mr_sched_submit(&a.infer), MR_OK);
    assert_in_range(a.infer.deadline_ns - a.infer.expire_ns, 1, MR_NS_PER_MS / 4);
    wait_until_ns(a.infer.expire_ns);
    assert_true(mr_sched_expire(&a.infer));
    assert_int_equal(a.infer.status, MR_E_DEADLINE);
    gate_set(false);
    ask_wait(&h, &blocker);
    ask_fini(&a);
    ask_fini(&blocker);
    mr_sched_stats_sum(&h.version, &st);
    assert_int_equal(mr_count_get(&st.execution_count), 1);
    harness_close(&h);
}

/* What is left for the way to the client is no more than 20 ms, however long the deadline. */
static void reserve_of_a_long_deadline(void **state)
{
    struct harness h;
    struct ask blocker, a;
    (void)state;

    harness_init(&h);
    open_slow(&h, &blocker);
    ask_init(&a, &h, 1, 1);
    a.infer.deadline_ns = mr_now_ns() + 3600 * MR_NS_PER_S;
    assert_int_equal(mr_sched_submit(&a.infer), MR_OK);
    assert_int_equal(a.infer.deadline_ns - a.infer.expire_ns, 20 * MR_NS_PER_MS);
    gate_set(false);
    ask_wait(&h, &a);
    ask_check(&a, 1);
    ask_wait(&h, &blocker);
    ask_fini(&a);
    ask_fini(&blocker);
    harness_close(&h);
}

/* The same without anybody asking: the instance thread throws it out. */
static void deadline_found_by_the_instance(void **state)
{
    struct harness h;
    struct ask blocker, a;
    (void)state;

    harness_init(&h);
    open_slow(&h, &blocker);
    ask_init(&a, &h, 1, 1);
    a.infer.deadline_ns = mr_now_ns() + MR_NS_PER_MS;
    assert_int_equal(mr_sched_submit(&a.infer), MR_OK);
    wait_until_ns(a.infer.deadline_ns);
    gate_set(false);
    ask_wait(&h, &a);
    assert_int_equal(a.infer.status, MR_E_DEADLINE);
    ask_wait(&h, &blocker);
    ask_fini(&a);
    ask_fini(&blocker);
    harness_close(&h);
}

static void queue_policy_timeout(void **state)
{
    struct harness h;
    struct ask blocker, a, b;
    Inference__ModelQueuePolicy policy = INFERENCE__MODEL_QUEUE_POLICY__INIT;
    (void)state;

    policy.default_timeout_microseconds = 0;
    policy.allow_timeout_override = true;
    harness_init(&h);
    harness_batching(&h, 1, 0);
    h.batching.default_queue_policy = &policy;
    open_slow(&h, &blocker);
    ask_init(&a, &h, 1, 1);
    a.infer.timeout_us = 1000; /* honoured although the policy has no default */
    ask_init(&b, &h, 1, 2);
    ask_submit(&a);
    ask_submit(&b);
    wait_until_ns(a.infer.times.queued + MR_NS_PER_MS);
    gate_set(false);
    ask_wait(&h, &a);
    assert_int_equal(a.infer.status, MR_E_UNAVAILABLE);
    assert_string_equal(a.infer.err.msg, "Request timeout expired");
    ask_wait(&h, &b);
    ask_check(&b, 1);
    ask_fini(&a);
    ask_fini(&b);
    ask_fini(&blocker);
    harness_close(&h);
}

static void delayed_requests_go_behind(void **state)
{
    struct harness h;
    struct ask blocker, a, b;
    Inference__ModelQueuePolicy policy = INFERENCE__MODEL_QUEUE_POLICY__INIT;
    (void)state;

    policy.allow_timeout_override = true;
    policy.timeout_action = INFERENCE__MODEL_QUEUE_POLICY__TIMEOUT_ACTION__DELAY;
    harness_init(&h);
    harness_batching(&h, 1, 0);
    h.batching.default_queue_policy = &policy;
    open_slow(&h, &blocker);
    ask_init(&a, &h, 1, 1);
    a.infer.timeout_us = 1;
    ask_init(&b, &h, 1, 2);
    ask_submit(&a);
    ask_submit(&b);
    wait_until_ns(a.infer.times.queued + MR_NS_PER_US);
    gate_set(false);
    ask_wait(&h, &a);
    assert_true(b.is_done && b.order < a.order);
    ask_check(&a, 1);
    ask_check(&b, 1);
    ask_fini(&a);
    ask_fini(&b);
    ask_fini(&blocker);
    harness_close(&h);
}

static void priorities_go_first(void **state)
{
    struct harness h;
    struct ask blocker, low, high, none;
    (void)state;

    harness_init(&h);
    harness_batching(&h, 1, 0);
    h.batching.priority_levels = 3;
    h.batching.default_priority_level = 2;
    open_slow(&h, &blocker);
    ask_init(&low, &h, 1, 1);
    ask_init(&none, &h, 1, 2);
    ask_init(&high, &h, 1, 3);
    low.infer.priority = 3;
    high.infer.priority = 1;
    ask_submit(&low);
    ask_submit(&none);
    ask_submit(&high);
    gate_set(false);
    ask_wait(&h, &low);
    assert_true(high.order < none.order && none.order < low.order);
    ask_fini(&low);
    ask_fini(&none);
    ask_fini(&high);
    ask_fini(&blocker);
    harness_close(&h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(runs_and_counts),
        cmocka_unit_test(becomes_inline),
        cmocka_unit_test(executions_of_a_round_are_bounded),
        cmocka_unit_test(one_preempted_execution_ends_no_round),
        cmocka_unit_test(slow_models_stay_queued),
        cmocka_unit_test(instances_share_a_burst),
        cmocka_unit_test(backend_failure_is_told),
        cmocka_unit_test(wrong_outputs_are_internal_errors),
        cmocka_unit_test(cancel_takes_out_of_the_queue),
        cmocka_unit_test(full_queue_refuses),
        cmocka_unit_test(unread_comes_back),
        cmocka_unit_test(no_thread_to_be_had),
        cmocka_unit_test(one_thread_is_enough),
        cmocka_unit_test(deadline_in_the_queue),
        cmocka_unit_test(reserve_of_a_long_deadline),
        cmocka_unit_test(deadline_found_by_the_instance),
        cmocka_unit_test(queue_policy_timeout),
        cmocka_unit_test(delayed_requests_go_behind),
        cmocka_unit_test(priorities_go_first),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
