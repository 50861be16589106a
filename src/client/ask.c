#include "client/ask.h"

#include "codec/json.h"
#include "codec/pb.h"
#include "codec/pbtext.h"
#include "inference.pb-c.h"

#define SERVICE    "/inference.GRPCInferenceService/"
#define DEPTH_MAX  100
#define FIELD_YES  1 /* ready, live */
#define FIELD_CONF 1

static const struct {
    const char *verb;   /* of the path of a model, or the whole path without the prefix */
    const char *method; /* of gRPC */
} forms[MR_ASK_COUNT] = {
    [MR_ASK_LIVE] = {"/v2/health/live", SERVICE "ServerLive"},
    [MR_ASK_READY] = {"/v2/health/ready", SERVICE "ServerReady"},
    [MR_ASK_MODEL_READY] = {"/ready", SERVICE "ModelReady"},
    [MR_ASK_SERVER] = {"/v2", SERVICE "ServerMetadata"},
    [MR_ASK_MODEL] = {"", SERVICE "ModelMetadata"},
    [MR_ASK_MODEL_CONFIG] = {"/config", SERVICE "ModelConfig"},
};

static struct mr_client_call *ask_grpc(const struct mr_endpoint *e, enum mr_ask ask,
                                       struct mr_client_grpc_request *call, mr_client_done_fn *done,
                                       void *ctx)
{
    struct mr_client_call *started;
    struct mr_buf message;

    mr_buf_init(&message, 0);
    if (mr_ask_is_of_model(ask)) {
        mr_pb_put_str(&message, 1, mr_str_c(e->model));
        mr_pb_put_str(&message, 2, mr_str_c(e->version ? e->version : ""));
    }
    const struct mr_piece piece = {.ptr = message.ptr, .len = message.len};
    call->pieces = &piece;
    call->piece_count = message.len > 0;
    started = mr_client_grpc(e->client, call, done, ctx);
    mr_buf_fini(&message);
    return started;
}

struct mr_client_call *mr_endpoint_ask(const struct mr_endpoint *e, enum mr_ask ask,
                                       const struct mr_header *more, size_t more_count,
                                       int64_t timeout_ns, struct mr_arena *arena,
                                       mr_client_done_fn *done, void *ctx, struct mr_err *err)
{
    if (e->is_grpc) {
        struct mr_client_grpc_request call = {.path = forms[ask].method,
                                              .metadata = more,
                                              .metadata_count = more_count,
                                              .timeout_ns = timeout_ns};
        return ask_grpc(e, ask, &call, done, ctx);
    }
    const mr_str path =
        mr_ask_is_of_model(ask)
            ? mr_endpoint_path(e, forms[ask].verb, arena)
            : mr_arena_printf(arena, "%s%s", e->prefix ? e->prefix : "", forms[ask].verb);
    if (!path.ptr) {
        MR_FAIL(err, MR_E_EXHAUSTED, "no memory for the request's path");
        return NULL;
    }
    const struct mr_client_request call = {.method = "GET",
                                           .path = path,
                                           .headers = more,
                                           .header_count = more_count,
                                           .timeout_ns = timeout_ns};
    return mr_client_send(e->client, &call, done, ctx);
}

bool mr_endpoint_ask_is_no(enum mr_ask ask, int rc, const struct mr_client_response *r)
{
    if (!mr_ask_is_yes_or_no(ask) || !r) {
        return false;
    }
    if (rc == MR_OK) {
        return r->status == 400 || r->status == 404 || r->status == 503;
    }
    return r->grpc_status == MR_GRPC_NOT_FOUND || r->grpc_status == MR_GRPC_UNAVAILABLE ||
           r->grpc_status == MR_GRPC_FAILED_PRECONDITION;
}

/* ---- answers ---- */

static int broken(struct mr_err *err)
{
    return MR_FAIL(err, MR_E_INVALID, "the answer is no message of this kind");
}

static int yes_read(mr_bytes body, bool *out, struct mr_err *err)
{
    struct mr_pb_field f;
    bool is_yes = false;
    int rc;

    while ((rc = mr_pb_next(&body, &f)) > 0) {
        if (f.number == FIELD_YES && f.wire == MR_PB_VARINT) {
            is_yes = f.value != 0;
        }
    }
    if (rc < 0) {
        return broken(err);
    }
    *out = is_yes;
    return MR_OK;
}

/* The configuration within its answer. */
static int config_find(mr_bytes body, mr_bytes *out, struct mr_err *err)
{
    struct mr_pb_field f;
    int rc;

    *out = (mr_bytes){NULL, 0};
    while ((rc = mr_pb_next(&body, &f)) > 0) {
        if (f.number == FIELD_CONF && f.wire == MR_PB_LEN) {
            *out = f.bytes;
        }
    }
    return rc < 0 ? broken(err) : MR_OK;
}

static int print(const ProtobufCMessageDescriptor *what, mr_bytes message, struct mr_buf *out,
                 struct mr_err *err)
{
    ProtobufCMessage *m = protobuf_c_message_unpack(what, NULL, message.len, message.ptr);

    if (!m) {
        return broken(err);
    }
    mr_pbjson_print(m, true, out);
    protobuf_c_message_free_unpacked(m, NULL);
    return out->failed ? MR_FAIL(err, MR_E_TOO_LARGE, "the answer as JSON is too large") : MR_OK;
}

static int print_grpc(enum mr_ask ask, mr_bytes body, struct mr_buf *out, struct mr_err *err)
{
    int rc;

    if (ask == MR_ASK_SERVER) {
        return print(&inference__server_metadata_response__descriptor, body, out, err);
    }
    if (ask == MR_ASK_MODEL) {
        return print(&inference__model_metadata_response__descriptor, body, out, err);
    }
    rc = config_find(body, &body, err);
    return rc < 0 ? rc : print(&inference__model_config__descriptor, body, out, err);
}

static int text_read(mr_bytes body, struct mr_arena *arena, struct mr_buf *out, struct mr_err *err)
{
    struct mr_json j;
    mr_str text;

    mr_json_init(&j, mr_str_n((const char *)body.ptr, body.len), arena, DEPTH_MAX, err);
    if (mr_json_peek(&j) != MR_JSON_OBJECT || mr_json_skip(&j, &text) < 0 ||
        mr_json_finish(&j) < 0) {
        return MR_FAIL(err, MR_E_INVALID, "the answer is no JSON object");
    }
    mr_buf_append(out, text.ptr, text.len);
    return out->failed ? MR_FAIL(err, MR_E_TOO_LARGE, "the answer is too large") : MR_OK;
}

int mr_endpoint_ask_decode(const struct mr_endpoint *e, enum mr_ask ask, mr_bytes body,
                           struct mr_arena *arena, struct mr_buf *out_text, bool *out_yes,
                           struct mr_err *err)
{
    if (mr_ask_is_yes_or_no(ask)) {
        if (e->is_grpc) {
            return yes_read(body, out_yes, err);
        }
        *out_yes = true;
        return MR_OK;
    }
    return e->is_grpc ? print_grpc(ask, body, out_text, err)
                      : text_read(body, arena, out_text, err);
}
