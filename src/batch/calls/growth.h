/* Rows of a call in a job where grow.h says how many. On the loop's thread. */
#ifndef MR_BATCH_GROWTH_H
#define MR_BATCH_GROWTH_H

#include <stdint.h>

struct calls;

/** Measures, if it is time to, and sets how many rows calls may have. */
void growth_tick(struct calls *c, int64_t now_ns);

#endif
