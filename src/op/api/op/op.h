/* Ops of workflows, seen from the host (the ABI is include/millrace/op.h): finds them by name, creates one for a node of a workflow, and
 * runs it over tensors. What an op of a library says and makes is checked here. */
#ifndef MR_OP_OP_H
#define MR_OP_OP_H

#include "base/arena.h"
#include "base/err.h"
#include "base/pool.h"
#include "base/str.h"
#include "exec/exec.h"
#include "millrace/op.h"

/** The ops of a process. */
struct mr_ops;
/** One op of one node of a loaded workflow. */
struct mr_op;

/** The built-in ops, and those of every libmillrace_op_*.so in `dirs`. The libraries stay loaded until the process ends.
 *  Errors: MR_E_NOT_FOUND, MR_E_INVALID (a folder or library that cannot be read, of another ABI, an op of a name that is taken). */
int mr_ops_open(const char *const *dirs, size_t dir_count, struct mr_ops **out, struct mr_err *err);
/** All ops of nodes have been freed. *ops may be NULL. */
void mr_ops_close(struct mr_ops **ops);

/** Creates the op `name` for a node. `desc` is borrowed; its size need not be set. Thread: any.
 *  Errors: MR_E_NOT_FOUND (no such op; the message has near names), MR_E_INVALID (its own refusal, or a signature that breaks the
 *  rules), those of read_file. */
int mr_op_create(const struct mr_ops *ops, mr_str name, const struct mr_op_desc *desc,
                 struct mr_op **out, struct mr_err *err);
/** *op may be NULL. */
void mr_op_free(struct mr_op **op);
/** [desc->output_count] what it makes: types, ranks, dims; valid as long as the op. */
const struct mr_op_io *mr_op_outputs(const struct mr_op *op);
/** MR_OP_*. */
uint32_t mr_op_flags(const struct mr_op *op);
/** The counters of a node: *out_value of counter `index`, and its name; NULL past the last. Thread: any. */
const char *mr_op_counter(const struct mr_op *op, size_t index, uint64_t *out_value);

/** A run: everything is the caller's, and zeroed where not set. */
struct mr_op_call {
    const struct mr_tensor *inputs; /* dtype INVALID: absent (nullable inputs only) */
    /* of inputs; NULL entries: memory that lives as long as `arena` */
    struct mr_block *const *blocks;
    /* of inputs; 1: the block may be changed while it has one reference; NULL: none */
    const uint8_t *may_write;
    const uint8_t *wanted; /* of outputs */
    /* zeroed; filled on success, each with one reference to its block */
    struct mr_exec_output *outputs;
    struct mr_arena *arena;                   /* shapes, and outputs of up to 8 KiB */
    const struct mr_block_provider *provider; /* of outputs, as in mr_exec_outputs; may be NULL */
    /** (may be NULL) True: the run should end early. */
    bool (*is_cancelled)(void *ctx);
    void *ctx;
};

/** Runs an op. Within a turn it may run others in between (MR_OP_LONG). Thread: any, several at once.
 *  Errors: the op's own; MR_E_INTERNAL when it breaks the contract; MR_E_EXHAUSTED, MR_E_CANCELLED. No output is set then. */
int mr_op_run(const struct mr_op *op, const struct mr_op_call *call, struct mr_err *err);

#endif
