/* Whatever happens, in any order: limits are kept, nothing is lost, and work ends while one host works. */
#include <string.h>

#include "balance_priv.h"
#include "harness.h"

#define HOSTS 6
#define STEPS 20000

struct world {
    struct harness h;
    struct mr_rng rng;
    struct mr_balance_call open[4096];
    uint32_t open_len;
};

static uint64_t below(struct world *w, uint64_t n)
{
    return mr_rng_u64(&w->rng) % n;
}

static uint32_t open_on(const struct world *w, uint32_t host)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < w->open_len; i++) {
        n += w->open[i].host == host;
    }
    return n;
}

static void check_holds(struct world *w)
{
    const struct mr_balance *r = w->h.r;
    size_t held = 0;

    for (size_t i = 0; i < r->slots.len; i++) {
        held += r->slots.at[i] ? r->slots.at[i]->held : 0;
    }
    assert_int_equal(held, r->holds.len);
    for (size_t i = 0; i < r->holds.len; i++) {
        assert_true(r->holds.at[(i ? i - 1 : 0) / 2].until_ns <= r->holds.at[i].until_ns);
        assert_true(r->holds.at[i].until_ns > r->now_ns);
    }
}

static void check_views(struct world *w)
{
    struct mr_balance_view v[64];
    uint32_t n = mr_balance_views(w->h.r, w->h.now, v, 64), sum = 0;

    assert_true(n <= 64);
    for (uint32_t i = 0; i < n; i++) {
        assert_int_equal(v[i].in_flight, open_on(w, v[i].host));
        assert_true(v[i].limit <= 32);
        assert_true(v[i].success_rate >= 0 && v[i].success_rate <= 1);
        assert_true(memchr(v[i].reason, 0, sizeof v[i].reason) != NULL);
        sum += v[i].in_flight;
    }
    assert_int_equal(sum, w->open_len);
    check_holds(w);
}

static struct mr_balance_view view_of(struct world *w, uint32_t host)
{
    struct mr_balance_view v[64];
    uint32_t n = mr_balance_views(w->h.r, w->h.now, v, 64), i = 0;

    while (i < n && v[i].host != host) {
        i++;
    }
    assert_true(i < n);
    return v[i];
}

static void opened(struct world *w, const struct mr_balance_call *c)
{
    struct mr_balance_view v;

    for (uint32_t i = 0; i < w->open_len; i++) {
        assert_int_not_equal(w->open[i].index, c->index);
        assert_true(w->open[i].ticket != c->ticket);
    }
    assert_true(c->timeout_ns > 0);
    w->open[w->open_len++] = *c;
    v = view_of(w, c->host);
    assert_true(v.state <= MR_BALANCE_STATE_HALF_OPEN && v.state != MR_BALANCE_STATE_EJECTED);
    /* Calls from before an ejection do not count for the one that tries the host. */
    assert_true(v.in_flight + v.held <= v.limit || v.state == MR_BALANCE_STATE_HALF_OPEN);
}

static void step(struct world *w)
{
    struct harness *h = &w->h;
    struct mr_balance_call c;
    uint64_t original, what = below(w, 100);
    int64_t again;
    uint32_t i = (uint32_t)below(w, HOSTS);

    if (what < 45) {
        struct mr_balance_ask ask = {.rows = (int64_t)below(w, 300),
                                     .avoid = h->hosts,
                                     .avoid_count = (uint32_t)below(w, HOSTS),
                                     .is_retry = what < 5};
        if (mr_balance_pick(h->r, h->now, &ask, &c)) {
            opened(w, &c);
        }
    } else if (what < 85 && w->open_len > 0) {
        uint32_t k = (uint32_t)below(w, w->open_len);
        c = w->open[k];
        w->open[k] = w->open[--w->open_len];
        mr_balance_done(h->r, h->now, c.ticket, (enum mr_balance_outcome)below(w, 7),
                        (int64_t)(below(w, 2) * below(w, 1000) * (uint64_t)MS(10)));
    } else if (what < 90) {
        if (mr_balance_hedge(h->r, h->now, &original, &c, &again)) {
            opened(w, &c);
        }
    } else if (what < 92) {
        mr_balance_may_retry(h->r, h->now, &again);
    } else if (what < 96) {
        mr_balance_cordon(h->r, h->now, h->hosts[i], MR_STR("random"));
    } else if (what < 98) {
        mr_balance_uncordon(h->r, h->now, h->hosts[i]);
    } else if (what < 99 && mr_balance_views(h->r, h->now, NULL, 0) < 60) {
        mr_balance_remove(h->r, h->now, h->hosts[i]);
        h->hosts[i] = mr_balance_add(h->r, h->now);
    } else {
        h->now += (int64_t)below(w, (uint64_t)S(20)); /* a long silence */
    }
    h->now += (int64_t)below(w, (uint64_t)MS(100));
}

/* From whatever state that led to: all hosts fail but the last one, which gets its calls through. */
static void ends_with_one_host(struct world *w)
{
    struct harness *h = &w->h;
    struct mr_balance_call c;
    int64_t from = h->now;
    uint32_t ok = 0;

    for (uint32_t i = 0; i < HOSTS; i++) {
        mr_balance_uncordon(h->r, h->now, h->hosts[i]);
    }
    while (ok < 200) {
        wait_for_room(h, S(400), &c);
        h->now += MS(20);
        done(h, &c, c.host == h->hosts[HOSTS - 1] ? MR_BALANCE_OK : MR_BALANCE_REFUSED);
        ok += c.host == h->hosts[HOSTS - 1];
        assert_true(h->now - from < S(3600));
    }
    assert_false(mr_balance_is_stalled(h->r, NULL));
}

static void keeps_its_promises(void **state)
{
    struct world *w = MR_NEW(struct world);
    (void)state;

    for (uint64_t seed = 1; seed <= 10; seed++) {
        mr_rng_seed(&w->rng, seed);
        harness_init(&w->h, HOSTS, 32);
        w->open_len = 0;
        for (int i = 0; i < STEPS; i++) {
            step(w);
            if (i % 16 == 0) {
                check_views(w);
            }
        }
        while (w->open_len > 0) {
            done(&w->h, &w->open[--w->open_len], MR_BALANCE_CANCELLED);
        }
        check_views(w);
        assert_int_equal(mr_balance_views(w->h.r, w->h.now, NULL, 0), HOSTS);
        ends_with_one_host(w);
        mr_balance_free(&w->h.r);
    }
    mr_free(w);
}

/* Equal events and an equal seed give equal decisions. */
static void is_deterministic(void **state)
{
    struct world *w[2] = {MR_NEW(struct world), MR_NEW(struct world)};
    (void)state;

    for (int k = 0; k < 2; k++) {
        mr_rng_seed(&w[k]->rng, 99);
        harness_init(&w[k]->h, HOSTS, 32);
    }
    for (int i = 0; i < STEPS / 4; i++) {
        step(w[0]);
        step(w[1]);
        assert_int_equal(w[0]->open_len, w[1]->open_len);
        assert_memory_equal(w[0]->open, w[1]->open, w[0]->open_len * sizeof *w[0]->open);
        assert_int_equal(mr_balance_next_wake(w[0]->h.r), mr_balance_next_wake(w[1]->h.r));
    }
    for (int k = 0; k < 2; k++) {
        mr_balance_free(&w[k]->h.r);
        mr_free(w[k]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keeps_its_promises),
        cmocka_unit_test(is_deterministic),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
