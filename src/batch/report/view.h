/* How a job is doing. On the loop's thread. */
#ifndef MR_BATCH_VIEW_H
#define MR_BATCH_VIEW_H

#include "batch/batch.h"

struct job;

/** Once a second: counts the rows. True: it was time to. */
bool view_mark(struct job *j, int64_t now_ns);
/** To on_view. */
void view_tell(struct job *j);
/** Valid until view_free, as long as nothing is done with the job. */
struct mr_batch_view *view_new(struct job *j);
void view_free(struct mr_batch_view **v);

#endif
