/* How long something took, as a histogram. One writer at a time, any readers. */
#ifndef SENTINEL_DURATIONS_H
#define SENTINEL_DURATIONS_H

#include <stdatomic.h>

#include "sentinel/sentinel.h"

/* Zeroed: empty. All of it relaxed. */
struct durations {
    _Atomic uint64_t bucket[MR_WORKER_TIME_BUCKETS], sum_ns, max_ns;
};

void durations_add(struct durations *d, int64_t ns);
void durations_get(const struct durations *d, struct mr_worker_times *out);

#endif
