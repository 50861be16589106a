/* Where the columns of a Parquet file lie, by its footer. Private.
 * Source: apache/parquet-format, parquet.thrift. */
#ifndef MR_TABLE_PARQUET_CHUNKS_H
#define MR_TABLE_PARQUET_CHUNKS_H

#include "base/err.h"
#include "base/str.h"
#include "base/vec.h"

#define PARQUET_HEAD_BYTES 4
#define PARQUET_TAIL_BYTES 8 /* length of the footer, magic */

struct parquet_range {
    uint64_t first;
    uint64_t end;
};

struct parquet_ranges {
    MR_VEC(struct parquet_range) at; /* ascending, apart from each other */
};

/** Length of the footer by the last bytes of a file, without them; 0: they are not the end of one. */
uint32_t parquet_footer_bytes(const uint8_t tail[PARQUET_TAIL_BYTES]);
/** Appends to `out` (empty) the bytes of columns `names` (compared without regard to case) in all row groups with rows from
 *  `first_row` on; ranges with less than `gap` between them become one. False: the footer is none that this can read,
 *  or has no such column: then nobody knows but by reading all of the file. data_end: where the footer begins. */
bool parquet_chunks_find(mr_bytes footer, uint64_t data_end, const char *const *names, size_t count,
                         uint64_t first_row, uint64_t gap, struct parquet_ranges *out);
/** The same of one row group, which has rows: its struct as it lies in the footer. */
bool parquet_group_find(mr_bytes group, uint64_t data_end, const char *const *names, size_t count,
                        struct parquet_ranges *out);

#endif
