/* What tables in databases have in common. Private. */
#ifndef MR_TABLE_DATABASE_H
#define MR_TABLE_DATABASE_H

#include "base/buf.h"
#include "table/rows/formats.h"

#define MR_DATABASE_SQLITE     "sqlite:"
#define MR_DATABASE_POSTGRESQL "postgresql:"
#define MR_DATABASE_POSTGRES   "postgres:"

/** Most rows of a read: each may be a fault. */
#define MR_DATABASE_ROWS UINT64_C(1000000)

/** Database and table without passwords. Errors: MR_E_INVALID. */
int mr_database_label(const char *database, const char *table, struct mr_buf *out,
                      struct mr_err *err);
/** Appends a name between double quotes, which are doubled inside it. */
void mr_database_quote(struct mr_buf *b, mr_str name);
/** Whether a query seems to say in which order its rows come. */
bool mr_database_has_order(const char *query);
/** The error of a query that does not. */
int mr_database_no_order(struct mr_err *err);

/** Whether a column of a type, MR_COLUMN_NONE if it is not known, can be read as what is wanted of it: numbers as others,
 *  texts as what they say, bytes as lists of numbers. */
bool mr_database_may_become(enum mr_column_type found, const struct mr_field *wanted);
/** A row of a list of numbers that lie one after the other, little-endian. NULL, or what is wrong. */
const char *mr_database_add_raw(struct mr_column_builder *b, mr_str bytes);

/** Rows that are being made, value by value. */
struct mr_database_rows {
    const struct mr_schema *schema; /* borrowed */
    struct mr_column_builder *builders;
    struct mr_rows *rows; /* NULL: none are being made */
};
/** Errors: MR_E_UNSUPPORTED, MR_E_INVALID (a list that is too wide; names the column). */
int mr_database_rows_init(struct mr_database_rows *d, const struct mr_schema *schema,
                          uint64_t max_cell_bytes, struct mr_err *err);
void mr_database_rows_fini(struct mr_database_rows *d);
/** Errors: MR_E_EXHAUSTED. */
int mr_database_rows_begin(struct mr_database_rows *d, struct mr_err *err);
/** The row is complete: each builder has one value more, or what is `wrong` with that of a column makes it a fault; `why`
 *  tells whether that was for want of memory. Errors: MR_E_EXHAUSTED (names file and row). */
int mr_database_row_end(struct mr_database_rows *d, size_t column, const char *wrong,
                        const struct mr_err *why, const char *path, uint64_t row,
                        struct mr_err *err);
/** About what the rows take. */
uint64_t mr_database_rows_bytes(const struct mr_database_rows *d);
/** *out NULL: there was no row. Errors: MR_E_EXHAUSTED. */
int mr_database_rows_end(struct mr_database_rows *d, struct mr_rows **out, struct mr_err *err);
/** Forgets them. */
void mr_database_rows_drop(struct mr_database_rows *d);

/* `open` gives their only file its path and state. */
extern const struct mr_source_ops mr_sqlite_source_ops;
extern const struct mr_source_ops mr_pg_source_ops;

#endif
