/* Switches: nodes of which one of several branches runs. */
#ifndef FLOW_SWITCH_NODE_H
#define FLOW_SWITCH_NODE_H

#include "build.h"

/** Makes a node of each switch; its branches become spares. Errors: MR_E_INVALID, MR_E_UNSUPPORTED, naming switch and node. */
int plan_switches_make(struct plan_build *b);
/** A switch waits for all that its branches read. */
int plan_switches_order(struct plan_build *b);
/** The conditions of the branches, for what they read as well. The types of the tensors are known. */
int plan_switches_link(struct plan_build *b);

#endif
