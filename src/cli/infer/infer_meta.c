/* What inputs and outputs a model has, asked over the protocol that the request will take. */
#include "infer.h"
#include "inference.pb-c.h"

/* ---- REST ---- */

static int get_rest(struct infer *x, struct mr_err *err)
{
    struct mr_remote_reply reply;
    mr_str path = x->opt.version ? mr_arena_printf(&x->arena, "/v2/models/%s/versions/%s",
                                                   x->opt.model, x->opt.version)
                                 : mr_arena_printf(&x->arena, "/v2/models/%s", x->opt.model);
    int rc = mr_remote_text(&x->remote, path.ptr ? path.ptr : "", NULL, &reply, err);

    if (rc == MR_OK) {
        rc = mr_oip_rest_decode_metadata(reply.body, &x->arena, &x->meta, err);
        mr_remote_reply_fini(&reply);
    }
    return rc;
}

/* ---- gRPC ---- */

static int copy_ios(struct mr_arena *arena, Inference__ModelMetadataResponse__TensorMetadata **from,
                    size_t count, struct mr_oip_io **out, size_t *out_count, struct mr_err *err)
{
    struct mr_oip_io *list = MR_ARENA_ARRAY(arena, struct mr_oip_io, count + 1);

    if (!list) {
        return MR_FAIL(err, MR_E_TOO_LARGE, "too many tensors");
    }
    for (size_t i = 0; i < count; i++) {
        if (from[i]->n_shape > MR_MAX_RANK) {
            return MR_FAIL(err, MR_E_UNSUPPORTED, "more than %d dimensions", MR_MAX_RANK);
        }
        list[i].name = mr_arena_str(arena, mr_str_c(from[i]->name));
        list[i].dtype = mr_dtype_from_name(mr_str_c(from[i]->datatype));
        list[i].rank = (int)from[i]->n_shape;
        for (size_t d = 0; d < from[i]->n_shape; d++) {
            list[i].shape[d] = from[i]->shape[d];
        }
    }
    *out = list;
    *out_count = count;
    return MR_OK;
}

static int parse_grpc(struct infer *x, mr_bytes body, struct mr_err *err)
{
    Inference__ModelMetadataResponse *m =
        inference__model_metadata_response__unpack(NULL, body.len, body.ptr);
    int rc;

    if (!m) {
        return MR_FAIL(err, MR_E_INVALID, "the model's metadata cannot be read");
    }
    rc = copy_ios(&x->arena, m->inputs, m->n_inputs, &x->meta.inputs, &x->meta.input_count, err);
    if (rc == MR_OK) {
        rc = copy_ios(&x->arena, m->outputs, m->n_outputs, &x->meta.outputs, &x->meta.output_count,
                      err);
    }
    inference__model_metadata_response__free_unpacked(m, NULL);
    return rc;
}

static int get_grpc(struct infer *x, struct mr_err *err)
{
    Inference__ModelMetadataRequest ask = INFERENCE__MODEL_METADATA_REQUEST__INIT;
    struct mr_remote_reply reply;
    struct mr_buf message;

    /* protobuf-c's structs take char *, and leave it alone. */
    ask.name = (char *)(uintptr_t)x->opt.model;
    if (x->opt.version) {
        ask.version = (char *)(uintptr_t)x->opt.version;
    }
    mr_buf_init(&message, 0);
    char *p =
        mr_buf_reserve(&message, inference__model_metadata_request__get_packed_size(&ask) + 1);
    message.len = p ? inference__model_metadata_request__pack(&ask, (uint8_t *)p) : 0;
    struct mr_piece piece = {.ptr = message.ptr, .len = message.len};
    int rc = mr_remote_grpc(&x->remote, "/inference.GRPCInferenceService/ModelMetadata", &piece, 1,
                            &reply, err);
    if (rc == MR_OK) {
        rc = parse_grpc(x, reply.body, err);
        mr_remote_reply_fini(&reply);
    }
    mr_buf_fini(&message);
    return rc;
}

int infer_meta_get(struct infer *x, struct mr_err *err)
{
    return x->opt.protocol == INFER_GRPC ? get_grpc(x, err) : get_rest(x, err);
}
