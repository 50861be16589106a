/* Which variant of an endpoint a request goes to: by weights, spread evenly or by a key.
 *
 * There are 10000 buckets. A variant owns a range of them, as long as its share of the weights, and the ranges follow each
 * other in the order of the declaration: another weight moves the borders and nothing else, so that most keys stay with
 * their variant. A variant of a weight above 0 owns one bucket at least; one of weight 0 owns none.
 *
 * A key's bucket is the same in each process and each release: mr_variant_bucket is part of the interface. */
#ifndef MR_VARIANT_CHOICE_H
#define MR_VARIANT_CHOICE_H

#include <stdatomic.h>
#include <stdbool.h>

#include "base/err.h"
#include "base/str.h"

#define MR_VARIANTS_MAX       32u
#define MR_VARIANT_BUCKETS    10000u
#define MR_VARIANT_WEIGHT_MAX 1e6

/** The borders of the variants' ranges. One thread at a time writes, any thread reads without a lock: a reader that meets
 *  a writer reads again. */
struct mr_variant_table {
    _Atomic uint32_t version; /* odd while it is written */
    _Atomic uint32_t count;
    _Atomic uint32_t border[MR_VARIANTS_MAX]; /* the first bucket after variant i */
};

/** Errors: MR_E_INVALID: none or too many, one that is no number from 0 to MR_VARIANT_WEIGHT_MAX, or all 0. `tags` (may be
 *  NULL) name the variants in the message. */
int mr_variant_weights_check(const double *weights, const mr_str *tags, size_t count,
                             struct mr_err *err);
/** Weights that pass the check; at most MR_VARIANTS_MAX. Thread: one writer at a time. */
void mr_variant_table_set(struct mr_variant_table *t, const double *weights, size_t count);
/** The variant that owns a bucket (less than MR_VARIANT_BUCKETS). Thread: any. */
unsigned mr_variant_of(const struct mr_variant_table *t, unsigned bucket);
/** The variant that owns most of them, the first of several. Thread: any. */
unsigned mr_variant_biggest(const struct mr_variant_table *t);
/** Whether a variant owns any bucket. Thread: any. */
bool mr_variant_is_used(const struct mr_variant_table *t, unsigned variant);

/** hash64(salt, key) mod 10000, where hash64 is FNV-1a of the salt, a byte 0 and the key, with a final mix (murmur3's
 *  fmix64). */
unsigned mr_variant_bucket(mr_str salt, mr_str key);
/** For requests without a key: the next bucket of a sequence that is spread more evenly than a random one. Of n requests
 *  in a row, the number of a variant's differs from its share by less than log2(n) + 2. All-zero is a beginning. Thread:
 *  the owner's. */
static inline unsigned mr_variant_spread(uint64_t *state)
{
    *state += UINT64_C(0x9e3779b97f4a7c15); /* 2^64 / golden ratio */
    return (unsigned)(((*state >> 32) * MR_VARIANT_BUCKETS) >> 32);
}

#endif
