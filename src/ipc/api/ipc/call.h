/* A request of a model in a worker to another model, and the answers.
 *
 * The request takes the path of an answer: the worker writes it into the room and the extents of the slot that it runs,
 * and waits until the server has taken it. Answers lie in the heap of inputs; one frame gives their place, and another one
 * releases them. Both sides number the calls of a worker. */
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
    uint64_t number;
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

/** Body of MR_FRAME_ANSWER. Texts are borrowed. */
struct mr_ipc_call_answer {
    uint64_t call, number; /* of the call, and of the answer within it */
    int32_t status;
    bool is_last;
    const char *message;
    int64_t value; /* of answers to control requests and metrics */
    uint32_t count;
    const char *const *names;
    struct mr_answer_parameters parameters;
    uint64_t offset,
        bytes; /* for mr_ipc_exec_read_kept, whose inputs are the outputs; 0 bytes: none */
};
void mr_ipc_call_answer_pack(struct mr_buf *b, const struct mr_ipc_call_answer *a);
/** Copies into the arena. Errors: MR_E_INVALID. */
int mr_ipc_call_answer_unpack(mr_bytes data, struct mr_arena *arena, struct mr_ipc_call_answer *out,
                              struct mr_err *err);

#endif
