/* Which host gets a call. */
#include "harness.h"

static void equal_hosts_get_equal_shares(void **state)
{
    struct harness h;
    struct mr_balance_call c;
    uint32_t count[4] = {0};
    (void)state;

    harness_init(&h, 4, 0);
    for (int i = 0; i < 4000; i++) {
        assert_true(take(&h, 1, &c));
        for (int k = 0; k < 4; k++) {
            count[k] += c.host == h.hosts[k];
        }
        h.now += MS(10);
        done(&h, &c, MR_BALANCE_OK);
    }
    for (int k = 0; k < 4; k++) {
        assert_in_range(count[k], 800, 1200);
    }
    mr_balance_free(&h.r);
}

static void a_slow_host_gets_few_and_is_not_forgotten(void **state)
{
    struct harness h;
    struct mr_balance_call c;
    uint32_t slow = 0;
    (void)state;

    harness_init(&h, 4, 0);
    for (int i = 0; i < 4000; i++) {
        assert_true(take(&h, 1, &c));
        bool is_slow = c.host == h.hosts[0];
        slow += is_slow;
        h.now += is_slow ? MS(160) : MS(10);
        done(&h, &c, MR_BALANCE_OK);
    }
    assert_in_range(slow, 3, 400);
    mr_balance_free(&h.r);
}

/* Its answers are never waited for to the end, so there are none: their age is enough. */
static void a_host_whose_calls_are_given_up_gets_few(void **state)
{
    struct harness h;
    struct mr_balance_call c;
    uint32_t slow = 0;
    (void)state;

    harness_init(&h, 4, 0);
    for (int i = 0; i < 4000; i++) {
        assert_true(take(&h, 1, &c));
        bool is_slow = c.host == h.hosts[0];
        slow += is_slow;
        h.now += is_slow ? MS(160) : MS(10);
        done(&h, &c, is_slow ? MR_BALANCE_CANCELLED : MR_BALANCE_OK);
    }
    assert_in_range(slow, 3, 400);
    mr_balance_free(&h.r);
}

static void the_one_with_fewer_calls_is_taken(void **state)
{
    struct harness h;
    struct mr_balance_call a, b;
    (void)state;

    harness_init(&h, 2, 0);
    for (int i = 0; i < 100; i++) {
        assert_true(take(&h, 1, &a));
        assert_true(take(&h, 1, &b));
        assert_int_not_equal(a.host, b.host);
        h.now += MS(10);
        done(&h, &a, MR_BALANCE_OK);
        done(&h, &b, MR_BALANCE_OK);
    }
    mr_balance_free(&h.r);
}

static void hosts_to_avoid_are_a_last_resort(void **state)
{
    struct harness h;
    struct mr_balance_call c;
    (void)state;

    harness_init(&h, 2, 0);
    /* The other one is full, but it works: wait for it. */
    for (int i = 0; i < 2; i++) {
        assert_true(take_avoiding(&h, 1, h.hosts, 1, &c));
        assert_int_equal(c.host, h.hosts[1]);
    }
    assert_false(take_avoiding(&h, 1, h.hosts, 1, &c));
    assert_true(take(&h, 1, &c));
    /* It is out: take what there is. */
    mr_balance_cordon(h.r, h.now, h.hosts[1], MR_STR("test"));
    assert_true(take_avoiding(&h, 1, h.hosts, 1, &c));
    assert_int_equal(c.host, h.hosts[0]);
    mr_balance_free(&h.r);
}

static void hosts_that_cannot_take_it_never_get_it(void **state)
{
    struct harness h;
    struct mr_balance_call c;
    (void)state;

    harness_init(&h, 2, 0);
    const struct mr_balance_ask ask = {
        .rows = 1, .avoid = h.hosts, .avoid_count = 1, .never = h.hosts + 1, .never_count = 1};
    for (int i = 0; i < 2; i++) {
        assert_true(mr_balance_pick(h.r, h.now, &ask, &c)); /* the last resort, at once */
        assert_int_equal(c.host, h.hosts[0]);
    }
    assert_false(mr_balance_pick(h.r, h.now, &ask, &c));
    done(&h, &c, MR_BALANCE_OK);
    assert_true(mr_balance_pick(h.r, h.now, &ask, &c));
    mr_balance_cordon(h.r, h.now, h.hosts[0], MR_STR("test"));
    assert_false(mr_balance_pick(h.r, h.now, &ask, &c));
    mr_balance_free(&h.r);
}

static void all_of_many_hosts_are_used(void **state)
{
    struct harness h;
    (void)state;

    harness_init(&h, 200, 0);
    assert_int_equal(burst_take(&h, 1), 400);
    for (uint32_t i = 0; i < 200; i++) {
        assert_int_equal(view(&h, i).in_flight, 2);
    }
    mr_balance_free(&h.r);
}

static void what_is_not_known_is_ignored(void **state)
{
    struct harness h;
    struct mr_balance_call c, other;
    (void)state;

    harness_init(&h, 1, 0);
    assert_true(take(&h, 1, &c));
    done(&h, &c, MR_BALANCE_FAILED);
    done(&h, &c, MR_BALANCE_FAILED);
    assert_int_equal(view(&h, 0).failed, 1);
    assert_true(take(&h, 1, &other)); /* the same entry */
    assert_int_equal(other.index, c.index);
    done(&h, &c, MR_BALANCE_OK);
    assert_int_equal(view(&h, 0).ok, 0);
    assert_int_equal(view(&h, 0).in_flight, 1);
    mr_balance_done(h.r, h.now, 0, MR_BALANCE_OK, 0);
    mr_balance_done(h.r, h.now, UINT64_MAX, MR_BALANCE_OK, 0);
    mr_balance_remove(h.r, h.now, 0);
    mr_balance_remove(h.r, h.now, UINT32_MAX);
    mr_balance_cordon(h.r, h.now, 12345, MR_STR("x"));
    mr_balance_uncordon(h.r, h.now, h.hosts[0]); /* was not cordoned */
    assert_int_equal(view(&h, 0).state, MR_BALANCE_STATE_READY);
    mr_balance_free(&h.r);
    assert_null(h.r);
    mr_balance_free(&h.r);
}

static void views_tell_latency(void **state)
{
    struct harness h;
    struct mr_balance_call c;
    struct mr_balance_view v;
    (void)state;

    harness_init(&h, 1, 0);
    v = view(&h, 0);
    assert_int_equal(v.p50_ns, 0);
    for (int i = 1; i <= 100; i++) {
        assert_true(take(&h, 4, &c));
        h.now += MS(i);
        done(&h, &c, MR_BALANCE_OK);
    }
    v = view(&h, 0);
    assert_in_range(v.p50_ns, MS(49), MS(51));
    assert_in_range(v.p95_ns, MS(94), MS(96));
    assert_in_range(v.row_p50_ns, MS(12), MS(13));
    assert_int_equal(v.ok, 100);
    assert_string_equal(mr_balance_state_name(v.state), "ready");
    assert_string_equal(mr_balance_state_name((enum mr_balance_state)99), "unknown");
    mr_balance_free(&h.r);
}

/* One call may be too heavy for the limit; beside others it is not taken. */
static void weights_bound_what_a_host_has(void **state)
{
    const struct mr_balance_options o = {.seed = 7, .max_weight = 100};
    struct mr_balance_call c[4];
    struct mr_balance_ask ask = {.rows = 1, .weight = 60};
    const int64_t now = S(1000);
    struct mr_balance *r = mr_balance_new(&o, now);
    (void)state;

    mr_balance_add(r, now);
    assert_true(mr_balance_pick(r, now, &ask, &c[0]));
    assert_false(mr_balance_pick(r, now, &ask, &c[1]));
    ask.weight = 40;
    assert_true(mr_balance_pick(r, now, &ask, &c[1]));
    mr_balance_done(r, now + MS(10), c[0].ticket, MR_BALANCE_OK, 0);
    mr_balance_done(r, now + MS(10), c[1].ticket, MR_BALANCE_CANCELLED, 0);
    ask.weight = 500;
    assert_true(mr_balance_pick(r, now + MS(10), &ask, &c[2]));
    ask.weight = 1;
    assert_false(mr_balance_pick(r, now + MS(10), &ask, &c[3]));
    mr_balance_free(&r);
}

/* Answers of unknown length: a ten times longer one does not mean a slower host. */
static void sizes_that_come_with_the_answer(void **state)
{
    struct mr_balance_view v;
    struct mr_balance_call c;
    struct harness h;
    (void)state;

    harness_init(&h, 1, 64);
    for (int i = 0; i < 300; i++) {
        const int64_t size = i % 2 ? 100 : 10;
        assert_true(take(&h, 40, &c));
        h.now += MS(size);
        mr_balance_done_sized(h.r, h.now, c.ticket, size);
    }
    assert_int_equal(mr_balance_views(h.r, h.now, &v, 1), 1);
    assert_in_range(v.row_p50_ns, MS(1) - MS(1) / 10, MS(1) + MS(1) / 10);
    assert_in_range(v.row_p95_ns, MS(1) - MS(1) / 10, MS(1) + MS(1) / 10);
    mr_balance_free(&h.r);
}

/* Beyond the limit that its calls have shown, and never beyond a configured one. */
static void one_host_and_no_other(void **state)
{
    struct mr_balance_call c[8];
    struct harness h;
    uint32_t n = 0;
    (void)state;

    harness_init(&h, 2, 4);
    burst_take(&h, 1);
    assert_false(take(&h, 1, &c[0]));
    while (n < 8 && mr_balance_pick_host(h.r, h.now, h.hosts[1], &c[n])) {
        assert_int_equal(c[n++].host, h.hosts[1]);
    }
    assert_int_equal(view(&h, 1).in_flight, 4);
    done(&h, &c[0], MR_BALANCE_THROTTLED);
    assert_false(mr_balance_pick_host(h.r, h.now, h.hosts[1], &c[0]));
    mr_balance_cordon(h.r, h.now, h.hosts[0], mr_str_c("another model"));
    assert_false(mr_balance_pick_host(h.r, h.now, h.hosts[0], &c[0]));
    assert_false(mr_balance_pick_host(h.r, h.now, 77, &c[0]));
    mr_balance_free(&h.r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(weights_bound_what_a_host_has),
        cmocka_unit_test(sizes_that_come_with_the_answer),
        cmocka_unit_test(equal_hosts_get_equal_shares),
        cmocka_unit_test(a_slow_host_gets_few_and_is_not_forgotten),
        cmocka_unit_test(a_host_whose_calls_are_given_up_gets_few),
        cmocka_unit_test(the_one_with_fewer_calls_is_taken),
        cmocka_unit_test(hosts_to_avoid_are_a_last_resort),
        cmocka_unit_test(hosts_that_cannot_take_it_never_get_it),
        cmocka_unit_test(all_of_many_hosts_are_used),
        cmocka_unit_test(what_is_not_known_is_ignored),
        cmocka_unit_test(views_tell_latency),
        cmocka_unit_test(one_host_and_no_other),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
