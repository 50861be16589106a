/* Held slots, and the states that a host goes through. */
#include <string.h>

#include "harness.h"

#define LATENCY MS(400)

/* Hosts that have answered: limit 8 each. */
static void warm(struct harness *h, uint32_t hosts)
{
    harness_init(h, hosts, 8);
    for (int i = 0; i < 20; i++) {
        round_trip(h, 1, LATENCY, MR_BALANCE_OK);
    }
    for (uint32_t i = 0; i < hosts; i++) {
        assert_int_equal(view(h, i).limit, 8);
    }
}

/* Take from all hosts; calls of the first end with `outcome` after `after_ns`, others succeed. */
static void trip_of_first(struct harness *h, enum mr_balance_outcome outcome, int64_t after_ns)
{
    burst_take(h, 1);
    h->now += after_ns;
    for (uint32_t i = 0; i < h->burst_len; i++) {
        if (h->burst[i].host == h->hosts[0]) {
            done(h, &h->burst[i], outcome);
        }
    }
    h->now += MR_MAX(LATENCY - after_ns, 0);
    for (uint32_t i = 0; i < h->burst_len; i++) {
        if (h->burst[i].host != h->hosts[0]) {
            done(h, &h->burst[i], MR_BALANCE_OK);
        }
    }
}

static void eject_first(struct harness *h, enum mr_balance_outcome outcome)
{
    for (int i = 0; view(h, 0).state != MR_BALANCE_STATE_EJECTED; i++) {
        assert_true(i < 1000);
        trip_of_first(h, outcome, MS(5));
    }
}

static void a_failure_keeps_its_slot_as_long_as_an_answer_takes(void **state)
{
    struct harness h;
    struct mr_balance_call c;
    (void)state;

    warm(&h, 1);
    int64_t from = h.now;
    assert_int_equal(burst_take(&h, 1), 8);
    h.now += MS(5);
    done(&h, &h.burst[0], MR_BALANCE_FAILED);
    assert_int_equal(view(&h, 0).held, 1);
    assert_int_equal(view(&h, 0).in_flight, 7);
    assert_false(take(&h, 1, &c));
    assert_in_range(mr_balance_next_wake(h.r) - from, LATENCY - MS(1), LATENCY + MS(1));
    h.now = mr_balance_next_wake(h.r);
    assert_true(take(&h, 1, &c));
    /* the next round: twice as long */
    from = h.now;
    done(&h, &c, MR_BALANCE_FAILED);
    assert_in_range(mr_balance_next_wake(h.r) - from, 2 * LATENCY - MS(2), 2 * LATENCY + MS(2));
    mr_balance_free(&h.r);
}

/* How long the host has no room after a failure; other hosts are busy. */
static int64_t held_for(struct harness *h, uint32_t host)
{
    struct mr_balance_call c = {0};
    uint32_t others[3], n = 0;
    int64_t from = h->now;

    for (uint32_t i = 0; i < 3; i++) {
        if (i != host) {
            others[n++] = h->hosts[i];
        }
    }
    while (!take_avoiding(h, 1, others, n, &c) || c.host != h->hosts[host]) {
        assert_true(h->now - from < S(40));
        done(h, &c, MR_BALANCE_CANCELLED);
        h->now += MS(50);
    }
    int64_t took = h->now - from;
    h->now += MS(5);
    done(h, &c, MR_BALANCE_FAILED);
    return took;
}

static void rounds_of_failures_keep_it_longer(void **state)
{
    static const int64_t good[] = {0, 1, 2, 4, 4, 4, 4};
    /* A new host: half of its answers, with those that it has in advance, are bad after the fifth. */
    static const int64_t bad[] = {0, 1, 2, 4, 4, -1, 32};
    struct harness h;
    (void)state;

    warm(&h, 2);
    h.hosts[2] = mr_balance_add(h.r, h.now);
    mr_balance_set_max_limit(h.r, 1);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        int64_t took = held_for(&h, 2);
        if (bad[i] < 0) {
            continue;
        }
        assert_in_range(took + MS(5), LATENCY * bad[i] * 9 / 10,
                        LATENCY * bad[i] * 11 / 10 + MS(60));
    }
    mr_balance_free(&h.r);

    warm(&h, 2);
    mr_balance_set_max_limit(h.r, 1);
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        int64_t took = held_for(&h, 0);
        assert_in_range(took + MS(5), LATENCY * good[i] * 9 / 10,
                        LATENCY * good[i] * 11 / 10 + MS(60));
    }
    assert_true(view(&h, 0).success_rate > 0.5);
    mr_balance_free(&h.r);
}

static void a_slow_failure_keeps_nothing(void **state)
{
    struct harness h;
    (void)state;

    warm(&h, 1);
    burst_take(&h, 1);
    h.now += 2 * LATENCY;
    done(&h, &h.burst[0], MR_BALANCE_FAILED);
    assert_int_equal(view(&h, 0).held, 0);
    mr_balance_free(&h.r);
}

static void one_is_ready_or_none(void **state)
{
    struct harness h;
    (void)state;

    warm(&h, 1);
    for (int i = 0; i < 3; i++) {
        assert_true(mr_balance_is_ready(h.r));
        trip_of_first(&h, MR_BALANCE_FAILED, LATENCY * 4);
    }
    assert_int_equal(view(&h, 0).state, MR_BALANCE_STATE_SUSPECT);
    assert_false(mr_balance_is_ready(h.r));
    h.now += S(60);
    trip_of_first(&h, MR_BALANCE_OK, LATENCY);
    assert_true(mr_balance_is_ready(h.r));
    mr_balance_free(&h.r);
}

static void three_rounds_of_failures_make_suspect(void **state)
{
    struct harness h;
    (void)state;

    warm(&h, 2);
    for (int i = 0; i < 2; i++) {
        trip_of_first(&h, MR_BALANCE_FAILED, LATENCY * 4); /* no holds, a round each */
        assert_int_equal(view(&h, 0).state, MR_BALANCE_STATE_READY);
    }
    trip_of_first(&h, MR_BALANCE_FAILED, LATENCY * 4);
    assert_int_equal(view(&h, 0).state, MR_BALANCE_STATE_SUSPECT);
    assert_int_equal(view(&h, 0).limit, 1);
    assert_non_null(strstr(view(&h, 0).reason, "3 rounds"));
    h.now += S(60);
    trip_of_first(&h, MR_BALANCE_OK, LATENCY);
    assert_int_equal(view(&h, 0).state, MR_BALANCE_STATE_READY);
    assert_int_equal(view(&h, 0).limit, 8);
    mr_balance_free(&h.r);
}

static void ejected_when_few_answers_are_good(void **state)
{
    struct harness h;
    (void)state;

    warm(&h, 2);
    int64_t from = h.now;
    /* Every sixth answer is good, so that rounds are not what counts. */
    for (int i = 0; view(&h, 0).state != MR_BALANCE_STATE_EJECTED; i++) {
        assert_true(i < 1000);
        assert_true(view(&h, 0).success_rate >= 0.2);
        trip_of_first(&h, i % 6 ? MR_BALANCE_FAILED : MR_BALANCE_OK, LATENCY);
    }
    assert_true(view(&h, 0).success_rate < 0.2);
    assert_true(h.now > from);
    assert_int_equal(view(&h, 0).limit, 0);
    mr_balance_free(&h.r);
}

static void a_third_of_failures_does_not_eject(void **state)
{
    struct harness h;
    struct mr_rng rng;
    (void)state;

    warm(&h, 2);
    mr_rng_seed(&rng, 5);
    for (int i = 0; i < 2000; i++) {
        burst_take(&h, 1);
        h.now += LATENCY;
        for (uint32_t k = 0; k < h.burst_len; k++) {
            bool fails = h.burst[k].host == h.hosts[0] && mr_rng_unit(&rng) < 1.0 / 3;
            done(&h, &h.burst[k], fails ? MR_BALANCE_FAILED : MR_BALANCE_OK);
        }
        assert_int_not_equal(view(&h, 0).state, MR_BALANCE_STATE_EJECTED);
    }
    assert_true(view(&h, 0).failed > 4000);
    mr_balance_free(&h.r);
}

static void ejected_for_ten_refused_connections(void **state)
{
    struct harness h;
    (void)state;

    warm(&h, 2);
    for (int i = 0; i < 9; i++) {
        struct mr_balance_call c;
        assert_true(take_avoiding(&h, 1, &h.hosts[1], 1, &c));
        assert_int_equal(c.host, h.hosts[0]);
        done(&h, &c, MR_BALANCE_REFUSED);
        assert_int_not_equal(view(&h, 0).state, MR_BALANCE_STATE_EJECTED);
        h.now += S(40);
    }
    struct mr_balance_call c;
    assert_true(take_avoiding(&h, 1, &h.hosts[1], 1, &c));
    done(&h, &c, MR_BALANCE_REFUSED);
    assert_int_equal(view(&h, 0).state, MR_BALANCE_STATE_EJECTED);
    assert_non_null(strstr(view(&h, 0).reason, "10 connections refused"));
    mr_balance_free(&h.r);
}

static void an_ejected_host_holds_nothing(void **state)
{
    struct harness h;
    (void)state;

    harness_init(&h, 1, 16);
    for (int i = 0; i < 20; i++) {
        round_trip(&h, 1, LATENCY, MR_BALANCE_OK);
    }
    assert_int_equal(burst_take(&h, 1), 16);
    for (uint32_t i = 0; i < 10; i++) {
        assert_int_equal(view(&h, 0).held, i);
        done(&h, &h.burst[i], MR_BALANCE_REFUSED);
    }
    assert_int_equal(view(&h, 0).state, MR_BALANCE_STATE_EJECTED);
    assert_int_equal(view(&h, 0).held, 0);
    assert_int_equal(view(&h, 0).in_flight, 6);
    mr_balance_free(&h.r);
}

/* Seconds until the first host is tried again. */
static int64_t until_tried(struct harness *h, struct mr_balance_call *out)
{
    int64_t from = h->now;

    for (;;) {
        burst_take(h, 1);
        for (uint32_t i = 0; i < h->burst_len; i++) {
            if (h->burst[i].host == h->hosts[0]) {
                *out = h->burst[i];
                h->burst[i--] = h->burst[--h->burst_len];
                int64_t took = h->now - from;
                h->now += MS(10);
                burst_done(h, MR_BALANCE_OK);
                return took;
            }
        }
        assert_true(h->now - from < S(400));
        h->now += LATENCY;
        burst_done(h, MR_BALANCE_OK);
    }
}

/* A call that goes on, as streams do, shows that its host works as well as one that has ended; its time counts for nothing. */
static void an_answer_of_a_call_that_goes_on_makes_ready(void **state)
{
    struct harness h;
    struct mr_balance_call c, other;
    (void)state;

    warm(&h, 1);
    for (int i = 0; i < 3; i++) {
        trip_of_first(&h, MR_BALANCE_FAILED, LATENCY * 4);
    }
    assert_int_equal(view(&h, 0).state, MR_BALANCE_STATE_SUSPECT);
    h.now += S(60);
    assert_true(take(&h, 1, &c));
    assert_false(take(&h, 1, &other));
    assert_true(mr_balance_answers(h.r, h.now, c.ticket));
    assert_false(mr_balance_answers(h.r, h.now, c.ticket));
    assert_int_equal(view(&h, 0).state, MR_BALANCE_STATE_READY);
    assert_int_equal(view(&h, 0).in_flight, 1);
    assert_true(take(&h, 1, &other));
    done(&h, &other, MR_BALANCE_OK);
    done(&h, &c, MR_BALANCE_REJECTED);
    assert_false(mr_balance_answers(h.r, h.now, c.ticket));

    eject_first(&h, MR_BALANCE_FAILED);
    until_tried(&h, &other);
    assert_int_equal(view(&h, 0).state, MR_BALANCE_STATE_HALF_OPEN);
    assert_true(mr_balance_answers(h.r, h.now, other.ticket));
    assert_int_equal(view(&h, 0).state, MR_BALANCE_STATE_READY);
    done(&h, &other, MR_BALANCE_REJECTED);
    assert_int_equal(view(&h, 0).state, MR_BALANCE_STATE_READY);
    mr_balance_free(&h.r);
}

static void half_open_takes_one_call(void **state)
{
    struct harness h;
    struct mr_balance_call c;
    (void)state;

    warm(&h, 2);
    eject_first(&h, MR_BALANCE_FAILED);
    assert_int_equal(view(&h, 0).held, 0);
    assert_in_range(until_tried(&h, &c), S(24) - LATENCY, S(36) + LATENCY);
    assert_int_equal(view(&h, 0).state, MR_BALANCE_STATE_HALF_OPEN);
    burst_take(&h, 1);
    for (uint32_t i = 0; i < h.burst_len; i++) {
        assert_int_not_equal(h.burst[i].host, h.hosts[0]);
    }
    burst_done(&h, MR_BALANCE_OK);
    /* Failed: out again, twice as long. */
    done(&h, &c, MR_BALANCE_FAILED);
    assert_int_equal(view(&h, 0).state, MR_BALANCE_STATE_EJECTED);
    assert_in_range(until_tried(&h, &c), S(48) - LATENCY, S(72) + LATENCY);
    /* The request's own fault and a cancelled call decide nothing: the next one tries. */
    done(&h, &c, MR_BALANCE_REJECTED);
    assert_true(until_tried(&h, &c) < S(1));
    done(&h, &c, MR_BALANCE_CANCELLED);
    assert_true(until_tried(&h, &c) < S(1));
    done(&h, &c, MR_BALANCE_OK);
    assert_int_equal(view(&h, 0).state, MR_BALANCE_STATE_READY);
    assert_int_equal(view(&h, 0).limit, 1);
    /* When it has been good for long, the next ejection is the first again. */
    while (view(&h, 0).success_rate < 0.9) {
        round_trip(&h, 1, LATENCY, MR_BALANCE_OK);
    }
    eject_first(&h, MR_BALANCE_FAILED);
    assert_in_range(until_tried(&h, &c), S(24) - LATENCY, S(36) + LATENCY);
    mr_balance_free(&h.r);
}

/* What it rejects goes elsewhere, and there it is answered. */
static void a_host_whose_refusals_are_refuted_is_ejected(void **state)
{
    struct mr_balance_view v;
    struct harness h;
    uint32_t refuted = 0;
    (void)state;

    warm(&h, 2);
    while (view(&h, 0).state != MR_BALANCE_STATE_EJECTED) {
        trip_of_first(&h, MR_BALANCE_REJECTED, MS(5));
        mr_balance_refuted(h.r, h.now, h.hosts[0], MR_STR("refuses what others answer"));
        assert_true(++refuted <= 10);
    }
    v = view(&h, 0);
    assert_non_null(strstr(v.reason, "refuses what others answer"));
    /* An unknown host is ignored. */
    mr_balance_refuted(h.r, h.now, 4711, MR_STR("?"));
    /* Tried again, it is the same, which is known when another host has answered. */
    struct mr_balance_call c;
    until_tried(&h, &c);
    done(&h, &c, MR_BALANCE_REJECTED);
    assert_false(mr_balance_is_working(h.r, h.hosts[0]));
    mr_balance_refuted(h.r, h.now, h.hosts[0], MR_STR("refuses what others answer"));
    assert_int_equal(view(&h, 0).state, MR_BALANCE_STATE_EJECTED);
    mr_balance_free(&h.r);
}

/* As long as it never answered anything it gets no more than one that does. */
static void a_refusal_of_a_host_without_an_answer_keeps_its_slot(void **state)
{
    struct harness h;
    (void)state;

    warm(&h, 2);
    h.hosts[2] = mr_balance_add(h.r, h.now);
    burst_take(&h, 1);
    for (uint32_t i = 0; i < h.burst_len; i++) {
        if (h.burst[i].host == h.hosts[2]) {
            done(&h, &h.burst[i], MR_BALANCE_REJECTED);
        }
    }
    assert_int_equal(view(&h, 2).held, 2);
    trip_of_first(&h, MR_BALANCE_REJECTED, MS(5));
    assert_int_equal(view(&h, 0).held, 0);
    mr_balance_free(&h.r);
}

static void the_last_host_is_tried_every_ten_seconds(void **state)
{
    struct harness h;
    struct mr_balance_call c;
    int64_t since, began, waited = 0;
    (void)state;

    warm(&h, 2);
    began = h.now;
    assert_false(mr_balance_is_stalled(h.r, &since));
    for (int i = 0; !mr_balance_is_stalled(h.r, &since); i++) {
        assert_true(i < 100);
        wait_for_room(&h, S(31), &c);
        done(&h, &c, MR_BALANCE_REFUSED);
    }
    assert_int_equal(since, began);
    for (int i = 0; i < 50; i++) {
        waited = wait_for_room(&h, S(10), &c);
        assert_true(i > 0 || waited < S(1));
        done(&h, &c, MR_BALANCE_FAILED);
        assert_true(mr_balance_is_stalled(h.r, NULL));
    }
    assert_true(waited >= S(8));
    /* One works again: so may the other. */
    wait_for_room(&h, S(10), &c);
    done(&h, &c, MR_BALANCE_OK);
    assert_false(mr_balance_is_stalled(h.r, NULL));
    assert_int_equal(burst_take(&h, 1), 2);
    assert_int_not_equal(h.burst[0].host, h.burst[1].host);
    /* Failures during an ejection do not make the next one longer. */
    h.now += LATENCY;
    burst_done(&h, MR_BALANCE_OK);
    eject_first(&h, MR_BALANCE_FAILED);
    assert_in_range(until_tried(&h, &c), S(24) - LATENCY, S(72) + LATENCY);
    mr_balance_free(&h.r);
}

static void throttled_hosts_are_left_alone_for_as_long_as_they_ask(void **state)
{
    struct harness h;
    struct mr_balance_call c;
    (void)state;

    warm(&h, 1);
    burst_take(&h, 1);
    for (uint32_t i = 0; i < h.burst_len; i++) {
        mr_balance_done(h.r, h.now, h.burst[i].ticket, MR_BALANCE_THROTTLED, S(3));
    }
    assert_true(mr_balance_is_stalled(h.r, NULL));
    const struct mr_balance_ask hurried = {.rows = 1, .takes_throttled = true};
    assert_false(take(&h, 1, &c));
    assert_true(mr_balance_pick(h.r, h.now, &hurried, &c)); /* who cannot wait asks all the same */
    struct mr_balance_call second;
    assert_true(mr_balance_pick(h.r, h.now, &hurried, &second)); /* and so do others */
    mr_balance_done(h.r, h.now, c.ticket, MR_BALANCE_CANCELLED, 0);
    mr_balance_done(h.r, h.now, second.ticket, MR_BALANCE_CANCELLED, 0);
    assert_in_range(wait_for_room(&h, S(4), &c), S(3), S(3) + MS(310));
    assert_int_equal(burst_take(&h, 1), 0); /* one at a time until it succeeds */
    h.now += LATENCY;
    done(&h, &c, MR_BALANCE_OK);
    assert_false(mr_balance_is_stalled(h.r, NULL));
    assert_int_equal(burst_take(&h, 1), 5);
    assert_int_equal(view(&h, 0).failed, 0);
    assert_true(view(&h, 0).success_rate == 1);
    burst_done(&h, MR_BALANCE_OK);
    /* An absurd wish is cut to five minutes. */
    assert_true(take(&h, 1, &c));
    mr_balance_done(h.r, h.now, c.ticket, MR_BALANCE_THROTTLED, INT64_MAX);
    assert_in_range(wait_for_room(&h, S(331), &c), S(300), S(330));
    mr_balance_free(&h.r);
}

static void rejected_calls_count_neither_way(void **state)
{
    struct harness h;
    (void)state;

    warm(&h, 1);
    uint64_t ok = view(&h, 0).ok;
    for (int i = 0; i < 100; i++) {
        assert_int_equal(
            round_trip(&h, 1, MS(1), i % 2 ? MR_BALANCE_REJECTED : MR_BALANCE_CANCELLED), 8);
    }
    assert_int_equal(view(&h, 0).state, MR_BALANCE_STATE_READY);
    assert_int_equal(view(&h, 0).ok, ok);
    assert_int_equal(view(&h, 0).failed, 0);
    mr_balance_free(&h.r);
}

static void cordoned_until_the_caller_says_otherwise(void **state)
{
    struct harness h;
    struct mr_balance_call c;
    (void)state;

    warm(&h, 2);
    mr_balance_cordon(h.r, h.now, h.hosts[0], MR_STR("version 2, wanted 1"));
    assert_int_equal(view(&h, 0).state, MR_BALANCE_STATE_CORDONED);
    assert_string_equal(view(&h, 0).reason, "version 2, wanted 1");
    assert_int_equal(burst_take(&h, 1), 8);
    burst_done(&h, MR_BALANCE_OK);
    mr_balance_cordon(h.r, h.now, h.hosts[1], MR_STR(""));
    assert_false(take(&h, 1, &c));
    assert_true(mr_balance_is_stalled(h.r, NULL));
    assert_int_equal(mr_balance_next_wake(h.r), INT64_MAX);
    mr_balance_uncordon(h.r, h.now, h.hosts[0]);
    assert_int_equal(burst_take(&h, 1), 1);
    assert_int_equal(h.burst[0].host, h.hosts[0]);
    burst_done(&h, MR_BALANCE_OK);
    assert_int_equal(view(&h, 0).state, MR_BALANCE_STATE_READY);
    mr_balance_free(&h.r);
}

static void removed_when_the_last_call_is_done(void **state)
{
    struct harness h;
    struct mr_balance_call c;
    uint32_t old;
    (void)state;

    warm(&h, 1);
    old = h.hosts[0];
    assert_true(take(&h, 1, &c));
    mr_balance_remove(h.r, h.now, old);
    assert_int_equal(view(&h, 0).state, MR_BALANCE_STATE_DRAINING);
    assert_int_equal(burst_take(&h, 1), 0);
    mr_balance_cordon(h.r, h.now, old, MR_STR("too late"));
    assert_int_equal(view(&h, 0).state, MR_BALANCE_STATE_DRAINING);
    done(&h, &c, MR_BALANCE_FAILED);
    assert_int_equal(mr_balance_views(h.r, h.now, NULL, 0), 0);
    assert_int_not_equal(mr_balance_add(h.r, h.now), old);
    mr_balance_remove(h.r, h.now, old); /* not known any more */
    assert_int_equal(mr_balance_views(h.r, h.now, NULL, 0), 1);
    mr_balance_free(&h.r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_failure_keeps_its_slot_as_long_as_an_answer_takes),
        cmocka_unit_test(rounds_of_failures_keep_it_longer),
        cmocka_unit_test(a_slow_failure_keeps_nothing),
        cmocka_unit_test(one_is_ready_or_none),
        cmocka_unit_test(an_answer_of_a_call_that_goes_on_makes_ready),
        cmocka_unit_test(three_rounds_of_failures_make_suspect),
        cmocka_unit_test(ejected_when_few_answers_are_good),
        cmocka_unit_test(a_third_of_failures_does_not_eject),
        cmocka_unit_test(ejected_for_ten_refused_connections),
        cmocka_unit_test(an_ejected_host_holds_nothing),
        cmocka_unit_test(half_open_takes_one_call),
        cmocka_unit_test(the_last_host_is_tried_every_ten_seconds),
        cmocka_unit_test(throttled_hosts_are_left_alone_for_as_long_as_they_ask),
        cmocka_unit_test(rejected_calls_count_neither_way),
        cmocka_unit_test(cordoned_until_the_caller_says_otherwise),
        cmocka_unit_test(removed_when_the_last_call_is_done),
        cmocka_unit_test(a_host_whose_refusals_are_refuted_is_ejected),
        cmocka_unit_test(a_refusal_of_a_host_without_an_answer_keeps_its_slot),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
