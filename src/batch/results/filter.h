/* What the committer's thread does for a filter: results go to a pipe. */
#ifndef MR_BATCH_FILTER_H
#define MR_BATCH_FILTER_H

#include "base/err.h"

struct mr_batch_filter;
struct mr_err;

/** The committer's thread. */
void *filter_run(void *committer);
/** Whether the results still have a reader: a filter whose engine was killed is to end, also while it waits for hosts.
 *  Errors: MR_E_IO. */
int filter_check(const struct mr_batch_filter *filter, struct mr_err *err);

#endif
