/* The queue of loads and unloads, one at a time per model, and the loader threads. */
#ifndef MR_MODEL_JOBS_H
#define MR_MODEL_JOBS_H

#include "model/records/job.h"

int mr_jobs_start(struct mr_models *m, struct mr_err *err);
/** Whether the loads of the start are being queued: those of graphs wait until all are. Thread: boot. */
void mr_jobs_submitting(struct mr_models *m, bool is_on);
/** A graph has been opened: what it asks may be unloaded again. Thread: loader. */
void mr_job_opened(struct mr_models *m, struct mr_job *job);
/** Threads end when the queue is empty. */
void mr_jobs_join(struct mr_models *m);
/** Queues a job for the model of that name; takes the job. Thread: any. */
void mr_job_submit(struct mr_models *m, struct mr_job *job, mr_str name);
/** Waits until no job is open, or until the deadline (monotonic). False: the deadline has passed. */
bool mr_jobs_wait(struct mr_models *m, int64_t deadline_ns);

#endif
