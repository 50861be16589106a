/* What is counted of calls and rows, for metrics and the report. On the loop's thread; two clock reads a call. */
#include "figures.h"

#include <stdio.h>

#include "base/clock.h"
#include "call.h"

void figures_sent(struct call *k)
{
    struct host_figures *f = &k->host->figures;

    f->encode_ns += mr_now_ns() - k->sent_ns;
    f->retries += k->work->is_retry && !k->work->only && !k->work->is_probe;
}

void figures_answered(struct call *k, enum mr_balance_outcome outcome, int64_t came_ns)
{
    struct host_figures *f = &k->host->figures;

    f->outcomes[outcome]++;
    f->judge_ns += mr_now_ns() - came_ns;
    if (outcome == MR_BALANCE_OK) {
        f->answer_ns = f->answer_ns ? f->answer_ns : MR_NEW(struct mr_hist);
        mr_hist_add(f->answer_ns, (uint64_t)MR_MAX(came_ns - k->sent_ns, INT64_C(0)));
    }
}

void figures_dead(struct figures *f, const char *kind, const char *cause)
{
    for (size_t i = 0; i < f->dead_count; i++) {
        struct dead_cause *d = &f->dead[i];
        if (d->kind == kind && strncmp(d->text, cause, sizeof d->text - 1) == 0) {
            d->count++;
            return;
        }
    }
    if (f->dead_count == DEAD_CAUSES_MOST) {
        f->dead_other++;
        return;
    }
    struct dead_cause *d = &f->dead[f->dead_count++];
    *d = (struct dead_cause){.kind = kind, .count = 1};
    snprintf(d->text, sizeof d->text, "%s", cause);
}

void figures_add(struct host_figures *to, const struct host_figures *from)
{
    for (size_t i = 0; i < sizeof to->outcomes / sizeof *to->outcomes; i++) {
        to->outcomes[i] += from->outcomes[i];
    }
    to->retries += from->retries;
    to->dead += from->dead;
    to->prompt_tokens += from->prompt_tokens;
    to->completion_tokens += from->completion_tokens;
    to->encode_ns += from->encode_ns;
    to->judge_ns += from->judge_ns;
    if (from->answer_ns) {
        to->answer_ns = to->answer_ns ? to->answer_ns : MR_NEW(struct mr_hist);
        mr_hist_merge(to->answer_ns, from->answer_ns);
    }
}

void figures_fini(struct host_figures *f)
{
    mr_free(f->answer_ns);
    f->answer_ns = NULL;
}

void figures_failed(struct figures *f, const struct host *h, const char *text, int64_t now_ns)
{
    struct call_cause *oldest = &f->causes[0];

    for (size_t i = 0; i < CAUSES_MOST; i++) {
        struct call_cause *c = &f->causes[i];
        if (c->host == h && strncmp(c->text, text, sizeof c->text - 1) == 0) {
            c->count++;
            c->last_ns = now_ns;
            return;
        }
        oldest = c->last_ns < oldest->last_ns ? c : oldest;
    }
    *oldest = (struct call_cause){.host = h, .count = 1, .last_ns = now_ns};
    snprintf(oldest->text, sizeof oldest->text, "%s", text);
}

const struct call_cause *figures_last_failure(const struct figures *f)
{
    const struct call_cause *last = NULL;

    for (size_t i = 0; i < CAUSES_MOST; i++) {
        const struct call_cause *c = &f->causes[i];
        last = c->count > 0 && (!last || c->last_ns > last->last_ns) ? c : last;
    }
    return last;
}
