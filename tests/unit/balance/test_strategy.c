/* Which hosts get the calls, by strategy. */
#include <stdio.h>

#include "harness.h"

#define HOSTS 5u
#define CALLS 6000u

static void setup(struct harness *h, enum mr_balance_strategy strategy, uint32_t hosts)
{
    struct mr_balance_options o = {
        .seed = 7, .max_limit = 16, .is_limit_fixed = true, .strategy = strategy};

    *h = (struct harness){.now = S(1000)};
    h->r = mr_balance_new(&o, h->now);
    for (uint32_t i = 0; i < hosts; i++) {
        h->hosts[i] = mr_balance_add(h->r, h->now);
        mr_balance_set_share(h->r, h->hosts[i], i + 1, 1000 + i);
    }
}

static uint32_t index_of(const struct harness *h, uint32_t host)
{
    for (uint32_t i = 0; i < HOSTS; i++) {
        if (h->hosts[i] == host) {
            return i;
        }
    }
    fail_msg("a host that is not there");
    return 0;
}

static uint32_t ask_one(struct harness *h, const struct mr_balance_ask *ask)
{
    struct mr_balance_call c;

    assert_true(mr_balance_pick(h->r, h->now, ask, &c));
    h->now += MS(1);
    done(h, &c, MR_BALANCE_OK);
    return index_of(h, c.host);
}

static uint32_t one(struct harness *h, uint64_t key)
{
    return ask_one(h, &(struct mr_balance_ask){.rows = 1, .key = key});
}

static void count(struct harness *h, uint32_t out[HOSTS])
{
    memset(out, 0, HOSTS * sizeof *out);
    for (uint32_t i = 0; i < CALLS; i++) {
        out[one(h, 0)]++;
    }
}

static void test_in_turn(void **state)
{
    struct harness h;
    uint32_t n[HOSTS];

    (void)state;
    setup(&h, MR_BALANCE_ROUND_ROBIN, HOSTS);
    for (uint32_t round = 0; round < 100; round++) {
        uint32_t seen = 0;
        for (uint32_t i = 0; i < HOSTS; i++) {
            seen |= 1u << one(&h, 0);
        }
        assert_int_equal(seen, (1u << HOSTS) - 1);
    }
    mr_balance_free(&h.r);
    setup(&h, MR_BALANCE_WEIGHTED_ROBIN, HOSTS);
    count(&h, n);
    for (uint32_t i = 0; i < HOSTS; i++) {
        assert_in_range(n[i], CALLS * (i + 1) / 15 - 1, CALLS * (i + 1) / 15 + 1);
    }
    mr_balance_free(&h.r);
}

/* A host without room, or one that is new, gets no more than the others afterwards. */
static void test_no_catching_up(void **state)
{
    struct harness h;
    uint32_t n[HOSTS] = {0};

    (void)state;
    setup(&h, MR_BALANCE_ROUND_ROBIN, HOSTS - 1);
    for (uint32_t i = 0; i < 1000; i++) {
        one(&h, 0);
    }
    h.hosts[HOSTS - 1] = mr_balance_add(h.r, h.now);
    for (uint32_t i = 0; i < 50; i++) {
        n[one(&h, 0)]++;
    }
    assert_in_range(n[HOSTS - 1], 9, 12);
    mr_balance_free(&h.r);
}

static void test_at_random(void **state)
{
    struct harness h;
    uint32_t n[HOSTS];

    (void)state;
    setup(&h, MR_BALANCE_RANDOM, HOSTS);
    count(&h, n);
    for (uint32_t i = 0; i < HOSTS; i++) {
        assert_in_range(n[i], CALLS / HOSTS * 85 / 100, CALLS / HOSTS * 115 / 100);
    }
    mr_balance_free(&h.r);
    setup(&h, MR_BALANCE_WEIGHTED_RANDOM, HOSTS);
    count(&h, n);
    for (uint32_t i = 0; i < HOSTS; i++) {
        const uint32_t due = CALLS * (i + 1) / 15;
        assert_in_range(n[i], due * 80 / 100, due * 120 / 100);
    }
    mr_balance_free(&h.r);
}

static void test_fewest(void **state)
{
    struct harness h;
    uint32_t n[HOSTS] = {0};

    (void)state;
    setup(&h, MR_BALANCE_LEAST_REQUEST, HOSTS);
    for (uint32_t i = 0; i < 15; i++) {
        const struct mr_balance_ask ask = {.rows = 1};
        struct mr_balance_call c;
        assert_true(mr_balance_pick(h.r, h.now, &ask, &c));
        n[index_of(&h, c.host)]++;
    }
    for (uint32_t i = 0; i < HOSTS; i++) {
        assert_int_equal(n[i], i + 1);
    }
    mr_balance_free(&h.r);
}

/* Each key has its host; one that leaves moves its own keys only. */
static void test_by_key(void **state)
{
    enum { KEYS = 500 };
    struct harness h;
    uint32_t before[KEYS], own = 0;
    char text[16];

    (void)state;
    setup(&h, MR_BALANCE_HASH, HOSTS);
    for (uint32_t k = 0; k < KEYS; k++) {
        const int len = snprintf(text, sizeof text, "user-%u", k);
        const uint64_t key = mr_balance_hash(mr_str_n(text, (size_t)len));
        before[k] = one(&h, key);
        assert_int_equal(one(&h, key), before[k]);
        own += before[k] == 2;
    }
    assert_in_range(own, KEYS * 3 / 15 / 2, KEYS * 3 / 15 * 2);
    mr_balance_remove(h.r, h.now, h.hosts[2]);
    for (uint32_t k = 0; k < KEYS; k++) {
        const int len = snprintf(text, sizeof text, "user-%u", k);
        const uint32_t now = one(&h, mr_balance_hash(mr_str_n(text, (size_t)len)));
        assert_true(before[k] == 2 ? now != 2 : now == before[k]);
    }
    mr_balance_free(&h.r);
}

/* A call that is sticky goes by its key with each strategy, also where others look at a few hosts. */
static void test_sticky(void **state)
{
    (void)state;
    for (int strategy = 0; strategy < MR_BALANCE_STRATEGIES; strategy++) {
        struct harness h;
        setup(&h, (enum mr_balance_strategy)strategy, HOSTS);
        for (uint64_t key = 1; key <= 50; key++) {
            const uint64_t hash = mr_balance_hash(mr_str_n((const char *)&key, sizeof key));
            const struct mr_balance_ask ask = {.rows = 1, .key = hash, .is_sticky = true};
            const uint32_t first = ask_one(&h, &ask);
            one(&h, 0);
            assert_int_equal(ask_one(&h, &ask), first);
        }
        mr_balance_free(&h.r);
    }
}

static void test_fixed_limit(void **state)
{
    struct harness h;
    struct mr_balance_call c;

    (void)state;
    setup(&h, MR_BALANCE_PEAK_EWMA, 1);
    for (uint32_t i = 0; i < 16; i++) {
        assert_true(take(&h, 1, &c));
    }
    assert_false(take(&h, 1, &c));
    done(&h, &c, MR_BALANCE_OK);
    assert_true(take(&h, 1, &c));
    mr_balance_free(&h.r);
}

static void test_hedge_of_one_call(void **state)
{
    struct harness h;
    struct mr_balance_call first, copy, more;

    (void)state;
    setup(&h, MR_BALANCE_PEAK_EWMA, 2);
    assert_true(take(&h, 1, &first));
    const struct mr_balance_ask ask = {.rows = 1, .avoid = &first.host, .avoid_count = 1};
    assert_true(mr_balance_hedge_call(h.r, h.now, first.ticket, &ask, &copy));
    assert_int_not_equal(first.host, copy.host);
    assert_false(mr_balance_hedge_call(h.r, h.now, first.ticket, &ask, &more));
    assert_false(mr_balance_hedge_call(h.r, h.now, copy.ticket, &ask, &more));
    done(&h, &copy, MR_BALANCE_OK);
    done(&h, &first, MR_BALANCE_CANCELLED);
    assert_false(mr_balance_hedge_call(h.r, h.now, first.ticket, &ask, &more));
    mr_balance_free(&h.r);
}

static void test_names(void **state)
{
    static const char *const names[MR_BALANCE_STRATEGIES] = {
        "peak_ewma",       "p2c", "least_request", "round_robin", "weighted_round_robin", "random",
        "weighted_random", "hash"};
    enum mr_balance_strategy s;

    (void)state;
    for (int i = 0; i < MR_BALANCE_STRATEGIES; i++) {
        assert_true(mr_balance_strategy_parse(mr_str_c(names[i]), &s));
        assert_int_equal(s, i);
    }
    assert_true(mr_balance_strategy_parse(MR_STR("rr"), &s) && s == MR_BALANCE_ROUND_ROBIN);
    assert_true(mr_balance_strategy_parse(MR_STR("la"), &s) && s == MR_BALANCE_LEAST_REQUEST);
    assert_true(mr_balance_strategy_parse(MR_STR("c_md5"), &s) && s == MR_BALANCE_HASH);
    assert_false(mr_balance_strategy_parse(MR_STR(""), &s));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_in_turn),
        cmocka_unit_test(test_no_catching_up),
        cmocka_unit_test(test_at_random),
        cmocka_unit_test(test_fewest),
        cmocka_unit_test(test_by_key),
        cmocka_unit_test(test_fixed_limit),
        cmocka_unit_test(test_sticky),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_hedge_of_one_call),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
