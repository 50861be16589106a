/* What became of the requests of a variant: counters that each thread writes for itself, and their sums, whose differences
 * are windows of time. */
#ifndef MR_VARIANT_STATS_H
#define MR_VARIANT_STATS_H

#include "base/hist.h"

/** The counters of one thread for one variant; all-zero is a beginning. One writer, any readers. */
struct mr_variant_cell {
    _Atomic uint64_t count;         /* requests that ended, cancelled ones aside */
    _Atomic uint64_t errors;        /* of these, without an answer */
    _Atomic uint64_t server_errors; /* of these, not because of what the client sent */
    _Atomic uint64_t cancelled;     /* the client went away; not in `count` */
    struct mr_hist latency_ns;      /* of the answered ones */
};

/** Counts a request that ended. status: MR_OK or the negative status that it failed with. Thread: the writer. */
void mr_variant_cell_add(struct mr_variant_cell *cell, int status, int64_t latency_ns);

/** The same for a cell that several threads write to. Thread: any. */
void mr_variant_cell_add_shared(struct mr_variant_cell *cell, int status, int64_t latency_ns);

/** Sums of cells at one time, or what was added between two times. */
struct mr_variant_sums {
    uint64_t count;
    uint64_t errors;
    uint64_t server_errors;
    uint64_t cancelled;
    uint64_t latency_sum_ns;
    uint64_t latency[MR_HIST_BUCKETS]; /* counts, by mr_hist_bucket */
};

/** io += cell. Thread: any. */
void mr_variant_sums_add(struct mr_variant_sums *io, const struct mr_variant_cell *cell);
/** out = now - before. May be the same object as one of them. */
void mr_variant_sums_since(struct mr_variant_sums *out, const struct mr_variant_sums *now,
                           const struct mr_variant_sums *before);
/** Milliseconds at quantile q (0 to 1) of the answered requests, interpolated within a bucket; NaN if there are none. */
double mr_variant_sums_quantile_ms(const struct mr_variant_sums *s, double q);
/** Mean in milliseconds; NaN if there are none. */
double mr_variant_sums_mean_ms(const struct mr_variant_sums *s);

#endif
