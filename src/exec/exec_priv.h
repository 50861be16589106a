/* What the files of this module share. */
#ifndef MR_EXEC_PRIV_H
#define MR_EXEC_PRIV_H

#include "exec/exec.h"

/* Every wanted output (`wanted` NULL: all) is set, and strings are valid. Errors: MR_E_INTERNAL naming the
 * output. */
int exec_outputs_complete(const struct mr_exec_outputs *o, const uint8_t *wanted,
                          struct mr_err *err);

#endif
