/* A balance whose time and answers the test makes up. */
#ifndef TESTS_UNIT_ROUTE_HARNESS_H
#define TESTS_UNIT_ROUTE_HARNESS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "balance/balance.h"
#include "base/clock.h"
#include "base/mem.h"
#include "base/rng.h"

#define MS(n)       ((int64_t)(n)*MR_NS_PER_MS)
#define S(n)        ((int64_t)(n)*MR_NS_PER_S)
#define BURST_CALLS 1024

struct harness {
    struct mr_balance *r;
    int64_t now;
    uint32_t hosts[256];
    struct mr_balance_call burst[BURST_CALLS];
    uint32_t burst_len;
};

static inline void harness_init(struct harness *h, uint32_t hosts, uint32_t max_limit)
{
    struct mr_balance_options o = {.seed = 7, .max_limit = max_limit};

    *h = (struct harness){.now = S(1000)};
    h->r = mr_balance_new(&o, h->now);
    for (uint32_t i = 0; i < hosts; i++) {
        h->hosts[i] = mr_balance_add(h->r, h->now);
        assert_int_not_equal(h->hosts[i], 0);
    }
}

static inline bool take_avoiding(struct harness *h, int64_t rows, const uint32_t *avoid, uint32_t n,
                                 struct mr_balance_call *c)
{
    struct mr_balance_ask ask = {.rows = rows, .avoid = avoid, .avoid_count = n};

    return mr_balance_pick(h->r, h->now, &ask, c);
}

static inline bool take(struct harness *h, int64_t rows, struct mr_balance_call *c)
{
    return take_avoiding(h, rows, NULL, 0, c);
}

static inline void done(struct harness *h, const struct mr_balance_call *c,
                        enum mr_balance_outcome outcome)
{
    mr_balance_done(h->r, h->now, c->ticket, outcome, 0);
}

/* As many calls as there is room for. */
static inline uint32_t burst_take(struct harness *h, int64_t rows)
{
    h->burst_len = 0;
    while (h->burst_len < BURST_CALLS && take(h, rows, &h->burst[h->burst_len])) {
        h->burst_len++;
    }
    return h->burst_len;
}

static inline void burst_done(struct harness *h, enum mr_balance_outcome outcome)
{
    for (uint32_t i = 0; i < h->burst_len; i++) {
        done(h, &h->burst[i], outcome);
    }
    h->burst_len = 0;
}

static inline uint32_t round_trip(struct harness *h, int64_t rows, int64_t latency_ns,
                                  enum mr_balance_outcome outcome)
{
    uint32_t n = burst_take(h, rows);

    h->now += latency_ns;
    burst_done(h, outcome);
    return n;
}

static inline struct mr_balance_view view(struct harness *h, uint32_t i)
{
    static struct mr_balance_view views[256];
    uint32_t n = mr_balance_views(h->r, h->now, views, 256);

    for (uint32_t k = 0; k < n; k++) {
        if (views[k].host == h->hosts[i]) {
            return views[k];
        }
    }
    fail_msg("host %u is gone", i);
    return views[0];
}

/* Until a call can be taken; returns how long that took. Fails after `most_ns`. */
static inline int64_t wait_for_room(struct harness *h, int64_t most_ns, struct mr_balance_call *c)
{
    int64_t from = h->now;

    while (!take(h, 1, c)) {
        int64_t wake = mr_balance_next_wake(h->r);
        assert_true(wake > h->now);
        assert_true(wake - from <= most_ns);
        h->now = wake;
    }
    return h->now - from;
}

#endif
