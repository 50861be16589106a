/* The cost of a model's executions, and whether it is small enough for a network thread.
 *
 * The cost is a smoothed time per power of two of the input bytes, which follows batch rows and variable
 * dimensions alike. Each reader keeps its own figures, so that measuring writes no shared memory; instance
 * threads write the shared ones. A reader that finds a size too slow passes its figure to the instance threads; when
 * they find it fast again (by a margin, so that it does not flap), the size returns to the inline path. A size
 * without a sample is estimated from the next smaller one, in proportion to the bytes. */
#include "sched_priv.h"

unsigned cost_bucket(uint64_t input_bytes)
{
    unsigned b = 63u - (unsigned)__builtin_clzll(input_bytes | 1u);
    return b < COST_BUCKETS ? b : COST_BUCKETS - 1;
}

/* A sample far above the average (the thread was preempted) counts as this many times the average. */
#define OUTLIER 8

static int64_t smooth(int64_t average, int64_t sample)
{
    if (average == 0) {
        return sample;
    }
    if (sample > average * OUTLIER) {
        sample = average * OUTLIER;
    }
    return average + (sample - average) / 8;
}

int64_t cost_most(const struct sched_slot *slot, uint64_t input_bytes)
{
    int64_t local = slot->cost_ns[cost_bucket(input_bytes)];

    return local ? local * OUTLIER : INT64_MAX;
}

static int64_t shared_cost(struct mr_sched *s, unsigned bucket)
{
    /* relaxed: a figure by itself, nothing is published with it */
    return atomic_load_explicit(&s->cost_ns[bucket], memory_order_relaxed);
}

static bool estimate_allows(struct mr_sched *s, const struct sched_slot *slot, unsigned bucket)
{
    for (unsigned b = bucket; b-- > 0;) {
        int64_t known = slot->cost_ns[b] ? slot->cost_ns[b] : shared_cost(s, b);
        if (known == 0) {
            continue;
        }
        if (bucket - b >= 20) {
            return false;
        }
        return known << (bucket - b) < s->options.inline_threshold_ns;
    }
    return false;
}

bool cost_allows_inline(struct mr_sched *s, struct sched_slot *slot, uint64_t input_bytes)
{
    unsigned bucket = cost_bucket(input_bytes);
    int64_t limit = s->options.inline_threshold_ns, local = slot->cost_ns[bucket];

    if (local != 0 && local < limit) {
        return true;
    }
    int64_t shared = shared_cost(s, bucket);
    if (shared == 0) {
        return local == 0 && estimate_allows(s, slot, bucket);
    }
    if (shared >= (local == 0 ? limit : limit * 7 / 10)) {
        return false;
    }
    slot->cost_ns[bucket] = shared;
    return true;
}

void cost_add_inline(struct mr_sched *s, struct sched_slot *slot, uint64_t input_bytes, int64_t ns)
{
    unsigned bucket = cost_bucket(input_bytes);
    int64_t cost = smooth(slot->cost_ns[bucket], ns > 0 ? ns : 1);

    slot->cost_ns[bucket] = cost;
    if (cost >= s->options.inline_threshold_ns) {
        atomic_store_explicit(&s->cost_ns[bucket], cost, memory_order_relaxed);
    }
}

int64_t cost_of_queued(struct mr_sched *s, uint64_t input_bytes, uint64_t batch_bytes)
{
    const unsigned least = cost_bucket(input_bytes);
    int64_t cost = 0;

    for (unsigned b = cost_bucket(batch_bytes) + 1; cost == 0 && b-- > least;) {
        cost = shared_cost(s, b);
    }
    return cost;
}

void cost_add_queued(struct mr_sched *s, uint64_t input_bytes, int64_t ns)
{
    unsigned bucket = cost_bucket(input_bytes);
    int64_t cost = smooth(shared_cost(s, bucket), ns > 0 ? ns : 1);

    atomic_store_explicit(&s->cost_ns[bucket], cost, memory_order_relaxed);
}
