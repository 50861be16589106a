/* How many rows executions of a model may have, after worker processes have run out of memory with more. Threads: any; a
 * race loses a note, which does no harm. */
#ifndef SENTINEL_ROWS_H
#define SENTINEL_ROWS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* So many executions with all the rows that they may have: then they may have twice as many. */
#define ROWS_AGAIN 64u

/* Zeroed, then `limit`: where the scheduler reads it. */
struct rows {
    _Atomic uint32_t *limit; /* 0 = any; relaxed */
    _Atomic uint32_t full;   /* with which memory was short first; relaxed */
    _Atomic uint32_t worked; /* executions at the limit; relaxed */
};

/* A process ran out of memory with an execution of so many rows. True: the limit is lower now. */
bool rows_short(struct rows *r, int64_t rows);
/* An execution of so many rows was answered. True: the limit is higher now. */
bool rows_worked(struct rows *r, int64_t rows);

#endif
