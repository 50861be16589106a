/* Libraries of backends, opened once. */
#ifndef MR_MODEL_BACKENDS_H
#define MR_MODEL_BACKENDS_H

#include "placement.h"

/** Opens a model in its backend, here or in a worker process, as the version's executor. Blocks. Errors: those of mr_plugin_model_open and
 *  mr_sentinel_model_open. */
int mr_backend_model_open(struct mr_models *m, const Inference__ModelConfig *c,
                          enum mr_placement placement, const struct mr_model_desc *desc,
                          struct mr_version_private *p, struct mr_err *err);
/** Checks that all backends that options name exist; a missing one of Triton's is only a warning. Errors:
 *  MR_E_INVALID. Thread: boot. */
int mr_backends_check(const struct mr_models_options *o, struct mr_err *err);
bool mr_backend_is_open(struct mr_models *m, const char *name);
void mr_backends_close(struct mr_models *m);

#endif
