/* Failures, by kind. */
#ifndef MR_PERF_ERRORS_H
#define MR_PERF_ERRORS_H

#include "perf/perf.h"

/** Adds n failures of a kind; `text` is kept if they are the first. */
void perf_errors_add(struct mr_perf_errors *e, int status, int http, mr_str text, uint64_t n);
void perf_errors_merge(struct mr_perf_errors *into, const struct mr_perf_errors *from);

#endif
