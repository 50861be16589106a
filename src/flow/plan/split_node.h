/* Nodes whose model is one of several variants. */
#ifndef FLOW_SPLIT_NODE_H
#define FLOW_SPLIT_NODE_H

#include "plan.h"

/** Makes `node` a split: it has the model of the first variant, and a copy of it at the end of `p->nodes`, which has room, those of
 *  each other. Splits with the same key and salt share their bucket. Errors: MR_E_INVALID, MR_E_UNSUPPORTED, with node and variant;
 *  MR_E_NOMEM. Thread: loader. */
int plan_split_open(struct plan *p, uint32_t node, const Millrace__WorkflowScheduling__Split *c,
                    struct mr_err *err);
/** The name and version by which this server has the model that `m` names, which may be that of another server. */
int plan_model_name(struct plan *p, const Millrace__WorkflowModel *m, mr_str *out_model,
                    mr_str *out_version, struct mr_err *err);

#endif
