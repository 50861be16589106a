#include "library.h"

#include <dlfcn.h>

static int load(const struct mr_library *l, const char *path, void *api, struct mr_err *err)
{
    /* Lazily: most of the functions are never called. */
    void *library = dlopen(path, RTLD_LAZY | RTLD_LOCAL);

    if (!library) {
        return MR_FAIL(err, MR_E_UNSUPPORTED, "%s (%s)", l->needs, dlerror());
    }
    const int rc = l->resolve(library, path, api, err);
    if (rc < 0) {
        dlclose(library);
    }
    return rc;
}

int mr_library_load(struct mr_library *l, const char *path, void *api, struct mr_err *err)
{
    int rc = MR_OK;

    pthread_mutex_lock(&l->lock);
    if (!l->is_loaded) {
        rc = load(l, path, api, err);
        l->is_loaded = rc == MR_OK;
    }
    pthread_mutex_unlock(&l->lock);
    return rc;
}
