/* Poll mode: which folders have changed and have come to rest. */
#ifndef MR_MODEL_WATCH_H
#define MR_MODEL_WATCH_H

#include "model/records/state.h"

/** Poll mode's first load: queue a job with `done` for each model, after the folders have come to
 *  rest. Errors: MR_E_IO, a repository that cannot be read. */
int mr_watch_first(struct mr_models *m, mr_models_done_fn *done, void *ctx, struct mr_err *err);
/** Starts the thread that follows the folders until mr_watch_stop. */
int mr_watch_start(struct mr_models *m, struct mr_err *err);
void mr_watch_stop(struct mr_models *m);

#endif
