/* Conditions in plans. */
#ifndef FLOW_CONDITION_H
#define FLOW_CONDITION_H

#include "build.h"

/** Compiles the condition of node n. The types of the tensors are known. Errors: MR_E_INVALID, MR_E_UNSUPPORTED, naming the
 *  node. */
int plan_condition_compile(struct plan_build *b, uint32_t n, const char *text);

#endif
