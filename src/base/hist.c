/* The histogram. Values below 8 have a bucket each; above, a power of two is cut into 8 equal
 * buckets, so that a bucket is at most an eighth of its values wide. Values of 2^40 and more are
 * counted in the last bucket, whose upper edge is reported as 2^40 - 1. */
#include "base/hist.h"

#define SUB_BITS 3
_Static_assert(MR_HIST_SUB == 1 << SUB_BITS, "the bit arithmetic below depends on it");

unsigned mr_hist_bucket(uint64_t value)
{
    if (value < MR_HIST_SUB) {
        return (unsigned)value;
    }
    unsigned top = 63u - (unsigned)__builtin_clzll(value);
    unsigned shift = top - SUB_BITS;
    unsigned bucket = (shift + 1) * MR_HIST_SUB + (unsigned)((value >> shift) & (MR_HIST_SUB - 1));
    return bucket < MR_HIST_BUCKETS ? bucket : MR_HIST_BUCKETS - 1;
}

uint64_t mr_hist_upper(unsigned bucket)
{
    if (bucket < MR_HIST_SUB) {
        return bucket;
    }
    if (bucket >= MR_HIST_BUCKETS) {
        bucket = MR_HIST_BUCKETS - 1;
    }
    unsigned shift = bucket / MR_HIST_SUB - 1;
    uint64_t next = MR_HIST_SUB + bucket % MR_HIST_SUB + 1;
    return (next << shift) - 1;
}

void mr_hist_add(struct mr_hist *h, uint64_t value)
{
    mr_count_add(&h->count[mr_hist_bucket(value)], 1);
    mr_count_add(&h->sum, value);
}

void mr_hist_add_size(struct mr_hist *h, uint64_t value)
{
    mr_count_add(&h->count[mr_hist_bucket(value - (value > 0))], 1);
    mr_count_add(&h->sum, value);
}

void mr_hist_merge(struct mr_hist *into, const struct mr_hist *from)
{
    for (unsigned i = 0; i < MR_HIST_BUCKETS; i++) {
        uint64_t n = mr_count_get(&from->count[i]);
        if (n) {
            mr_count_add(&into->count[i], n);
        }
    }
    mr_count_add(&into->sum, mr_count_get(&from->sum));
}

uint64_t mr_hist_total(const struct mr_hist *h)
{
    uint64_t total = 0;

    for (unsigned i = 0; i < MR_HIST_BUCKETS; i++) {
        total += mr_count_get(&h->count[i]);
    }
    return total;
}

uint64_t mr_hist_quantile(const struct mr_hist *h, double q)
{
    uint64_t total = mr_hist_total(h);
    uint64_t seen = 0;
    unsigned last = 0;

    if (total == 0) {
        return 0;
    }
    /* The comparison is written so that NaN counts as 0. */
    q = q > 0 ? (q < 1 ? q : 1) : 0;
    uint64_t rank = (uint64_t)(q * (double)total);
    if ((double)rank < q * (double)total || rank == 0) {
        rank++;
    }
    for (unsigned i = 0; i < MR_HIST_BUCKETS; i++) {
        uint64_t n = mr_count_get(&h->count[i]);
        seen += n;
        last = n ? i : last;
        if (seen >= rank) {
            return mr_hist_upper(i);
        }
    }
    return mr_hist_upper(last);
}
