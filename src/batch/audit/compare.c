/* Rows that two hosts have answered, compared. */
#include "compare.h"

#include <math.h>
#include <string.h>

#include "tensor/tensor.h"

static bool numbers_agree(double a, double b, double tolerance)
{
    if (isnan(a) || isnan(b) || isinf(a) || isinf(b)) {
        return (isnan(a) && isnan(b)) || a == b;
    }
    return fabs(a - b) <= tolerance * fmax(1, fmax(fabs(a), fabs(b)));
}

static double number_at(const struct mr_field *f, const struct mr_column *c, uint64_t i)
{
    return f->type == MR_COLUMN_F64   ? ((const double *)c->values)[i]
           : f->type == MR_COLUMN_F32 ? (double)((const float *)c->values)[i]
                                      : (double)mr_fp16_to_float(((const uint16_t *)c->values)[i]);
}

static bool columns_agree(const struct mr_field *f, const struct mr_column *a, uint64_t a_first,
                          const struct mr_column *b, uint64_t b_first, uint64_t count,
                          double tolerance);

static bool values_agree(const struct mr_field *f, const struct mr_column *a, uint64_t i,
                         const struct mr_column *b, uint64_t k, double tolerance)
{
    const size_t size = mr_column_type_bytes(f->type);

    if (mr_column_is_null(a, i) || mr_column_is_null(b, k)) {
        return mr_column_is_null(a, i) && mr_column_is_null(b, k);
    }
    switch (f->type) {
    case MR_COLUMN_F16:
    case MR_COLUMN_F32:
    case MR_COLUMN_F64: return numbers_agree(number_at(f, a, i), number_at(f, b, k), tolerance);
    case MR_COLUMN_FIXED_LIST:
        return columns_agree(f->item, a->item, i * f->width, b->item, k * f->width, f->width,
                             tolerance);
    case MR_COLUMN_LIST: {
        const uint64_t n = a->begin[i + 1] - a->begin[i];
        return n == b->begin[k + 1] - b->begin[k] &&
               columns_agree(f->item, a->item, a->begin[i], b->item, b->begin[k], n, tolerance);
    }
    case MR_COLUMN_STRING:
    case MR_COLUMN_BINARY: {
        const mr_bytes x = mr_column_bytes(a, i);
        const mr_bytes y = mr_column_bytes(b, k);
        return x.len == y.len && (x.len == 0 || memcmp(x.ptr, y.ptr, x.len) == 0);
    }
    default:
        return memcmp((const uint8_t *)a->values + i * size, (const uint8_t *)b->values + k * size,
                      size) == 0;
    }
}

static bool columns_agree(const struct mr_field *f, const struct mr_column *a, uint64_t a_first,
                          const struct mr_column *b, uint64_t b_first, uint64_t count,
                          double tolerance)
{
    for (uint64_t i = 0; i < count; i++) {
        if (!values_agree(f, a, a_first + i, b, b_first + i, tolerance)) {
            return false;
        }
    }
    return true;
}

bool compare_rows_agree(const struct mr_rows *a, const struct mr_rows *b, double tolerance)
{
    bool agree = a->count == b->count;

    for (size_t i = 0; agree && i < a->schema->count; i++) {
        agree = columns_agree(&a->schema->fields[i], &a->columns[i], 0, &b->columns[i], 0, a->count,
                              tolerance);
    }
    return agree;
}
