/* The ends of single rows, and rows that are in no call yet. On the job's loop. */
#ifndef MR_BATCH_FRESH_H
#define MR_BATCH_FRESH_H

#include "batch/common/extent.h"

/** A row becomes a dead letter. Takes what `d` points to, except the cause. */
void fresh_row_dies(struct calls *c, struct extent *e, struct dead_row d, const char *cause);
/** Passes the extent on if each of its rows has its outcome. */
void fresh_extent_pass_on(struct calls *c, struct extent *e);
/** True if the reader brings more rows soon, whatever becomes of those that are there. False at its end, while it waits for
 *  credits, and for a filter: its input may pause until all answers are written. */
bool fresh_may_come(const struct calls *c);
/** True if calls.fresh has rows for the next call. False: there are none, or more may come soon that fill the call;
 *  *io_wake_ns is when that is over. */
bool fresh_take(struct calls *c, int64_t now_ns, int64_t *io_wake_ns);

#endif
