/* Tables, numbers for people, cleaned text, and addresses of servers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/common/term.h"

static void expect_grid(const struct mr_grid *t, bool aligned, const char *text)
{
    char *got = NULL;
    size_t len;
    FILE *f = tmpfile();

    assert_non_null(f);
    mr_grid_print(t, f, aligned, aligned ? 2 : 0);
    len = (size_t)ftell(f);
    rewind(f);
    got = calloc(1, len + 1);
    assert_int_equal(fread(got, 1, len, f), len);
    assert_string_equal(got, text);
    free(got);
    fclose(f);
}

static void grids(void **state)
{
    (void)state;
    static const char *const head[] = {"NAME", "N", "", NULL};
    static const char *const nameless[] = {"", "", NULL};
    struct mr_grid t;

    mr_grid_init(&t, head);
    mr_grid_add(&t, MR_STYLE_BOLD, "é");
    mr_grid_add(&t, MR_STYLE_PLAIN, "%d", 7);
    mr_grid_add(&t, MR_STYLE_PLAIN, "x");
    mr_grid_add_str(&t, MR_STYLE_GOOD, MR_STR("longer\033[2J"));
    mr_grid_add(&t, MR_STYLE_PLAIN, "-");
    mr_grid_add(&t, MR_STYLE_PLAIN, "%s", "");
    expect_grid(&t, true, "  NAME        N\n  é           7  x\n  longer?[2J  -\n");
    expect_grid(&t, false, "é\t7\tx\nlonger?[2J\t-\t\n");
    mr_grid_fini(&t);
    mr_grid_init(&t, nameless);
    mr_grid_add(&t, MR_STYLE_PLAIN, "a");
    mr_grid_add(&t, MR_STYLE_PLAIN, "10");
    expect_grid(&t, true, "  a  10\n");
    mr_grid_fini(&t);
}

static void numbers(void **state)
{
    (void)state;
    char text[32];

    mr_text_duration(text, 0);
    assert_string_equal(text, "0");
    mr_text_duration(text, 999);
    assert_string_equal(text, "999 ns");
    mr_text_duration(text, 1234);
    assert_string_equal(text, "1.23 us");
    mr_text_duration(text, 45.6e6);
    assert_string_equal(text, "45.6 ms");
    mr_text_duration(text, 250e9);
    assert_string_equal(text, "250 s");
    mr_text_bytes(text, 512);
    assert_string_equal(text, "512 B");
    mr_text_bytes(text, UINT64_C(3) << 29);
    assert_string_equal(text, "1.5 GiB");
}

static void cleaned(void **state)
{
    (void)state;
    struct mr_buf b;

    mr_buf_init(&b, 0);
    mr_text_clean(&b, MR_STR("a\tb\nc\x1b[31m\x7f\xc2\x9b"
                             "d\xc3\xa9"));
    assert_string_equal(mr_buf_cstr(&b), "a b c?[31m??d\xc3\xa9");
    mr_buf_reset(&b);
    mr_text_clean(&b, MR_STR("\xf0\x9f\x98\x80|\xff|\xed\xa0\x80|cut \xc3"));
    assert_string_equal(mr_buf_cstr(&b), "\xf0\x9f\x98\x80|?|???|cut ?");
    mr_buf_fini(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(grids),
        cmocka_unit_test(numbers),
        cmocka_unit_test(cleaned),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
