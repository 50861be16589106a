/* Shared by runs of `batch run` and `map`. */
#ifndef MR_CLI_BATCH_RUN_H
#define MR_CLI_BATCH_RUN_H

#include "batch/batch.h"

/** Bounds the heap, and makes a job that finds the backends of this machine; one at a time. Options as mr_batch_new;
 *  their backend_dirs become invalid when the job is closed. Errors: as mr_batch_new. */
int mr_cli_batch_open(struct mr_batch **out, struct mr_batch_options *options, struct mr_err *err);
/** Makes SIGINT and SIGTERM stop the job; a second one ends the process. */
void mr_cli_batch_obey(void);
/** Frees the job; restores the signals. */
void mr_cli_batch_close(struct mr_batch **b);

#endif
