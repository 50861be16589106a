/* Models that a load request brings from elsewhere. Thread: loader. */
#ifndef MR_MODEL_PLACED_H
#define MR_MODEL_PLACED_H

#include "model/records/job.h"

/** Whether a load request may name this address. Errors: MR_E_FORBIDDEN, MR_E_INVALID. Thread: any. */
int mr_url_check(const struct mr_models *m, mr_str url, struct mr_err *err);
/** Makes the model of a job with a path, and loads it. Errors: those of mr_models_place. */
int mr_place_run(struct mr_models *m, struct mr_job *job, struct mr_err *err);

#endif
