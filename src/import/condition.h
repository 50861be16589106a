/* Conditions of KServe's graphs, GJSON paths, as conditions of workflows.
 *
 * A path asks whether something is in a JSON message. Of these, a workflow knows the parameters of the request and the
 * tensors; other paths have no counterpart. */
#ifndef IMPORT_CONDITION_H
#define IMPORT_CONDITION_H

#include "base/arena.h"
#include "base/err.h"

/** `path` as an expression, in the arena:
 *    parameters.NAME                    the request has the parameter
 *    inputs.#(name=="NAME")             it has the tensor; outputs.#(…) likewise
 *    NAME                               the parameter, or the tensor if `is_tensor` says that it is one
 *    [@this].#(PATH OP VALUE)           one of the first three, or predictions.N, compared; OP: == != < <= > >=
 *  `predictions` is the name of the tensor that predictions.N is of; len 0: there is none.
 *  Errors: MR_E_UNSUPPORTED, saying why. */
int condition_translate(mr_str path, bool (*is_tensor)(void *ctx, mr_str name), void *ctx,
                        mr_str predictions, struct mr_arena *arena, mr_str *out,
                        struct mr_err *err);

#endif
