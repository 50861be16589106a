/* Periods of a run: a request counts where it was due, a stall is any time without answers, and a difference is reported
 * with the noise of both sides. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>

#include "base/clock.h"
#include "base/rng.h"
#include "perf/periods.h"

#define MS MR_NS_PER_MS

static void add(struct mr_perf_result *r, int64_t due_ms, uint64_t took_ms)
{
    struct mr_perf_sample s = {.due_ns = due_ms * MS, .took_ns = took_ms * MS, .is_latency = true};

    MR_VEC_PUSH(&r->samples, s);
}

static void drop(struct mr_perf_result *r)
{
    mr_perf_result_fini(r);
    mr_free(r);
}

static struct mr_perf_period period(int64_t begin_ms, int64_t end_ms)
{
    return (struct mr_perf_period){begin_ms * MS, end_ms * MS};
}

static void a_request_counts_where_it_was_due(void **state)
{
    struct mr_perf_result *all = MR_NEW(struct mr_perf_result);
    struct mr_perf_result *part = MR_NEW(struct mr_perf_result);
    struct mr_perf_log log;

    (void)state;
    add(all, 30, 1);
    add(all, 19, 50); /* ends in the next stretch */
    add(all, 10, 1);
    add(all, 20, 1); /* where the stretch has ended */
    add(all, 9, 5);
    all->samples.at[2].is_failed = true;
    all->samples.at[2].is_latency = false;
    all->samples.at[1].is_late = true;
    mr_perf_log_init(&log, all);
    mr_perf_log_add(&log, period(10, 20), part);
    assert_int_equal(part->sent, 2);
    assert_int_equal(part->failed, 1);
    assert_int_equal(part->answered, 1);
    assert_int_equal(part->late, 1);
    assert_int_equal(part->latency.total, 1);
    assert_int_equal(part->latency.max, 50 * MS);
    assert_int_equal(part->part_count, 1);
    assert_true(fabs(part->seconds - 0.01) < 1e-9);
    mr_perf_log_add(&log, period(40, 50), part);
    assert_int_equal(part->sent, 2);
    assert_int_equal(part->part_count, 2);
    assert_int_equal(mr_perf_above(part, 49 * MS), 1);
    assert_int_equal(mr_perf_above(part, 51 * MS), 0);
    mr_perf_log_fini(&log);
    drop(all);
    drop(part);
}

static void stalls(void **state)
{
    struct mr_perf_result *r = MR_NEW(struct mr_perf_result);
    struct mr_perf_log log;

    (void)state;
    mr_perf_log_init(&log, r);
    assert_int_equal(mr_perf_log_stall(&log, period(0, 100)), 0);
    mr_perf_log_fini(&log);
    add(r, 0, 1);
    add(r, 10, 1);
    add(r, 20, 40); /* one thread stalls, others continue */
    add(r, 30, 2);
    add(r, 70, 20); /* no request is answered from 70 to 85 */
    add(r, 80, 5);
    mr_perf_log_init(&log, r);
    assert_int_equal(mr_perf_log_stall(&log, period(0, 20)), MS);
    /* From 32, when the last one was answered, to 60. */
    assert_int_equal(mr_perf_log_stall(&log, period(0, 65)), 28 * MS);
    assert_int_equal(mr_perf_log_stall(&log, period(61, 100)), 15 * MS);
    /* As far as it lies within. */
    assert_int_equal(mr_perf_log_stall(&log, period(40, 45)), 5 * MS);
    mr_perf_log_fini(&log);
    drop(r);
}

/* Parts of 100 samples, uniform between base and base + 1 ms. */
static struct mr_perf_result *uniform(struct mr_rng *rng, unsigned parts, double base_ms)
{
    struct mr_perf_result *all = MR_NEW(struct mr_perf_result);
    struct mr_perf_result *r = MR_NEW(struct mr_perf_result);
    struct mr_perf_log log;

    for (unsigned i = 0; i < parts * 100; i++) {
        struct mr_perf_sample s = {.due_ns = i * MS,
                                   .took_ns = (uint64_t)((base_ms + mr_rng_unit(rng)) * 1e6),
                                   .is_latency = true};
        MR_VEC_PUSH(&all->samples, s);
    }
    mr_perf_log_init(&log, all);
    for (unsigned i = 0; i < parts; i++) {
        mr_perf_log_add(&log, period(i * 100, i * 100 + 100), r);
    }
    mr_perf_log_fini(&log);
    drop(all);
    return r;
}

static void a_difference_lies_where_it_is_said(void **state)
{
    struct mr_rng rng;
    struct mr_perf_added a;
    unsigned held = 0;
    unsigned claimed = 0;

    (void)state;
    mr_rng_seed(&rng, 7);
    for (int i = 0; i < 200; i++) {
        struct mr_perf_result *quiet = uniform(&rng, 10, 3);
        struct mr_perf_result *slow = uniform(&rng, 10, 3.5);
        struct mr_perf_result *same = uniform(&rng, 10, 3);
        mr_perf_get_added(slow, quiet, 0.5, &a);
        assert_true(a.low_ns > 0 && a.low_ns <= a.ns && a.ns <= a.high_ns);
        held += a.low_ns <= 501000 && a.high_ns >= 499000;
        mr_perf_get_added(same, quiet, 0.5, &a);
        claimed += a.low_ns > 0 || a.high_ns < 0;
        drop(quiet);
        drop(slow);
        drop(same);
    }
    assert_true(held >= 188);
    assert_true(claimed <= 12);
}

static void few_samples_say_little(void **state)
{
    struct mr_rng rng;
    struct mr_perf_added a;

    (void)state;
    mr_rng_seed(&rng, 7);
    struct mr_perf_result *quiet = uniform(&rng, 5, 3);
    struct mr_perf_result *other = uniform(&rng, 5, 3);
    struct mr_perf_result *none = MR_NEW(struct mr_perf_result);
    mr_perf_get_added(other, quiet, 0.9999, &a);
    assert_true(isinf(a.low_ns) && isinf(a.high_ns));
    mr_perf_get_added(none, quiet, 0.5, &a);
    assert_true(isinf(a.low_ns) && isinf(a.high_ns));
    drop(quiet);
    drop(other);
    drop(none);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_request_counts_where_it_was_due),
        cmocka_unit_test(stalls),
        cmocka_unit_test(a_difference_lies_where_it_is_said),
        cmocka_unit_test(few_samples_say_little),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
