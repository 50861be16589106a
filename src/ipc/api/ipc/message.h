/* An execution on its way to a worker: written by the server into the slot's message, read by the worker in place.
 *
 * Tensors that lie in the heaps of inputs and bodies are referred to; all others are copied after the message, which
 * goes to the heap of inputs itself when it is too long for the slot. */
#ifndef MR_IPC_MESSAGE_H
#define MR_IPC_MESSAGE_H

#include "base/arena.h"
#include "millrace/backend.h"
#include "shm/plane.h"
#include "shm/worker.h"

/** Writes the execution. nonce: is returned with the reply. *out_bytes: for mr_shm_submit. *out_block: has to live until
 *  the slot is given back; NULL: none. Returns the number of copied tensor bytes. Thread: the slot's owner. Errors:
 *  MR_E_EXHAUSTED (no shared memory now), retryable. */
int64_t mr_ipc_exec_write(struct mr_shm *p, struct mr_shm_slot *s, const struct mr_exec *exec,
                          uint64_t nonce, size_t *out_bytes, struct mr_block **out_block,
                          struct mr_err *err);
/** Copies an execution to shared memory, for mr_ipc_exec_read_kept; the copy lives as long as the block. Errors:
 *  MR_E_EXHAUSTED. */
int mr_ipc_exec_keep(struct mr_shm *p, const struct mr_exec *exec, struct mr_block **out_block,
                     uint64_t *out_offset, uint64_t *out_bytes, struct mr_err *err);
/** The same into memory of the caller, of mr_ipc_exec_bytes, aligned to 64 bytes. */
size_t mr_ipc_exec_bytes(const struct mr_exec *exec);
void mr_ipc_exec_put(const struct mr_exec *exec, uint8_t *to, size_t bytes);
/** Reads the execution: the structs are in the arena and point into the message. Thread: worker. Errors: MR_E_INTERNAL
 *  (malformed), MR_E_NOMEM. */
int mr_ipc_exec_read(const struct mr_shm_view *v, const struct mr_shm_task *t,
                     struct mr_arena *arena, struct mr_exec *out, uint64_t *out_nonce,
                     struct mr_err *err);
int mr_ipc_exec_read_kept(const struct mr_shm_view *v, uint64_t offset, uint64_t bytes,
                          struct mr_arena *arena, struct mr_exec *out, struct mr_err *err);
/** base: a copy of mr_ipc_exec_put. */
int mr_ipc_exec_read_at(const struct mr_shm_view *v, const uint8_t *base, struct mr_arena *arena,
                        struct mr_exec *out, struct mr_err *err);

#endif
