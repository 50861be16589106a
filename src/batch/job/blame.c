#include "batch/common/blame.h"

#include "base/log.h"
#include "batch/common/job.h"

#define HEARD_NS     (5 * MR_NS_PER_S) /* a host that was heard so lately is waited for */
#define FAILS_ENOUGH 3                 /* others that failed so often with a row are not */
#define CAP_LEAST    32u
#define CAP_MOST     4096u

/* ---- failures ---- */

static bool did_well(const struct blame_times *t, int64_t from_ns, int64_t to_ns)
{
    const uint64_t n = MR_MIN(t->count, (uint64_t)BLAME_TIMES);

    for (uint64_t i = 0; i < n; i++) {
        if (t->at[i] >= from_ns && t->at[i] <= to_ns) {
            return true;
        }
    }
    return false;
}

static void spells_look(const struct job *j, struct blame *b)
{
    size_t kept = 0;

    for (size_t i = 0; i < b->spell_count; i++) {
        if (did_well(&j->calls.times, b->spells[i].from_ns, b->spells[i].to_ns)) {
            b->attempts++;
        } else {
            b->spells[kept++] = b->spells[i];
        }
    }
    b->spell_count = kept;
}

bool blame_failed(struct job *j, struct work *w, int64_t now_ns)
{
    struct blame *b = &w->blame;

    if (b->spell_count == BLAME_SPELLS) {
        memmove(b->spells, b->spells + 1, --b->spell_count * sizeof *b->spells);
    }
    b->spells[b->spell_count].from_ns = b->since_ns;
    b->spells[b->spell_count++].to_ns = now_ns;
    b->since_ns = now_ns;
    spells_look(j, b);
    return b->spell_count == 0 || b->spells[b->spell_count - 1].to_ns != now_ns;
}

void blame_inherit(struct blame *part, const struct blame *whole)
{
    part->attempts = whole->attempts;
    part->since_ns = whole->since_ns;
    part->spell_count = whole->spell_count;
    memcpy(part->spells, whole->spells, sizeof part->spells);
}

/* ---- hosts that say no ---- */

static bool is_refuser(const struct blame *b, const struct host *h)
{
    for (size_t i = 0; i < b->refuser_count; i++) {
        if (b->refusers[i] == h) {
            return true;
        }
    }
    return false;
}

/* It answers other calls, and nothing has shown since that it should not have refused one. */
static bool is_credible(const struct host *h)
{
    return h->ok > h->ok_refuted;
}

static bool is_any_credible(const struct blame *b)
{
    for (size_t i = 0; i < b->refuser_count; i++) {
        if (is_credible(b->refusers[i])) {
            return true;
        }
    }
    return false;
}

static bool may_answer(const struct job *j, const struct host *h, int64_t now_ns)
{
    return h->is_listed && !h->is_distrusted &&
           (mr_balance_is_working(j->balance, h->id) || now_ns - h->heard_ns < HEARD_NS);
}

/* Is there a host that has not refused the work and may have another opinion? */
static bool others_are_there(const struct job *j, const struct work *w, int64_t now_ns)
{
    for (size_t i = 0; i < j->hosts.len && w->failures < FAILS_ENOUGH; i++) {
        const struct host *h = j->hosts.at[i];
        if (!is_refuser(&w->blame, h) && may_answer(j, h, now_ns)) {
            return true;
        }
    }
    return w->failures < FAILS_ENOUGH && discover_is_pending(j, now_ns);
}

static bool is_only_host(const struct job *j, const struct host *host, int64_t now_ns)
{
    for (size_t i = 0; i < j->hosts.len; i++) {
        const struct host *h = j->hosts.at[i];
        if (h != host && h->is_listed && !h->is_distrusted) {
            return false;
        }
    }
    return !discover_is_pending(j, now_ns);
}

static bool has_failed_with(const struct work *w, const struct host *h)
{
    for (uint32_t i = 0; i < w->tried_count; i++) {
        if (w->tried[i] == h->id) {
            return true;
        }
    }
    return false;
}

/* Only one host has failed with it, and others work. */
static bool another_may_do(const struct job *j, const struct work *w)
{
    for (size_t i = 0; i < j->hosts.len && w->tried_count < 2; i++) {
        const struct host *h = j->hosts.at[i];
        if (mr_balance_is_working(j->balance, h->id) && !has_failed_with(w, h)) {
            return true;
        }
    }
    return false;
}

bool blame_is_proven(struct job *j, struct work *w)
{
    spells_look(j, &w->blame);
    return w->count == 1 && w->blame.attempts >= j->o->max_attempts &&
           (w->failures >= j->o->max_attempts || !another_may_do(j, w));
}

void blame_refused(struct call *k)
{
    struct blame *b = &k->work->blame;

    b->refusals++;
    if (!is_refuser(b, k->host) && b->refuser_count < BLAME_REFUSERS) {
        b->refuser_ok = b->refuser_count == 0 ? k->host->ok : b->refuser_ok;
        b->refusers[b->refuser_count++] = k->host;
    }
}

/* ---- how large a call may be ---- */

/* False: it gets no more than that anyway, so that it is not the size which it refuses. */
static bool cap_lower(struct host *h, uint64_t rows)
{
    struct blame_cap *c = &h->cap;

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

static void cap_raise(struct host *h, uint64_t rows)
{
    struct blame_cap *c = &h->cap;

    if (c->rows > 0 && rows >= c->rows && ++c->good >= c->every) {
        c->rows *= 2;
        c->good = 0;
        c->was_raised = true;
    }
}

uint64_t blame_rows(const struct host *h, uint64_t rows)
{
    return h->cap.rows > 0 ? MR_MIN(rows, h->cap.rows) : rows;
}

/* ---- verdicts ---- */

static void refute(struct job *j, struct host *h, int64_t now_ns, const char *why)
{
    h->ok_refuted = h->ok;
    mr_balance_refuted(j->balance, now_ns, h->id, mr_str_c(why));
}

enum blame_verdict blame_verdict(struct call *k, int64_t now_ns)
{
    struct job *j = k->job;
    struct work *w = k->work;
    const struct blame *b = &w->blame;
    const bool is_trusted = is_any_credible(b);

    if (is_only_host(j, k->host, now_ns) || b->refuser_count == BLAME_REFUSERS ||
        (b->refuser_count > 1 && is_trusted) || (w->count > 1 && b->is_agreed && is_trusted)) {
        return BLAME_ROWS;
    }
    if (others_are_there(j, w, now_ns)) {
        return BLAME_OTHER;
    }
    /* The only one that works has to have answered something else since. */
    if (b->refuser_count > 1 || (w->count > 1 && is_trusted) || k->host->ok > b->refuser_ok) {
        return BLAME_ROWS;
    }
    if (cap_lower(k->host, w->count)) {
        return BLAME_OTHER;
    }
    if (!is_trusted) {
        refute(j, k->host, now_ns, "it refuses all, and no other host works that would agree");
        host_lasts(k->host, w->cause);
    }
    return BLAME_WAIT;
}

bool blame_may_ask(const struct job *j, const struct work *w, const struct host *h, int64_t now_ns)
{
    return !is_refuser(&w->blame, h) || !others_are_there(j, w, now_ns);
}

void blame_answered(struct call *k, int64_t now_ns)
{
    struct job *j = k->job;
    struct blame_times *t = &j->calls.times;
    struct work *w = k->work;

    t->at[t->count++ % BLAME_TIMES] = k->sent_ns;
    k->host->ok++;
    j->batch->has_answers = true;
    cap_raise(k->host, w->count);
    for (size_t i = 0; i < w->blame.refuser_count; i++) {
        struct host *h = (struct host *)(uintptr_t)w->blame.refusers[i];
        if (cap_lower(h, w->count)) {
            h->ok_refuted = h->ok;
            continue;
        }
        if (!h->is_refuted) {
            h->is_refuted = true;
            mr_log(MR_LOG_WARN, "batch.host_refuses",
                   "host=%s reason=%s; another host answered the same row, so it is no dead "
                   "letter, and "
                   "the host gets less work",
                   MR_LOG_STR(mr_str_c(h->wire.address)), MR_LOG_STR(mr_str_c(w->cause)));
        }
        refute(j, h, now_ns, "refuses what others answer");
    }
    w->blame.refuser_count = 0;
}
