/* Calls of the Open Inference Protocol to one model of a server, over REST or gRPC. What is sent and understood is the same
 * for all commands of this program. Thread: that of the client's loop. Source: the protocol's REST and gRPC forms, and
 * Triton's extension for binary tensors. */
#ifndef MR_CLIENT_ENDPOINT_H
#define MR_CLIENT_ENDPOINT_H

#include "net/client.h"
#include "net/compress.h"
#include "oip/oip.h"

/** A value; what it points to is the caller's. */
struct mr_endpoint {
    struct mr_client *client;
    bool is_grpc;
    const char *prefix; /* of REST paths, as in "/gateway"; NULL: none */
    const char *model;
    const char *version; /* NULL: the server's choice */
};

/** Whether the model's name and version, either of which may be NULL here, can be parts of REST's paths; over gRPC any can. Errors:
 *  MR_E_INVALID: '/', '?', '#', a blank or a control character would make it another path, or none. */
int mr_endpoint_names_check(const struct mr_endpoint *e, struct mr_err *err);
/** "PREFIX/v2/models/M[/versions/V]" and `verb`, as in "/infer", in the arena. ptr is NULL without memory. */
mr_str mr_endpoint_path(const struct mr_endpoint *e, const char *verb, struct mr_arena *arena);
/** The headers of an encoded REST request; returns their number. The texts are in `length` or constant. */
size_t mr_endpoint_headers(const struct mr_oip_encoded *body, char length[24],
                           struct mr_header out[2]);

/** Sends an inference; buf and arena are not needed any more when this returns. *out_text_bytes, unless NULL: what of the
 *  request was written as text and not sent from where the tensors lie. `more` are further headers or metadata. Returns the
 *  call, NULL with *err: MR_E_EXHAUSTED and those of mr_oip_rest_encode_request; `done` is not called then. */
struct mr_endpoint_infer {
    struct mr_oip_request *request; /* with gRPC, model_name and model_version are set */
    const struct mr_header *more;   /* at most 6 */
    size_t more_count;
    int64_t timeout_ns;
    enum mr_coding coding;          /* gzip or deflate: of bodies that become smaller by it */
    struct mr_client_memory memory; /* over REST, see mr_client_request */
    bool never_repeat;              /* see mr_client_request */
};
struct mr_client_call *mr_endpoint_infer(const struct mr_endpoint *e,
                                         const struct mr_endpoint_infer *in, struct mr_buf *buf,
                                         struct mr_arena *arena, uint64_t *out_text_bytes,
                                         mr_client_done_fn *done, void *ctx, struct mr_err *err);
/** The value of Inference-Header-Content-Length, -1 without one. */
int64_t mr_endpoint_header_length(const struct mr_client_response *response);
/** Reads the body of an answer with status 200. Errors: those of mr_oip_rest_decode_response. */
int mr_endpoint_decode(const struct mr_endpoint *e, const struct mr_client_response *response,
                       const struct mr_oip_limits *limits, struct mr_arena *arena,
                       struct mr_oip_response *out, struct mr_err *err);

/** Asks for the model's metadata. */
struct mr_client_call *mr_endpoint_metadata(const struct mr_endpoint *e, int64_t timeout_ns,
                                            mr_client_done_fn *done, void *ctx);
/** Reads it from the body of an answer with status 200. */
int mr_endpoint_metadata_decode(const struct mr_endpoint *e, mr_bytes body, struct mr_arena *arena,
                                struct mr_oip_metadata *out, struct mr_err *err);

/** Asks whether the server is alive: for a connection that is to be opened before it is needed. Any answer will do. */
struct mr_client_call *mr_endpoint_live(const struct mr_endpoint *e, int64_t timeout_ns,
                                        mr_client_done_fn *done, void *ctx);

#endif
