/* Protobuf messages in: inference requests (server) and responses (client).
 *
 * One pass over the top level collects metadata and the slices of the raw contents; the tensors' data
 * is joined to them afterwards, since fields may come in any order. As protobuf wants it, unknown fields
 * and fields of a wrong wire type are skipped and the last of a singular field wins. Nesting is
 * followed by reading slices, three levels of it, so the input cannot make this recurse. Any thread. */
#include "pb_read.h"

/* So far the names of a refused request are looked for: that takes a thread less than a millisecond or two. */
#define NAMES_WITHIN_BYTES ((size_t)1 << 20)

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

/* ---- requests ---- */

struct request_parts {
    struct mr_oip_request request;
    struct mr_oip_params rest;
    struct mr_pb_tensors inputs;
    size_t output_cap;
};

static int request_param_read(struct mr_pb_reader *r, struct request_parts *p, mr_bytes entry)
{
    struct mr_oip_param param;
    int rc = mr_pb_param(r, entry, &param);
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
            read = mr_pb_str(r, &f, &q->name);
        } else if (f.number == 2 && f.wire == MR_PB_LEN) {
            read = mr_pb_tensor_param(r, f.bytes, true, &known, &rest);
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
        return mr_pb_too_many(r, "outputs");
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
    case 1: return mr_pb_str(r, f, &p->request.model_name);
    case 2: return mr_pb_str(r, f, &p->request.model_version);
    case 3: return mr_pb_str(r, f, &p->request.id);
    case 4: return is_message ? request_param_read(r, p, f->bytes) : MR_OK;
    case 5: return mr_pb_tensors_add(r, &p->inputs, f);
    case 6: return is_message ? requested_add(r, p, f->bytes) : MR_OK;
    case 7: return mr_pb_raw_add(r, &p->inputs, f);
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
    rc = mr_oip_id_check(p->request.id, r->err);
    if (rc < 0) {
        return rc;
    }
    rc = mr_oip_find_duplicate(r->arena, p->request.outputs, sizeof *p->request.outputs,
                               p->request.output_count, &again, r->err);
    if (rc == MR_OK && again) {
        rc = MR_FAIL(r->err, MR_E_INVALID, "output '%.*s' already exists in request",
                     MR_STR_ARG(*again));
    }
    return rc == MR_OK ? mr_pb_tensors_finish(r, &p->inputs) : rc;
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

void mr_oip_pb_find_names(mr_bytes message, struct mr_oip_request *q)
{
    struct mr_pb_reader r;
    struct mr_err ignored = {0};
    struct mr_pb_field f;
    q->id = q->model_name = q->model_version = MR_STR("");
    message.len = MR_MIN(message.len, NAMES_WITHIN_BYTES);
    reader_init(&r, NULL, NULL, &ignored);
    while (mr_pb_next(&message, &f) > 0) {
        if (f.number == 1) {
            mr_pb_str(&r, &f, &q->model_name);
        } else if (f.number == 2) {
            mr_pb_str(&r, &f, &q->model_version);
        } else if (f.number == 3) {
            mr_pb_str(&r, &f, &q->id);
        }
    }
}

/* ---- responses ---- */

struct response_parts {
    struct mr_oip_response response;
    struct mr_oip_params rest;
    struct mr_pb_tensors outputs;
};

static int response_param_read(struct mr_pb_reader *r, struct response_parts *p, mr_bytes entry)
{
    struct mr_oip_param param;
    int rc = mr_pb_param(r, entry, &param);
    return rc > 0 ? mr_oip_params_put(&p->rest, r->arena, &r->param_total, &param, r->err) : rc;
}

static int response_field_read(struct mr_pb_reader *r, struct response_parts *p,
                               const struct mr_pb_field *f)
{
    switch (f->number) {
    case 1: return mr_pb_str(r, f, &p->response.model_name);
    case 2: return mr_pb_str(r, f, &p->response.model_version);
    case 3: return mr_pb_str(r, f, &p->response.id);
    case 4: return f->wire == MR_PB_LEN ? response_param_read(r, p, f->bytes) : MR_OK;
    case 5: return mr_pb_tensors_add(r, &p->outputs, f);
    case 6: return mr_pb_raw_add(r, &p->outputs, f);
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
    rc = mr_pb_tensors_finish(&r, &parts.outputs);
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

static bool has_final_mark(const struct mr_oip_response *r)
{
    for (size_t i = 0; i < r->param_count; i++) {
        const struct mr_oip_param *p = &r->params[i];
        if (p->kind == MR_OIP_BOOL && mr_str_eq_c(p->key, "triton_final_response")) {
            return p->b;
        }
    }
    return false;
}

int mr_oip_pb_decode_stream_response(mr_bytes message, const struct mr_oip_limits *limits,
                                     struct mr_arena *arena, struct mr_oip_response *out,
                                     mr_str *out_error, bool *out_is_final, struct mr_err *err)
{
    mr_bytes response = {NULL, 0};
    mr_str error = MR_STR("");
    struct mr_pb_field f;
    int rc;

    while ((rc = mr_pb_next(&message, &f)) > 0) {
        if (f.number == 1 && f.wire == MR_PB_LEN) {
            error = mr_str_n((const char *)f.bytes.ptr, f.bytes.len);
        } else if (f.number == 2 && f.wire == MR_PB_LEN) {
            response = f.bytes;
        }
    }
    if (rc < 0) {
        return mr_pb_broken(err);
    }
    rc = mr_oip_pb_decode_response(response, limits, arena, out, err);
    if (rc == MR_OK) {
        *out_error = error;
        *out_is_final = error.len > 0 || has_final_mark(out);
    }
    return rc;
}
