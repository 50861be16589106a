/* Shapes: sizes with every multiplication checked, because dims come from peers and model files. */
#include <inttypes.h>
#include <stdio.h>

#include "base/mem.h"
#include "tensor/tensor.h"

/* Enough for any readable shape in an error. */
#define TEXT_BYTES 160

/* Not inlined: formatting the texts would make every call reserve and check stack. */
__attribute__((cold, noinline)) static int fail_negative(const int64_t *shape, int rank, int at,
                                                         struct mr_err *err)
{
    char text[TEXT_BYTES];

    return MR_FAIL(err, MR_E_INVALID, "dimension %d of shape %s is negative", at,
                   mr_shape_text(shape, rank, text, sizeof text));
}

__attribute__((cold, noinline)) static int fail_overflow(const int64_t *shape, int rank,
                                                         const char *what, struct mr_err *err)
{
    char text[TEXT_BYTES];

    return MR_FAIL(err, MR_E_INVALID, "shape %s causes total %s to exceed maximum size of 2^64 - 1",
                   mr_shape_text(shape, rank, text, sizeof text), what);
}

int mr_shape_elements(const int64_t *shape, int rank, uint64_t *out, struct mr_err *err)
{
    uint64_t elements = 1;
    bool is_empty = false;
    bool is_over = false;

    if (rank < 0 || rank > MR_MAX_RANK) {
        return MR_FAIL(err, MR_E_INVALID, "a shape has 0 to %d dimensions, not %d", MR_MAX_RANK,
                       rank);
    }
    for (int i = 0; i < rank; i++) {
        if (shape[i] < 0) {
            return fail_negative(shape, rank, i, err);
        }
        is_empty |= shape[i] == 0;
        is_over |= __builtin_mul_overflow(elements, (uint64_t)shape[i], &elements);
    }
    /* A tensor without elements is a valid one even if its other dims are absurd. */
    if (is_over && !is_empty) {
        return fail_overflow(shape, rank, "element count", err);
    }
    *out = is_empty ? 0 : elements;
    return MR_OK;
}

int mr_shape_bytes(int dtype, const int64_t *shape, int rank, uint64_t *out, struct mr_err *err)
{
    uint64_t size = mr_dtype_size(dtype);
    uint64_t elements;
    uint64_t bytes;

    if (size == 0) {
        return MR_FAIL(err, MR_E_INVALID, "data type %s has no fixed size", mr_dtype_name(dtype));
    }
    int rc = mr_shape_elements(shape, rank, &elements, err);
    if (rc < 0) {
        return rc;
    }
    if (__builtin_mul_overflow(elements, size, &bytes)) {
        return fail_overflow(shape, rank, "byte size", err);
    }
    *out = bytes;
    return MR_OK;
}

char *mr_shape_text(const int64_t *shape, int rank, char *buf, size_t buf_size)
{
    size_t at = 0;

    if (buf_size == 0) {
        return buf;
    }
    for (int i = 0; i < rank && at < buf_size; i++) {
        int n = snprintf(buf + at, buf_size - at, "%c%" PRId64, i == 0 ? '[' : ',', shape[i]);
        at += n > 0 ? (size_t)n : 0;
    }
    if (at < buf_size) {
        snprintf(buf + at, buf_size - at, "%s", rank > 0 ? "]" : "[]");
    }
    return buf;
}

int mr_tensor_fit(struct mr_tensor *t, int32_t rank, bool is_batching, struct mr_arena *arena,
                  struct mr_err *err)
{
    if (is_batching && t->rank == rank - 1) {
        int64_t *shape = MR_ARENA_ARRAY(arena, int64_t, (size_t)rank);
        if (!shape) {
            return MR_ARENA_FAIL(err);
        }
        shape[0] = 1;
        memcpy(shape + 1, t->shape, (size_t)t->rank * sizeof *shape);
        t->shape = shape;
        t->rank = rank;
    } else if (!is_batching && t->rank == rank + 1 && t->shape[0] == 1) {
        t->shape++;
        t->rank--;
    }
    return MR_OK;
}
