/* REST handlers of inference (routes.c). */
#ifndef MR_SERVE_HTTP_REST_INFER_H
#define MR_SERVE_HTTP_REST_INFER_H

#include "serve/state/infer.h"
#include "serve/state/state.h"

void rest_infer(struct mr_server *s, struct mr_call *call, const struct mr_oip_path *path);
/* Passes the call to a model that takes messages, and replies with its answer. kind: the kind of request, static. */
void rest_ask(struct mr_call *call, const struct mr_oip_path *path, const char *kind);
/* Inference-Header-Content-Length, at most body_len; -1 without the header. Errors: MR_E_INVALID (no such number; two of
 * them). */
int rest_header_length(const struct mr_call *call, size_t body_len, int64_t *out,
                       struct mr_err *err);
#define REST_PACKED                                                                                \
    "Content-Encoding '%.*s': only the bodies of inference requests may be compressed"
/* Whether it has a content-encoding. */
bool rest_is_packed(const struct mr_call *call);
/* The body as sent, or decompressed into a block that lives with the call. Errors: MR_E_UNSUPPORTED (a coding that is not
 * known), MR_E_INVALID, MR_E_TOO_LARGE, MR_E_EXHAUSTED. */
int rest_plain_body(struct serve_infer *si, mr_bytes *out, struct mr_err *err);

#endif
