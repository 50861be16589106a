/* Objects for readers that only know files: a file of the object's size that holds the bytes asked for, and holes.
 * Private.
 *
 * One object at a time, in a file without a name, so that its space is given back whatever ends the process. Its path, in a
 * folder of its own, has the parts of the key that name columns (day=1). */
#ifndef MR_TABLE_SPOOL_H
#define MR_TABLE_SPOOL_H

#include "table/rows/formats.h"

struct mr_spool;
/** Errors: MR_E_IO, MR_E_EXHAUSTED (no folder could be made). */
int mr_spool_new(struct mr_spool **out, const struct mr_source_setup *setup, struct mr_err *err);
/** The file is one for this object, as far as its footer; the one before is gone, unless it is the same.
 *  Errors: MR_E_INVALID (too small for a footer), those of s3/s3.h, MR_E_IO, MR_E_EXHAUSTED (disk full). */
int mr_spool_open(struct mr_spool *s, size_t file, struct mr_err *err);
/** Gets what rows from `first_row` on have in these columns; all of the object, if nobody can tell where that is. */
int mr_spool_fill(struct mr_spool *s, const struct mr_schema *columns, uint64_t first_row,
                  struct mr_err *err);
/** Of the file that is open. */
const char *mr_spool_path(const struct mr_spool *s);
void mr_spool_free(struct mr_spool **s);

#endif
