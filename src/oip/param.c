/* Parameters of messages: which have a meaning to us, of which type they must be, and the list of the
 * rest, which the model gets as it is.
 *
 * Both wires read a parameter into a struct mr_oip_param first and then ask here; only the sentence
 * about a wrong type differs, as clients and tests know both. Of a key that comes twice the last one
 * counts, as in a protobuf map. Any thread. */
#include "codec/json.h"
#include "oip_priv.h"

int mr_oip_params_put(struct mr_oip_params *list, struct mr_arena *arena, size_t *io_total,
                      const struct mr_oip_param *p, struct mr_err *err)
{
    if (*io_total >=
        OIP_PARAMS_MAX) { /* with those that come twice, each of which is compared with all */
        return MR_FAIL(err, MR_E_INVALID, "request has more than %d parameters", OIP_PARAMS_MAX);
    }
    (*io_total)++;
    for (size_t i = 0; i < list->len; i++) {
        if (mr_str_eq(list->at[i].key, p->key)) {
            list->at[i] = *p;
            return MR_OK;
        }
    }
    struct mr_oip_param *at = mr_oip_grow(arena, list->at, list->len, &list->cap, sizeof *at);
    if (!at) {
        return mr_oip_no_memory(err);
    }
    list->at = at;
    list->at[list->len++] = *p;
    return MR_OK;
}

mr_str mr_oip_param_text(const struct mr_oip_param *p, char number[MR_OIP_PARAM_TEXT])
{
    switch (p->kind) {
    case MR_OIP_INT: return mr_str_n(number, (size_t)(mr_i64_put(number, p->i) - number));
    case MR_OIP_UINT: return mr_str_n(number, (size_t)(mr_u64_put(number, p->u) - number));
    case MR_OIP_DOUBLE: return mr_str_n(number, mr_double_text_17(p->d, number));
    case MR_OIP_BOOL: return p->b ? MR_STR("true") : MR_STR("false");
    default: return p->s;
    }
}

enum kinds { KIND_BOOL, KIND_COUNT, KIND_STRING, KIND_COUNT_OR_STRING };

/* What the caller should have sent, in the words of each wire. */
static int param_mistyped(const struct mr_oip_param *p, enum kinds kinds, enum mr_oip_wire wire,
                          struct mr_err *err)
{
    static const char *const rest[] = {
        [KIND_BOOL] = "true or false",
        [KIND_COUNT] = "an unsigned integer",
        [KIND_STRING] = "a string",
        [KIND_COUNT_OR_STRING] = "an unsigned integer or a string",
    };
    static const char *const grpc[] = {
        [KIND_BOOL] = "bool_param",
        [KIND_COUNT] = "int64_param or uint64_param",
        [KIND_STRING] = "string_param",
        [KIND_COUNT_OR_STRING] = "int64_param or string_param",
    };
    if (wire == MR_OIP_WIRE_REST) {
        return MR_FAIL(err, MR_E_INVALID, "Unable to parse '%.*s': expected %s", MR_STR_ARG(p->key),
                       rest[kinds]);
    }
    return MR_FAIL(err, MR_E_INVALID, "invalid value type for '%.*s' parameter, expected %s.",
                   MR_STR_ARG(p->key), grpc[kinds]);
}

static int param_bool(const struct mr_oip_param *p, bool *out, enum mr_oip_wire wire,
                      struct mr_err *err)
{
    if (p->kind != MR_OIP_BOOL) {
        return param_mistyped(p, KIND_BOOL, wire, err);
    }
    *out = p->b;
    return 1;
}

static int param_count(const struct mr_oip_param *p, uint64_t *out, enum mr_oip_wire wire,
                       struct mr_err *err)
{
    if (p->kind == MR_OIP_UINT) {
        *out = p->u;
        return 1;
    }
    if (p->kind != MR_OIP_INT || (p->i < 0 && wire == MR_OIP_WIRE_REST)) {
        return param_mistyped(p, KIND_COUNT, wire, err);
    }
    if (p->i < 0) {
        return MR_FAIL(err, MR_E_INVALID, "invalid value for '%.*s', expected value >= 0.",
                       MR_STR_ARG(p->key));
    }
    *out = (uint64_t)p->i;
    return 1;
}

static int param_string(const struct mr_oip_param *p, mr_str *out, enum mr_oip_wire wire,
                        struct mr_err *err)
{
    if (p->kind != MR_OIP_STRING) {
        return param_mistyped(p, KIND_STRING, wire, err);
    }
    *out = p->s;
    return 1;
}

static int sequence_id_take(struct mr_oip_request *r, const struct mr_oip_param *p,
                            enum mr_oip_wire wire, struct mr_err *err)
{
    uint64_t id = 0;
    mr_str text = {NULL, 0};
    if (p->kind == MR_OIP_STRING) {
        text = p->s.len ? p->s : MR_STR("");
    } else if (p->kind == MR_OIP_UINT) {
        id = p->u;
    } else if (p->kind == MR_OIP_INT && (p->i >= 0 || wire == MR_OIP_WIRE_GRPC)) {
        id = (uint64_t)p->i; /* gRPC clients have no other field for ids above INT64_MAX */
    } else {
        return param_mistyped(p, KIND_COUNT_OR_STRING, wire, err);
    }
    r->has_sequence_id = true;
    r->sequence_id = id;
    r->sequence_id_str = text;
    return 1;
}

static int reserved_take(struct mr_oip_request *r, const struct mr_oip_param *p,
                         enum mr_oip_wire wire, struct mr_err *err)
{
    if (wire == MR_OIP_WIRE_REST) {
        return MR_FAIL(err, MR_E_INVALID,
                       "parameter keys starting with 'triton_' are reserved for Triton usage and "
                       "should not be specified.");
    }
    if (!mr_str_eq(p->key, MR_STR("triton_enable_empty_final_response"))) {
        return MR_FAIL(
            err, MR_E_INVALID,
            "parameter keys starting with 'triton_' are reserved for Triton usage. Only the "
            "following keys starting with 'triton_' are allowed: "
            "triton_enable_empty_final_response");
    }
    return param_bool(p, &r->enable_empty_final_response, wire, err);
}

int mr_oip_param_of_request(struct mr_oip_request *r, const struct mr_oip_param *p,
                            enum mr_oip_wire wire, struct mr_err *err)
{
    if (mr_str_eq(p->key, MR_STR("sequence_id"))) {
        return sequence_id_take(r, p, wire, err);
    }
    if (mr_str_eq(p->key, MR_STR("sequence_start"))) {
        return param_bool(p, &r->sequence_start, wire, err);
    }
    if (mr_str_eq(p->key, MR_STR("sequence_end"))) {
        return param_bool(p, &r->sequence_end, wire, err);
    }
    if (mr_str_eq(p->key, MR_STR("priority"))) {
        return param_count(p, &r->priority, wire, err);
    }
    if (mr_str_eq(p->key, MR_STR("timeout"))) {
        return param_count(p, &r->timeout_us, wire, err);
    }
    if (wire == MR_OIP_WIRE_REST && mr_str_eq(p->key, MR_STR("binary_data_output"))) {
        return param_bool(p, &r->binary_data_output, wire, err);
    }
    if (mr_str_starts(p->key, MR_STR("triton_"))) {
        return reserved_take(r, p, wire, err);
    }
    return 0;
}

static int classification_take(struct mr_oip_tensor_params *to, const struct mr_oip_param *p,
                               enum mr_oip_wire wire, struct mr_err *err)
{
    uint64_t k = 0;
    int rc = param_count(p, &k, wire, err);
    if (rc < 0) {
        return rc;
    }
    if (wire == MR_OIP_WIRE_GRPC && k == 0) {
        return MR_FAIL(err, MR_E_INVALID,
                       "invalid value for 'classification' parameter, expected value > 0.");
    }
    /* More classes than a tensor has elements means all of them. */
    to->classification = (int32_t)MR_MIN(k, (uint64_t)INT32_MAX);
    to->has_classification = true;
    return 1;
}

static int shm_take(struct mr_oip_tensor_params *to, const struct mr_oip_param *p,
                    enum mr_oip_wire wire, struct mr_err *err)
{
    if (mr_str_eq(p->key, MR_STR("shared_memory_region"))) {
        int rc = param_string(p, &to->shm.region, wire, err);
        if (rc == 1 && to->shm.region.len == 0) {
            return MR_FAIL(err, MR_E_INVALID, "parameter 'shared_memory_region' is empty");
        }
        return rc;
    }
    if (mr_str_eq(p->key, MR_STR("shared_memory_offset"))) {
        to->has_shm_offset = true;
        return param_count(p, &to->shm.offset, wire, err);
    }
    if (mr_str_eq(p->key, MR_STR("shared_memory_byte_size"))) {
        to->has_shm_byte_size = true;
        return param_count(p, &to->shm.byte_size, wire, err);
    }
    return 0;
}

int mr_oip_param_of_tensor(struct mr_oip_tensor_params *to, const struct mr_oip_param *p,
                           bool is_requested, enum mr_oip_wire wire, struct mr_err *err)
{
    if (mr_str_starts(p->key, MR_STR("shared_memory_"))) {
        return shm_take(to, p, wire, err);
    }
    if (is_requested && mr_str_eq(p->key, MR_STR("classification"))) {
        return classification_take(to, p, wire, err);
    }
    if (wire == MR_OIP_WIRE_GRPC) {
        return 0;
    }
    if (is_requested && mr_str_eq(p->key, MR_STR("binary_data"))) {
        bool wanted = false;
        int rc = param_bool(p, &wanted, wire, err);
        to->binary_data = wanted ? 1 : 0;
        return rc;
    }
    if (!is_requested && mr_str_eq(p->key, MR_STR("binary_data_size"))) {
        to->has_binary_data_size = true;
        return param_count(p, &to->binary_data_size, wire, err);
    }
    return 0;
}

int mr_oip_tensor_params_check(const struct mr_oip_tensor_params *p, mr_str name,
                               enum mr_oip_wire wire, struct mr_err *err)
{
    if (!p->shm.region.ptr) {
        if (!p->has_shm_offset && !p->has_shm_byte_size) {
            return MR_OK;
        }
        return MR_FAIL(
            err, MR_E_INVALID,
            "'%s' can not be specified without 'shared_memory_region' parameter for tensor "
            "'%.*s'",
            p->has_shm_offset ? "shared_memory_offset" : "shared_memory_byte_size",
            MR_STR_ARG(name));
    }
    if (p->has_classification) {
        return MR_FAIL(err, MR_E_INVALID,
                       "%s can't set both 'shared_memory_region' and 'classification'",
                       wire == MR_OIP_WIRE_REST ? "Output" : "output");
    }
    if (p->binary_data == 1) {
        return MR_FAIL(err, MR_E_INVALID,
                       "Output can't set both 'shared_memory_region' and 'binary_data'");
    }
    return MR_OK;
}
