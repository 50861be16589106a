/* The wait of a job whose results cannot be written. Private.
 *
 * A full disk or an I/O error is no fault of rows or hosts, and leaves the files unchanged. So the committer tries again,
 * soon and then every ten seconds, where it was; rows that were read and answered wait within the budget. If the state on
 * disk is unknown because a sync failed, the job starts again in the same process from the committed rows, as after a kill.
 * In both cases it ends when nothing can be committed for as long as an outage may last. */
#ifndef MR_BATCH_DISK_H
#define MR_BATCH_DISK_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

struct committer;
struct mr_manifest;
struct results;

struct disk_hold {
    char reason[640]; /* "": results are written */
    int64_t since_ns; /* of the first failure since a commit; 0: there was none */
    int64_t until_ns; /* then it is tried again */
    uint32_t tries;
};

/** True if all that is not committed can be done again in this process, after this error: it was the disk's fault, or m has to be
 *  opened again for it. m NULL: none is open. */
bool disk_may_begin_again(const struct mr_manifest *m, const struct mr_err *err);
/** Records a failure: when to try again, and what to log. Any thread, one at a time for `h`. */
void disk_fails(struct disk_hold *h, const struct results *rs, const struct mr_err *err);
/** It went on for as long as an outage may. */
bool disk_is_lost(const struct disk_hold *h, const struct results *rs);

/* The committer's thread: */
/** True: try the same again. False: it was not the disk, the job ends, or it took too long. */
bool disk_wait(struct committer *c, const struct mr_err *err);
/** For mr_writer_options, whose context is the committer. */
bool disk_wait_fn(void *committer, const struct mr_err *err);
/** What was tried again has succeeded; all that was begun is committed. */
void disk_goes_on(struct committer *c);
void disk_is_well(struct committer *c);

#endif
