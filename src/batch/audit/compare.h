/* Whether two answers say the same. */
#ifndef MR_BATCH_COMPARE_H
#define MR_BATCH_COMPARE_H

#include "table/rows.h"

/** Do they say the same, but for such a part of numbers that are not whole? Both are of one schema. */
bool compare_rows_agree(const struct mr_rows *a, const struct mr_rows *b, double tolerance);

#endif
