/* Nodes that are operators: created from the types of what they read, and the proof of what they may change in place. */
#ifndef FLOW_OP_NODE_H
#define FLOW_OP_NODE_H

#include "op/op.h"
#include "plan.h"

/** What the configuration says of the node, besides its maps. */
struct plan_op_desc {
    mr_str op; /* its name */
    const struct mr_setting *parameters;
    uint32_t parameter_count;
    char *const *read_write; /* names of inputs */
    size_t read_write_count;
    const char *model_dir, *version_dir;
};

/** Makes `node` an operator: types: [p->tensor_count]; those of the node's inputs are known, those of its outputs are written.
 *  The plan frees the operator. Errors: MR_E_INVALID, naming workflow and node; those of mr_op_create; MR_E_NOMEM. */
int plan_op_open(struct plan *p, uint32_t node, const struct mr_ops *ops,
                 const struct plan_op_desc *d, struct plan_type *types, struct mr_err *err);
/** MR_OK if nothing can read the tensor of input `input` while or after the node changes it. The plan is linked.
 *  Errors: MR_E_INVALID, naming node, tensor and who else reads it; MR_E_NOMEM. */
int plan_op_may_write(const struct plan *p, uint32_t node, uint32_t input, struct mr_err *err);

#endif
