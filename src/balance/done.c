/* What became of a call, and what follows for its host.
 *
 * Failures are counted in rounds: one that began before the last counted failure belongs to that round, so that
 * a burst of calls which fail together weighs as one. */
#include "balance_priv.h"

#include <math.h>
#include <stdio.h>

static void rate_add(struct balance_host *h, double ok)
{
    double weight = 1.0 / (double)(h->rated + RATE_PRIOR);

    if (h->rated < UINT32_MAX / 2) {
        h->rated++;
    }
    h->rate += fmax(weight, RATE_WEIGHT) * (ok - h->rate);
    if (h->rate >= RATE_RECOVERED) {
        h->ejections = 0;
    }
}

/* The host works. */
static void on_heard(struct mr_balance *r, struct balance_host *h, const struct balance_flight *f)
{
    h->ok++;
    r->last_ok_ns = r->now_ns;
    rate_add(h, 1);
    h->rounds = 0;
    h->refused = 0;
    h->patience = 1;
    /* Calls from before the first refusal do not show whether the host still refuses. */
    if (f->start_ns > h->throttled_from_ns) {
        h->throttled_from_ns = 0;
    }
    if (h->state == MR_BALANCE_STATE_SUSPECT) {
        host_set(r, h, MR_BALANCE_STATE_READY, "answers again");
    } else if (h->state == MR_BALANCE_STATE_HALF_OPEN) {
        h->rate = fmax(h->rate, RATE_READMITTED);
        limit_restart(r, h, 1);
        host_set(r, h, MR_BALANCE_STATE_READY, "answers again");
    } else if (h->state == MR_BALANCE_STATE_EJECTED && h->rate >= EJECT_RATE) {
        host_set(r, h, MR_BALANCE_STATE_HALF_OPEN, "a call from before the ejection succeeded");
    }
}

static void on_ok(struct mr_balance *r, struct balance_host *h, const struct balance_flight *f)
{
    budget_latency_add(r, h, f->rows, MR_MAX(r->now_ns - f->start_ns, (int64_t)1));
    on_heard(r, h, f);
    limit_answer(r, h, f);
}

bool mr_balance_answers(struct mr_balance *r, int64_t now_ns, uint64_t ticket)
{
    struct balance_flight *f;

    balance_tick(r, now_ns);
    f = call_flight_find(r, ticket);
    if (!f || f->is_heard) {
        return false;
    }
    f->is_heard = true;
    on_heard(r, f->host, f);
    f->host->trials -= f->is_trial; /* it may go on for long after its trial */
    f->is_trial = false;
    return true;
}

static const char *failure_text(enum mr_balance_outcome outcome)
{
    switch (outcome) {
    case MR_BALANCE_REFUSED: return "connection refused";
    case MR_BALANCE_TIMED_OUT: return "no answer in time";
    default: return "failed";
    }
}

/* Ejects or suspects a host if it is time for that. */
static void judge(struct mr_balance *r, struct balance_host *h, bool is_trial, const char *text)
{
    if (h->state == MR_BALANCE_STATE_HALF_OPEN && is_trial) {
        host_eject(r, h, "the call that tried it: %s", text);
    } else if (h->state != MR_BALANCE_STATE_READY && h->state != MR_BALANCE_STATE_SUSPECT) {
        return;
    } else if (h->refused >= EJECT_REFUSED) {
        host_eject(r, h, "%u connections refused in a row", h->refused);
    } else if (h->rate < EJECT_RATE) {
        host_eject(r, h, "%.0f %% of its answers are good; the last: %s", h->rate * 100, text);
    } else if (h->rounds >= EJECT_ROUNDS) {
        host_eject(r, h, "%u rounds of failures in a row; the last: %s", h->rounds, text);
    } else if (h->rounds >= SUSPECT_ROUNDS) {
        host_set(r, h, MR_BALANCE_STATE_SUSPECT, "%u rounds of failures in a row; the last: %s",
                 h->rounds, text);
    }
}

/* Until when the slot stays taken: as long as an answer takes, doubled with each further round. */
static int64_t hold_until(const struct mr_balance *r, const struct balance_host *h,
                          const struct balance_flight *f)
{
    uint32_t most_doublings = h->rate < RATE_GOOD ? HOLD_DOUBLINGS : HOLD_DOUBLINGS_GOOD;
    uint32_t doublings = MR_MIN(MR_MAX(h->rounds, 1u) - 1, most_doublings);
    int64_t most = r->state_count[MR_BALANCE_STATE_READY] > 0 ? HOLD_MAX_NS : HOLD_ALONE_NS;
    double ns = budget_expected_ns(r, h, f->rows) * (double)(1u << doublings);

    return MR_MIN(mr_ns_after(f->start_ns, ns < (double)HOLD_MAX_NS ? (int64_t)ns : HOLD_MAX_NS),
                  r->now_ns + most);
}

static void on_failure(struct mr_balance *r, struct balance_host *h, const struct balance_flight *f,
                       enum mr_balance_outcome outcome)
{
    h->failed++;
    rate_add(h, 0);
    h->refused = outcome == MR_BALANCE_REFUSED ? h->refused + 1 : 0;
    if (f->start_ns >= h->round_ns) {
        h->rounds++;
        h->round_ns = r->now_ns;
        if (outcome == MR_BALANCE_TIMED_OUT) {
            h->patience = MR_MIN(h->patience * 2, (uint32_t)PATIENCE_MAX);
        }
    }
    judge(r, h, f->is_trial, failure_text(outcome));
}

void mr_balance_refuted(struct mr_balance *r, int64_t now_ns, uint32_t host, mr_str reason)
{
    struct balance_host *h;
    char text[sizeof h->reason];

    balance_tick(r, now_ns);
    h = balance_host_find(r, host);
    if (!h) {
        return;
    }
    h->failed++;
    h->rounds++;
    rate_add(h, 0);
    snprintf(text, sizeof text, "%.*s", MR_STR_ARG(reason));
    judge(r, h, true, text);
}

static void on_throttled(struct mr_balance *r, struct balance_host *h,
                         const struct balance_flight *f, int64_t retry_after_ns)
{
    int64_t wait;

    h->throttled++;
    h->refused = 0;
    if (h->throttled_from_ns == 0) {
        /* After an earlier cut, what began before it says nothing new. */
        if (f->start_ns >= h->cut_ns) {
            limit_throttled(r, h);
        }
        h->throttled_from_ns = r->now_ns;
    } else if (f->start_ns > h->throttled_from_ns) {
        limit_forgive(r, h);
    }
    if (retry_after_ns > 0) {
        wait = host_jittered(r, MR_MIN(retry_after_ns, RETRY_AFTER_MAX), 1, 1 + JITTER / 2);
    } else {
        wait = (r->now_ns - h->throttled_from_ns) / THROTTLE_SHARE;
        wait = MR_MIN(MR_MAX(wait, THROTTLE_MIN_NS), THROTTLE_MAX_NS);
        wait = host_jittered(r, wait, 1 - JITTER, 1 + JITTER);
    }
    h->paused_until_ns = MR_MAX(h->paused_until_ns, r->now_ns + wait);
}

void mr_balance_done(struct mr_balance *r, int64_t now_ns, uint64_t ticket,
                     enum mr_balance_outcome outcome, int64_t retry_after_ns)
{
    struct balance_flight *f;
    struct balance_host *h;
    uint32_t index;
    int64_t until = 0;

    balance_tick(r, now_ns);
    f = call_flight_find(r, ticket);
    if (!f) {
        return;
    }
    h = f->host;
    index = (uint32_t)(f - r->flights.at);
    h->in_flight--;
    h->weight -= f->weight;
    h->trials -= f->is_trial;
    switch (outcome) {
    case MR_BALANCE_OK: on_ok(r, h, f); break;
    case MR_BALANCE_REFUSED:
    case MR_BALANCE_TIMED_OUT:
    case MR_BALANCE_FAILED:
        on_failure(r, h, f, outcome);
        until = hold_until(r, h, f);
        break;
    case MR_BALANCE_THROTTLED: on_throttled(r, h, f, retry_after_ns); break;
    case MR_BALANCE_REJECTED:
        h->refused = 0;
        /* One that has shown no better is not to get all the work there is before another one is heard. */
        until = h->ok == 0 || h->rounds > 0 ? hold_until(r, h, f) : 0;
        break;
    case MR_BALANCE_CANCELLED:
        budget_latency_at_least(r, h, f->rows, r->now_ns - f->start_ns);
        break;
    }
    if (until > r->now_ns &&
        (h->state == MR_BALANCE_STATE_READY || h->state == MR_BALANCE_STATE_SUSPECT)) {
        call_hold_add(r, index, until);
    } else {
        call_flight_free(r, index);
    }
    host_drop_if_done(r, h);
}

void mr_balance_done_sized(struct mr_balance *r, int64_t now_ns, uint64_t ticket, int64_t rows)
{
    struct balance_flight *f = call_flight_find(r, ticket);

    if (f) {
        f->rows = MR_MAX(rows, (int64_t)1);
    }
    mr_balance_done(r, now_ns, ticket, MR_BALANCE_OK, 0);
}
