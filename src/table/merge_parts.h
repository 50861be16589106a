/* What the merges of formats share. Private. */
#ifndef MR_TABLE_MERGE_PARTS_H
#define MR_TABLE_MERGE_PARTS_H

#include "formats.h"
#include "table/merge.h"

/** A descriptor for reading. Errors: MR_E_IO. */
int mr_merge_open(const struct mr_merge_part *part, struct mr_err *err);
/** Copies bytes to the end of `out`; by the kernel where it can. Errors: MR_E_IO, MR_E_EXHAUSTED. */
int mr_merge_copy(const struct mr_merge_part *part, uint64_t from, uint64_t bytes, int out,
                  struct mr_err *err);
int mr_merge_size(int fd, const char *name, uint64_t *out, struct mr_err *err);

/** As mr_table_merge. */
int arrow_merge(const struct mr_merge_part *parts, size_t count, int out, struct mr_err *err);
int parquet_merge(const struct mr_merge_part *parts, size_t count, int out, struct mr_err *err);

#endif
