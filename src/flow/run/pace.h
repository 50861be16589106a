/* How long the executions of a node take: a histogram that forgets, by any number of threads. Knows no clock.
 *
 * Buckets are a quarter of a power of two wide, so that a quantile is at most 19 % too large. */
#ifndef FLOW_PACE_H
#define FLOW_PACE_H

#include <stdatomic.h>
#include <stdint.h>

#define PACE_BUCKETS 108 /* 1 us to 128 s */
/** Fewer durations say nothing. */
#define PACE_LEAST 20u

/** All-zero is empty. Everything is relaxed: durations that two threads count at once may be lost. */
struct pace {
    _Atomic uint32_t count[PACE_BUCKETS];
    _Atomic uint32_t total;
    _Atomic uint64_t median_ns; /* of the last look, 0 = unknown */
};

/** Counts a duration. Old ones lose weight: after each 1024 all counts are halved. Thread: any. */
void pace_add(struct pace *p, int64_t ns);
/** The duration that a share q, 0 to 1, does not exceed; 0: too few are known. Thread: any. */
int64_t pace_quantile(const struct pace *p, double q);
/** As pace_quantile of 0.5, a little old. Thread: any; cheap. */
static inline int64_t pace_median(const struct pace *p)
{
    return (int64_t)atomic_load_explicit(&((struct pace *)(uintptr_t)p)->median_ns,
                                         memory_order_relaxed);
}

#endif
