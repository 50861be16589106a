/* How many rows calls have when hosts fail. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/mem.h"
#include "batch/policy/call_rows.h"

/* A host that works with up to that many rows. `failures` stands in for balance: three in a row make it doubtful. */
struct fixture {
    struct call_rows rows;
    uint64_t takes;
    uint64_t done;
    unsigned failures;
    unsigned failed;
};

static void call(struct fixture *f)
{
    const uint64_t rows = call_rows_next(&f->rows);

    assert_in_range(f->rows.now, 1, f->rows.most);
    assert_in_range(rows, 1, f->rows.most);
    call_rows_cut(&f->rows, rows);
    if (rows > f->takes) {
        f->failed++;
        call_rows_failed(&f->rows, rows, ++f->failures >= 3);
        return;
    }
    f->failures = 0;
    f->done += rows;
    call_rows_ok(&f->rows, rows);
}

static void calls_stay_as_they_are_while_hosts_are_well(void **state)
{
    struct call_rows r;

    (void)state;
    call_rows_set(&r, 256);
    for (int i = 0; i < 1000; i++) {
        assert_false(call_rows_failed(&r, 256, false));
        call_rows_ok(&r, 256);
        assert_int_equal(call_rows_next(&r), 256);
    }
}

static void one_row_tries_and_each_success_doubles(void **state)
{
    struct call_rows r;

    (void)state;
    call_rows_set(&r, 100);
    assert_true(call_rows_failed(&r, 100, true));
    assert_false(call_rows_failed(&r, 1, true));
    for (uint64_t rows = 1; rows < 100; rows *= 2) {
        assert_int_equal(call_rows_next(&r), rows);
        call_rows_ok(&r, rows);
    }
    assert_int_equal(call_rows_next(&r), 100);
    assert_int_equal(r.bad, 0);
}

/* What hosts take is found, whatever it is, with few failures from then on. */
static void the_limit_of_a_host(void **state)
{
    (void)state;
    for (uint64_t takes = 1; takes <= 300; takes++) {
        struct fixture f = {.takes = takes};
        call_rows_set(&f.rows, 256);
        for (int i = 0; i < 20000; i++) {
            call(&f);
        }
        assert_in_range(f.failed, 0, 24);
        assert_true(f.done >= (20000 - 200) * MR_MIN(takes, UINT64_C(256)) / 2);
    }
}

static void a_host_that_takes_more_again(void **state)
{
    struct fixture f = {.takes = 20};

    (void)state;
    call_rows_set(&f.rows, 256);
    for (int i = 0; i < 300; i++) {
        call(&f);
    }
    assert_int_equal(f.rows.now, 16);
    f.takes = 256;
    for (int i = 0; i < CALL_ROWS_TRIAL_MOST; i++) {
        call(&f);
    }
    assert_int_equal(f.rows.now, 256);
    assert_int_equal(f.rows.every, CALL_ROWS_TRIAL_LEAST);
}

static void one_trial_at_a_time(void **state)
{
    struct call_rows r;

    (void)state;
    call_rows_set(&r, 64);
    call_rows_failed(&r, 64, true);
    call_rows_ok(&r, 1);
    call_rows_failed(&r, 2, false);
    assert_int_equal(r.now, 1);
    for (int i = 0; i < CALL_ROWS_TRIAL_LEAST; i++) {
        assert_int_equal(call_rows_next(&r), 1);
        call_rows_ok(&r, 1);
    }
    assert_int_equal(call_rows_next(&r), 2);
    assert_false(call_rows_cut(&r, 1)); /* there are no more rows */
    assert_int_equal(call_rows_next(&r), 2);
    assert_true(call_rows_cut(&r, 2));
    assert_int_equal(call_rows_next(&r), 1);
    call_rows_untried(&r); /* as its host was busy */
    assert_int_equal(call_rows_next(&r), 2);
    assert_true(call_rows_cut(&r, 2));
    call_rows_failed(&r, 2, false);
    assert_int_equal(call_rows_next(&r), 1);
    assert_int_equal(r.every, 2 * CALL_ROWS_TRIAL_LEAST);
}

static void what_was_under_way_tells_nothing_more(void **state)
{
    struct call_rows r;

    (void)state;
    call_rows_set(&r, 64);
    call_rows_failed(&r, 64, true);
    for (int i = 0; i < 5; i++) {
        call_rows_ok(&r, r.now);
    }
    assert_int_equal(r.now, 32);
    for (int i = 0; i < 5; i++) {
        call_rows_failed(&r, 32, false);
        assert_int_equal(r.now, 16);
    }
}

static void limits(void **state)
{
    struct call_rows r;

    (void)state;
    call_rows_set(&r, 64);
    call_rows_limit(&r, 20);
    call_rows_limit(&r, 30);
    assert_int_equal(call_rows_next(&r), 20);
    call_rows_set(&r, UINT64_MAX);
    call_rows_failed(&r, 1, true);
    for (int i = 0; i < 70; i++) {
        call_rows_ok(&r, r.now);
    }
    assert_true(r.now == UINT64_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(calls_stay_as_they_are_while_hosts_are_well),
        cmocka_unit_test(one_row_tries_and_each_success_doubles),
        cmocka_unit_test(the_limit_of_a_host),
        cmocka_unit_test(a_host_that_takes_more_again),
        cmocka_unit_test(one_trial_at_a_time),
        cmocka_unit_test(what_was_under_way_tells_nothing_more),
        cmocka_unit_test(limits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
