/* Virtual environments with the packages of a requirements.txt. */
#ifndef MODEL_ENVIRONMENT_H
#define MODEL_ENVIRONMENT_H

#include "archive/cache.h"
#include "exec/exec.h"

struct environment_args {
    struct mr_cache *cache;
    const char *model;  /* for the log */
    const char *python; /* the interpreter that it is for */
    const char *script; /* millrace_environment.py */
    /** Path of the file; a folder `wheels` beside it is all that is installed from. */
    const char *requirements;
    struct mr_loading *loading;
    /** (may be NULL) As in interpreter_args. */
    void (*on_wait)(void *ctx, bool is_over);
    void *ctx;
};
/** The environment for these packages, this interpreter and these wheels, made if the cache does not have it; *out NULL: the
 *  file asks for nothing. A child process makes it. Errors: MR_E_INVALID (with the reason that pip or uv gave), MR_E_CANCELLED,
 *  those of mr_cache_get and mr_process_spawn. */
int environment_get(const struct environment_args *args, struct mr_cache_ref **out,
                    struct mr_err *err);

#endif
