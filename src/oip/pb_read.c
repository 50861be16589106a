/* Parameters and tensors of protobuf inference messages, which requests and responses have alike.
 *
 * Metadata is read as it comes; where a tensor's data is turns out only at the end of the message, when
 * it is known whether there are raw contents. Any thread. */
#include "pb_read.h"

int mr_pb_broken(struct mr_err *err)
{
    return MR_FAIL(err, MR_E_INVALID, "failed to parse the protobuf message");
}

int mr_pb_str(struct mr_pb_reader *r, const struct mr_pb_field *f, mr_str *out)
{
    if (f->wire != MR_PB_LEN) {
        return MR_OK;
    }
    mr_str s = mr_str_n((const char *)f->bytes.ptr, f->bytes.len);
    if (!mr_utf8_valid(s)) {
        return MR_FAIL(r->err, MR_E_INVALID,
                       "failed to parse the protobuf message: a string is not valid UTF-8");
    }
    *out = s.len ? s : MR_STR("");
    return MR_OK;
}

/* ---- parameters ---- */

/* InferParameter; *io_has_value stays false while no member of the oneof was seen. */
static int param_value_read(struct mr_pb_reader *r, mr_bytes in, struct mr_oip_param *out,
                            bool *io_has_value)
{
    struct mr_pb_field f;
    int rc;
    while ((rc = mr_pb_next(&in, &f)) > 0) {
        static const enum mr_pb_wire wires[] = {MR_PB_LEN, MR_PB_VARINT, MR_PB_VARINT,
                                                MR_PB_LEN, MR_PB_I64,    MR_PB_VARINT};
        if (f.number == 0 || f.number > 5 || f.wire != wires[f.number]) {
            continue;
        }
        *io_has_value = true;
        switch (f.number) {
        case 1:
            out->kind = MR_OIP_BOOL;
            out->b = f.value != 0;
            break;
        case 2:
            out->kind = MR_OIP_INT;
            out->i = (int64_t)f.value;
            break;
        case 3:
            out->kind = MR_OIP_STRING;
            if (mr_pb_str(r, &f, &out->s) < 0) {
                return MR_E_INVALID;
            }
            break;
        case 4:
            out->kind = MR_OIP_DOUBLE;
            out->d = mr_pb_double(f.value);
            break;
        default:
            out->kind = MR_OIP_UINT;
            out->u = f.value;
            break;
        }
    }
    return rc < 0 ? mr_pb_broken(r->err) : MR_OK;
}

/* A map entry. Returns 1 when it has a value, 0 when not (and that is no error). */
int mr_pb_param(struct mr_pb_reader *r, mr_bytes entry, struct mr_oip_param *out)
{
    struct mr_pb_field f;
    bool has_value = false;
    int rc;
    *out = (struct mr_oip_param){.key = MR_STR("")};
    while ((rc = mr_pb_next(&entry, &f)) > 0) {
        int read = MR_OK;
        if (f.number == 1) {
            read = mr_pb_str(r, &f, &out->key);
        } else if (f.number == 2 && f.wire == MR_PB_LEN) {
            read = param_value_read(r, f.bytes, out, &has_value);
        }
        if (read < 0) {
            return read;
        }
    }
    if (rc < 0) {
        return mr_pb_broken(r->err);
    }
    if (!has_value && !r->is_response) {
        return MR_FAIL(
            r->err, MR_E_INVALID,
            "invalid value type for '%.*s' parameter, expected int64_param, bool_param, or "
            "string_param.",
            MR_STR_ARG(out->key));
    }
    return has_value;
}

/* ---- tensors ---- */

struct shape {
    int64_t dims[MR_MAX_RANK];
    int rank;
};

static int dim_add(struct mr_pb_reader *r, struct shape *s, uint64_t v)
{
    if (s->rank == MR_MAX_RANK) {
        return MR_FAIL(r->err, MR_E_INVALID, "shape of %s tensor has more than %d dimensions",
                       r->word, MR_MAX_RANK);
    }
    s->dims[s->rank++] = (int64_t)v;
    return MR_OK;
}

static int shape_read(struct mr_pb_reader *r, const struct mr_pb_field *f, struct shape *s)
{
    if (f->wire == MR_PB_VARINT) {
        return dim_add(r, s, f->value);
    }
    mr_bytes packed = f->wire == MR_PB_LEN ? f->bytes : (mr_bytes){NULL, 0};
    while (packed.len > 0) {
        uint64_t v;
        if (!mr_pb_varint(&packed, &v)) {
            return mr_pb_broken(r->err);
        }
        int rc = dim_add(r, s, v);
        if (rc < 0) {
            return rc;
        }
    }
    return MR_OK;
}

static int shape_finish(struct mr_pb_reader *r, const struct shape *s, struct mr_oip_tensor *t,
                        uint64_t *out_elements)
{
    int rc = mr_shape_elements(s->dims, s->rank, out_elements, r->err);
    if (rc < 0) {
        return MR_WRAP(r->err, rc, "%s tensor '%.*s'", r->word, MR_STR_ARG(t->name));
    }
    int64_t *dims = MR_ARENA_ARRAY(r->arena, int64_t, (size_t)MR_MAX(s->rank, 1));
    if (!dims) {
        return mr_oip_no_memory(r->err);
    }
    memcpy(dims, s->dims, (size_t)s->rank * sizeof *dims);
    t->tensor.shape = dims;
    t->tensor.rank = s->rank;
    return MR_OK;
}

struct tensor_parts {
    mr_str datatype;
    struct shape shape;
    struct mr_oip_tensor_params known;
    struct mr_oip_params rest;
};

int mr_pb_tensor_param(struct mr_pb_reader *r, mr_bytes entry, bool is_requested,
                       struct mr_oip_tensor_params *known, struct mr_oip_params *rest)
{
    struct mr_oip_param p;
    int rc = mr_pb_param(r, entry, &p);
    if (rc <= 0) {
        return rc;
    }
    rc = mr_oip_param_of_tensor(known, &p, is_requested, MR_OIP_WIRE_GRPC, r->err);
    return rc == 0 ? mr_oip_params_put(rest, r->arena, &r->param_total, &p, r->err)
                   : MR_MIN(rc, MR_OK);
}

static int tensor_field_read(struct mr_pb_reader *r, const struct mr_pb_field *f,
                             struct tensor_parts *p, struct mr_pb_tensor *from,
                             struct mr_oip_tensor *t)
{
    switch (f->number) {
    case 1: return mr_pb_str(r, f, &t->name);
    case 2: return mr_pb_str(r, f, &p->datatype);
    case 3: return shape_read(r, f, &p->shape);
    case 4:
        return f->wire == MR_PB_LEN ? mr_pb_tensor_param(r, f->bytes, false, &p->known, &p->rest)
                                    : MR_OK;
    case 5:
        from->has_contents |= f->wire == MR_PB_LEN;
        from->has_filled_contents |= f->wire == MR_PB_LEN && f->bytes.len > 0;
        return MR_OK;
    default: return MR_OK;
    }
}

/* Metadata of an input or output; the data comes later. */
static int tensor_read(struct mr_pb_reader *r, mr_bytes message, struct mr_pb_tensor *from,
                       struct mr_oip_tensor *t)
{
    struct tensor_parts p = {.datatype = MR_STR(""), .known.binary_data = -1};
    struct mr_pb_field f;
    int rc;
    t->name = MR_STR("");
    t->binary = true;
    from->message = message;
    while ((rc = mr_pb_next(&message, &f)) > 0) {
        rc = tensor_field_read(r, &f, &p, from, t);
        if (rc < 0) {
            return rc;
        }
    }
    if (rc < 0) {
        return mr_pb_broken(r->err);
    }
    t->tensor.dtype = mr_dtype_from_name(p.datatype);
    if (t->tensor.dtype == MR_DTYPE_INVALID) {
        return MR_FAIL(r->err, MR_E_INVALID, "%s tensor '%.*s' has an invalid datatype '%.*s'",
                       r->word, MR_STR_ARG(t->name), MR_STR_ARG(p.datatype));
    }
    t->shm = p.known.shm;
    t->params = p.rest.at;
    t->param_count = p.rest.len;
    rc = shape_finish(r, &p.shape, t, &from->elements);
    if (rc < 0) {
        return rc;
    }
    return mr_oip_tensor_params_check(&p.known, t->name, MR_OIP_WIRE_GRPC, r->err);
}

/* ---- the parts of a message that repeat ---- */

int mr_pb_too_many(struct mr_pb_reader *r, const char *what)
{
    return MR_FAIL(r->err, MR_E_INVALID, "message has more than %u %s", r->max_tensors, what);
}

int mr_pb_tensors_add(struct mr_pb_reader *r, struct mr_pb_tensors *list,
                      const struct mr_pb_field *f)
{
    if (f->wire != MR_PB_LEN) {
        return MR_OK;
    }
    if (list->count == r->max_tensors) {
        return mr_pb_too_many(r, r->is_response ? "outputs" : "inputs");
    }
    struct mr_oip_tensor *at = mr_oip_grow(r->arena, list->at, list->count, &list->cap, sizeof *at);
    struct mr_pb_tensor *from =
        mr_oip_grow(r->arena, list->from, list->count, &list->from_cap, sizeof *from);
    if (!at || !from) {
        return mr_oip_no_memory(r->err);
    }
    list->at = at;
    list->from = from;
    int rc = tensor_read(r, f->bytes, &from[list->count], &at[list->count]);
    list->count++;
    return rc;
}

int mr_pb_raw_add(struct mr_pb_reader *r, struct mr_pb_tensors *list, const struct mr_pb_field *f)
{
    if (f->wire != MR_PB_LEN) {
        return MR_OK;
    }
    if (list->raw_count == r->max_tensors) {
        return mr_pb_too_many(r, r->is_response ? "raw_output_contents" : "raw_input_contents");
    }
    mr_bytes *raw = mr_oip_grow(r->arena, list->raw, list->raw_count, &list->raw_cap, sizeof *raw);
    if (!raw) {
        return mr_oip_no_memory(r->err);
    }
    list->raw = raw;
    list->raw[list->raw_count++] = f->bytes;
    return MR_OK;
}

static int raw_use(struct mr_pb_reader *r, struct mr_pb_tensors *list, size_t i, mr_bytes raw)
{
    struct mr_oip_tensor *t = &list->at[i];
    int rc = mr_oip_data_refer(r->arena, t, raw, r->err);
    return rc < 0
               ? rc
               : mr_oip_binary_check(t, list->from[i].elements, r->is_response, r->model, r->err);
}

/* Where the data of tensor i is; *io_raw counts the raw contents used. */
static int tensor_join(struct mr_pb_reader *r, struct mr_pb_tensors *list, size_t i, size_t *io_raw)
{
    struct mr_oip_tensor *t = &list->at[i];
    /* Beside raw contents MLServer sends empty typed ones. */
    bool has_contents =
        list->raw_count > 0 ? list->from[i].has_filled_contents : list->from[i].has_contents;
    if (t->shm.region.ptr) {
        if (list->from[i].has_contents) {
            return MR_FAIL(
                r->err, MR_E_INVALID,
                "unexpected 'content' provided when using shared memory for %s tensor '%.*s' "
                "for model '%.*s'",
                r->word, MR_STR_ARG(t->name), MR_STR_ARG(r->model));
        }
        *io_raw += r->is_response && *io_raw < list->raw_count; /* responses keep an empty place */
        return MR_OK;
    }
    if (has_contents && list->raw_count > 0) {
        return MR_FAIL(
            r->err, MR_E_INVALID,
            "contents field must not be specified when using raw_%s_contents for '%.*s' for "
            "model '%.*s'",
            r->word, MR_STR_ARG(t->name), MR_STR_ARG(r->model));
    }
    if (has_contents) {
        return mr_pb_contents(r, &list->from[i], t);
    }
    if (*io_raw < list->raw_count) {
        return raw_use(r, list, i, list->raw[(*io_raw)++]);
    }
    return MR_FAIL(r->err, MR_E_INVALID,
                   "unable to find data for %s tensor '%.*s' for model '%.*s' in %s.", r->word,
                   MR_STR_ARG(t->name), MR_STR_ARG(r->model),
                   r->is_response ? "response" : "request");
}

int mr_pb_tensors_finish(struct mr_pb_reader *r, struct mr_pb_tensors *list)
{
    size_t used = 0;
    const mr_str *again;
    int rc =
        mr_oip_find_duplicate(r->arena, list->at, sizeof *list->at, list->count, &again, r->err);
    if (rc == MR_OK && again) {
        rc = MR_FAIL(r->err, MR_E_INVALID, "%s '%.*s' already exists in %s", r->word,
                     MR_STR_ARG(*again), r->is_response ? "response" : "request");
    }
    for (size_t i = 0; rc == MR_OK && i < list->count; i++) {
        rc = tensor_join(r, list, i, &used);
    }
    if (rc == MR_OK && used != list->raw_count) {
        rc = MR_FAIL(r->err, MR_E_INVALID,
                     "expected %zu raw_%s_contents but got %zu for model '%.*s'", used, r->word,
                     list->raw_count, MR_STR_ARG(r->model));
    }
    return rc;
}
