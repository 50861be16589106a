/* As base/hist.c, with 1024 buckets per power of two: a bucket's width is at most a thousandth of its values. */
#include "base/hdr_histogram.h"

#include <string.h>

#include "base/mem.h"

#define SUB_BITS 10
_Static_assert(MR_HDR_SUB == 1 << SUB_BITS, "the bit arithmetic below depends on it");

unsigned mr_hdr_bucket(uint64_t value)
{
    if (value < MR_HDR_SUB) {
        return (unsigned)value;
    }
    unsigned top = 63u - (unsigned)__builtin_clzll(value);
    unsigned shift = top - SUB_BITS;
    unsigned bucket = (shift + 1) * MR_HDR_SUB + (unsigned)((value >> shift) & (MR_HDR_SUB - 1));
    return MR_MIN(bucket, (unsigned)MR_HDR_BUCKETS - 1);
}

uint64_t mr_hdr_upper(unsigned bucket)
{
    if (bucket < MR_HDR_SUB) {
        return bucket;
    }
    bucket = MR_MIN(bucket, (unsigned)MR_HDR_BUCKETS - 1);
    unsigned shift = bucket / MR_HDR_SUB - 1;
    uint64_t next = MR_HDR_SUB + bucket % MR_HDR_SUB + 1;
    return (next << shift) - 1;
}

void mr_hdr_add_n(struct mr_hdr_histogram *h, uint64_t value, uint64_t n)
{
    if (n == 0) {
        return;
    }
    h->min = h->total ? MR_MIN(h->min, value) : value;
    h->max = MR_MAX(h->max, value);
    h->count[mr_hdr_bucket(value)] += n;
    h->total += n;
    h->sum += value * n;
}

void mr_hdr_add(struct mr_hdr_histogram *h, uint64_t value)
{
    mr_hdr_add_n(h, value, 1);
}

void mr_hdr_merge(struct mr_hdr_histogram *into, const struct mr_hdr_histogram *from)
{
    if (from->total == 0) {
        return;
    }
    for (unsigned i = mr_hdr_bucket(from->min); i <= mr_hdr_bucket(from->max); i++) {
        into->count[i] += from->count[i];
    }
    into->min = into->total ? MR_MIN(into->min, from->min) : from->min;
    into->max = MR_MAX(into->max, from->max);
    into->total += from->total;
    into->sum += from->sum;
}

uint64_t mr_hdr_at_rank(const struct mr_hdr_histogram *h, uint64_t rank)
{
    uint64_t seen = 0;

    if (rank >= h->total) {
        return h->max;
    }
    for (unsigned i = 0; i < MR_HDR_BUCKETS; i++) {
        seen += h->count[i];
        if (seen >= rank && seen > 0) {
            return MR_MIN(mr_hdr_upper(i), h->max);
        }
    }
    return h->max;
}

uint64_t mr_hdr_rank(uint64_t total, double q)
{
    /* The comparison is written so that NaN counts as 0. */
    q = q > 0 ? (q < 1 ? q : 1) : 0;
    double exact = q * (double)total;
    uint64_t rank = (uint64_t)exact;

    /* 0.999 * 1000 is a little more than 999. */
    if (exact - (double)rank > 1e-6) {
        rank++;
    }
    return MR_MAX(rank, (uint64_t)1);
}

uint64_t mr_hdr_quantile(const struct mr_hdr_histogram *h, double q)
{
    return mr_hdr_at_rank(h, mr_hdr_rank(h->total, q));
}

double mr_hdr_mean(const struct mr_hdr_histogram *h)
{
    return h->total ? (double)h->sum / (double)h->total : 0;
}
