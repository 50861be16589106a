/* How long what follows a node takes, by the durations that were measured: what a request that has a deadline needs to have left.
 *
 * Only nodes that run in any case count, with their medians: a request is given up when even that is too long. What has not run
 * lately does not count either, or a node that was too slow once would never be asked again. */
#ifndef FLOW_TAIL_H
#define FLOW_TAIL_H

#include "flow/plan/plan.h"
#include "pace.h"

struct tails {
    const struct plan *plan;
    uint32_t *order; /* [count] the nodes in an order in which they can run */
    uint32_t count;
    uint8_t *is_certain; /* [node_count] the node runs if nothing fails */
    _Atomic int64_t *ns; /* [node_count]; relaxed */
};

/** All are 0. Thread: loader. */
void tail_init(struct tails *t, const struct plan *p);
void tail_fini(struct tails *t);
/** Computes them anew, from the medians of `paces`, [node_count], as they are now. Thread: any. */
void tail_update(struct tails *t, struct pace *paces, int64_t now_ns);
/** The time that the nodes after `node` take on the longest way. Thread: any. */
static inline int64_t tail_after(const struct tails *t, uint32_t node)
{
    return atomic_load_explicit(&t->ns[node], memory_order_relaxed);
}

#endif
