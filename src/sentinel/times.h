/* The longest recent execution time of a model, for each power of two of rows. Pure. Threads: any; a race loses a note,
 * which does no harm. */
#ifndef SENTINEL_TIMES_H
#define SENTINEL_TIMES_H

#include <stdatomic.h>
#include <stdint.h>

#define TIMES_SIZES       16 /* the last one covers all larger executions */
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
/* The longest execution of `rows` rows, 0 = not known. For a size with few samples this is the time of the next larger
 * one, or else the time of the next smaller one scaled by the rows. A batch never takes less than a smaller one. */
int64_t times_most(const struct times *t, int64_t rows);

#endif
