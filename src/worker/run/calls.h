/* Calls of the model to other models of the server, and their answers (ipc/call.h). One list for the process. */
#ifndef WORKER_CALLS_H
#define WORKER_CALLS_H

#include "ipc/call.h"
#include "plugin/plugin.h"

struct worker_calls;

/** Makes the services of backends use `submit`, which hands a call over, as mr_ipc_call_write and mr_shm_task_answer; its
 *  ctx belongs to the execution. `v` outlives the calls. */
typedef int worker_call_submit_fn(struct mr_execution *x, uint64_t number,
                                  const struct mr_call_args *args, struct mr_err *err);
void worker_calls_start(struct mr_shm_view *v, worker_call_submit_fn *submit);
/** Handles MR_FRAME_ANSWER. Errors: MR_E_INVALID. Thread: the one that reads frames. */
int worker_calls_on_answer(mr_bytes body, struct mr_err *err);
/** Ends all calls: waiting threads get MR_E_CLOSED. */
void worker_calls_stop(void);

#endif
