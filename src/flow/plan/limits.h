/* How many requests a workflow takes at once, and how long one may take. */
#ifndef FLOW_LIMITS_H
#define FLOW_LIMITS_H

#include "base/buf.h"
#include "build.h"

/** Reads `admission` into the plan, if there is one. Errors: MR_E_INVALID with the field. Thread: loader. */
int plan_admission_read(struct plan_build *b);
/** Says in `out`, with the last node, if the time-outs of the nodes on some way through the graph are longer than its deadline_ms. */
void plan_deadline_check(const struct plan *p, struct mr_buf *out);

#endif
