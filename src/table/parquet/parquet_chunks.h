/* The places of the columns of a Parquet file, from its footer. Private.
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
    MR_VEC(struct parquet_range) at; /* ascending, disjoint */
};

/** Length of the footer, from the last bytes of a file, which are not included; 0: not a Parquet file. */
uint32_t parquet_footer_bytes(const uint8_t tail[PARQUET_TAIL_BYTES]);
/** Appends to `out` (empty) the byte ranges of columns `names` (compared without case) in all row groups with rows
 *  from `first_row` on; ranges with gaps below `gap` are joined. False: the footer cannot be read here, or has no
 *  such column: the caller must then read all of the file. data_end: where the footer begins. */
bool parquet_chunks_find(mr_bytes footer, uint64_t data_end, const char *const *names, size_t count,
                         uint64_t first_row, uint64_t gap, struct parquet_ranges *out);
/** The same for one row group, which must have rows, from its struct in the footer. */
bool parquet_group_find(mr_bytes group, uint64_t data_end, const char *const *names, size_t count,
                        struct parquet_ranges *out);

#endif
