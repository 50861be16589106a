/* One walk over a plan: which nodes are ready, what the tensors hold, how it ends. Knows neither models nor threads: nodes
 * are started by the caller's function, and the caller reports their ends.
 *
 *   run_begin; run_give for each input; run_go
 *   each time a node that was pending has ended: run_set for its outputs, run_ended, run_go
 *   run_is_over: run_take the outputs; run_fini
 *
 * One thread at a time. */
#ifndef FLOW_RUN_H
#define FLOW_RUN_H

#include "base/pool.h"
#include "flow/plan/plan.h"
#include "millrace/backend.h"

struct run;

enum run_state {
    RUN_OPEN = 0,
    RUN_VALUE,
    RUN_NULL,
    RUN_FILLED, /* null for nodes, and the workflow's default for an answer */
};

/** What a tensor holds. The shape, and data without a block, live as long as the run. */
struct run_value {
    enum run_state state;
    struct mr_tensor tensor;
    struct mr_block *block; /* of the data, referenced; NULL: they are elsewhere */
};

/** How a node of a workflow ended. */
enum run_outcome { RUN_RAN = 0, RUN_SKIPPED, RUN_FAILED, RUN_DEFAULTED, RUN_FELL_BACK };

struct run_node {
    uint32_t waits; /* nodes that have to end first */
    bool is_needed;
    bool is_ended;
    uint8_t outcome;   /* enum run_outcome */
    uint32_t for_node; /* of a spare: the node + 1 that it runs instead of */
};

/** Starts a node whose inputs are there: MR_OK: it has ended, its outputs are set; MR_PENDING: run_ended is called later;
 *  negative: it has failed. */
typedef int(run_start_fn)(struct run *r, uint32_t node, struct mr_err *err);
/** Whether the condition of a node holds: 1, 0, or a failure. */
typedef int(run_when_fn)(struct run *r, uint32_t node, struct mr_err *err);
/** Sets tensor `v->tensor` to the value. */
typedef int(run_value_fn)(struct run *r, const struct plan_value *v, struct mr_err *err);
/** The request was cancelled: nothing stands in for a node that fails. */
typedef bool(run_is_cancelled_fn)(const struct run *r);

struct run_ops {
    run_start_fn *start;
    run_when_fn *when;                 /* of workflows */
    run_value_fn *value;               /* of workflows */
    run_is_cancelled_fn *is_cancelled; /* NULL: it never is */
};

struct run {
    const struct plan *plan;
    const struct run_ops *ops;
    struct run_value *values; /* [plan->tensor_count] */
    struct run_node *nodes;   /* [plan->node_count] */
    uint32_t *ready;          /* [plan->node_count] as a stack */
    uint32_t ready_count;
    uint32_t pending;    /* nodes that were started and have not ended */
    uint32_t odd_count;  /* nodes whose outcome is not RUN_RAN */
    uint64_t made_bytes; /* of tensors in blocks that were set */
    bool is_strict;      /* nodes that fail fail the run, whatever their policy */
    int status;          /* the first failure */
    struct mr_err err;
};

/** wanted: [plan->output_count], NULL = all outputs. Takes memory from the arena, which outlives the run. Errors:
 *  MR_E_EXHAUSTED. */
int run_begin(struct run *r, const struct plan *p, const uint8_t *wanted, const struct run_ops *ops,
              struct mr_arena *arena, struct mr_err *err);
/** Sets a tensor, before the node that writes it ends. t NULL: it has no value. Takes a reference to `block`, which may be
 *  NULL. */
void run_set(struct run *r, uint32_t tensor, const struct mr_tensor *t, struct mr_block *block);
/** A pending node has ended. `rc` negative: as `err` says. */
void run_ended(struct run *r, uint32_t node, int rc, const struct mr_err *err);
/** A node did not simply run, as the caller found. */
void run_note(struct run *r, uint32_t node, enum run_outcome outcome);
/** A pending node goes on and has given an answer, which is set: what waits for it may run. */
void run_answered(struct run *r, uint32_t node);
/** It has no further answer. `rc` negative: the run fails as `err` says, whatever the node's policy. */
void run_over(struct run *r, uint32_t node, int rc, const struct mr_err *err);
/** marks: [node_count] gets 1 for what follows the node, and for the fallbacks and branches of that. Nothing is ready. */
void run_marks(const struct run *r, uint32_t node, uint8_t *marks);
/** Undoes run_answered and all that has run since, which is marked; nothing else is pending or ready. */
void run_rewind(struct run *r, uint32_t node, const uint8_t *marks);
/** Starts what is ready, until nothing is. */
void run_go(struct run *r);
/** A failure now is that of the run, whatever a node's policy is. */
static inline bool run_has_no_policy(const struct run *r)
{
    return r->is_strict || (r->ops->is_cancelled && r->ops->is_cancelled(r));
}
/** Nothing runs, and nothing can be started. */
static inline bool run_is_over(const struct run *r)
{
    return r->pending == 0 && r->ready_count == 0;
}
/** No further node is started; the run fails, unless it has. */
void run_fail(struct run *r, int rc, const struct mr_err *err);
/** Gives tensors that are null the defaults of the workflow, for an answer: for nodes they stay null. */
int run_defaults(struct run *r, struct mr_err *err);
/** Releases the values. */
void run_fini(struct run *r);

#endif
