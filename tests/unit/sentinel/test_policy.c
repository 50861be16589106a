/* When a worker is started again, and when it hangs: by a clock of the test's own. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/clock.h"
#include "hang.h"
#include "restart.h"
#include "rows.h"
#include "times.h"

#define MS MR_NS_PER_MS

static void test_restarts_wait_longer_and_longer(void **state)
{
    struct restart r = {0};
    const int64_t expected[] = {0, 50, 100, 200, 400, 5000, 5000};

    (void)state;
    for (unsigned i = 0; i < sizeof expected / sizeof *expected; i++) {
        assert_int_equal(restart_is_open(&r), i >= 6);
        const int64_t ns = restart_died(&r, RESTART_FAULT, UINT32_MAX / 2);
        assert_true(ns >= expected[i] * MS * 99 / 100 && ns <= expected[i] * MS * 101 / 100);
    }
    restart_worked(&r);
    assert_false(restart_is_open(&r));
    assert_int_equal(restart_died(&r, RESTART_FAULT, 0), 0);
}

static void test_model_that_cannot_be_loaded_is_tried_seldom(void **state)
{
    (void)state;
    struct restart r = {0};

    for (int i = 0; i < 3; i++) {
        assert_int_equal(restart_died(&r, RESTART_MODEL, 0), 4000 * MS);
        assert_true(restart_is_open(&r));
    }
    restart_worked(&r);
    assert_int_equal(restart_died(&r, RESTART_FAULT, 0), 0);
}

static void test_restarts_are_spread(void **state)
{
    struct restart low = {16}, high = {16};

    (void)state;
    assert_int_equal(restart_died(&low, RESTART_FAULT, 0), 80 * MS);
    assert_int_equal(restart_died(&high, RESTART_FAULT, UINT32_MAX), 120 * MS);
}

static void test_kills_from_outside_count_little(void **state)
{
    struct restart r = {0};

    (void)state;
    for (int i = 0; i < 8; i++) {
        assert_int_equal(restart_died(&r, RESTART_KILL, 0), 0);
    }
    for (int i = 0; i < 32; i++) {
        assert_true(restart_died(&r, RESTART_KILL, 0) > 0);
        assert_false(restart_is_open(&r));
    }
    restart_died(&r, RESTART_KILL, 0);
    assert_true(restart_is_open(&r));
}

static void test_a_device_has_time(void **state)
{
    struct restart r = {0};

    (void)state;
    assert_int_equal(restart_died(&r, RESTART_DEVICE, 0), 800 * MS);
    assert_int_equal(restart_died(&r, RESTART_DEVICE, UINT32_MAX), 1200 * MS);
    r.eighths = 8 * RESTART_LIMIT;
    assert_int_equal(restart_died(&r, RESTART_DEVICE, 0), 4000 * MS);
}

static void test_rows_are_fewer_for_a_while(void **state)
{
    _Atomic uint32_t limit = 0;
    struct rows r = {.limit = &limit};

    (void)state;
    assert_false(rows_worked(&r, 32));
    assert_false(rows_short(&r, 0)); /* a model without batches */
    assert_false(rows_short(&r, 1));
    assert_true(rows_short(&r, 32));
    assert_int_equal(limit, 16);
    assert_false(rows_short(&r, 32)); /* one that was formed before */
    assert_true(rows_short(&r, 16));
    assert_true(rows_short(&r, 9));
    assert_int_equal(limit, 4);
    for (int expected = 8; expected <= 16; expected *= 2) {
        for (unsigned i = 0; i + 1 < ROWS_AGAIN; i++) {
            assert_false(rows_worked(&r, limit));
            assert_false(rows_worked(&r, limit - 1)); /* has no meaning for more */
        }
        assert_true(rows_worked(&r, limit));
        assert_int_equal(limit, expected);
    }
    for (unsigned i = 0; i < ROWS_AGAIN; i++) {
        rows_worked(&r, 16);
    }
    assert_int_equal(limit, 0);
}

/* Looks every 20 ms until it is judged to hang; returns after how long, 0 = not within a minute. */
static int64_t hangs_after(struct hang_sample look, int64_t cpu_per_look, int64_t delay_per_look)
{
    struct hang h = {0};

    for (int64_t at = 0; at < 60000; at += 20) {
        look.now_ns = (at + 1) * MS;
        look.cpu_ns += cpu_per_look;
        look.delay_ns += delay_per_look;
        if (hang_judge(&h, &look)) {
            return at;
        }
    }
    return 0;
}

static void test_hang_by_what_is_usual(void **state)
{
    const struct hang_sample known = {
        .has_work = true, .is_running = true, .typical_ns = 200 * MS, .most_ns = 10000 * MS};
    struct hang_sample quick = known, unknown = known, idle = known;

    (void)state;
    quick.typical_ns = 1;
    unknown.typical_ns = 0;
    idle.is_running = false;
    assert_int_equal(hangs_after(known, 0, 0), 820);
    assert_int_equal(hangs_after(quick, 0, 0), 260);
    assert_int_equal(hangs_after(unknown, 0, 0), 10020);
    assert_int_equal(hangs_after(idle, 0, 0), 260);
    idle.is_starting = true;
    assert_int_equal(hangs_after(idle, 0, 0), 10020);
}

static void test_who_has_no_cpu_does_not_hang(void **state)
{
    struct hang_sample look = {
        .has_work = true, .is_running = true, .typical_ns = 200 * MS, .is_runnable = true};

    (void)state;
    assert_int_equal(hangs_after(look, 0, 0), 0);           /* waits for one all the time */
    assert_int_equal(hangs_after(look, MS, 0), 820);        /* computes */
    assert_int_equal(hangs_after(look, MS, 10 * MS), 1620); /* has one half of the time */
    look.is_runnable = false;
    assert_int_equal(hangs_after(look, 0, 0), 820);
    look.gap_ns = 15 * MS; /* the judge slept */
    assert_int_equal(hangs_after(look, 0, 0), 3220);
}

/* More to do than ever before: it computes, and is let compute for as long as the caller says. */
static void test_who_computes_has_more_time(void **state)
{
    struct hang_sample look = {.has_work = true,
                               .is_running = true,
                               .typical_ns = 1,
                               .most_ns = 10000 * MS,
                               .compute_ns = 10000 * MS,
                               .is_runnable = true};

    (void)state;
    assert_int_equal(hangs_after(look, 20 * MS, 0), 10020);
    assert_int_equal(hangs_after(look, 10 * MS, 0), 10020);
    assert_int_equal(hangs_after(look, 2 * MS, 0), 260); /* now and then a little: it waits */
    look.compute_ns = 20 * MS;
    assert_int_equal(hangs_after(look, 20 * MS, 0), 260);
    look.typical_ns = 200 * MS;
    assert_int_equal(hangs_after(look, 20 * MS, 0), 820);
    look.compute_ns = 2000 * MS;
    assert_int_equal(hangs_after(look, 20 * MS, 0), 2020);
    look.may_wait = true; /* means nothing for a thread that does not wait */
    assert_int_equal(hangs_after(look, 20 * MS, 0), 2020);
    look.typical_ns = 0;
    assert_int_equal(hangs_after(look, 20 * MS, 0), 10020);
}

static void test_who_gets_on_does_not_hang(void **state)
{
    struct hang h = {0};

    (void)state;
    for (int64_t at = 0; at < 60000; at += 20) {
        const struct hang_sample look = {.now_ns = at * MS,
                                         .has_work = true,
                                         .is_running = true,
                                         .typical_ns = 1,
                                         .progress = (uint64_t)(at / 200)};
        assert_false(hang_judge(&h, &look));
    }
    for (int64_t at = 60000; at < 120000; at += 20) {
        const struct hang_sample look = {.now_ns = at * MS, .typical_ns = 1};
        assert_false(hang_judge(&h, &look)); /* nothing to do */
    }
}

/* One look finds the thread idle while its execution goes on, as another one of the process is just ending. */
static void test_an_execution_is_not_judged_as_idleness(void **state)
{
    struct hang_sample look = {
        .has_work = true, .is_running = true, .typical_ns = 1000 * MS, .most_ns = 10000 * MS};
    struct hang h = {0};

    (void)state;
    for (int64_t at = 0; at < 4000; at += 20) {
        look.now_ns = (at + 1) * MS;
        look.is_running = at != 2000;
        assert_false(hang_judge(&h, &look));
    }
}

static void note(struct times *t, unsigned count, int64_t rows, int64_t ns)
{
    for (unsigned i = 0; i < count; i++) {
        times_note(t, rows, ns);
    }
}

static void test_times_are_known_by_size(void **state)
{
    struct times t = {0};

    (void)state;
    note(&t, TIMES_KNOWN_AFTER - 1, 1, 5 * MS);
    assert_int_equal(times_most(&t, 1), 0);
    note(&t, 1, 0, 5 * MS); /* a model without batches counts as one row */
    assert_in_range(times_most(&t, 1), 4 * MS, 5 * MS);
    /* larger ones grow with the rows */
    assert_int_equal(times_most(&t, 2), 2 * times_most(&t, 1));
    assert_int_equal(times_most(&t, 5), 8 * times_most(&t, 1));
    assert_int_equal(times_most(&t, 8), 8 * times_most(&t, 1));
    note(&t, TIMES_KNOWN_AFTER, 8, 60 * MS);
    assert_in_range(times_most(&t, 8), 54 * MS, 60 * MS);
    assert_int_equal(times_most(&t, 3), times_most(&t, 8));
    assert_int_equal(times_most(&t, 9), 2 * times_most(&t, 8));
    assert_in_range(times_most(&t, 1), 4 * MS, 5 * MS); /* its own */
}

static void test_times_of_larger_ones_are_no_shorter(void **state)
{
    struct times t = {0};

    (void)state;
    note(&t, TIMES_KNOWN_AFTER, 1, 50 * MS);
    note(&t, TIMES_KNOWN_AFTER, 4, 5 * MS);
    assert_int_equal(times_most(&t, 4), times_most(&t, 1));
    assert_int_equal(times_most(&t, 8), 2 * times_most(&t, 1));
    assert_true(times_most(&t, INT64_MAX) > times_most(&t, 8));
}

static void test_times_are_forgotten_slowly(void **state)
{
    struct times t = {0};

    (void)state;
    note(&t, 1, 1, 1000 * MS);
    note(&t, 1000, 1, MS);
    assert_in_range(times_most(&t, 1), 300 * MS, 400 * MS);
    note(&t, 10000, 1, MS);
    assert_in_range(times_most(&t, 1), MS, 2 * MS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_restarts_wait_longer_and_longer),
        cmocka_unit_test(test_restarts_are_spread),
        cmocka_unit_test(test_model_that_cannot_be_loaded_is_tried_seldom),
        cmocka_unit_test(test_kills_from_outside_count_little),
        cmocka_unit_test(test_a_device_has_time),
        cmocka_unit_test(test_rows_are_fewer_for_a_while),
        cmocka_unit_test(test_hang_by_what_is_usual),
        cmocka_unit_test(test_who_has_no_cpu_does_not_hang),
        cmocka_unit_test(test_who_computes_has_more_time),
        cmocka_unit_test(test_who_gets_on_does_not_hang),
        cmocka_unit_test(test_an_execution_is_not_judged_as_idleness),
        cmocka_unit_test(test_times_are_known_by_size),
        cmocka_unit_test(test_times_of_larger_ones_are_no_shorter),
        cmocka_unit_test(test_times_are_forgotten_slowly),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
