/* Casts. A value is taken apart into one of three wide kinds, and put together again; the two pairs that occur in bulk
 * have a loop of their own. */
#include "number.h"

#include <math.h>
#include <string.h>

#include "codec/json.h"
#include "tensor/tensor.h"

enum kind { SIGNED, UNSIGNED, FLOATING };

struct number {
    enum kind kind;
    int64_t i;
    uint64_t u;
    double d;
    bool is_near; /* d is the nearest to a value that no integer of 64 bits is */
};

bool batch_number_parse(mr_str text, struct batch_number *out)
{
    text = mr_str_trim(text);
    *out = (struct batch_number){.field.type = MR_COLUMN_I64};
    if (mr_str_to_i64(text, &out->i)) {
        return true;
    }
    if (mr_str_to_u64(text, &out->u)) {
        out->field.type = MR_COLUMN_U64;
        return true;
    }
    out->field.type = MR_COLUMN_F64;
    return mr_text_double(text, &out->d);
}

enum mr_column_type batch_type_of(int dtype)
{
    static const enum mr_column_type types[MR_DTYPE_COUNT] = {
        [MR_DTYPE_BOOL] = MR_COLUMN_BOOL,    [MR_DTYPE_UINT8] = MR_COLUMN_U8,
        [MR_DTYPE_UINT16] = MR_COLUMN_U16,   [MR_DTYPE_UINT32] = MR_COLUMN_U32,
        [MR_DTYPE_UINT64] = MR_COLUMN_U64,   [MR_DTYPE_INT8] = MR_COLUMN_I8,
        [MR_DTYPE_INT16] = MR_COLUMN_I16,    [MR_DTYPE_INT32] = MR_COLUMN_I32,
        [MR_DTYPE_INT64] = MR_COLUMN_I64,    [MR_DTYPE_FP16] = MR_COLUMN_F16,
        [MR_DTYPE_FP32] = MR_COLUMN_F32,     [MR_DTYPE_FP64] = MR_COLUMN_F64,
        [MR_DTYPE_BYTES] = MR_COLUMN_STRING,
    };
    return dtype > 0 && dtype < MR_DTYPE_COUNT ? types[dtype] : MR_COLUMN_NONE;
}

bool batch_can_cast(const struct mr_field *from, int dtype)
{
    if (dtype == MR_DTYPE_BYTES) {
        return from->type == MR_COLUMN_STRING || from->type == MR_COLUMN_BINARY;
    }
    if (dtype == MR_DTYPE_BOOL) {
        return from->type == MR_COLUMN_BOOL;
    }
    return mr_column_type_bytes(from->type) > 0;
}

/* Whole ones keep all of their digits. */
static struct number decimal_take_apart(__int128_t v, int scale)
{
    __int128_t unit = 1;

    for (int i = 0; i < scale; i++) {
        unit *= 10;
    }
    const __int128_t whole = v / unit;
    if (whole * unit == v && whole >= INT64_MIN && whole <= INT64_MAX) {
        return (struct number){.kind = SIGNED, .i = (int64_t)whole};
    }
    if (whole * unit == v && whole >= 0 && whole <= UINT64_MAX) {
        return (struct number){.kind = UNSIGNED, .u = (uint64_t)whole};
    }
    return (struct number){.kind = FLOATING, .d = (double)v / pow(10, scale), .is_near = true};
}

static struct number take_apart(const struct mr_field *from, const void *values, size_t i)
{
#define SIGNED_OF(type)   ((struct number){.kind = SIGNED, .i = ((const type *)values)[i]})
#define UNSIGNED_OF(type) ((struct number){.kind = UNSIGNED, .u = ((const type *)values)[i]})
    switch (from->type) {
    case MR_COLUMN_I8: return SIGNED_OF(int8_t);
    case MR_COLUMN_I16: return SIGNED_OF(int16_t);
    case MR_COLUMN_I32:
    case MR_COLUMN_DATE: return SIGNED_OF(int32_t);
    case MR_COLUMN_I64:
    case MR_COLUMN_TIMESTAMP: return SIGNED_OF(int64_t);
    case MR_COLUMN_BOOL:
    case MR_COLUMN_U8: return UNSIGNED_OF(uint8_t);
    case MR_COLUMN_U16: return UNSIGNED_OF(uint16_t);
    case MR_COLUMN_U32: return UNSIGNED_OF(uint32_t);
    case MR_COLUMN_U64: return UNSIGNED_OF(uint64_t);
    case MR_COLUMN_F16:
        return (struct number){.kind = FLOATING,
                               .d = mr_fp16_to_float(((const uint16_t *)values)[i])};
    case MR_COLUMN_F32: return (struct number){.kind = FLOATING, .d = ((const float *)values)[i]};
    case MR_COLUMN_F64: return (struct number){.kind = FLOATING, .d = ((const double *)values)[i]};
    default: { /* DECIMAL */
        __int128_t v;
        memcpy(&v, (const uint8_t *)values + 16 * i, 16);
        return decimal_take_apart(v, from->scale);
    }
    }
#undef SIGNED_OF
#undef UNSIGNED_OF
}

static double as_double(struct number v)
{
    return v.kind == SIGNED ? (double)v.i : v.kind == UNSIGNED ? (double)v.u : v.d;
}

/* A whole number within [low, high]. */
static bool as_signed(struct number v, int64_t low, int64_t high, int64_t *out)
{
    if (v.kind == FLOATING) {
        if (v.is_near || !(v.d >= -0x1p63 && v.d < 0x1p63) || v.d != floor(v.d)) {
            return false;
        }
        *out = (int64_t)v.d;
    } else if (v.kind == UNSIGNED) {
        if (v.u > INT64_MAX) {
            return false;
        }
        *out = (int64_t)v.u;
    } else {
        *out = v.i;
    }
    return *out >= low && *out <= high;
}

static bool as_unsigned(struct number v, uint64_t high, uint64_t *out)
{
    if (v.kind == FLOATING) {
        if (v.is_near || !(v.d >= 0 && v.d < 0x1p64) || v.d != floor(v.d)) {
            return false;
        }
        *out = (uint64_t)v.d;
    } else if (v.kind == SIGNED) {
        if (v.i < 0) {
            return false;
        }
        *out = (uint64_t)v.i;
    } else {
        *out = v.u;
    }
    return *out <= high;
}

static bool put_signed(struct number v, int dtype, void *to, size_t i)
{
    int64_t s = 0;

    switch (dtype) {
    case MR_DTYPE_INT8:
        return as_signed(v, INT8_MIN, INT8_MAX, &s) && (((int8_t *)to)[i] = (int8_t)s, true);
    case MR_DTYPE_INT16:
        return as_signed(v, INT16_MIN, INT16_MAX, &s) && (((int16_t *)to)[i] = (int16_t)s, true);
    case MR_DTYPE_INT32:
        return as_signed(v, INT32_MIN, INT32_MAX, &s) && (((int32_t *)to)[i] = (int32_t)s, true);
    default: return as_signed(v, INT64_MIN, INT64_MAX, &s) && (((int64_t *)to)[i] = s, true);
    }
}

static bool put_unsigned(struct number v, int dtype, void *to, size_t i)
{
    uint64_t u = 0;

    switch (dtype) {
    case MR_DTYPE_UINT8:
        return as_unsigned(v, UINT8_MAX, &u) && (((uint8_t *)to)[i] = (uint8_t)u, true);
    case MR_DTYPE_UINT16:
        return as_unsigned(v, UINT16_MAX, &u) && (((uint16_t *)to)[i] = (uint16_t)u, true);
    case MR_DTYPE_UINT32:
        return as_unsigned(v, UINT32_MAX, &u) && (((uint32_t *)to)[i] = (uint32_t)u, true);
    default: return as_unsigned(v, UINT64_MAX, &u) && (((uint64_t *)to)[i] = u, true);
    }
}

static bool put_together(struct number v, int dtype, void *to, size_t i)
{
    switch (dtype) {
    case MR_DTYPE_INT8:
    case MR_DTYPE_INT16:
    case MR_DTYPE_INT32:
    case MR_DTYPE_INT64: return put_signed(v, dtype, to, i);
    case MR_DTYPE_UINT8:
    case MR_DTYPE_UINT16:
    case MR_DTYPE_UINT32:
    case MR_DTYPE_UINT64: return put_unsigned(v, dtype, to, i);
    case MR_DTYPE_FP16: ((uint16_t *)to)[i] = mr_fp16_from_double(as_double(v)); return true;
    case MR_DTYPE_BF16: ((uint16_t *)to)[i] = mr_bf16_from_double(as_double(v)); return true;
    case MR_DTYPE_FP32: ((float *)to)[i] = (float)as_double(v); return true;
    case MR_DTYPE_FP64: ((double *)to)[i] = as_double(v); return true;
    default: return false;
    }
}

size_t batch_cast(const struct mr_field *from, const void *values, int dtype, void *to, size_t n)
{
    if (batch_type_of(dtype) == from->type) {
        memcpy(to, values, n * mr_column_type_bytes(from->type));
        return SIZE_MAX;
    }
    if (from->type == MR_COLUMN_F64 && dtype == MR_DTYPE_FP32) {
        for (size_t i = 0; i < n; i++) {
            ((float *)to)[i] = (float)((const double *)values)[i];
        }
        return SIZE_MAX;
    }
    if (from->type == MR_COLUMN_I64 && dtype == MR_DTYPE_FP32) {
        for (size_t i = 0; i < n; i++) {
            ((float *)to)[i] = (float)((const int64_t *)values)[i];
        }
        return SIZE_MAX;
    }
    for (size_t i = 0; i < n; i++) {
        if (!put_together(take_apart(from, values, i), dtype, to, i)) {
            return i;
        }
    }
    return SIZE_MAX;
}
