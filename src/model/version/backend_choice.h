/* Which backends a load request may choose. Thread: loader. */
#ifndef MR_MODEL_BACKEND_CHOICE_H
#define MR_MODEL_BACKEND_CHOICE_H

#include "model/records/state.h"

/** MR_OK if a load request may choose this backend by its configuration or files. Errors: MR_E_FORBIDDEN. */
int mr_backend_may_choose(struct mr_models *m, const char *name, struct mr_err *err);

#endif
