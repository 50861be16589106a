/* What is going to happen in simulated time: a heap, earliest first, equal times in the order of their entry. */
#ifndef TESTS_UNIT_ROUTE_EVENTS_H
#define TESTS_UNIT_ROUTE_EVENTS_H

#include <math.h>

#include "base/rng.h"
#include "base/vec.h"

struct event {
    int64_t at_ns;
    uint64_t order; /* set by events_add */
    int kind, outcome;
    uint32_t index;
};

struct events {
    MR_VEC(struct event) heap;
    uint64_t order;
};

static inline bool event_before(const struct event *a, const struct event *b)
{
    return a->at_ns != b->at_ns ? a->at_ns < b->at_ns : a->order < b->order;
}

static inline void events_add(struct events *q, struct event e)
{
    size_t at = q->heap.len;

    e.order = q->order++;
    MR_VEC_PUSH(&q->heap, e);
    for (; at > 0 && event_before(&e, &q->heap.at[(at - 1) / 2]); at = (at - 1) / 2) {
        q->heap.at[at] = q->heap.at[(at - 1) / 2];
    }
    q->heap.at[at] = e;
}

/* There is one. */
static inline struct event events_next(struct events *q)
{
    struct event first = q->heap.at[0], last = q->heap.at[--q->heap.len];
    size_t at = 0, child;

    while ((child = 2 * at + 1) < q->heap.len) {
        if (child + 1 < q->heap.len && event_before(&q->heap.at[child + 1], &q->heap.at[child])) {
            child++;
        }
        if (!event_before(&q->heap.at[child], &last)) {
            break;
        }
        q->heap.at[at] = q->heap.at[child];
        at = child;
    }
    q->heap.at[at] = last;
    return first;
}

/* Log-normal, mean 1. */
static inline double log_normal(struct mr_rng *rng, double sigma)
{
    double u = mr_rng_unit(rng), v = mr_rng_unit(rng);

    return exp(sigma * sqrt(-2 * log(1 - u)) * cos(2 * M_PI * v) - sigma * sigma / 2);
}

#endif
