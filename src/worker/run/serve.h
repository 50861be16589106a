/* The executing thread of a worker: takes the oldest slot, runs its execution, and replies. */
#ifndef MR_WORKER_SERVE_H
#define MR_WORKER_SERVE_H

#include "exec/exec.h"
#include "shm/worker.h"

struct worker_serve;

/* All borrowed. */
struct worker_serve *worker_serve_new(struct mr_shm_view *v, struct mr_executor *e, void *instance);
/* Runs a copy of mr_ipc_exec_keep and drops its result. Before worker_serve_start. */
void worker_serve_warm(struct worker_serve *s, uint64_t offset, uint64_t bytes);
/* Starts the thread. Errors: MR_E_EXHAUSTED. */
int worker_serve_start(struct worker_serve *s, struct mr_err *err);
/* Cancels the execution: notifies the backend. Thread: any but the executing one. */
void worker_serve_cancel(struct worker_serve *s, uint32_t slot, uint64_t generation);
/* worker_call_submit_fn, for an execution of this thread. */
int worker_serve_call(struct mr_execution *x, uint64_t number, const struct mr_call_args *args,
                      struct mr_err *err);
/* Takes no more slots, waits for the running execution, and ends the thread. */
void worker_serve_stop(struct worker_serve **s);

#endif
