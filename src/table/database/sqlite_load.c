/* Finding, loading and calling SQLite's library. */
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "database.h"
#include "sqlite.h"
#include "table/io/library.h"

#define LIBRARY       "libsqlite3.so.0"
#define VERSION_LEAST 3024000 /* 2018 */
#define BUSY_MS       10000   /* wait for a locked file */

static int resolve(void *library, const char *path, void *functions, struct mr_err *err)
{
    struct sqlite_api *api = functions;

    (void)path;
#define X(result, name, arguments)                                                                 \
    *(void **)&api->name = dlsym(library, "sqlite3_" #name);                                       \
    if (!api->name) {                                                                              \
        return MR_FAIL(err, MR_E_UNSUPPORTED, LIBRARY " has no function sqlite3_" #name);          \
    }
    SQLITE_FUNCTIONS(X)
#undef X
    return api->libversion_number() >= VERSION_LEAST
               ? MR_OK
               : MR_FAIL(err, MR_E_UNSUPPORTED, LIBRARY " is SQLite %d; %d or newer is needed",
                         api->libversion_number(), VERSION_LEAST);
}

int mr_sqlite_load(const struct sqlite_api **out, struct mr_err *err)
{
    static struct mr_library library = {.lock = PTHREAD_MUTEX_INITIALIZER,
                                        .needs = "tables in SQLite files need " LIBRARY
                                                 ": install the package libsqlite3-0",
                                        .resolve = resolve};
    static struct sqlite_api api;

    const int rc = mr_library_load(&library, LIBRARY, &api, err);
    if (rc == MR_OK) {
        *out = &api;
    }
    return rc;
}

/* ---- calls ---- */

static int status_of(int code)
{
    switch (code & 0xff) { /* the primary code */
    case SQLITE_BUSY:
    case SQLITE_LOCKED: return MR_E_UNAVAILABLE;
    case SQLITE_NOMEM:
    case SQLITE_FULL: return MR_E_EXHAUSTED;
    case SQLITE_PERM:
    case SQLITE_READONLY: return MR_E_FORBIDDEN;
    case SQLITE_IOERR: return MR_E_IO;
    case SQLITE_INTERRUPT: return MR_E_CANCELLED;
    default: return MR_E_INVALID;
    }
}

int mr_sqlite_fail(const struct sqlite *s, int code, const char *what, struct mr_err *err)
{
    return MR_FAIL(err, status_of(code), "sqlite:%s: %s%s%s", s->path, what, *what ? ": " : "",
                   s->api->errmsg(s->db));
}

int mr_sqlite_open(struct sqlite *out, const char *name, int flags, struct mr_err *err)
{
    const char *path = name + strlen(MR_DATABASE_SQLITE);
    struct sqlite s = {0};
    int rc;

    if (!*path) {
        return MR_FAIL(err, MR_E_INVALID, "'%s' names no file", name);
    }
    MR_TRY(mr_sqlite_load(&s.api, err));
    if (!(flags & SQLITE_OPEN_CREATE) && access(path, F_OK) != 0) {
        rc = MR_FAIL(err, errno == ENOENT ? MR_E_NOT_FOUND : MR_E_IO, "%s: %s", name,
                     strerror(errno));
        goto out;
    }
    s.path = mr_strndup(path, strlen(path));
    const int code = s.api->open_v2(path, &s.db, flags, NULL);
    if (code != SQLITE_OK) {
        rc = code == SQLITE_CANTOPEN ? MR_FAIL(err, MR_E_IO, "%s cannot be opened", name)
                                     : mr_sqlite_fail(&s, code, "", err);
        goto out;
    }
    s.api->busy_timeout(s.db, BUSY_MS);
    *out = s;
    return MR_OK;
out:
    mr_sqlite_close(&s);
    return rc;
}

void mr_sqlite_close(struct sqlite *s)
{
    if (s->db) {
        s->api->close(s->db);
    }
    mr_free(s->path);
    *s = (struct sqlite){0};
}

int mr_sqlite_prepare(const struct sqlite *s, const char *sql, void **out, struct mr_err *err)
{
    const char *tail = "";
    void *statement = NULL;
    const int code = s->api->prepare_v2(s->db, sql, -1, &statement, &tail);

    if (code != SQLITE_OK) {
        return mr_sqlite_fail(s, code, "", err);
    }
    if (!statement || mr_str_trim(mr_str_c(tail)).len > 0) {
        s->api->finalize(statement);
        return MR_FAIL(err, MR_E_INVALID, "sqlite:%s: one statement is expected", s->path);
    }
    *out = statement;
    return MR_OK;
}

int mr_sqlite_exec(const struct sqlite *s, const char *sql, struct mr_err *err)
{
    const int code = s->api->exec(s->db, sql, NULL, NULL, NULL);

    return code == SQLITE_OK ? MR_OK : mr_sqlite_fail(s, code, "", err);
}

mr_str mr_sqlite_text(const struct sqlite *s, void *statement, int i)
{
    const char *text = (const char *)s->api->column_text(statement, i);

    return mr_str_n(text ? text : "", text ? (size_t)s->api->column_bytes(statement, i) : 0);
}
