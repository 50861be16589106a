#include "readahead.h"

#include "base/mem.h"

bool readahead_holds(struct readahead *a, uint64_t rows, uint64_t bytes, uint64_t call_rows)
{
    a->enough = MR_MAX(a->enough, READAHEAD_BYTES);
    if (rows == 0 && a->was_held) {
        a->enough *= 2;
        a->was_held = false;
    }
    a->is_held = bytes >= a->enough && rows >= 2 * call_rows;
    a->was_held = a->was_held || a->is_held;
    return a->is_held;
}
