#include "durations.h"

#include "base/hist.h"
#include "base/mem.h"

void durations_add(struct durations *d, int64_t ns)
{
    const uint64_t value = (uint64_t)MR_MAX(ns, 0);
    const uint64_t us = (value + 999) / 1000;
    const unsigned k = us <= 1 ? 0 : 64u - (unsigned)__builtin_clzll(us - 1);

    mr_count_add(&d->bucket[MR_MIN(k, MR_WORKER_TIME_BUCKETS - 1)], 1);
    mr_count_add(&d->sum_ns, value);
    atomic_store_explicit(&d->max_ns, MR_MAX(value, mr_count_get(&d->max_ns)),
                          memory_order_relaxed);
}

void durations_get(const struct durations *d, struct mr_worker_times *out)
{
    out->count = 0;
    for (unsigned k = 0; k < MR_WORKER_TIME_BUCKETS; k++) {
        out->bucket[k] = mr_count_get(&d->bucket[k]);
        out->count += out->bucket[k];
    }
    out->sum_ns = mr_count_get(&d->sum_ns);
    out->max_ns = mr_count_get(&d->max_ns);
}
