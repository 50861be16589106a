/* Versions for which there is no memory are refused. Thread: loader. */
#ifndef MR_MODEL_ADMIT_H
#define MR_MODEL_ADMIT_H

#include "state.h"

/** Reserves memory for a version whose files have file_bytes. *out_reserved is to be passed to mr_admit_end when the version
 *  is open or has failed. Errors: MR_E_EXHAUSTED, with figures. */
int mr_admit(struct mr_models *m, const struct mr_model *model, uint64_t file_bytes,
             uint64_t *out_reserved, struct mr_err *err);
void mr_admit_end(struct mr_models *m, uint64_t reserved);

#endif
