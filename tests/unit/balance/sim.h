/* A batch worker and its hosts in simulated time, to see what the policy makes of them. Discrete events; one
 * run is a pure function of its scenario.
 *
 * A host has `slots` and a queue in front of them. The worker takes as many calls as the policy lets it, one row
 * each; failed rows go first and avoid the hosts they failed on; when nothing is left to start, it hedges. */
#ifndef TESTS_UNIT_ROUTE_SIM_H
#define TESTS_UNIT_ROUTE_SIM_H

#include <string.h>

#include "balance/balance.h"
#include "base/clock.h"
#include "base/mem.h"
#include "base/rng.h"
#include "base/vec.h"
#include "events.h"

#define SIM_HOSTS       256
#define SIM_TRIES       5
#define SIM_LONGEST     (100000 * MR_NS_PER_S)
#define SIM_FAST_NS     (5 * MR_NS_PER_MS)
#define SIM_SECONDS(ns) ((double)(ns) / (double)MR_NS_PER_S)

enum sim_fault {
    SIM_WORKS,
    SIM_FAILS_FAST,
    SIM_FAILS_SLOWLY,
    SIM_REFUSES,
    SIM_HANGS,
    SIM_THROTTLES
};

struct sim_host {
    uint32_t slots;
    double service_s;
    enum sim_fault fault;
    double fault_share;              /* of calls; 1: all */
    double fault_from_s, fault_to_s; /* both 0: always */
    int64_t retry_after_ns;
    double slow_factor, slow_from_s; /* factor 0: never */
    double joins_s, leaves_s;        /* leaves 0: never */
    /* the simulation's own */
    uint32_t id;
    uint32_t busy;
    MR_VEC(uint32_t) queue;
    size_t queue_at;
};

struct sim_call {
    struct mr_balance_call balance;
    uint32_t row;
    uint32_t host;
    bool is_failing; /* at the end of its service */
    bool is_open;    /* the worker waits for it */
};

struct sim_row {
    uint32_t avoid[SIM_TRIES];
    uint8_t avoid_count;
    uint8_t tries;
    uint8_t copies; /* in flight */
    int64_t not_before_ns;
};

enum sim_event_kind { SIM_WAKE, SIM_ANSWER, SIM_SERVED, SIM_TIMEOUT, SIM_JOIN, SIM_LEAVE };

struct sim {
    /* the scenario */
    uint32_t rows;
    uint32_t host_count;
    struct sim_host hosts[SIM_HOSTS];
    double noise; /* service times vary by this share, evenly */
    uint64_t seed;
    /* results */
    double seconds;
    uint64_t attempts;
    /* running */
    struct mr_balance *balance;
    struct mr_rng rng;
    int64_t now_ns, wake_ns;
    uint32_t fresh, done;
    struct sim_row *row;
    MR_VEC(struct sim_call) calls;
    MR_VEC(uint32_t) retries; /* rows; the last first */
    struct events events;
};

static void sim_post(struct sim *s, int64_t at_ns, enum sim_event_kind kind, uint32_t index,
                     enum mr_balance_outcome outcome)
{
    events_add(&s->events,
               (struct event){.at_ns = at_ns, .kind = kind, .index = index, .outcome = outcome});
}

/* ---- hosts ---- */

static void sim_serve(struct sim *s, struct sim_host *h)
{
    while (h->busy < h->slots && h->queue_at < h->queue.len) {
        uint32_t index = h->queue.at[h->queue_at++];
        struct sim_call *c = &s->calls.at[index];
        double t = h->service_s * (1 + s->noise * (2 * mr_rng_unit(&s->rng) - 1));

        if (!c->is_open) {
            continue; /* the worker has closed the connection */
        }
        if (h->slow_factor > 0 && SIM_SECONDS(s->now_ns) >= h->slow_from_s) {
            t *= h->slow_factor;
        }
        h->busy++;
        sim_post(s, s->now_ns + (int64_t)(t * (double)MR_NS_PER_S), SIM_SERVED, index,
                 c->is_failing ? MR_BALANCE_FAILED : MR_BALANCE_OK);
    }
}

static bool sim_is_faulty(struct sim *s, const struct sim_host *h)
{
    double t = SIM_SECONDS(s->now_ns);
    bool now = h->fault_to_s == 0 || (t >= h->fault_from_s && t < h->fault_to_s);

    return h->fault != SIM_WORKS && now && mr_rng_unit(&s->rng) < h->fault_share;
}

static void sim_arrive(struct sim *s, uint32_t index)
{
    struct sim_call *c = &s->calls.at[index];
    struct sim_host *h = &s->hosts[c->host];

    if (sim_is_faulty(s, h)) {
        switch (h->fault) {
        case SIM_FAILS_FAST:
            sim_post(s, s->now_ns + SIM_FAST_NS, SIM_ANSWER, index, MR_BALANCE_FAILED);
            return;
        case SIM_REFUSES:
            sim_post(s, s->now_ns + SIM_FAST_NS, SIM_ANSWER, index, MR_BALANCE_REFUSED);
            return;
        case SIM_THROTTLES:
            sim_post(s, s->now_ns + SIM_FAST_NS, SIM_ANSWER, index, MR_BALANCE_THROTTLED);
            return;
        case SIM_HANGS: return;
        default: c->is_failing = true; break;
        }
    }
    MR_VEC_PUSH(&h->queue, index);
    sim_serve(s, h);
}

/* ---- the worker ---- */

static void sim_send(struct sim *s, uint32_t row, const struct mr_balance_call *rc)
{
    struct sim_call c = {.balance = *rc, .row = row, .is_open = true};

    while (s->hosts[c.host].id != rc->host) {
        c.host++;
    }
    MR_VEC_PUSH(&s->calls, c);
    s->attempts++;
    s->row[row].copies++;
    sim_post(s, s->now_ns + rc->timeout_ns, SIM_TIMEOUT, (uint32_t)s->calls.len - 1, 0);
    sim_arrive(s, (uint32_t)s->calls.len - 1);
}

static bool sim_start(struct sim *s, uint32_t row, bool is_retry)
{
    struct sim_row *r = &s->row[row];
    struct mr_balance_ask ask = {
        .rows = 1, .avoid = r->avoid, .avoid_count = r->avoid_count, .is_retry = is_retry};
    struct mr_balance_call call;

    if (!mr_balance_pick(s->balance, s->now_ns, &ask, &call)) {
        return false;
    }
    sim_send(s, row, &call);
    return true;
}

static void sim_wake_at(struct sim *s, int64_t at_ns)
{
    if (at_ns < s->wake_ns) {
        s->wake_ns = at_ns;
        sim_post(s, at_ns, SIM_WAKE, 0, 0);
    }
}

static void sim_start_retries(struct sim *s)
{
    size_t looked_at = 0;

    for (size_t i = s->retries.len; i-- > 0 && looked_at < 64; looked_at++) {
        uint32_t row = s->retries.at[i];
        if (s->row[row].not_before_ns > s->now_ns) {
            sim_wake_at(s, s->row[row].not_before_ns);
        } else if (sim_start(s, row, true)) {
            memmove(&s->retries.at[i], &s->retries.at[i + 1],
                    (s->retries.len - i - 1) * sizeof *s->retries.at);
            s->retries.len--;
        }
    }
}

static void sim_hedge(struct sim *s)
{
    struct mr_balance_call call;
    uint64_t original;
    int64_t again_ns;

    while (mr_balance_hedge(s->balance, s->now_ns, &original, &call, &again_ns)) {
        size_t i = s->calls.len;
        while (s->calls.at[--i].balance.ticket != original) {
        }
        sim_send(s, s->calls.at[i].row, &call);
    }
    sim_wake_at(s, again_ns);
}

static void sim_work(struct sim *s)
{
    sim_start_retries(s);
    while (s->fresh < s->rows && sim_start(s, s->fresh, false)) {
        s->fresh++;
    }
    if (s->fresh == s->rows && s->retries.len == 0) {
        sim_hedge(s);
    }
    sim_wake_at(s, mr_balance_next_wake(s->balance));
}

static void sim_close(struct sim *s, struct sim_call *c, enum mr_balance_outcome outcome)
{
    c->is_open = false;
    s->row[c->row].copies--;
    mr_balance_done(s->balance, s->now_ns, c->balance.ticket, outcome,
                    outcome == MR_BALANCE_THROTTLED ? s->hosts[c->host].retry_after_ns : 0);
}

static void sim_retry(struct sim *s, struct sim_call *c, enum mr_balance_outcome outcome)
{
    struct sim_row *r = &s->row[c->row];
    int64_t again_ns = s->now_ns;

    if (r->copies > 0) {
        return; /* the other copy may still succeed */
    }
    if (outcome != MR_BALANCE_THROTTLED) {
        if (r->avoid_count == SIM_TRIES) {
            r->avoid_count = 0;
        }
        r->avoid[r->avoid_count++] = c->balance.host;
        r->tries++;
        if (!mr_balance_may_retry(s->balance, s->now_ns, &again_ns)) {
            r->not_before_ns = again_ns;
        }
        if (r->tries >= s->host_count) {
            r->not_before_ns =
                MR_MAX(r->not_before_ns, s->now_ns + mr_balance_backoff_ns(s->balance, r->tries));
        }
    }
    MR_VEC_PUSH(&s->retries, c->row);
}

static void sim_finish_row(struct sim *s, struct sim_call *winner)
{
    struct sim_row *r = &s->row[winner->row];

    s->done++;
    for (size_t i = 0; r->copies > 0 && i < s->calls.len; i++) {
        struct sim_call *c = &s->calls.at[i];
        if (c->is_open && c->row == winner->row) {
            sim_close(s, c, MR_BALANCE_CANCELLED);
        }
    }
}

static void sim_answer(struct sim *s, uint32_t index, enum mr_balance_outcome outcome)
{
    struct sim_call *c = &s->calls.at[index];

    if (!c->is_open) {
        return;
    }
    sim_close(s, c, outcome);
    if (outcome == MR_BALANCE_OK) {
        sim_finish_row(s, c);
    } else {
        sim_retry(s, c, outcome);
    }
}

static void sim_event(struct sim *s, const struct event *e)
{
    struct sim_host *h = &s->hosts[e->index % SIM_HOSTS];

    switch ((enum sim_event_kind)e->kind) {
    case SIM_WAKE: s->wake_ns = s->wake_ns == e->at_ns ? INT64_MAX : s->wake_ns; break;
    case SIM_ANSWER: sim_answer(s, e->index, (enum mr_balance_outcome)e->outcome); break;
    case SIM_SERVED:
        h = &s->hosts[s->calls.at[e->index].host];
        h->busy--;
        sim_answer(s, e->index, (enum mr_balance_outcome)e->outcome);
        sim_serve(s, h);
        break;
    case SIM_TIMEOUT: sim_answer(s, e->index, MR_BALANCE_TIMED_OUT); break;
    case SIM_JOIN: h->id = mr_balance_add(s->balance, s->now_ns); break;
    case SIM_LEAVE: mr_balance_remove(s->balance, s->now_ns, h->id); break;
    }
}

/* True when every row was done. */
static bool sim_run(struct sim *s)
{
    struct mr_balance_options o = {.seed = s->seed};
    bool is_done;

    mr_rng_seed(&s->rng, s->seed + 1000);
    s->balance = mr_balance_new(&o, 0);
    s->row = mr_alloc_array(s->rows, sizeof *s->row);
    s->wake_ns = INT64_MAX;
    for (uint32_t i = 0; i < s->host_count; i++) {
        sim_post(s, (int64_t)(s->hosts[i].joins_s * 1e9), SIM_JOIN, i, 0);
        if (s->hosts[i].leaves_s > 0) {
            sim_post(s, (int64_t)(s->hosts[i].leaves_s * 1e9), SIM_LEAVE, i, 0);
        }
    }
    while (s->done < s->rows && s->events.heap.len > 0 && s->now_ns < SIM_LONGEST) {
        struct event e = events_next(&s->events);
        s->now_ns = e.at_ns;
        sim_event(s, &e);
        sim_work(s);
    }
    is_done = s->done == s->rows;
    s->seconds = SIM_SECONDS(s->now_ns);
    return is_done;
}

static void sim_free(struct sim **ps)
{
    struct sim *s = *ps;

    for (uint32_t i = 0; i < s->host_count; i++) {
        MR_VEC_FINI(&s->hosts[i].queue);
    }
    mr_freep(&s->row);
    MR_VEC_FINI(&s->calls);
    MR_VEC_FINI(&s->retries);
    MR_VEC_FINI(&s->events.heap);
    mr_balance_free(&s->balance);
    mr_freep(ps);
}

#endif
