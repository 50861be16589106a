/* What a job is known by. */
#ifndef MR_BATCH_IDENTITY_H
#define MR_BATCH_IDENTITY_H

#include "base/err.h"

struct results;

/** Opens the job's manifest, or begins it, with the job's identity: a start with another model, input or kind of results
 *  is refused. The source is open, and the outputs are known. Errors: those of mr_manifest_open. */
int identity_open(struct results *rs, struct mr_err *err);

#endif
