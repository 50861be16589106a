/* What inputs and outputs a model has, asked over the protocol that the request will take. */
#include "codec/json.h"
#include "infer.h"
#include "inference.pb-c.h"

const struct infer_io *infer_find_input(const struct infer_meta *m, mr_str name)
{
    for (size_t i = 0; i < m->input_count; i++) {
        if (mr_str_eq(m->inputs[i].name, name)) {
            return &m->inputs[i];
        }
    }
    return NULL;
}

/* ---- REST ---- */

static int parse_shape(struct mr_json *j, struct infer_io *io)
{
    bool first = true;
    int rc = mr_json_enter_array(j);

    while (rc == MR_OK && mr_json_next_item(j, &first)) {
        if (io->rank == MR_MAX_RANK) {
            return mr_json_fail(j, MR_E_UNSUPPORTED, "more than %d dimensions", MR_MAX_RANK);
        }
        rc = mr_json_i64(j, &io->shape[io->rank++]);
    }
    return rc < 0 ? rc : j->status;
}

static int parse_io(struct mr_json *j, struct infer_io *io, struct mr_arena *arena)
{
    bool first = true;
    mr_str key;
    mr_str text = {"", 0};
    int rc = mr_json_enter_object(j);

    while (rc == MR_OK && mr_json_next_key(j, &first, &key)) {
        if (mr_str_eq_c(key, "name")) {
            rc = mr_json_string(j, &text);
            io->name = mr_arena_str(arena, text);
        } else if (mr_str_eq_c(key, "datatype")) {
            rc = mr_json_string(j, &text);
            io->dtype = mr_dtype_from_name(text);
        } else if (mr_str_eq_c(key, "shape")) {
            rc = parse_shape(j, io);
        } else {
            rc = mr_json_skip(j, NULL);
        }
    }
    return rc < 0 ? rc : j->status;
}

static int parse_ios(struct mr_json *j, struct mr_arena *arena, struct infer_io **out,
                     size_t *count)
{
    MR_VEC(struct infer_io) list = {0};
    bool first = true;
    int rc = mr_json_enter_array(j);

    while (rc == MR_OK && mr_json_next_item(j, &first)) {
        struct infer_io io = {0};
        rc = parse_io(j, &io, arena);
        MR_VEC_PUSH(&list, io);
    }
    rc = rc < 0 ? rc : j->status;
    *out = MR_ARENA_ARRAY(arena, struct infer_io, list.len + 1);
    *count = list.len;
    if (*out && list.len) {
        memcpy(*out, list.at, list.len * sizeof *list.at);
    }
    MR_VEC_FINI(&list);
    return rc == MR_OK && !*out ? mr_json_fail(j, MR_E_TOO_LARGE, "too many tensors") : rc;
}

int infer_meta_parse_rest(mr_bytes body, struct mr_arena *arena, struct infer_meta *out,
                          struct mr_err *err)
{
    struct mr_json j;
    mr_str key;
    bool first = true;

    mr_json_init(&j, mr_str_n((const char *)body.ptr, body.len), arena, 0, err);
    int rc = mr_json_enter_object(&j);
    while (rc == MR_OK && mr_json_next_key(&j, &first, &key)) {
        if (mr_str_eq_c(key, "inputs")) {
            rc = parse_ios(&j, arena, &out->inputs, &out->input_count);
        } else if (mr_str_eq_c(key, "outputs")) {
            rc = parse_ios(&j, arena, &out->outputs, &out->output_count);
        } else {
            rc = mr_json_skip(&j, NULL);
        }
    }
    rc = rc < 0 ? rc : j.status;
    return rc < 0 ? MR_WRAP(err, rc, "the model's metadata") : MR_OK;
}

static int get_rest(struct infer *x, struct mr_err *err)
{
    struct mr_remote_reply reply;
    mr_str path = x->opt.version ? mr_arena_printf(&x->arena, "/v2/models/%s/versions/%s",
                                                   x->opt.model, x->opt.version)
                                 : mr_arena_printf(&x->arena, "/v2/models/%s", x->opt.model);
    int rc = mr_remote_text(&x->remote, path.ptr ? path.ptr : "", NULL, &reply, err);

    if (rc == MR_OK) {
        rc = infer_meta_parse_rest(reply.body, &x->arena, &x->meta, err);
        mr_remote_reply_fini(&reply);
    }
    return rc;
}

/* ---- gRPC ---- */

static int copy_ios(struct mr_arena *arena, Inference__ModelMetadataResponse__TensorMetadata **from,
                    size_t count, struct infer_io **out, size_t *out_count, struct mr_err *err)
{
    struct infer_io *list = MR_ARENA_ARRAY(arena, struct infer_io, count + 1);

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
