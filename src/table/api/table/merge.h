/* Files of one table joined to one, without a look at their rows: Parquet's row groups are copied by the kernel and get
 * one footer, Arrow's batches likewise, JSON lines follow each other, CSV keeps one head. Thread: any; blocks on the disk. */
#ifndef MR_TABLE_MERGE_H
#define MR_TABLE_MERGE_H

#include "table/table.h"

/** A file in a folder. It is opened when it is looked at: there may be more of them than descriptors. */
struct mr_merge_part {
    int dir; /* of the folder; AT_FDCWD: the name is a path */
    const char *name;
};

/** Joins files that writers of table.h made into `out`, an empty file, in their order. Row groups, statistics and
 *  checksums stay what they are. The format is told by the names, which end as in mr_table_format_of.
 *  Errors: MR_E_UNSUPPORTED (a file of another program, CSV that is compressed), MR_E_INVALID (columns differ, damage);
 *  both name the file and come before anything is copied, but for CSV. MR_E_IO, MR_E_EXHAUSTED (disk full). */
int mr_table_merge(const struct mr_merge_part *parts, size_t count, int out, struct mr_err *err);

#endif
