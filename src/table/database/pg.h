/* PostgreSQL through libpq's asynchronous functions, so that a wait for the server can be ended. Private.
 *
 * The library is not linked, as only tables in PostgreSQL need it. The first open loads it, for good. */
#ifndef MR_TABLE_PG_H
#define MR_TABLE_PG_H

#include <stdatomic.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/str.h"

/* Constants of the library. */
enum {
    PG_CONNECTION_OK = 0,

    PG_POLLING_FAILED = 0,
    PG_POLLING_READING = 1,
    PG_POLLING_WRITING = 2,
    PG_POLLING_OK = 3,

    PG_COMMAND_OK = 1,
    PG_TUPLES_OK = 2,
    PG_COPY_IN = 4,
    PG_SINGLE_TUPLE = 9,
};
#define PG_DIAG_SQLSTATE        'C'
#define PG_DIAG_MESSAGE_PRIMARY 'M'

/** An option of a connection, in the library's layout. */
struct pg_option {
    char *keyword;
    char *envvar;
    char *compiled;
    char *val;
    char *label;
    char *dispchar;
    int dispsize;
};

/* X(result, name without PQ, arguments) */
#define PG_FUNCTIONS(X)                                                                            \
    X(void *, connectStartParams,                                                                  \
      (const char *const *keywords, const char *const *values, int expand_dbname))                 \
    X(int, connectPoll, (void *conn))                                                              \
    X(int, status, (const void *conn))                                                             \
    X(int, socket, (const void *conn))                                                             \
    X(char *, errorMessage, (const void *conn))                                                    \
    X(void, finish, (void *conn))                                                                  \
    X(int, setnonblocking, (void *conn, int on))                                                   \
    X(void *, setNoticeProcessor,                                                                  \
      (void *conn, void (*fn)(void *ctx, const char *text), void *ctx))                            \
    X(struct pg_option *, conninfoParse, (const char *text, char **message))                       \
    X(void, conninfoFree, (struct pg_option * options))                                            \
    X(void, freemem, (void *p))                                                                    \
    X(int, sendQueryParams,                                                                        \
      (void *conn, const char *sql, int count, const unsigned *types, const char *const *values,   \
       const int *lengths, const int *formats, int result_format))                                 \
    X(int, setSingleRowMode, (void *conn))                                                         \
    X(int, flush, (void *conn))                                                                    \
    X(int, consumeInput, (void *conn))                                                             \
    X(int, isBusy, (void *conn))                                                                   \
    X(void *, getResult, (void *conn))                                                             \
    X(int, putCopyData, (void *conn, const char *data, int bytes))                                 \
    X(int, putCopyEnd, (void *conn, const char *why))                                              \
    X(int, resultStatus, (const void *result))                                                     \
    X(char *, resultErrorField, (const void *result, int field))                                   \
    X(char *, cmdTuples, (void *result))                                                           \
    X(char *, cmdStatus, (void *result))                                                           \
    X(int, ntuples, (const void *result))                                                          \
    X(int, nfields, (const void *result))                                                          \
    X(char *, fname, (const void *result, int column))                                             \
    X(unsigned, ftype, (const void *result, int column))                                           \
    X(int, fmod, (const void *result, int column))                                                 \
    X(char *, getvalue, (const void *result, int row, int column))                                 \
    X(int, getlength, (const void *result, int row, int column))                                   \
    X(int, getisnull, (const void *result, int row, int column))                                   \
    X(void, clear, (void *result))

struct pg_api {
#define X(result, name, arguments) result(*name) arguments;
    PG_FUNCTIONS(X)
#undef X
};

/** The library's functions, loaded at the first call. Any thread. Errors: MR_E_UNSUPPORTED (missing, or too old;
 *  names its package). */
int mr_pg_load(const struct pg_api **out, struct mr_err *err);

/** A connection, which may be closed. */
struct pg {
    const struct pg_api *api;
    void *conn;                      /* NULL: closed or lost */
    int cancel_fd;                   /* readable: waits end with MR_E_CANCELLED; -1: none */
    const _Atomic int64_t *until_ns; /* when waits end with MR_E_UNAVAILABLE; NULL: never */
    bool (*is_stopped)(void *ctx);   /* called during waits: true as cancel_fd; NULL: never */
    void *ctx;
};

/** Connects within 30 s, with the encoding UTF-8 and without a statement timeout. The caller has set the members of
 *  *p that end waits. Messages contain no password. Errors: MR_E_INVALID (the address), MR_E_UNAVAILABLE (any failure
 *  to connect), MR_E_CANCELLED. */
int mr_pg_open(struct pg *p, const char *database, struct mr_err *err);
void mr_pg_close(struct pg *p);
/** Appends the address without its secrets. Errors: MR_E_INVALID (cannot be parsed; the text does not repeat it). */
int mr_pg_label(const char *database, struct mr_buf *out, struct mr_err *err);
/** Runs one statement, with parameters as texts. The caller clears *out (may be NULL). A lost connection is closed.
 *  Errors: MR_E_UNAVAILABLE (lost, or the server asks to try again), MR_E_EXHAUSTED (disk full), MR_E_FORBIDDEN,
 *  MR_E_NOT_FOUND (a relation or database), MR_E_IO, MR_E_CANCELLED, MR_E_INVALID (all else). */
int mr_pg_query(struct pg *p, const char *sql, const char *const *values, int count, bool is_binary,
                void **out, struct mr_err *err);
/** Sends a statement whose rows are returned one by one, in binary, so that only one is held. No other statement is
 *  possible before the last row was taken. Errors: as mr_pg_query. */
int mr_pg_rows_ask(struct pg *p, const char *sql, struct mr_err *err);
/** *out: a result of one row, which the caller clears; NULL: no more rows. Errors: as mr_pg_query. */
int mr_pg_row_take(struct pg *p, void **out, struct mr_err *err);
/** Sends data for the running COPY FROM STDIN. */
int mr_pg_copy_put(struct pg *p, const char *data, size_t bytes, struct mr_err *err);
/** Ends the COPY. */
int mr_pg_copy_end(struct pg *p, struct mr_err *err);
/** One value of a result as text; "" for none. */
mr_str mr_pg_value(const struct pg *p, const void *result, int row, int column);
/** Appends "SCHEMA"."TABLE" or "TABLE", quoted. */
void mr_pg_quote_table(struct mr_buf *b, const char *table);

/* ---- types ---- */

/* OIDs of the supported types (pg_type.dat). */
enum {
    PG_BOOL = 16,
    PG_BYTEA = 17,
    PG_INT8 = 20,
    PG_INT2 = 21,
    PG_INT4 = 23,
    PG_TEXT = 25,
    PG_OID = 26,
    PG_JSON = 114,
    PG_FLOAT4 = 700,
    PG_FLOAT8 = 701,
    PG_BPCHAR = 1042,
    PG_VARCHAR = 1043,
    PG_DATE = 1082,
    PG_TIMESTAMP = 1114,
    PG_TIMESTAMPTZ = 1184,
    PG_NUMERIC = 1700,
    PG_JSONB = 3802,
};
/** The item type of an array type; 0: not a known array. */
unsigned mr_pg_item_of(unsigned type);

#define PG_EPOCH_DAYS 10957 /* 2000-01-01 */
#define PG_EPOCH_US   INT64_C(946684800000000)

#endif
