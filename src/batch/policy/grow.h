/* How many rows a call has where nothing else says it: as many as pay.
 *
 * Calls begin with GROW_FIRST rows. While hosts are what the job waits for, rows per second are measured with calls as they
 * are, and then with twice as many rows; if that is GROW_PAYS faster it stays, and so on. It ends where it does not pay, where
 * hosts refuse or fail, or where a call would take too much of the memory. A job that is over before a measurement
 * is has calls of GROW_FIRST rows.
 *
 * Thread: the loop's. */
#ifndef MR_BATCH_GROW_H
#define MR_BATCH_GROW_H

#include <stdbool.h>
#include <stdint.h>

#define GROW_FIRST 256
#define GROW_MOST  4096
#define GROW_PAYS  1.05

enum grow_phase {
    GROW_OFF,
    GROW_WARM,    /* until two measurements in a row are alike */
    GROW_TRY,     /* until hosts take calls of twice as many rows */
    GROW_SETTLE,  /* they do: calls from before are waited for */
    GROW_MEASURE, /* they are measured */
};

struct grow {
    enum grow_phase phase;
    uint64_t rows; /* of a call that is known to pay */
    double rate;   /* rows per second with that; 0: not measured yet */
    int64_t looked_ns;
    int64_t from_ns; /* of a measurement; 0: there is none */
    uint64_t from_done;
    uint64_t from_calls;
};

/** What a job has done so far. */
struct grow_now {
    int64_t ns;
    uint64_t done;    /* rows that hosts answered */
    uint64_t calls;   /* that were answered well */
    uint64_t taken;   /* rows of a call that hosts are known to take */
    uint64_t most;    /* … and may get */
    uint64_t affords; /* rows of a call that memory has room for */
    bool waits;       /* for hosts: there are rows for more calls */
};

void grow_begin(struct grow *g);
/** Some times a measurement: the most rows that calls may have after it. */
uint64_t grow_evaluate(struct grow *g, const struct grow_now *now);

#endif
