/* BYTES tensors: walking, and every way in which the encoding can be broken. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "base/mem.h"
#include "tensor/tensor.h"

static mr_bytes bytes(const char *p, size_t n)
{
    return (mr_bytes){(const uint8_t *)p, n};
}

#define BYTES(lit) bytes("" lit, sizeof(lit) - 1)

static void walks(void **state)
{
    mr_bytes rest = BYTES("\3\0\0\0abc\0\0\0\0\1\0\0\0\0");
    mr_str e;

    (void)state;
    assert_true(mr_bytes_tensor_next(&rest, &e));
    assert_true(mr_str_eq_c(e, "abc"));
    assert_true(mr_bytes_tensor_next(&rest, &e));
    assert_int_equal(e.len, 0);
    assert_true(mr_bytes_tensor_next(&rest, &e));
    assert_true(mr_str_eq(e, mr_str_n("\0", 1)));
    assert_false(mr_bytes_tensor_next(&rest, &e));
    assert_int_equal(rest.len, 0);
    rest = (mr_bytes){NULL, 0};
    assert_false(mr_bytes_tensor_next(&rest, &e));
}

static void broken(void **state)
{
    static const struct {
        const char *data;
        size_t len;
    } rows[] = {
        {"\1", 1},
        {"\1\0\0", 3},
        {"\1\0\0\0", 4},
        {"\2\0\0\0a", 5},
        {"\xFF\xFF\xFF\xFFxxxx", 8},
        {"\0\0\0\1", 4},
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        /* An exact heap copy: reading past its end shows in the ASan build. */
        char *copy = mr_strndup(rows[i].data, rows[i].len);
        copy = mr_try_realloc(copy, rows[i].len);
        mr_bytes rest = bytes(copy, rows[i].len);
        mr_str e;
        assert_false(mr_bytes_tensor_next(&rest, &e));
        assert_int_equal(rest.len, rows[i].len);
        assert_int_equal(mr_bytes_tensor_check(rest, 1, NULL), MR_E_INVALID);
        mr_free(copy);
    }
}

static void counts(void **state)
{
    struct mr_err err = {0};
    mr_bytes two = BYTES("\1\0\0\0a\2\0\0\0bc");

    (void)state;
    assert_int_equal(mr_bytes_tensor_check(two, 2, &err), MR_OK);
    assert_int_equal(mr_bytes_tensor_check(BYTES(""), 0, &err), MR_OK);
    assert_int_equal(mr_bytes_tensor_check((mr_bytes){NULL, 0}, 0, &err), MR_OK);
    assert_int_equal(mr_bytes_tensor_check(two, 1, &err), MR_E_INVALID);
    assert_string_equal(err.msg, "BYTES data has 6 bytes too many after its 1 elements");
    assert_int_equal(mr_bytes_tensor_check(two, 3, &err), MR_E_INVALID);
    assert_string_equal(err.msg, "BYTES data holds 2 whole elements in 11 bytes, expected 3");
    assert_int_equal(mr_bytes_tensor_check(two, UINT64_MAX, &err), MR_E_INVALID);
    assert_int_equal(mr_bytes_tensor_check(BYTES("\1\0\0\0a\2\0\0\0b"), 2, &err), MR_E_INVALID);
    assert_string_equal(err.msg, "BYTES data holds 1 whole elements in 10 bytes, expected 2: an "
                                 "element's length passes the end");
}

static void whole_is_what_type_and_shape_say(void **state)
{
    static uint8_t texts[] = {1, 0, 0, 0, 'a', 0, 0, 0, 0};
    static const int64_t two[] = {2}, three[] = {3}, huge[] = {INT64_MAX, 3};
    (void)state;

    struct mr_tensor t = {
        .dtype = MR_DTYPE_BYTES, .rank = 1, .shape = two, .data = texts, .bytes = sizeof texts};
    assert_true(mr_tensor_is_whole(&t));
    t.shape = three;
    assert_false(mr_tensor_is_whole(&t));
    t.shape = two;
    t.bytes--;
    assert_false(mr_tensor_is_whole(&t));
    t.dtype = MR_DTYPE_INT32;
    assert_true(mr_tensor_is_whole(&t));
    t.bytes++;
    assert_false(mr_tensor_is_whole(&t));
    t.rank = 2;
    t.shape = huge;
    assert_false(mr_tensor_is_whole(&t));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(walks),
        cmocka_unit_test(broken),
        cmocka_unit_test(counts),
        cmocka_unit_test(whole_is_what_type_and_shape_say),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
