/* What a Parquet file says that DuckDB's library passes over: the names of its columns as they are, decimals that it has no
 * type for, where row groups begin, and checksums of pages. Private.
 * Source: apache/parquet-format, parquet.thrift. */
#ifndef MR_TABLE_PARQUET_LOOK_H
#define MR_TABLE_PARQUET_LOOK_H

#include "base/buf.h"
#include "base/err.h"
#include "base/vec.h"

struct parquet_column {
    char *name;
    bool is_wide; /* holds decimals of more than 38 digits */
};

struct parquet_group {
    uint64_t end;  /* rows of the file up to there */
    mr_bytes text; /* in the footer */
    bool is_sound; /* all pages were checked */
};

struct parquet_look {
    int fd; /* -1: none is open */
    char *path;
    struct mr_buf footer;
    uint64_t data_end;
    MR_VEC(struct parquet_column)
    columns; /* of the topmost level; none: the footer could not be read */
    MR_VEC(struct parquet_group) groups;
};

/** Nothing is open after fini, and it may be called then as well. */
void parquet_look_init(struct parquet_look *l);
void parquet_look_fini(struct parquet_look *l);
/** Opens a file, after init or fini. A footer that cannot be read is no error: then nothing is known. `name` is what
 *  messages call the file. Errors: MR_E_IO, MR_E_EXHAUSTED. */
int parquet_look_open(struct parquet_look *l, const char *path, const char *name,
                      struct mr_err *err);
/** The row group of a row; SIZE_MAX: not known. */
size_t parquet_look_group(const struct parquet_look *l, uint64_t row);
/** Reads the pages of these columns (names that the file does not have are passed over) in a row group, once, and
 *  compares those that have a checksum with it. Errors: MR_E_INVALID (damaged: says where), MR_E_IO, MR_E_EXHAUSTED. */
int parquet_look_check(struct parquet_look *l, size_t group, const char *const *names, size_t count,
                       struct mr_err *err);

#endif
