/* The executing thread of a worker: takes the oldest slot, runs it, answers. */
#ifndef MR_WORKER_SERVE_H
#define MR_WORKER_SERVE_H

#include "exec/exec.h"
#include "shm/worker.h"

struct worker_serve;

/* Starts the thread. All borrowed. Errors: MR_E_NOMEM, MR_E_EXHAUSTED. */
int worker_serve_start(struct worker_serve **out, struct mr_shm_view *v, struct mr_executor *e,
                       void *instance, struct mr_err *err);
/* Nobody waits for that execution: tells the backend. Thread: any but the executing one. */
void worker_serve_cancel(struct worker_serve *s, uint32_t slot, uint64_t generation);
/* Takes no more, waits for what runs, ends the thread. */
void worker_serve_stop(struct worker_serve **s);

#endif
