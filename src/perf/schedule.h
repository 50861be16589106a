/* When requests are due in an open loop. */
#ifndef MR_PERF_SCHEDULE_H
#define MR_PERF_SCHEDULE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/rng.h"

struct perf_schedule {
    int64_t begin_ns;
    double gap_ns; /* between this thread's slots, in the mean */
    double first_ns;
    bool poisson;
    double at_ns; /* Poisson: since begin */
    uint64_t n;
    struct mr_rng rng;
};

/** Slots of thread `index` of `count`, which share `rate` slots per second: with equal gaps they take turns;
 *  Poisson processes of their own add up to one. */
void perf_schedule_init(struct perf_schedule *s, double rate, bool poisson, uint64_t seed,
                        int64_t begin_ns, uint32_t index, uint32_t count);
/** The next slot; they never go back in time. */
int64_t perf_schedule_next(struct perf_schedule *s);

#endif
