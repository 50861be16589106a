/* Casts of numbers: values that fit stay equal, and others are detected and reported. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <float.h>
#include <math.h>
#include <string.h>

#include "batch/protocols/oip/number.h"
#include "tensor/tensor.h"

static const struct {
    int dtype;
    int64_t least;
    uint64_t most;
} integers[] = {
    {MR_DTYPE_INT8, INT8_MIN, INT8_MAX},    {MR_DTYPE_INT16, INT16_MIN, INT16_MAX},
    {MR_DTYPE_INT32, INT32_MIN, INT32_MAX}, {MR_DTYPE_INT64, INT64_MIN, INT64_MAX},
    {MR_DTYPE_UINT8, 0, UINT8_MAX},         {MR_DTYPE_UINT16, 0, UINT16_MAX},
    {MR_DTYPE_UINT32, 0, UINT32_MAX},       {MR_DTYPE_UINT64, 0, UINT64_MAX},
};
#define INTEGERS (sizeof integers / sizeof *integers)

static const struct mr_field field_of[MR_COLUMN_TYPES] = {
    [MR_COLUMN_BOOL] = {.type = MR_COLUMN_BOOL},
    [MR_COLUMN_I8] = {.type = MR_COLUMN_I8},
    [MR_COLUMN_I64] = {.type = MR_COLUMN_I64},
    [MR_COLUMN_U64] = {.type = MR_COLUMN_U64},
    [MR_COLUMN_F32] = {.type = MR_COLUMN_F32},
    [MR_COLUMN_F64] = {.type = MR_COLUMN_F64},
    [MR_COLUMN_F16] = {.type = MR_COLUMN_F16},
    [MR_COLUMN_DATE] = {.type = MR_COLUMN_DATE},
    [MR_COLUMN_DECIMAL] = {.type = MR_COLUMN_DECIMAL, .precision = 10, .scale = 2},
    [MR_COLUMN_STRING] = {.type = MR_COLUMN_STRING},
};

static bool cast(enum mr_column_type from, const void *value, int dtype, void *to)
{
    return batch_cast(&field_of[from], value, dtype, to, 1) == SIZE_MAX;
}

/* The value of an integer tensor of one element, sign extended. */
static int64_t signed_of(int dtype, const void *at)
{
    switch (dtype) {
    case MR_DTYPE_INT8: return *(const int8_t *)at;
    case MR_DTYPE_INT16: return *(const int16_t *)at;
    case MR_DTYPE_INT32: return *(const int32_t *)at;
    case MR_DTYPE_INT64: return *(const int64_t *)at;
    case MR_DTYPE_UINT8: return *(const uint8_t *)at;
    case MR_DTYPE_UINT16: return *(const uint16_t *)at;
    case MR_DTYPE_UINT32: return *(const uint32_t *)at;
    default: return (int64_t) * (const uint64_t *)at;
    }
}

static void test_bounds_of_integers(void **state)
{
    (void)state;
    for (size_t i = 0; i < INTEGERS; i++) {
        const int dtype = integers[i].dtype;
        const int64_t least = integers[i].least;
        const uint64_t most = integers[i].most;
        int64_t to = 0;
        assert_true(cast(MR_COLUMN_I64, &least, dtype, &to));
        assert_int_equal(signed_of(dtype, &to), least);
        assert_true(cast(MR_COLUMN_U64, &most, dtype, &to));
        assert_true(signed_of(dtype, &to) == (int64_t)most);
        if (least > INT64_MIN) {
            const int64_t below = least - 1;
            assert_false(cast(MR_COLUMN_I64, &below, dtype, &to));
        }
        if (most < UINT64_MAX) {
            const uint64_t above = most + 1;
            assert_false(cast(MR_COLUMN_U64, &above, dtype, &to));
        }
    }
}

static void test_floats_to_integers(void **state)
{
    static const double none[] = {0.5,    -0.5,        NAN,     INFINITY, -INFINITY,
                                  0x1p64, -0x1p63 * 2, DBL_MAX, -DBL_MAX};
    (void)state;
    for (size_t i = 0; i < INTEGERS; i++) {
        int64_t to = 0;
        const double seven = 7;
        assert_true(cast(MR_COLUMN_F64, &seven, integers[i].dtype, &to));
        assert_int_equal(signed_of(integers[i].dtype, &to), 7);
        for (size_t k = 0; k < sizeof none / sizeof *none; k++) {
            assert_false(cast(MR_COLUMN_F64, &none[k], integers[i].dtype, &to));
        }
        const float minus = -1;
        assert_int_equal(cast(MR_COLUMN_F32, &minus, integers[i].dtype, &to),
                         integers[i].least < 0);
    }
    const double edge = 0x1p63;
    uint64_t u = 0;
    int64_t s = 0;
    assert_false(cast(MR_COLUMN_F64, &edge, MR_DTYPE_INT64, &s));
    assert_true(cast(MR_COLUMN_F64, &edge, MR_DTYPE_UINT64, &u));
    assert_true(u == UINT64_C(1) << 63);
    const double low = -0x1p63;
    assert_true(cast(MR_COLUMN_F64, &low, MR_DTYPE_INT64, &s));
    assert_true(s == INT64_MIN);
}

static void test_to_floats(void **state)
{
    (void)state;
    const int64_t i = -3;
    const uint64_t u = UINT64_MAX;
    const double d = 0.1;
    const double odd = 0x1.0100000001p0; /* beside a tie, nearer than a float */
    const uint16_t half = 0x3c00;        /* 1 */
    const int32_t date = 19000;
    const __int128_t decimal = -12345; /* two digits after the point */
    uint8_t packed[16];
    double d64;
    float d32;
    uint16_t d16;

    memcpy(packed, &decimal, sizeof packed);
    assert_true(cast(MR_COLUMN_I64, &i, MR_DTYPE_FP64, &d64) && d64 == -3);
    assert_true(cast(MR_COLUMN_I64, &i, MR_DTYPE_FP32, &d32) && d32 == -3);
    assert_true(cast(MR_COLUMN_U64, &u, MR_DTYPE_FP64, &d64) && d64 == 0x1p64);
    assert_true(cast(MR_COLUMN_F64, &d, MR_DTYPE_FP32, &d32) && d32 == 0.1f);
    assert_true(cast(MR_COLUMN_F16, &half, MR_DTYPE_FP64, &d64) && d64 == 1);
    assert_true(cast(MR_COLUMN_DATE, &date, MR_DTYPE_FP32, &d32) && d32 == 19000);
    assert_true(cast(MR_COLUMN_DECIMAL, packed, MR_DTYPE_FP64, &d64) && fabs(d64 + 123.45) < 1e-12);
    assert_true(cast(MR_COLUMN_I64, &i, MR_DTYPE_FP16, &d16) && d16 == 0xc200);
    assert_true(cast(MR_COLUMN_I64, &i, MR_DTYPE_BF16, &d16) && d16 == 0xc040);
    assert_true(cast(MR_COLUMN_F64, &odd, MR_DTYPE_BF16, &d16) && d16 == 0x3f81);
}

static bool decimal(__int128_t v, int scale, int dtype, void *to)
{
    const struct mr_field f = {.type = MR_COLUMN_DECIMAL, .precision = 38, .scale = scale};
    uint8_t bytes[16];

    memcpy(bytes, &v, sizeof bytes);
    return batch_cast(&f, bytes, dtype, to, 1) == SIZE_MAX;
}

/* Digits that a double does not have: they are kept, or the value does not fit. */
static void test_decimals_to_integers(void **state)
{
    (void)state;
    int64_t i = 0;
    uint64_t u = 0;
    uint8_t small = 0;
    double d = 0;
    const __int128_t odd = 9007199254740993;

    assert_true(decimal(odd, 0, MR_DTYPE_INT64, &i) && i == 9007199254740993);
    assert_true(decimal(odd * 1000, 3, MR_DTYPE_UINT64, &u) && u == 9007199254740993u);
    assert_true(decimal(INT64_MIN, 0, MR_DTYPE_INT64, &i) && i == INT64_MIN);
    assert_true(decimal(UINT64_MAX, 0, MR_DTYPE_UINT64, &u) && u == UINT64_MAX);
    assert_true(decimal(25500, 2, MR_DTYPE_UINT8, &small) && small == 255);
    assert_false(decimal(odd * 10 + 5, 1, MR_DTYPE_INT64, &i));
    assert_false(decimal((__int128_t)INT64_MIN - 1, 0, MR_DTYPE_INT64, &i));
    assert_false(decimal((__int128_t)UINT64_MAX + 1, 0, MR_DTYPE_UINT64, &u));
    assert_false(decimal(-100, 2, MR_DTYPE_UINT8, &small));
    assert_false(decimal(25600, 2, MR_DTYPE_UINT8, &small));
    assert_true(decimal(-12345, 2, MR_DTYPE_FP64, &d) && fabs(d + 123.45) < 1e-12);
    assert_true(decimal(odd * 10 + 5, 38, MR_DTYPE_FP64, &d) && d > 0 && d < 1e-20);
}

/* The index is that of the first that does not fit. */
static void test_which_one(void **state)
{
    (void)state;
    const int64_t v[] = {1, 2, 255, 256, -1};
    uint8_t to[5];
    assert_int_equal(batch_cast(&field_of[MR_COLUMN_I64], v, MR_DTYPE_UINT8, to, 5), 3);
    assert_true(to[0] == 1 && to[2] == 255);
}

static void test_what_becomes_what(void **state)
{
    (void)state;
    assert_true(batch_can_cast(&field_of[MR_COLUMN_STRING], MR_DTYPE_BYTES));
    assert_false(batch_can_cast(&field_of[MR_COLUMN_I64], MR_DTYPE_BYTES));
    assert_false(batch_can_cast(&field_of[MR_COLUMN_STRING], MR_DTYPE_FP32));
    assert_true(batch_can_cast(&field_of[MR_COLUMN_BOOL], MR_DTYPE_BOOL));
    assert_false(batch_can_cast(&field_of[MR_COLUMN_I8], MR_DTYPE_BOOL));
    assert_true(batch_can_cast(&field_of[MR_COLUMN_DECIMAL], MR_DTYPE_FP16));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bounds_of_integers), cmocka_unit_test(test_floats_to_integers),
        cmocka_unit_test(test_to_floats),          cmocka_unit_test(test_decimals_to_integers),
        cmocka_unit_test(test_which_one),          cmocka_unit_test(test_what_becomes_what),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
