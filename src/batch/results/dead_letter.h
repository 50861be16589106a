/* Dead letters: rows without a result, each a line of JSON in dlq/. */
#ifndef MR_BATCH_DEAD_LETTER_H
#define MR_BATCH_DEAD_LETTER_H

#include "base/buf.h"
#include "batch/common/extent.h"

struct results;
struct full_rows;

/** A row of the extent with all columns, the caller's; NULL: there are none beside those that were read, or they cannot
 *  be read. */
struct mr_rows *dead_letter_full_row(struct full_rows *w, const struct results *rs,
                                     const struct extent *e, uint64_t row);
void dead_letter_full_rows_close(struct full_rows *w);

/** The line of dlq/ for a row. `whole` is the same row with all columns, NULL: the extent has them. Nothing of the extent
 *  is changed. */
void dead_letter_put(struct mr_buf *b, const char *path, const struct extent *e,
                     const struct dead_row *d, const struct mr_rows *whole);

#endif
