/* What a server or a model says of itself, over REST or gRPC: whether it is ready, its metadata, its configuration. Thread: that of
 * the client's loop. Source: the Open Inference Protocol, and Triton's extension for configurations. */
#ifndef MR_CLIENT_ASK_H
#define MR_CLIENT_ASK_H

#include "client/endpoint.h"

/** Those of a model use the endpoint's model and version. */
enum mr_ask {
    MR_ASK_LIVE,         /* yes or no */
    MR_ASK_READY,        /* yes or no */
    MR_ASK_MODEL_READY,  /* yes or no */
    MR_ASK_SERVER,       /* a JSON object */
    MR_ASK_MODEL,        /* a JSON object */
    MR_ASK_MODEL_CONFIG, /* a JSON object */
    MR_ASK_COUNT
};

static inline bool mr_ask_is_of_model(enum mr_ask ask)
{
    return ask == MR_ASK_MODEL_READY || ask == MR_ASK_MODEL || ask == MR_ASK_MODEL_CONFIG;
}
static inline bool mr_ask_is_yes_or_no(enum mr_ask ask)
{
    return ask <= MR_ASK_MODEL_READY;
}

/** Asks; the arena is not needed any more when this returns. `more`: further headers or metadata, at most 6. NULL with *err:
 *  MR_E_EXHAUSTED; `done` is not called then. */
struct mr_client_call *mr_endpoint_ask(const struct mr_endpoint *e, enum mr_ask ask,
                                       const struct mr_header *more, size_t more_count,
                                       int64_t timeout_ns, struct mr_arena *arena,
                                       mr_client_done_fn *done, void *ctx, struct mr_err *err);

/** The arguments of mr_client_done_fn: whether they are a "no" to a question of yes or no, and not a failure. A server that is not
 *  ready, or does not have the model, says so by a status. */
bool mr_endpoint_ask_is_no(enum mr_ask ask, int rc, const struct mr_client_response *response);
/** Reads an answer, of HTTP status 200 and gRPC status 0: *out_yes, or a JSON object that is appended to out_text. With gRPC it has the form
 *  that REST has. Errors: MR_E_INVALID (not such an answer), MR_E_TOO_LARGE (out_text has failed). */
int mr_endpoint_ask_decode(const struct mr_endpoint *e, enum mr_ask ask, mr_bytes body,
                           struct mr_arena *arena, struct mr_buf *out_text, bool *out_yes,
                           struct mr_err *err);

#endif
