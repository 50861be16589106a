/* .npy files: what NumPy writes is read, what we write has NumPy's form, and damage is an error. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "cli/common/npy.h"

/* A version 1.0 file of this header text and data; the length field is right. */
static mr_bytes make(struct mr_buf *b, int version, const char *header, const void *data,
                     size_t len)
{
    size_t n = strlen(header);
    uint8_t prefix[12] = {
        0x93, 'N', 'U', 'M', 'P', 'Y', (uint8_t)version, 0, (uint8_t)n, (uint8_t)(n >> 8), 0, 0};

    mr_buf_init(b, 0);
    mr_buf_append(b, prefix, version == 1 ? 10 : 12);
    mr_buf_append(b, header, n);
    mr_buf_append(b, data, len);
    return (mr_bytes){(const uint8_t *)b->ptr, b->len};
}

static int parse(int version, const char *header, const void *data, size_t len, struct mr_array *a,
                 struct mr_err *err)
{
    struct mr_buf b;
    mr_bytes file = make(&b, version, header, data, len);

    mr_array_init(a);
    /* exactly as many bytes as there are, so that a read past them is detected */
    uint8_t *copy = mr_alloc(file.len);
    memcpy(copy, file.ptr, file.len);
    int rc = mr_npy_parse((mr_bytes){copy, file.len}, a, err);
    mr_free(copy);
    mr_buf_fini(&b);
    return rc;
}

#define HEADER(descr, shape)                                                                       \
    "{'descr': '" descr "', 'fortran_order': False, 'shape': " shape ", }    \n"

static void plain_types(void **state)
{
    (void)state;
    static const struct {
        const char *header;
        int dtype;
        size_t bytes;
    } rows[] = {
        {HEADER("|b1", "(2,)"), MR_DTYPE_BOOL, 2},    {HEADER("|u1", "(2,)"), MR_DTYPE_UINT8, 2},
        {HEADER("<u2", "(2,)"), MR_DTYPE_UINT16, 4},  {HEADER("<u4", "(2,)"), MR_DTYPE_UINT32, 8},
        {HEADER("<u8", "(2,)"), MR_DTYPE_UINT64, 16}, {HEADER("|i1", "(2,)"), MR_DTYPE_INT8, 2},
        {HEADER("<i2", "(2,)"), MR_DTYPE_INT16, 4},   {HEADER("<i4", "(2,)"), MR_DTYPE_INT32, 8},
        {HEADER("<i8", "(2,)"), MR_DTYPE_INT64, 16},  {HEADER("<f2", "(2,)"), MR_DTYPE_FP16, 4},
        {HEADER("<f4", "(2,)"), MR_DTYPE_FP32, 8},    {HEADER("<f8", "(2,)"), MR_DTYPE_FP64, 16},
    };
    uint8_t data[16] = {1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0};
    struct mr_array a;
    struct mr_err err;

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        for (int version = 1; version <= 3; version++) {
            assert_int_equal(parse(version, rows[i].header, data, rows[i].bytes, &a, &err), MR_OK);
            assert_int_equal(a.dtype, rows[i].dtype);
            assert_int_equal(a.rank, 1);
            assert_int_equal(a.shape[0], 2);
            assert_int_equal(a.data.len, rows[i].bytes);
            assert_memory_equal(a.data.ptr, data, rows[i].bytes);
            mr_array_fini(&a);
        }
    }
}

static void orders(void **state)
{
    (void)state;
    static const uint8_t big[] = {0, 1, 0, 2};
    static const uint8_t fortran[] = {1, 4, 2, 5, 3, 6};
    static const uint8_t c_order[] = {1, 2, 3, 4, 5, 6};
    struct mr_array a;
    struct mr_err err;

    assert_int_equal(parse(1, HEADER(">i2", "(2,)"), big, 4, &a, &err), MR_OK);
    assert_memory_equal(a.data.ptr, "\1\0\2\0", 4);
    mr_array_fini(&a);
    assert_int_equal(
        parse(1, "{'descr': '|u1', 'fortran_order': True, 'shape': (2, 3)}", fortran, 6, &a, &err),
        MR_OK);
    assert_int_equal(a.rank, 2);
    assert_int_equal(a.shape[1], 3);
    assert_memory_equal(a.data.ptr, c_order, 6);
    mr_array_fini(&a);
}

static void text(void **state)
{
    (void)state;
    /* U3: "aé" and U+1F600 */
    static const uint32_t points[] = {'a', 0xE9, 0, 0x1F600, 0, 0};
    struct mr_array a;
    struct mr_err err;

    assert_int_equal(parse(1, HEADER("|S3", "(2,)"), "ab\0xyz", 6, &a, &err), MR_OK);
    assert_int_equal(a.dtype, MR_DTYPE_BYTES);
    assert_int_equal(a.data.len, 4 + 2 + 4 + 3);
    assert_memory_equal(a.data.ptr, "\2\0\0\0ab\3\0\0\0xyz", 13);
    mr_array_fini(&a);
    assert_int_equal(parse(1, HEADER("<U3", "(2,)"), points, sizeof points, &a, &err), MR_OK);
    assert_int_equal(a.data.len, 4 + 3 + 4 + 4);
    assert_memory_equal(a.data.ptr, "\3\0\0\0a\xc3\xa9\4\0\0\0\xf0\x9f\x98\x80", 15);
    mr_array_fini(&a);
}

static void shapes(void **state)
{
    (void)state;
    struct mr_array a;
    struct mr_err err;

    assert_int_equal(parse(1, HEADER("|u1", "()"), "x", 1, &a, &err), MR_OK);
    assert_int_equal(a.rank, 0);
    assert_int_equal(a.data.len, 1);
    mr_array_fini(&a);
    assert_int_equal(parse(1, HEADER("|u1", "(0, 4)"), "", 0, &a, &err), MR_OK);
    assert_int_equal(a.rank, 2);
    assert_int_equal(a.data.len, 0);
    mr_array_fini(&a);
    assert_int_equal(parse(1, HEADER("|u1", "(1L, 2L)"), "ab", 2, &a, &err), MR_OK);
    assert_int_equal(a.shape[1], 2);
    mr_array_fini(&a);
}

static void damaged(void **state)
{
    (void)state;
    static const char *const rows[] = {
        "",
        "{",
        "{}",
        "{'descr': '<f4'}",
        "{'descr': '<f4', 'fortran_order': Maybe, 'shape': (1,)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (1,}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (-1,)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (4294967296, 4294967296)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (3,)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (1,), 'x': 1}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': "
        "(1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,"
        "1,1,1,1,1,1,1,1,1,1,1,1,1)}",
        "{'descr': '<c8', 'fortran_order': False, 'shape': (1,)}",
        "{'descr': '|O', 'fortran_order': False, 'shape': (1,)}",
        "{'descr': '<f3', 'fortran_order': False, 'shape': (1,)}",
        "{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,)}",
        "{'descr': '|S0', 'fortran_order': False, 'shape': (1000000000000,)}",
        "{'descr: '<f4', 'fortran_order': False, 'shape': (1,)}",
    };
    struct mr_array a;
    struct mr_err err;

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        int rc = parse(1, rows[i], "12345678", 8, &a, &err);
        if (rc == MR_OK) {
            print_error("row %zu was read\n", i);
        }
        assert_true(rc == MR_E_INVALID || rc == MR_E_UNSUPPORTED);
        mr_array_fini(&a);
    }
    mr_array_init(&a);
    assert_int_equal(
        mr_npy_parse((mr_bytes){(const uint8_t *)"\x93NUMPY\1\0\xff\xff{}", 12}, &a, &err),
        MR_E_INVALID);
    assert_int_equal(mr_npy_parse((mr_bytes){(const uint8_t *)"\x93NUMPY\7\0\2\0{}", 12}, &a, &err),
                     MR_E_UNSUPPORTED);
    assert_int_equal(mr_npy_parse((mr_bytes){NULL, 0}, &a, &err), MR_E_INVALID);
    mr_array_fini(&a);
}

/* Written, then read: the same; and the data begin at a multiple of 64. */
static void round_trip(int dtype, const void *data, size_t bytes, int expect_dtype,
                       const void *expect, size_t expect_bytes)
{
    int64_t shape[] = {1, 2};
    struct mr_tensor t = {
        .dtype = dtype, .rank = 2, .shape = shape, .data = (void *)(uintptr_t)data, .bytes = bytes};
    struct mr_buf file;
    struct mr_array a;
    struct mr_err err;

    mr_buf_init(&file, 0);
    assert_int_equal(mr_npy_write(&t, &file, &err), MR_OK);
    assert_memory_equal(file.ptr, "\x93NUMPY\1\0", 8);
    size_t header = 10 + ((size_t)(uint8_t)file.ptr[8] | (size_t)(uint8_t)file.ptr[9] << 8);
    assert_int_equal(header % 64, 0);
    assert_int_equal(file.ptr[header - 1], '\n');
    mr_array_init(&a);
    assert_int_equal(mr_npy_parse((mr_bytes){(const uint8_t *)file.ptr, file.len}, &a, &err),
                     MR_OK);
    assert_int_equal(a.dtype, expect_dtype);
    assert_int_equal(a.rank, 2);
    assert_int_equal(a.data.len, expect_bytes);
    assert_memory_equal(a.data.ptr, expect, expect_bytes);
    mr_array_fini(&a);
    mr_buf_fini(&file);
}

static void written(void **state)
{
    (void)state;
    static const float floats[] = {1.5f, -2.0f};
    static const uint16_t bf16[] = {0x3FC0, 0xC000}; /* the same numbers */
    static const char words[] = "\2\0\0\0\xc3\xa9\3\0\0\0abc";
    static const char bytes[] = "\2\0\0\0\xff\xfe\1\0\0\0a";
    struct mr_tensor broken = {
        .dtype = MR_DTYPE_BYTES, .data = (void *)(uintptr_t) "\xff\0\0\0", .bytes = 4};
    struct mr_buf b;
    struct mr_err err;

    round_trip(MR_DTYPE_FP32, floats, 8, MR_DTYPE_FP32, floats, 8);
    round_trip(MR_DTYPE_BF16, bf16, 4, MR_DTYPE_FP32, floats, 8);
    round_trip(MR_DTYPE_BOOL, "\1\0", 2, MR_DTYPE_BOOL, "\1\0", 2);
    round_trip(MR_DTYPE_BYTES, words, 13, MR_DTYPE_BYTES, words, 13);
    round_trip(MR_DTYPE_BYTES, bytes, 11, MR_DTYPE_BYTES, bytes, 11);
    mr_buf_init(&b, 0);
    assert_int_equal(mr_npy_write(&broken, &b, &err), MR_E_INVALID);
    mr_buf_fini(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plain_types), cmocka_unit_test(orders),  cmocka_unit_test(text),
        cmocka_unit_test(shapes),      cmocka_unit_test(damaged), cmocka_unit_test(written),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
