/* The JSON writer: escapes, replacement of what is not UTF-8, and that the reader gets back the
 * same. */
#include "codec_test.h"

#include <math.h>

#include "base/rng.h"
#include "codec/json.h"

static void strings(void **state)
{
    (void)state;
    static const struct {
        mr_str in, want;
    } rows[] = {
        {MR_STR_INIT(""), MR_STR_INIT("\"\"")},
        {{NULL, 0}, MR_STR_INIT("\"\"")},
        {MR_STR_INIT("a/b"), MR_STR_INIT("\"a/b\"")},
        {MR_STR_INIT("\"\\\b\f\n\r\t"), MR_STR_INIT("\"\\\"\\\\\\b\\f\\n\\r\\t\"")},
        {MR_STR_INIT("\0\x1f\x7f"), MR_STR_INIT("\"\\u0000\\u001f\x7f\"")},
        {MR_STR_INIT("\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80"),
         MR_STR_INIT("\"\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80\"")},
        {MR_STR_INIT("a\x80z"), MR_STR_INIT("\"a\xef\xbf\xbdz\"")},
        {MR_STR_INIT("\xc3"), MR_STR_INIT("\"\xef\xbf\xbd\"")},
        {MR_STR_INIT("\xed\xa0\x80"), MR_STR_INIT("\"\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\"")},
        {MR_STR_INIT("0123456789abcdef\n0123456789abcdef\x01"),
         MR_STR_INIT("\"0123456789abcdef\\n0123456789abcdef\\u0001\"")},
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct mr_buf b;
        mr_buf_init(&b, 0);
        mr_json_put_string(&b, rows[i].in);
        CHECK_ROW(mr_str_eq(mr_buf_view(&b), rows[i].want), i, "%.*s", MR_STR_ARG(mr_buf_view(&b)));
        mr_buf_fini(&b);
    }
}

/* Each byte at each place, for any number of bytes that is scanned at once. */
static void each_byte_at_each_place(void **state)
{
    (void)state;
    struct mr_buf got, want;
    mr_buf_init(&got, 0);
    mr_buf_init(&want, 0);
    for (size_t len = 1; len <= 36; len++) {
        for (unsigned c = 0; c < 256; c++) {
            size_t at = c * 7 % len;
            char text[36];
            memset(text, 'a', len);
            text[at] = (char)c;
            mr_buf_reset(&got);
            mr_buf_reset(&want);
            mr_json_put_string(&got, mr_str_n(text, len));
            mr_buf_char(&want, '"');
            for (size_t i = 0; i < len; i++) {
                mr_json_put_part(&want, text + i, text + i + 1);
            }
            mr_buf_char(&want, '"');
            CHECK_ROW(mr_str_eq(mr_buf_view(&got), mr_buf_view(&want)), c, "%zu of %zu: %.*s", at,
                      len, MR_STR_ARG(mr_buf_view(&got)));
        }
    }
    mr_buf_fini(&got);
    mr_buf_fini(&want);
}

/* Any bytes give valid JSON; valid UTF-8 comes back unchanged. */
static void random_bytes(void **state)
{
    (void)state;
    struct mr_arena arena;
    struct mr_rng rng;
    struct mr_buf b;
    mr_arena_init(&arena, 4096, 65536);
    mr_rng_seed(&rng, 5);
    mr_buf_init(&b, 0);
    for (int i = 0; i < 20000; i++) {
        char text[48];
        size_t len = mr_rng_u64(&rng) % sizeof text;
        uint64_t mask = i % 2 ? 0x7f : 0xff;
        for (size_t k = 0; k < len; k++) {
            text[k] = (char)(mr_rng_u64(&rng) & mask);
        }
        struct mr_json j;
        mr_str got;
        mr_buf_reset(&b);
        mr_arena_reset(&arena);
        mr_json_put_string(&b, mr_str_n(text, len));
        mr_json_init(&j, mr_buf_view(&b), &arena, 0, NULL);
        assert_int_equal(mr_json_string(&j, &got), MR_OK);
        assert_int_equal(mr_json_finish(&j), MR_OK);
        if (mr_utf8_valid(mr_str_n(text, len))) {
            assert_true(mr_str_eq(got, mr_str_n(text, len)));
        }
    }
    mr_buf_fini(&b);
    mr_arena_fini(&arena);
}

static void floats(void **state)
{
    (void)state;
    struct mr_buf b;
    mr_buf_init(&b, 0);
    mr_json_put_float(&b, 0.1f);
    mr_buf_char(&b, ',');
    mr_json_put_double(&b, 0.1);
    mr_buf_char(&b, ',');
    mr_json_put_double(&b, (double)0.1f);
    mr_buf_char(&b, ',');
    mr_json_put_float(&b, NAN);
    mr_buf_char(&b, ',');
    mr_json_put_double(&b, -INFINITY);
    assert_string_equal(mr_buf_cstr(&b), "0.1,0.1,0.10000000149011612,NaN,-Infinity");
    mr_buf_fini(&b);
}

static void full_buffer(void **state)
{
    (void)state;
    struct mr_buf b;
    mr_buf_init(&b, 40);
    for (int i = 0; i < 10; i++) {
        mr_json_put_string(&b, MR_STR("\x01 more than fits \xff"));
        mr_json_put_double(&b, 1.5);
    }
    assert_true(b.failed);
    assert_true(b.len <= 40);
    mr_buf_fini(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(strings),      cmocka_unit_test(each_byte_at_each_place),
        cmocka_unit_test(random_bytes), cmocka_unit_test(floats),
        cmocka_unit_test(full_buffer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
