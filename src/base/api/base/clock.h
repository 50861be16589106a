/* Time. Everything is int64_t nanoseconds; monotonic unless the name says wall. */
#ifndef MR_BASE_CLOCK_H
#define MR_BASE_CLOCK_H

#include <stdint.h>
#include <time.h>

#define MR_NS_PER_US INT64_C(1000)
#define MR_NS_PER_MS INT64_C(1000000)
#define MR_NS_PER_S  INT64_C(1000000000)

/** CLOCK_MONOTONIC (vDSO, no system call). */
static inline int64_t mr_now_ns(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (int64_t)ts.tv_sec * MR_NS_PER_S + ts.tv_nsec;
}

/** CLOCK_REALTIME, since the epoch. */
static inline int64_t mr_wall_ns(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_REALTIME, &ts);
    return (int64_t)ts.tv_sec * MR_NS_PER_S + ts.tv_nsec;
}

/** As mr_wall_ns, up to some milliseconds old, at a fifth of the cost. */
static inline int64_t mr_wall_coarse_ns(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_REALTIME_COARSE, &ts);
    return (int64_t)ts.tv_sec * MR_NS_PER_S + ts.tv_nsec;
}

/** "2026-11-21T15:26:16.988493Z" for a time between the years 1970 and 9999; returns `out`. */
const char *mr_wall_text(int64_t wall_ns, char out[32]);

/** a + b for a deadline, saturating; b < 0 is treated as 0. */
static inline int64_t mr_ns_after(int64_t a, int64_t b)
{
    int64_t r;
    if (b < 0) {
        b = 0;
    }
    return __builtin_add_overflow(a, b, &r) ? INT64_MAX : r;
}

#endif
