/* Objects for readers that need files: a sparse file of the object's size with the requested bytes. Private.
 *
 * One object at a time, in an unlinked file, so that its space is freed however the process ends. Its path, in a
 * folder of its own, contains the parts of the key that name columns (day=1). */
#ifndef MR_TABLE_SPOOL_H
#define MR_TABLE_SPOOL_H

#include "table/rows/formats.h"

struct mr_spool;
/** Errors: MR_E_IO, MR_E_EXHAUSTED (a folder cannot be created). */
int mr_spool_new(struct mr_spool **out, const struct mr_source_setup *setup, struct mr_err *err);
/** Makes the file for this object, with its footer; drops the previous one, unless it is the same.
 *  Errors: MR_E_INVALID (too small for a footer), those of s3/s3.h, MR_E_IO, MR_E_EXHAUSTED (disk full). */
int mr_spool_open(struct mr_spool *s, size_t file, struct mr_err *err);
/** Fetches the data of these columns for rows from `first_row` on; all of the object if its place is unknown. */
int mr_spool_fill(struct mr_spool *s, const struct mr_schema *columns, uint64_t first_row,
                  struct mr_err *err);
/** True for a path "…/day=1/…" and the column day, in any case. */
bool mr_path_has_column(const char *path, const char *column);
/** The path of the current file. */
const char *mr_spool_path(const struct mr_spool *s);
void mr_spool_free(struct mr_spool **s);

#endif
