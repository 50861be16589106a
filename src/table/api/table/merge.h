/* Joins files of one table without decoding their rows: the kernel copies Parquet's row groups, which get one footer,
 * and likewise Arrow's batches; JSON lines are concatenated, CSV keeps one header line. Thread: any; blocks on the
 * disk. */
#ifndef MR_TABLE_MERGE_H
#define MR_TABLE_MERGE_H

#include "table/table.h"

/** A file in a folder. It is opened only while it is read, as there may be more files than descriptors. */
struct mr_merge_part {
    int dir; /* of the folder; AT_FDCWD: the name is a path */
    const char *name;
};

/** Joins files written by writers of table.h, in their order, into `out`, an empty file. Row groups, statistics and
 *  checksums are kept. The names give the format, as in mr_table_format_of.
 *  Errors: MR_E_UNSUPPORTED (a file of another program, compressed CSV), MR_E_INVALID (columns differ, damage); both
 *  name the file and, except for CSV, occur before anything is copied. MR_E_IO, MR_E_EXHAUSTED (disk full). */
int mr_table_merge(const struct mr_merge_part *parts, size_t count, int out, struct mr_err *err);

#endif
