/* Quarantine: hosts that answered wrongly get no more calls, and what they answered is done again. On the loop's thread. */
#ifndef MR_BATCH_QUARANTINE_H
#define MR_BATCH_QUARANTINE_H

#include "base/err.h"

struct host;
struct job;
struct mr_batch;

/** Puts a host that answers wrongly into quarantine: all that it answered is done again, without it. */
void host_quarantine(struct host *h, const char *why);
/** Why the host is in quarantine; NULL: it is not. */
const char *quarantine_reason(const struct job *j, const struct host *h);
/** Takes the items out of the manifest whose rows are to be done again: those of hosts in quarantine, and with is_asked of those
 *  that options.start.recompute names. Errors: MR_E_UNSUPPORTED (options.start.recompute, and results that are not files), those of
 *  mr_manifest_replace. */
int quarantine_recompute(struct job *j, bool is_asked, struct mr_err *err);
/** True if results are committed that are known to be wrong and could not be taken back; *err says which. */
bool quarantine_is_left(struct job *j, struct mr_err *err);
void quarantine_free(struct mr_batch *b);

#endif
