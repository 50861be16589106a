/* A decoded request against the model that it asks for: inputs by name into config order, types, shapes and
 * sizes, wanted outputs. The texts are those that Triton's clients and tests know. Only the arena is used;
 * tensors stay where the decoder left them. */
#include <stdio.h>

#include "base/turn.h"
#include "sched_priv.h"

#define LOOK_BYTES ((uint64_t)128 * 1024)

static int no_arena(struct mr_err *err)
{
    return MR_FAIL(err, MR_E_EXHAUSTED, "the request needs more memory than its arena may use");
}

/* The turn that this is the work of. */
static int ended(struct mr_err *err)
{
    return MR_FAIL(err, MR_E_CANCELLED, "ended");
}

static int find_io(const struct mr_model_io *io, uint32_t count, mr_str name)
{
    for (uint32_t i = 0; i < count; i++)
        if (mr_str_eq(io[i].name, name))
            return (int)i;
    return -1;
}

static bool has_input(const struct mr_oip_request *q, mr_str name)
{
    for (size_t i = 0; i < q->input_count; i++)
        if (mr_str_eq(q->inputs[i].name, name))
            return true;
    return false;
}

/* "Got input(s) ['A'], but missing required input(s) ['B']. ..." when something is missing. */
static void append_missing(char *buf, size_t size, const struct mr_version *v,
                           const struct mr_oip_request *q)
{
    size_t n = strlen(buf), missing = 0;

    n += (size_t)snprintf(buf + n, size - n, ". Got input(s) [");
    for (size_t i = 0; i < q->input_count && n < size; i++)
        n += (size_t)snprintf(buf + n, size - n, "%s'%.*s'", i ? "," : "",
                              MR_STR_ARG(mr_str_sub(q->inputs[i].name, 0, 64)));
    if (n < size)
        n += (size_t)snprintf(buf + n, size - n, "], but missing required input(s) [");
    for (uint32_t i = 0; i < v->input_count && n < size; i++) {
        if (v->inputs[i].optional || has_input(q, v->inputs[i].name))
            continue;
        n += (size_t)snprintf(buf + n, size - n, "%s'%.*s'", missing++ ? "," : "",
                              MR_STR_ARG(v->inputs[i].name));
    }
    if (n < size)
        snprintf(buf + n, size - n, "]. Please provide all required input(s).");
}

static bool is_complete(const struct mr_version *v, const struct mr_oip_request *q)
{
    for (uint32_t i = 0; i < v->input_count; i++)
        if (!v->inputs[i].optional && !has_input(q, v->inputs[i].name))
            return false;
    return true;
}

static int input_count_error(const struct mr_version *v, const struct mr_oip_request *q,
                             struct mr_err *err)
{
    char text[sizeof err->msg];

    if (v->required_input_count == v->input_count)
        snprintf(text, sizeof text, "expected %u inputs but got %zu inputs for model '%.*s'",
                 v->input_count, q->input_count, MR_STR_ARG(v->model_name));
    else
        snprintf(text, sizeof text,
                 "expected number of inputs between %u and %u but got %zu inputs for model '%.*s'",
                 v->required_input_count, v->input_count, q->input_count,
                 MR_STR_ARG(v->model_name));
    if (!is_complete(v, q))
        append_missing(text, sizeof text, v, q);
    return MR_FAIL(err, MR_E_INVALID, "%s", text);
}

static int shape_mismatch(const struct mr_version *v, const struct mr_model_io *io,
                          const struct mr_tensor *t, struct mr_err *err)
{
    char want[256], got[256];
    int64_t full[MR_MAX_RANK + 1];
    int lead = v->max_batch_size > 0 ? 1 : 0;

    full[0] = -1;
    for (int i = 0; i < io->rank; i++)
        full[i + lead] = io->dims[i];
    mr_shape_text(full, io->rank + lead, want, sizeof want);
    mr_shape_text(t->shape, t->rank, got, sizeof got);
    return MR_FAIL(
        err, MR_E_INVALID,
        "unexpected shape for input '%.*s' for model '%.*s'. Expected %s, got %s.%s",
        MR_STR_ARG(io->name), MR_STR_ARG(v->model_name), want, got,
        lead ? " NOTE: Setting a non-zero max_batch_size in the model config requires a batch "
               "dimension to be prepended to each input shape."
             : "");
}

static int check_shape(const struct mr_version *v, const struct mr_model_io *io,
                       const struct mr_tensor *t, struct mr_err *err)
{
    int lead = v->max_batch_size > 0 ? 1 : 0;

    if (t->rank != io->rank + lead)
        return shape_mismatch(v, io, t, err);
    for (int i = 0; i < io->rank; i++)
        if (io->dims[i] >= 0 && io->dims[i] != t->shape[i + lead])
            return shape_mismatch(v, io, t, err);
    return MR_OK;
}

static int check_rows(struct mr_infer *r, const struct mr_model_io *io, const struct mr_tensor *t,
                      bool is_first, struct mr_err *err)
{
    const struct mr_version *v = r->version;

    if (t->rank < 1)
        return shape_mismatch(v, io, t, err);
    if (is_first) {
        if (t->shape[0] > v->max_batch_size)
            return MR_FAIL(err, MR_E_INVALID,
                           "inference request batch-size must be <= %d for '%.*s'",
                           v->max_batch_size, MR_STR_ARG(v->model_name));
        if (t->shape[0] < 1)
            return MR_FAIL(err, MR_E_INVALID,
                           "inference request batch-size must be >= 1 for '%.*s'",
                           MR_STR_ARG(v->model_name));
        r->rows = t->shape[0];
    } else if (t->shape[0] != r->rows) {
        return MR_FAIL(err, MR_E_INVALID,
                       "input '%.*s' batch size does not match other inputs for '%.*s'",
                       MR_STR_ARG(io->name), MR_STR_ARG(v->model_name));
    }
    return MR_OK;
}

/* Code compiled from C++ may do anything with a bool that is neither 0 nor 1. */
static int check_bools(const struct mr_version *v, const struct mr_model_io *io,
                       const struct mr_tensor *t, struct mr_err *err)
{
    const uint8_t *at = t->data;
    uint8_t all = 0;

    for (uint64_t i = 0; i < t->bytes;) {
        uint64_t stop = MR_MIN(t->bytes, i + LOOK_BYTES);
        while (i < stop)
            all |= at[i++];
        if (!mr_turn_spend(MR_TURN_LOOK))
            return ended(err);
    }
    if (all <= 1)
        return MR_OK;
    return MR_FAIL(err, MR_E_INVALID,
                   "input '%.*s' for model '%.*s' has a BOOL element that is neither 0 nor 1",
                   MR_STR_ARG(io->name), MR_STR_ARG(v->model_name));
}

static int check_bytes(const struct mr_version *v, const struct mr_model_io *io,
                       const struct mr_tensor *t, struct mr_err *err)
{
    uint64_t expected;
    int rc;

    if (t->dtype == MR_DTYPE_BYTES)
        return MR_OK; /* the decoder counted the elements */
    rc = mr_shape_bytes(t->dtype, t->shape, t->rank, &expected, err);
    if (rc < 0)
        return rc;
    if (expected == t->bytes)
        return t->dtype == MR_DTYPE_BOOL ? check_bools(v, io, t, err) : MR_OK;
    return MR_FAIL(
        err, MR_E_INVALID,
        "input byte size mismatch for input '%.*s' for model '%.*s'. Expected %llu, got %llu",
        MR_STR_ARG(io->name), MR_STR_ARG(v->model_name), (unsigned long long)expected,
        (unsigned long long)t->bytes);
}

static int bind_input(struct mr_infer *r, const struct mr_oip_tensor *in, bool is_first,
                      struct mr_err *err)
{
    const struct mr_version *v = r->version;
    int i = find_io(v->inputs, v->input_count, in->name), rc = MR_OK;

    if (i < 0)
        return MR_FAIL(err, MR_E_INVALID, "unexpected inference input '%.*s' for model '%.*s'",
                       MR_STR_ARG(in->name), MR_STR_ARG(v->model_name));
    const struct mr_model_io *io = &v->inputs[i];
    if (in->tensor.dtype != io->dtype)
        return MR_FAIL(err, MR_E_INVALID,
                       "inference input '%.*s' data-type is '%s', but model '%.*s' expects '%s'",
                       MR_STR_ARG(in->name), mr_dtype_name(in->tensor.dtype),
                       MR_STR_ARG(v->model_name), mr_dtype_name(io->dtype));
    if (v->max_batch_size > 0)
        MR_TRY(check_rows(r, io, &in->tensor, is_first, err));
    MR_TRY(check_shape(v, io, &in->tensor, err));
    MR_TRY(check_bytes(v, io, &in->tensor, err));
    r->inputs[i] = in->tensor;
    r->input_bytes += in->tensor.bytes;
out:
    return rc;
}

static int bind_outputs(struct mr_infer *r, const struct mr_oip_request *q, struct mr_err *err)
{
    const struct mr_version *v = r->version;

    if (q->output_count == 0) {
        memset(r->wanted, 1, v->output_count);
        return MR_OK;
    }
    for (size_t i = 0; i < q->output_count; i++) {
        int at = find_io(v->outputs, v->output_count, q->outputs[i].name);
        if (at < 0)
            return MR_FAIL(err, MR_E_INVALID, "unexpected inference output '%.*s' for model '%.*s'",
                           MR_STR_ARG(q->outputs[i].name), MR_STR_ARG(v->model_name));
        r->wanted[at] = 1;
    }
    return MR_OK;
}

/* As mr_arena_str, of a string that a client chose. */
static mr_str long_str(struct mr_arena *a, mr_str s)
{
    char *to = s.len < SIZE_MAX ? mr_arena_try(a, s.len + 1, 1) : NULL;

    if (!to || !mr_turn_copy(to, s.ptr, s.len))
        return (mr_str){NULL, 0};
    to[s.len] = 0;
    return mr_str_n(to, s.len);
}

static mr_str param_text(struct mr_arena *a, const struct mr_oip_param *p)
{
    switch (p->kind) {
    case MR_OIP_BOOL: return mr_arena_str(a, p->b ? MR_STR("true") : MR_STR("false"));
    case MR_OIP_INT: return mr_arena_printf(a, "%lld", (long long)p->i);
    case MR_OIP_UINT: return mr_arena_printf(a, "%llu", (unsigned long long)p->u);
    case MR_OIP_DOUBLE: return mr_arena_printf(a, "%.17g", p->d);
    case MR_OIP_STRING: return long_str(a, p->s);
    }
    return mr_arena_str(a, MR_STR(""));
}

static int bind_parameters(struct mr_infer *r, const struct mr_oip_request *q, struct mr_err *err)
{
    if (q->param_count == 0)
        return MR_OK;
    struct mr_setting *s = MR_ARENA_ARRAY(r->arena, struct mr_setting, q->param_count);
    if (!s)
        return no_arena(err);
    for (size_t i = 0; i < q->param_count; i++) {
        s[i].key = long_str(r->arena, q->params[i].key).ptr;
        s[i].value = param_text(r->arena, &q->params[i]).ptr;
        if (!s[i].key || !s[i].value)
            return no_arena(err);
    }
    r->parameters = s;
    r->parameter_count = (uint32_t)q->param_count;
    return MR_OK;
}

/* The body of a raw binary request as the one element of a BYTES tensor: length prefix added. */
static int prefix_body(struct mr_arena *a, struct mr_tensor *t, struct mr_err *err)
{
    uint32_t len = (uint32_t)t->bytes;
    uint8_t *to = t->bytes <= 65536 ? mr_arena_try(a, t->bytes + 4, 8) : NULL;

    if (t->bytes > UINT32_MAX)
        return MR_FAIL(err, MR_E_TOO_LARGE, "a BYTES element is at most 4 GiB");
    if (!to) {
        struct mr_block *b = mr_block_new(t->bytes + 4);
        if (!b || !mr_block_keep(b, a))
            return no_arena(err);
        to = b->data;
    }
    memcpy(to, &len, 4);
    if (len && !mr_turn_copy(to + 4, t->data, len))
        return ended(err);
    t->data = to;
    t->bytes += 4;
    return MR_OK;
}

/* Name, type and shape of a raw binary request's only input from the model. */
static int complete_raw(struct mr_infer *r, struct mr_oip_tensor *in, struct mr_err *err)
{
    const struct mr_version *v = r->version;
    const struct mr_model_io *io = &v->inputs[0];
    struct mr_tensor *t = &in->tensor;
    int lead = v->max_batch_size > 0 ? 1 : 0, variable = -1;
    uint64_t fixed = 1;

    if (v->input_count != 1)
        return MR_FAIL(err, MR_E_INVALID,
                       "Raw request must only have 1 input (found %u) to be deduced but got %u "
                       "inputs in '%.*s' "
                       "model configuration",
                       1u, v->input_count, MR_STR_ARG(v->model_name));
    int64_t *shape = MR_ARENA_ARRAY(r->arena, int64_t, (size_t)io->rank + 1);
    if (!shape)
        return no_arena(err);
    shape[0] = 1;
    for (int i = 0; i < io->rank; i++) {
        shape[i + lead] = io->dims[i];
        if (io->dims[i] >= 0) {
            fixed *= (uint64_t)io->dims[i];
        } else if (variable >= 0) {
            return MR_FAIL(err, MR_E_INVALID,
                           "The shape of the raw input '%.*s' can not be deduced because there are "
                           "more than one "
                           "variable-sized dimension",
                           MR_STR_ARG(io->name));
        } else {
            variable = i + lead;
        }
    }
    in->name = io->name;
    t->dtype = io->dtype;
    t->rank = io->rank + lead;
    t->shape = shape;
    if (io->dtype == MR_DTYPE_BYTES) {
        if (fixed != 1)
            return MR_FAIL(
                err, MR_E_INVALID,
                "For BYTE datatype raw input '%.*s', the model must have input shape [1]",
                MR_STR_ARG(io->name));
        if (variable >= 0)
            shape[variable] = 1;
        return prefix_body(r->arena, t, err);
    }
    uint64_t unit = fixed * mr_dtype_size(io->dtype);
    if (variable >= 0) {
        shape[variable] = unit ? (int64_t)(t->bytes / unit) : 0;
    }
    return mr_oip_tensor_align(in, r->arena, err);
}

int mr_infer_bind(struct mr_infer *r, const struct mr_oip_request *q, struct mr_err *err)
{
    const struct mr_version *v = r->version;
    int rc = MR_OK;

    r->id = q->id.len ? long_str(r->arena, q->id) : MR_STR("");
    r->priority = q->priority;
    r->timeout_us = q->timeout_us;
    r->inputs = MR_ARENA_ARRAY(r->arena, struct mr_tensor, v->input_count);
    r->wanted = MR_ARENA_ARRAY(r->arena, uint8_t, v->output_count);
    if (!r->id.ptr || !r->inputs || !r->wanted)
        return no_arena(err);

    if (q->raw_binary)
        MR_TRY(complete_raw(r, &q->inputs[0], err));
    if (q->input_count > v->input_count || q->input_count < v->required_input_count)
        return input_count_error(v, q, err);
    for (size_t i = 0; i < q->input_count; i++)
        MR_TRY(bind_input(r, &q->inputs[i], i == 0, err));
    if (!is_complete(v, q))
        return input_count_error(v, q, err);
    MR_TRY(bind_outputs(r, q, err));
    MR_TRY(bind_parameters(r, q, err));
out:
    return rc;
}
