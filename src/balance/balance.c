/* The set of hosts, time, and what is shown of it. */
#include "balance/balance.h"

#include <stdio.h>
#include <stdlib.h>

#include "balance_priv.h"

struct mr_balance *mr_balance_new(const struct mr_balance_options *o, int64_t now_ns)
{
    struct mr_balance *r = MR_NEW(struct mr_balance);

    r->now_ns = r->last_ok_ns = r->retry_ns = now_ns;
    r->min_timeout_ns = o->min_timeout_ns > 0 ? o->min_timeout_ns : TIMEOUT_MIN_NS;
    r->max_timeout_ns = o->max_timeout_ns > 0 ? o->max_timeout_ns : TIMEOUT_MAX_NS;
    r->max_weight = o->max_weight;
    r->is_limit_fixed = o->is_limit_fixed;
    r->strategy = o->strategy < MR_BALANCE_STRATEGIES ? o->strategy : MR_BALANCE_PEAK_EWMA;
    r->retry_floor = RETRY_PER_S;
    r->hedge_tokens = 1;
    r->is_stalled = true;
    mr_rng_seed(&r->rng, o->seed);
    mr_balance_set_max_limit(r, o->max_limit ? o->max_limit : LIMIT_MAX);
    return r;
}

void mr_balance_free(struct mr_balance **pr)
{
    struct mr_balance *r = *pr;

    if (!r) {
        return;
    }
    for (size_t i = 0; i < r->slots.len; i++) {
        mr_free(r->slots.at[i]);
    }
    MR_VEC_FINI(&r->slots);
    MR_VEC_FINI(&r->flights);
    MR_VEC_FINI(&r->holds);
    mr_freep(pr);
}

void mr_balance_set_max_limit(struct mr_balance *r, uint32_t max_limit)
{
    r->max_limit = MR_MIN(MR_MAX(max_limit, 1u), 65535u);
    for (size_t i = 0; i < r->slots.len; i++) {
        struct balance_host *h = r->slots.at[i];
        if (h) {
            h->limit =
                r->is_limit_fixed ? (double)r->max_limit : MR_MIN(h->limit, (double)r->max_limit);
        }
    }
}

void balance_tick(struct mr_balance *r, int64_t now_ns)
{
    r->now_ns = MR_MAX(r->now_ns, now_ns);
    call_holds_expire(r);
}

struct balance_host *balance_host_find(const struct mr_balance *r, uint32_t id)
{
    size_t slot = id & 0xffff;
    struct balance_host *h = slot < r->slots.len ? r->slots.at[slot] : NULL;

    return h && h->id == id ? h : NULL;
}

uint32_t mr_balance_add(struct mr_balance *r, int64_t now_ns)
{
    struct balance_host *h;
    size_t slot = 0;

    balance_tick(r, now_ns);
    while (slot < r->slots.len && r->slots.at[slot]) {
        slot++;
    }
    if (slot >= MR_BALANCE_HOSTS_MAX) {
        return 0;
    }
    h = MR_NEW(struct balance_host);
    if (slot == r->slots.len) {
        MR_VEC_PUSH(&r->slots, NULL);
    }
    r->slots.at[slot] = h;
    r->serial = r->serial == 0xffff ? 1 : r->serial + 1;
    h->id = r->serial << 16 | (uint32_t)slot;
    h->patience = 1;
    h->rate = 1;
    h->share = 1;
    h->identity = h->id;
    h->turn = r->turn;
    h->since_ns = r->now_ns;
    limit_restart(r, h, LIMIT_START);
    r->host_count++;
    /* Counted as half-open for a moment, so that becoming ready ends a stall like any other way to get there. */
    h->state = MR_BALANCE_STATE_HALF_OPEN;
    r->state_count[MR_BALANCE_STATE_HALF_OPEN]++;
    host_set(r, h, MR_BALANCE_STATE_READY, "%s", "");
    return h->id;
}

void mr_balance_remove(struct mr_balance *r, int64_t now_ns, uint32_t host)
{
    struct balance_host *h;

    balance_tick(r, now_ns);
    h = balance_host_find(r, host);
    if (h) {
        call_holds_drop(r, h);
        host_set(r, h, MR_BALANCE_STATE_DRAINING, "removed; waits for its last call");
        host_drop_if_done(r, h);
    }
}

void mr_balance_cordon(struct mr_balance *r, int64_t now_ns, uint32_t host, mr_str reason)
{
    struct balance_host *h;

    balance_tick(r, now_ns);
    h = balance_host_find(r, host);
    if (h && h->state != MR_BALANCE_STATE_DRAINING) {
        call_holds_drop(r, h);
        host_set(r, h, MR_BALANCE_STATE_CORDONED, "%.*s", MR_STR_ARG(reason));
    }
}

void mr_balance_uncordon(struct mr_balance *r, int64_t now_ns, uint32_t host)
{
    struct balance_host *h;

    balance_tick(r, now_ns);
    h = balance_host_find(r, host);
    if (h && h->state == MR_BALANCE_STATE_CORDONED) {
        host_set(r, h, MR_BALANCE_STATE_HALF_OPEN, "no longer cordoned; one call tries it");
    }
}

static void sooner(const struct mr_balance *r, int64_t *io_wake, int64_t at)
{
    if (at > r->now_ns && at < *io_wake) {
        *io_wake = at;
    }
}

int64_t mr_balance_next_wake(const struct mr_balance *r)
{
    int64_t wake = r->holds.len > 0 ? r->holds.at[0].until_ns : INT64_MAX;

    if (r->is_stalled && r->state_count[MR_BALANCE_STATE_EJECTED] > 0) {
        sooner(r, &wake, r->stall_try_ns);
    }
    for (size_t i = 0; i < r->slots.len; i++) {
        const struct balance_host *h = r->slots.at[i];
        if (!h) {
            continue;
        }
        sooner(r, &wake, h->paused_until_ns);
        if (h->state == MR_BALANCE_STATE_EJECTED && !r->is_stalled) {
            sooner(r, &wake, h->ejected_until_ns);
        }
    }
    return wake;
}

bool mr_balance_is_ready(const struct mr_balance *r)
{
    return r->state_count[MR_BALANCE_STATE_READY] > 0;
}

bool mr_balance_is_working(const struct mr_balance *r, uint32_t host)
{
    const struct balance_host *h = balance_host_find(r, host);

    return h && (h->state == MR_BALANCE_STATE_READY || h->state == MR_BALANCE_STATE_SUSPECT);
}

bool mr_balance_is_stalled(const struct mr_balance *r, int64_t *out_since_ns)
{
    for (size_t i = 0; i < r->slots.len; i++) {
        const struct balance_host *h = r->slots.at[i];
        if (h && (h->state == MR_BALANCE_STATE_READY || h->state == MR_BALANCE_STATE_SUSPECT) &&
            h->throttled_from_ns == 0) {
            return false;
        }
    }
    if (out_since_ns) {
        *out_since_ns = r->last_ok_ns;
    }
    return true;
}

/* ---- display ---- */

/* Quantiles of the samples: nearest rank. */
static void quantiles(const struct balance_host *h, bool per_row, int64_t *out_p50,
                      int64_t *out_p95)
{
    float v[SAMPLES];

    *out_p50 = *out_p95 = 0;
    if (h->sample_n == 0) {
        return;
    }
    for (uint32_t i = 0; i < h->sample_n; i++) {
        v[i] = per_row ? h->samples[i].row_ns : h->samples[i].raw_ns;
    }
    limit_median(v, h->sample_n);
    *out_p50 = (int64_t)v[(h->sample_n - 1) / 2];
    *out_p95 = (int64_t)v[(h->sample_n * 95 + 99) / 100 - 1];
}

static void view_fill(const struct mr_balance *r, const struct balance_host *h,
                      struct mr_balance_view *out)
{
    *out = (struct mr_balance_view){
        .host = h->id,
        .state = h->state,
        .since_ns = h->since_ns,
        .in_flight = h->in_flight,
        .held = h->held,
        .ok = h->ok,
        .failed = h->failed,
        .throttled = h->throttled,
        .success_rate = h->rate,
        .throttled_until_ns = h->paused_until_ns > r->now_ns ? h->paused_until_ns : 0,
    };
    switch (h->state) {
    case MR_BALANCE_STATE_READY: out->limit = h->throttled_from_ns ? 1 : (uint32_t)h->limit; break;
    case MR_BALANCE_STATE_SUSPECT:
    case MR_BALANCE_STATE_HALF_OPEN: out->limit = 1; break;
    default: break;
    }
    memcpy(out->reason, h->reason, sizeof out->reason);
    quantiles(h, false, &out->p50_ns, &out->p95_ns);
    quantiles(h, true, &out->row_p50_ns, &out->row_p95_ns);
}

uint32_t mr_balance_views(struct mr_balance *r, int64_t now_ns, struct mr_balance_view *out,
                          uint32_t cap)
{
    uint32_t n = 0;

    balance_tick(r, now_ns);
    for (size_t i = 0; i < r->slots.len; i++) {
        struct balance_host *h = r->slots.at[i];
        if (!h) {
            continue;
        }
        host_refresh(r, h);
        if (n < cap) {
            view_fill(r, h, &out[n]);
        }
        n++;
    }
    return n;
}
