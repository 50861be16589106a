/* Calls of the model to other models of the server, and their answers (ipc/call.h). One list for the process. */
#ifndef WORKER_CALLS_H
#define WORKER_CALLS_H

#include "ipc/call.h"
#include "ipc/frame.h"
#include "plugin/plugin.h"

/** Makes the services of backends use `submit`, which hands a call over, as mr_ipc_call_write and mr_shm_task_answer; its
 *  ctx belongs to the execution. `v` outlives the calls. */
typedef int worker_call_submit_fn(struct mr_execution *x, uint64_t number,
                                  const struct mr_call_args *args, struct mr_err *err);
/** Handles the frames that have arrived; waits for the first one for at most timeout_ns, 0 = without limit. Serves calls of
 *  the thread that reads frames, which also loads and closes the model. Errors: any; no frame arrives afterwards. */
typedef int worker_pump_fn(int64_t timeout_ns, struct mr_err *err);
/** Thread: the one that reads frames. */
void worker_calls_start(struct mr_shm_view *v, worker_call_submit_fn *submit, worker_pump_fn *pump);
/** Handles MR_FRAME_ANSWER. Errors: MR_E_INVALID. Thread: the one that reads frames. */
int worker_calls_on_answer(mr_bytes body, struct mr_err *err);
/** Ends the waits of other threads with MR_E_CLOSED. */
void worker_calls_stop(void);

/** Sends a frame to the server, after those of other threads. Errors: as mr_frame_send. Thread: any. */
int worker_frame_send(enum mr_frame_type type, mr_bytes body, struct mr_err *err);

/* ---- for services that are answered like a call ---- */

int worker_call_new(struct mr_model_call **out, uint64_t *out_number, struct mr_err *err);
int worker_call_next(struct mr_model_call *call, int64_t timeout_ns, struct mr_call_answer **out,
                     struct mr_err *err);
int worker_call_notify(struct mr_model_call *call, int fd, uint64_t token, struct mr_err *err);
void worker_call_answer_drop(struct mr_call_answer **answer);
void worker_call_end(struct mr_model_call **call);
/** Sends a frame with what asks. On failure the call is freed and set to NULL. */
int worker_call_send(struct mr_model_call **call, enum mr_frame_type type,
                     const struct mr_buf *body, struct mr_err *err);

#endif
