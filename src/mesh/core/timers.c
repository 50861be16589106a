/* A binary heap by time and order. */
#include "timers.h"

#include <limits.h>

static bool is_before(const struct timer *a, const struct timer *b)
{
    return a->at_ns < b->at_ns || (a->at_ns == b->at_ns && a->seq < b->seq);
}

void timers_add(struct timers *t, int64_t at_ns, int kind, uint64_t arg, uint64_t check)
{
    struct timer new = {at_ns, t->seq++, kind, arg, check};

    MR_VEC_PUSH(&t->heap, new);
    size_t at = t->heap.len - 1;
    while (at > 0 && is_before(&new, &t->heap.at[(at - 1) / 2])) {
        t->heap.at[at] = t->heap.at[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    t->heap.at[at] = new;
}

bool timers_due(struct timers *t, int64_t now, struct timer *out)
{
    if (t->heap.len == 0 || t->heap.at[0].at_ns > now) {
        return false;
    }
    *out = t->heap.at[0];
    struct timer last = t->heap.at[--t->heap.len];
    size_t at = 0;
    for (size_t child; (child = 2 * at + 1) < t->heap.len; at = child) {
        if (child + 1 < t->heap.len && is_before(&t->heap.at[child + 1], &t->heap.at[child])) {
            child++;
        }
        if (!is_before(&t->heap.at[child], &last)) {
            break;
        }
        t->heap.at[at] = t->heap.at[child];
    }
    if (t->heap.len > 0) {
        t->heap.at[at] = last;
    }
    return true;
}

int64_t timers_next(const struct timers *t)
{
    return t->heap.len ? t->heap.at[0].at_ns : INT64_MAX;
}

void timers_fini(struct timers *t)
{
    MR_VEC_FINI(&t->heap);
}
