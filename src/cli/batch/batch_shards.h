/* Status of a job that is divided into shards. */
#ifndef MR_CLI_BATCH_SHARDS_H
#define MR_CLI_BATCH_SHARDS_H

#include "base/err.h"

/** Prints the state in the folders of all shards. *out_is_one false: the job is not divided, and nothing was printed.
 *  Errors: those of mr_batch_shard_summaries. */
int mr_cli_batch_shards(const char *folder, bool as_json, bool *out_is_one, struct mr_err *err);

#endif
