/* A second copy of a call that takes too long, when there is nothing else to do. What remains of a call is what
 * its host usually takes less its age; a call that is older than that has, for all we know, as long to go again as
 * it has taken. A copy is worth it when twice its own expected time is less than that. */
#include "balance_priv.h"

#include <math.h>

/* The two fastest hosts that would take a call now: the copy must not go where the original is. */
static void fastest(struct mr_balance *r, struct balance_host *out[2])
{
    out[0] = out[1] = NULL;
    for (size_t i = 0; i < r->slots.len; i++) {
        struct balance_host *h = r->slots.at[i];
        if (!h || h->state != MR_BALANCE_STATE_READY || h->throttled_from_ns != 0 ||
            !pick_host_has_room(r, h, 0)) {
            continue;
        }
        if (!out[0] || h->pace < out[0]->pace) {
            out[1] = out[0];
            out[0] = h;
        } else if (!out[1] || h->pace < out[1]->pace) {
            out[1] = h;
        }
    }
}

struct choice {
    struct balance_host *host;
    uint32_t index;
    double gain;
    int64_t again_ns;
};

static void consider(struct mr_balance *r, struct choice *c, uint32_t index,
                     struct balance_host *const fast[2])
{
    const struct balance_flight *f = &r->flights.at[index];
    struct balance_host *host = fast[0] == f->host ? fast[1] : fast[0];
    double age = (double)(r->now_ns - f->start_ns), own, copy, remains;

    if (!host || f->state != CALL_FLYING || f->is_hedged) {
        return;
    }
    copy = budget_expected_ns(r, host, f->rows) * HEDGE_WORTH;
    own = budget_expected_ns(r, f->host, f->rows);
    remains = age < own ? own - age : age;
    if (copy == 0) {
        return;
    }
    if (remains > copy) {
        if (remains / copy > c->gain) {
            c->gain = remains / copy;
            c->host = host;
            c->index = index;
        }
    } else {
        c->again_ns = MR_MIN(c->again_ns, mr_ns_after(f->start_ns, (int64_t)fmax(own, copy) + 1));
    }
}

bool mr_balance_hedge(struct mr_balance *r, int64_t now_ns, uint64_t *out_original,
                      struct mr_balance_call *out_call, int64_t *out_again_ns)
{
    struct choice c = {.again_ns = INT64_MAX};
    struct balance_host *fast[2];
    uint64_t original;

    balance_tick(r, now_ns);
    if (r->hedge_tokens >= 1) {
        fastest(r, fast);
        for (uint32_t i = 0; i < r->flights.len; i++) {
            consider(r, &c, i, fast);
        }
    }
    if (!c.host) {
        *out_again_ns = c.again_ns;
        return false;
    }
    original = call_flight_ticket(r, c.index);
    r->hedge_tokens -= 1;
    r->flights.at[c.index].is_hedged = true;
    pick_take(r, c.host, r->flights.at[c.index].rows, r->flights.at[c.index].weight, out_call);
    r->flights.at[out_call->index].is_hedged = true;
    *out_original = original;
    return true;
}

bool mr_balance_hedge_call(struct mr_balance *r, int64_t now_ns, uint64_t original,
                           const struct mr_balance_ask *ask, struct mr_balance_call *out_call)
{
    struct balance_flight *f;
    struct balance_host *h;

    balance_tick(r, now_ns);
    f = call_flight_find(r, original);
    if (!f || f->is_hedged || r->hedge_tokens < 1) {
        return false;
    }
    h = pick_other(r, ask);
    if (!h || h == f->host) {
        return false;
    }
    r->hedge_tokens -= 1;
    f->is_hedged = true;
    strategy_taken(r, h);
    /* By value: the table of calls may move. */
    const int64_t rows = f->rows;
    const uint64_t weight = f->weight;
    pick_take(r, h, rows, weight, out_call);
    r->flights.at[out_call->index].is_hedged = true;
    return true;
}
