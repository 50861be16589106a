/* A log-linear histogram of non-negative 64-bit values: 8 buckets per power of two (error below
 * 12.5 %), fixed size, one writer, any readers (counts are relaxed atomics, so a read is a
 * near-snapshot). All-zero is an empty histogram. */
#ifndef MR_BASE_HIST_H
#define MR_BASE_HIST_H

#include <stdatomic.h>
#include <stdint.h>

#define MR_HIST_SUB 8
/* Values up to 2^40 ns (18 minutes); larger ones go to the last bucket. */
#define MR_HIST_BUCKETS (38 * MR_HIST_SUB)

struct mr_hist {
    _Atomic uint64_t count[MR_HIST_BUCKETS];
    _Atomic uint64_t sum;
};

/** Bucket index of a value, and the largest value that falls into a bucket. The last bucket also
 *  holds everything above its upper edge of 2^40 - 1. */
unsigned mr_hist_bucket(uint64_t value);
uint64_t mr_hist_upper(unsigned bucket);
/** Thread: the one writer. */
void mr_hist_add(struct mr_hist *h, uint64_t value);
/** The same of a value that is counted up to powers of two, these included: one of them is in the bucket below its own. */
void mr_hist_add_size(struct mr_hist *h, uint64_t value);
/** into += from. Only the caller may write to `into`. */
void mr_hist_merge(struct mr_hist *into, const struct mr_hist *from);
uint64_t mr_hist_total(const struct mr_hist *h);
/** Value at quantile q in [0,1] (upper edge of the bucket); 0 when empty. */
uint64_t mr_hist_quantile(const struct mr_hist *h, double q);

/** A counter with one writer: no locked instruction. */
static inline void mr_count_add(_Atomic uint64_t *c, uint64_t n)
{
    atomic_store_explicit(c, atomic_load_explicit(c, memory_order_relaxed) + n,
                          memory_order_relaxed);
}

static inline uint64_t mr_count_get(const _Atomic uint64_t *c)
{
    return atomic_load_explicit((_Atomic uint64_t *)c, memory_order_relaxed);
}

#endif
