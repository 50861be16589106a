/* Dead letters: rows without a result, each a line of JSON in dlq/. */
#ifndef MR_BATCH_LETTER_H
#define MR_BATCH_LETTER_H

#include "base/buf.h"
#include "batch/common/extent.h"

struct job;
struct whole;

/** A row of the extent with all columns, the caller's; NULL: there are none beside those that were read, or they cannot
 *  be read. */
struct mr_rows *whole_row(struct whole *w, const struct job *j, const struct extent *e,
                          uint64_t row);
void whole_close(struct whole *w);

/** The line of dlq/ for a row. `whole` is the same row with all columns, NULL: the extent has them. Nothing of the extent
 *  is changed. */
void letter_put(struct mr_buf *b, const char *path, const struct extent *e,
                const struct dead_row *d, const struct mr_rows *whole);

#endif
