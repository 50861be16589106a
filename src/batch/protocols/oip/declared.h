/* Tensors of a model as the user declares them, for hosts without metadata: MLServer and KServe report none unless
 * the model's settings or its code name them. Private. */
#ifndef MR_BATCH_DECLARED_H
#define MR_BATCH_DECLARED_H

#include "batch/batch.h"
#include "oip/oip.h"

/** Inputs and outputs of the options where the metadata has none; in the arena, names point into the options.
 *  Errors: MR_E_INVALID (names the text). */
int declared_fill(const struct mr_batch_options *o, struct mr_arena *arena,
                  struct mr_oip_metadata *m, struct mr_err *err);

#endif
