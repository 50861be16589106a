/* What the nodes of a graph count. */
#include "exec.h"
#include "flow/flow.h"

struct shower {
    mr_flow_count_fn *see;
    void *ctx;
    mr_str node;
};

static void show(const struct shower *s, const char *event, const _Atomic uint64_t *count)
{
    const uint64_t n = mr_count_get(count);

    if (n > 0) {
        s->see(s->ctx, s->node, event, n);
    }
}

void mr_flow_counts(const struct mr_executor *e, mr_flow_count_fn *see, void *ctx)
{
    if (e->ops != &flow_executor_ops) {
        return;
    }
    const struct flow *f =
        MR_CONTAINER_OF((struct mr_executor *)(uintptr_t)e, struct flow, executor);
    for (uint32_t n = 0; n < f->plan->node_count; n++) {
        const struct shower s = {see, ctx, f->plan->nodes[n].name};
        const struct flow_outcomes *o = &f->outcomes[n];
        const struct flow_hedges *h = &f->hedges[n];
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

void flow_outcomes_count(const struct walk *w)
{
    for (uint32_t n = 0; n < w->flow->plan->node_count; n++) {
        const uint8_t outcome = w->run.nodes[n].outcome;
        if (outcome != RUN_RAN) {
            atomic_fetch_add_explicit(&w->flow->outcomes[n].of[outcome], 1, memory_order_relaxed);
        }
    }
}
