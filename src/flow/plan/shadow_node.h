/* Nodes whose requests are copied. */
#ifndef FLOW_SHADOW_NODE_H
#define FLOW_SHADOW_NODE_H

#include "build.h"

/** Reads `shadow` of node n, which has one, into the plan. Its model need not exist. Errors: MR_E_INVALID, MR_E_UNSUPPORTED, with node
 *  and field; MR_E_NOMEM. Thread: loader. */
int plan_shadow_read(struct plan_build *b, struct plan_node *node, const node_config *n);

#endif
