/* Whether files of boosted trees are whole. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "trees/whole.h"

/* What a model's file is made of: an object whose members are objects, arrays of one type, numbers and texts. */
static const char whole[] = "{L\0\0\0\0\0\0\0\1a{i\1b[$d#L\0\0\0\0\0\0\0\2\1\2\3\4\5\6\7\x8"
                            "U\1cSI\0\3xyzi\1d[#i\2TF}i\1e[D12345678Z]i\1fl\0\0\0\1}";

static void whole_ones(void **state)
{
    (void)state;
    assert_true(whole_ubjson(whole, sizeof whole - 1));
    assert_true(whole_ubjson("{}", 2));
    assert_true(whole_ubjson("[#i\0", 4));
}

static void cut_short(void **state)
{
    (void)state;
    for (size_t n = 0; n < sizeof whole - 1; n++) {
        assert_false(whole_ubjson(whole, n));
    }
}

static void wrong_ones(void **state)
{
    static const struct {
        const char *data;
        size_t bytes;
    } wrong[] = {{"{}}", 3},                                    /* more than one value */
                 {"{i\1aQ}", 6},                                /* no such type */
                 {"[$d#i\2abcdefg", 13},                        /* numbers beyond the end */
                 {"[$d#L\x7f\xff\xff\xff\xff\xff\xff\xff", 13}, /* as many as there can be */
                 {"[$d#i\xff", 6},                              /* less than none */
                 {"[$T#i\5]", 7},                               /* values without bytes */
                 {"[#L\x7f\xff\xff\xff\xff\xff\xff\xffZ", 12},
                 {"{S\1aZ}", 6}, /* a key has no type */
                 {"SL\x40\0\0\0\0\0\0\0a", 11}};

    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assert_false(whole_ubjson(wrong[i].data, wrong[i].bytes));
    }
}

static void depth(void **state)
{
    char deep[4096];

    (void)state;
    memset(deep, '[', sizeof deep);
    assert_false(whole_ubjson(deep, sizeof deep));
    memset(deep + 64, ']', 64);
    assert_true(whole_ubjson(deep, 128));
    memset(deep, '[', 65);
    memset(deep + 65, ']', 65);
    assert_false(whole_ubjson(deep, 130));
}

/* Three trees of 9, 7 and 8 bytes. */
#define HEAD  "tree\nversion=v4\ntree_sizes=9 7 8\n\n"
#define TREES "Tree=0\na\nTree=1\nTree=2\n\n"

static int is_whole_text(const char *text)
{
    return whole_lightgbm(text, strlen(text));
}

static void texts(void **state)
{
    char cut[sizeof HEAD TREES];

    (void)state;
    assert_true(is_whole_text(HEAD TREES "end of trees\n"));
    assert_true(is_whole_text("tree\nversion=v2\n\n" TREES)); /* without sizes */
    assert_true(is_whole_text("no model"));                   /* not for this to say */
    for (size_t n = strlen("tree\n"); n < sizeof cut - 1; n++) {
        memcpy(cut, HEAD TREES, n);
        cut[n] = '\0';
        assert_false(whole_lightgbm(cut, n));
    }
    assert_false(is_whole_text("tree\ntree_sizes=8 7 8\n\n" TREES));
    assert_false(is_whole_text("tree\ntree_sizes=9 99999999999999999999 8\n\n" TREES));
    assert_false(is_whole_text("tree\ntree_sizes=9 -7 8\n\n" TREES));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whole_ones), cmocka_unit_test(cut_short), cmocka_unit_test(wrong_ones),
        cmocka_unit_test(depth),      cmocka_unit_test(texts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
