/* The limit of the rows of a model's executions, which falls when worker processes run out of memory. Threads: any; a race
 * loses a note, which does no harm. */
#ifndef SENTINEL_ROWS_H
#define SENTINEL_ROWS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* Successful executions at the limit after which it doubles. */
#define ROWS_AGAIN 64u

/* Zeroed, then `limit`: where the scheduler reads it. */
struct rows {
    _Atomic uint32_t *limit; /* 0 = any; relaxed */
    _Atomic uint32_t full;   /* rows with which memory first ran out; relaxed */
    _Atomic uint32_t worked; /* executions at the limit; relaxed */
};

/* A process ran out of memory with an execution of `rows` rows. True: the limit is lower now. */
bool rows_short(struct rows *r, int64_t rows);
/* An execution of `rows` rows was answered. True: the limit is higher now. */
bool rows_worked(struct rows *r, int64_t rows);

#endif
