/* Comparison of two answers. */
#ifndef MR_BATCH_COMPARE_H
#define MR_BATCH_COMPARE_H

#include "table/rows.h"

/** True if the rows are equal, with a relative difference of at most `tolerance` in numbers that are not whole. Both
 *  have the same schema. */
bool compare_rows_agree(const struct mr_rows *a, const struct mr_rows *b, double tolerance);

#endif
