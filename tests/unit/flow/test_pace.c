/* Durations of nodes: quantiles, and how they are forgotten. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/rng.h"
#include "flow/run/pace.h"

#define US 1000

static void few(void **state)
{
    (void)state;
    struct pace p = {0};

    for (unsigned i = 0; i + 1 < PACE_LEAST; i++) {
        pace_add(&p, 5 * US, 0);
        assert_int_equal(pace_quantile(&p, 0.5), 0);
        assert_int_equal(pace_median(&p), 0);
    }
    pace_add(&p, 5 * US, 0);
    assert_in_range(pace_median(&p), 5 * US, 6 * US);
}

/* A quantile is no smaller than the duration, and at most a quarter larger. */
static void close_above(void **state)
{
    (void)state;
    struct mr_rng rng;

    mr_rng_seed(&rng, 7);
    for (int i = 0; i < 10000; i++) {
        const int64_t ns = 1024 + (int64_t)(mr_rng_u64(&rng) >> (28 + mr_rng_u64(&rng) % 25));
        struct pace p = {0};
        for (unsigned k = 0; k < PACE_LEAST; k++) {
            pace_add(&p, ns, 0);
        }
        assert_in_range(pace_quantile(&p, 0.99), ns, ns + ns / 4 + 1);
    }
}

static void extremes(void **state)
{
    (void)state;
    static const int64_t odd[] = {INT64_MIN, -1, 0, 1, INT64_MAX};
    struct pace p = {0};

    for (unsigned k = 0; k < 100; k++) {
        pace_add(&p, odd[k % 5], 0);
    }
    assert_true(pace_quantile(&p, 0) > 0);
    assert_true(pace_quantile(&p, 0.5) <= 1024);
    assert_true(pace_quantile(&p, 1) > INT64_C(60) * 1000000000);
}

static void quantiles(void **state)
{
    (void)state;
    struct pace p = {0};

    for (int i = 0; i < 900; i++) {
        pace_add(&p, i % 100 < 90 ? 10 * US : 1000 * US, 0);
    }
    assert_in_range(pace_quantile(&p, 0.5), 10 * US, 13 * US);
    assert_in_range(pace_quantile(&p, 0.89), 10 * US, 13 * US);
    assert_in_range(pace_quantile(&p, 0.95), 1000 * US, 1250 * US);
}

/* What has become slower is slow after some thousand durations. */
static void forgets(void **state)
{
    (void)state;
    struct pace p = {0};

    for (int i = 0; i < 100000; i++) {
        pace_add(&p, 10 * US, 0);
    }
    for (int i = 0; i < 2000; i++) {
        pace_add(&p, 1000 * US, 0);
    }
    assert_in_range(pace_median(&p), 1000 * US, 1250 * US);
}

/* Slow for long, then asked no more because of that, then quick. */
static void a_pause(void **state)
{
    (void)state;
    int64_t now = MR_NS_PER_S;
    struct pace p = {0};

    for (int i = 0; i < 5000; i++) {
        pace_add(&p, 1000 * US, now);
    }
    pace_age(&p, now + 2 * MR_NS_PER_S);
    assert_in_range(pace_median(&p), 1000 * US, 1250 * US);
    for (int pauses = 0; pauses < 3; pauses++) {
        now += 3 * MR_NS_PER_S;
        pace_age(&p, now);
        assert_int_equal(pace_median(&p), 0);
        assert_in_range(pace_quantile(&p, 0.99), 1000 * US, 1250 * US);
        for (int i = 0; i < 16; i++) {
            pace_add(&p, 10 * US, now);
        }
    }
    assert_in_range(pace_median(&p), 10 * US, 13 * US);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(few),      cmocka_unit_test(close_above),
                                       cmocka_unit_test(extremes), cmocka_unit_test(quantiles),
                                       cmocka_unit_test(forgets),  cmocka_unit_test(a_pause)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
