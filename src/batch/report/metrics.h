/* Metrics of a job. */
#ifndef MR_BATCH_METRICS_H
#define MR_BATCH_METRICS_H

#include "batch/batch.h"

struct job_parts;

/** Prometheus text. */
void metrics_put(struct mr_buf *b, const struct job_parts *parts, const struct mr_batch_view *v);

#endif
