/* A library that is loaded when a table needs it. The process has one table of its functions, made under a lock at
 * the first call and kept, as a library with threads of its own cannot be unloaded safely. A failure is not kept, so
 * that a library installed later is found. */
#ifndef MR_TABLE_LIBRARY_H
#define MR_TABLE_LIBRARY_H

#include <pthread.h>
#include <stdbool.h>

#include "base/err.h"

struct mr_library {
    pthread_mutex_t lock; /* held during loading, so that two threads do not both load */
    bool is_loaded;
    const char *needs; /* for the error: what needs it and what to install */
    /** Puts its functions into `api`. Errors: MR_E_UNSUPPORTED. */
    int (*resolve)(void *library, const char *path, void *api, struct mr_err *err);
};

/** Loads it once. `path` as for dlopen. Any thread. Errors: MR_E_UNSUPPORTED. */
int mr_library_load(struct mr_library *l, const char *path, void *api, struct mr_err *err);

#endif
