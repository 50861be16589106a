/* Durations of nodes; see pace.h. */
#include "pace.h"

#include "base/clock.h"

#define SUB        4u /* buckets of a power of two */
#define FIRST_BIT  10u
#define FULL       1024u
#define LOOK_EVERY 16u
#define LASTS_NS   (2 * MR_NS_PER_S)

static unsigned bucket_of(uint64_t ns)
{
    if (ns < (1u << FIRST_BIT)) {
        return 0;
    }
    const unsigned bit = 63u - (unsigned)__builtin_clzll(ns);
    const unsigned at = (bit - FIRST_BIT) * SUB + (unsigned)(ns >> (bit - 2) & (SUB - 1));
    return at < PACE_BUCKETS - 1 ? at + 1 : PACE_BUCKETS - 1;
}

static int64_t upper(unsigned bucket)
{
    if (bucket == 0) {
        return 1 << FIRST_BIT;
    }
    const unsigned at = bucket - 1;
    return (int64_t)(SUB + at % SUB + 1) << (FIRST_BIT - 2 + at / SUB);
}

static uint32_t count_of(const struct pace *p, unsigned i)
{
    return atomic_load_explicit(&((struct pace *)(uintptr_t)p)->count[i], memory_order_relaxed);
}

int64_t pace_quantile(const struct pace *p, double q)
{
    uint64_t total = 0, below = 0;

    for (unsigned i = 0; i < PACE_BUCKETS; i++) {
        total += count_of(p, i);
    }
    if (total < PACE_LEAST) {
        return 0;
    }
    for (unsigned i = 0; i < PACE_BUCKETS; i++) {
        below += count_of(p, i);
        if ((double)below >= q * (double)total) {
            return upper(i);
        }
    }
    return upper(PACE_BUCKETS - 1);
}

static void forget(struct pace *p)
{
    uint32_t total = 0;

    for (unsigned i = 0; i < PACE_BUCKETS; i++) {
        const uint32_t n = count_of(p, i) / 2;
        atomic_store_explicit(&p->count[i], n, memory_order_relaxed);
        total += n;
    }
    atomic_store_explicit(&p->total, total, memory_order_relaxed);
}

void pace_age(struct pace *p, int64_t now_ns)
{
    if (now_ns - atomic_load_explicit(&p->last_ns, memory_order_relaxed) <= LASTS_NS) {
        return;
    }
    while (atomic_load_explicit(&p->total, memory_order_relaxed) >= 2 * PACE_LEAST) {
        forget(p);
    }
    atomic_store_explicit(&p->median_ns, 0, memory_order_relaxed);
}

void pace_add(struct pace *p, int64_t ns, int64_t now_ns)
{
    atomic_store_explicit(&p->last_ns, now_ns, memory_order_relaxed);
    atomic_fetch_add_explicit(&p->count[bucket_of(ns > 0 ? (uint64_t)ns : 0)], 1,
                              memory_order_relaxed);
    const uint32_t total = 1 + atomic_fetch_add_explicit(&p->total, 1, memory_order_relaxed);
    if (total % LOOK_EVERY == 0 || total == PACE_LEAST) {
        atomic_store_explicit(&p->median_ns, (uint64_t)pace_quantile(p, 0.5), memory_order_relaxed);
    }
    if (total == FULL) {
        forget(p);
    }
}
