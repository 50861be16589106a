/* Float text both ways against the C library, over random bit patterns and the hard cases. */
#include "codec_test.h"

#include <float.h>
#include <math.h>

#include "base/rng.h"
#include "codec/json.h"

static uint64_t bits64(double v)
{
    uint64_t u;
    memcpy(&u, &v, 8);
    return u;
}

static uint32_t bits32(float v)
{
    uint32_t u;
    memcpy(&u, &v, 4);
    return u;
}

/* The JSON reader and the plain one give what strtod and strtof give, bit for bit. */
static void check_text(const char *text)
{
    mr_str s = mr_str_c(text);
    struct mr_json j;
    double d = 1;
    float f = 1;
    double want_d = strtod(text, NULL);
    float want_f = strtof(text, NULL);
    mr_json_init(&j, s, NULL, 0, NULL);
    if (mr_json_double(&j, &d) != MR_OK || bits64(d) != bits64(want_d) ||
        mr_json_finish(&j) != MR_OK) {
        fail_msg("json double %s: %.17g, not %.17g", text, d, want_d);
    }
    mr_json_init(&j, s, NULL, 0, NULL);
    if (mr_json_float(&j, &f) != MR_OK || bits32(f) != bits32(want_f)) {
        fail_msg("json float %s: %.9g, not %.9g", text, (double)f, (double)want_f);
    }
    if (!mr_text_double(s, &d) || bits64(d) != bits64(want_d)) {
        fail_msg("text double %s: %.17g, not %.17g", text, d, want_d);
    }
    if (!mr_text_float(s, &f) || bits32(f) != bits32(want_f)) {
        fail_msg("text float %s: %.9g, not %.9g", text, (double)f, (double)want_f);
    }
}

static void check_17(double v)
{
    char want[64], text[64];
    const int len = snprintf(want, sizeof want, "%.17g", v);

    assert_int_equal(mr_double_text_17(v, text), len);
    assert_memory_equal(text, want, len);
}

static void random_doubles(void **state)
{
    static const double special[] = {0,    -0.0, 1,   0.1,  1e16,     1e17,
                                     1e-4, 1e-5, NAN, -NAN, INFINITY, -INFINITY};
    (void)state;
    struct mr_rng rng;
    mr_rng_seed(&rng, 1);
    for (int i = 0; i < 100000; i++) {
        uint64_t u = mr_rng_u64(&rng);
        double v;
        char text[64];
        memcpy(&v, &u, 8);
        if (!isfinite(v)) {
            continue;
        }
        size_t len = mr_double_text(v, text);
        assert_true(len > 0 && len < 32);
        text[len] = 0;
        assert_true(bits64(strtod(text, NULL)) == u);
        check_text(text);
        snprintf(text, sizeof text, "%.17g", v);
        check_text(text);
        check_17(v);
    }
    for (size_t i = 0; i < COUNT_OF(special); i++) {
        check_17(special[i]);
    }
}

static void random_floats(void **state)
{
    (void)state;
    struct mr_rng rng;
    mr_rng_seed(&rng, 2);
    for (int i = 0; i < 100000; i++) {
        uint32_t u = (uint32_t)mr_rng_u64(&rng);
        float v;
        char text[64];
        memcpy(&v, &u, 4);
        if (!isfinite(v)) {
            continue;
        }
        size_t len = mr_float_text(v, text);
        assert_true(len > 0 && len < 32);
        text[len] = 0;
        assert_true(bits32(strtof(text, NULL)) == u);
        check_text(text);
        snprintf(text, sizeof text, "%.9g", (double)v);
        check_text(text);
    }
}

/* Numbers as people and programs write them, where the fast paths are taken. */
static void random_decimals(void **state)
{
    (void)state;
    static const int digits[] = {1, 3, 6, 10, 16};
    struct mr_rng rng;
    mr_rng_seed(&rng, 3);
    for (int i = 0; i < 100000; i++) {
        char text[400];
        double scale = (double[]){1, 100, 1e6, 1e12, 1e-5, 1e22}[i % 6];
        double v = (mr_rng_unit(&rng) - 0.5) * scale;
        snprintf(text, sizeof text, "%.*f", digits[(size_t)i % COUNT_OF(digits)], v);
        check_text(text);
        snprintf(text, sizeof text, "%.*e", i % 25, v);
        check_text(text);
    }
}

/* Just at, below and above the middle between two floats, which the float fast path must leave
 * alone. */
static void float_midpoints(void **state)
{
    (void)state;
    struct mr_rng rng;
    mr_rng_seed(&rng, 4);
    for (int i = 0; i < 20000; i++) {
        /* Exponents around 1, so that the exact middle has few digits. */
        uint32_t u = (uint32_t)(mr_rng_u64(&rng) % (40u << 23)) + (110u << 23);
        float low;
        memcpy(&low, &u, 4);
        double middle = ((double)low + (double)nextafterf(low, INFINITY)) / 2;
        char text[400];
        snprintf(text, sizeof text, "%.*g", (int)(12 + i % 30), middle);
        check_text(text);
        snprintf(text, sizeof text, "%.60g", middle);
        check_text(text);
        /* A digit far after the point decides the rounding. */
        if (!strchr(text, 'e') && strchr(text, '.')) {
            strcat(text, "00000000000000000000000000000001");
            check_text(text);
        }
    }
}

static void edges(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "0",
        "-0",
        "0.0",
        "-0e5",
        "0e999999999999",
        "1e22",
        "1e23",
        "-1e-22",
        "1e-23",
        "9007199254740991",
        "9007199254740992",
        "9007199254740993",
        "9007199254740993e-3",
        "18446744073709551615",
        "18446744073709551616",
        "99999999999999999999e-20",
        "1.7976931348623157e308",
        "1.7976931348623158e308",
        "1.7976931348623159e308",
        "1e309",
        "-1e309",
        "1e400",
        "-1e400",
        "1e99999999999999999999",
        "-1e99999999999999999999",
        "1e-99999999999999999999",
        "4.9e-324",
        "2.4e-324",
        "2.5e-324",
        "2.2250738585072011e-308",
        "2.2250738585072014e-308",
        "-1e-400",
        "3.4028234663852886e38",
        "3.4028235677973366e38",
        "3.4028235677973365e38",
        "3.5e38",
        "1e39",
        "1.401298464324817e-45",
        "0.7e-45",
        "7.006492321624085e-46",
        "7.006492321624086e-46",
        "1e-46",
        "1.1754943508222875e-38",
        "1.1754942e-38",
        "16777217",
        "16777217.0000000001",
        "16777219",
        "0.000000000000000000000000000000000000001",
        "0.00000000000000000000000000000123456789012345678",
        "123456789012345678901234567890",
        "12345678901234567890.12345678901234567890",
        "10000000000000000000000000000000000000000000000000000e-50",
        "0.1",
        "0.30000000000000004",
        "8.5070591730234615865843651857942052864e37",
        "1.00000005960464477539062500",
        "1.0000000596046447753906249999999999999999",
        "1.0000000596046447753906250000000000000001",
    };
    for (size_t i = 0; i < COUNT_OF(texts); i++) {
        check_text(texts[i]);
    }
}

static void very_long_numbers(void **state)
{
    (void)state;
    char *text = malloc(3001);
    assert_non_null(text);
    memset(text, '0', 3000);
    text[3000] = 0;
    text[0] = '1';
    check_text(text); /* 1e2999: infinity */
    memcpy(text + 2994, "e-2993", 6);
    check_text(text); /* 1 */
    memcpy(text, "0.", 2);
    memcpy(text + 2994, "1e2992", 6);
    check_text(text); /* 0.1 and the like */
    memset(text, '9', 3000);
    text[1] = '.';
    check_text(text);
    free(text);
}

static void text_words(void **state)
{
    (void)state;
    double d;
    float f;
    assert_true(mr_text_double(MR_STR("NaN"), &d) && isnan(d));
    assert_true(mr_text_double(MR_STR("-nan"), &d) && isnan(d));
    assert_true(mr_text_double(MR_STR("Inf"), &d) && d == INFINITY);
    assert_true(mr_text_float(MR_STR("-INFINITY"), &f) && f == -INFINITY);
    assert_true(mr_text_float(MR_STR(".5"), &f) && f == 0.5f);
    assert_true(mr_text_float(MR_STR("5."), &f) && f == 5);
    static const mr_str bad[] = {
        MR_STR_INIT(""),        MR_STR_INIT("-"),     MR_STR_INIT("."),     MR_STR_INIT("-."),
        MR_STR_INIT("+1"),      MR_STR_INIT(" 1"),    MR_STR_INIT("1 "),    MR_STR_INIT("1e"),
        MR_STR_INIT("nan(1)"),  MR_STR_INIT("0x1p3"), MR_STR_INIT("--1"),   MR_STR_INIT("1,5"),
        MR_STR_INIT("infinit"), MR_STR_INIT("1\0"),   MR_STR_INIT("-inf "),
    };
    for (size_t i = 0; i < COUNT_OF(bad); i++) {
        CHECK_ROW(!mr_text_double(bad[i], &d) && !mr_text_float(bad[i], &f), i, "%s", bad[i].ptr);
    }
}

static void shortest(void **state)
{
    (void)state;
    static const struct {
        double v;
        const char *d, *f;
    } rows[] = {
        {0, "0", "0"},
        {-0.0, "-0", "-0"},
        {1, "1", "1"},
        {0.1, "0.1", "0.1"},
        {-2.5, "-2.5", "-2.5"},
        {INFINITY, "Infinity", "Infinity"},
        {-INFINITY, "-Infinity", "-Infinity"},
        {NAN, "NaN", "NaN"},
        {DBL_MIN, "2.2250738585072014e-308", "0"},
        {1e100, "1e+100", "Infinity"},
        {1.0 / 3, "0.3333333333333333", "0.33333334"},
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        char text[32];
        size_t len = mr_double_text(rows[i].v, text);
        CHECK_ROW(mr_str_eq_c(mr_str_n(text, len), rows[i].d), i, "%.*s", (int)len, text);
        len = mr_float_text((float)rows[i].v, text);
        CHECK_ROW(mr_str_eq_c(mr_str_n(text, len), rows[i].f), i, "%.*s", (int)len, text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_doubles),  cmocka_unit_test(random_floats),
        cmocka_unit_test(random_decimals), cmocka_unit_test(float_midpoints),
        cmocka_unit_test(edges),           cmocka_unit_test(very_long_numbers),
        cmocka_unit_test(text_words),      cmocka_unit_test(shortest),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
