/* A library that is loaded when a table needs it. One table of its functions for the process, made under a lock at the
 * first call and never taken back: a library with threads of its own cannot be unloaded safely. A failure is not kept, so
 * that a library which is installed later is found. */
#ifndef MR_TABLE_LIBRARY_H
#define MR_TABLE_LIBRARY_H

#include <pthread.h>
#include <stdbool.h>

#include "base/err.h"

struct mr_library {
    pthread_mutex_t lock; /* held through loading: two that come at once must not both load */
    bool is_loaded;
    const char *needs; /* of the error: who needs it and what to install */
    /** Its functions into `api`. Errors: MR_E_UNSUPPORTED. */
    int (*resolve)(void *library, const char *path, void *api, struct mr_err *err);
};

/** Loads it, unless it is. `path` as dlopen takes it. Any thread. Errors: MR_E_UNSUPPORTED. */
int mr_library_load(struct mr_library *l, const char *path, void *api, struct mr_err *err);

#endif
