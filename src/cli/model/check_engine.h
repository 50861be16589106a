/* The engine of commands that load models to look at them, in worker processes: what crashes is to be seen, not to be died of. */
#ifndef CLI_MODEL_CHECK_ENGINE_H
#define CLI_MODEL_CHECK_ENGINE_H

#include "engine/engine.h"

/** Loads what `models` names, which has repositories, names, and where they matter links, Python, the cache and `maker`; the rest is set
 *  here. Whether a model has loaded, mr_models_report says. Errors: those of mr_engine_new and mr_models_start; *out may be
 *  set with them. */
int check_engine_start(struct mr_engine **out, struct mr_models_options *models,
                       struct mr_err *err);
/** NULL is allowed. Waits for requests and worker processes. */
void check_engine_stop(struct mr_engine **e);

#endif
