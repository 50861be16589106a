/* A request of a model in a worker to another model, and the answers.
 *
 * The request takes the path of an answer: the worker posts it in the slot that it runs, or writes a long one into the room
 * and the extents of the slot, and waits until the server has taken it. Answers come as mail; a frame releases what the
 * worker has not copied. Both sides number the calls of a worker. */
#ifndef MR_IPC_CALL_H
#define MR_IPC_CALL_H

#include "base/arena.h"
#include "exec/exec.h"
#include "ipc/pack.h"
#include "millrace/backend.h"
#include "shm/plane.h"
#include "shm/worker.h"

/** A call as the server has read it. */
struct mr_ipc_call {
    uint64_t number;          /* also of a call that could not be read */
    struct mr_call_args args; /* in the arena, but for large tensors */
    /** [args.input_count] of large tensors, otherwise NULL; the reader's. */
    struct mr_block **blocks;
};

/** Thread: worker, the holder of the room. Copies the inputs to the provider's memory. Errors: MR_E_EXHAUSTED (no shared
 *  memory now). */
int mr_ipc_call_write(const struct mr_shm_task *t, uint64_t nonce,
                      const struct mr_block_provider *provider, uint64_t number,
                      const struct mr_call_args *args, struct mr_err *err);
/** True if the answer that a worker hands over is a call. Thread: the slot's owner, as below. */
bool mr_ipc_is_call(const struct mr_shm_slot *s, uint64_t nonce);
/** Strings and tensors of up to 8 KiB are copied into the arena; blocks are references. Errors: MR_E_INTERNAL (the
 *  worker's data are malformed), MR_E_EXHAUSTED. The caller owns the blocks in both cases. */
int mr_ipc_call_read(struct mr_shm *p, const struct mr_shm_slot *s, struct mr_arena *arena,
                     struct mr_ipc_call *out, struct mr_err *err);
void mr_ipc_call_drop(struct mr_ipc_call *c);

/** An answer; body of MR_FRAME_ANSWER. Texts are borrowed. */
struct mr_ipc_call_answer {
    uint64_t call, number; /* of the call, and of the answer within it */
    int32_t status;
    bool is_last;
    const char *message;
    int64_t value; /* of answers to control requests and metrics */
    uint32_t count;
    const char *const *names;
    struct mr_answer_parameters parameters;
};
void mr_ipc_call_answer_pack(struct mr_buf *b, const struct mr_ipc_call_answer *a);
/** Copies into the arena. Errors: MR_E_INVALID. */
int mr_ipc_call_answer_unpack(mr_bytes data, struct mr_arena *arena, struct mr_ipc_call_answer *out,
                              struct mr_err *err);

/** Writes an answer into a block that the worker can read. outputs: an execution whose inputs they are; NULL: none. Errors:
 *  MR_E_EXHAUSTED. */
int mr_ipc_call_mail_write(struct mr_shm *p, const struct mr_ipc_call_answer *a,
                           const struct mr_exec *outputs, struct mr_block **out,
                           struct mr_err *err);
/** Whether the worker reads that answer in place: then it says when it needs it no more, and the block stays until then. */
bool mr_ipc_call_mail_is_kept(const struct mr_block *b, bool is_last);
/** Reads an answer at that offset: short ones are copied. *exec: the outputs as inputs. Thread: worker. Errors: MR_E_NOMEM,
 *  MR_E_INVALID. */
int mr_ipc_call_mail_read(const struct mr_shm_view *v, uint64_t offset, struct mr_arena *arena,
                          struct mr_ipc_call_answer *out, struct mr_exec *exec, bool *out_is_kept,
                          struct mr_err *err);

#endif
