/* Which host a call goes to. A strategy (strategy.c) gives each host with room a cost, and the least gets the call.
 *
 * By PEAK_EWMA, the cost of a host is its latency in terms of what all hosts need for that size,
 * rising at once and falling slowly (peak EWMA), times the calls that it has and this one. A scan of up to 64
 * hosts beats the choice of two at random wherever hosts differ; above that 8 are drawn. Half-open hosts come
 * first: one call has to try them. */
#include "balance_priv.h"

#include <math.h>

unsigned pick_rows_bucket(int64_t rows)
{
    unsigned top = 63u - (unsigned)__builtin_clzll((uint64_t)rows | 1u);

    return MR_MIN(top, BUCKETS - 1u);
}

/* limit: calls that it may have when it is ready. */
static bool has_slots(const struct mr_balance *r, const struct balance_host *h, uint64_t weight,
                      uint32_t limit)
{
    uint32_t used = h->in_flight + h->held;

    if (r->max_weight > 0 && h->in_flight > 0 &&
        (h->weight >= r->max_weight || weight > r->max_weight - h->weight)) {
        return false;
    }
    switch (h->state) {
    case MR_BALANCE_STATE_READY: return used < limit;
    case MR_BALANCE_STATE_SUSPECT: return used < 1;
    case MR_BALANCE_STATE_HALF_OPEN: return h->trials == 0;
    case MR_BALANCE_STATE_EJECTED:
    case MR_BALANCE_STATE_CORDONED:
    case MR_BALANCE_STATE_DRAINING: break;
    }
    return false;
}

bool pick_host_has_room(const struct mr_balance *r, const struct balance_host *h, uint64_t weight)
{
    return h->paused_until_ns <= r->now_ns && has_slots(r, h, weight, limit_usable(h));
}

double pick_expected(const struct mr_balance *r, const struct balance_host *h)
{
    return fmax(budget_peak_now(r, h), PEAK_FLOOR) * (h->in_flight + h->held + 1);
}

static bool is_among(const uint32_t *ids, uint32_t count, uint32_t id)
{
    for (uint32_t i = 0; i < count; i++) {
        if (ids[i] == id) {
            return true;
        }
    }
    return false;
}

struct scan {
    const struct mr_balance_ask *ask;
    struct balance_host *best, *best_avoided;
    double cost, cost_avoided;
    /* A host that need not be avoided will take calls again without being tried first. */
    bool other_works;
    bool takes_throttled;
};

static void scan_host(struct mr_balance *r, struct scan *s, struct balance_host *h)
{
    bool avoided;
    double cost;

    host_refresh(r, h);
    if (is_among(s->ask->never, s->ask->never_count, h->id)) {
        return;
    }
    avoided = is_among(s->ask->avoid, s->ask->avoid_count, h->id);
    if (!avoided && h->state == MR_BALANCE_STATE_READY && h->throttled_from_ns == 0) {
        s->other_works = true;
    }
    if (s->takes_throttled ? !has_slots(r, h, s->ask->weight, (uint32_t)fmax(h->limit, 1))
                           : !pick_host_has_room(r, h, s->ask->weight)) {
        return;
    }
    cost = strategy_cost(r, s->ask, h);
    if (avoided && (!s->best_avoided || cost < s->cost_avoided)) {
        s->best_avoided = h;
        s->cost_avoided = cost;
    } else if (!avoided && (!s->best || cost < s->cost)) {
        s->best = h;
        s->cost = cost;
    }
}

static void scan_some(struct mr_balance *r, struct scan *s, int count)
{
    for (int i = 0; i < count; i++) {
        struct balance_host *h = r->slots.at[mr_rng_u64(&r->rng) % r->slots.len];
        if (h) {
            scan_host(r, s, h);
        }
    }
}

/* Begins anywhere, so that equal hosts take turns. */
static void scan_all(struct mr_balance *r, struct scan *s)
{
    size_t n = r->slots.len, at = n ? mr_rng_u64(&r->rng) % n : 0;

    for (size_t i = 0; i < n; i++, at = at + 1 == n ? 0 : at + 1) {
        if (r->slots.at[at]) {
            scan_host(r, s, r->slots.at[at]);
        }
    }
}

static void scan(struct mr_balance *r, struct scan *s)
{
    const enum mr_balance_strategy strategy = s->ask->is_sticky ? MR_BALANCE_HASH : r->strategy;

    if (strategy == MR_BALANCE_P2C && r->host_count > 2) {
        scan_some(r, s, SCAN_TWO);
    } else if (strategy == MR_BALANCE_PEAK_EWMA && r->host_count > SCAN_ALL) {
        scan_some(r, s, SCAN_SOME);
    }
    if (!s->best) {
        scan_all(r, s);
    }
}

struct balance_host *pick_other(struct mr_balance *r, const struct mr_balance_ask *ask)
{
    struct scan s = {.ask = ask};

    scan_all(r, &s);
    return s.best;
}

/* A stalled set: the host that was ejected first may be tried. */
static void stall_try(struct mr_balance *r)
{
    struct balance_host *oldest = NULL;

    if (!r->is_stalled || r->stall_try_ns > r->now_ns) {
        return;
    }
    for (size_t i = 0; i < r->slots.len; i++) {
        struct balance_host *h = r->slots.at[i];
        if (h && h->state == MR_BALANCE_STATE_EJECTED &&
            (!oldest || h->since_ns < oldest->since_ns)) {
            oldest = h;
        }
    }
    if (oldest) {
        r->stall_step_ns = MR_MIN(r->stall_step_ns * 2, STALL_MAX_NS);
        r->stall_try_ns = r->now_ns + host_jittered(r, r->stall_step_ns, 1 - JITTER, 1);
        host_set(r, oldest, MR_BALANCE_STATE_HALF_OPEN, "one call tries it, as no host works");
    }
}

void pick_take(struct mr_balance *r, struct balance_host *h, int64_t rows, uint64_t weight,
               struct mr_balance_call *out_call)
{
    uint32_t index = call_flight_new(r);
    struct balance_flight *f = &r->flights.at[index];

    f->host = h;
    f->start_ns = r->now_ns;
    f->rows = rows;
    f->weight = weight;
    h->weight += weight;
    f->is_trial = h->state == MR_BALANCE_STATE_HALF_OPEN;
    h->trials += f->is_trial;
    h->in_flight++;
    if (h->in_flight + h->held >= limit_usable(h)) {
        h->was_full = true;
    }
    *out_call = (struct mr_balance_call){
        .ticket = call_flight_ticket(r, index),
        .host = h->id,
        .index = index,
        .timeout_ns = budget_timeout_ns(r, h, rows),
    };
}

bool mr_balance_pick(struct mr_balance *r, int64_t now_ns, const struct mr_balance_ask *ask,
                     struct mr_balance_call *out_call)
{
    struct scan s = {.ask = ask};
    struct balance_host *h;

    balance_tick(r, now_ns);
    stall_try(r);
    scan(r, &s);
    if (ask->takes_throttled && !s.best && !s.best_avoided) {
        s.takes_throttled = true;
        scan_all(r, &s);
    }
    h = s.best ? s.best : s.other_works ? NULL : s.best_avoided;
    if (!h) {
        return false;
    }
    if (!ask->is_retry) {
        budget_earn(r);
    }
    strategy_taken(r, h);
    pick_take(r, h, MR_MAX(ask->rows, (int64_t)1), ask->weight, out_call);
    return true;
}

bool mr_balance_pick_host(struct mr_balance *r, int64_t now_ns, uint32_t host,
                          struct mr_balance_call *out_call)
{
    struct balance_host *h;

    balance_tick(r, now_ns);
    h = balance_host_find(r, host);
    if (!h || !mr_balance_is_working(r, host) || h->paused_until_ns > r->now_ns ||
        h->in_flight >= r->max_limit) {
        return false;
    }
    pick_take(r, h, 1, 0, out_call);
    return true;
}
