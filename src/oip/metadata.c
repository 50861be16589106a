/* Metadata of a model, over REST and gRPC. */
#include <string.h>

#include "base/vec.h"
#include "codec/json.h"
#include "pb_read.h"

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

/* Takes the last one, as servers list them in ascending order. Some send null. */
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

/* ---- gRPC ---- */

/* Numbers of a repeated field: packed, or one. */
static int shape_add(struct mr_pb_reader *r, const struct mr_pb_field *f, struct mr_oip_io *io)
{
    mr_bytes rest = f->bytes;
    uint64_t v = f->value;

    if (f->wire != MR_PB_LEN && f->wire != MR_PB_VARINT) {
        return MR_OK;
    }
    while (f->wire == MR_PB_VARINT || rest.len > 0) {
        if (f->wire == MR_PB_LEN && !mr_pb_varint(&rest, &v)) {
            return mr_pb_broken(r->err);
        }
        if (io->rank == MR_MAX_RANK) {
            return MR_FAIL(r->err, MR_E_UNSUPPORTED, "more than %d dimensions", MR_MAX_RANK);
        }
        io->shape[io->rank++] = (int64_t)v;
        if (f->wire == MR_PB_VARINT) {
            break;
        }
    }
    return MR_OK;
}

static int text_keep(struct mr_pb_reader *r, const struct mr_pb_field *f, mr_str *out)
{
    mr_str text = {NULL, 0};
    int rc = mr_pb_str(r, f, &text);

    if (rc == MR_OK && text.ptr) {
        *out = mr_arena_str(r->arena, text);
        rc = out->ptr ? MR_OK : MR_FAIL(r->err, MR_E_TOO_LARGE, "too long");
    }
    return rc;
}

static int io_read(struct mr_pb_reader *r, mr_bytes message, struct mr_oip_io *io)
{
    struct mr_pb_field f;
    mr_str type = {NULL, 0};
    int more;

    while ((more = mr_pb_next(&message, &f)) > 0) {
        int rc = f.number == 1   ? text_keep(r, &f, &io->name)
                 : f.number == 2 ? mr_pb_str(r, &f, &type)
                 : f.number == 3 ? shape_add(r, &f, io)
                                 : MR_OK;
        if (rc < 0) {
            return rc;
        }
    }
    io->dtype = mr_dtype_from_name(type.ptr ? type : MR_STR(""));
    return more < 0 ? mr_pb_broken(r->err) : MR_OK;
}

/* All tensors of one field, in order. */
static int ios_read(struct mr_pb_reader *r, mr_bytes message, uint32_t number,
                    struct mr_oip_io **out, size_t *out_count)
{
    struct mr_pb_field f;
    mr_bytes rest = message;
    size_t count = 0;
    int rc = MR_OK;

    while (mr_pb_next(&rest, &f) > 0) {
        count += f.number == number && f.wire == MR_PB_LEN;
    }
    *out = MR_ARENA_ARRAY(r->arena, struct mr_oip_io, count + 1);
    if (!*out) {
        return MR_FAIL(r->err, MR_E_TOO_LARGE, "too many tensors");
    }
    memset(*out, 0, (count + 1) * sizeof **out);
    while (rc == MR_OK && mr_pb_next(&message, &f) > 0) {
        if (f.number == number && f.wire == MR_PB_LEN) {
            rc = io_read(r, f.bytes, &(*out)[(*out_count)++]);
        }
    }
    return rc;
}

static int metadata_read(struct mr_pb_reader *r, mr_bytes message, struct mr_oip_metadata *out)
{
    struct mr_pb_field f;
    mr_bytes rest = message;
    int rc = MR_OK;
    int more;

    while (rc == MR_OK && (more = mr_pb_next(&rest, &f)) != 0) {
        rc = more < 0        ? mr_pb_broken(r->err)
             : f.number == 1 ? text_keep(r, &f, &out->name)
             : f.number == 2 ? text_keep(r, &f, &out->version)
                             : MR_OK;
    }
    rc = rc < 0 ? rc : ios_read(r, message, 4, &out->inputs, &out->input_count);
    return rc < 0 ? rc : ios_read(r, message, 5, &out->outputs, &out->output_count);
}

int mr_oip_pb_decode_metadata(mr_bytes message, struct mr_arena *arena, struct mr_oip_metadata *out,
                              struct mr_err *err)
{
    struct mr_pb_reader r = {.arena = arena, .err = err};
    int rc = metadata_read(&r, message, out);

    return rc < 0 ? MR_WRAP(err, rc, "the model's metadata") : MR_OK;
}
