/* The used part of SQLite's library. Private.
 *
 * It is not linked, as only tables in SQLite files need it. The first open loads it, for good. */
#ifndef MR_TABLE_SQLITE_H
#define MR_TABLE_SQLITE_H

#include <stdint.h>

#include "base/err.h"
#include "base/str.h"

/* Constants of the library. */
enum {
    SQLITE_OK = 0,
    SQLITE_PERM = 3,
    SQLITE_BUSY = 5,
    SQLITE_LOCKED = 6,
    SQLITE_NOMEM = 7,
    SQLITE_READONLY = 8,
    SQLITE_INTERRUPT = 9,
    SQLITE_IOERR = 10,
    SQLITE_CORRUPT = 11,
    SQLITE_FULL = 13,
    SQLITE_CANTOPEN = 14,
    SQLITE_CONSTRAINT = 19,
    SQLITE_NOTADB = 26,
    SQLITE_ROW = 100,
    SQLITE_DONE = 101,

    SQLITE_OPEN_READWRITE = 2,
    SQLITE_OPEN_CREATE = 4,

    SQLITE_INTEGER = 1,
    SQLITE_FLOAT = 2,
    SQLITE_TEXT = 3,
    SQLITE_BLOB = 4,
    SQLITE_NULL = 5,
};

/** The destructor of a bound value that outlives the statement's next step. */
#define SQLITE_STATIC ((void (*)(void *))0)
/** Instead: the library copies the value. */
#define SQLITE_TRANSIENT ((void (*)(void *))(intptr_t)-1)

/* X(result, name without sqlite3_, arguments) */
#define SQLITE_FUNCTIONS(X)                                                                        \
    X(int, libversion_number, (void))                                                              \
    X(int, open_v2, (const char *path, void **out, int flags, const char *vfs))                    \
    X(int, close, (void *db))                                                                      \
    X(int, errcode, (void *db))                                                                    \
    X(const char *, errmsg, (void *db))                                                            \
    X(int, busy_timeout, (void *db, int ms))                                                       \
    X(int, exec, (void *db, const char *sql, void *callback, void *ctx, char **message))           \
    X(int, get_autocommit, (void *db))                                                             \
    X(void, interrupt, (void *db))                                                                 \
    X(int, prepare_v2, (void *db, const char *sql, int bytes, void **out, const char **tail))      \
    X(int, step, (void *statement))                                                                \
    X(int, reset, (void *statement))                                                               \
    X(int, finalize, (void *statement))                                                            \
    X(int, stmt_readonly, (void *statement))                                                       \
    X(int, bind_null, (void *statement, int i))                                                    \
    X(int, bind_int64, (void *statement, int i, int64_t v))                                        \
    X(int, bind_double, (void *statement, int i, double v))                                        \
    X(int, bind_text, (void *statement, int i, const char *v, int bytes, void (*done)(void *)))    \
    X(int, bind_blob, (void *statement, int i, const void *v, int bytes, void (*done)(void *)))    \
    X(int, column_count, (void *statement))                                                        \
    X(const char *, column_name, (void *statement, int i))                                         \
    X(const char *, column_decltype, (void *statement, int i))                                     \
    X(int, column_type, (void *statement, int i))                                                  \
    X(int64_t, column_int64, (void *statement, int i))                                             \
    X(double, column_double, (void *statement, int i))                                             \
    X(const unsigned char *, column_text, (void *statement, int i))                                \
    X(const void *, column_blob, (void *statement, int i))                                         \
    X(int, column_bytes, (void *statement, int i))

struct sqlite_api {
#define X(result, name, arguments) result(*name) arguments;
    SQLITE_FUNCTIONS(X)
#undef X
};

/** The library's functions, loaded at the first call. Any thread. Errors: MR_E_UNSUPPORTED (missing, or too old;
 *  names its package). */
int mr_sqlite_load(const struct sqlite_api **out, struct mr_err *err);

/** An open file. */
struct sqlite {
    const struct sqlite_api *api;
    void *db;
    char *path; /* owned */
};
/** Opens a file by a name like "sqlite:rows.db". flags: SQLITE_OPEN_…. Errors: those of mr_sqlite_fail. */
int mr_sqlite_open(struct sqlite *out, const char *name, int flags, struct mr_err *err);
/** Accepts an all-zero struct. */
void mr_sqlite_close(struct sqlite *s);
/** Sets the error for the library's code, with its message and `what` failed: MR_E_UNAVAILABLE (locked by others),
 *  MR_E_EXHAUSTED (disk full, no memory), MR_E_FORBIDDEN (read only), MR_E_NOT_FOUND, MR_E_IO, MR_E_CANCELLED
 *  (interrupted), MR_E_INVALID (all else). */
int mr_sqlite_fail(const struct sqlite *s, int code, const char *what, struct mr_err *err);
/** One statement. The caller finalizes *out. Errors: those of mr_sqlite_fail. */
int mr_sqlite_prepare(const struct sqlite *s, const char *sql, void **out, struct mr_err *err);
/** Statements without rows. */
int mr_sqlite_exec(const struct sqlite *s, const char *sql, struct mr_err *err);
/** The text of a column, until the next step. */
mr_str mr_sqlite_text(const struct sqlite *s, void *statement, int i);

#endif
