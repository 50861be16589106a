/* Requests of models that are asked as MLServer's are (mr_version.reads_matrix), made requests of the model that there is:
 * one input of any name, whose numbers become those of the model's type, as numpy and the libraries convert them. */
#include <string.h>

#include "base/mem.h"
#include "base/turn.h"
#include "engine/wire.h"
#include "tensor/tensor.h"

#define STEP 1024 /* elements between calls of mr_turn_spend */

/* Elements [0, n) of a type, as doubles, which hold all numbers of the others but the largest of 64 bits. */
#define READ(type, value)                                                                          \
    for (size_t i = 0; i < n; i++) {                                                               \
        type x;                                                                                    \
        memcpy(&x, from + i * sizeof x, sizeof x);                                                 \
        to[i] = (double)(value);                                                                   \
    }                                                                                              \
    break

static void numbers_read(int dtype, const uint8_t *from, size_t n, double *to)
{
    switch (dtype) {
    case MR_DTYPE_BOOL:
    case MR_DTYPE_UINT8: READ(uint8_t, x);
    case MR_DTYPE_UINT16: READ(uint16_t, x);
    case MR_DTYPE_UINT32: READ(uint32_t, x);
    case MR_DTYPE_UINT64: READ(uint64_t, x);
    case MR_DTYPE_INT8: READ(int8_t, x);
    case MR_DTYPE_INT16: READ(int16_t, x);
    case MR_DTYPE_INT32: READ(int32_t, x);
    case MR_DTYPE_INT64: READ(int64_t, x);
    case MR_DTYPE_FP16: READ(uint16_t, mr_fp16_to_float(x));
    case MR_DTYPE_BF16: READ(uint16_t, mr_bf16_to_float(x));
    case MR_DTYPE_FP32: READ(float, x);
    case MR_DTYPE_FP64: READ(double, x);
    default: memset(to, 0, n * sizeof *to);
    }
}

static void numbers_write(int dtype, const double *from, size_t n, uint8_t *to)
{
    float x;

    for (size_t i = 0; i < n && dtype == MR_DTYPE_FP32; i++) {
        x = (float)from[i];
        memcpy(to + i * sizeof x, &x, sizeof x);
    }
    if (dtype == MR_DTYPE_FP64) {
        memcpy(to, from, n * sizeof *from);
    }
}

static int convert(struct mr_tensor *t, int dtype, uint64_t elements, uint8_t *to,
                   struct mr_err *err)
{
    const size_t from_size = mr_dtype_size(t->dtype);
    const size_t to_size = mr_dtype_size(dtype);
    const uint8_t *from = t->data;
    double part[STEP];

    for (uint64_t i = 0; i < elements; i += STEP) {
        const size_t n = (size_t)MR_MIN(elements - i, STEP);
        if (!mr_turn_spend((uint64_t)n * (from_size + to_size))) {
            return MR_FAIL(err, MR_E_CANCELLED, "ended");
        }
        numbers_read(t->dtype, from + i * from_size, n, part);
        numbers_write(dtype, part, n, to + i * to_size);
    }
    t->data = to;
    t->bytes = elements * to_size;
    t->dtype = dtype;
    return MR_OK;
}

/* Room that lives as long as the request. */
static uint8_t *room_of(struct mr_arena *arena, uint64_t bytes)
{
    struct mr_block *b = NULL;

    if (bytes <= 65536) {
        return mr_arena_try(arena, (size_t)bytes + !bytes, 8);
    }
    b = mr_block_new(bytes);
    return b && mr_block_keep(b, arena) ? b->data : NULL;
}

static int type_adapt(struct mr_tensor *t, int dtype, struct mr_arena *arena, struct mr_err *err)
{
    const size_t size = mr_dtype_size(t->dtype);
    uint64_t bytes = 0;

    if (t->dtype == dtype || size == 0 || (dtype != MR_DTYPE_FP32 && dtype != MR_DTYPE_FP64)) {
        return MR_OK;
    }
    int rc = mr_shape_bytes(t->dtype, t->shape, t->rank, &bytes, err);
    if (rc < 0 || t->bytes != bytes) {
        return rc; /* that is said when it is held against the model */
    }
    const uint64_t elements = bytes / size; /* no more than the body has */
    uint8_t *to = room_of(arena, elements * mr_dtype_size(dtype));
    return to ? convert(t, dtype, elements, to, err) : MR_ARENA_FAIL(err);
}

int mr_wire_matrix(struct mr_oip_request *q, const struct mr_version *v, struct mr_arena *arena,
                   struct mr_err *err)
{
    if (q->input_count != 1) {
        return MR_FAIL(err, MR_E_INVALID,
                       "The 'np' codec only supports a single input tensor (%zu were received)",
                       q->input_count);
    }
    if (q->output_count == 0) {
        q->outputs = MR_ARENA_NEW(arena, struct mr_oip_requested_output);
        if (!q->outputs) {
            return MR_ARENA_FAIL(err);
        }
        q->outputs->name = v->outputs[0].name;
        q->outputs->binary_data = -1;
        q->output_count = 1;
    }
    q->inputs[0].name = v->inputs[0].name;
    return type_adapt(&q->inputs[0].tensor, v->inputs[0].dtype, arena, err);
}
