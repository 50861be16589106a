/* What a model says about itself, over REST. */
#include <string.h>

#include "base/vec.h"
#include "codec/json.h"
#include "oip/oip.h"
#include "tensor/tensor.h"

const struct mr_oip_io *mr_oip_find_input(const struct mr_oip_metadata *m, mr_str name)
{
    for (size_t i = 0; i < m->input_count; i++) {
        if (mr_str_eq(m->inputs[i].name, name)) {
            return &m->inputs[i];
        }
    }
    return NULL;
}

static int parse_shape(struct mr_json *j, struct mr_oip_io *io)
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

static int parse_io(struct mr_json *j, struct mr_oip_io *io, struct mr_arena *arena)
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

static int parse_ios(struct mr_json *j, struct mr_arena *arena, struct mr_oip_io **out,
                     size_t *count)
{
    MR_VEC(struct mr_oip_io) list = {0};
    bool first = true;
    int rc = mr_json_enter_array(j);

    while (rc == MR_OK && mr_json_next_item(j, &first)) {
        struct mr_oip_io io = {0};
        rc = parse_io(j, &io, arena);
        MR_VEC_PUSH(&list, io);
    }
    rc = rc < 0 ? rc : j->status;
    *out = MR_ARENA_ARRAY(arena, struct mr_oip_io, list.len + 1);
    *count = list.len;
    if (*out && list.len) {
        memcpy(*out, list.at, list.len * sizeof *list.at);
    }
    MR_VEC_FINI(&list);
    return rc == MR_OK && !*out ? mr_json_fail(j, MR_E_TOO_LARGE, "too many tensors") : rc;
}

static int parse_text(struct mr_json *j, struct mr_arena *arena, mr_str *out)
{
    mr_str text;
    int rc = mr_json_string(j, &text);

    if (rc == MR_OK) {
        *out = mr_arena_str(arena, text);
        rc = out->ptr ? MR_OK : mr_json_fail(j, MR_E_TOO_LARGE, "too long");
    }
    return rc;
}

/* The last one is told: servers list them in ascending order. Some say null. */
static int parse_versions(struct mr_json *j, struct mr_arena *arena, struct mr_oip_metadata *out)
{
    bool first = true;

    if (mr_json_peek(j) == MR_JSON_NULL) {
        return mr_json_null(j);
    }
    int rc = mr_json_enter_array(j);
    while (rc == MR_OK && mr_json_next_item(j, &first)) {
        rc = parse_text(j, arena, &out->version);
    }
    return rc < 0 ? rc : j->status;
}

int mr_oip_rest_decode_metadata(mr_bytes body, struct mr_arena *arena, struct mr_oip_metadata *out,
                                struct mr_err *err)
{
    struct mr_json j;
    mr_str key;
    bool first = true;

    mr_json_init(&j, mr_str_n((const char *)body.ptr, body.len), arena, 0, err);
    int rc = mr_json_enter_object(&j);
    while (rc == MR_OK && mr_json_next_key(&j, &first, &key)) {
        if (mr_str_eq_c(key, "name")) {
            rc = parse_text(&j, arena, &out->name);
        } else if (mr_str_eq_c(key, "versions")) {
            rc = parse_versions(&j, arena, out);
        } else if (mr_str_eq_c(key, "inputs")) {
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
