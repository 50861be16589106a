/* Which interpreter runs a Python model, with which environment. */
#ifndef MODEL_INTERPRETER_H
#define MODEL_INTERPRETER_H

#include "base/arena.h"
#include "manager.h"

struct interpreter {
    const char *const *command; /* mr_sentinel_model_args.command */
    const char *const *environment;
};

bool interpreter_is_needed(const char *backend);
/** The environment that the model's parameter EXECUTION_ENV_PATH names, otherwise the interpreter of the options, otherwise
 *  python3 of PATH. Its environment is the server's. Strings are the arena's or the options'. Errors: MR_E_NOT_FOUND,
 *  MR_E_INVALID. Blocks on the file system. */
int interpreter_find(struct interpreter *out, struct mr_arena *arena,
                     const struct mr_models_options *o, const Inference__ModelConfig *c,
                     const struct mr_model_desc *desc, struct mr_err *err);

#endif
