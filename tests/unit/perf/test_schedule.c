/* The slots of an open loop. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "schedule.h"

static void equal_gaps_do_not_drift(void **state)
{
    struct perf_schedule s;

    (void)state;
    perf_schedule_init(&s, 3, false, 1, 1000, 0, 1);
    for (int64_t k = 0; k < 3000001; k++) {
        int64_t at = perf_schedule_next(&s) - 1000;
        int64_t exact = k * INT64_C(1000000000) / 3;
        assert_in_range(at - exact + 1, 0, 2);
    }
}

static void threads_take_turns(void **state)
{
    struct perf_schedule all;
    struct perf_schedule part[3];

    (void)state;
    perf_schedule_init(&all, 1000, false, 1, 5, 0, 1);
    for (uint32_t i = 0; i < 3; i++) {
        perf_schedule_init(&part[i], 1000, false, 1, 5, i, 3);
    }
    for (int k = 0; k < 999; k++) {
        assert_int_equal(perf_schedule_next(&part[k % 3]), perf_schedule_next(&all));
    }
}

/* Exponential gaps: mean and deviation are the gap, and the seed decides. */
static void poisson_has_its_rate_and_seed(void **state)
{
    struct perf_schedule s;
    struct perf_schedule same;
    struct perf_schedule other;
    const int n = 200000;
    double squares = 0;
    int64_t last = 0;
    int differ = 0;

    (void)state;
    perf_schedule_init(&s, 1000, true, 7, 0, 0, 1);
    perf_schedule_init(&same, 1000, true, 7, 0, 0, 1);
    perf_schedule_init(&other, 1000, true, 8, 0, 0, 1);
    for (int k = 0; k < n; k++) {
        int64_t at = perf_schedule_next(&s);
        double gap = (double)(at - last) / 1e6;
        assert_true(at >= last);
        assert_int_equal(perf_schedule_next(&same), at);
        differ += perf_schedule_next(&other) != at;
        squares += gap * gap;
        last = at;
    }
    assert_true(last > (int64_t)(0.98e6 * n) && last < (int64_t)(1.02e6 * n));
    assert_true(squares / n > 1.9 && squares / n < 2.1);
    assert_true(differ > n / 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equal_gaps_do_not_drift),
        cmocka_unit_test(threads_take_turns),
        cmocka_unit_test(poisson_has_its_rate_and_seed),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
