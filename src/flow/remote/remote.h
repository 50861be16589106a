/* The executor of models of other servers. */
#ifndef FLOW_REMOTE_H
#define FLOW_REMOTE_H

#include "exec/exec.h"

/** Opens the model that the settings name: `remote` (addresses as of the client library, separated by ';'), `model` (desc->name if it
 *  is not given), `version`, `timeout_ms` of a request that has no deadline. Asks its server for inputs and outputs. Errors:
 *  MR_E_INVALID, MR_E_UNSUPPORTED, MR_E_UNAVAILABLE and those of that server. Blocks for 10 s at most. Thread: loader. */
int remote_open(const struct mr_model_desc *desc, struct mr_executor **out, struct mr_err *err);

#endif
