/* Lists of hosts. On the loop's thread. */
#ifndef MR_BATCH_DISCOVER_H
#define MR_BATCH_DISCOVER_H

#include "base/buf.h"
#include "base/err.h"

struct hosts;

/** Reads what the options say; lists that are looked up come later. Errors: those of hosts_set, and MR_E_NOT_FOUND,
 *  MR_E_IO (a file). */
int discover_start(struct hosts *hs, struct mr_err *err);
/** Looks again at what may have changed. */
void discover_tick(struct hosts *hs, int64_t now_ns);
void discover_stop(struct hosts *hs);
/** A name was not looked up yet, for a few seconds at most: there may be more hosts soon. */
bool discover_is_pending(const struct hosts *hs, int64_t now_ns);
/** True if a list may still give hosts. False: all have given theirs, or are names whose look-up fails; appends the reasons
 *  of those. */
bool discover_may_report(const struct hosts *hs, struct mr_buf *why);

#endif
