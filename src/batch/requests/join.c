/* See join.h. A BYTES tensor is a run of elements with their lengths before them, so that joining is appending for it as
 * well; to cut it, the elements are walked over. */
#include "join.h"

#include <string.h>

#include "tensor/tensor.h"

#define DATA_ALIGN 64

/* ---- what fits ---- */

static bool params_equal(const struct mr_oip_param *a, size_t a_count, const struct mr_oip_param *b,
                         size_t b_count)
{
    if (a_count != b_count) {
        return false;
    }
    for (size_t i = 0; i < a_count; i++) {
        if (!mr_str_eq(a[i].key, b[i].key) || a[i].kind != b[i].kind) {
            return false;
        }
        switch (a[i].kind) {
        case MR_OIP_BOOL:
            if (a[i].b != b[i].b) {
                return false;
            }
            break;
        case MR_OIP_STRING:
            if (!mr_str_eq(a[i].s, b[i].s)) {
                return false;
            }
            break;
        default:
            if (a[i].u != b[i].u) { /* the bits of any number */
                return false;
            }
        }
    }
    return true;
}

static bool inputs_fit(const struct mr_oip_tensor *a, const struct mr_oip_tensor *b)
{
    const struct mr_tensor *x = &a->tensor;
    const struct mr_tensor *y = &b->tensor;

    return mr_str_eq(a->name, b->name) && x->dtype == y->dtype && x->rank == y->rank &&
           memcmp(x->shape + 1, y->shape + 1, (size_t)(x->rank - 1) * sizeof *x->shape) == 0 &&
           params_equal(a->params, a->param_count, b->params, b->param_count);
}

static bool outputs_fit(const struct mr_oip_requested_output *a,
                        const struct mr_oip_requested_output *b)
{
    return mr_str_eq(a->name, b->name) && a->binary_data == b->binary_data &&
           a->classification == b->classification && !a->shm.region.ptr && !b->shm.region.ptr &&
           params_equal(a->params, a->param_count, b->params, b->param_count);
}

int64_t join_rows(const struct mr_oip_request *r)
{
    int64_t rows = -1;

    if (r->has_sequence_id || r->enable_empty_final_response) {
        return -1;
    }
    for (size_t i = 0; i < r->input_count; i++) {
        const struct mr_oip_tensor *t = &r->inputs[i];
        if (t->shm.region.ptr || t->tensor.rank < 1 || t->tensor.shape[0] < 1 ||
            (i > 0 && t->tensor.shape[0] != rows)) {
            return -1;
        }
        rows = t->tensor.shape[0];
    }
    return rows;
}

bool join_fits(const struct mr_oip_request *a, const struct mr_oip_request *b)
{
    if (join_rows(a) < 0 || join_rows(b) < 0 || a->input_count != b->input_count ||
        a->output_count != b->output_count || a->priority != b->priority ||
        a->timeout_us != b->timeout_us || a->binary_data_output != b->binary_data_output ||
        !params_equal(a->params, a->param_count, b->params, b->param_count)) {
        return false;
    }
    for (size_t i = 0; i < a->input_count; i++) {
        if (!inputs_fit(&a->inputs[i], &b->inputs[i])) {
            return false;
        }
    }
    for (size_t i = 0; i < a->output_count; i++) {
        if (!outputs_fit(&a->outputs[i], &b->outputs[i])) {
            return false;
        }
    }
    return true;
}

/* ---- together ---- */

static void room_free(void *block)
{
    mr_free(block);
}

/* Room that goes with the arena, and does not count against its limit. */
static void *room_new(struct mr_arena *arena, uint64_t bytes)
{
    char *block = mr_alloc((size_t)bytes + DATA_ALIGN);

    if (!mr_arena_on_free(arena, room_free, block)) {
        mr_free(block);
        return NULL;
    }
    return block + (DATA_ALIGN - (uintptr_t)block % DATA_ALIGN);
}

static int input_join(const struct mr_oip_request *const *requests, size_t count, size_t input,
                      struct mr_arena *arena, struct mr_oip_tensor *out, struct mr_err *err)
{
    int64_t *shape;
    uint64_t bytes = 0;
    int64_t rows = 0;
    char *at;

    *out = requests[0]->inputs[input];
    for (size_t i = 0; i < count; i++) {
        bytes += requests[i]->inputs[input].tensor.bytes;
        rows += requests[i]->inputs[input].tensor.shape[0];
    }
    shape = MR_ARENA_ARRAY(arena, int64_t, (size_t)out->tensor.rank);
    at = room_new(arena, bytes);
    if (!shape || !at) {
        return MR_FAIL(err, MR_E_EXHAUSTED, "no memory for requests that go together");
    }
    memcpy(shape, out->tensor.shape, (size_t)out->tensor.rank * sizeof *shape);
    shape[0] = rows;
    out->tensor.shape = shape;
    out->tensor.data = at;
    out->tensor.bytes = bytes;
    out->block = NULL;
    for (size_t i = 0; i < count; i++) {
        const struct mr_tensor *t = &requests[i]->inputs[input].tensor;
        memcpy(at, t->bytes ? t->data : "", t->bytes);
        at += t->bytes;
    }
    return MR_OK;
}

int join_requests(const struct mr_oip_request *const *requests, size_t count,
                  struct mr_arena *arena, struct mr_oip_request *out, struct mr_err *err)
{
    struct mr_oip_request joined = *requests[0];
    int rc = MR_OK;

    joined.id = (mr_str){0};
    joined.inputs = MR_ARENA_ARRAY(arena, struct mr_oip_tensor, joined.input_count);
    if (!joined.inputs) {
        return MR_FAIL(err, MR_E_EXHAUSTED, "no memory for requests that go together");
    }
    for (size_t i = 0; i < joined.input_count && rc == MR_OK; i++) {
        rc = input_join(requests, count, i, arena, &joined.inputs[i], err);
    }
    if (rc == MR_OK) {
        *out = joined;
    }
    return rc;
}

/* ---- and apart ---- */

/* The bytes of `count` elements of a BYTES tensor, from the front of *rest; false: there are fewer. */
static bool elements_pass(mr_bytes *rest, uint64_t count)
{
    mr_str element;

    while (count > 0 && mr_bytes_tensor_next(rest, &element)) {
        count--;
    }
    return count == 0;
}

/* Rows [first, first + rows) of a tensor of `all`. */
static bool rows_find(const struct mr_tensor *t, int64_t all, int64_t first, int64_t rows,
                      mr_bytes *out)
{
    uint64_t per_row = 1;
    uint64_t bytes;
    mr_bytes rest = {t->data, t->bytes};

    if (t->rank < 1 || t->shape[0] != all) {
        return false;
    }
    if (t->dtype != MR_DTYPE_BYTES) {
        const uint64_t size = t->bytes / (uint64_t)all;
        const bool is_whole = mr_shape_bytes(t->dtype, t->shape, t->rank, &bytes, NULL) == MR_OK;
        *out = (mr_bytes){rest.ptr + (uint64_t)first * size, (uint64_t)rows * size};
        return is_whole && bytes == t->bytes;
    }
    for (int32_t i = 1; i < t->rank; i++) {
        per_row *= (uint64_t)t->shape[i]; /* the decoder has checked that all of them fit */
    }
    if (!elements_pass(&rest, (uint64_t)first * per_row)) {
        return false;
    }
    out->ptr = rest.ptr;
    const bool is_there = elements_pass(&rest, (uint64_t)rows * per_row);
    out->len = (size_t)(rest.ptr - out->ptr);
    return is_there;
}

static int output_cut(const struct mr_oip_tensor *in, int64_t all, int64_t first, int64_t rows,
                      struct mr_arena *arena, struct mr_oip_tensor *out, struct mr_err *err)
{
    const struct mr_tensor *t = &in->tensor;
    int64_t *shape;
    mr_bytes data;

    *out = *in;
    out->binary = false;
    out->block = NULL;
    if (in->shm.region.ptr || (first == 0 && rows == all)) {
        return MR_OK;
    }
    if (!rows_find(t, all, first, rows, &data)) {
        return MR_FAIL(err, MR_E_INVALID, "output %.*s has not one row for each of %lld",
                       MR_STR_ARG(in->name), (long long)all);
    }
    shape = MR_ARENA_ARRAY(arena, int64_t, (size_t)t->rank);
    if (!shape) {
        return MR_FAIL(err, MR_E_EXHAUSTED, "no memory for an answer");
    }
    memcpy(shape, t->shape, (size_t)t->rank * sizeof *shape);
    shape[0] = rows;
    out->tensor.shape = shape;
    out->tensor.data = (void *)(uintptr_t)data.ptr;
    out->tensor.bytes = data.len;
    return MR_OK;
}

int join_cut(const struct mr_oip_response *answer, int64_t all, int64_t first, int64_t rows,
             struct mr_arena *arena, struct mr_oip_response *out, struct mr_err *err)
{
    struct mr_oip_response part = *answer;
    int rc = MR_OK;

    part.outputs = MR_ARENA_ARRAY(arena, struct mr_oip_tensor, answer->output_count + 1);
    if (!part.outputs) {
        return MR_FAIL(err, MR_E_EXHAUSTED, "no memory for an answer");
    }
    for (size_t i = 0; i < answer->output_count && rc == MR_OK; i++) {
        rc = output_cut(&answer->outputs[i], all, first, rows, arena, &part.outputs[i], err);
    }
    if (rc == MR_OK) {
        *out = part;
    }
    return rc;
}
