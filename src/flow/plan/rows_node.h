/* Nodes that run for rows, switches that divide rows, and gathers: what the configuration says of them. */
#ifndef FLOW_ROWS_NODE_H
#define FLOW_ROWS_NODE_H

#include "build.h"
#include "sched/sched.h"

#define PLAN_FOREACH_MAX 1048576u
/** Most rows that a switch divides. */
#define PLAN_SWITCH_ROWS_MAX 65536u

/** Reads `foreach` of node `node`, whose ports are there. Errors: MR_E_INVALID, naming node and tensor. */
int plan_foreach_read(struct plan_build *b, struct plan_node *node, const node_config *n);
/** Makes `branch` a node that runs for rows of the switch's tensors. Errors: the same. */
int plan_rows_branch(struct plan_build *b, const switch_config *s, uint32_t branch);
/** The ports of a switch that divides rows. Errors: the same. */
int plan_rows_switch(struct plan_build *b, const switch_config *s, struct plan_node *node);
/** Makes a node of each `gather`. Errors: the same. */
int plan_gathers_make(struct plan_build *b);

/* ---- when the models are known ---- */
/** Finds out how the model of node n, which runs for rows, takes and gives them. `made` of the tensors that are known already is
 *  used. The node's inputs and outputs exist. Errors: MR_E_INVALID, naming node and tensor; MR_E_NOMEM. */
int plan_rows_settle(struct plan *p, uint32_t n, const struct mr_version *v, struct mr_err *err);
/** The same of a split, whose variants are settled: they take rows alike. Errors: MR_E_INVALID. */
int plan_rows_settle_split(struct plan *p, uint32_t n, struct mr_err *err);
/** Before and after the operator of node n, which runs for rows, is made: `types` of what it divides are those that it sees, and are
 *  themselves again (`kept`: [input_count] room); those of its outputs become those of the whole tensors, and its rows are settled. Errors:
 *  MR_E_INVALID, naming node and tensor; MR_E_NOMEM. */
int plan_rows_op_inputs(struct plan *p, uint32_t n, struct plan_type *types, struct plan_type *kept,
                        struct mr_err *err);
int plan_rows_op_outputs(struct plan *p, uint32_t n, struct plan_type *types,
                         const struct plan_type *kept, struct mr_err *err);
/** What the whole tensor is of which `io`, an input or output of the node by index, is the model's part: dims without batch
 *  dimension if is_batching, of the plan's arena. Errors: MR_E_INVALID, MR_E_NOMEM. */
int plan_rows_dims(struct plan *p, const struct plan_node *node, bool is_output, uint32_t index,
                   bool *is_batching, const struct mr_model_io *io, int32_t *out_rank,
                   const int64_t **out_dims, struct mr_err *err);

#endif
