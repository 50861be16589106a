/* Buffers: growth, the maximum, failing memory, printf, numbers, consume. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "base/buf.h"

static void appends_and_grows(void **state)
{
    struct mr_buf b;

    (void)state;
    mr_buf_init(&b, 0);
    assert_string_equal(mr_buf_cstr(&b), "");
    for (int i = 0; i < 10000; i++) {
        mr_buf_char(&b, (char)('a' + i % 26));
    }
    assert_int_equal(b.len, 10000);
    for (size_t i = 0; i < b.len; i++) {
        assert_int_equal(b.ptr[i], 'a' + (int)(i % 26));
    }
    mr_buf_reset(&b);
    MR_BUF_LIT(&b, "abc");
    mr_buf_c(&b, "def");
    mr_buf_str(&b, MR_STR("ghi"));
    mr_buf_append(&b, NULL, 0);
    assert_string_equal(mr_buf_cstr(&b), "abcdefghi");
    assert_true(mr_str_eq_c(mr_buf_view(&b), "abcdefghi"));
    assert_false(b.failed);
    mr_buf_fini(&b);
    assert_null(b.ptr);
}

static void never_passes_its_maximum(void **state)
{
    struct mr_buf b;

    (void)state;
    mr_buf_init(&b, 10);
    mr_buf_c(&b, "0123456789");
    assert_false(b.failed);
    assert_string_equal(mr_buf_cstr(&b), "0123456789");
    mr_buf_char(&b, 'x');
    assert_true(b.failed);
    assert_int_equal(b.len, 10);
    assert_true(b.cap <= 10);
    assert_string_equal(mr_buf_cstr(&b), "");
    mr_buf_reset(&b);
    assert_null(mr_buf_reserve(&b, 11));
    assert_true(b.failed);
    mr_buf_reset(&b);
    assert_null(mr_buf_reserve(&b, SIZE_MAX));
    mr_buf_reset(&b);
    mr_buf_printf(&b, "%d%s", 12345, "67890x");
    assert_true(b.failed);
    assert_int_equal(b.len, 0);
    mr_buf_reset(&b);
    mr_buf_printf(&b, "%d%s", 12345, "67890");
    assert_string_equal(mr_buf_cstr(&b), "1234567890");
    mr_buf_fini(&b);
}

static void failing_memory_sets_failed(void **state)
{
    struct mr_buf b;

    (void)state;
    mr_buf_init(&b, 0);
    mr_buf_c(&b, "kept");
    mr_mem_fail_after(1);
    assert_null(mr_buf_reserve(&b, 100000));
    assert_true(b.failed);
    assert_int_equal(b.len, 4);
    assert_memory_equal(b.ptr, "kept", 4);
    mr_mem_fail_after(0);
    mr_buf_fini(&b);
    mr_mem_fail_after(1);
    mr_buf_printf(&b, "x");
    assert_true(b.failed);
    mr_mem_fail_after(0);
    mr_buf_fini(&b);
}

static void printf_grows(void **state)
{
    struct mr_buf b;

    (void)state;
    mr_buf_init(&b, 0);
    for (int i = 0; i < 600; i++) {
        mr_buf_printf(&b, "%d,", i % 10);
    }
    assert_int_equal(b.len, 1200);
    mr_buf_printf(&b, "%3000s", "end");
    assert_int_equal(b.len, 4200);
    assert_memory_equal(b.ptr + 4196, " end", 4);
    assert_memory_equal(b.ptr, "0,1,2,", 6);
    mr_buf_fini(&b);
}

static void numbers(void **state)
{
    struct mr_buf b;

    (void)state;
    mr_buf_init(&b, 0);
    mr_buf_u64(&b, 0);
    mr_buf_char(&b, ' ');
    mr_buf_u64(&b, UINT64_MAX);
    mr_buf_char(&b, ' ');
    mr_buf_i64(&b, INT64_MIN);
    mr_buf_char(&b, ' ');
    mr_buf_i64(&b, INT64_MAX);
    mr_buf_char(&b, ' ');
    mr_buf_i64(&b, -7);
    assert_string_equal(mr_buf_cstr(&b),
                        "0 18446744073709551615 -9223372036854775808 9223372036854775807 -7");
    mr_buf_fini(&b);
}

static void consume(void **state)
{
    struct mr_buf b;

    (void)state;
    mr_buf_init(&b, 0);
    mr_buf_consume(&b, 5);
    mr_buf_c(&b, "hello world");
    mr_buf_consume(&b, 0);
    mr_buf_consume(&b, 6);
    assert_string_equal(mr_buf_cstr(&b), "world");
    mr_buf_consume(&b, 5);
    assert_int_equal(b.len, 0);
    mr_buf_c(&b, "x");
    mr_buf_consume(&b, 50);
    assert_int_equal(b.len, 0);
    mr_buf_fini(&b);
}

static void escapes(void **state)
{
    struct mr_buf b;

    (void)state;
    mr_buf_init(&b, 0);
    mr_buf_percent(&b, MR_STR("aZ09-._~/ \0\xc3%"), "");
    mr_buf_char(&b, ' ');
    mr_buf_percent(&b, MR_STR("/\0+"), "/");
    assert_string_equal(mr_buf_cstr(&b), "aZ09-._~%2F%20%00%C3%25 /%00%2B");
    mr_buf_reset(&b);
    mr_buf_html(&b, MR_STR("<a href=\"'x'\">&\xc3\xa9"));
    assert_string_equal(mr_buf_cstr(&b), "&lt;a href=&quot;'x'&quot;&gt;&amp;\xc3\xa9");
    mr_buf_fini(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(appends_and_grows),
        cmocka_unit_test(never_passes_its_maximum),
        cmocka_unit_test(failing_memory_sets_failed),
        cmocka_unit_test(printf_grows),
        cmocka_unit_test(numbers),
        cmocka_unit_test(consume),
        cmocka_unit_test(escapes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
