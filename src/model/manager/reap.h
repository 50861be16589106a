/* The thread that closes retired versions once they are unused. */
#ifndef MR_MODEL_REAP_H
#define MR_MODEL_REAP_H

#include "model/records/state.h"

int mr_reaper_start(struct mr_models *m, struct mr_err *err);
void mr_reaper_join(struct mr_models *m);
void mr_retired_free(struct mr_model_retired *list);

#endif
