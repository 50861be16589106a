/* What came of an execution, on its way back: written by the worker into the slot's room and extents, read by the
 * server, which believes nothing of it. */
#ifndef MR_IPC_REPLY_H
#define MR_IPC_REPLY_H

#include "exec/exec.h"
#include "shm/plane.h"
#include "shm/worker.h"

/** Bytes at the beginning of a room that belong to the reply. */
#define MR_IPC_REPLY_BYTES 640

/** A request of the execution that failed by itself. */
struct mr_ipc_failure {
    uint32_t request;
    int32_t status;
    const char *message;
};

/** Thread: worker. run_ns: what the execution took. Outputs of `x` that were not made with `provider` are copied to its memory. status, err: of the whole
 *  execution. What does not fit makes it a failure. */
void mr_ipc_reply_write(const struct mr_shm_task *t, uint64_t nonce,
                        const struct mr_block_provider *provider, const struct mr_execution *x,
                        const struct mr_ipc_failure *failures, uint32_t failure_count,
                        int64_t run_ns, int status, const struct mr_err *err);
/** Thread: worker, one at a time for a slot. One of several answers to a request. Its outputs are copied. Errors:
 *  MR_E_EXHAUSTED (no shared memory now). */
int mr_ipc_answer_write(const struct mr_shm_task *t, uint64_t nonce,
                        const struct mr_block_provider *provider, const struct mr_execution *x,
                        const struct mr_response *q, struct mr_err *err);
/** Thread: the slot's owner. One of several answers, for mr_execution_respond. Large outputs keep their extents alive. Errors:
 *  MR_E_INTERNAL (what the worker wrote breaks a rule), MR_E_INVALID (x has one answer, or not so many requests),
 *  MR_E_EXHAUSTED. *out_copied: bytes. */
int mr_ipc_answer_read(struct mr_shm *p, const struct mr_shm_slot *s, uint64_t nonce,
                       struct mr_execution *x, struct mr_response **out, uint64_t *out_copied,
                       struct mr_err *err);

/** Thread: the slot's owner. Sets the outputs of x, fails single requests of it, and returns the status of the whole.
 *  Large outputs keep their extents alive, those of strings and small ones are copied. *out_run_ns: its word for the time that it took. Errors: the worker's;
 *  MR_E_INTERNAL (what it wrote breaks a rule). *out_copied: bytes. */
int mr_ipc_reply_read(struct mr_shm *p, const struct mr_shm_slot *s, uint64_t nonce,
                      struct mr_execution *x, uint64_t *out_copied, int64_t *out_run_ns,
                      struct mr_err *err);

#endif
