/* Work: rows that go together, and the queue of what goes again. Private; what a work is stands in job.h.
 *
 * Thread: the loop's. */
#ifndef MR_BATCH_WORK_H
#define MR_BATCH_WORK_H

#include <stddef.h>
#include <stdint.h>

struct calls;
struct span;
struct work;

struct work *work_new(const struct span *spans, size_t count);
/** NULL is allowed. */
void work_drop(struct work **w);
/** The first span of rows [at, at + count) of the work. */
struct span work_span(const struct work *w, uint64_t at, uint64_t count);
/** Its rows [at, at + count), as a work of their own. */
struct work *work_part(const struct work *w, uint64_t at, uint64_t count);

void retry_push(struct calls *c, struct work *w);
void retry_push_front(struct calls *c, struct work *w);
/** Between two that are neighbours, or before the first or behind the last, which are NULL then. */
void retry_link(struct calls *c, struct work *before, struct work *w, struct work *next);
/** `before` is the one in front of it, NULL: it is the first. */
void retry_unlink(struct calls *c, struct work *before, struct work *w);

#endif
