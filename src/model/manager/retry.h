/* Failed loads that are tried again later. The lock is held. */
#ifndef MR_MODEL_RETRY_H
#define MR_MODEL_RETRY_H

#include "model/records/job.h"

/** True: the failed job was kept for a retry, and is no longer the caller's. */
bool mr_retry_keep(struct mr_models *m, struct mr_job *job);
/** The next job that is due; NULL = none. *out_next_ns: when the next one is due. */
struct mr_job *mr_retry_due(struct mr_models *m, int64_t *out_next_ns);
/** Takes the retry of a model that is loaded or unloaded again. NULL: it has none. */
struct mr_job *mr_retry_drop(struct mr_models *m, struct mr_model *model);
/** A retry of this model is due now. */
void mr_retry_now(struct mr_models *m, struct mr_model *model);

#endif
