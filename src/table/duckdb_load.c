/* Finding and loading DuckDB's library.
 *
 * One table of functions for the process, made under a lock at the first call and never taken back: a library with
 * threads of its own cannot be unloaded safely. A failure is not kept, so that a library which is put there later is
 * found. */
#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "duckdb.h"

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

static int resolve(void *library, const char *path, struct duck_api *api, struct mr_err *err)
{
#define X(result, name, arguments)                                                                 \
    *(void **)&api->name = dlsym(library, "duckdb_" #name);                                        \
    if (!api->name) {                                                                              \
        return MR_FAIL(err, MR_E_UNSUPPORTED, "'%s' has no function duckdb_" #name, path);         \
    }
    DUCK_FUNCTIONS(X)
#undef X
    /* The layouts that are passed by value hold since version 1. */
    const char *version = api->library_version();
    if (strtol(version + (*version == 'v'), NULL, 10) < 1) {
        return MR_FAIL(err, MR_E_UNSUPPORTED, "'%s' is DuckDB %s; version 1 or newer is needed",
                       path, version);
    }
    return MR_OK;
}

static int load(struct duck_api *api, struct mr_err *err)
{
    char beside[PATH_MAX];
    const char *path = getenv("MILLRACE_DUCKDB");

    if (!path || !*path) {
        path = beside_program(beside, sizeof beside) ? beside : "libduckdb.so";
    }
    /* Lazily: most of its thousands of functions are never called. */
    void *library = dlopen(path, RTLD_LAZY | RTLD_LOCAL);
    if (!library) {
        return MR_FAIL(err, MR_E_UNSUPPORTED,
                       "reading Parquet and SQL needs DuckDB's C library (libduckdb.so): run "
                       "tools/setup and build again, or set MILLRACE_DUCKDB to its file (%s)",
                       dlerror());
    }
    const int rc = resolve(library, path, api, err);
    if (rc < 0) {
        dlclose(library);
    }
    return rc;
}

int mr_duck_load(const struct duck_api **out, struct mr_err *err)
{
    /* Held through loading: two sources that are opened at once must not both load. */
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static struct duck_api api;
    static bool is_loaded;
    int rc = MR_OK;

    pthread_mutex_lock(&lock);
    if (!is_loaded) {
        rc = load(&api, err);
        is_loaded = rc == MR_OK;
    }
    pthread_mutex_unlock(&lock);
    if (rc == MR_OK) {
        *out = &api;
    }
    return rc;
}
