/* Outputs of a shadow beside those of the variant that answered. Pure. */
#ifndef MR_VARIANT_COMPARE_H
#define MR_VARIANT_COMPARE_H

#include "millrace/tensor.h"
#include "variant/config.h"

/** Whether output b of the shadow is the same as a, for `config`. */
bool mr_shadow_outputs_agree(const struct mr_shadow_config *config, const struct mr_tensor *a,
                             const struct mr_tensor *b);

#endif
