/* `millrace batch run --plan`. */
#ifndef MR_CLI_BATCH_PLAN_H
#define MR_CLI_BATCH_PLAN_H

#include "batch/batch.h"

/** Makes the plan of the job and prints it. Errors: those of mr_batch_plan. */
int mr_cli_batch_plan(struct mr_batch *job, const struct mr_batch_options *options, bool as_json,
                      struct mr_err *err);

#endif
