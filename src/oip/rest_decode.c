/* REST messages in: inference requests (server) and responses (client), the members of the top level.
 * Unknown members are skipped; what a member holds is read in rest_read.c. Any thread. */
#include "rest_read.h"

/* So far the id of a refused request is looked for: that takes a thread less than a millisecond or two. */
#define ID_WITHIN_BYTES ((size_t)1 << 20)

/* ---- requested outputs ---- */

static int requested_param_take(void *ctx, const struct mr_oip_param *p, struct mr_err *err)
{
    struct mr_oip_tensor_params *known = ctx;
    return mr_oip_param_of_tensor(known, p, true, MR_OIP_WIRE_REST, err);
}

static int requested_read(struct mr_rest_reader *r, struct mr_oip_requested_output *q)
{
    struct mr_oip_tensor_params known = {.binary_data = -1};
    struct mr_oip_params rest = {0};
    bool first = true, has_params = false;
    mr_str key;
    int rc = mr_json_enter_object(&r->json);
    while (rc == MR_OK && mr_json_next_key(&r->json, &first, &key)) {
        if (mr_str_eq(key, MR_STR("name")) && q->name.ptr) {
            return mr_rest_twice(r, "name");
        }
        if (mr_str_eq(key, MR_STR("parameters")) && has_params) {
            return mr_rest_twice(r, "parameters");
        }
        if (mr_str_eq(key, MR_STR("name"))) {
            rc = mr_json_string(&r->json, &q->name) < 0 ? mr_rest_named(r, "name") : MR_OK;
        } else if (mr_str_eq(key, MR_STR("parameters"))) {
            has_params = true;
            rc = mr_rest_params(r, requested_param_take, &known, &rest);
        } else {
            rc = mr_json_skip(&r->json, NULL);
        }
    }
    if (rc < 0 || r->json.status < 0) {
        return rc < 0 ? rc : r->json.status;
    }
    if (!q->name.ptr) {
        return mr_rest_missing(r, "name");
    }
    q->binary_data = known.binary_data;
    q->classification = known.classification;
    q->shm = known.shm;
    q->params = rest.at;
    q->param_count = rest.len;
    return mr_oip_tensor_params_check(&known, q->name, MR_OIP_WIRE_REST, r->err);
}

static int requested_all_read(struct mr_rest_reader *r, struct mr_oip_request *out)
{
    struct mr_oip_requested_output *list = NULL;
    size_t count = 0;
    size_t cap = 0;
    bool first = true;
    if (mr_rest_null(r)) {
        return MR_OK;
    }
    if (mr_json_enter_array(&r->json) < 0) {
        return mr_rest_named(r, "outputs");
    }
    while (mr_json_next_item(&r->json, &first)) {
        if (count == r->max_tensors) {
            return MR_FAIL(r->err, MR_E_INVALID, "more than %u outputs", r->max_tensors);
        }
        list = mr_oip_grow(r->arena, list, count, &cap, sizeof *list);
        if (!list) {
            return mr_oip_no_memory(r->err);
        }
        int rc = requested_read(r, &list[count]);
        if (rc < 0) {
            return rc;
        }
        count++;
    }
    const mr_str *again = NULL;
    int rc = r->json.status;
    if (rc == MR_OK) {
        rc = mr_oip_find_duplicate(r->arena, list, sizeof *list, count, &again, r->err);
    }
    if (rc == MR_OK && again) {
        rc = MR_FAIL(r->err, MR_E_INVALID, "output '%.*s' already exists in request",
                     MR_STR_ARG(*again));
    }
    out->outputs = list;
    out->output_count = count;
    return rc;
}

/* ---- requests ---- */

struct request_parts {
    struct mr_oip_request request;
    struct mr_oip_params rest;
    bool has_id;
    bool has_inputs;
    bool has_outputs;
    bool has_params;
};

static int request_param_take(void *ctx, const struct mr_oip_param *p, struct mr_err *err)
{
    struct mr_oip_request *request = ctx;
    return mr_oip_param_of_request(request, p, MR_OIP_WIRE_REST, err);
}

static int string_or_null_read(struct mr_rest_reader *r, const char *member, mr_str *out)
{
    if (mr_rest_null(r)) {
        return MR_OK;
    }
    return mr_json_string(&r->json, out) < 0 ? mr_rest_named(r, member) : MR_OK;
}

static int request_member_read(struct mr_rest_reader *r, struct request_parts *p, mr_str key)
{
    if (mr_str_eq(key, MR_STR("id"))) {
        if (p->has_id) {
            return mr_rest_twice(r, "id");
        }
        p->has_id = true;
        int rc = string_or_null_read(r, "id", &p->request.id);
        return rc < 0 ? rc : mr_oip_id_check(p->request.id, r->err);
    }
    if (mr_str_eq(key, MR_STR("inputs"))) {
        if (p->has_inputs) {
            return mr_rest_twice(r, "inputs");
        }
        p->has_inputs = true;
        return mr_rest_tensors(r, &p->request.inputs, &p->request.input_count);
    }
    if (mr_str_eq(key, MR_STR("outputs"))) {
        if (p->has_outputs) {
            return mr_rest_twice(r, "outputs");
        }
        p->has_outputs = true;
        return requested_all_read(r, &p->request);
    }
    if (mr_str_eq(key, MR_STR("parameters"))) {
        if (p->has_params) {
            return mr_rest_twice(r, "parameters");
        }
        p->has_params = true;
        return mr_rest_params(r, request_param_take, &p->request, &p->rest);
    }
    return mr_json_skip(&r->json, NULL);
}

static int request_read(struct mr_rest_reader *r, struct request_parts *p)
{
    bool first = true;
    mr_str key;
    int rc = mr_json_enter_object(&r->json);
    while (rc == MR_OK && mr_json_next_key(&r->json, &first, &key)) {
        rc = request_member_read(r, p, key);
    }
    if (rc == MR_OK) {
        rc = r->json.status;
    }
    if (rc == MR_OK) {
        rc = mr_json_finish(&r->json);
    }
    if (rc < 0) {
        return rc;
    }
    if (!p->has_inputs) {
        return mr_rest_missing(r, "inputs");
    }
    if (r->binary.len > 0) {
        return MR_FAIL(r->err, MR_E_INVALID, "unexpected additional input data for model '%.*s'",
                       MR_STR_ARG(r->model));
    }
    return MR_OK;
}

/* The body is the one input; the caller names it and gives it type and shape. */
static int raw_decode(mr_bytes body, const struct mr_oip_limits *limits, struct mr_arena *arena,
                      struct mr_oip_request *out, struct mr_err *err)
{
    if (limits && limits->max_json_bytes && body.len > limits->max_json_bytes) {
        return MR_FAIL(
            err, MR_E_TOO_LARGE,
            "Request size of %zu bytes exceeds the maximum allowed value of %llu bytes. Use %s to "
            "increase the limit.",
            body.len, (unsigned long long)limits->max_json_bytes,
            limits->size_option ? limits->size_option : "--http-max-input-size");
    }
    struct mr_oip_tensor *input = MR_ARENA_NEW(arena, struct mr_oip_tensor);
    if (!input) {
        return mr_oip_no_memory(err);
    }
    input->name = MR_STR("");
    input->binary = true;
    input->tensor.data = body.len ? (void *)body.ptr : NULL;
    input->tensor.bytes = body.len;
    *out = (struct mr_oip_request){
        .inputs = input, .input_count = 1, .raw_binary = true, .binary_data_output = true};
    return MR_OK;
}

int mr_oip_rest_decode_request(mr_bytes body, int64_t header_length, mr_str model,
                               const struct mr_oip_limits *limits, struct mr_arena *arena,
                               struct mr_oip_request *out, struct mr_err *err)
{
    if (header_length == 0) {
        return raw_decode(body, limits, arena, out, err);
    }
    struct mr_rest_reader r;
    int rc = mr_rest_begin(&r, body, header_length, limits, arena, err);
    if (rc < 0) {
        return rc;
    }
    r.model = model;
    r.word = "input";
    struct request_parts parts = {0};
    rc = request_read(&r, &parts);
    if (rc < 0) {
        return mr_rest_fail(&r, rc);
    }
    parts.request.params = parts.rest.at;
    parts.request.param_count = parts.rest.len;
    *out = parts.request;
    return MR_OK;
}

mr_str mr_oip_rest_find_id(mr_bytes body, int64_t header_length, struct mr_arena *arena)
{
    size_t json_bytes = header_length < 0 ? body.len : MR_MIN((uint64_t)header_length, body.len);
    struct mr_json j;
    mr_str key, id = MR_STR("");
    bool first = true;
    mr_json_init(&j, mr_str_n((const char *)body.ptr, MR_MIN(json_bytes, ID_WITHIN_BYTES)), arena,
                 0, NULL);
    int rc = mr_json_enter_object(&j);
    while (rc == MR_OK && mr_json_next_key(&j, &first, &key)) {
        if (mr_str_eq(key, MR_STR("id"))) {
            return mr_json_string(&j, &id) == MR_OK ? id : MR_STR("");
        }
        rc = mr_json_skip(&j, NULL);
    }
    return id;
}

/* ---- responses ---- */

struct response_parts {
    struct mr_oip_response response;
    struct mr_oip_params rest;
    mr_str error; /* ptr NULL when there is none */
    bool has_outputs;
};

static int response_member_read(struct mr_rest_reader *r, struct response_parts *p, mr_str key)
{
    if (mr_str_eq(key, MR_STR("id"))) {
        return string_or_null_read(r, "id", &p->response.id);
    }
    if (mr_str_eq(key, MR_STR("model_name"))) {
        return string_or_null_read(r, "model_name", &p->response.model_name);
    }
    if (mr_str_eq(key, MR_STR("model_version"))) {
        return string_or_null_read(r, "model_version", &p->response.model_version);
    }
    if (mr_str_eq(key, MR_STR("error"))) {
        return string_or_null_read(r, "error", &p->error);
    }
    if (mr_str_eq(key, MR_STR("parameters"))) {
        return mr_rest_params(r, NULL, NULL, &p->rest);
    }
    if (mr_str_eq(key, MR_STR("outputs"))) {
        if (p->has_outputs) {
            return mr_rest_twice(r, "outputs");
        }
        p->has_outputs = true;
        return mr_rest_tensors(r, &p->response.outputs, &p->response.output_count);
    }
    return mr_json_skip(&r->json, NULL);
}

static int response_read(struct mr_rest_reader *r, struct response_parts *p)
{
    bool first = true;
    mr_str key;
    int rc = mr_json_enter_object(&r->json);
    while (rc == MR_OK && mr_json_next_key(&r->json, &first, &key)) {
        rc = response_member_read(r, p, key);
    }
    if (rc == MR_OK) {
        rc = r->json.status;
    }
    if (rc == MR_OK) {
        rc = mr_json_finish(&r->json);
    }
    if (rc < 0) {
        return rc;
    }
    if (!p->has_outputs) {
        return p->error.ptr ? MR_FAIL(r->err, MR_E_UNKNOWN, "%.*s", MR_STR_ARG(p->error))
                            : mr_rest_missing(r, "outputs");
    }
    if (r->binary.len > 0) {
        return MR_FAIL(r->err, MR_E_INVALID,
                       "unexpected additional output data after the last output");
    }
    return MR_OK;
}

int mr_oip_rest_decode_response(mr_bytes body, int64_t header_length,
                                const struct mr_oip_limits *limits, struct mr_arena *arena,
                                struct mr_oip_response *out, struct mr_err *err)
{
    struct mr_rest_reader r;
    int rc = mr_rest_begin(&r, body, header_length, limits, arena, err);
    if (rc < 0) {
        return rc;
    }
    r.model = MR_STR("");
    r.is_response = true;
    r.word = "output";
    struct response_parts parts = {0};
    rc = response_read(&r, &parts);
    if (rc < 0) {
        return mr_rest_fail(&r, rc);
    }
    parts.response.params = parts.rest.at;
    parts.response.param_count = parts.rest.len;
    *out = parts.response;
    return MR_OK;
}
