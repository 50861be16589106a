/* The used part of DuckDB's C library, and the conversion of its types and vectors. Private.
 *
 * The library is not linked: it is large, and only Parquet and SQL sources need it. The first open loads it, for
 * good. */
#ifndef MR_TABLE_DUCKDB_H
#define MR_TABLE_DUCKDB_H

#include "base/buf.h"
#include "table/rows.h"
#include "table/rows/formats.h"

/* ---- the library ---- */

/** A query's result, in the library's layout. Passed by value; its members are not used. */
struct duck_result {
    uint64_t counts[3];
    void *pointers[3];
};

/** The range of a row's items in the list's child vector. */
struct duck_range {
    uint64_t offset;
    uint64_t length;
};

/** A string; up to 12 bytes are stored inline. */
struct duck_string {
    uint32_t length;
    char head[4];
    const char *rest;
};
#define DUCK_STRING_INLINE 12

/* The library's type numbers. */
enum duck_type {
    DUCK_BOOLEAN = 1,
    DUCK_TINYINT = 2,
    DUCK_SMALLINT = 3,
    DUCK_INTEGER = 4,
    DUCK_BIGINT = 5,
    DUCK_UTINYINT = 6,
    DUCK_USMALLINT = 7,
    DUCK_UINTEGER = 8,
    DUCK_UBIGINT = 9,
    DUCK_FLOAT = 10,
    DUCK_DOUBLE = 11,
    DUCK_TIMESTAMP = 12,
    DUCK_DATE = 13,
    DUCK_TIME = 14,
    DUCK_INTERVAL = 15,
    DUCK_HUGEINT = 16,
    DUCK_VARCHAR = 17,
    DUCK_BLOB = 18,
    DUCK_DECIMAL = 19,
    DUCK_TIMESTAMP_S = 20,
    DUCK_TIMESTAMP_MS = 21,
    DUCK_TIMESTAMP_NS = 22,
    DUCK_ENUM = 23,
    DUCK_LIST = 24,
    DUCK_STRUCT = 25,
    DUCK_MAP = 26,
    DUCK_UUID = 27,
    DUCK_UNION = 28,
    DUCK_BIT = 29,
    DUCK_TIME_TZ = 30,
    DUCK_TIMESTAMP_TZ = 31,
    DUCK_UHUGEINT = 32,
    DUCK_ARRAY = 33,
    DUCK_SQLNULL = 36,
    DUCK_WIDE_DECIMAL =
        1000 /* not the library's: decimals of more than 38 digits in a file, which the library reads wrongly */
};

/* X(result, name, arguments): the functions used. Handles are void *; functions that create one return it through a
 * pointer, and those that destroy one take its address. States: 0 is success. */
#define DUCK_FUNCTIONS(X)                                                                          \
    X(const char *, library_version, (void))                                                       \
    X(void, free, (void *p))                                                                       \
    X(int, create_config, (void **config))                                                         \
    X(int, set_config, (void *config, const char *name, const char *value))                        \
    X(void, destroy_config, (void **config))                                                       \
    X(int, open_ext, (const char *path, void **db, void *config, char **error))                    \
    X(void, close, (void **db))                                                                    \
    X(int, connect, (void *db, void **con))                                                        \
    X(void, disconnect, (void **con))                                                              \
    X(int, query, (void *con, const char *sql, struct duck_result *out))                           \
    X(const char *, result_error, (struct duck_result * r))                                        \
    X(void, destroy_result, (struct duck_result * r))                                              \
    X(void *, fetch_chunk, (struct duck_result r))                                                 \
    X(int, prepare, (void *con, const char *sql, void **statement))                                \
    X(const char *, prepare_error, (void *statement))                                              \
    X(void, destroy_prepare, (void **statement))                                                   \
    X(uint64_t, prepared_statement_column_count, (void *statement))                                \
    X(const char *, prepared_statement_column_name, (void *statement, uint64_t column))            \
    X(void *, prepared_statement_column_logical_type, (void *statement, uint64_t column))          \
    X(int, pending_prepared_streaming, (void *statement, void **pending))                          \
    X(const char *, pending_error, (void *pending))                                                \
    X(int, execute_pending, (void *pending, struct duck_result *out))                              \
    X(void, destroy_pending, (void **pending))                                                     \
    X(uint64_t, data_chunk_get_size, (void *chunk))                                                \
    X(void *, data_chunk_get_vector, (void *chunk, uint64_t column))                               \
    X(void, destroy_data_chunk, (void **chunk))                                                    \
    X(void *, vector_get_data, (void *vector))                                                     \
    X(uint64_t *, vector_get_validity, (void *vector))                                             \
    X(void *, list_vector_get_child, (void *vector))                                               \
    X(void *, array_vector_get_child, (void *vector))                                              \
    X(int, get_type_id, (void *type))                                                              \
    X(uint8_t, decimal_width, (void *type))                                                        \
    X(uint8_t, decimal_scale, (void *type))                                                        \
    X(void *, list_type_child_type, (void *type))                                                  \
    X(void *, array_type_child_type, (void *type))                                                 \
    X(uint64_t, array_type_array_size, (void *type))                                               \
    X(void, destroy_logical_type, (void **type))

struct duck_api {
#define X(result, name, arguments) result(*name) arguments;
    DUCK_FUNCTIONS(X)
#undef X
};

/** The library's functions, loaded at the first call: from the file named by MILLRACE_DUCKDB, else next to the
 *  program (../lib/millrace/libduckdb.so), else by the system's search. Any thread.
 *  Errors: MR_E_UNSUPPORTED (missing, or too old; says how to get it). */
int mr_duck_load(const struct duck_api **out, struct mr_err *err);

/* ---- types ---- */

/** A column of a query, and its conversion. */
struct duck_column {
    struct mr_field field; /* owned; the innermost type is MR_COLUMN_NONE if unsupported */
    char *sql_name;        /* owned; the library's name for it */
    enum duck_type leaf;   /* the type of the innermost items, without a cast */
    uint32_t arrays;       /* one bit per level of lists: an ARRAY, whose rows have no ranges */
    bool has_cast;         /* the query has to cast it */
};

/** A column before its type is known. */
struct duck_column_of {
    mr_str name;     /* in the table */
    mr_str sql_name; /* in SQL; differs for names that differ in case only */
    bool is_wide;    /* decimals of more than 38 digits */
};
/** Sets up the column for a type. `wanted` (may be NULL) is used where it loses nothing: lists as fixed lists,
 *  numbers as wider ones. */
void mr_duck_column_init(const struct duck_api *duck, struct duck_column *c,
                         const struct duck_column_of *of, void *type,
                         const struct mr_field *wanted);
void mr_duck_column_fini(struct duck_column *c);
/** The innermost item's field. */
const struct mr_field *mr_duck_leaf(const struct mr_field *f);
/** The name of a type of the library, for messages. */
const char *mr_duck_type_name(enum duck_type t);
/** Appends the expression for the column with its field's type. */
void mr_duck_column_sql(struct mr_buf *b, const struct duck_column *c);
/** Appends text between quotes, which are doubled inside it. */
void mr_duck_quote(struct mr_buf *b, char quote, const char *text);

/* ---- vectors ---- */

/** Rows of a vector. Vector NULL: `count` nulls. */
struct duck_slice {
    void *vector;
    uint64_t first;
    uint64_t count;
};

/** Bytes that rows [first, first + count) will take as a column. */
uint64_t mr_duck_bytes(const struct duck_api *duck, const struct duck_column *c, void *vector,
                       uint64_t first, uint64_t count);
/** The error of one row: a list of another length than wanted, or more than max_bytes. NULL: no error; otherwise text
 *  in buf. */
const char *mr_duck_row_wrong(const struct duck_api *duck, const struct duck_column *c,
                              void *vector, uint64_t row, uint64_t max_bytes, char *buf,
                              size_t room);
/** True if mr_duck_row_wrong must be called for these rows. */
bool mr_duck_may_be_wrong(const struct duck_api *duck, const struct duck_column *c, void *vector,
                          uint64_t first, uint64_t count, uint64_t max_bytes);
/** Copies the slices to column number i of the rows. Errors: MR_E_EXHAUSTED. */
int mr_duck_copy(const struct duck_api *duck, const struct duck_column *c,
                 const struct duck_slice *slices, size_t slice_count, struct mr_rows *rows,
                 size_t i, struct mr_err *err);

extern const struct mr_source_ops mr_parquet_source_ops; /* also for queries */

#endif
