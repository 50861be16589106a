/* How a job is doing, as JSON. */
#ifndef MR_BATCH_STATUS_H
#define MR_BATCH_STATUS_H

#include "batch/batch.h"

struct job_parts;

/** As JSON. */
void status_put(struct mr_buf *b, const struct job_parts *parts, const struct mr_batch_view *v);

#endif
