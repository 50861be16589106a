/* The environment of a ModelMesh container as options: what KV_STORE and its variables say, where there is a counterpart. */
#ifndef MR_CLI_MODELMESH_ENV_H
#define MR_CLI_MODELMESH_ENV_H

#include "base/options.h"

/** If `env` has KV_STORE: gives the options that its variables mean. Before mr_options_parse. */
void mr_modelmesh_env(struct mr_options *o, char *const *env);
/** One line of the log with the names of the variables that have no effect, if there are any. */
void mr_modelmesh_env_log(char *const *env);

#endif
