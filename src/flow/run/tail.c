/* What follows a node; see tail.h. */
#include "tail.h"

#include "base/clock.h"
#include "base/mem.h"

/* All that it needs is made in any case. */
static bool has_inputs(const struct tails *t, const struct plan_node *node)
{
    const struct plan *p = t->plan;

    for (uint32_t i = 0; i < node->input_count; i++) {
        const uint32_t writer = p->tensors[node->inputs[i].tensor].writer;
        if (!node->inputs[i].is_optional && writer < p->node_count &&
            (!t->is_certain[writer] || p->nodes[writer].on_error == PLAN_SKIP)) {
            return false;
        }
    }
    return true;
}

void tail_init(struct tails *t, const struct plan *p)
{
    uint32_t *waits = MR_NEW_ARRAY(uint32_t, (size_t)p->node_count + 1);

    *t = (struct tails){.plan = p,
                        .order = MR_NEW_ARRAY(uint32_t, (size_t)p->node_count + 1),
                        .is_certain = MR_NEW_ARRAY(uint8_t, (size_t)p->node_count + 1),
                        .ns = MR_NEW_ARRAY(_Atomic int64_t, (size_t)p->node_count + 1)};
    t->count = plan_order(p, t->order, waits);
    for (uint32_t k = 0; k < t->count; k++) {
        const struct plan_node *node = &p->nodes[t->order[k]];
        t->is_certain[t->order[k]] = !node->when && has_inputs(t, node);
    }
    mr_free(waits);
}

void tail_fini(struct tails *t)
{
    mr_free(t->order);
    mr_free(t->is_certain);
    mr_free(t->ns);
}

/* Of a switch: the quickest of its branches. */
static int64_t cost_of(const struct tails *t, uint32_t n, const struct pace *paces)
{
    const struct plan_node *node = &t->plan->nodes[n];
    int64_t ns = pace_median(&paces[n]);

    if (!t->is_certain[n] || (node->branch_count && !node->has_else)) {
        return 0;
    }
    for (uint32_t k = 0; k < node->branch_count; k++) {
        const int64_t of = pace_median(&paces[node->branches[k]]);
        ns = k == 0 ? of : MR_MIN(ns, of);
    }
    return node->timeout_ms ? MR_MIN(ns, node->timeout_ms * MR_NS_PER_MS) : ns;
}

void tail_update(struct tails *t, struct pace *paces, int64_t now_ns)
{
    for (uint32_t n = 0; n < t->plan->node_count; n++) {
        pace_age(&paces[n], now_ns);
    }
    for (uint32_t k = t->count; k-- > 0;) {
        const struct plan_node *node = &t->plan->nodes[t->order[k]];
        int64_t longest = 0;
        for (uint32_t i = 0; i < node->next_count; i++) {
            const uint32_t n = node->next[i];
            longest = MR_MAX(longest, cost_of(t, n, paces) + tail_after(t, n));
        }
        atomic_store_explicit(&t->ns[t->order[k]], longest, memory_order_relaxed);
    }
}
