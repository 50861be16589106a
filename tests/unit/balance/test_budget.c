/* Retries, back-off, time-outs, second copies. */
#include "harness.h"

static uint32_t retries(struct harness *h)
{
    uint32_t n = 0;

    while (mr_balance_may_retry(h->r, h->now, NULL)) {
        n++;
    }
    return n;
}

static void retries_are_a_fifth_and_ten_a_second(void **state)
{
    struct harness h;
    struct mr_balance_call c;
    struct mr_balance_ask again = {.rows = 1, .is_retry = true};
    int64_t at;
    (void)state;

    harness_init(&h, 1, 0);
    assert_in_range(retries(&h), 10, 10);
    assert_false(mr_balance_may_retry(h.r, h.now, &at));
    assert_in_range(at - h.now, 1, MS(100) + 2);
    h.now = at;
    assert_true(mr_balance_may_retry(h.r, h.now, &at));
    h.now += S(5);
    assert_in_range(retries(&h), 49, 51);
    h.now += S(100); /* kept for ten seconds */
    assert_in_range(retries(&h), 99, 101);
    for (int i = 0; i < 1000; i++) {
        assert_true(take(&h, 1, &c));
        done(&h, &c, MR_BALANCE_OK);
    }
    assert_in_range(retries(&h), 199, 200);
    for (int i = 0; i < 1000; i++) {
        assert_true(take(&h, 1, &c));
        done(&h, &c, MR_BALANCE_OK);
    }
    h.now += S(100);
    assert_in_range(retries(&h), 99, 101);
    for (int i = 0; i < 1000; i++) {
        assert_true(mr_balance_pick(h.r, h.now, &again, &c));
        done(&h, &c, MR_BALANCE_OK);
    }
    assert_int_equal(retries(&h), 0);
    mr_balance_free(&h.r);
}

static void back_off_is_bounded_and_grows(void **state)
{
    struct harness h;
    (void)state;

    harness_init(&h, 1, 0);
    for (uint32_t tries = 0; tries < 70; tries++) {
        int64_t most = tries > 9 ? S(30) : MR_MIN(MS(100) << (tries ? tries - 1 : 0), S(30));
        int64_t seen = 0;
        for (int i = 0; i < 200; i++) {
            int64_t ns = mr_balance_backoff_ns(h.r, tries);
            assert_in_range(ns, 0, most);
            seen = MR_MAX(seen, ns);
        }
        assert_true(seen > most / 2);
    }
    mr_balance_free(&h.r);
}

static int64_t timeout_of(struct harness *h, int64_t rows)
{
    struct mr_balance_call c;

    assert_true(take(h, rows, &c));
    done(h, &c, MR_BALANCE_CANCELLED);
    return c.timeout_ns;
}

static void answer(struct harness *h, int64_t rows, int64_t ns, enum mr_balance_outcome outcome)
{
    struct mr_balance_call c;

    wait_for_room(h, S(60), &c);
    done(h, &c, MR_BALANCE_CANCELLED);
    assert_true(take(h, rows, &c));
    h->now += ns;
    done(h, &c, outcome);
}

static void time_outs_follow_latency(void **state)
{
    struct harness h;
    (void)state;

    harness_init(&h, 1, 0);
    assert_int_equal(timeout_of(&h, 1), S(60)); /* nothing known */
    for (int i = 0; i < 100; i++) {
        answer(&h, 100, MS(100), MR_BALANCE_OK);
    }
    assert_int_equal(timeout_of(&h, 100), S(5));
    assert_int_equal(timeout_of(&h, 1), S(5));
    assert_in_range(timeout_of(&h, 10000), S(99), S(101));
    assert_int_equal(timeout_of(&h, INT64_MAX), S(3600));
    for (int i = 0; i < 200; i++) {
        answer(&h, 100, S(2), MR_BALANCE_OK);
    }
    assert_in_range(timeout_of(&h, 100), S(19), S(21));
    /* A small call may cost as much as a large one. */
    assert_true(timeout_of(&h, 1) >= S(12));
    answer(&h, 100, S(20), MR_BALANCE_TIMED_OUT);
    assert_in_range(timeout_of(&h, 100), S(38), S(42));
    answer(&h, 100, S(40), MR_BALANCE_TIMED_OUT);
    assert_in_range(timeout_of(&h, 100), S(76), S(84));
    answer(&h, 100, S(2), MR_BALANCE_OK);
    assert_in_range(timeout_of(&h, 100), S(19), S(21));
    mr_balance_free(&h.r);
}

/* Two hosts of which each answered `n` calls in 100 ms. */
static void two_warm_hosts(struct harness *h, uint32_t n)
{
    harness_init(h, 2, 4);
    for (uint32_t i = 0; i < 2 * n; i++) {
        struct mr_balance_call c;
        assert_true(take_avoiding(h, 1, &h->hosts[i % 2], 1, &c));
        h->now += MS(100);
        done(h, &c, MR_BALANCE_OK);
    }
}

static void a_late_call_gets_one_copy_elsewhere(void **state)
{
    (void)state;

    for (uint32_t i = 0; i < 2; i++) {
        struct harness h;
        struct mr_balance_call c, copy;
        uint64_t original = 0;
        int64_t again, from;

        two_warm_hosts(&h, 100);
        assert_true(take_avoiding(&h, 1, &h.hosts[i], 1, &c));
        from = h.now;
        assert_false(mr_balance_hedge(h.r, h.now, &original, &copy, &again));
        assert_in_range(again - from, MS(195), MS(205));
        h.now = again - MS(1);
        assert_false(mr_balance_hedge(h.r, h.now, &original, &copy, &again));
        h.now += MS(2);
        assert_true(mr_balance_hedge(h.r, h.now, &original, &copy, &again));
        assert_true(original == c.ticket);
        assert_int_equal(copy.host, h.hosts[i]);
        h.now += S(1);
        assert_false(mr_balance_hedge(h.r, h.now, &original, &copy, &again));
        assert_int_equal(again, INT64_MAX);
        mr_balance_free(&h.r);
    }
}

static void a_call_on_a_slow_host_need_not_be_late(void **state)
{
    struct harness h;
    struct mr_balance_call c, copy;
    uint64_t original = 0;
    int64_t again;
    (void)state;

    two_warm_hosts(&h, 100);
    for (int i = 0; i < 100; i++) {
        assert_true(take_avoiding(&h, 1, &h.hosts[1], 1, &c));
        h.now += S(1);
        done(&h, &c, MR_BALANCE_OK);
    }
    assert_true(take_avoiding(&h, 1, &h.hosts[1], 1, &c));
    assert_true(mr_balance_hedge(h.r, h.now, &original, &copy, &again));
    assert_true(original == c.ticket);
    assert_int_equal(copy.host, h.hosts[1]);
    mr_balance_free(&h.r);
}

static void copies_are_one_in_twenty(void **state)
{
    struct harness h;
    struct mr_balance_call c, copy;
    uint64_t original = 0;
    int64_t again;
    uint32_t copies = 0;
    (void)state;

    two_warm_hosts(&h, 10);
    for (int i = 0; i < 1000; i++) {
        assert_true(take(&h, 1, &c));
        h.now += S(1);
        if (mr_balance_hedge(h.r, h.now, &original, &copy, &again)) {
            copies++;
            done(&h, &copy, MR_BALANCE_CANCELLED);
        }
        done(&h, &c, MR_BALANCE_CANCELLED);
    }
    assert_in_range(copies, 45, 53);
    mr_balance_free(&h.r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(retries_are_a_fifth_and_ten_a_second),
        cmocka_unit_test(back_off_is_bounded_and_grows),
        cmocka_unit_test(time_outs_follow_latency),
        cmocka_unit_test(a_late_call_gets_one_copy_elsewhere),
        cmocka_unit_test(a_call_on_a_slow_host_need_not_be_late),
        cmocka_unit_test(copies_are_one_in_twenty),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
