/* Which interpreter runs a Python model, with which environment. */
#ifndef MODEL_INTERPRETER_H
#define MODEL_INTERPRETER_H

#include "archive/cache.h"
#include "base/arena.h"
#include "exec/exec.h"
#include "model/config.h"
#include "model/model.h"

struct interpreter_args {
    const struct mr_models_options *options;
    struct mr_cache *cache;
    const Inference__ModelConfig *config;
    const struct mr_model_desc *desc;
    const char *top; /* of the archive that the model is in, NULL = none */
    /** (may be NULL) Around what may take minutes: false before it begins, true when it is over. */
    void (*on_wait)(void *ctx, bool is_over);
    void *ctx;
};

struct interpreter {
    const char *const *command; /* mr_sentinel_model_args.command */
    const char *const *environment;
    /** The environment, if it lies in the cache; otherwise NULL. The caller's. */
    struct mr_cache_ref *held;
};

bool interpreter_is_needed(const char *backend);
/** The environment that the model's parameter EXECUTION_ENV_PATH names, or model-settings.json of its version, a folder or an
 *  archive; otherwise one made from requirements.txt in the version's folder, the model's or its archive's; otherwise the interpreter of the options, otherwise
 *  python3 of PATH. Its variables are the server's. Strings are the arena's or the options'. desc->loading gets the progress
 *  and says whether to go on. Errors: MR_E_NOT_FOUND, MR_E_INVALID, those of mr_cache_archive and environment_get. Blocks, for
 *  minutes if packages are installed. */
int interpreter_find(struct interpreter *out, struct mr_arena *arena,
                     const struct interpreter_args *args, struct mr_err *err);

#endif
