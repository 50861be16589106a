/* Checks a request against its model: inputs by name into config order, types, shapes and sizes, wanted outputs. The
 * error texts are Triton's, which clients and tests know. Allocates from the arena only; tensors are not copied. */
#include <stdio.h>

#include "base/turn.h"
#include "sched_priv.h"

#define STEP_BYTES ((uint64_t)128 * 1024)

/* The turn that does this work. */
static int ended(struct mr_err *err)
{
    return MR_FAIL(err, MR_E_CANCELLED, "ended");
}

static int find_io(const struct mr_model_io *io, uint32_t count, mr_str name)
{
    for (uint32_t i = 0; i < count; i++) {
        if (mr_str_eq(io[i].name, name)) {
            return (int)i;
        }
    }
    return -1;
}

static bool has_input(const struct mr_infer_args *q, mr_str name)
{
    for (size_t i = 0; i < q->input_count; i++) {
        if (mr_str_eq(mr_infer_input_name(q, i), name)) {
            return true;
        }
    }
    return false;
}

/* "Got input(s) ['A'], but missing required input(s) ['B']. ..." if inputs are missing. */
static void append_missing(char *buf, size_t size, const struct mr_version *v,
                           const struct mr_infer_args *q)
{
    size_t n = strlen(buf), missing = 0;

    n += (size_t)snprintf(buf + n, size - n, ". Got input(s) [");
    for (size_t i = 0; i < q->input_count && n < size; i++) {
        n += (size_t)snprintf(buf + n, size - n, "%s'%.*s'", i ? "," : "",
                              MR_STR_ARG(mr_str_sub(mr_infer_input_name(q, i), 0, 64)));
    }
    if (n < size) {
        n += (size_t)snprintf(buf + n, size - n, "], but missing required input(s) [");
    }
    for (uint32_t i = 0; i < v->input_count && n < size; i++) {
        if (v->inputs[i].optional || has_input(q, v->inputs[i].name)) {
            continue;
        }
        n += (size_t)snprintf(buf + n, size - n, "%s'%.*s'", missing++ ? "," : "",
                              MR_STR_ARG(v->inputs[i].name));
    }
    if (n < size) {
        snprintf(buf + n, size - n, "]. Please provide all required input(s).");
    }
}

static bool is_complete(const struct mr_version *v, const struct mr_infer_args *q)
{
    for (uint32_t i = 0; i < v->input_count; i++) {
        if (!v->inputs[i].optional && !has_input(q, v->inputs[i].name)) {
            return false;
        }
    }
    return true;
}

static int input_count_error(const struct mr_version *v, const struct mr_infer_args *q,
                             struct mr_err *err)
{
    char text[sizeof err->msg];

    if (v->required_input_count == v->input_count) {
        snprintf(text, sizeof text, "expected %u inputs but got %zu inputs for model '%.*s'",
                 v->input_count, q->input_count, MR_STR_ARG(v->model_name));
    } else {
        snprintf(text, sizeof text,
                 "expected number of inputs between %u and %u but got %zu inputs for model '%.*s'",
                 v->required_input_count, v->input_count, q->input_count,
                 MR_STR_ARG(v->model_name));
    }
    if (!is_complete(v, q)) {
        append_missing(text, sizeof text, v, q);
    }
    return MR_FAIL(err, MR_E_INVALID, "%s", text);
}

static int shape_mismatch(const struct mr_version *v, const struct mr_model_io *io,
                          const struct mr_tensor *t, struct mr_err *err)
{
    char want[256], got[256];
    int64_t full[MR_MAX_RANK + 1];
    int lead = v->max_batch_size > 0 ? 1 : 0;

    full[0] = -1;
    for (int i = 0; i < io->rank; i++) {
        full[i + lead] = io->dims[i];
    }
    mr_shape_text(full, io->rank + lead, want, sizeof want);
    mr_shape_text(t->shape, t->rank, got, sizeof got);
    return MR_FAIL(
        err, MR_E_INVALID,
        "unexpected shape for input '%.*s' for model '%.*s'. Expected %s, got %s.%s",
        MR_STR_ARG(io->name), MR_STR_ARG(v->model_name), want, got,
        lead ? " NOTE: Setting a non-zero max_batch_size in the model config requires a batch "
               "dimension to be prepended to each input shape. If you want to specify the full "
               "shape including the batch dim in your input dims config, try setting "
               "max_batch_size to zero. See the model configuration docs for more info on "
               "max_batch_size."
             : "");
}

static int check_shape(const struct mr_version *v, const struct mr_model_io *io,
                       const struct mr_tensor *t, struct mr_err *err)
{
    int lead = v->max_batch_size > 0 ? 1 : 0;

    if (t->rank != io->rank + lead) {
        return shape_mismatch(v, io, t, err);
    }
    for (int i = 0; i < io->rank; i++) {
        if (io->dims[i] >= 0 && io->dims[i] != t->shape[i + lead]) {
            return shape_mismatch(v, io, t, err);
        }
    }
    return MR_OK;
}

static int check_rows(struct mr_infer *r, const struct mr_model_io *io, const struct mr_tensor *t,
                      bool is_first, struct mr_err *err)
{
    const struct mr_version *v = r->version;

    if (t->rank < 1) {
        return shape_mismatch(v, io, t, err);
    }
    if (is_first) {
        if (t->shape[0] > v->max_batch_size) {
            return MR_FAIL(err, MR_E_INVALID,
                           "inference request batch-size must be <= %d for '%.*s'",
                           v->max_batch_size, MR_STR_ARG(v->model_name));
        }
        if (t->shape[0] < 1) {
            return MR_FAIL(err, MR_E_INVALID,
                           "inference request batch-size must be >= 1 for '%.*s'",
                           MR_STR_ARG(v->model_name));
        }
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
        uint64_t stop = MR_MIN(t->bytes, i + STEP_BYTES);
        while (i < stop) {
            all |= at[i++];
        }
        if (!mr_turn_spend(MR_TURN_STEP)) {
            return ended(err);
        }
    }
    if (all <= 1) {
        return MR_OK;
    }
    return MR_FAIL(err, MR_E_INVALID,
                   "input '%.*s' for model '%.*s' has a BOOL element that is neither 0 nor 1",
                   MR_STR_ARG(io->name), MR_STR_ARG(v->model_name));
}

static int check_bytes(const struct mr_version *v, const struct mr_model_io *io,
                       const struct mr_tensor *t, struct mr_err *err)
{
    uint64_t expected;
    int rc;

    if (t->dtype == MR_DTYPE_BYTES) {
        return MR_OK; /* the decoder counted the elements */
    }
    rc = mr_shape_bytes(t->dtype, t->shape, t->rank, &expected, err);
    if (rc < 0) {
        return rc;
    }
    if (expected == t->bytes) {
        return t->dtype == MR_DTYPE_BOOL ? check_bools(v, io, t, err) : MR_OK;
    }
    return MR_FAIL(
        err, MR_E_INVALID,
        "input byte size mismatch for input '%.*s' for model '%.*s'. Expected %llu, got %llu",
        MR_STR_ARG(io->name), MR_STR_ARG(v->model_name), (unsigned long long)expected,
        (unsigned long long)t->bytes);
}

static int validate_input(struct mr_infer *r, const struct mr_infer_args *q, size_t n,
                          struct mr_err *err)
{
    const struct mr_version *v = r->version;
    const struct mr_tensor *t = mr_infer_input_tensor(q, n);
    mr_str name = mr_infer_input_name(q, n);
    struct mr_tensor fit;
    int i = find_io(v->inputs, v->input_count, name), rc = MR_OK;

    if (i < 0) {
        return MR_FAIL(err, MR_E_INVALID, "unexpected inference input '%.*s' for model '%.*s'",
                       MR_STR_ARG(name), MR_STR_ARG(v->model_name));
    }
    const struct mr_model_io *io = &v->inputs[i];
    if (t->dtype != io->dtype) {
        return MR_FAIL(err, MR_E_INVALID,
                       "inference input '%.*s' data-type is '%s', but model '%.*s' expects '%s'",
                       MR_STR_ARG(name), mr_dtype_name(t->dtype), MR_STR_ARG(v->model_name),
                       mr_dtype_name(io->dtype));
    }
    if (q->fits_batch) {
        fit = *t;
        t = &fit;
        MR_TRY(mr_tensor_fit(&fit, io->rank + (v->max_batch_size > 0), v->max_batch_size > 0,
                             r->arena, err));
    }
    if (v->max_batch_size > 0) {
        MR_TRY(check_rows(r, io, t, n == 0, err));
    }
    MR_TRY(check_shape(v, io, t, err));
    MR_TRY(check_bytes(v, io, t, err));
    r->inputs[i] = *t;
    r->input_bytes += t->bytes;
out:
    return rc;
}

/* The data of the inputs live as long as the request's arena is not reset. */
static int keep_blocks(struct mr_infer *r, const struct mr_infer_args *q, struct mr_err *err)
{
    const char *at = (const char *)q->input_blocks;

    for (size_t n = 0; n < q->input_count; n++, at += q->input_stride) {
        struct mr_block *block = *(struct mr_block *const *)(const void *)at;
        if (block && !mr_block_keep(mr_block_ref(block), r->arena)) {
            return MR_ARENA_FAIL(err);
        }
    }
    return MR_OK;
}

static int validate_outputs(struct mr_infer *r, const struct mr_infer_args *q, struct mr_err *err)
{
    const struct mr_version *v = r->version;

    if (q->output_count == 0) {
        memset(r->wanted, 1, v->output_count);
        return MR_OK;
    }
    const char *at = (const char *)q->output_names;
    for (size_t i = 0; i < q->output_count; i++, at += q->output_stride) {
        mr_str name = *(const mr_str *)(const void *)at;
        int index = find_io(v->outputs, v->output_count, name);
        if (index < 0) {
            return MR_FAIL(err, MR_E_INVALID, "unexpected inference output '%.*s' for model '%.*s'",
                           MR_STR_ARG(name), MR_STR_ARG(v->model_name));
        }
        r->wanted[index] = 1;
    }
    return MR_OK;
}

static int validate_sequence(struct mr_infer *r, const struct mr_infer_args *q, struct mr_err *err)
{
    struct mr_sequence_ref *to;

    if (!q->has_sequence && q->sequence_flags == 0) {
        return MR_OK;
    }
    if (q->correlation_text.len > MR_SEQUENCE_TEXT_MAX) {
        return MR_FAIL(err, MR_E_INVALID, "sequence_id has %zu bytes, at most %d are allowed",
                       q->correlation_text.len, MR_SEQUENCE_TEXT_MAX);
    }
    if (q->correlation_text.len && memchr(q->correlation_text.ptr, 0, q->correlation_text.len)) {
        return MR_FAIL(err, MR_E_INVALID, "sequence_id has a byte 0, which a text must not have");
    }
    to = MR_ARENA_NEW(r->arena, struct mr_sequence_ref);
    if (!to) {
        return MR_ARENA_FAIL(err);
    }
    to->flags = q->sequence_flags;
    to->number = q->correlation_text.ptr ? 0 : q->correlation_id;
    if (q->correlation_text.len) {
        to->text = mr_arena_str(r->arena, q->correlation_text);
        if (!to->text.ptr) {
            return MR_ARENA_FAIL(err);
        }
    }
    r->sequence = to;
    return MR_OK;
}

int mr_infer_validate(struct mr_infer *r, const struct mr_infer_args *q, struct mr_err *err)
{
    const struct mr_version *v = r->version;
    int rc = MR_OK;

    r->id = q->id.len ? mr_turn_str(r->arena, q->id) : MR_STR("");
    r->priority = q->priority;
    r->timeout_us = q->timeout_us;
    r->inputs = MR_ARENA_ARRAY(r->arena, struct mr_tensor, v->input_count);
    r->wanted = MR_ARENA_ARRAY(r->arena, uint8_t, v->output_count);
    if (!r->id.ptr || !r->inputs || !r->wanted) {
        return MR_ARENA_FAIL(err);
    }

    if (q->input_count > v->input_count || q->input_count < v->required_input_count) {
        return input_count_error(v, q, err);
    }
    for (size_t i = 0; i < q->input_count; i++) {
        MR_TRY(validate_input(r, q, i, err));
    }
    if (!is_complete(v, q)) {
        return input_count_error(v, q, err);
    }
    if (v->max_batch_size > 0 && q->input_count == 0) {
        r->rows = 1; /* all inputs are optional, and it has none: a row of a batch all the same */
    }
    MR_TRY(validate_outputs(r, q, err));
    MR_TRY(validate_sequence(r, q, err));
    if (q->input_blocks) {
        MR_TRY(keep_blocks(r, q, err));
    }
    r->parameters = q->parameters;
    r->parameter_count = q->parameter_count;
    r->parameter_kinds = q->parameter_kinds;
out:
    return rc;
}
