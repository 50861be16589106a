/* Forming batches, joining inputs, cutting outputs apart, warm-up. */
#include "harness.h"
#include "sched/sched_priv.h"

/* Hold the queue until `n` requests wait, so that what is in a batch does not depend on timing. */
static void hold(struct harness *h, uint32_t n)
{
    h->options.hold_until_queued = n;
}

static uint64_t executions(struct harness *h)
{
    struct mr_sched_stats st;

    mr_sched_stats_sum(&h->version, &st);
    return mr_count_get(&st.execution_count);
}

static uint64_t closed(struct harness *h, enum mr_close_reason r)
{
    struct mr_sched_stats st;

    mr_sched_stats_sum(&h->version, &st);
    return mr_count_get(&st.closed[r]);
}

/* What the test changes or reads of the scheduler's own, between two requests. */
static void set_delay(struct harness *h, int64_t delay_ns)
{
    struct mr_sched *s = h->version.sched;

    pthread_mutex_lock(&s->mutex);
    s->max_delay_ns = delay_ns;
    pthread_mutex_unlock(&s->mutex);
}

static bool is_forming(struct harness *h)
{
    struct mr_sched *s = h->version.sched;

    pthread_mutex_lock(&s->mutex);
    bool is_forming = s->is_forming;
    pthread_mutex_unlock(&s->mutex);
    return is_forming;
}

static unsigned empty_waits(struct harness *h)
{
    struct mr_sched *s = h->version.sched;

    pthread_mutex_lock(&s->mutex);
    unsigned n = s->empty_waits;
    pthread_mutex_unlock(&s->mutex);
    return n;
}

/* Returns when it was submitted at the latest. */
static int64_t ask_alone(struct harness *h, int32_t first)
{
    struct ask a;

    ask_init(&a, h, 1, first);
    ask_submit(&a);
    int64_t submitted_ns = mr_now_ns();
    ask_wait(h, &a);
    ask_check(&a, 1);
    ask_fini(&a);
    return submitted_ns;
}

static void joins_and_cuts(void **state)
{
    struct harness h;
    struct ask a[4];
    struct mr_batch_stat b;
    const int rows[4] = {1, 3, 2, 2};
    (void)state;

    harness_init(&h);
    harness_batching(&h, 8, 0);
    hold(&h, 4);
    harness_open(&h, "identity", NULL, 0);
    for (int i = 0; i < 4; i++) {
        ask_init(&a[i], &h, rows[i], 100 * i);
        assert_int_equal(ask_submit(&a[i]), MR_OK);
    }
    for (int i = 0; i < 4; i++) {
        ask_wait(&h, &a[i]);
        ask_check(&a[i], rows[i]);
        assert_int_equal(mr_infer_output(&a[i].infer, 0)->tensor.shape[0], rows[i]);
        ask_fini(&a[i]);
    }
    assert_int_equal(executions(&h), 1);
    assert_int_equal(closed(&h, MR_CLOSE_FULL), 1);
    assert_true(mr_sched_batch_stat(&h.version, 8, &b));
    harness_close(&h);
}

/* Outputs over 8 KiB are shared by reference, not copied. */
static void large_outputs_share_one_block(void **state)
{
    static const int64_t dims[] = {2000};
    static int32_t data[2][2000];
    struct harness h;
    struct ask a[2];
    int64_t shape[2] = {1, 2000};
    (void)state;

    harness_init(&h);
    h.inputs[0].dims = h.outputs[0].dims = dims;
    harness_batching(&h, 2, 0);
    hold(&h, 2);
    harness_open(&h, "identity", NULL, 0);
    for (int i = 0; i < 2; i++) {
        struct harness_input in = {.name = MR_STR("X"),
                                   .tensor = {.dtype = MR_DTYPE_INT32,
                                              .rank = 2,
                                              .shape = shape,
                                              .data = data[i],
                                              .bytes = sizeof data[i]}};
        const struct mr_infer_args q = harness_args(&in, 1);
        memset(&a[i], 0, sizeof a[i]);
        mr_arena_init(&a[i].arena, 4096, 1u << 16);
        for (int k = 0; k < 2000; k++) {
            data[i][k] = i * 10000 + k;
        }
        a[i].infer = (struct mr_infer){.version = &h.version,
                                       .arena = &a[i].arena,
                                       .reply_loop = &h.reply_loop,
                                       .on_done = ask_done,
                                       .user = &a[i]};
        mr_version_pin(&h.version, 0);
        assert_int_equal(mr_infer_validate(&a[i].infer, &q, NULL), MR_OK);
        ask_submit(&a[i]);
    }
    for (int i = 0; i < 2; i++) {
        ask_wait(&h, &a[i]);
        assert_int_equal(a[i].infer.status, MR_OK);
        assert_non_null(mr_infer_output(&a[i].infer, 0)->block);
        assert_memory_equal(mr_infer_output(&a[i].infer, 0)->tensor.data, data[i], sizeof data[i]);
    }
    assert_ptr_equal(mr_infer_output(&a[0].infer, 0)->block,
                     mr_infer_output(&a[1].infer, 0)->block);
    ask_fini(&a[0]);
    ask_fini(&a[1]);
    harness_close(&h);
}

static void bytes_are_cut_by_element(void **state)
{
    static const int64_t dims[] = {2};
    static char data[2][16] = {"\1\0\0\0a\3\0\0\0bcd", "\0\0\0\0\2\0\0\0xy"};
    const uint64_t sizes[2] = {12, 10};
    struct harness h;
    struct ask a[2];
    int64_t shape[2] = {1, 2};
    (void)state;

    harness_init(&h);
    h.inputs[0].dims = h.outputs[0].dims = dims;
    h.inputs[0].dtype = h.outputs[0].dtype = MR_DTYPE_BYTES;
    harness_batching(&h, 2, 0);
    hold(&h, 2);
    harness_open(&h, "identity", NULL, 0);
    for (int i = 0; i < 2; i++) {
        struct harness_input in = {.name = MR_STR("X"),
                                   .tensor = {.dtype = MR_DTYPE_BYTES,
                                              .rank = 2,
                                              .shape = shape,
                                              .data = data[i],
                                              .bytes = sizes[i]}};
        const struct mr_infer_args q = harness_args(&in, 1);
        memset(&a[i], 0, sizeof a[i]);
        mr_arena_init(&a[i].arena, 4096, 1u << 16);
        a[i].infer = (struct mr_infer){.version = &h.version,
                                       .arena = &a[i].arena,
                                       .reply_loop = &h.reply_loop,
                                       .on_done = ask_done,
                                       .user = &a[i]};
        mr_version_pin(&h.version, 0);
        assert_int_equal(mr_infer_validate(&a[i].infer, &q, NULL), MR_OK);
        ask_submit(&a[i]);
    }
    for (int i = 0; i < 2; i++) {
        ask_wait(&h, &a[i]);
        assert_int_equal(a[i].infer.status, MR_OK);
        assert_int_equal(mr_infer_output(&a[i].infer, 0)->tensor.bytes, sizes[i]);
        assert_memory_equal(mr_infer_output(&a[i].infer, 0)->tensor.data, data[i], sizes[i]);
        ask_fini(&a[i]);
    }
    assert_int_equal(executions(&h), 1);
    harness_close(&h);
}

static void what_does_not_fit_waits(void **state)
{
    struct harness h;
    struct ask a[3];
    (void)state;

    harness_init(&h);
    harness_batching(&h, 4, 0);
    hold(&h, 3);
    harness_open(&h, "identity", NULL, 0);
    for (int i = 0; i < 3; i++) {
        ask_init(&a[i], &h, 3, i);
        ask_submit(&a[i]);
    }
    for (int i = 0; i < 3; i++) {
        ask_wait(&h, &a[i]);
        ask_check(&a[i], 3);
        ask_fini(&a[i]);
    }
    assert_int_equal(executions(&h), 3);
    assert_int_equal(closed(&h, MR_CLOSE_FULL), 2);
    harness_close(&h);
}

static void preferred_sizes(void **state)
{
    struct harness h;
    struct ask a[5];
    int32_t sizes[] = {2, 4};
    struct mr_batch_stat b;
    (void)state;

    harness_init(&h);
    harness_batching(&h, 8, 60 * 1000 * 1000);
    h.batching.preferred_batch_size = sizes;
    h.batching.n_preferred_batch_size = 2;
    hold(&h, 5);
    harness_open(&h, "identity", NULL, 0);
    for (int i = 0; i < 5; i++) {
        ask_init(&a[i], &h, 1, i);
        ask_submit(&a[i]);
    }
    for (int i = 0; i < 4; i++) {
        ask_wait(&h, &a[i]);
        ask_check(&a[i], 1);
    }
    assert_true(mr_sched_batch_stat(&h.version, 4, &b));
    /* The fifth may go at once or wait for company; take it out either way. */
    if (!a[4].is_done && !mr_sched_cancel(&a[4].infer)) {
        ask_wait(&h, &a[4]);
    }
    for (int i = 0; i < 5; i++) {
        ask_fini(&a[i]);
    }
    assert_int_equal(closed(&h, MR_CLOSE_PREFERRED), 1);
    harness_close(&h);
}

/* More rows than the largest preferred size: the delay could bring nothing better. */
static void larger_than_preferred(void **state)
{
    struct harness h;
    struct ask a;
    int32_t sizes[] = {2, 6};
    (void)state;

    harness_init(&h);
    harness_batching(&h, 8, 60 * 1000 * 1000);
    h.batching.preferred_batch_size = sizes;
    h.batching.n_preferred_batch_size = 2;
    harness_open(&h, "identity", NULL, 0);
    ask_init(&a, &h, 7, 0);
    ask_submit(&a);
    ask_wait(&h, &a);
    ask_check(&a, 7);
    ask_fini(&a);
    assert_int_equal(closed(&h, MR_CLOSE_PREFERRED), 1);
    harness_close(&h);
}

/* The largest preferred size that the queue reaches, although it has more and no request has to wait. */
static void preferred_size_of_a_longer_queue(void **state)
{
    struct harness h;
    struct ask a[7];
    int32_t sizes[] = {6, 2};
    struct mr_batch_stat b;
    (void)state;

    harness_init(&h);
    harness_batching(&h, 8, 0);
    h.batching.preferred_batch_size = sizes;
    h.batching.n_preferred_batch_size = 2;
    hold(&h, 7);
    harness_open(&h, "identity", NULL, 0);
    for (int i = 0; i < 7; i++) {
        ask_init(&a[i], &h, 1, i);
        ask_submit(&a[i]);
    }
    for (int i = 0; i < 7; i++) {
        ask_wait(&h, &a[i]);
        ask_check(&a[i], 1);
        ask_fini(&a[i]);
    }
    assert_true(mr_sched_batch_stat(&h.version, 6, &b));
    assert_true(mr_sched_batch_stat(&h.version, 1, &b));
    harness_close(&h);
}

/* The thread that waits for its batch to fill is notified of a preferred size, and of a deadline before the end of the
 * delay. The delay is so long that a thread without the notification closes the batch for another reason. */
static void waiting_ends_early(void **state)
{
    int32_t sizes[] = {2};
    (void)state;

    for (int with_deadline = 0; with_deadline < 2; with_deadline++) {
        struct harness h;
        struct ask a[2];
        harness_init(&h);
        harness_batching(&h, 8, 30 * 1000 * 1000);
        h.batching.preferred_batch_size = sizes;
        h.batching.n_preferred_batch_size = with_deadline ? 0 : 1;
        harness_open(&h, "identity", NULL, 0);
        ask_init(&a[0], &h, 1, 0);
        ask_init(&a[1], &h, 1, 1);
        ask_submit(&a[0]);
        while (!is_forming(&h)) {
            sched_yield();
        }
        if (with_deadline) {
            a[1].infer.deadline_ns = mr_now_ns() + 20 * MR_NS_PER_S;
        }
        ask_submit(&a[1]);
        ask_wait(&h, &a[0]);
        ask_wait(&h, &a[1]);
        ask_check(&a[1], 1);
        assert_int_equal(closed(&h, with_deadline ? MR_CLOSE_DEADLINE : MR_CLOSE_PREFERRED), 1);
        ask_fini(&a[0]);
        ask_fini(&a[1]);
        harness_close(&h);
    }
}

/* A fresh model waits as configured; once it has learnt that no other request comes, a single client does not wait. A
 * thread that sees its first request only after the delay has not waited and learns nothing; then the test repeats. A
 * request after an idle second proves nothing either. */
static void lone_client_learns(void **state)
{
    struct harness h;
    uint64_t sent = 0;
    int64_t last_ns, begin_ns;
    (void)state;

    harness_init(&h);
    harness_batching(&h, 8, 20 * 1000);
    harness_open(&h, "identity", NULL, 0);
    do {
        last_ns = mr_now_ns();
        ask_alone(&h, 0);
        assert_int_equal(closed(&h, MR_CLOSE_DELAY), ++sent);
    } while (empty_waits(&h) == 0);
    set_delay(&h, 600 * MR_NS_PER_S);
    for (int seen = 0; seen < 9; last_ns = begin_ns) {
        uint64_t company = closed(&h, MR_CLOSE_NO_COMPANY);
        begin_ns = mr_now_ns();
        if (ask_alone(&h, seen) - last_ns < EXPECTED_ROWS_MEMORY_NS) {
            assert_int_equal(closed(&h, MR_CLOSE_NO_COMPANY), company + 1);
            seen++;
        }
    }
    harness_close(&h);
}

/* The delay counts from the oldest request, not from the first in line: one of low priority is not put off by those
 * that overtake it. */
static void delay_counts_from_the_oldest(void **state)
{
    struct harness h;
    struct ask low, high, last;
    struct batch_plan plan;
    (void)state;

    harness_init(&h);
    harness_batching(&h, 8, 300 * 1000);
    h.batching.priority_levels = 2;
    h.batching.default_priority_level = 1;
    hold(&h, 3);
    harness_open(&h, "identity", NULL, 0);
    ask_init(&low, &h, 1, 1);
    ask_init(&high, &h, 1, 2);
    ask_init(&last, &h, 1, 3);
    low.infer.priority = 2;
    ask_submit(&low);
    ask_submit(&high);
    struct mr_sched *s = h.version.sched;
    pthread_mutex_lock(&s->mutex);
    low.infer.times.queued = high.infer.times.queued - 200 * MR_NS_PER_MS;
    s->gap_ns = 0; /* the delay alone decides */
    int64_t end_ns = low.infer.times.queued + 300 * MR_NS_PER_MS;
    instance_form_batch(s, end_ns - 1, &plan);
    assert_false(plan.is_ready);
    assert_int_equal(plan.wait_until_ns, end_ns);
    instance_form_batch(s, end_ns, &plan);
    assert_true(plan.is_ready);
    assert_int_equal(plan.count, 2);
    assert_int_equal(plan.reason, MR_CLOSE_DELAY);
    pthread_mutex_unlock(&s->mutex);
    ask_submit(&last);
    ask_wait(&h, &low);
    ask_wait(&h, &high);
    ask_wait(&h, &last);
    ask_fini(&low);
    ask_fini(&high);
    ask_fini(&last);
    harness_close(&h);
}

/* Costs in the scheduler's figures, as if executions of so many bytes had taken so long. */
static void set_cost(struct harness *h, uint64_t bytes, int64_t ns)
{
    struct mr_sched *s = h->version.sched;

    pthread_mutex_lock(&s->mutex);
    cost_add_queued(s, bytes, ns);
    pthread_mutex_unlock(&s->mutex);
}

/* No request waits for company for so long that it would be too late to run it. Seconds, so that a stall of the machine
 * changes nothing: a delay of 50, and executions of 100, which have to begin 125 before the deadline. */
static void waiting_ends_before_the_last_start(void **state)
{
    static const struct {
        int64_t deadline_s, waits_s;
        enum mr_close_reason reason;
    } cases[] = {{110, 0, MR_CLOSE_DEADLINE},
                 {160, 0, MR_CLOSE_DEADLINE},
                 {200, 25, MR_CLOSE_DEADLINE},
                 {300, 50, MR_CLOSE_DELAY}};
    struct harness h;
    struct ask a;
    struct batch_plan plan;
    (void)state;

    harness_init(&h);
    harness_batching(&h, 8, 50 * 1000 * 1000);
    hold(&h, 2);
    harness_open(&h, "identity", NULL, 0);
    set_cost(&h, 8, 100 * MR_NS_PER_S);
    struct mr_sched *s = h.version.sched;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ask_init(&a, &h, 1, 0);
        a.infer.deadline_ns = mr_now_ns() + cases[i].deadline_s * MR_NS_PER_S;
        assert_int_equal(ask_submit(&a), MR_OK);
        pthread_mutex_lock(&s->mutex);
        s->gap_ns = 0; /* the deadline and the delay decide */
        const int64_t end_ns = a.infer.times.queued + cases[i].waits_s * MR_NS_PER_S;
        instance_form_batch(s, end_ns - 10 * MR_NS_PER_S, &plan);
        assert_int_equal(plan.is_ready, cases[i].waits_s == 0);
        assert_true(plan.wait_until_ns <= end_ns);
        instance_form_batch(s, end_ns, &plan);
        assert_true(plan.is_ready);
        assert_int_equal(plan.reason, cases[i].reason);
        pthread_mutex_unlock(&s->mutex);
        assert_true(mr_sched_cancel(&a.infer));
        ask_fini(&a);
    }
    harness_close(&h);
}

/* A deadline is kept by what the batch takes that the request will be part of: by itself, with two, and with more than a
 * batch has. Batches of four rows have not run: those of two count, as the next smaller ones. */
static void last_start_by_the_batch(void **state)
{
    static const int64_t cost_s[] = {100, 200, 200, 200, 200, 200, 200, 800, 800, 800};
    enum { COUNT = sizeof cost_s / sizeof *cost_s };
    struct harness h;
    struct ask a[COUNT];
    (void)state;

    harness_init(&h);
    harness_batching(&h, 8, 0);
    hold(&h, COUNT + 1);
    harness_open(&h, "identity", NULL, 0);
    set_cost(&h, 8, 100 * MR_NS_PER_S);
    set_cost(&h, 16, 200 * MR_NS_PER_S);
    set_cost(&h, 64, 800 * MR_NS_PER_S);
    for (int i = 0; i < COUNT; i++) {
        ask_init(&a[i], &h, 1, i);
        a[i].infer.deadline_ns = mr_now_ns() + 3600 * MR_NS_PER_S;
        assert_int_equal(ask_submit(&a[i]), MR_OK);
        assert_int_equal(a[i].infer.deadline_ns - a[i].infer.start_by_ns,
                         cost_s[i] * MR_NS_PER_S * 5 / 4);
    }
    for (int i = 0; i < COUNT; i++) {
        assert_true(mr_sched_cancel(&a[i].infer));
        ask_fini(&a[i]);
    }
    harness_close(&h);
}

/* As if the last request had come two seconds ago. */
static void be_quiet(struct harness *h)
{
    struct mr_sched *s = h->version.sched;

    pthread_mutex_lock(&s->mutex);
    s->last_arrival_ns -= 2 * MR_NS_PER_S;
    pthread_mutex_unlock(&s->mutex);
}

/* Each batch waits the whole delay, however often nothing came. */
static void exact_delay_learns_nothing(void **state)
{
    struct harness h;
    (void)state;

    harness_init(&h);
    h.options.has_exact_delay = true;
    harness_batching(&h, 8, 5 * 1000);
    harness_open(&h, "identity", NULL, 0);
    for (uint64_t i = 1; i <= 2 * EMPTY_WAITS_MAX; i++) {
        ask_alone(&h, (int32_t)i);
        assert_int_equal(closed(&h, MR_CLOSE_DELAY), i);
    }
    harness_close(&h);
}

static void quiet_time_is_forgotten(void **state)
{
    struct harness h;
    uint64_t sent = 0;
    (void)state;

    harness_init(&h);
    harness_batching(&h, 8, 5 * 1000);
    harness_open(&h, "identity", NULL, 0);
    while (empty_waits(&h) < EMPTY_WAITS_MAX) {
        be_quiet(&h);
        ask_alone(&h, (int32_t)sent++);
        assert_int_equal(closed(&h, MR_CLOSE_DELAY), sent);
    }
    set_delay(&h, 20 * MR_NS_PER_S);
    for (int i = 0; i < 5; i++) {
        be_quiet(&h);
        ask_alone(&h, i);
    }
    assert_int_equal(closed(&h, MR_CLOSE_DELAY), sent);
    assert_int_equal(closed(&h, MR_CLOSE_NO_COMPANY), 5);
    harness_close(&h);
}

static void other_shapes_close_a_batch(void **state)
{
    static const int64_t dims[] = {-1};
    struct harness h;
    struct ask a[3];
    (void)state;

    harness_init(&h);
    h.inputs[0].dims = h.outputs[0].dims = dims;
    harness_batching(&h, 8, 0);
    hold(&h, 3);
    harness_open(&h, "identity", NULL, 0);
    for (int i = 0; i < 3; i++) {
        ask_init(&a[i], &h, 2, i);
        if (i == 1) {
            a[i].shape[0] = 1; /* one row of four instead of two rows of two */
            a[i].shape[1] = 4;
            a[i].infer.rows = 1;
        }
        ask_submit(&a[i]);
    }
    for (int i = 0; i < 3; i++) {
        ask_wait(&h, &a[i]);
        ask_check(&a[i], 2);
        ask_fini(&a[i]);
    }
    assert_int_equal(executions(&h), 3);
    assert_int_equal(closed(&h, MR_CLOSE_SHAPE), 2);
    harness_close(&h);
}

static void what_has_parameters_runs_alone(void **state)
{
    static const struct mr_setting parameter = {"key", "value"};
    struct harness h;
    struct ask a[4];
    (void)state;

    harness_init(&h);
    harness_batching(&h, 8, 0);
    hold(&h, 4);
    harness_open(&h, "identity", NULL, 0);
    h.model->lone_parameters = true;
    for (int i = 0; i < 4; i++) {
        ask_init(&a[i], &h, 1, i);
        a[i].infer.parameters = &parameter;
        a[i].infer.parameter_count = i == 2;
        ask_submit(&a[i]);
    }
    for (int i = 0; i < 4; i++) {
        ask_wait(&h, &a[i]);
        ask_check(&a[i], 1);
        ask_fini(&a[i]);
    }
    assert_int_equal(executions(&h), 3);
    harness_close(&h);
}

/* It neither joins another one, nor waits for company. */
static void a_lone_request_runs_alone(void **state)
{
    struct harness h;
    struct ask a[2];
    (void)state;

    harness_init(&h);
    harness_batching(&h, 8, 3600 * INT64_C(1000000));
    hold(&h, 2);
    harness_open(&h, "identity", NULL, 0);
    for (int i = 0; i < 2; i++) {
        ask_init(&a[i], &h, 1, i);
        a[i].infer.is_lone = i == 1;
        ask_submit(&a[i]);
    }
    for (int i = 0; i < 2; i++) {
        ask_wait(&h, &a[i]);
        ask_check(&a[i], 1);
        ask_fini(&a[i]);
    }
    assert_int_equal(closed(&h, MR_CLOSE_SHAPE), 1);
    assert_int_equal(closed(&h, MR_CLOSE_SINGLE), 1);
    harness_close(&h);
}

static void one_request_of_a_batch_fails(void **state)
{
    struct harness h;
    struct ask a[3];
    const struct mr_setting bad[] = {{"fail_status", "NOT_FOUND"}, {"fail_request", "1"}};
    (void)state;

    harness_init(&h);
    harness_batching(&h, 3, 0);
    hold(&h, 3);
    harness_open(&h, "fault", bad, 2);
    for (int i = 0; i < 3; i++) {
        ask_init(&a[i], &h, 1, i);
        ask_submit(&a[i]);
    }
    for (int i = 0; i < 3; i++) {
        ask_wait(&h, &a[i]);
        if (i == 1) {
            assert_int_equal(a[i].infer.status, MR_E_NOT_FOUND);
        } else {
            ask_check(&a[i], 1);
        }
        ask_fini(&a[i]);
    }
    harness_close(&h);
}

/* Two instances, one slow batch and one fast: answers leave in the order of the requests all the same. */
static void order_is_preserved(void **state)
{
    struct harness h;
    struct ask a[16];
    const struct mr_setting slow[] = {{"delay_ms", "1"}};
    (void)state;

    harness_init(&h);
    harness_batching(&h, 2, 0);
    h.batching.preserve_ordering = true;
    h.group.count = 3;
    harness_open(&h, "fault", slow, 1);
    harness_done_count = 0;
    for (int i = 0; i < 16; i++) {
        ask_init(&a[i], &h, 1, i);
        ask_submit(&a[i]);
    }
    for (int i = 0; i < 16; i++) {
        ask_wait(&h, &a[i]);
        assert_int_equal(a[i].order, i + 1);
        ask_fini(&a[i]);
    }
    harness_close(&h);
}

/* Many requests, some cancelled at random moments: each is answered exactly once. */
static void storm(void **state)
{
    enum { COUNT = 600 };
    struct harness h;
    struct ask *a = calloc(COUNT, sizeof *a);
    int cancelled = 0, done = 0;
    (void)state;

    harness_init(&h);
    harness_batching(&h, 8, 200);
    h.group.count = 2;
    harness_open(&h, "identity", NULL, 0);
    for (int i = 0; i < COUNT; i++) {
        ask_init(&a[i], &h, 1 + i % 3, i);
        ask_submit(&a[i]);
        if (i % 7 == 0 && mr_sched_cancel(&a[i].infer)) {
            cancelled++;
            a[i].is_done = true;
        }
    }
    for (int i = 0; i < COUNT; i++) {
        ask_wait(&h, &a[i]);
        if (a[i].infer.status == MR_OK) {
            ask_check(&a[i], 1 + i % 3);
            done++;
        }
        ask_fini(&a[i]);
    }
    assert_int_equal(done + cancelled, COUNT);
    harness_close(&h);
    free(a);
}

static void reshaped(void **state)
{
    static const int64_t dims[] = {2}, none[1];
    struct harness h;
    struct ask a;
    (void)state;
    (void)none;

    static const int64_t seen[] = {1, 2};
    harness_init(&h);
    h.inputs[0].reshape = h.outputs[0].reshape = seen;
    h.inputs[0].reshape_rank = h.outputs[0].reshape_rank = 2;
    h.inputs[0].dims = h.outputs[0].dims = dims;
    harness_open(&h, "identity", NULL, 0);
    ask_init(&a, &h, 1, 5);
    ask_submit(&a);
    ask_wait(&h, &a);
    ask_check(&a, 1);
    assert_int_equal(mr_infer_output(&a.infer, 0)->tensor.rank, 1);
    assert_int_equal(mr_infer_output(&a.infer, 0)->tensor.shape[0], 2);
    ask_fini(&a);
    harness_close(&h);
}

/* A sample that runs very often needs no more memory than one that runs once. */
static void warm_up_runs_often(void **state)
{
    static const int64_t dims[] = {2000};
    static int64_t sample_dims[] = {2000};
    Inference__ModelWarmup w = INFERENCE__MODEL_WARMUP__INIT, *list[] = {&w};
    Inference__ModelWarmup__Input in = INFERENCE__MODEL_WARMUP__INPUT__INIT;
    Inference__ModelWarmup__InputsEntry entry = INFERENCE__MODEL_WARMUP__INPUTS_ENTRY__INIT,
                                        *entries[] = {&entry};
    struct harness h;
    (void)state;

    in.data_type = INFERENCE__DATA_TYPE__TYPE_INT32;
    in.n_dims = 1;
    in.dims = sample_dims;
    in.input_data_type_case = INFERENCE__MODEL_WARMUP__INPUT__INPUT_DATA_TYPE_ZERO_DATA;
    in.zero_data = true;
    entry.key = (char *)(uintptr_t) "X";
    entry.value = &in;
    w.name = (char *)(uintptr_t) "often";
    w.count = 20000;
    w.n_inputs = 1;
    w.inputs = entries;
    harness_init(&h);
    h.inputs[0].dims = h.outputs[0].dims = dims;
    h.config.n_model_warmup = 1;
    h.config.model_warmup = list;
    harness_open(&h, "identity", NULL, 0);
    harness_close(&h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(joins_and_cuts),
        cmocka_unit_test(large_outputs_share_one_block),
        cmocka_unit_test(bytes_are_cut_by_element),
        cmocka_unit_test(what_does_not_fit_waits),
        cmocka_unit_test(preferred_sizes),
        cmocka_unit_test(larger_than_preferred),
        cmocka_unit_test(preferred_size_of_a_longer_queue),
        cmocka_unit_test(waiting_ends_early),
        cmocka_unit_test(lone_client_learns),
        cmocka_unit_test(exact_delay_learns_nothing),
        cmocka_unit_test(quiet_time_is_forgotten),
        cmocka_unit_test(delay_counts_from_the_oldest),
        cmocka_unit_test(waiting_ends_before_the_last_start),
        cmocka_unit_test(last_start_by_the_batch),
        cmocka_unit_test(other_shapes_close_a_batch),
        cmocka_unit_test(what_has_parameters_runs_alone),
        cmocka_unit_test(a_lone_request_runs_alone),
        cmocka_unit_test(one_request_of_a_batch_fails),
        cmocka_unit_test(order_is_preserved),
        cmocka_unit_test(storm),
        cmocka_unit_test(reshaped),
        cmocka_unit_test(warm_up_runs_often),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
