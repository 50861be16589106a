/* What executions of a model take, by their size: the longest lately, for each power of two of rows. Pure. Threads:
 * any; a race loses a note, which does no harm. */
#ifndef SENTINEL_TIMES_H
#define SENTINEL_TIMES_H

#include <stdatomic.h>
#include <stdint.h>

#define TIMES_SIZES       16 /* the last one has all larger executions */
#define TIMES_KNOWN_AFTER 100u

/* Zeroed: nothing is known. */
struct times {
    struct {
        _Atomic int64_t most_ns; /* relaxed */
        _Atomic uint32_t count;  /* up to TIMES_KNOWN_AFTER; relaxed */
    } of[TIMES_SIZES];
};

/* rows: 0 and 1 are the same. */
void times_note(struct times *t, int64_t rows, int64_t ns);
/* The longest execution of so many rows, 0 = not known. A size that was seldom seen is taken to be like the next larger
 * one; without that, to grow with the rows from the next smaller one. A batch takes no less than a smaller one. */
int64_t times_most(const struct times *t, int64_t rows);

#endif
