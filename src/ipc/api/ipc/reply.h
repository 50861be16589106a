/* The result of an execution: the worker writes it into the slot's room and extents, and the server reads it without
 * trusting it. */
#ifndef MR_IPC_REPLY_H
#define MR_IPC_REPLY_H

#include "exec/exec.h"
#include "shm/plane.h"
#include "shm/worker.h"

/** Bytes at the beginning of a room that belong to the reply. */
#define MR_IPC_REPLY_BYTES 640

/** The failure of a single request of the execution. */
struct mr_ipc_failure {
    uint32_t request;
    int32_t status;
    const char *message;
};

/** Writes the reply. run_ns: duration of the execution. Outputs of `x` that were not made with `provider` are copied to its
 *  memory. status, err: of the whole execution. It fails if the outputs do not fit. Thread: worker. */
void mr_ipc_reply_write(const struct mr_shm_task *t, uint64_t nonce,
                        const struct mr_block_provider *provider, const struct mr_execution *x,
                        const struct mr_ipc_failure *failures, uint32_t failure_count,
                        int64_t run_ns, int status, const struct mr_err *err);
/** Writes one of several answers to a request. Its outputs are copied. Thread: worker, one at a time for a slot. Errors:
 *  MR_E_EXHAUSTED (no memory of the provider). */
int mr_ipc_answer_write(const struct mr_shm_task *t, uint64_t nonce,
                        const struct mr_block_provider *provider, const struct mr_execution *x,
                        const struct mr_response *q, struct mr_err *err);
/** Reads one of several answers, the letter of the slot, for mr_execution_respond. Large outputs keep their extents alive. *out_copied: bytes.
 *  Thread: the slot's owner. Errors: MR_E_INTERNAL (the worker's data are malformed), MR_E_INVALID (x has one answer, or
 *  fewer requests), MR_E_EXHAUSTED. */
int mr_ipc_answer_read(struct mr_shm *p, const struct mr_shm_slot *s, uint64_t nonce,
                       struct mr_execution *x, struct mr_response **out, uint64_t *out_copied,
                       struct mr_err *err);

/** Sets the outputs of x, fails single requests of it, and returns the status of the whole execution. Large outputs keep
 *  their extents alive; small ones and strings are copied. *out_run_ns: the duration that the worker reports.
 *  *out_copied: bytes. Thread: the slot's owner. Errors: the worker's; MR_E_INTERNAL (the worker's data are malformed). */
int mr_ipc_reply_read(struct mr_shm *p, const struct mr_shm_slot *s, uint64_t nonce,
                      struct mr_execution *x, uint64_t *out_copied, int64_t *out_run_ns,
                      struct mr_err *err);

#endif
