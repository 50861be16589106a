/* What the parts of the compiler of workflows share: the plan that is being made, and what it is made from. Thread: loader. */
#ifndef FLOW_BUILD_H
#define FLOW_BUILD_H

#include "plan.h"

typedef Millrace__WorkflowScheduling__Node node_config;
typedef Millrace__WorkflowScheduling__Switch switch_config;

struct plan_build {
    struct plan *p;
    const Inference__ModelConfig *c;
    const Millrace__WorkflowScheduling *w;
    struct mr_map names;  /* of nodes, to their number + 1 */
    struct mr_map others; /* names of switches and gathers */
    struct mr_err *err;
};

#define PLAN_BAD(b, ...) MR_FAIL((b)->err, MR_E_INVALID, __VA_ARGS__)

/** The node that `of` names in its `field`. Errors: MR_E_INVALID. */
int plan_build_node_of(struct plan_build *b, const char *of, const char *field, const char *name,
                       uint32_t *out);
/** Takes the name of a switch or gather, which `kind` says. Errors: MR_E_INVALID, a node or another one of them has it. */
int plan_build_name_take(struct plan_build *b, const char *kind, const char *name);
/** The model of node `of` or of what belongs to it. Errors: MR_E_INVALID, MR_E_NOMEM, naming the node. */
int plan_build_model(struct plan_build *b, mr_str of, const Millrace__WorkflowModel *m,
                     mr_str *out_model, mr_str *out_version);
/** The tensor of that name, or PLAN_NO_NODE. */
uint32_t plan_build_tensor(const struct plan_build *b, const char *name);
/** The node that a condition waits for because of an operand; others than nodes: none. */
uint32_t plan_build_operand(const struct plan *p, const struct mr_expr_operand *o);
bool plan_build_writes(const struct plan_node *node, uint32_t tensor);
/** Compiles the condition of node n, which is for a request or for each row. The types of the tensors are known. Errors:
 *  MR_E_INVALID, MR_E_UNSUPPORTED, naming the node. */
int plan_build_condition(struct plan_build *b, uint32_t n, const char *text, bool by_row);

#endif
