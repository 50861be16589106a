/* UTF-8: a table of edges, each at several places of a longer text, and every code point. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "base_priv.h"

static const struct {
    const char *text;
    bool ok;
    const char *what;
} rows[] = {
    {"", true, "empty"},
    {"plain", true, "ASCII"},
    {"\x7F", true, "U+007F"},
    {"\xC2\x80", true, "U+0080, first of two bytes"},
    {"\xDF\xBF", true, "U+07FF, last of two bytes"},
    {"\xE0\xA0\x80", true, "U+0800, first of three bytes"},
    {"\xED\x9F\xBF", true, "U+D7FF, before the surrogates"},
    {"\xEE\x80\x80", true, "U+E000, behind the surrogates"},
    {"\xEF\xBF\xBF", true, "U+FFFF"},
    {"\xF0\x90\x80\x80", true, "U+10000, first of four bytes"},
    {"\xF4\x8F\xBF\xBF", true, "U+10FFFF, the last"},
    {"\x80", false, "tail alone"},
    {"\xBF", false, "tail alone"},
    {"\xC0\x80", false, "overlong NUL"},
    {"\xC1\xBF", false, "overlong U+007F"},
    {"\xE0\x80\x80", false, "overlong NUL"},
    {"\xE0\x9F\xBF", false, "overlong U+07FF"},
    {"\xF0\x80\x80\x80", false, "overlong NUL"},
    {"\xF0\x8F\xBF\xBF", false, "overlong U+FFFF"},
    {"\xED\xA0\x80", false, "U+D800, first surrogate"},
    {"\xED\xBF\xBF", false, "U+DFFF, last surrogate"},
    {"\xF4\x90\x80\x80", false, "U+110000"},
    {"\xF5\x80\x80\x80", false, "lead too large"},
    {"\xF8\x88\x80\x80\x80", false, "five bytes"},
    {"\xFE", false, "FE"},
    {"\xFF", false, "FF"},
    {"\xC2", false, "cut after one of two"},
    {"\xE2\x82", false, "cut after two of three"},
    {"\xF0\x9F\x98", false, "cut after three of four"},
    {"\xC2\x41", false, "no tail"},
    {"\xE2\x82\x41", false, "no second tail"},
    {"\xF0\x9F\x98\x41", false, "no third tail"},
};

static void edges(void **state)
{
    char text[64];

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        size_t len = strlen(rows[i].text);
        for (size_t at = 0; at <= 20; at++) {
            for (size_t behind = 0; behind <= 10; behind += 5) {
                memset(text, 'x', sizeof text);
                memcpy(text + at, rows[i].text, len);
                if (mr_utf8_valid(mr_str_n(text, at + len + behind)) != rows[i].ok) {
                    fail_msg("%s, at %zu", rows[i].what, at);
                }
            }
        }
    }
    assert_true(mr_utf8_valid(mr_str_n("a\0b", 3)));
    assert_true(mr_utf8_valid((mr_str){NULL, 0}));
}

static size_t encode(uint32_t c, char out[4])
{
    if (c < 0x80) {
        out[0] = (char)c;
        return 1;
    }
    size_t n = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    for (size_t i = n; i-- > 1; c >>= 6) {
        out[i] = (char)(0x80 | (c & 0x3F));
    }
    out[0] = (char)((0xF00u >> n) | c);
    return n;
}

static void every_code_point(void **state)
{
    (void)state;
    for (uint32_t c = 0; c < 0x110400; c++) {
        char text[4];
        size_t n = encode(c, text);
        bool ok = c < 0x110000 && !(c >= 0xD800 && c < 0xE000);
        if (mr_utf8_step(mr_str_n(text, n)) != (ok ? n : 0)) {
            fail_msg("U+%04X", c);
        }
    }
}

static void whole(void **state)
{
    (void)state;
    assert_int_equal(mr_utf8_whole(MR_STR("")), 0);
    assert_int_equal(mr_utf8_whole(MR_STR("abc")), 3);
    assert_int_equal(mr_utf8_whole(MR_STR("ab\xC3")), 2);
    assert_int_equal(mr_utf8_whole(MR_STR("ab\xC3\xA4")), 4);
    assert_int_equal(mr_utf8_whole(MR_STR("ab\xF0\x9F\x98")), 2);
    assert_int_equal(mr_utf8_whole(MR_STR("ab\xF0\x9F\x98\x80")), 6);
    /* What was broken before the cut is left alone. */
    assert_int_equal(mr_utf8_whole(MR_STR("\x80\x80")), 2);
    assert_int_equal(mr_utf8_whole(MR_STR("a\x80\x80\x80\x80")), 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(edges),
        cmocka_unit_test(every_code_point),
        cmocka_unit_test(whole),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
