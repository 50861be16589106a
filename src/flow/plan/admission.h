/* How many requests a workflow takes at once. */
#ifndef FLOW_ADMISSION_H
#define FLOW_ADMISSION_H

#include "build.h"

/** Reads `admission` into the plan, if there is one. Errors: MR_E_INVALID with the field. Thread: loader. */
int plan_admission_read(struct plan_build *b);

#endif
