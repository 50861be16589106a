/* Facts of a Parquet file that DuckDB's library ignores: the exact names of its columns, decimals without a DuckDB
 * type, the places of row groups, and checksums of pages. Private.
 * Source: apache/parquet-format, parquet.thrift. */
#ifndef MR_TABLE_PARQUET_FACTS_H
#define MR_TABLE_PARQUET_FACTS_H

#include "base/buf.h"
#include "base/err.h"
#include "base/vec.h"

struct parquet_column {
    char *name;
    bool is_wide; /* holds decimals of more than 38 digits */
};

struct parquet_group {
    uint64_t end;  /* rows of the file up to its end */
    mr_bytes text; /* in the footer */
    bool is_sound; /* all pages were checked */
};

struct parquet_facts {
    int fd; /* -1: not open */
    char *path;
    struct mr_buf footer;
    uint64_t data_end;
    /** Of the top level; empty: the footer could not be read. */
    MR_VEC(struct parquet_column) columns;
    MR_VEC(struct parquet_group) groups;
};

/** Closes the file. May be called again. */
void parquet_facts_init(struct parquet_facts *l);
void parquet_facts_fini(struct parquet_facts *l);
/** Opens a file, after init or fini. An unreadable footer is not an error: the facts are then unknown. Messages use
 *  `name` for the file. Errors: MR_E_IO, MR_E_EXHAUSTED. */
int parquet_facts_open(struct parquet_facts *l, const char *path, const char *name,
                       struct mr_err *err);
/** The row group of a row; SIZE_MAX: unknown. */
size_t parquet_facts_group(const struct parquet_facts *l, uint64_t row);
/** Reads the pages of these columns (unknown names are ignored) in a row group, once, and verifies those that have a
 *  checksum. Errors: MR_E_INVALID (damaged; names the place), MR_E_IO, MR_E_EXHAUSTED. */
int parquet_facts_check(struct parquet_facts *l, size_t group, const char *const *names,
                        size_t count, struct mr_err *err);

#endif
