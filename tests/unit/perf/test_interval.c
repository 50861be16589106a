/* Confidence intervals: they contain the true value as often as stated, and grow with correlated samples. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/rng.h"
#include "interval.h"

static struct mr_perf_result *make(void)
{
    return MR_NEW(struct mr_perf_result);
}

static void drop(struct mr_perf_result *r)
{
    mr_perf_result_fini(r);
    mr_free(r);
}

/* Uniform from `base` to base + 1,000,000. */
static void add_second(struct mr_perf_result *r, struct mr_rng *rng, unsigned n, uint64_t base)
{
    struct mr_hdr_histogram *h = MR_NEW(struct mr_hdr_histogram);

    for (unsigned i = 0; i < n; i++) {
        mr_hdr_add(h, base + (uint64_t)(mr_rng_unit(rng) * 1e6));
    }
    mr_hdr_merge(&r->latency, h);
    perf_parts_add(r, h);
    mr_free(h);
}

static void holds_the_truth(void **state)
{
    struct mr_rng rng;
    unsigned held[2] = {0, 0};
    double width = 0;

    (void)state;
    mr_rng_seed(&rng, 3);
    for (int run = 0; run < 200; run++) {
        struct mr_perf_result *r = make();
        struct mr_perf_interval i;
        for (int s = 0; s < 10; s++) {
            add_second(r, &rng, 200, 1000000);
        }
        mr_perf_get_interval(r, 0.5, &i);
        assert_false(i.is_rough);
        held[0] += i.low_ns <= 1501000 && i.high_ns >= 1500000;
        width += (double)(i.high_ns - i.low_ns) / 200;
        mr_perf_get_interval(r, 0.99, &i);
        held[1] += i.low_ns <= 1991000 && i.high_ns >= 1990000;
        drop(r);
    }
    assert_true(held[0] >= 188 && held[1] >= 188);
    /* 2 * 2.26 * sqrt(2000 / 4) ranks of 500 ns, or somewhat more. */
    assert_true(width > 40000 && width < 120000);
}

/* Seconds that differ as wholes: the samples add little beyond the number of seconds. */
static void like_samples_count_less(void **state)
{
    struct mr_rng rng;
    struct mr_perf_result *alike = make();
    struct mr_perf_result *mixed = make();
    struct mr_perf_interval a;
    struct mr_perf_interval m;

    (void)state;
    mr_rng_seed(&rng, 3);
    for (unsigned s = 0; s < 10; s++) {
        add_second(alike, &rng, 1000, s % 2 ? 9000000 : 1000000);
        add_second(mixed, &rng, 500, 1000000);
        add_second(mixed, &rng, 500, 9000000);
        mixed->part_filled = mixed->part_seconds; /* as one second of both */
    }
    /* Put the halves of each second together. */
    for (size_t i = 0; i < 10; i++) {
        struct mr_perf_part sum = mixed->parts[2 * i];
        sum.total += mixed->parts[2 * i + 1].total;
        for (size_t b = 0; b < MR_HIST_BUCKETS; b++) {
            sum.count[b] += mixed->parts[2 * i + 1].count[b];
        }
        mixed->parts[i] = sum;
    }
    mixed->part_count = 10;
    mr_perf_get_interval(alike, 0.6, &a);
    mr_perf_get_interval(mixed, 0.6, &m);
    assert_true(m.low_ns > 9000000 && m.high_ns < 10000000);
    assert_true(a.low_ns < 2000000);
    drop(alike);
    drop(mixed);
}

static void what_samples_do_not_say(void **state)
{
    struct mr_rng rng;
    struct mr_perf_result *r = make();
    struct mr_perf_interval i;

    (void)state;
    mr_perf_get_interval(r, 0.5, &i);
    assert_true(i.low_ns == 0 && i.high_ns == UINT64_MAX && i.is_rough);
    mr_rng_seed(&rng, 3);
    add_second(r, &rng, 1000, 0);
    mr_perf_get_interval(r, 0.9999, &i);
    assert_true(i.is_rough && i.low_ns > 900000 && i.high_ns == UINT64_MAX);
    drop(r);
}

static void parts_are_bounded(void **state)
{
    struct mr_rng rng;
    struct mr_perf_result *r = make();
    uint64_t total = 0;

    (void)state;
    mr_rng_seed(&rng, 3);
    for (int s = 0; s < 1000; s++) {
        add_second(r, &rng, 3, 5);
    }
    assert_int_equal(r->part_seconds, 8);
    assert_int_equal(r->part_count, 125);
    for (size_t i = 0; i < r->part_count; i++) {
        assert_int_equal(r->parts[i].total, 24);
        total += (uint64_t)r->parts[i].total;
    }
    assert_int_equal(total, 3000);
    drop(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(holds_the_truth),
        cmocka_unit_test(like_samples_count_less),
        cmocka_unit_test(what_samples_do_not_say),
        cmocka_unit_test(parts_are_bounded),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
