/* How long the executions of a node take: a histogram that forgets, by any number of threads.
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
    _Atomic int64_t last_ns;    /* when the newest duration came */
};

/** Counts a duration that has ended now. Old ones lose weight: after each 1024 all counts are halved. Thread: any. */
void pace_add(struct pace *p, int64_t ns, int64_t now_ns);
/** Two seconds after the newest duration the median is unknown, until new ones have come: what it refused may be possible by now,
 *  and would never be measured. The old ones keep the weight of a few, so that quantiles remain. Thread: any. */
void pace_age(struct pace *p, int64_t now_ns);
/** The duration that a share q, 0 to 1, does not exceed; 0: too few are known. Thread: any. */
int64_t pace_quantile(const struct pace *p, double q);
/** As pace_quantile of 0.5, a little old. Thread: any; cheap. */
static inline int64_t pace_median(const struct pace *p)
{
    return (int64_t)atomic_load_explicit(&((struct pace *)(uintptr_t)p)->median_ns,
                                         memory_order_relaxed);
}

#endif
