/* The operators of a workflow: opened one after the other, each when the types of what it reads are known. */
#ifndef FLOW_OPS_H
#define FLOW_OPS_H

#include "op_node.h"

/** Where operators come from, and the folders of the model. */
struct plan_ops_from {
    const struct mr_ops *ops;
    const char *model_dir, *version_dir;
};

/** Opens the operators of `p`, which is linked and whose tensors have the types of their models (plan_check_members). The types
 *  of what operators make are noted in `p`, and must fit with what uses it. Errors: those of plan_op_open; MR_E_INVALID with node
 *  and tensor. Thread: loader. */
int plan_ops_open(struct plan *p, const Inference__ModelConfig *c, const struct plan_ops_from *from,
                  struct mr_err *err);
/** MR_OK if no condition reads a tensor that an operator may change in place. Errors: MR_E_INVALID. */
int plan_ops_check_when(const struct plan *p, struct mr_err *err);

#endif
