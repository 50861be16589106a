/* The limit of a host follows the latency of its successes. */
#include "harness.h"

/* Round trips to a host that serves `slots` calls at a time in 100 ms each. */
static void trips(struct harness *h, int n, uint32_t slots, int64_t rows, int64_t row_ns)
{
    for (int i = 0; i < n; i++) {
        uint32_t calls = burst_take(h, rows);
        h->now += rows * row_ns * (int64_t)MR_MAX(calls, slots) / slots;
        burst_done(h, MR_BALANCE_OK);
    }
}

static void starts_at_two_and_doubles(void **state)
{
    struct harness h;
    uint32_t before = 2;
    (void)state;

    harness_init(&h, 1, 200);
    assert_int_equal(view(&h, 0).limit, 2);
    for (int i = 0; i < 9; i++) {
        uint32_t now = round_trip(&h, 1, MS(100), MR_BALANCE_OK);
        assert_in_range(now, before, 2 * before);
        before = now;
    }
    assert_int_equal(view(&h, 0).limit, 200);
    mr_balance_free(&h.r);
}

static void ends_where_calls_begin_to_wait(void **state)
{
    static const uint32_t slots[] = {1, 2, 8, 64};
    struct harness h;
    (void)state;

    for (size_t i = 0; i < 4; i++) {
        harness_init(&h, 1, 0);
        trips(&h, 1000, slots[i], 1, MS(100));
        assert_in_range(view(&h, 0).limit, slots[i], 2 * slots[i] + 1);
        mr_balance_free(&h.r);
    }
}

/* Eight times the rows, and each takes twice as long as before. */
static void another_batch_size_is_not_congestion(void **state)
{
    struct harness h;
    (void)state;

    harness_init(&h, 1, 0);
    trips(&h, 100, 16, 8, MS(10));
    uint32_t before = view(&h, 0).limit;
    for (int i = 0; i < 20; i++) {
        trips(&h, 1, 16, i % 2 ? 64 : 8, i % 2 ? MS(20) : MS(10));
        assert_in_range(view(&h, 0).limit, before * 2 / 3, 2 * before);
    }
    mr_balance_free(&h.r);
}

static void grows_only_when_used(void **state)
{
    struct harness h;
    struct mr_balance_call c;
    (void)state;

    harness_init(&h, 1, 0);
    for (int i = 0; i < 500; i++) {
        assert_true(take(&h, 1, &c));
        h.now += MS(100);
        done(&h, &c, MR_BALANCE_OK);
    }
    assert_int_equal(view(&h, 0).limit, 2);
    /* nor later */
    trips(&h, 100, 8, 1, MS(100));
    uint32_t before = view(&h, 0).limit;
    for (int i = 0; i < 500; i++) {
        assert_true(take(&h, 1, &c));
        h.now += MS(100);
        done(&h, &c, MR_BALANCE_OK);
    }
    assert_in_range(view(&h, 0).limit, 8, before + 2);
    mr_balance_free(&h.r);
}

/* A host that has become ten times slower permanently is used up to its slots again. */
static void learns_that_a_host_is_slower_now(void **state)
{
    struct harness h;
    uint32_t least = 100;
    (void)state;

    harness_init(&h, 1, 0);
    trips(&h, 100, 8, 1, MS(100));
    for (int i = 0; i < 100; i++) {
        trips(&h, 1, 8, 1, S(1));
        least = MR_MIN(least, view(&h, 0).limit);
    }
    assert_true(least < 8);
    assert_in_range(view(&h, 0).limit, 8, 16);
    mr_balance_free(&h.r);
}

static void failures_do_not_lower_it(void **state)
{
    struct harness h;
    (void)state;

    harness_init(&h, 1, 16);
    trips(&h, 20, 100, 1, MS(100));
    assert_int_equal(view(&h, 0).limit, 16);
    burst_take(&h, 1);
    h.now += MS(5);
    for (uint32_t i = 0; i < h.burst_len; i++) {
        done(&h, &h.burst[i], i % 3 ? MR_BALANCE_OK : MR_BALANCE_FAILED);
    }
    assert_int_equal(view(&h, 0).limit, 16);
    mr_balance_free(&h.r);
}

static void a_burst_of_429_cuts_once(void **state)
{
    struct harness h;
    struct mr_balance_call c;
    (void)state;

    harness_init(&h, 1, 100);
    trips(&h, 20, 200, 1, MS(100));
    assert_int_equal(burst_take(&h, 1), 100);
    h.now += MS(5);
    burst_done(&h, MR_BALANCE_THROTTLED);
    assert_int_equal(view(&h, 0).limit, 1); /* until one succeeds */
    wait_for_room(&h, S(1), &c);
    h.now += MS(100);
    done(&h, &c, MR_BALANCE_OK);
    assert_int_equal(view(&h, 0).limit, 70);
    /* It does not go back to what was too much for half a minute, then it tries. */
    int64_t until = h.now + S(29);
    while (h.now < until) {
        trips(&h, 1, 200, 1, MS(100));
        assert_in_range(view(&h, 0).limit, 42, 90);
    }
    assert_int_equal(view(&h, 0).limit, 90);
    trips(&h, 100, 200, 1, MS(100));
    assert_int_equal(view(&h, 0).limit, 100);
    mr_balance_free(&h.r);
}

/* A call that is alone is refused too: the limit is not the reason. */
static void an_outage_leaves_it_as_it_was(void **state)
{
    struct harness h;
    struct mr_balance_call c;
    (void)state;

    harness_init(&h, 1, 100);
    trips(&h, 20, 200, 1, MS(100));
    burst_take(&h, 1);
    h.now += MS(5);
    burst_done(&h, MR_BALANCE_THROTTLED);
    wait_for_room(&h, S(1), &c);
    h.now += MS(5);
    done(&h, &c, MR_BALANCE_THROTTLED);
    wait_for_room(&h, S(1), &c);
    h.now += MS(100);
    done(&h, &c, MR_BALANCE_OK);
    assert_int_equal(burst_take(&h, 1), 100);
    mr_balance_free(&h.r);
}

static void the_maximum_can_change(void **state)
{
    struct harness h;
    (void)state;

    harness_init(&h, 1, 64);
    trips(&h, 20, 200, 1, MS(100));
    assert_int_equal(burst_take(&h, 1), 64);
    mr_balance_set_max_limit(h.r, 3);
    burst_done(&h, MR_BALANCE_OK);
    assert_int_equal(burst_take(&h, 1), 3);
    burst_done(&h, MR_BALANCE_OK);
    mr_balance_set_max_limit(h.r, 8);
    trips(&h, 200, 200, 1, MS(100));
    assert_int_equal(view(&h, 0).limit, 8);
    mr_balance_free(&h.r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(starts_at_two_and_doubles),
        cmocka_unit_test(ends_where_calls_begin_to_wait),
        cmocka_unit_test(another_batch_size_is_not_congestion),
        cmocka_unit_test(grows_only_when_used),
        cmocka_unit_test(learns_that_a_host_is_slower_now),
        cmocka_unit_test(failures_do_not_lower_it),
        cmocka_unit_test(a_burst_of_429_cuts_once),
        cmocka_unit_test(an_outage_leaves_it_as_it_was),
        cmocka_unit_test(the_maximum_can_change),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
