/* Files of results that become fewer while the job runs, for jobs of weeks that close a small file each minute. Private.
 *
 * Sizes are in levels: the target, an eighth of it, an eighth of that, and so on. Eight files of a level become one of the
 * next, so each byte is copied once a level; what is larger than an eighth of the target is left. With --order only files
 * between which no row is missing are joined.
 *
 * Files are joined by a thread of the lowest priority, which the committer never waits for while there is work: it looks
 * in after a commit of its own, puts what is ready into the manifest with one record, and gives out the next. A failure
 * ends the merging, not the job.
 *
 * Thread: the committer's, but for compaction_new. */
#ifndef MR_BATCH_COMPACTION_H
#define MR_BATCH_COMPACTION_H

#include <stdbool.h>

struct results;
struct compaction;
/** Before the reader begins. NULL: the job does not ask for it, or there is no thread for it, which is logged. */
struct compaction *compaction_new(struct results *rs);
/** Something was committed. NULL is allowed, here and below. */
void compaction_poll(struct compaction *t);
/** Waits for what is being joined. With `commit` it still counts. */
void compaction_end(struct compaction **t, bool commit);

#endif
