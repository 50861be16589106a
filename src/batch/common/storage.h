/* S3 as a job uses it. */
#ifndef MR_BATCH_STORAGE_H
#define MR_BATCH_STORAGE_H

#include "s3/s3.h"

struct job;

/** As the job uses it: its patience is the job's, its troubles are logged, and it ends when the job is stopped. */
struct mr_s3_options storage_options(struct job *j);
/** True if the job (a struct mr_batch) was asked to end; for code that waits. Any thread. */
bool batch_has_stop(void *batch);

#endif
