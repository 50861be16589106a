/* The generate extension: one flat JSON object as a request, and one as an answer.
 *
 * A request is rewritten as the JSON of an ordinary inference, which is then decoded like any other, so that values are
 * read, judged and bounded in one place. Members that are inputs of the model become tensors, the others parameters.
 * Any thread. */
#include "codec/json.h"
#include "oip_priv.h"

struct rewrite {
    struct mr_json json;
    const struct mr_oip_io *inputs;
    size_t input_count;
    bool *has_input; /* of each */
    mr_str id;
    const char *within;    /* what errors begin with */
    struct mr_buf *params; /* members, each with a comma before it */
    struct mr_buf *tensors;
};

static void separate(struct mr_buf *b)
{
    if (b->len > 0) {
        mr_buf_char(b, ',');
    }
}

static const struct mr_oip_io *input_find(const struct rewrite *w, mr_str name)
{
    for (size_t i = 0; i < w->input_count; i++) {
        if (mr_str_eq(w->inputs[i].name, name)) {
            return &w->inputs[i];
        }
    }
    return NULL;
}

/* Writes the shape of that many elements: the innermost open dimension takes what the others leave, which are 1. The batch is
 * such a dimension. */
static int shape_write(struct rewrite *w, const struct mr_oip_io *io, uint64_t elements)
{
    struct mr_buf *b = w->tensors;
    uint64_t fixed = 1;
    int open = -1;

    for (int d = 0; d < io->rank; d++) {
        fixed *= io->shape[d] > 0 ? (uint64_t)io->shape[d] : 1;
        open = io->shape[d] < 0 ? d : open;
    }
    if (fixed > 0 && (open < 0 ? elements != fixed : elements % fixed != 0)) {
        return mr_json_fail(&w->json, MR_E_INVALID,
                            "The schema can not convert input '%.*s' to tensor with proper shape: "
                            "%llu elements are not %s%llu",
                            MR_STR_ARG(mr_str_sub(io->name, 0, 64)), (unsigned long long)elements,
                            open < 0 ? "" : "a multiple of ", (unsigned long long)fixed);
    }
    MR_BUF_LIT(b, ",\"shape\":[");
    for (int d = 0; d < io->rank; d++) {
        int64_t size = io->shape[d] < 0 ? 1 : io->shape[d];
        if (d == open && fixed > 0) {
            size = (int64_t)(elements / fixed);
        }
        if (d > 0) {
            mr_buf_char(b, ',');
        }
        mr_buf_i64(b, size);
    }
    mr_buf_char(b, ']');
    return MR_OK;
}

/* Refuses what cannot be an element, here, where its place in the client's text is known. Triton's texts. */
static int element_check(struct rewrite *w, struct mr_json *at, const struct mr_oip_io *io)
{
    const bool is_string = io->dtype == MR_DTYPE_BYTES, is_bool = io->dtype == MR_DTYPE_BOOL;
    const enum mr_json_type found = mr_json_peek(at);
    const char *as = is_string ? "string" : is_bool ? "boolean" : "number";

    if (found == MR_JSON_END || (found == MR_JSON_NULL && !is_string && !is_bool) ||
        found == (is_string ? MR_JSON_STRING
                  : is_bool ? MR_JSON_BOOL
                            : MR_JSON_NUMBER)) {
        return MR_OK;
    }
    w->json.pos = at->pos;
    return mr_json_fail(&w->json, MR_E_INVALID, "input '%.*s': attempt to access JSON non-%s as %s",
                        MR_STR_ARG(mr_str_sub(io->name, 0, 64)), as, as);
}

/* A scalar, or an array of one dimension. */
static int tensor_rewrite(struct rewrite *w, const struct mr_oip_io *io)
{
    bool is_array = mr_json_peek(&w->json) == MR_JSON_ARRAY;
    struct mr_json inside = w->json;
    uint64_t elements = is_array ? 0 : 1;
    bool first = true;
    mr_str text;

    if (w->has_input[io - w->inputs]) {
        return mr_json_fail(&w->json, MR_E_INVALID, "input '%.*s' already exists in request",
                            MR_STR_ARG(mr_str_sub(io->name, 0, 64)));
    }
    w->has_input[io - w->inputs] = true;
    if (is_array) {
        mr_json_enter_array(&inside);
        while (mr_json_next_item(&inside, &first)) {
            elements++;
            if (mr_json_peek(&inside) == MR_JSON_ARRAY || mr_json_peek(&inside) == MR_JSON_OBJECT) {
                return mr_json_fail(&w->json, MR_E_INVALID,
                                    "input '%.*s' takes a value or an array of values",
                                    MR_STR_ARG(mr_str_sub(io->name, 0, 64)));
            }
            if (element_check(w, &inside, io) < 0) {
                return w->json.status;
            }
            mr_json_skip(&inside, NULL);
        }
    } else if (element_check(w, &w->json, io) < 0) {
        return w->json.status;
    }
    if (mr_json_skip(&w->json, &text) < 0) {
        return w->json.status;
    }
    separate(w->tensors);
    MR_BUF_LIT(w->tensors, "{\"name\":");
    mr_json_put_string(w->tensors, io->name);
    MR_BUF_LIT(w->tensors, ",\"datatype\":\"");
    mr_buf_c(w->tensors, mr_dtype_name(io->dtype));
    mr_buf_char(w->tensors, '"');
    if (shape_write(w, io, elements) < 0) {
        return w->json.status;
    }
    mr_buf_c(w->tensors, is_array ? ",\"data\":" : ",\"data\":[");
    mr_buf_str(w->tensors, text);
    mr_buf_c(w->tensors, is_array ? "}" : "]}");
    return MR_OK;
}

/* What a request asks of the server itself, a sequence aside: of no use while the inputs are not known, one of which may have
 * the name and any value. */
static bool is_reserved(mr_str key)
{
    static const char *const names[] = {"priority", "timeout", "sequence_start", "sequence_end",
                                        "binary_data_output"};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (mr_str_eq_c(key, names[i])) {
            return true;
        }
    }
    return mr_str_starts(key, MR_STR("triton_"));
}

static int param_rewrite(struct rewrite *w, mr_str key)
{
    enum mr_json_type type = mr_json_peek(&w->json);
    mr_str text;

    if (!w->inputs && (type == MR_JSON_ARRAY || type == MR_JSON_NULL || is_reserved(key))) {
        return mr_json_skip(&w->json, NULL); /* of an input */
    }
    if (type != MR_JSON_STRING && type != MR_JSON_NUMBER && type != MR_JSON_BOOL) {
        return mr_json_fail(
            &w->json, MR_E_INVALID,
            "%sparameter '%.*s' has invalid type. It should be either 'int', 'bool', or 'string'",
            w->within, MR_STR_ARG(mr_str_sub(key, 0, 64)));
    }
    if (mr_json_skip(&w->json, &text) < 0) {
        return w->json.status;
    }
    separate(w->params);
    mr_json_put_string(w->params, key);
    mr_buf_char(w->params, ':');
    mr_buf_str(w->params, text);
    return MR_OK;
}

/* The members of `parameters` count as if they stood outside. */
static int params_rewrite(struct rewrite *w)
{
    bool first = true;
    mr_str key;

    if (mr_json_peek(&w->json) != MR_JSON_OBJECT) {
        return mr_json_fail(&w->json, MR_E_INVALID,
                            "Expected JSON object for keyword: 'parameters'");
    }
    w->within = "Converting keyword: 'parameters': ";
    mr_json_enter_object(&w->json);
    while (mr_json_next_key(&w->json, &first, &key)) {
        const struct mr_oip_io *io = input_find(w, key);
        if (io) {
            tensor_rewrite(w, io);
        } else {
            param_rewrite(w, key);
        }
    }
    w->within = "";
    return w->json.status;
}

static int member_rewrite(struct rewrite *w, mr_str key)
{
    const struct mr_oip_io *io = input_find(w, key);

    if (io) {
        return tensor_rewrite(w, io);
    }
    if (mr_str_eq(key, MR_STR("id"))) {
        return mr_json_string(&w->json, &w->id);
    }
    if (mr_str_eq(key, MR_STR("parameters"))) {
        return params_rewrite(w);
    }
    return param_rewrite(w, key);
}

int mr_oip_generate_request(mr_bytes body, const struct mr_oip_io *inputs, size_t input_count,
                            struct mr_arena *arena, struct mr_buf *out, struct mr_err *err)
{
    struct mr_buf params, tensors;
    struct rewrite w = {.inputs = inputs,
                        .input_count = input_count,
                        .has_input = MR_ARENA_ARRAY(arena, bool, input_count + 1),
                        .within = "",
                        .params = &params,
                        .tensors = &tensors};
    bool first = true;
    mr_str key;

    if (!w.has_input) {
        return mr_oip_no_memory(err);
    }
    mr_buf_init(&params, 0);
    mr_buf_init(&tensors, 0);
    mr_json_init(&w.json, mr_str_n((const char *)body.ptr, body.len), arena, 0, err);
    mr_json_enter_object(&w.json);
    while (mr_json_next_key(&w.json, &first, &key)) {
        member_rewrite(&w, key);
    }
    int rc = mr_json_finish(&w.json);
    MR_BUF_LIT(out, "{\"id\":");
    mr_json_put_string(out, w.id.ptr ? w.id : MR_STR(""));
    MR_BUF_LIT(out, ",\"parameters\":{");
    mr_buf_str(out, mr_str_n(params.ptr, params.len));
    MR_BUF_LIT(out, "},\"inputs\":[");
    mr_buf_str(out, mr_str_n(tensors.ptr, tensors.len));
    MR_BUF_LIT(out, "]}");
    if (rc == MR_OK && (out->failed || params.failed || tensors.failed)) {
        rc = MR_ARENA_FAIL(err);
    }
    mr_buf_fini(&tensors);
    mr_buf_fini(&params);
    return rc;
}

int mr_oip_generate_response(const struct mr_oip_response *r, const char *before, const char *after,
                             struct mr_buf *buf, struct mr_arena *arena, struct mr_oip_encoded *out,
                             struct mr_err *err)
{
    struct mr_oip_view *views;
    struct mr_oip_out o;
    int rc = mr_oip_views_new(r->outputs, r->output_count, "output", arena, &views, err);

    if (rc < 0) {
        return rc;
    }
    mr_oip_out_init(&o, buf, arena, 0);
    o.may_spill = true;
    mr_buf_c(buf, before);
    if (r->id.len > 0) {
        MR_BUF_LIT(buf, "{\"id\":");
        mr_json_put_string(buf, r->id);
        MR_BUF_LIT(buf, ",\"model_name\":");
    } else {
        MR_BUF_LIT(buf, "{\"model_name\":");
    }
    mr_json_put_string(buf, r->model_name);
    MR_BUF_LIT(buf, ",\"model_version\":");
    mr_json_put_string(buf, r->model_version);
    for (size_t i = 0; i < r->param_count; i++) {
        mr_buf_char(buf, ',');
        mr_oip_rest_param(buf, &r->params[i]);
    }
    for (size_t i = 0; i < r->output_count; i++) {
        mr_buf_char(buf, ',');
        mr_json_put_string(buf, r->outputs[i].name);
        mr_buf_c(buf, views[i].elements == 1 ? ":" : ":[");
        mr_oip_text_elements(&o, &views[i].tensor, views[i].elements);
        mr_buf_c(buf, views[i].elements == 1 ? "" : "]");
    }
    mr_buf_char(buf, '}');
    mr_buf_c(buf, after);
    return mr_oip_out_finish(&o, out, err);
}
