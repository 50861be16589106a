/* Shapes: sizes, overflow, refused dims, text. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "base/mem.h"
#include "tensor/tensor.h"

#define BIG (INT64_C(1) << 32)

static void elements(void **state)
{
    static const struct {
        int rank;
        int64_t shape[4];
        int rc;
        uint64_t elements;
    } rows[] = {
        {0, {0}, MR_OK, 1},
        {1, {7}, MR_OK, 7},
        {3, {2, 3, 4}, MR_OK, 24},
        {1, {0}, MR_OK, 0},
        {3, {BIG, 0, BIG}, MR_OK, 0},
        {4, {BIG, BIG, BIG, 0}, MR_OK, 0},
        {2, {BIG, BIG - 1}, MR_OK, (uint64_t)BIG * (uint64_t)(BIG - 1)},
        {2, {BIG, BIG}, MR_E_INVALID, 99},
        {2, {INT64_MAX, 3}, MR_E_INVALID, 99},
        {2, {INT64_MAX, 2}, MR_OK, UINT64_MAX - 1},
        {2, {1, -1}, MR_E_INVALID, 99},
        {2, {0, -1}, MR_E_INVALID, 99},
        {1, {INT64_MIN}, MR_E_INVALID, 99},
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        uint64_t n = 99;
        struct mr_err err = {0};
        int rc = mr_shape_elements(rows[i].shape, rows[i].rank, &n, &err);
        if (rc != rows[i].rc || n != rows[i].elements || err.status != rc) {
            fail_msg("row %zu: %d %llu %s", i, rc, (unsigned long long)n, err.msg);
        }
    }
    assert_int_equal(mr_shape_elements(NULL, 0, &(uint64_t){0}, NULL), MR_OK);
}

static void ranks(void **state)
{
    int64_t ones[MR_MAX_RANK + 1];
    uint64_t n;

    (void)state;
    for (int i = 0; i <= MR_MAX_RANK; i++) {
        ones[i] = 1;
    }
    assert_int_equal(mr_shape_elements(ones, MR_MAX_RANK, &n, NULL), MR_OK);
    assert_int_equal(n, 1);
    assert_int_equal(mr_shape_elements(ones, MR_MAX_RANK + 1, &n, NULL), MR_E_INVALID);
    assert_int_equal(mr_shape_elements(ones, -1, &n, NULL), MR_E_INVALID);
}

static void byte_sizes(void **state)
{
    int64_t shape[] = {2, 3};
    int64_t large[] = {INT64_MAX, 2};
    struct mr_err err = {0};
    uint64_t n = 99;

    (void)state;
    assert_int_equal(mr_shape_bytes(MR_DTYPE_BYTES, shape, 2, &n, &err), MR_E_INVALID);
    assert_non_null(strstr(err.msg, "BYTES"));
    assert_int_equal(mr_shape_bytes(MR_DTYPE_INVALID, shape, 2, &n, &err), MR_E_INVALID);
    assert_int_equal(mr_shape_bytes(77, shape, 2, &n, &err), MR_E_INVALID);
    assert_int_equal(mr_shape_bytes(MR_DTYPE_FP16, large, 2, &n, &err), MR_E_INVALID);
    assert_non_null(strstr(err.msg, "[9223372036854775807,2]"));
    assert_true(n == 99);
    assert_int_equal(mr_shape_bytes(MR_DTYPE_UINT8, large, 2, &n, &err), MR_OK);
    assert_int_equal(mr_shape_bytes(MR_DTYPE_FP64, shape, 2, &n, &err), MR_OK);
    assert_int_equal(n, 48);
    assert_int_equal(mr_shape_bytes(MR_DTYPE_FP32, NULL, 0, &n, &err), MR_OK);
    assert_int_equal(n, 4);
}

static void text(void **state)
{
    int64_t shape[] = {1, -1, 16};
    int64_t huge[MR_MAX_RANK];
    char buf[32];

    (void)state;
    assert_string_equal(mr_shape_text(shape, 3, buf, sizeof buf), "[1,-1,16]");
    assert_string_equal(mr_shape_text(shape, 1, buf, sizeof buf), "[1]");
    assert_string_equal(mr_shape_text(NULL, 0, buf, sizeof buf), "[]");
    assert_string_equal(mr_shape_text(shape, 3, buf, 9), "[1,-1,16");
    assert_string_equal(mr_shape_text(shape, 3, buf, 4), "[1,");
    assert_string_equal(mr_shape_text(shape, 3, buf, 1), "");
    buf[0] = 'x';
    mr_shape_text(shape, 3, buf, 0);
    assert_int_equal(buf[0], 'x');
    for (int i = 0; i < MR_MAX_RANK; i++) {
        huge[i] = INT64_MIN;
    }
    assert_int_equal(strlen(mr_shape_text(huge, MR_MAX_RANK, buf, sizeof buf)), 31);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(elements),
        cmocka_unit_test(ranks),
        cmocka_unit_test(byte_sizes),
        cmocka_unit_test(text),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
