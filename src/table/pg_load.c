/* Finding and loading libpq.
 *
 * One table of functions for the process, made under a lock at the first call and never taken back. A failure is not
 * kept, so that a library which is installed later is found. */
#include <dlfcn.h>
#include <pthread.h>

#include "pg.h"

#define LIBRARY "libpq.so.5"

static int resolve(void *library, struct pg_api *api, struct mr_err *err)
{
#define X(result, name, arguments)                                                                 \
    *(void **)&api->name = dlsym(library, "PQ" #name);                                             \
    if (!api->name) {                                                                              \
        return MR_FAIL(err, MR_E_UNSUPPORTED, LIBRARY " has no function PQ" #name);                \
    }
    PG_FUNCTIONS(X)
#undef X
    return MR_OK;
}

static int load(struct pg_api *api, struct mr_err *err)
{
    void *library = dlopen(LIBRARY, RTLD_LAZY | RTLD_LOCAL);

    if (!library) {
        return MR_FAIL(err, MR_E_UNSUPPORTED,
                       "tables in PostgreSQL need " LIBRARY ": install the package libpq5 (%s)",
                       dlerror());
    }
    const int rc = resolve(library, api, err);
    if (rc < 0) {
        dlclose(library);
    }
    return rc;
}

int mr_pg_load(const struct pg_api **out, struct mr_err *err)
{
    /* Held through loading: two that come at once must not both load. */
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static struct pg_api api;
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
