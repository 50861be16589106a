/* Metrics of a job. */
#ifndef MR_BATCH_METRICS_H
#define MR_BATCH_METRICS_H

#include "batch/batch.h"

struct job;

/** Prometheus text. */
void metrics_put(struct mr_buf *b, const struct job *j, const struct mr_batch_view *v);

#endif
