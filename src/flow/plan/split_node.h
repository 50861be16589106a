/* Nodes whose model is one of several variants. */
#ifndef FLOW_SPLIT_NODE_H
#define FLOW_SPLIT_NODE_H

#include "plan.h"

/** Makes `node` a split: it has the model of the first variant, and a copy of it at the end of `p->nodes`, which has room, those of
 *  each other. Splits with the same key and salt share their bucket. Errors: MR_E_INVALID, MR_E_UNSUPPORTED, with node and variant;
 *  MR_E_NOMEM. Thread: loader. */
int plan_split_open(struct plan *p, uint32_t node, const Millrace__WorkflowScheduling__Split *c,
                    struct mr_err *err);
/** The version of a node's model as text; ptr NULL: no memory. */
mr_str plan_version_text(struct plan *p, int64_t version);

#endif
