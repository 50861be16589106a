/* What the nodes of a graph count. */
#include "admit.h"
#include "exec.h"

#include "engine/shadow.h"
#include "flow/flow.h"

struct shower {
    mr_flow_count_fn *see;
    void *ctx;
    mr_str node;
};

static void show_n(const struct shower *s, const char *event, uint64_t n)
{
    if (n > 0) {
        s->see(s->ctx, s->node, event, n);
    }
}

static void show(const struct shower *s, const char *event, const _Atomic uint64_t *count)
{
    show_n(s, event, mr_count_get(count));
}

static void show_shadow(const struct shower *s, const struct mr_shadow_stats *t)
{
    show_n(s, "shadow", t->requests);
    show_n(s, "shadow_dropped", t->dropped);
    show_n(s, "shadow_failed", t->failed);
    show_n(s, "shadow_equal", t->compared - t->different);
    show_n(s, "shadow_different", t->different);
}

static void show_admission(const struct shower *s, struct flow_admit *a)
{
    pthread_mutex_lock(&a->lock);
    const uint64_t refused = a->refused, waited = a->waited;
    pthread_mutex_unlock(&a->lock);
    show_n(s, "admission_waited", waited);
    show_n(s, "admission_refused", refused);
}

void mr_flow_counts(const struct mr_executor *e, mr_flow_count_fn *see, void *ctx)
{
    if (e->ops != &flow_executor_ops) {
        return;
    }
    const struct flow *f =
        MR_CONTAINER_OF((struct mr_executor *)(uintptr_t)e, struct flow, executor);
    if (f->admit) {
        show_admission(&(struct shower){see, ctx, MR_STR("")}, f->admit);
    }
    for (uint32_t n = 0; n < f->plan->node_count; n++) {
        const struct shower s = {see, ctx, f->plan->nodes[n].name};
        const struct flow_outcomes *o = &f->outcomes[n];
        const struct flow_hedges *h = &f->hedges[n];
        const struct mr_shadow_stats shadow = flow_shadow_stats(f, n);
        show_shadow(&s, &shadow);
        show(&s, "operator", &f->op_runs[n].runs);
        show(&s, "operator_failed", &f->op_runs[n].failed);
        show(&s, "skipped", &o->of[RUN_SKIPPED]);
        show(&s, "failed", &o->of[RUN_FAILED]);
        show(&s, "default", &o->of[RUN_DEFAULTED]);
        show(&s, "fallback", &o->of[RUN_FELL_BACK]);
        show(&s, "repeat", &f->retries[n].repeats);
        show(&s, "second_call", &h->extra);
        show(&s, "second_call_won", &h->won);
        show(&s, "second_call_refused", &h->refused);
    }
}

void flow_outcomes_count(const struct walk *w, const uint8_t *marks)
{
    for (uint32_t n = 0; n < w->flow->plan->node_count; n++) {
        const uint8_t outcome = w->run.nodes[n].outcome;
        if (outcome != RUN_RAN && (!marks || marks[n])) {
            atomic_fetch_add_explicit(&w->flow->outcomes[n].of[outcome], 1, memory_order_relaxed);
        }
    }
}
