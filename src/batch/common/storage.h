/* S3 as a job uses it. */
#ifndef MR_BATCH_STORAGE_H
#define MR_BATCH_STORAGE_H

#include "s3/s3.h"

struct job_state;
struct mr_batch_options;

/** As the job uses it: its patience is the job's, its troubles are logged, and it ends when the job is stopped. */
struct mr_s3_options storage_options(const struct mr_batch_options *o, struct job_state *s);
/** What blocks of objects take beside the memory of rows and answers: those that are read, and those that are written. */
uint64_t storage_bytes(const struct mr_batch_options *o);
/** True if the job was asked to end; for code that waits. Its context is the struct job_state. Any thread. */
bool batch_has_stop(void *state);

#endif
