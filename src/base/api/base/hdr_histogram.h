/* A log-linear histogram for reports: 1024 buckets per power of two, which gives three digits of precision, from 0 to
 * 2^36 - 1 (68 s in nanoseconds). 221 KiB, one thread. base/hist.h is the small one for a server's counters. All-zero
 * is an empty histogram. */
#ifndef MR_BASE_HDR_HISTOGRAM_H
#define MR_BASE_HDR_HISTOGRAM_H

#include <stdint.h>

#define MR_HDR_SUB     1024
#define MR_HDR_BUCKETS (27 * MR_HDR_SUB)

struct mr_hdr_histogram {
    uint64_t count[MR_HDR_BUCKETS];
    uint64_t total;
    uint64_t sum; /* exact, as are min and max */
    uint64_t min; /* not set while total is 0 */
    uint64_t max;
};

/** Bucket index of a value, and the largest value that falls into a bucket. The last bucket also holds
 *  everything above its upper edge of 2^36 - 1. */
unsigned mr_hdr_bucket(uint64_t value);
uint64_t mr_hdr_upper(unsigned bucket);
void mr_hdr_add(struct mr_hdr_histogram *h, uint64_t value);
/** Adds the same value n times. */
void mr_hdr_add_n(struct mr_hdr_histogram *h, uint64_t value, uint64_t n);
void mr_hdr_merge(struct mr_hdr_histogram *into, const struct mr_hdr_histogram *from);
/** The value of the sample with that rank; the smallest has rank 1. It is the upper edge of the sample's bucket, at
 *  most the largest sample. Ranks out of range are clipped; 0 when empty. */
uint64_t mr_hdr_at_rank(const struct mr_hdr_histogram *h, uint64_t rank);
/** Value at quantile q in [0,1]: of the sample with rank ceil(q * total). */
uint64_t mr_hdr_quantile(const struct mr_hdr_histogram *h, double q);
uint64_t mr_hdr_rank(uint64_t total, double q);
double mr_hdr_mean(const struct mr_hdr_histogram *h);

#endif
