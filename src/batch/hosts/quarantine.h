/* Quarantine: hosts that answered wrongly get no more calls, and what they answered is done again. On the loop's thread. */
#ifndef MR_BATCH_QUARANTINE_H
#define MR_BATCH_QUARANTINE_H

#include "base/err.h"

#include "base/vec.h"
#include "batch/batch.h"

struct committer;
struct host;
struct hosts;
struct results;

/** A host in quarantine. */
struct quarantined {
    char *address; /* as hosts are called in views and parts, or as lists name them */
    char *reason;
    bool is_unrecorded; /* quarantine_recompute has not succeeded since it came in */
};

/** All of them; kept when the job starts again in this process. */
struct quarantine {
    MR_VEC(struct quarantined) hosts;
    bool has_taken_back; /* results of a host that answered wrongly */
};

/** Puts a host that answers wrongly into quarantine: all that it answered is done again, without it. */
void host_quarantine(struct host *h, const char *why, struct committer *committer);
/** Why the host is in quarantine; NULL: it is not. */
const char *quarantine_reason(const struct quarantine *q, const struct mr_batch_options *o,
                              const struct host *h);
/** Takes the items out of the manifest whose rows are to be done again: those of hosts in quarantine, and with is_asked of those
 *  that options.start.recompute names. Errors: MR_E_UNSUPPORTED (options.start.recompute, and results that are not files), those of
 *  mr_manifest_replace. */
int quarantine_recompute(const struct hosts *hs, struct results *rs, bool is_asked,
                         struct mr_err *err);
/** Warns of hosts whose results the manifest still has, as the disk failed until the job's end: no other process knows. */
void quarantine_report(const struct quarantine *q);
/** True if results are committed that are known to be wrong and could not be taken back; *err says which. */
bool quarantine_is_left(const struct quarantine *q, const struct results *rs, struct mr_err *err);
void quarantine_fini(struct quarantine *q);

#endif
