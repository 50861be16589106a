/* How far the reader may be ahead of the calls.
 *
 * Rows that are read long before a host has room for them only take memory. So the reader is held when the rows of two
 * calls wait, and AHEAD_BYTES of them. When calls ran out of rows after that, because the source paused for longer than
 * those lasted, twice as many are enough from then on. `--memory` is the limit in any case.
 *
 * Thread: the loop's. */
#ifndef MR_BATCH_AHEAD_H
#define MR_BATCH_AHEAD_H

#include <stdbool.h>
#include <stdint.h>

#define AHEAD_BYTES (UINT64_C(16) << 20)

struct ahead {
    uint64_t enough; /* bytes; 0: AHEAD_BYTES */
    bool is_held;    /* the reader */
    bool was_held;   /* … since calls last ran out of rows */
};

/** Whether the reader is to be held now that so many rows are in no call, in extents of so many bytes. */
bool ahead_holds(struct ahead *a, uint64_t rows, uint64_t bytes, uint64_t call_rows);

#endif
