/* When requests are due in an open loop. */
#ifndef MR_PERF_SCHEDULE_H
#define MR_PERF_SCHEDULE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/rng.h"

/** Slots per second: `from` for `flat_ns`, then linearly to `to` within `ramp_ns`, then `to`. */
struct perf_pace {
    double from; /* > 0 */
    double to;   /* > 0; ignored without a ramp */
    int64_t flat_ns;
    int64_t ramp_ns; /* 0: `from` for ever */
};

struct perf_schedule {
    struct perf_pace pace;
    int64_t begin_ns;
    bool poisson;
    uint32_t index;
    uint32_t count;
    uint64_t n;
    double place; /* Poisson: of the last slot among those of all threads */
    struct mr_rng rng;
};

/** Slots of thread `index` of `count`, which share a pace: with equal gaps they alternate; independent Poisson
 *  processes add up to one. */
void perf_schedule_init(struct perf_schedule *s, const struct perf_pace *pace, bool poisson,
                        uint64_t seed, int64_t begin_ns, uint32_t index, uint32_t count);
/** The next slot; they never go back in time. */
int64_t perf_schedule_next(struct perf_schedule *s);

#endif
