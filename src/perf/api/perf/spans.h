/* Stretches of a run that were kept apart: what became of the requests that were due in them.
 *
 * A request belongs to the stretch in which it was due, whenever it was answered, so that one that a stretch
 * made slow counts there and nowhere else. */
#ifndef MR_PERF_SPANS_H
#define MR_PERF_SPANS_H

#include "perf/perf.h"

struct mr_perf_span {
    int64_t begin_ns; /* as mr_now_ns */
    int64_t end_ns;   /* not in it */
};

/** Samples in the order in which they were due, and the times in which nothing was answered. */
struct mr_perf_log {
    const struct mr_perf_sample *samples; /* borrowed of the result, which they are sorted in */
    size_t count;
    MR_VEC(struct mr_perf_span)
    stalls; /* somebody waited and nobody was answered, one after the other */
};

/** Sorts the samples of `r`, which has to outlive the log. Release with mr_perf_log_fini. */
void mr_perf_log_init(struct mr_perf_log *log, struct mr_perf_result *r);
void mr_perf_log_fini(struct mr_perf_log *log);

/** Adds what was due in a span to `into`: latency, sent, answered, failed, late, seconds. For confidence
 *  intervals each call is one part: what is near each other in time. */
void mr_perf_log_add(const struct mr_perf_log *log, struct mr_perf_span span,
                     struct mr_perf_result *into);
/** The longest time within a span in which somebody waited and nobody was answered. */
int64_t mr_perf_log_stall(const struct mr_perf_log *log, struct mr_perf_span span);
/** Latencies above a limit. */
uint64_t mr_perf_above(const struct mr_perf_result *r, uint64_t limit_ns);

/** By how much a percentile is higher than another one, and where that lies with 95 % confidence. */
struct mr_perf_added {
    double ns;
    double low_ns;  /* -INFINITY: the samples do not say */
    double high_ns; /* INFINITY: they do not say */
};
/** From the two confidence intervals, as of independent estimates. */
void mr_perf_get_added(const struct mr_perf_result *r, const struct mr_perf_result *quiet, double q,
                       struct mr_perf_added *out);

#endif
