/* Protobuf messages in: inference requests (server) and responses (client).
 *
 * One pass over the top level collects metadata and the slices of the raw contents; the tensors' data
 * is joined to them afterwards, since fields may come in any order. As protobuf wants it, unknown fields
 * and fields of a wrong wire type are skipped and the last of a singular field wins. Nesting is
 * followed by reading slices, three levels of it, so the input cannot make this recurse. Any thread. */
#include "pb_read.h"

int mr_pb_broken(struct mr_err *err)
{
    return MR_FAIL(err, MR_E_INVALID, "failed to parse the protobuf message");
}

static void reader_init(struct mr_pb_reader *r, const struct mr_oip_limits *limits,
                        struct mr_arena *arena, struct mr_err *err)
{
    *r = (struct mr_pb_reader){
        .arena = arena,
        .model = MR_STR(""),
        .max_tensors = limits && limits->max_tensors ? limits->max_tensors : OIP_TENSORS_DEFAULT,
        .word = "input",
        .err = err,
    };
}

static int str_read(struct mr_pb_reader *r, const struct mr_pb_field *f, mr_str *out)
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
            if (str_read(r, &f, &out->s) < 0) {
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
static int param_read(struct mr_pb_reader *r, mr_bytes entry, struct mr_oip_param *out)
{
    struct mr_pb_field f;
    bool has_value = false;
    int rc;
    *out = (struct mr_oip_param){.key = MR_STR("")};
    while ((rc = mr_pb_next(&entry, &f)) > 0) {
        int read = MR_OK;
        if (f.number == 1) {
            read = str_read(r, &f, &out->key);
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

static int tensor_param_read(struct mr_pb_reader *r, mr_bytes entry, bool is_requested,
                             struct mr_oip_tensor_params *known, struct mr_oip_params *rest)
{
    struct mr_oip_param p;
    int rc = param_read(r, entry, &p);
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
    case 1: return str_read(r, f, &t->name);
    case 2: return str_read(r, f, &p->datatype);
    case 3: return shape_read(r, f, &p->shape);
    case 4:
        return f->wire == MR_PB_LEN ? tensor_param_read(r, f->bytes, false, &p->known, &p->rest)
                                    : MR_OK;
    case 5: from->has_contents |= f->wire == MR_PB_LEN; return MR_OK;
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

struct tensors {
    struct mr_oip_tensor *at;
    struct mr_pb_tensor *from;
    size_t count;
    size_t cap;
    size_t from_cap;
    mr_bytes *raw;
    size_t raw_count;
    size_t raw_cap;
};

static int too_many(struct mr_pb_reader *r, const char *what)
{
    return MR_FAIL(r->err, MR_E_INVALID, "message has more than %u %s", r->max_tensors, what);
}

static int tensors_add(struct mr_pb_reader *r, struct tensors *list, const struct mr_pb_field *f)
{
    if (f->wire != MR_PB_LEN) {
        return MR_OK;
    }
    if (list->count == r->max_tensors) {
        return too_many(r, r->is_response ? "outputs" : "inputs");
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

static int raw_add(struct mr_pb_reader *r, struct tensors *list, const struct mr_pb_field *f)
{
    if (f->wire != MR_PB_LEN) {
        return MR_OK;
    }
    if (list->raw_count == r->max_tensors) {
        return too_many(r, r->is_response ? "raw_output_contents" : "raw_input_contents");
    }
    mr_bytes *raw = mr_oip_grow(r->arena, list->raw, list->raw_count, &list->raw_cap, sizeof *raw);
    if (!raw) {
        return mr_oip_no_memory(r->err);
    }
    list->raw = raw;
    list->raw[list->raw_count++] = f->bytes;
    return MR_OK;
}

static int raw_use(struct mr_pb_reader *r, struct tensors *list, size_t i, mr_bytes raw)
{
    struct mr_oip_tensor *t = &list->at[i];
    int rc = mr_oip_data_refer(r->arena, t, raw, r->err);
    if (rc == MR_OK && t->tensor.dtype == MR_DTYPE_BYTES) {
        rc = mr_oip_bytes_check(t, list->from[i].elements, r->word, r->model, r->err);
    }
    return rc;
}

/* Where the data of tensor i is; *io_raw counts the raw contents used. */
static int tensor_join(struct mr_pb_reader *r, struct tensors *list, size_t i, size_t *io_raw)
{
    struct mr_oip_tensor *t = &list->at[i];
    bool has_contents = list->from[i].has_contents;
    if (t->shm.region.ptr) {
        if (has_contents) {
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

static int tensors_finish(struct mr_pb_reader *r, struct tensors *list)
{
    size_t used = 0;
    const mr_str *again;
    int rc =
        mr_oip_find_duplicate(r->arena, list->at, sizeof *list->at, list->count, &again, r->err);
    if (rc == MR_OK && again) {
        rc = MR_FAIL(r->err, MR_E_INVALID, "%s '%.*s' appears more than once", r->word,
                     MR_STR_ARG(*again));
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

/* ---- requests ---- */

struct request_parts {
    struct mr_oip_request request;
    struct mr_oip_params rest;
    struct tensors inputs;
    size_t output_cap;
};

static int request_param_read(struct mr_pb_reader *r, struct request_parts *p, mr_bytes entry)
{
    struct mr_oip_param param;
    int rc = param_read(r, entry, &param);
    if (rc <= 0) {
        return rc;
    }
    rc = mr_oip_param_of_request(&p->request, &param, MR_OIP_WIRE_GRPC, r->err);
    return rc == 0 ? mr_oip_params_put(&p->rest, r->arena, &r->param_total, &param, r->err)
                   : MR_MIN(rc, MR_OK);
}

static int requested_fields_read(struct mr_pb_reader *r, mr_bytes message,
                                 struct mr_oip_requested_output *q)
{
    struct mr_oip_tensor_params known = {.binary_data = -1};
    struct mr_oip_params rest = {0};
    struct mr_pb_field f;
    int rc;
    q->name = MR_STR("");
    while ((rc = mr_pb_next(&message, &f)) > 0) {
        int read = MR_OK;
        if (f.number == 1) {
            read = str_read(r, &f, &q->name);
        } else if (f.number == 2 && f.wire == MR_PB_LEN) {
            read = tensor_param_read(r, f.bytes, true, &known, &rest);
        }
        if (read < 0) {
            return read;
        }
    }
    if (rc < 0) {
        return mr_pb_broken(r->err);
    }
    q->binary_data = -1;
    q->classification = known.classification;
    q->shm = known.shm;
    q->params = rest.at;
    q->param_count = rest.len;
    return mr_oip_tensor_params_check(&known, q->name, MR_OIP_WIRE_GRPC, r->err);
}

static int requested_add(struct mr_pb_reader *r, struct request_parts *p, mr_bytes message)
{
    struct mr_oip_request *q = &p->request;
    if (q->output_count == r->max_tensors) {
        return too_many(r, "outputs");
    }
    struct mr_oip_requested_output *list =
        mr_oip_grow(r->arena, q->outputs, q->output_count, &p->output_cap, sizeof *list);
    if (!list) {
        return mr_oip_no_memory(r->err);
    }
    q->outputs = list;
    return requested_fields_read(r, message, &list[q->output_count++]);
}

static int request_field_read(struct mr_pb_reader *r, struct request_parts *p,
                              const struct mr_pb_field *f)
{
    bool is_message = f->wire == MR_PB_LEN;
    switch (f->number) {
    case 1: return str_read(r, f, &p->request.model_name);
    case 2: return str_read(r, f, &p->request.model_version);
    case 3: return str_read(r, f, &p->request.id);
    case 4: return is_message ? request_param_read(r, p, f->bytes) : MR_OK;
    case 5: return tensors_add(r, &p->inputs, f);
    case 6: return is_message ? requested_add(r, p, f->bytes) : MR_OK;
    case 7: return raw_add(r, &p->inputs, f);
    default: return MR_OK;
    }
}

static int request_read(struct mr_pb_reader *r, struct request_parts *p, mr_bytes message)
{
    struct mr_pb_field f;
    int rc;
    while ((rc = mr_pb_next(&message, &f)) > 0) {
        rc = request_field_read(r, p, &f);
        if (rc < 0) {
            return rc;
        }
    }
    if (rc < 0) {
        return mr_pb_broken(r->err);
    }
    const mr_str *again;
    r->model = p->request.model_name;
    rc = mr_oip_find_duplicate(r->arena, p->request.outputs, sizeof *p->request.outputs,
                               p->request.output_count, &again, r->err);
    if (rc == MR_OK && again) {
        rc = MR_FAIL(r->err, MR_E_INVALID, "output '%.*s' is requested more than once",
                     MR_STR_ARG(*again));
    }
    return rc == MR_OK ? tensors_finish(r, &p->inputs) : rc;
}

int mr_oip_pb_decode_request(mr_bytes message, const struct mr_oip_limits *limits,
                             struct mr_arena *arena, struct mr_oip_request *out, struct mr_err *err)
{
    struct mr_pb_reader r;
    struct request_parts parts = {
        .request = {.model_name = MR_STR(""), .model_version = MR_STR(""), .id = MR_STR("")}};
    reader_init(&r, limits, arena, err);
    int rc = request_read(&r, &parts, message);
    if (rc < 0) {
        return rc;
    }
    parts.request.inputs = parts.inputs.at;
    parts.request.input_count = parts.inputs.count;
    parts.request.params = parts.rest.at;
    parts.request.param_count = parts.rest.len;
    *out = parts.request;
    return MR_OK;
}

/* ---- responses ---- */

struct response_parts {
    struct mr_oip_response response;
    struct mr_oip_params rest;
    struct tensors outputs;
};

static int response_param_read(struct mr_pb_reader *r, struct response_parts *p, mr_bytes entry)
{
    struct mr_oip_param param;
    int rc = param_read(r, entry, &param);
    return rc > 0 ? mr_oip_params_put(&p->rest, r->arena, &r->param_total, &param, r->err) : rc;
}

static int response_field_read(struct mr_pb_reader *r, struct response_parts *p,
                               const struct mr_pb_field *f)
{
    switch (f->number) {
    case 1: return str_read(r, f, &p->response.model_name);
    case 2: return str_read(r, f, &p->response.model_version);
    case 3: return str_read(r, f, &p->response.id);
    case 4: return f->wire == MR_PB_LEN ? response_param_read(r, p, f->bytes) : MR_OK;
    case 5: return tensors_add(r, &p->outputs, f);
    case 6: return raw_add(r, &p->outputs, f);
    default: return MR_OK;
    }
}

int mr_oip_pb_decode_response(mr_bytes message, const struct mr_oip_limits *limits,
                              struct mr_arena *arena, struct mr_oip_response *out,
                              struct mr_err *err)
{
    struct mr_pb_reader r;
    struct mr_pb_field f;
    struct response_parts parts = {
        .response = {.model_name = MR_STR(""), .model_version = MR_STR(""), .id = MR_STR("")}};
    int rc;
    reader_init(&r, limits, arena, err);
    r.is_response = true;
    r.word = "output";
    while ((rc = mr_pb_next(&message, &f)) > 0) {
        rc = response_field_read(&r, &parts, &f);
        if (rc < 0) {
            return rc;
        }
    }
    if (rc < 0) {
        return mr_pb_broken(err);
    }
    r.model = parts.response.model_name;
    rc = tensors_finish(&r, &parts.outputs);
    if (rc < 0) {
        return rc;
    }
    parts.response.outputs = parts.outputs.at;
    parts.response.output_count = parts.outputs.count;
    parts.response.params = parts.rest.at;
    parts.response.param_count = parts.rest.len;
    *out = parts.response;
    return MR_OK;
}
