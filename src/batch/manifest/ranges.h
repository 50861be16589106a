/* A set of rows of one file, as ranges that neither touch nor overlap. Memory is that of the gaps between
 * what is in it, not of the rows. One thread at a time. */
#ifndef MR_BATCH_RANGES_H
#define MR_BATCH_RANGES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

/** Rows first .. end - 1. */
struct mr_range {
    uint64_t first;
    uint64_t end;
};

/** All-zero is empty. */
struct mr_ranges {
    struct mr_range *at; /* ascending; at[i].end < at[i + 1].first */
    size_t len;
    size_t cap;
    uint64_t rows; /* in all of them */
};

void mr_ranges_fini(struct mr_ranges *r);
/** Put rows in, none of which may be there. Errors, and nothing is changed: MR_E_INVALID (no rows),
 *  MR_E_EXISTS. */
int mr_ranges_add(struct mr_ranges *r, uint64_t first, uint64_t end, struct mr_err *err);
/** Take rows out, all of which must be there. Errors, and nothing is changed: MR_E_INVALID (no rows),
 *  MR_E_NOT_FOUND. */
int mr_ranges_remove(struct mr_ranges *r, uint64_t first, uint64_t end, struct mr_err *err);
/** All of the rows are in it. */
bool mr_ranges_contains(const struct mr_ranges *r, uint64_t first, uint64_t end);
/** The first rows at or after `from` and before `end` that are not in it, as many as are together;
 *  false when there are none. */
bool mr_ranges_gap(const struct mr_ranges *r, uint64_t from, uint64_t end, struct mr_range *out);

#endif
