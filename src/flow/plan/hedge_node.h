/* Nodes with a second call. */
#ifndef FLOW_HEDGE_NODE_H
#define FLOW_HEDGE_NODE_H

#include "build.h"

/** Reads `hedge` of node n, which has one, into the plan. Errors: MR_E_INVALID with node and field. Thread: loader. */
int plan_hedge_read(struct plan_build *b, struct plan_node *node, const node_config *n);

#endif
