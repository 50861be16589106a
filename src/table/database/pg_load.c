/* Finding and loading libpq. */
#include <dlfcn.h>

#include "pg.h"
#include "table/io/library.h"

#define LIBRARY "libpq.so.5"

static int resolve(void *library, const char *path, void *functions, struct mr_err *err)
{
    struct pg_api *api = functions;

    (void)path;
#define X(result, name, arguments)                                                                 \
    *(void **)&api->name = dlsym(library, "PQ" #name);                                             \
    if (!api->name) {                                                                              \
        return MR_FAIL(err, MR_E_UNSUPPORTED, LIBRARY " has no function PQ" #name);                \
    }
    PG_FUNCTIONS(X)
#undef X
    return MR_OK;
}

int mr_pg_load(const struct pg_api **out, struct mr_err *err)
{
    static struct mr_library library = {.lock = PTHREAD_MUTEX_INITIALIZER,
                                        .needs = "tables in PostgreSQL need " LIBRARY
                                                 ": install the package libpq5",
                                        .resolve = resolve};
    static struct pg_api api;

    const int rc = mr_library_load(&library, LIBRARY, &api, err);
    if (rc == MR_OK) {
        *out = &api;
    }
    return rc;
}
