/* How a job is doing, as JSON. */
#ifndef MR_BATCH_STATUS_H
#define MR_BATCH_STATUS_H

#include "batch/batch.h"

struct job;

/** As JSON. */
void status_put(struct mr_buf *b, const struct job *j, const struct mr_batch_view *v);

#endif
