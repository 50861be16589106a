/* How far the reader may read ahead of the calls.
 *
 * Rows that are read long before a host has room for them only take memory. So the reader is held when the rows of two
 * calls wait, and READAHEAD_BYTES of them. If calls ran out of rows after that, because the source paused for longer than
 * those lasted, twice as many are enough from then on. `--memory` is the limit in any case.
 *
 * Thread: the loop's. */
#ifndef MR_BATCH_READAHEAD_H
#define MR_BATCH_READAHEAD_H

#include <stdbool.h>
#include <stdint.h>

#define READAHEAD_BYTES (UINT64_C(16) << 20)

struct readahead {
    uint64_t enough; /* bytes; 0: READAHEAD_BYTES */
    bool is_held;    /* the reader */
    bool was_held;   /* … since calls last ran out of rows */
};

/** True if the reader must wait, given the rows that are in no call and the bytes of their extents. */
bool readahead_holds(struct readahead *a, uint64_t rows, uint64_t bytes, uint64_t call_rows);

#endif
