/* Finding and loading DuckDB's library. */
#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "duckdb.h"
#include "table/io/library.h"

/* <folder of the program>/../lib/millrace/libduckdb.so */
static bool beside_program(char *out, size_t room)
{
    char path[PATH_MAX];
    const ssize_t n = readlink("/proc/self/exe", path, sizeof path - 1);

    if (n <= 0) {
        return false;
    }
    path[n] = '\0';
    for (int up = 0; up < 2; up++) {
        char *slash = strrchr(path, '/');
        if (!slash) {
            return false;
        }
        *slash = '\0';
    }
    const int made = snprintf(out, room, "%s/lib/millrace/libduckdb.so", path);
    return made > 0 && (size_t)made < room && access(out, R_OK) == 0;
}

static int resolve(void *library, const char *path, void *functions, struct mr_err *err)
{
    struct duck_api *api = functions;

#define X(result, name, arguments)                                                                 \
    *(void **)&api->name = dlsym(library, "duckdb_" #name);                                        \
    if (!api->name) {                                                                              \
        return MR_FAIL(err, MR_E_UNSUPPORTED, "'%s' has no function duckdb_" #name, path);         \
    }
    DUCK_FUNCTIONS(X)
#undef X
    /* The layouts of structs passed by value are stable since version 1. */
    const char *version = api->library_version();
    if (strtol(version + (*version == 'v'), NULL, 10) < 1) {
        return MR_FAIL(err, MR_E_UNSUPPORTED, "'%s' is DuckDB %s; version 1 or newer is needed",
                       path, version);
    }
    return MR_OK;
}

int mr_duck_load(const struct duck_api **out, struct mr_err *err)
{
    static struct mr_library library = {
        .lock = PTHREAD_MUTEX_INITIALIZER,
        .needs = "reading Parquet and SQL needs DuckDB's C library (libduckdb.so): run tools/setup "
                 "and build again, or set MILLRACE_DUCKDB to its file",
        .resolve = resolve};
    static struct duck_api api;
    char beside[PATH_MAX];
    const char *path = getenv("MILLRACE_DUCKDB");

    if (!path || !*path) {
        path = beside_program(beside, sizeof beside) ? beside : "libduckdb.so";
    }
    const int rc = mr_library_load(&library, path, &api, err);
    if (rc == MR_OK) {
        *out = &api;
    }
    return rc;
}
