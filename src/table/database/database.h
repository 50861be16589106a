/* Shared by tables in databases. Private. */
#ifndef MR_TABLE_DATABASE_H
#define MR_TABLE_DATABASE_H

#include "base/buf.h"
#include "table/rows/formats.h"

#define MR_DATABASE_SQLITE     "sqlite:"
#define MR_DATABASE_POSTGRESQL "postgresql:"
#define MR_DATABASE_POSTGRES   "postgres:"

/** Most rows of a read, as each may be a fault. */
#define MR_DATABASE_ROWS UINT64_C(1000000)

/** Database and table without passwords. Errors: MR_E_INVALID. */
int mr_database_label(const char *database, const char *table, struct mr_buf *out,
                      struct mr_err *err);
/** Appends a name between double quotes, which are doubled inside it. */
void mr_database_quote(struct mr_buf *b, mr_str name);
/** True if a query seems to define the order of its rows. */
bool mr_database_has_order(const char *query);
/** The error for a query without an order. */
int mr_database_no_order(struct mr_err *err);

/** True if a column of a type (MR_COLUMN_NONE: unknown) can be read as the wanted type: numbers as other numbers
 *  unless they are kept, texts by parsing, bytes as lists of numbers. */
bool mr_database_may_become(enum mr_column_type found, const struct mr_field *wanted);
/** Appends a row, a list of packed little-endian numbers. Returns NULL or the error. */
const char *mr_database_add_raw(struct mr_column_builder *b, mr_str bytes);

/** After a read that failed with MR_E_UNAVAILABLE, which is tried again: logs why, the first time. */
void mr_database_read_waits(bool *io_has_waited, const struct mr_err *err);

/** Rows under construction, value by value. */
struct mr_database_rows {
    const struct mr_schema *schema; /* borrowed */
    struct mr_column_builder *builders;
    struct mr_rows *rows; /* NULL: none */
};
/** Errors: MR_E_UNSUPPORTED, MR_E_INVALID (a too wide list; names the column). */
int mr_database_rows_init(struct mr_database_rows *d, const struct mr_schema *schema,
                          uint64_t max_cell_bytes, struct mr_err *err);
void mr_database_rows_fini(struct mr_database_rows *d);
/** Errors: MR_E_EXHAUSTED. */
int mr_database_rows_begin(struct mr_database_rows *d, struct mr_err *err);
/** Ends a row: each builder has one more value, or the error `wrong` of a column's value makes the row a fault; `why`
 *  shows if memory was out. Errors: MR_E_EXHAUSTED (names file and row). */
int mr_database_row_end(struct mr_database_rows *d, size_t column, const char *wrong,
                        const struct mr_err *why, const char *path, uint64_t row,
                        struct mr_err *err);
/** Approximate bytes of the rows. */
uint64_t mr_database_rows_bytes(const struct mr_database_rows *d);
/** *out NULL: no rows. Errors: MR_E_EXHAUSTED. */
int mr_database_rows_end(struct mr_database_rows *d, struct mr_rows **out, struct mr_err *err);
/** Drops them. */
void mr_database_rows_drop(struct mr_database_rows *d);

/* `open` sets the path and state of their only file. */
extern const struct mr_source_ops mr_sqlite_source_ops;
extern const struct mr_source_ops mr_pg_source_ops;

#endif
