/* Nodes whose calls are made twice. */
#ifndef FLOW_TWICE_H
#define FLOW_TWICE_H

#include "build.h"

/** Reads `hedge` of node n, which has one, into the plan. Errors: MR_E_INVALID with node and field. Thread: loader. */
int plan_hedge_read(struct plan_build *b, struct plan_node *node, const node_config *n);
/** Reads `shadow` of node n, which has one, into the plan. Its model need not exist. Errors: MR_E_INVALID, MR_E_UNSUPPORTED, with node
 *  and field; MR_E_NOMEM. Thread: loader. */
int plan_shadow_read(struct plan_build *b, struct plan_node *node, const node_config *n);

#endif
