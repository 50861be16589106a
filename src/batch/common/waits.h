/* How long a thread has waited. */
#ifndef MR_BATCH_WAITS_H
#define MR_BATCH_WAITS_H

#include <stdatomic.h>
#include <stdint.h>

#include "base/clock.h"

/** Time that a thread has waited, with a wait that goes on: long ones must be seen while they last. One thread begins and
 *  ends, any may read. */
struct waits {
    _Atomic int64_t ns; /* while a wait goes on, less the time at which it began: below zero */
};

static inline void waits_begin(struct waits *w)
{
    atomic_fetch_sub_explicit(&w->ns, mr_now_ns(), memory_order_relaxed);
}

static inline void waits_end(struct waits *w)
{
    atomic_fetch_add_explicit(&w->ns, mr_now_ns(), memory_order_relaxed);
}

static inline int64_t waits_ns(const struct waits *w)
{
    const int64_t ns = atomic_load_explicit(&w->ns, memory_order_relaxed);
    return ns < 0 ? ns + mr_now_ns() : ns;
}

#endif
