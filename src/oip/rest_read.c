/* Reading the JSON of REST messages: the envelope, parameters and tensor objects.
 *
 * The members of an object may come in any order. Clients send `data` last, so it is mostly read
 * where it stands; when the type or the shape is not known yet, its text is remembered and read at the
 * object's end. Binary data belongs to the tensors that announce it, in their order. null is taken as
 * "absent" for optional members, as some clients print them that way. Any thread. */
#include "rest_read.h"

int mr_rest_begin(struct mr_rest_reader *r, mr_bytes body, int64_t header_length,
                  const struct mr_oip_limits *limits, struct mr_arena *arena, struct mr_err *err)
{
    *r = (struct mr_rest_reader){
        .arena = arena,
        .max_json_bytes = limits ? limits->max_json_bytes : 0,
        .max_tensors = limits && limits->max_tensors ? limits->max_tensors : OIP_TENSORS_DEFAULT,
        .size_option =
            limits && limits->size_option ? limits->size_option : "--http-max-input-size",
        .err = err,
    };
    if (header_length < -1 || (header_length >= 0 && (uint64_t)header_length > body.len)) {
        return MR_FAIL(err, MR_E_INVALID,
                       "inference header size should be in range (0, %zu), got: %lld", body.len,
                       (long long)header_length);
    }
    size_t json_bytes = header_length < 0 ? body.len : (size_t)header_length;
    if (r->max_json_bytes != 0 && json_bytes > r->max_json_bytes) {
        return MR_FAIL(
            err, MR_E_TOO_LARGE,
            "request JSON size of %zu bytes exceeds the maximum allowed input size of %llu bytes. "
            "Use %s to increase the limit.",
            json_bytes, (unsigned long long)r->max_json_bytes, r->size_option);
    }
    mr_json_init(&r->json, mr_str_n((const char *)body.ptr, json_bytes), arena,
                 limits ? limits->max_json_depth : 0, err);
    r->json.depth_hint = limits ? limits->depth_hint : NULL;
    r->json.null_is_nan = limits && limits->null_is_nan;
    r->json.overflow_fails = true;
    if (json_bytes < body.len) {
        r->binary = (mr_bytes){body.ptr + json_bytes, body.len - json_bytes};
    }
    return MR_OK;
}

int mr_rest_fail(struct mr_rest_reader *r, int rc)
{
    if (rc < 0 && !r->is_named && r->json.status < 0) {
        return MR_WRAP(r->err, rc, "failed to parse the %s JSON buffer",
                       r->is_response ? "response" : "request");
    }
    return rc;
}

int mr_rest_named(struct mr_rest_reader *r, const char *member)
{
    int rc = r->json.status;
    if (rc >= 0) {
        rc = r->err && r->err->status < 0 ? r->err->status : MR_E_INVALID;
    }
    r->is_named = true;
    return MR_WRAP(r->err, rc, "Unable to parse '%s'", member);
}

int mr_rest_missing(struct mr_rest_reader *r, const char *member)
{
    r->is_named = true;
    return MR_FAIL(r->err, MR_E_INVALID,
                   "Unable to parse '%s': attempt to access non-existing object member '%s'",
                   member, member);
}

int mr_rest_twice(struct mr_rest_reader *r, const char *member)
{
    r->is_named = true;
    return MR_FAIL(r->err, MR_E_INVALID, "Unable to parse '%s': the member appears twice", member);
}

bool mr_rest_null(struct mr_rest_reader *r)
{
    return mr_json_peek(&r->json) == MR_JSON_NULL && mr_json_null(&r->json) == MR_OK;
}

/* ---- parameters ---- */

static int number_param(struct mr_json *j, struct mr_oip_param *out)
{
    mr_str text;
    int rc = mr_json_number_text(j, &text);
    if (rc < 0) {
        return rc;
    }
    if (mr_str_to_i64(text, &out->i)) {
        out->kind = MR_OIP_INT;
    } else if (mr_str_to_u64(text, &out->u)) {
        out->kind = MR_OIP_UINT;
    } else if (mr_text_double(text, &out->d)) {
        out->kind = MR_OIP_DOUBLE;
    } else {
        return mr_json_fail(j, MR_E_INVALID, "malformed number");
    }
    return MR_OK;
}

static int param_read(struct mr_rest_reader *r, mr_str key, struct mr_oip_param *out)
{
    struct mr_json *j = &r->json;
    out->key = key;
    switch (mr_json_peek(j)) {
    case MR_JSON_STRING: out->kind = MR_OIP_STRING; return mr_json_string(j, &out->s);
    case MR_JSON_BOOL: out->kind = MR_OIP_BOOL; return mr_json_bool(j, &out->b);
    case MR_JSON_NUMBER: return number_param(j, out);
    case MR_JSON_END: return mr_json_skip(j, NULL); /* says what is wrong with the text */
    default: break;
    }
    r->is_named = true;
    return MR_FAIL(
        r->err, MR_E_INVALID,
        "parameter '%.*s' has invalid type. It should be either 'int', 'bool', 'double', or "
        "'string'.",
        MR_STR_ARG(key));
}

/* Other servers put more into their answers than a parameter can be; it is no reason to lose them. */
static bool is_foreign(const struct mr_rest_reader *r, enum mr_json_type type)
{
    return r->is_response &&
           (type == MR_JSON_OBJECT || type == MR_JSON_ARRAY || type == MR_JSON_NULL);
}

int mr_rest_params(struct mr_rest_reader *r, mr_rest_take_fn *take, void *ctx,
                   struct mr_oip_params *rest)
{
    if (mr_rest_null(r)) {
        return MR_OK;
    }
    if (mr_json_enter_object(&r->json) < 0) {
        return mr_rest_named(r, "parameters");
    }
    bool first = true;
    mr_str key;
    while (mr_json_next_key(&r->json, &first, &key)) {
        struct mr_oip_param p;
        if (!mr_turn_spend(64 + rest->len)) {
            return mr_oip_ended(r->err);
        }
        if (is_foreign(r, mr_json_peek(&r->json))) {
            if (mr_json_skip(&r->json, NULL) < 0) {
                break;
            }
            continue;
        }
        int rc = param_read(r, key, &p);
        if (rc < 0) {
            return rc;
        }
        rc = take ? take(ctx, &p, r->err) : 0;
        if (rc == 0) {
            rc = mr_oip_params_put(rest, r->arena, &r->param_total, &p, r->err);
        }
        if (rc < 0) {
            r->is_named = true;
            return rc;
        }
    }
    return r->json.status;
}

/* ---- tensors ---- */

struct tensor_parts {
    struct mr_oip_tensor *t;
    struct mr_oip_tensor_params known;
    struct mr_oip_params rest;
    uint64_t elements;
    mr_str data_text; /* read later; ptr NULL when there is none */
    bool has_name;
    bool has_datatype;
    bool has_shape;
    bool has_data;
    bool has_params;
};

static int datatype_read(struct mr_rest_reader *r, struct tensor_parts *p)
{
    mr_str text;
    if (mr_json_string(&r->json, &text) < 0) {
        return mr_rest_named(r, "datatype");
    }
    p->t->tensor.dtype = mr_dtype_from_name(text);
    if (p->t->tensor.dtype == MR_DTYPE_INVALID) {
        r->is_named = true;
        return MR_FAIL(r->err, MR_E_INVALID,
                       "Unable to parse 'datatype': '%.*s' is not a data type", MR_STR_ARG(text));
    }
    p->has_datatype = true;
    return MR_OK;
}

static int shape_read(struct mr_rest_reader *r, struct tensor_parts *p)
{
    struct mr_json *j = &r->json;
    int64_t dims[MR_MAX_RANK];
    int rank = 0;
    bool first = true;
    if (mr_json_enter_array(j) < 0) {
        return mr_rest_named(r, "shape");
    }
    while (mr_json_next_item(j, &first)) {
        if (rank == MR_MAX_RANK) {
            mr_json_fail(j, MR_E_INVALID, "more than %d dimensions", MR_MAX_RANK);
        } else if (mr_json_i64(j, &dims[rank]) == MR_OK && dims[rank++] < 0) {
            mr_json_fail(j, MR_E_INVALID,
                         "attempt to access JSON non-unsigned-integer as unsigned-integer");
        }
        if (j->status < 0) {
            break;
        }
    }
    if (j->status < 0 || mr_shape_elements(dims, rank, &p->elements, r->err) < 0) {
        return mr_rest_named(r, "shape");
    }
    int64_t *shape = MR_ARENA_ARRAY(r->arena, int64_t, (size_t)MR_MAX(rank, 1));
    if (!shape) {
        return mr_oip_no_memory(r->err);
    }
    memcpy(shape, dims, (size_t)rank * sizeof *dims);
    p->t->tensor.shape = shape;
    p->t->tensor.rank = rank;
    p->has_shape = true;
    return MR_OK;
}

static int data_read(struct mr_rest_reader *r, struct tensor_parts *p)
{
    if (mr_rest_null(r)) {
        return MR_OK;
    }
    p->has_data = true;
    if (p->has_datatype && p->has_shape) {
        return mr_rest_data(r, &r->json, p->elements, p->t);
    }
    return mr_json_skip(&r->json, &p->data_text);
}

static int tensor_param_take(void *ctx, const struct mr_oip_param *p, struct mr_err *err)
{
    struct mr_oip_tensor_params *known = ctx;
    return mr_oip_param_of_tensor(known, p, false, MR_OIP_WIRE_REST, err);
}

static int tensor_member_read(struct mr_rest_reader *r, struct tensor_parts *p, mr_str key)
{
    if (mr_str_eq(key, MR_STR("name"))) {
        if (p->has_name) {
            return mr_rest_twice(r, "name");
        }
        p->has_name = true;
        return mr_json_string(&r->json, &p->t->name) < 0 ? mr_rest_named(r, "name") : MR_OK;
    }
    if (mr_str_eq(key, MR_STR("datatype"))) {
        return p->has_datatype ? mr_rest_twice(r, "datatype") : datatype_read(r, p);
    }
    if (mr_str_eq(key, MR_STR("shape"))) {
        return p->has_shape ? mr_rest_twice(r, "shape") : shape_read(r, p);
    }
    if (mr_str_eq(key, MR_STR("data"))) {
        return p->has_data ? mr_rest_twice(r, "data") : data_read(r, p);
    }
    if (mr_str_eq(key, MR_STR("parameters"))) {
        if (p->has_params) {
            return mr_rest_twice(r, "parameters");
        }
        p->has_params = true;
        return mr_rest_params(r, tensor_param_take, &p->known, &p->rest);
    }
    return mr_json_skip(&r->json, NULL);
}

/* Exactly one of data, binary_data_size and shared_memory_region. */
static int sources_check(struct mr_rest_reader *r, const struct tensor_parts *p)
{
    bool has_shm = p->known.shm.region.ptr != NULL;
    bool has_binary = p->known.has_binary_data_size;
    if ((int)p->has_data + (int)has_binary + (int)has_shm == 1) {
        return MR_OK;
    }
    bool none = !p->has_data && !has_binary && !has_shm;
    r->is_named = true;
    return MR_FAIL(r->err, MR_E_INVALID,
                   "%s must set only one of the following fields: 'data', 'binary_data_size' in "
                   "'parameters', 'shared_memory_region' in 'parameters'. But %s%s%s%s",
                   r->is_response ? "Output" : "Input", none ? "no field is set" : "set",
                   p->has_data ? " 'data'" : "", has_binary ? " 'binary_data_size'" : "",
                   has_shm ? " 'shared_memory_region'" : "");
}

static int binary_take(struct mr_rest_reader *r, struct tensor_parts *p)
{
    uint64_t bytes = p->known.binary_data_size;
    if (bytes > r->binary.len) {
        return MR_FAIL(
            r->err, MR_E_INVALID,
            "unexpected size for %s '%.*s', expecting %llu additional bytes for model '%.*s'",
            r->word, MR_STR_ARG(p->t->name), (unsigned long long)(bytes - r->binary.len),
            MR_STR_ARG(r->model));
    }
    mr_bytes data = {r->binary.ptr, (size_t)bytes};
    if (bytes > 0) {
        r->binary.ptr += bytes;
        r->binary.len -= (size_t)bytes;
    }
    int rc = mr_oip_data_refer(r->arena, p->t, data, r->err);
    return rc < 0 ? rc : mr_oip_binary_check(p->t, p->elements, r->is_response, r->model, r->err);
}

static int tensor_finish(struct mr_rest_reader *r, struct tensor_parts *p)
{
    if (!p->has_name || !p->has_datatype || !p->has_shape) {
        return mr_rest_missing(r, !p->has_name ? "name" : !p->has_datatype ? "datatype" : "shape");
    }
    int rc = sources_check(r, p);
    if (rc < 0) {
        return rc;
    }
    p->t->params = p->rest.at;
    p->t->param_count = p->rest.len;
    if (p->known.has_binary_data_size) {
        p->t->binary = true;
        rc = binary_take(r, p);
    } else if (p->has_data && p->data_text.ptr) {
        struct mr_json later = r->json;
        later.pos = p->data_text.ptr;
        later.end = p->data_text.ptr + p->data_text.len;
        rc = mr_rest_data(r, &later, p->elements, p->t);
    }
    if (rc == MR_OK) {
        p->t->shm = p->known.shm;
        rc = mr_oip_tensor_params_check(&p->known, p->t->name, MR_OIP_WIRE_REST, r->err);
    }
    return rc;
}

static int tensor_read(struct mr_rest_reader *r, struct mr_oip_tensor *t)
{
    struct tensor_parts parts = {.t = t, .known.binary_data = -1};
    bool first = true;
    mr_str key;
    int rc = mr_json_enter_object(&r->json);
    while (rc == MR_OK && mr_json_next_key(&r->json, &first, &key)) {
        rc = tensor_member_read(r, &parts, key);
    }
    if (rc == MR_OK) {
        rc = r->json.status;
    }
    return rc == MR_OK ? tensor_finish(r, &parts) : rc;
}

int mr_rest_tensors(struct mr_rest_reader *r, struct mr_oip_tensor **out, size_t *out_count)
{
    struct mr_oip_tensor *tensors = NULL;
    size_t count = 0;
    size_t cap = 0;
    bool first = true;
    const char *member = r->is_response ? "outputs" : "inputs";
    if (mr_json_enter_array(&r->json) < 0) {
        return mr_rest_named(r, member);
    }
    while (mr_json_next_item(&r->json, &first)) {
        if (count == r->max_tensors) {
            return MR_FAIL(r->err, MR_E_INVALID, "more than %u %s", r->max_tensors, member);
        }
        tensors = mr_oip_grow(r->arena, tensors, count, &cap, sizeof *tensors);
        if (!tensors) {
            return mr_oip_no_memory(r->err);
        }
        int rc = tensor_read(r, &tensors[count]);
        if (rc < 0) {
            return rc;
        }
        count++;
    }
    if (r->json.status < 0) {
        return r->json.status;
    }
    const mr_str *again;
    int rc = mr_oip_find_duplicate(r->arena, tensors, sizeof *tensors, count, &again, r->err);
    if (rc == MR_OK && again) {
        rc = MR_FAIL(r->err, MR_E_INVALID, "%s '%.*s' already exists in %s", r->word,
                     MR_STR_ARG(*again), r->is_response ? "response" : "request");
    }
    *out = tensors;
    *out_count = count;
    return rc;
}
