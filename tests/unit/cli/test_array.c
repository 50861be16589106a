/* Arrays from literals, between types, and fitted to shapes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "cli/common/array.h"

static int parse(const char *text, int dtype, struct mr_array *a, struct mr_err *err)
{
    mr_array_init(a);
    return mr_array_parse(mr_str_c(text), dtype, a, err);
}

static void shapes_of_literals(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int rank;
        int64_t shape[3];
        size_t count;
    } rows[] = {
        {"7", 0, {0}, 1},
        {"[1, 2,3]", 1, {3}, 3},
        {"[[1,2],[3,4]]", 2, {2, 2}, 4},
        {" [[[1],[2]]] ", 3, {1, 2, 1}, 2},
        {"[]", 1, {0}, 0},
        {"[[],[]]", 2, {2, 0}, 0},
    };
    struct mr_array a;
    struct mr_err err;

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_int_equal(parse(rows[i].text, MR_DTYPE_INT32, &a, &err), MR_OK);
        assert_int_equal(a.rank, rows[i].rank);
        assert_memory_equal(a.shape, rows[i].shape, (size_t)a.rank * sizeof *a.shape);
        assert_int_equal(a.data.len, rows[i].count * 4);
        assert_int_equal(mr_array_count(&a), rows[i].count);
        mr_array_fini(&a);
    }
}

static void bad_literals(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int dtype;
    } rows[] = {
        {"", MR_DTYPE_INT32},
        {"[1,", MR_DTYPE_INT32},
        {"[1,[2]]", MR_DTYPE_INT32},
        {"[[1],2]", MR_DTYPE_INT32},
        {"[[1],[2,3]]", MR_DTYPE_INT32},
        {"[1] x", MR_DTYPE_INT32},
        {"300", MR_DTYPE_UINT8},
        {"-1", MR_DTYPE_UINT64},
        {"-129", MR_DTYPE_INT8},
        {"1.5", MR_DTYPE_INT64},
        {"\"a\"", MR_DTYPE_FP32},
        {"2", MR_DTYPE_BOOL},
        {"{}", MR_DTYPE_FP32},
        {"null", MR_DTYPE_FP32},
        {"[[],[1]]", MR_DTYPE_INT32},
        {"[1,[]]", MR_DTYPE_INT32},
        {"[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]",
         MR_DTYPE_INT32},
        {"[\"a\", [\"b\"]]", MR_DTYPE_BYTES},
        {"[\"a\", null]", MR_DTYPE_BYTES},
        {"70000", MR_DTYPE_FP16},
        {"[1, -1e39]", MR_DTYPE_FP32},
        {"3.4e38", MR_DTYPE_BF16},
        {"1e999", MR_DTYPE_FP64},
        {"1e", MR_DTYPE_FP32},
        {"01", MR_DTYPE_FP64},
    };
    struct mr_array a;
    struct mr_err err;

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        int rc = parse(rows[i].text, rows[i].dtype, &a, &err);
        if (rc == MR_OK) {
            print_error("'%s' was read\n", rows[i].text);
        }
        assert_true(rc < 0);
        mr_array_fini(&a);
    }
}

static void values(void **state)
{
    (void)state;
    static const double doubles[] = {0.1, -2e300};
    static const uint16_t halves[] = {0x3C00, 0xC000, 0x6801}; /* 1, -2, 2050 */
    static const uint16_t ends[] = {0x7BFF, 0x7C00, 0xFC00};   /* the largest, infinities */
    static const float floats[] = {0x1p-149f, 16777216.0f};    /* 2^24 + 1 is halfway */
    static const uint16_t brains[] = {0x3F80, 0xC000};
    static const uint64_t largest = UINT64_MAX;
    struct mr_array a;
    struct mr_err err;

    assert_int_equal(parse("[0.1, -2e300]", MR_DTYPE_FP64, &a, &err), MR_OK);
    assert_memory_equal(a.data.ptr, doubles, sizeof doubles);
    mr_array_fini(&a);
    assert_int_equal(parse("[1, -2, 2049.0000001]", MR_DTYPE_FP16, &a, &err), MR_OK);
    assert_memory_equal(a.data.ptr, halves, sizeof halves);
    mr_array_fini(&a);
    assert_int_equal(parse("[65519, Infinity, -Infinity]", MR_DTYPE_FP16, &a, &err), MR_OK);
    assert_memory_equal(a.data.ptr, ends, sizeof ends);
    mr_array_fini(&a);
    assert_int_equal(parse("[1e-45, 16777217]", MR_DTYPE_FP32, &a, &err), MR_OK);
    assert_memory_equal(a.data.ptr, floats, sizeof floats);
    mr_array_fini(&a);
    assert_int_equal(parse("[1, -2]", MR_DTYPE_BF16, &a, &err), MR_OK);
    assert_memory_equal(a.data.ptr, brains, sizeof brains);
    mr_array_fini(&a);
    assert_int_equal(parse("18446744073709551615", MR_DTYPE_UINT64, &a, &err), MR_OK);
    assert_memory_equal(a.data.ptr, &largest, 8);
    mr_array_fini(&a);
    assert_int_equal(parse("[true, false, 1, 0]", MR_DTYPE_BOOL, &a, &err), MR_OK);
    assert_memory_equal(a.data.ptr, "\1\0\1\0", 4);
    mr_array_fini(&a);
}

static void strings(void **state)
{
    (void)state;
    struct mr_array a;
    struct mr_err err;

    assert_int_equal(parse("[\"a\", \"b\\u00e9\", 3]", MR_DTYPE_BYTES, &a, &err), MR_OK);
    assert_int_equal(a.shape[0], 3);
    assert_int_equal(a.data.len, 4 + 1 + 4 + 3 + 4 + 1);
    assert_memory_equal(a.data.ptr,
                        "\1\0\0\0a\3\0\0\0b\xc3\xa9\1\0\0\0"
                        "3",
                        a.data.len);
    mr_array_fini(&a);
    /* text that is not JSON is one string */
    assert_int_equal(parse("hello, world", MR_DTYPE_BYTES, &a, &err), MR_OK);
    assert_int_equal(a.rank, 0);
    assert_memory_equal(a.data.ptr, "\x0c\0\0\0hello, world", 16);
    mr_array_fini(&a);
}

static int cast(const char *text, int from, int to, struct mr_array *a, struct mr_err *err)
{
    assert_int_equal(parse(text, from, a, err), MR_OK);
    return mr_array_cast(a, to, err);
}

static void casts(void **state)
{
    (void)state;
    static const float floats[] = {1.0f, -2.0f};
    static const int64_t longs[] = {1, -2};
    struct mr_array a;
    struct mr_err err;

    assert_int_equal(cast("[1, -2]", MR_DTYPE_INT64, MR_DTYPE_FP32, &a, &err), MR_OK);
    assert_memory_equal(a.data.ptr, floats, sizeof floats);
    mr_array_fini(&a);
    assert_int_equal(cast("[1, -2]", MR_DTYPE_FP64, MR_DTYPE_FP32, &a, &err), MR_OK);
    assert_memory_equal(a.data.ptr, floats, sizeof floats);
    mr_array_fini(&a);
    assert_int_equal(cast("[1, -2]", MR_DTYPE_INT8, MR_DTYPE_INT64, &a, &err), MR_OK);
    assert_memory_equal(a.data.ptr, longs, sizeof longs);
    mr_array_fini(&a);
    assert_int_equal(cast("[-128]", MR_DTYPE_INT64, MR_DTYPE_INT8, &a, &err), MR_OK);
    assert_memory_equal(a.data.ptr, "\x80", 1);
    mr_array_fini(&a);
    assert_int_equal(cast("[true]", MR_DTYPE_BOOL, MR_DTYPE_INT32, &a, &err), MR_OK);
    mr_array_fini(&a);
    assert_int_equal(cast("[127, 128]", MR_DTYPE_INT64, MR_DTYPE_INT8, &a, &err), MR_E_INVALID);
    assert_string_equal(err.msg, "element 1 (INT64) does not fit INT8");
    mr_array_fini(&a);
    assert_int_equal(cast("[-129]", MR_DTYPE_INT64, MR_DTYPE_INT8, &a, &err), MR_E_INVALID);
    mr_array_fini(&a);
    assert_int_equal(cast("[Infinity, 1e39]", MR_DTYPE_FP64, MR_DTYPE_FP32, &a, &err),
                     MR_E_INVALID);
    assert_string_equal(err.msg, "element 1 (FP64) does not fit FP32");
    mr_array_fini(&a);
    assert_int_equal(cast("[70000]", MR_DTYPE_INT32, MR_DTYPE_FP16, &a, &err), MR_E_INVALID);
    mr_array_fini(&a);
    assert_int_equal(cast("[-1]", MR_DTYPE_INT64, MR_DTYPE_UINT64, &a, &err), MR_E_INVALID);
    mr_array_fini(&a);
    assert_int_equal(cast("[1.0]", MR_DTYPE_FP32, MR_DTYPE_INT32, &a, &err), MR_E_INVALID);
    mr_array_fini(&a);
    assert_int_equal(cast("[\"a\"]", MR_DTYPE_BYTES, MR_DTYPE_INT32, &a, &err), MR_E_INVALID);
    assert_string_equal(err.msg, "BYTES cannot be made INT32");
    mr_array_fini(&a);
}

static void fits(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int rank; /* of the model */
        int64_t model[4];
        int got; /* rank, -1 = does not fit */
        int64_t shape[4];
    } rows[] = {
        {"[1,2,3]", 1, {3}, 1, {3}},
        {"[1,2,3]", 2, {-1, 3}, 2, {1, 3}},
        {"[[1,2,3]]", 2, {-1, 3}, 2, {1, 3}},
        {"[1,2,3,4,5,6]", 2, {-1, 3}, 2, {2, 3}},
        {"[1,2,3,4]", 3, {-1, 2, 2}, 3, {1, 2, 2}},
        {"[[1,2],[3,4]]", 3, {-1, 2, 2}, 3, {1, 2, 2}},
        {"[[1,2,3,4],[5,6,7,8]]", 3, {-1, 2, 2}, 3, {2, 2, 2}},
        {"5", 2, {-1, 1}, 2, {1, 1}},
        {"5", 1, {-1}, 1, {1}},
        {"[1,2]", 2, {-1, -1}, 2, {1, 2}},
        {"[]", 2, {-1, 3}, 2, {0, 3}},
        {"[1,2]", 2, {-1, 3}, -1, {0}},
        {"[[1,2],[3,4],[5,6]]", 2, {-1, 3}, -1, {0}},
        {"[1,2,3]", 3, {-1, -1, 2}, -1, {0}},
        {"[1,2,3]", 0, {0}, -1, {0}},
        {"[1,2]", 2, {0, -1}, -1, {0}},
    };
    struct mr_array a;
    struct mr_err err;

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_int_equal(parse(rows[i].text, MR_DTYPE_INT32, &a, &err), MR_OK);
        int rc = mr_array_fit(&a, rows[i].model, rows[i].rank, &err);
        if ((rc == MR_OK) != (rows[i].got >= 0)) {
            print_error("row %zu: %s\n", i, rows[i].text);
        }
        assert_int_equal(rc == MR_OK, rows[i].got >= 0);
        if (rc == MR_OK) {
            assert_int_equal(a.rank, rows[i].got);
            assert_memory_equal(a.shape, rows[i].shape, (size_t)a.rank * sizeof *a.shape);
        }
        mr_array_fini(&a);
    }
    parse("[1,2]", MR_DTYPE_INT32, &a, &err);
    assert_int_equal(mr_array_fit(&a, (const int64_t[]){-1, 3}, 2, &err), MR_E_INVALID);
    assert_string_equal(err.msg, "shape [2] does not fit the model's [-1,3]");
    mr_array_fini(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shapes_of_literals),
        cmocka_unit_test(bad_literals),
        cmocka_unit_test(values),
        cmocka_unit_test(strings),
        cmocka_unit_test(casts),
        cmocka_unit_test(fits),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
