/* Half and bfloat16: every 16-bit value there and back, floats around every rounding edge, and
 * where the compiler has _Float16, its opinion on all of these and on many random floats. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "base/rng.h"
#include "tensor/tensor.h"

static uint32_t bits_of(float f)
{
    uint32_t bits;

    memcpy(&bits, &f, sizeof bits);
    return bits;
}

static float float_of(uint32_t bits)
{
    float f;

    memcpy(&f, &bits, sizeof f);
    return f;
}

static void half_round_trip(void **state)
{
    (void)state;
    for (uint32_t h = 0; h < 0x10000; h++) {
        float f = mr_fp16_to_float((uint16_t)h);
        uint16_t back = mr_fp16_from_float(f);
        if ((h & 0x7FFF) > 0x7C00) {
            assert_true(isnan(f));
            /* A NaN comes back quiet. */
            assert_int_equal(back, h | 0x200);
        } else {
            assert_int_equal(back, h);
        }
    }
}

static void bfloat_round_trip(void **state)
{
    (void)state;
    for (uint32_t h = 0; h < 0x10000; h++) {
        float f = mr_bf16_to_float((uint16_t)h);
        uint16_t back = mr_bf16_from_float(f);
        assert_int_equal(bits_of(f), h << 16);
        assert_int_equal(back, (h & 0x7FFF) > 0x7F80 ? (h | 0x40) : h);
    }
}

static void half_known_values(void **state)
{
    static const struct {
        float f;
        uint16_t h;
    } rows[] = {
        {0.0f, 0x0000},
        {-0.0f, 0x8000},
        {1.0f, 0x3C00},
        {-2.0f, 0xC000},
        {65504.0f, 0x7BFF},
        {65519.996f, 0x7BFF},
        {65520.0f, 0x7C00}, /* the tie above the largest goes to infinity */
        {1e30f, 0x7C00},
        {-INFINITY, 0xFC00},
        {0x1p-14f, 0x0400},
        {0x1p-24f, 0x0001},
        {0x1p-25f, 0x0000}, /* ties to even: zero */
        {0x1.000002p-25f, 0x0001},
        {0x1.8p-24f, 0x0002},
        {0x1p-149f, 0x0000},
        {0x1.ffcp-15f, 0x0400}, /* rounds up from the largest subnormal */
        {0x1.002p0f, 0x3C00},   /* tie to even, down */
        {0x1.006p0f, 0x3C02},   /* tie to even, up */
        {3.14159265f, 0x4248},
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        uint16_t h = mr_fp16_from_float(rows[i].f);
        if (h != rows[i].h) {
            fail_msg("%a: 0x%04x, expected 0x%04x", (double)rows[i].f, h, rows[i].h);
        }
    }
    assert_true(isnan(mr_fp16_to_float(mr_fp16_from_float(NAN))));
    /* A NaN whose payload lies in the lost bits stays one. */
    assert_true(isnan(mr_fp16_to_float(mr_fp16_from_float(float_of(0x7F800001)))));
    assert_true(isnan(mr_bf16_to_float(mr_bf16_from_float(float_of(0xFF800001)))));
    assert_true(isnan(mr_bf16_to_float(mr_bf16_from_float(float_of(0x7FFFFFFF)))));
}

static void bfloat_known_values(void **state)
{
    (void)state;
    assert_int_equal(mr_bf16_from_float(1.0f), 0x3F80);
    assert_int_equal(mr_bf16_from_float(float_of(0x3F808000)), 0x3F80);
    assert_int_equal(mr_bf16_from_float(float_of(0x3F818000)), 0x3F82);
    assert_int_equal(mr_bf16_from_float(float_of(0x3F808001)), 0x3F81);
    assert_int_equal(mr_bf16_from_float(float_of(0x7F7FFFFF)), 0x7F80);
    assert_int_equal(mr_bf16_from_float(-INFINITY), 0xFF80);
    assert_int_equal(mr_bf16_from_float(float_of(1)), 0);
}

/* The nearest value, ties to the even one, found without any arithmetic on bits: between two
 * neighbours the exact midpoint decides. */
static void bfloat_rounds_to_nearest(void **state)
{
    struct mr_rng rng;

    (void)state;
    mr_rng_seed(&rng, 7);
    for (int i = 0; i < 200000; i++) {
        float f = float_of((uint32_t)mr_rng_u64(&rng));
        if (!isfinite(f) || fabsf(f) > 3e38f) {
            continue;
        }
        uint16_t got = mr_bf16_from_float(f);
        uint16_t low = (uint16_t)(bits_of(f) >> 16);
        double a = (double)mr_bf16_to_float(low);
        double b = (double)mr_bf16_to_float((uint16_t)(low + 1));
        double to_a = fabs((double)f - a);
        double to_b = fabs((double)f - b);
        uint16_t even = low & 1 ? (uint16_t)(low + 1) : low;
        uint16_t want = to_a < to_b ? low : to_b < to_a ? (uint16_t)(low + 1) : even;
        assert_int_equal(got, want);
    }
}

/* A double beside a tie between two 16-bit numbers, nearer to it than any float. */
static void doubles_are_rounded_once(void **state)
{
    static const struct {
        double v;
        uint16_t half;
        uint16_t brain;
    } rows[] = {
        {1, 0x3C00, 0x3F80},
        {0x1.002p0, 0x3C00, 0x3F80}, /* a tie of halves */
        {0x1.0020000001p0, 0x3C01, 0x3F80},
        {-0x1.0060000001p0, 0xBC02, 0xBF80},
        {0x1.005fffffffp0, 0x3C01, 0x3F80},
        {0x1.0100000001p0, 0x3C04, 0x3F81}, /* a tie of bfloats */
        {0x1.02ffffffffp0, 0x3C0C, 0x3F81},
        {65519.99999999999, 0x7BFF, 0x4780},
        {0x1.0000000001p-25, 0x0001, 0x3300},
        {-0x1p-25, 0x8000, 0xB300},
        {0x1.fefffffffffffp127, 0x7C00, 0x7F7F},
        {0x1.ffp127, 0x7C00, 0x7F80},
        {-1e300, 0xFC00, 0xFF80},
        {0x1.0000000001p-134, 0x0000, 0x0001},
        {-1e-300, 0x8000, 0x8000},
        {-INFINITY, 0xFC00, 0xFF80},
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const uint16_t half = mr_fp16_from_double(rows[i].v);
        const uint16_t brain = mr_bf16_from_double(rows[i].v);
        if (half != rows[i].half || brain != rows[i].brain) {
            fail_msg("%a: 0x%04x and 0x%04x, expected 0x%04x and 0x%04x", rows[i].v, half, brain,
                     rows[i].half, rows[i].brain);
        }
    }
    assert_true(isnan(mr_fp16_to_float(mr_fp16_from_double(NAN))));
    assert_true(isnan(mr_bf16_to_float(mr_bf16_from_double(NAN))));
}

#ifdef __FLT16_MAX__
static uint16_t compilers_half(float f)
{
    _Float16 h = (_Float16)f;
    uint16_t bits;

    memcpy(&bits, &h, sizeof bits);
    return bits;
}

static void compare(float f)
{
    if (!isnan(f) && mr_fp16_from_float(f) != compilers_half(f)) {
        fail_msg("%a: 0x%04x, the compiler says 0x%04x", (double)f, mr_fp16_from_float(f),
                 compilers_half(f));
    }
}

static void half_as_the_compiler_does(void **state)
{
    struct mr_rng rng;

    (void)state;
    for (uint32_t h = 0; h < 0x10000; h++) {
        uint16_t bits = (uint16_t)h;
        _Float16 value;
        memcpy(&value, &bits, sizeof value);
        float f = mr_fp16_to_float(bits);
        assert_true(isnan(f) || bits_of(f) == bits_of((float)value));
        /* The value, the midpoint to its neighbour, and the floats beside both. */
        float next = mr_fp16_to_float((uint16_t)(h + 1));
        float middle = (f + next) / 2;
        compare(f);
        compare(nextafterf(f, INFINITY));
        compare(nextafterf(f, -INFINITY));
        compare(middle);
        compare(nextafterf(middle, INFINITY));
        compare(nextafterf(middle, -INFINITY));
    }
    mr_rng_seed(&rng, 3);
    for (int i = 0; i < 300000; i++) {
        uint32_t r = (uint32_t)mr_rng_u64(&rng);
        compare(float_of(r));
        /* Exponents that a half has. */
        compare(float_of((r & 0x80FFFFFF) | (UINT32_C(100) + (r >> 24) % 45) << 23));
    }
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(half_round_trip),           cmocka_unit_test(bfloat_round_trip),
        cmocka_unit_test(half_known_values),         cmocka_unit_test(bfloat_known_values),
        cmocka_unit_test(bfloat_rounds_to_nearest),  cmocka_unit_test(doubles_are_rounded_once),
#ifdef __FLT16_MAX__
        cmocka_unit_test(half_as_the_compiler_does),
#endif
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
