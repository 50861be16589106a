/* Base64: the vectors of RFC 4648, refusals, and round trips. */
#include "codec_test.h"

#include "base/rng.h"
#include "codec/json.h"

static void vectors(void **state)
{
    (void)state;
    static const struct {
        const char *plain, *coded;
    } rows[] = {
        {"", ""},
        {"f", "Zg=="},
        {"fo", "Zm8="},
        {"foo", "Zm9v"},
        {"foob", "Zm9vYg=="},
        {"fooba", "Zm9vYmE="},
        {"foobar", "Zm9vYmFy"},
        {"\xff\xfe\xfb", "//77"},
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct mr_buf b;
        uint8_t out[16];
        size_t len = 99;
        mr_buf_init(&b, 0);
        mr_base64_encode((mr_bytes){(const uint8_t *)rows[i].plain, strlen(rows[i].plain)}, &b);
        CHECK_ROW(mr_str_eq_c(mr_buf_view(&b), rows[i].coded), i, "%.*s",
                  MR_STR_ARG(mr_buf_view(&b)));
        CHECK_ROW(mr_base64_decode(mr_str_c(rows[i].coded), out, &len), i, "refused");
        CHECK_ROW(len == strlen(rows[i].plain) && memcmp(out, rows[i].plain, len) == 0, i,
                  "differs");
        mr_buf_fini(&b);
    }
}

static void refusals(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "Z",        "Zg",     "Zg=",  "Zg===", "====", "Z===", "Zh==", "Zm9=",
        "Zg==Zg==", "Zm9v\n", "Zm-v", "Zm_v",  "Z g=", "=m9v", "Zm=v", "Zm9v=",
    };
    for (size_t i = 0; i < COUNT_OF(texts); i++) {
        uint8_t out[16];
        size_t len = 99;
        CHECK_ROW(!mr_base64_decode(mr_str_c(texts[i]), out, &len), i, "%s", texts[i]);
        assert_int_equal(len, 99);
    }
}

static void round_trip(void **state)
{
    (void)state;
    struct mr_rng rng;
    struct mr_buf b;
    mr_rng_seed(&rng, 6);
    mr_buf_init(&b, 0);
    for (size_t len = 0; len < 300; len++) {
        uint8_t in[300];
        for (size_t i = 0; i < len; i++) {
            in[i] = (uint8_t)mr_rng_u64(&rng);
        }
        mr_buf_reset(&b);
        mr_base64_encode((mr_bytes){in, len}, &b);
        size_t room = b.len / 4 * 3;
        uint8_t *out = malloc(room ? room : 1);
        size_t got = 0;
        assert_non_null(out);
        assert_true(mr_base64_decode(mr_buf_view(&b), out, &got));
        assert_int_equal(got, len);
        assert_memory_equal(out, in, len);
        free(out);
    }
    mr_buf_fini(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(vectors),
        cmocka_unit_test(refusals),
        cmocka_unit_test(round_trip),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
