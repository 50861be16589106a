/* Hosts that are not to be believed. On the loop's thread. */
#ifndef MR_BATCH_DISTRUST_H
#define MR_BATCH_DISTRUST_H

#include "base/err.h"

struct host;
struct job;
struct mr_batch;

/** It answers rubbish. All that it answered is done again, without it. */
void host_distrust(struct host *h, const char *why);
/** Why the host is not to be used; NULL: it is. */
const char *distrust_of(const struct job *j, const struct host *h);
/** Rows of hosts that are distrusted, and with is_asked of those that options.recompute names, are to be done again: takes
 *  their items out of the manifest. Errors: MR_E_UNSUPPORTED (options.recompute, and results that are not files), those of
 *  mr_manifest_replace. */
int distrust_recompute(struct job *j, bool is_asked, struct mr_err *err);
/** Are results committed that are known to be wrong, and could not be taken back? Then *err says which. */
bool distrust_is_left(struct job *j, struct mr_err *err);
void distrust_free(struct mr_batch *b);

#endif
