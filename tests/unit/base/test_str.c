/* Slices: the limits of numbers, searching, cutting, comparing, distances. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <limits.h>

#include "base/mem.h"
#include "base/str.h"

#define COUNT(rows) (sizeof(rows) / sizeof((rows)[0]))

static void unsigned_numbers(void **state)
{
    static const struct {
        const char *text;
        bool ok;
        uint64_t value;
    } rows[] = {
        {"0", true, 0},
        {"00012", true, 12},
        {"18446744073709551615", true, UINT64_MAX},
        {"18446744073709551616", false, 0},
        {"99999999999999999999", false, 0},
        {"184467440737095516150", false, 0},
        {"", false, 0},
        {"-1", false, 0},
        {"+1", false, 0},
        {" 1", false, 0},
        {"1 ", false, 0},
        {"1x", false, 0},
        {"0x1", false, 0},
        {"1.0", false, 0},
        {"/", false, 0},
        {":", false, 0},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        uint64_t v = 99;
        bool ok = mr_str_to_u64(mr_str_c(rows[i].text), &v);
        if (ok != rows[i].ok || v != (ok ? rows[i].value : 99)) {
            fail_msg("'%s': %d %llu", rows[i].text, ok, (unsigned long long)v);
        }
    }
    uint64_t v;
    assert_false(mr_str_to_u64(mr_str_n("1\0", 2), &v));
    assert_true(mr_str_to_u64(mr_str_n("123", 2), &v));
    assert_int_equal(v, 12);
}

static void percent_encoding(void **state)
{
    static const struct {
        const char *in, *out;
    } rows[] = {
        {"", ""},       {"a%20b", "a b"}, {"%c3%A9", "\xc3\xa9"},
        {"%", "%"},     {"%4", "%4"},     {"%4g%41", "%4gA"},
        {"%g4", "%g4"}, {"%%41", "%A"},   {"%2541", "%41"},
    };
    char out[8];

    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        size_t n = mr_percent_decode(mr_str_c(rows[i].in), out, sizeof out);
        assert_true(mr_str_eq_c(mr_str_n(out, n), rows[i].out));
    }
    assert_int_equal(mr_percent_decode(MR_STR("%41%42%43"), out, 2), 2);
    assert_memory_equal(out, "AB", 2);
}

static void signed_numbers(void **state)
{
    static const struct {
        const char *text;
        bool ok;
        int64_t value;
    } rows[] = {
        {"0", true, 0},
        {"-0", true, 0},
        {"-1", true, -1},
        {"9223372036854775807", true, INT64_MAX},
        {"9223372036854775808", false, 0},
        {"-9223372036854775808", true, INT64_MIN},
        {"-9223372036854775809", false, 0},
        {"18446744073709551615", false, 0},
        {"-", false, 0},
        {"--1", false, 0},
        {"+1", false, 0},
        {"", false, 0},
        {"-1 ", false, 0},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        int64_t v = 99;
        bool ok = mr_str_to_i64(mr_str_c(rows[i].text), &v);
        if (ok != rows[i].ok || v != (ok ? rows[i].value : 99)) {
            fail_msg("'%s': %d %lld", rows[i].text, ok, (long long)v);
        }
    }
}

static void booleans(void **state)
{
    bool b = false;

    (void)state;
    assert_true(mr_str_to_bool(MR_STR("TRUE"), &b) && b);
    assert_true(mr_str_to_bool(MR_STR("0"), &b) && !b);
    assert_true(mr_str_to_bool(MR_STR("1"), &b) && b);
    assert_true(mr_str_to_bool(MR_STR("False"), &b) && !b);
    assert_false(mr_str_to_bool(MR_STR("yes"), &b));
    assert_false(mr_str_to_bool(MR_STR(""), &b));
    assert_false(mr_str_to_bool(MR_STR("11"), &b));
}

static void comparing(void **state)
{
    (void)state;
    assert_true(mr_str_ieq(MR_STR("Content-Type"), MR_STR("content-tYPE")));
    assert_false(mr_str_ieq(MR_STR("a"), MR_STR("ab")));
    /* Only letters have two cases: '@' and '`' differ by the same bit. */
    assert_false(mr_str_ieq(MR_STR("@"), MR_STR("`")));
    assert_false(mr_str_ieq(MR_STR("\xC4"), MR_STR("\xE4")));
    assert_true(mr_str_cmp(MR_STR("a"), MR_STR("b")) < 0);
    assert_true(mr_str_cmp(MR_STR("ab"), MR_STR("a")) > 0);
    assert_true(mr_str_cmp(MR_STR("\xFF"), MR_STR("a")) > 0);
    assert_int_equal(mr_str_cmp((mr_str){NULL, 0}, MR_STR("")), 0);
    assert_true(mr_str_eq((mr_str){NULL, 0}, MR_STR("")));
    assert_true(mr_str_starts(MR_STR("abc"), MR_STR("ab")));
    assert_false(mr_str_starts(MR_STR("a"), MR_STR("ab")));
    assert_true(mr_str_ends(MR_STR("abc"), MR_STR("bc")));
    assert_true(mr_str_ends(MR_STR("abc"), MR_STR("")));
    assert_false(mr_str_ends(MR_STR("c"), MR_STR("bc")));
}

static void cutting(void **state)
{
    (void)state;
    assert_true(mr_str_eq_c(mr_str_sub(MR_STR("hello"), 1, 3), "el"));
    assert_true(mr_str_eq_c(mr_str_sub(MR_STR("hello"), 3, 99), "lo"));
    assert_true(mr_str_eq_c(mr_str_sub(MR_STR("hello"), 4, 2), ""));
    assert_true(mr_str_eq_c(mr_str_sub(MR_STR("hello"), 99, 100), ""));
    assert_true(mr_str_eq_c(mr_str_trim(MR_STR(" \t\r\n a b \n")), "a b"));
    assert_int_equal(mr_str_trim(MR_STR(" \t ")).len, 0);
    assert_int_equal(mr_str_trim(MR_STR("")).len, 0);
    assert_int_equal(mr_str_c(NULL).len, 0);
}

static void searching(void **state)
{
    (void)state;
    assert_int_equal(mr_str_find(MR_STR("a:b:c"), ':'), 1);
    assert_int_equal(mr_str_find(MR_STR("abc"), ':'), -1);
    assert_int_equal(mr_str_find((mr_str){NULL, 0}, ':'), -1);
    assert_int_equal(mr_str_find_str(MR_STR("abcabd"), MR_STR("abd")), 3);
    assert_int_equal(mr_str_find_str(MR_STR("abc"), MR_STR("")), 0);
    assert_int_equal(mr_str_find_str(MR_STR(""), MR_STR("a")), -1);
    assert_int_equal(mr_str_find_str(MR_STR("ab"), MR_STR("abc")), -1);
    assert_int_equal(mr_str_find_str((mr_str){NULL, 0}, (mr_str){NULL, 0}), 0);
}

static void splitting(void **state)
{
    static const char *const want[] = {"a", "", "b c", ""};
    mr_str rest = MR_STR("a,,b c,");
    mr_str piece;
    size_t n = 0;

    (void)state;
    while (mr_str_split(&rest, ',', &piece)) {
        assert_true(n < COUNT(want));
        assert_true(mr_str_eq_c(piece, want[n]));
        n++;
    }
    assert_int_equal(n, COUNT(want));
    assert_null(rest.ptr);
    rest = MR_STR("");
    assert_true(mr_str_split(&rest, ',', &piece));
    assert_int_equal(piece.len, 0);
    assert_false(mr_str_split(&rest, ',', &piece));
}

static void distances(void **state)
{
    static const struct {
        const char *a;
        const char *b;
        unsigned distance;
    } rows[] = {
        {"", "", 0},
        {"", "abc", 3},
        {"abc", "", 3},
        {"kitten", "sitting", 3},
        {"http-port", "htpt-port", 1},
        {"flaw", "lawn", 2},
        {"ca", "abc", 3},
        {"same", "same", 0},
    };
    char lengthy[66];

    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        assert_int_equal(mr_str_distance(mr_str_c(rows[i].a), mr_str_c(rows[i].b)),
                         rows[i].distance);
        assert_int_equal(mr_str_distance(mr_str_c(rows[i].b), mr_str_c(rows[i].a)),
                         rows[i].distance);
    }
    memset(lengthy, 'x', sizeof lengthy);
    assert_int_equal(mr_str_distance(mr_str_n(lengthy, 64), MR_STR("")), 64);
    assert_int_equal(mr_str_distance(mr_str_n(lengthy, 65), MR_STR("x")), UINT_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(percent_encoding), cmocka_unit_test(unsigned_numbers),
        cmocka_unit_test(signed_numbers),   cmocka_unit_test(booleans),
        cmocka_unit_test(comparing),        cmocka_unit_test(cutting),
        cmocka_unit_test(searching),        cmocka_unit_test(splitting),
        cmocka_unit_test(distances),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
