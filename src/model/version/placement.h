/* Where a model runs: in the server, or in a worker process. */
#ifndef MR_MODEL_PLACEMENT_H
#define MR_MODEL_PLACEMENT_H

#include "model/config/config_priv.h"
#include "model/records/state.h"

enum mr_placement { MR_PLACEMENT_THREAD, MR_PLACEMENT_PROCESS };
/** Errors: MR_E_INVALID (no such placement). */
int mr_placement_of(const struct mr_models *m, const Inference__ModelConfig *c,
                    enum mr_placement *out, struct mr_err *err);
/** Errors: MR_E_INVALID (an option). */
int mr_placements_check(const struct mr_models_options *o, struct mr_err *err);
/** The one that starts worker processes; made at the first use. Errors: MR_E_EXHAUSTED, MR_E_NOMEM. */
int mr_models_sentinel(struct mr_models *m, struct mr_sentinel **out, struct mr_err *err);

#endif
