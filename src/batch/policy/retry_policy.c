#include "retry_policy.h"

#include <string.h>

#include "base/clock.h"
#include "base/mem.h"

#define HEARD_NS       (5 * MR_NS_PER_S) /* a host that was heard so lately is waited for */
#define FAILS_ENOUGH   3                 /* others that failed so often with a row are not */
#define FORMS_PER_HOST 3
#define TRIES_WAITED   3 /* as many make a wait longer while others succeed */
#define SOUND_PART     20
#define SPLIT_ATTEMPTS 2
#define SPLIT_FAILURES 4
#define CAP_LEAST      32u
#define CAP_MOST       4096u

/* ---- failures ---- */

static bool others_did_well(const struct retry_times *t, int64_t from_ns, int64_t to_ns)
{
    const uint64_t n = MR_MIN(t->count, (uint64_t)RETRY_TIMES);

    for (uint64_t i = 0; i < n; i++) {
        if (t->at[i] >= from_ns && t->at[i] <= to_ns) {
            return true;
        }
    }
    return false;
}

/* Counts failures during which other calls are now known to have succeeded. */
static void prove(const struct retry_policy *p, struct retry_work *w)
{
    size_t kept = 0;

    for (size_t i = 0; i < w->unproven_count; i++) {
        if (others_did_well(&p->times, w->unproven[i].from_ns, w->unproven[i].to_ns)) {
            w->attempts++;
            w->attempts_before += w->unproven[i].is_whole;
        } else {
            w->unproven[kept++] = w->unproven[i];
        }
    }
    w->unproven_count = kept;
}

/* True: this failure counts already. */
static bool failure_add(const struct retry_policy *p, struct retry_work *w, int64_t now_ns)
{
    if (w->unproven_count == RETRY_UNPROVEN) {
        memmove(w->unproven, w->unproven + 1, --w->unproven_count * sizeof *w->unproven);
    }
    w->unproven[w->unproven_count].is_whole = false;
    w->unproven[w->unproven_count].from_ns = w->since_ns;
    w->unproven[w->unproven_count++].to_ns = now_ns;
    w->since_ns = now_ns;
    prove(p, w);
    return w->unproven_count == 0 || w->unproven[w->unproven_count - 1].to_ns != now_ns;
}

static bool has_failed_on(const struct retry_work *w, uint32_t host)
{
    for (uint32_t i = 0; i < w->tried_count; i++) {
        if (w->tried[i] == host) {
            return true;
        }
    }
    return false;
}

static void tried_add(struct retry_work *w, uint32_t host)
{
    if (!has_failed_on(w, host)) {
        w->tried_count = w->tried_count < RETRY_TRIED ? w->tried_count : 0;
        w->tried[w->tried_count++] = host;
    }
}

/* Only one host has failed with it, and others work. */
static bool another_may_do(const struct retry_policy *p, const struct retry_work *w)
{
    for (size_t i = 0; i < p->hosts.len && w->tried_count < 2; i++) {
        const struct retry_host *h = p->hosts.at[i];
        if (h->is_working && !has_failed_on(w, h->id)) {
            return true;
        }
    }
    return false;
}

static bool is_proven(const struct retry_policy *p, struct retry_work *w, uint64_t rows)
{
    prove(p, w);
    return rows == 1 && w->attempts >= p->max_attempts && w->attempts > w->attempts_before &&
           (w->failures >= p->max_attempts || !another_may_do(p, w));
}

bool retry_policy_is_dead(const struct retry_policy *p, struct retry_work *w, uint64_t rows)
{
    return w->failures > 0 && is_proven(p, w, rows);
}

/* Failures of hosts that hardly ever fail with other rows count at once. */
static bool hosts_are_sound(const struct retry_policy *p, const struct retry_work *w)
{
    return (p->failed - w->failures_before - w->failures) * SOUND_PART < p->ok;
}

static size_t usable_hosts(const struct retry_policy *p)
{
    size_t n = 0;

    for (size_t i = 0; i < p->hosts.len; i++) {
        n += p->hosts.at[i]->is_usable;
    }
    return n;
}

static void failed(struct retry_policy *p, struct retry_work *w, const struct retry_event *e,
                   struct retry_decision *d)
{
    const bool others_succeed = p->ok > w->ok_before;

    w->failures++;
    w->failures_in_outage = others_succeed ? 0 : w->failures_in_outage + 1;
    tried_add(w, e->host->id);
    const bool counts = failure_add(p, w, e->now_ns);
    w->attempts += !counts && p->counts_answers && e->is_answered;
    if (e->rows > 1 &&
        (w->attempts >= SPLIT_ATTEMPTS || w->failures >= SPLIT_FAILURES || hosts_are_sound(p, w))) {
        d->action = RETRY_SPLIT;
        return;
    }
    w->ok_before = p->ok;
    d->is_granted = others_succeed;
    if (is_proven(p, w, e->rows)) {
        d->action = RETRY_DEAD;
    } else if (usable_hosts(p) > 1 && w->failures < 2) {
        d->action = RETRY_LAST;
    } else {
        d->action = RETRY_LATER;
        /* Where others succeed it is not the time that is wrong. */
        d->tries =
            w->failures_in_outage > 0 ? w->failures_in_outage : MR_MIN(w->failures, TRIES_WAITED);
    }
}

/* ---- refusals ---- */

static bool is_refuser(const struct retry_work *w, const struct retry_host *h)
{
    for (size_t i = 0; i < w->refuser_count; i++) {
        if (w->refusers[i] == h) {
            return true;
        }
    }
    return false;
}

static void refusal_add(struct retry_work *w, struct retry_host *h)
{
    w->refusals++;
    if (!is_refuser(w, h) && w->refuser_count < RETRY_REFUSERS) {
        w->refuser_ok = w->refuser_count == 0 ? h->ok : w->refuser_ok;
        w->refusers[w->refuser_count++] = h;
    }
}

/* A refuser answers other calls, and was not refuted since. */
static bool is_any_credible(const struct retry_work *w)
{
    for (size_t i = 0; i < w->refuser_count; i++) {
        if (w->refusers[i]->ok > w->refusers[i]->ok_refuted) {
            return true;
        }
    }
    return false;
}

static bool may_answer(const struct retry_host *h, int64_t now_ns)
{
    return h->is_usable && (h->is_working || now_ns - h->heard_ns < HEARD_NS);
}

/* Is there a host that has not refused the work and may have another opinion? */
static bool others_are_there(const struct retry_policy *p, const struct retry_work *w,
                             int64_t now_ns)
{
    for (size_t i = 0; i < p->hosts.len && w->failures < FAILS_ENOUGH; i++) {
        if (!is_refuser(w, p->hosts.at[i]) && may_answer(p->hosts.at[i], now_ns)) {
            return true;
        }
    }
    return w->failures < FAILS_ENOUGH && p->may_get_hosts;
}

static bool is_only_host(const struct retry_policy *p, const struct retry_host *host)
{
    for (size_t i = 0; i < p->hosts.len; i++) {
        if (p->hosts.at[i] != host && p->hosts.at[i]->is_usable) {
            return false;
        }
    }
    return !p->may_get_hosts;
}

bool retry_policy_may_ask(const struct retry_policy *p, const struct retry_work *w,
                          const struct retry_host *h, int64_t now_ns)
{
    return !is_refuser(w, h) || !others_are_there(p, w, now_ns);
}

/* False: the host gets no more rows than that anyway, so that it is not their number which it refuses. */
static bool cap_lower(struct retry_host *h, uint64_t rows)
{
    struct retry_cap *c = &h->cap;

    if (rows <= 1) {
        return false;
    }
    if (c->rows == 0 || rows <= c->rows) {
        c->every = MR_MIN(c->every << c->was_raised, CAP_MOST);
        c->every = MR_MAX(c->every, CAP_LEAST);
        c->rows = rows / 2;
        c->good = 0;
        c->was_raised = false;
    }
    return true;
}

static void cap_raise(struct retry_host *h, uint64_t rows)
{
    struct retry_cap *c = &h->cap;

    if (c->rows > 0 && rows >= c->rows && ++c->good >= c->every) {
        c->rows *= 2;
        c->good = 0;
        c->was_raised = true;
    }
}

uint64_t retry_host_rows(const struct retry_host *h, uint64_t rows)
{
    return h->cap.rows > 0 ? MR_MIN(rows, h->cap.rows) : rows;
}

static void refute(struct retry_decision *d, struct retry_host *h, bool is_first)
{
    h->ok_refuted = h->ok;
    d->is_first[d->refuted_count] = is_first;
    d->refuted[d->refuted_count++] = h;
}

/* Enough hosts refuse it, or the only one. */
static bool refusal_counts(const struct retry_policy *p, const struct retry_work *w,
                           const struct retry_event *e)
{
    const bool is_credible = is_any_credible(w);

    return is_only_host(p, e->host) || w->refuser_count == RETRY_REFUSERS ||
           (w->refuser_count > 1 && is_credible) || (e->rows > 1 && w->is_agreed && is_credible);
}

/* It counts although no other host can be asked: the only one that works has to have answered something else since. */
static bool refusal_counts_alone(const struct retry_work *w, const struct retry_event *e)
{
    return w->refuser_count > 1 || (e->rows > 1 && is_any_credible(w)) ||
           e->host->ok > w->refuser_ok;
}

static void refused(const struct retry_policy *p, struct retry_work *w, const struct retry_event *e,
                    struct retry_decision *d)
{
    d->is_granted = true;
    if (refusal_counts(p, w, e)) {
        d->is_refused = true;
    } else if (others_are_there(p, w, e->now_ns)) {
        d->action = RETRY_FIRST;
        return;
    } else {
        d->is_refused = refusal_counts_alone(w, e);
    }
    if (d->is_refused) {
        d->action = e->rows > 1 ? RETRY_SPLIT : RETRY_DEAD;
    } else if (cap_lower(e->host, e->rows)) {
        d->action = RETRY_FIRST;
    } else {
        d->action = RETRY_LATER;
        d->tries = w->refusals;
        if (!is_any_credible(w)) {
            refute(d, e->host, false);
            d->refuses_all = true;
        }
    }
}

/* ---- calls ---- */

void retry_policy_sent(const struct retry_policy *p, struct retry_work *w, bool is_first,
                       int64_t now_ns)
{
    w->ok_before = is_first ? p->ok : w->ok_before;
    w->since_ns = w->since_ns ? w->since_ns : now_ns;
}

static void answered(struct retry_policy *p, struct retry_work *w, const struct retry_event *e,
                     struct retry_decision *d)
{
    p->ok++;
    p->times.at[p->times.count++ % RETRY_TIMES] = e->sent_ns;
    e->host->ok++;
    cap_raise(e->host, e->rows);
    for (size_t i = 0; i < w->refuser_count; i++) {
        struct retry_host *h = w->refusers[i];
        if (cap_lower(h, e->rows)) {
            h->ok_refuted = h->ok;
        } else {
            refute(d, h, !h->is_refuted);
            h->is_refuted = true;
        }
    }
    w->refuser_count = 0;
    d->action = e->is_settled ? RETRY_NONE : RETRY_DONE;
}

/* True: it says nothing about the rows. */
static bool is_nobodys_fault(const struct retry_policy *p, struct retry_work *w,
                             const struct retry_event *e)
{
    /* A host refuses as often before its form is known: the first call, the proof, and another call in between. */
    const bool is_for_form = e->is_for_form && w->form_refusals < FORMS_PER_HOST * usable_hosts(p);

    w->form_refusals += is_for_form;
    return e->outcome == MR_BALANCE_THROTTLED || e->is_for_good || is_for_form;
}

struct retry_decision retry_policy_ended(struct retry_policy *p, struct retry_work *w,
                                         const struct retry_event *e)
{
    struct retry_decision d = {.split = e->rows / 2};

    if (e->outcome == MR_BALANCE_OK) {
        answered(p, w, e, &d);
        return d;
    }
    p->failed += e->outcome != MR_BALANCE_THROTTLED && e->outcome != MR_BALANCE_REJECTED;
    const bool is_excused = !e->is_settled && is_nobodys_fault(p, w, e);
    if (e->outcome == MR_BALANCE_REJECTED && !is_excused) {
        refusal_add(w, e->host);
    }
    if (e->is_settled || e->has_copy) {
        return d;
    }
    if (is_excused) {
        d.action = RETRY_LAST;
        d.is_granted = true;
    } else if (e->outcome == MR_BALANCE_REJECTED) {
        refused(p, w, e, &d);
    } else {
        failed(p, w, e, &d);
    }
    return d;
}

/* ---- parts ---- */

void retry_work_part(struct retry_work *part, const struct retry_work *whole, enum retry_part why)
{
    *part = (struct retry_work){.ok_before = whole->ok_before,
                                .since_ns = whole->since_ns,
                                .failures_before = whole->failures_before,
                                .is_agreed = whole->is_agreed};
    if (why == RETRY_PART_REFUSED) {
        part->is_agreed = whole->is_agreed || whole->refuser_count > 1;
    } else {
        part->failures_before += whole->failures;
    }
    if (why == RETRY_PART_FAILED) {
        part->is_agreed = false;
        part->tried_count = whole->tried_count;
        memcpy(part->tried, whole->tried, sizeof part->tried);
    }
    if (why != RETRY_PART_CUT) {
        part->attempts = part->attempts_before = whole->attempts;
        part->unproven_count = whole->unproven_count;
        memcpy(part->unproven, whole->unproven, sizeof part->unproven);
        for (size_t i = 0; i < part->unproven_count; i++) {
            part->unproven[i].is_whole = true;
        }
    }
}

uint32_t retry_work_avoid(const struct retry_work *w, uint32_t out[RETRY_AVOID],
                          uint32_t *out_refusers)
{
    uint32_t count = 0;

    for (size_t i = 0; i < w->refuser_count; i++) {
        out[count++] = w->refusers[i]->id;
    }
    *out_refusers = count;
    memcpy(out + count, w->tried, w->tried_count * sizeof *out);
    return count + w->tried_count;
}

uint32_t retry_work_attempts(const struct retry_work *w)
{
    return MR_MAX(w->failures + w->refusals, MR_MAX(w->attempts, 1u));
}
