/* Parts of a run, for confidence intervals. */
#ifndef MR_PERF_INTERVAL_H
#define MR_PERF_INTERVAL_H

#include "perf/perf.h"

/** Adds the latencies of a second. */
void perf_parts_add(struct mr_perf_result *r, const struct mr_hdr_histogram *second);

#endif
