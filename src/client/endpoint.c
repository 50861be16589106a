#include "client/endpoint.h"

#include <stdio.h>

#include "base/buf.h"
#include "codec/pb.h"
#include "pack.h"

#define SERVICE  "/inference.GRPCInferenceService/"
#define MORE_MAX 6

/* Names are sent as they are: servers of the protocol do not agree on escapes in paths. */
static bool is_part_of_path(const char *name)
{
    for (const char *c = name; c && *c; c++) {
        if ((unsigned char)*c <= ' ' || *c == 0x7f || strchr("/?#", *c)) {
            return false;
        }
    }
    return true;
}

int mr_endpoint_names_check(const struct mr_endpoint *e, struct mr_err *err)
{
    const char *name = !is_part_of_path(e->model)     ? e->model
                       : !is_part_of_path(e->version) ? e->version
                                                      : NULL;

    if (e->is_grpc || !name) {
        return MR_OK;
    }
    return MR_FAIL(err, MR_E_INVALID,
                   "'%.100s': over REST names of models and versions have no '/', '?' or '#', no "
                   "blanks and no control characters",
                   name);
}

mr_str mr_endpoint_path(const struct mr_endpoint *e, const char *verb, struct mr_arena *arena)
{
    const char *parts[] = {
        e->prefix ? e->prefix : "",   "/v2/models/", e->model, e->version ? "/versions/" : "",
        e->version ? e->version : "", verb};
    const size_t count = sizeof parts / sizeof *parts;
    size_t len = 0;

    for (size_t i = 0; i < count; i++) {
        len += strlen(parts[i]);
    }
    char *text = mr_arena_try(arena, len + 1, 1), *at = text;
    for (size_t i = 0; text && i < count; i++) {
        at = stpcpy(at, parts[i]);
    }
    return (mr_str){text, text ? len : 0};
}

size_t mr_endpoint_headers(const struct mr_oip_encoded *body, char length[24],
                           struct mr_header out[2])
{
    if (body->header_length < 0) {
        out[0] = (struct mr_header){MR_STR("content-type"), MR_STR("application/json")};
        return 1;
    }
    const size_t n = (size_t)(mr_i64_put(length, body->header_length) - length);
    out[0] = (struct mr_header){MR_STR("content-type"), MR_STR("application/octet-stream")};
    out[1] = (struct mr_header){MR_STR("inference-header-content-length"), mr_str_n(length, n)};
    return 2;
}

static mr_str coding_name(enum mr_coding coding)
{
    return coding == MR_CODING_GZIP      ? MR_STR("gzip")
           : coding == MR_CODING_DEFLATE ? MR_STR("deflate")
                                         : (mr_str){NULL, 0};
}

/* A body that is not sent. */
static void pieces_drop(struct mr_oip_encoded *body)
{
    for (size_t i = 0; i < body->piece_count; i++) {
        mr_block_unref(&body->pieces[i].block);
    }
}

static struct mr_client_call *send_grpc(const struct mr_endpoint *e,
                                        const struct mr_endpoint_infer *in, struct mr_buf *buf,
                                        struct mr_arena *arena, mr_client_done_fn *done, void *ctx,
                                        struct mr_err *err)
{
    struct mr_oip_encoded body;
    enum mr_coding coding;

    in->request->model_name = mr_str_c(e->model);
    in->request->model_version = mr_str_c(e->version ? e->version : "");
    if (mr_oip_pb_encode_request(in->request, buf, arena, &body, err) < 0) {
        return NULL;
    }
    if (pack_body(in->coding, &body, arena, &coding, err) < 0) {
        pieces_drop(&body);
        return NULL;
    }
    const struct mr_client_grpc_request call = {.path = SERVICE "ModelInfer",
                                                .metadata = in->more,
                                                .metadata_count = in->more_count,
                                                .pieces = body.pieces,
                                                .piece_count = body.piece_count,
                                                .encoding = coding_name(coding),
                                                .timeout_ns = in->timeout_ns,
                                                .never_repeat = in->never_repeat};
    return mr_client_grpc(e->client, &call, done, ctx);
}

struct mr_client_call *mr_endpoint_infer(const struct mr_endpoint *e,
                                         const struct mr_endpoint_infer *in, struct mr_buf *buf,
                                         struct mr_arena *arena, uint64_t *out_text_bytes,
                                         mr_client_done_fn *done, void *ctx, struct mr_err *err)
{
    struct mr_header headers[3 + MORE_MAX];
    struct mr_oip_encoded body;
    enum mr_coding coding;
    char length[24];

    if (e->is_grpc) {
        return send_grpc(e, in, buf, arena, done, ctx, err);
    }
    if (mr_oip_rest_encode_request(in->request, buf, arena, &body, err) < 0) {
        return NULL;
    }
    if (out_text_bytes) {
        *out_text_bytes = body.header_length >= 0 ? (uint64_t)body.header_length : body.bytes;
    }
    const mr_str path = mr_endpoint_path(e, "/infer", arena);
    if (!path.ptr) {
        MR_FAIL(err, MR_E_EXHAUSTED, "no memory for the request's path");
    }
    if (!path.ptr || pack_body(in->coding, &body, arena, &coding, err) < 0) {
        pieces_drop(&body);
        return NULL;
    }
    size_t n = mr_endpoint_headers(&body, length, headers);
    if (coding != MR_CODING_IDENTITY) {
        headers[n++] = (struct mr_header){MR_STR("content-encoding"), coding_name(coding)};
    }
    for (size_t i = 0; i < in->more_count && i < MORE_MAX; i++) {
        headers[n++] = in->more[i];
    }
    const struct mr_client_request call = {.method = "POST",
                                           .path = path,
                                           .headers = headers,
                                           .header_count = n,
                                           .pieces = body.pieces,
                                           .piece_count = body.piece_count,
                                           .timeout_ns = in->timeout_ns,
                                           .memory = in->memory,
                                           .never_repeat = in->never_repeat};
    return mr_client_send(e->client, &call, done, ctx);
}

int64_t mr_endpoint_header_length(const struct mr_client_response *response)
{
    int64_t length;

    for (size_t i = 0; i < response->header_count; i++) {
        const struct mr_header *h = &response->headers[i];
        if (mr_str_eq_c(h->name, "inference-header-content-length") &&
            mr_str_to_i64(h->value, &length)) {
            return length;
        }
    }
    return -1;
}

int mr_endpoint_decode(const struct mr_endpoint *e, const struct mr_client_response *response,
                       const struct mr_oip_limits *limits, struct mr_arena *arena,
                       struct mr_oip_response *out, struct mr_err *err)
{
    return e->is_grpc
               ? mr_oip_pb_decode_response(response->body, limits, arena, out, err)
               : mr_oip_rest_decode_response(response->body, mr_endpoint_header_length(response),
                                             limits, arena, out, err);
}

struct mr_client_call *mr_endpoint_metadata(const struct mr_endpoint *e, int64_t timeout_ns,
                                            mr_client_done_fn *done, void *ctx)
{
    struct mr_client_call *call;
    struct mr_arena arena;
    struct mr_buf message;

    if (e->is_grpc) {
        mr_buf_init(&message, 0);
        mr_pb_put_str(&message, 1, mr_str_c(e->model));
        mr_pb_put_str(&message, 2, mr_str_c(e->version ? e->version : ""));
        const struct mr_piece piece = {.ptr = message.ptr, .len = message.len};
        call = mr_client_grpc(e->client,
                              &(struct mr_client_grpc_request){.path = SERVICE "ModelMetadata",
                                                               .pieces = &piece,
                                                               .piece_count = 1,
                                                               .timeout_ns = timeout_ns},
                              done, ctx);
        mr_buf_fini(&message);
        return call;
    }
    mr_arena_init(&arena, 1024, 1 << 20);
    call = mr_client_send(e->client,
                          &(struct mr_client_request){.method = "GET",
                                                      .path = mr_endpoint_path(e, "", &arena),
                                                      .timeout_ns = timeout_ns},
                          done, ctx);
    mr_arena_fini(&arena);
    return call;
}

int mr_endpoint_metadata_decode(const struct mr_endpoint *e, mr_bytes body, struct mr_arena *arena,
                                struct mr_oip_metadata *out, struct mr_err *err)
{
    return e->is_grpc ? mr_oip_pb_decode_metadata(body, arena, out, err)
                      : mr_oip_rest_decode_metadata(body, arena, out, err);
}

struct mr_client_call *mr_endpoint_live(const struct mr_endpoint *e, int64_t timeout_ns,
                                        mr_client_done_fn *done, void *ctx)
{
    char path[300];

    if (e->is_grpc) {
        return mr_client_grpc(e->client,
                              &(struct mr_client_grpc_request){.path = SERVICE "ServerLive",
                                                               .timeout_ns = timeout_ns},
                              done, ctx);
    }
    snprintf(path, sizeof path, "%s/v2/health/live", e->prefix ? e->prefix : "");
    return mr_client_send(e->client,
                          &(struct mr_client_request){
                              .method = "GET", .path = mr_str_c(path), .timeout_ns = timeout_ns},
                          done, ctx);
}
