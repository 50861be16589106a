/* The executing thread of a worker: runs the warm-ups, then takes the oldest slot, runs its execution, and replies. */
#ifndef MR_WORKER_SERVE_H
#define MR_WORKER_SERVE_H

#include "exec/exec.h"
#include "shm/worker.h"

struct worker_serve;

/* Where the input segment has a copy of an execution, from mr_ipc_exec_keep. */
struct worker_warmup {
    uint64_t offset, bytes;
};

/* All borrowed. */
struct worker_serve *worker_serve_new(struct mr_shm_view *v, struct mr_executor *e, void *instance);
/* Starts the thread, which runs the warm-ups, drops their results and sends MR_FRAME_WARMED. warmups: borrowed until
 * worker_serve_stop. Errors: MR_E_EXHAUSTED. */
int worker_serve_start(struct worker_serve *s, const struct worker_warmup *warmups, uint32_t count,
                       struct mr_err *err);
/* Lets the thread take slots, once it has run the warm-ups. */
void worker_serve_begin(struct worker_serve *s);
/* Cancels the execution: notifies the backend. Thread: any but the executing one. */
void worker_serve_cancel(struct worker_serve *s, uint32_t slot, uint64_t generation);
/* worker_call_submit_fn, for an execution of this thread. */
int worker_serve_call(struct mr_execution *x, uint64_t number, const struct mr_call_args *args,
                      struct mr_err *err);
/* Takes no more slots, waits for the running execution, and ends the thread. */
void worker_serve_stop(struct worker_serve **s);

#endif
