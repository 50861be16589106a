/* The JSON reader: what is accepted, what is refused and with which words, and what values come
 * out. */
#include "codec_test.h"

#include <math.h>

#include "codec/json.h"

static int skip_text(mr_str text, int max_depth, struct mr_err *err)
{
    char *copy = exact_copy(text);
    struct mr_json j;
    mr_json_init(&j, mr_str_n(copy, text.len), NULL, max_depth, err);
    int rc = mr_json_skip(&j, NULL);
    if (rc == MR_OK) {
        rc = mr_json_finish(&j);
    }
    assert_int_equal(rc, j.status);
    free(copy);
    return rc;
}

static void valid_texts(void **state)
{
    (void)state;
    static const mr_str texts[] = {
        MR_STR_INIT("null"),
        MR_STR_INIT(" true "),
        MR_STR_INIT("false"),
        MR_STR_INIT("0"),
        MR_STR_INIT("-0"),
        MR_STR_INIT("-0.0e-0"),
        MR_STR_INIT("1E+400"),
        MR_STR_INIT("10.25e3"),
        MR_STR_INIT("NaN"),
        MR_STR_INIT("Infinity"),
        MR_STR_INIT("-Infinity"),
        MR_STR_INIT("123456789012345678901234567890"),
        MR_STR_INIT("\"\""),
        MR_STR_INIT("\"a/b\\/\\\\\\\"\\b\\f\\n\\r\\t\""),
        MR_STR_INIT("\"\\u0000\\uD83D\\ude00\""),
        MR_STR_INIT("\"\xc3\xa4\xf0\x9f\x98\x80 and more than sixteen bytes\x7f\""),
        MR_STR_INIT("[]"),
        MR_STR_INIT("{}"),
        MR_STR_INIT("[[],[[]],{}]"),
        MR_STR_INIT(" [ 1 , 2 ] "),
        MR_STR_INIT("\t{\r\n\"a\" : [ 1 , { \"b\" : null } ] , \"c\":2}"),
        MR_STR_INIT("{\"a\":1,\"a\":2}"),
        MR_STR_INIT("{\"\\u0061\":{}}"),
    };
    for (size_t i = 0; i < COUNT_OF(texts); i++) {
        struct mr_err err = {0};
        int rc = skip_text(texts[i], 0, &err);
        CHECK_ROW(rc == MR_OK, i, "%s: %s", texts[i].ptr, err.msg);
    }
}

struct bad_row {
    mr_str text;
    const char *message; /* a part of it */
};

static const struct bad_row bad_rows[] = {
    {MR_STR_INIT(""), "expected a value, found the end of the text at offset 0"},
    {MR_STR_INIT("  "), "offset 2"},
    {MR_STR_INIT("nul"), "expected null"},
    {MR_STR_INIT("True"), "found 'T' at offset 0"},
    {MR_STR_INIT("truex"), "expected the end of the text, found 'x' at offset 4"},
    {MR_STR_INIT("1 2"), "found a number at offset 2"},
    {MR_STR_INIT("01"), "malformed number"},
    {MR_STR_INIT("-"), "malformed number"},
    {MR_STR_INIT("+1"), "found '+'"},
    {MR_STR_INIT(".5"), "found '.'"},
    {MR_STR_INIT("1."), "malformed number"},
    {MR_STR_INIT("1.e3"), "malformed number"},
    {MR_STR_INIT("1e"), "malformed number"},
    {MR_STR_INIT("1e+"), "malformed number"},
    {MR_STR_INIT("0x10"), "found 'x' at offset 1"},
    {MR_STR_INIT("-NaN"), "malformed number"},
    {MR_STR_INIT("Inf"), "malformed number"},
    {MR_STR_INIT("\""), "without closing quote"},
    {MR_STR_INIT("\"abc"), "without closing quote"},
    {MR_STR_INIT("\"a\nb\""), "control character in a string at offset 2"},
    {MR_STR_INIT("\"a\0b\""), "control character"},
    {MR_STR_INIT("\"sixteen bytes or more\x1f\""), "control character in a string at offset 22"},
    {MR_STR_INIT("\"\\x\""), "malformed escape in a string at offset 1"},
    {MR_STR_INIT("\"\\"), "malformed escape"},
    {MR_STR_INIT("\"\\u12"), "malformed escape"},
    {MR_STR_INIT("\"\\u12g4\""), "malformed escape"},
    {MR_STR_INIT("\"\\ud800\""), "malformed escape"},
    {MR_STR_INIT("\"\\ud800\\u0041\""), "malformed escape"},
    {MR_STR_INIT("\"\\udc00\""), "malformed escape"},
    {MR_STR_INIT("\"\\ud83d\\ud83d\""), "malformed escape"},
    {MR_STR_INIT("\"\x80\""), "not valid UTF-8"},
    {MR_STR_INIT("\"\xc0\xaf\""), "not valid UTF-8"},
    {MR_STR_INIT("\"\xed\xa0\x80\""), "not valid UTF-8"},
    {MR_STR_INIT("\"\xf4\x90\x80\x80\""), "not valid UTF-8"},
    {MR_STR_INIT("\"\xc3\""), "not valid UTF-8"},
    {MR_STR_INIT("[1,]"), "expected a value, found ']' at offset 3"},
    {MR_STR_INIT("[,1]"), "expected a value, found ','"},
    {MR_STR_INIT("[1 2]"), "expected ',' or ']', found a number at offset 3"},
    {MR_STR_INIT("[1}"), "expected ',' or ']', found '}'"},
    {MR_STR_INIT("["), "the end of the text"},
    {MR_STR_INIT("[1"), "expected ',' or ']', found the end"},
    {MR_STR_INIT("]"), "expected a value, found ']'"},
    {MR_STR_INIT("{\"a\" 1}"), "expected ':', found a number at offset 5"},
    {MR_STR_INIT("{\"a\":}"), "expected a value, found '}'"},
    {MR_STR_INIT("{\"a\":1,}"), "expected a member name, found '}'"},
    {MR_STR_INIT("{1:2}"), "expected a member name, found a number"},
    {MR_STR_INIT("{\"a\":1]"), "expected ',' or '}', found ']'"},
    {MR_STR_INIT("{\"a\":1"), "expected ',' or '}', found the end"},
    {MR_STR_INIT("\xef\xbb\xbf{}"), "found byte 0xef at offset 0"},
    {MR_STR_INIT("[1,\0]"), "found byte 0x00"},
};

static void invalid_texts(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(bad_rows); i++) {
        struct mr_err err = {0};
        int rc = skip_text(bad_rows[i].text, 0, &err);
        CHECK_ROW(rc == MR_E_INVALID, i, "%s: status %d", bad_rows[i].text.ptr, rc);
        CHECK_ROW(strstr(err.msg, bad_rows[i].message) != NULL, i, "%s: got \"%s\"",
                  bad_rows[i].text.ptr, err.msg);
    }
}

static void skip_gives_exact_text(void **state)
{
    (void)state;
    struct mr_json j;
    mr_str text;
    mr_json_init(&j, MR_STR("  {\"a\": [1, {}]}  "), NULL, 0, NULL);
    assert_int_equal(mr_json_skip(&j, &text), MR_OK);
    assert_true(mr_str_eq_c(text, "{\"a\": [1, {}]}"));
    assert_int_equal(mr_json_finish(&j), MR_OK);
    assert_int_equal(j.depth, 0);
}

/* `levels` opening brackets and as many closing ones. */
static int nested(int levels, int max_depth)
{
    char *text = malloc((size_t)levels * 2);
    assert_non_null(text);
    memset(text, '[', (size_t)levels);
    memset(text + levels, ']', (size_t)levels);
    int rc = skip_text(mr_str_n(text, (size_t)levels * 2), max_depth, NULL);
    free(text);
    return rc;
}

static void depth_is_limited(void **state)
{
    (void)state;
    assert_int_equal(nested(MR_JSON_DEPTH_DEFAULT, 0), MR_OK);
    assert_int_equal(nested(MR_JSON_DEPTH_DEFAULT + 1, 0), MR_E_INVALID);
    assert_int_equal(nested(3, 3), MR_OK);
    assert_int_equal(nested(4, 3), MR_E_INVALID);
    assert_int_equal(nested(1000, 1000), MR_OK);
    assert_int_equal(nested(1001, 1000000), MR_E_INVALID);
    assert_int_equal(nested(1000000, 1000000), MR_E_INVALID);
}

static void strings(void **state)
{
    (void)state;
    static const struct {
        mr_str text, want;
    } rows[] = {
        {MR_STR_INIT("\"\""), MR_STR_INIT("")},
        {MR_STR_INIT("\"plain\""), MR_STR_INIT("plain")},
        {MR_STR_INIT("\"\xc3\xa4 plain, not ASCII, longer\""),
         MR_STR_INIT("\xc3\xa4 plain, not ASCII, longer")},
        {MR_STR_INIT("\"\\\"\\\\\\/\\b\\f\\n\\r\\t\""), MR_STR_INIT("\"\\/\b\f\n\r\t")},
        {MR_STR_INIT("\"a\\u0000b\""), MR_STR_INIT("a\0b")},
        {MR_STR_INIT("\"\\u00e4\\u20AC\\ud83d\\uDE00!\""),
         MR_STR_INIT("\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80!")},
        {MR_STR_INIT("\"\\uffff\\udbff\\udfff\""), MR_STR_INIT("\xef\xbf\xbf\xf4\x8f\xbf\xbf")},
        {MR_STR_INIT("\"0123456789abcdef\\n0123456789abcdef\""),
         MR_STR_INIT("0123456789abcdef\n0123456789abcdef")},
    };
    struct mr_arena arena;
    mr_arena_init(&arena, 256, 4096);
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        char *copy = exact_copy(rows[i].text);
        struct mr_json j;
        mr_str got = {0};
        mr_json_init(&j, mr_str_n(copy, rows[i].text.len), &arena, 0, NULL);
        CHECK_ROW(mr_json_string(&j, &got) == MR_OK, i, "refused");
        CHECK_ROW(mr_str_eq(got, rows[i].want), i, "got %.*s", MR_STR_ARG(got));
        assert_int_equal(mr_json_finish(&j), MR_OK);
        free(copy);
    }
    mr_arena_fini(&arena);
}

/* Every length around the 16-byte blocks, with the special byte at every place. */
static void string_scan_blocks(void **state)
{
    (void)state;
    static const char specials[] = {'"', '\\', '\n', 'x', (char)0xc3};
    for (size_t len = 1; len < 40; len++) {
        for (size_t at = 0; at < len; at++) {
            for (size_t k = 0; k < sizeof specials; k++) {
                char text[64];
                memset(text, 'a', sizeof text);
                text[0] = '"';
                text[1 + at] = specials[k];
                text[1 + len] = '"';
                bool want = specials[k] == 'x' || (specials[k] == '"' && at == len - 1);
                /* A quote as the last character closes early, so leave it out. */
                size_t size = specials[k] == '"' && at == len - 1 ? len + 1 : len + 2;
                int rc = skip_text(mr_str_n(text, size), 0, NULL);
                assert_int_equal(rc, want ? MR_OK : MR_E_INVALID);
            }
        }
    }
}

static void arena_full(void **state)
{
    (void)state;
    struct mr_arena arena;
    struct mr_json j;
    mr_str got = {0};
    char text[3000];
    memset(text, 'a', sizeof text);
    memcpy(text, "\"\\n", 3);
    text[sizeof text - 1] = '"';
    mr_arena_init(&arena, 64, 1024);
    mr_json_init(&j, mr_str_n(text, sizeof text), &arena, 0, NULL);
    assert_int_equal(mr_json_string(&j, &got), MR_E_EXHAUSTED);
    assert_null(got.ptr);
    mr_arena_fini(&arena);
    mr_json_init(&j, mr_str_n(text, sizeof text), NULL, 0, NULL);
    assert_int_equal(mr_json_string(&j, &got), MR_E_EXHAUSTED);
}

static void integers(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        bool i_ok, u_ok;
        int64_t i;
        uint64_t u;
    } rows[] = {
        {"0", true, true, 0, 0},
        {"-0", true, true, 0, 0},
        {" 42", true, true, 42, 42},
        {"-1", true, false, -1, 0},
        {"9223372036854775807", true, true, INT64_MAX, INT64_MAX},
        {"9223372036854775808", false, true, 0, UINT64_C(9223372036854775808)},
        {"-9223372036854775808", true, false, INT64_MIN, 0},
        {"-9223372036854775809", false, false, 0, 0},
        {"18446744073709551615", false, true, 0, UINT64_MAX},
        {"18446744073709551616", false, false, 0, 0},
        {"99999999999999999999", false, false, 0, 0},
        {"100000000000000000000", false, false, 0, 0},
        {"1.0", false, false, 0, 0},
        {"1e3", false, false, 0, 0},
        {"1E3", false, false, 0, 0},
        {"01", false, false, 0, 0},
        {"-", false, false, 0, 0},
        {"", false, false, 0, 0},
        {"NaN", false, false, 0, 0},
        {"\"1\"", false, false, 0, 0},
        {"true", false, false, 0, 0},
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct mr_json j;
        int64_t s = -77;
        uint64_t u = 77;
        mr_json_init(&j, mr_str_c(rows[i].text), NULL, 0, NULL);
        CHECK_ROW((mr_json_i64(&j, &s) == MR_OK) == rows[i].i_ok, i, "i64 %s", rows[i].text);
        CHECK_ROW(s == (rows[i].i_ok ? rows[i].i : -77), i, "i64 %s", rows[i].text);
        mr_json_init(&j, mr_str_c(rows[i].text), NULL, 0, NULL);
        CHECK_ROW((mr_json_u64(&j, &u) == MR_OK) == rows[i].u_ok, i, "u64 %s", rows[i].text);
        CHECK_ROW(u == (rows[i].u_ok ? rows[i].u : 77), i, "u64 %s", rows[i].text);
    }
    struct mr_err err;
    struct mr_json j;
    mr_json_init(&j, MR_STR("0099999999999999999999999"), NULL, 0, &err);
    mr_json_u64(&j, &(uint64_t){0});
    assert_non_null(strstr(err.msg, "leading zero")); /* found before the rest is read */
}

static void number_text(void **state)
{
    (void)state;
    struct mr_json j;
    mr_str text;
    mr_json_init(&j, MR_STR(" -12.5e+7 , "), NULL, 0, NULL);
    assert_int_equal(mr_json_number_text(&j, &text), MR_OK);
    assert_true(mr_str_eq_c(text, "-12.5e+7"));
    mr_json_init(&j, MR_STR("-Infinity]"), NULL, 0, NULL);
    assert_int_equal(mr_json_number_text(&j, &text), MR_OK);
    assert_true(mr_str_eq_c(text, "-Infinity"));
    mr_json_init(&j, MR_STR("-x"), NULL, 0, NULL);
    assert_int_equal(mr_json_number_text(&j, &text), MR_E_INVALID);
}

static void peek_types(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        enum mr_json_type type;
    } rows[] = {
        {" {", MR_JSON_OBJECT},       {"[", MR_JSON_ARRAY},  {"\"", MR_JSON_STRING},
        {"-1", MR_JSON_NUMBER},       {"0", MR_JSON_NUMBER}, {"NaN", MR_JSON_NUMBER},
        {"Infinity", MR_JSON_NUMBER}, {"t", MR_JSON_BOOL},   {"f", MR_JSON_BOOL},
        {"n", MR_JSON_NULL},          {"", MR_JSON_END},     {"}", MR_JSON_END},
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct mr_json j;
        mr_json_init(&j, mr_str_c(rows[i].text), NULL, 0, NULL);
        CHECK_ROW(mr_json_peek(&j) == rows[i].type, i, "%s", rows[i].text);
    }
}

static void walks_an_object(void **state)
{
    (void)state;
    struct mr_arena arena;
    struct mr_json j;
    mr_str key;
    bool first = true;
    bool flag = false;
    int64_t sum = 0;
    mr_arena_init(&arena, 256, 4096);
    mr_json_init(&j, MR_STR("{\"n\":[1,2,3],\"\\u0062\":true,\"x\":null}"), &arena, 0, NULL);
    assert_int_equal(mr_json_enter_object(&j), MR_OK);
    while (mr_json_next_key(&j, &first, &key)) {
        if (mr_str_eq_c(key, "n")) {
            bool first_item = true;
            mr_json_enter_array(&j);
            while (mr_json_next_item(&j, &first_item)) {
                int64_t v = 0;
                mr_json_i64(&j, &v);
                sum = sum * 10 + v;
            }
        } else if (mr_str_eq_c(key, "b")) {
            mr_json_bool(&j, &flag);
        } else {
            mr_json_null(&j);
        }
    }
    assert_int_equal(mr_json_finish(&j), MR_OK);
    assert_int_equal(sum, 123);
    assert_true(flag);
    mr_arena_fini(&arena);
}

static void errors_stick(void **state)
{
    (void)state;
    struct mr_err err = {0};
    struct mr_json j;
    mr_str s;
    bool b, first = true;
    int64_t n;
    double d;
    mr_json_init(&j, MR_STR("[true, 1]"), NULL, 0, &err);
    mr_json_enter_array(&j);
    assert_true(mr_json_next_item(&j, &first));
    assert_int_equal(mr_json_i64(&j, &n), MR_E_INVALID);
    assert_string_equal(err.msg, "expected an integer, found a bool at offset 1");
    assert_int_equal(mr_json_bool(&j, &b), MR_E_INVALID);
    assert_int_equal(mr_json_double(&j, &d), MR_E_INVALID);
    assert_int_equal(mr_json_string(&j, &s), MR_E_INVALID);
    assert_int_equal(mr_json_null(&j), MR_E_INVALID);
    assert_int_equal(mr_json_skip(&j, &s), MR_E_INVALID);
    assert_int_equal(mr_json_number_text(&j, &s), MR_E_INVALID);
    assert_int_equal(mr_json_finish(&j), MR_E_INVALID);
    assert_int_equal(mr_json_enter_object(&j), MR_E_INVALID);
    assert_false(mr_json_next_item(&j, &first));
    assert_false(mr_json_next_key(&j, &first, &s));
    assert_int_equal(mr_json_peek(&j), MR_JSON_END);
    assert_int_equal(mr_json_fail(&j, MR_E_NOT_FOUND, "later"), MR_E_INVALID);
    assert_string_equal(err.msg, "expected an integer, found a bool at offset 1");
}

static void callers_can_fail(void **state)
{
    (void)state;
    struct mr_err err = {0};
    struct mr_json j;
    mr_json_init(&j, MR_STR("  1"), NULL, 0, &err);
    mr_json_peek(&j);
    assert_int_equal(mr_json_fail(&j, MR_E_NOT_FOUND, "no '%s'", "x"), MR_E_NOT_FOUND);
    assert_string_equal(err.msg, "no 'x' at offset 2");
    assert_int_equal(mr_json_skip(&j, NULL), MR_E_NOT_FOUND);
}

static void leaves(void **state)
{
    (void)state;
    struct mr_json j;
    struct mr_buf got;
    mr_str s;
    int level = 0;
    mr_buf_init(&got, 0);
    mr_json_init(&j, MR_STR("[[\"a\",\"b\"],[],[[\"c\"]],\"d\"] "), NULL, 0, NULL);
    while (mr_json_next_leaf(&j, &level) && mr_json_string(&j, &s) == MR_OK) {
        mr_buf_str(&got, s);
    }
    assert_int_equal(mr_json_finish(&j), MR_OK);
    assert_true(mr_str_eq_c(mr_buf_view(&got), "abcd"));
    mr_buf_fini(&got);

    level = 0;
    mr_json_init(&j, MR_STR("\"a\""), NULL, 0, NULL);
    assert_false(mr_json_next_leaf(&j, &level));
    assert_int_equal(j.status, MR_E_INVALID);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(valid_texts),
        cmocka_unit_test(invalid_texts),
        cmocka_unit_test(skip_gives_exact_text),
        cmocka_unit_test(depth_is_limited),
        cmocka_unit_test(strings),
        cmocka_unit_test(string_scan_blocks),
        cmocka_unit_test(arena_full),
        cmocka_unit_test(integers),
        cmocka_unit_test(number_text),
        cmocka_unit_test(peek_types),
        cmocka_unit_test(walks_an_object),
        cmocka_unit_test(errors_stick),
        cmocka_unit_test(callers_can_fail),
        cmocka_unit_test(leaves),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
