/* Tensors in memory that a client has passed on its connection (mr_call_passed_memory), which requests name as region
 * "descriptor" of Triton's shared-memory parameters. Over REST. On network threads. */
#ifndef MR_SERVE_STATE_CLIENT_MEMORY_H
#define MR_SERVE_STATE_CLIENT_MEMORY_H

#include "infer.h"

bool client_memory_is_there(const struct serve_infer *si);
/* Copies inputs from there, into blocks of the request's arena, and checks the places of outputs. Errors (si->infer.err):
 * MR_E_UNSUPPORTED (there is none), MR_E_NOT_FOUND (another region), MR_E_INVALID, MR_E_TOO_LARGE, MR_E_EXHAUSTED,
 * MR_E_CANCELLED. */
int client_memory_read(struct serve_infer *si);
/* Copies outputs to their places; those that do not fit stay in the answer. Errors: MR_E_CANCELLED. */
int client_memory_write(struct serve_infer *si, struct mr_oip_response *io);

#endif
