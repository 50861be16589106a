/* What another server says of a model. */
#ifndef FLOW_REMOTE_SIGNATURE_H
#define FLOW_REMOTE_SIGNATURE_H

#include "millrace/backend.h"
#include "millrace/client.h"

/** Asks for metadata, and for the configuration where the server has one: the size of batches and which inputs are optional.
 *  *out is one block (mr_free). Errors: those of the client; MR_E_INVALID (no such answer), MR_E_UNSUPPORTED (a model of several
 *  answers). Blocks for timeout_ms at most, twice. */
int remote_signature(struct mr_sdk *client, const char *model, const char *version,
                     int64_t timeout_ms, uint32_t max_pending, struct mr_signature **out,
                     struct mr_err *err);

#endif
