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
    perf_schedule_init(&s, &(struct perf_pace){.from = 3}, false, 1, 1000, 0, 1);
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
    perf_schedule_init(&all, &(struct perf_pace){.from = 1000}, false, 1, 5, 0, 1);
    for (uint32_t i = 0; i < 3; i++) {
        perf_schedule_init(&part[i], &(struct perf_pace){.from = 1000}, false, 1, 5, i, 3);
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
    perf_schedule_init(&s, &(struct perf_pace){.from = 1000}, true, 7, 0, 0, 1);
    perf_schedule_init(&same, &(struct perf_pace){.from = 1000}, true, 7, 0, 0, 1);
    perf_schedule_init(&other, &(struct perf_pace){.from = 1000}, true, 8, 0, 0, 1);
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

/* 10 a second for a second, from there to 30 within four, which is 80 slots, and 30 a second then. */
static void a_ramp_goes_evenly(void **state)
{
    const struct perf_pace up = {
        .from = 10, .to = 30, .flat_ns = 1000000000, .ramp_ns = 4000000000};
    const struct perf_pace down = {
        .from = 30, .to = 10, .flat_ns = 1000000000, .ramp_ns = 4000000000};
    const struct {
        const struct perf_pace *pace;
        int slot;
        double at_s;
    } cases[] = {{&up, 5, 0.5},  {&up, 10, 1},   {&up, 40, 3},    {&up, 90, 5},   {&up, 120, 6},
                 {&down, 30, 1}, {&down, 80, 3}, {&down, 110, 5}, {&down, 120, 6}};

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct perf_schedule s;
        int64_t at = 0;
        perf_schedule_init(&s, cases[i].pace, false, 1, 0, 0, 1);
        for (int k = 0; k <= cases[i].slot; k++) {
            int64_t next = perf_schedule_next(&s);
            assert_true(next >= at);
            at = next;
        }
        assert_in_range(at - (int64_t)(cases[i].at_s * 1e9) + 2, 0, 4);
    }
}

/* Random gaps have the pace of the ramp. */
static void a_random_ramp_has_its_pace(void **state)
{
    const struct perf_pace pace = {.from = 1000, .to = 9000, .ramp_ns = 10000000000};
    struct perf_schedule s;
    int early = 0;
    int late = 0;

    (void)state;
    perf_schedule_init(&s, &pace, true, 3, 0, 1, 2);
    for (int64_t at = perf_schedule_next(&s); at < pace.ramp_ns; at = perf_schedule_next(&s)) {
        early += at < pace.ramp_ns / 2;
        late += at >= pace.ramp_ns / 2;
    }
    /* Half of the slots, 7,500 and 17,500 of them, less or more 6 deviations. */
    assert_in_range(early, 7500 - 520, 7500 + 520);
    assert_in_range(late, 17500 - 800, 17500 + 800);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equal_gaps_do_not_drift),       cmocka_unit_test(threads_take_turns),
        cmocka_unit_test(poisson_has_its_rate_and_seed), cmocka_unit_test(a_ramp_goes_evenly),
        cmocka_unit_test(a_random_ramp_has_its_pace),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
