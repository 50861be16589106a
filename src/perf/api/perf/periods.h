/* Periods of a run: the results of the requests that were due in them.
 *
 * A request belongs to the period in which it was due, whenever it was answered, so that a request counts in the period
 * that made it slow. */
#ifndef MR_PERF_PERIODS_H
#define MR_PERF_PERIODS_H

#include "perf/perf.h"

struct mr_perf_period {
    int64_t begin_ns; /* as mr_now_ns */
    int64_t end_ns;   /* not in it */
};

/** Samples in the order in which they were due, and the times in which nothing was answered. */
struct mr_perf_log {
    const struct mr_perf_sample *samples; /* borrowed from the result, where they are sorted */
    size_t count;
    /** In order: times in which requests waited and none was answered. */
    MR_VEC(struct mr_perf_period) stalls;
};

/** Sorts the samples of `r`, which must outlive the log. Release with mr_perf_log_fini. */
void mr_perf_log_init(struct mr_perf_log *log, struct mr_perf_result *r);
void mr_perf_log_fini(struct mr_perf_log *log);

/** Adds what was due in a period to `into`: latency, sent, answered, failed, late, seconds. For confidence intervals
 *  each call is one part. */
void mr_perf_log_add(const struct mr_perf_log *log, struct mr_perf_period period,
                     struct mr_perf_result *into);
/** The longest time within a period in which requests waited and none was answered. */
int64_t mr_perf_log_stall(const struct mr_perf_log *log, struct mr_perf_period period);
/** Latencies above a limit. */
uint64_t mr_perf_above(const struct mr_perf_result *r, uint64_t limit_ns);

/** The difference between two percentiles, with its 95 % confidence interval. */
struct mr_perf_added {
    double ns;
    double low_ns;  /* -INFINITY: no bound from the samples */
    double high_ns; /* INFINITY: no bound */
};
/** From the two confidence intervals, as of independent estimates. */
void mr_perf_get_added(const struct mr_perf_result *r, const struct mr_perf_result *quiet, double q,
                       struct mr_perf_added *out);

#endif
