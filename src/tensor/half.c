/* 16-bit floating point in integer arithmetic: the result does not depend on the compiler's or the
 * processor's support, nor on the rounding mode. */
#include <math.h>
#include <string.h>

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

/* v / 2^shift, to nearest, ties to even; shift 1..31. */
static uint32_t shift_round(uint32_t v, unsigned shift)
{
    uint32_t half = UINT32_C(1) << (shift - 1);
    uint32_t is_odd = (v >> shift) & 1;

    return (v + half - 1 + is_odd) >> shift;
}

/* The float towards zero, with its last bit set if it is another value (round to odd): what lies beside a tie between
 * two 16-bit numbers stays there. */
static float narrow(double v)
{
    const float f = (float)v;
    uint32_t bits = bits_of(f);

    if (isnan(v) || (double)f == v) {
        return f;
    }
    bits -= fabs((double)f) > fabs(v);
    return float_of(bits | 1);
}

uint16_t mr_fp16_from_float(float f)
{
    uint32_t bits = bits_of(f);
    uint16_t sign = (uint16_t)((bits >> 16) & 0x8000);
    uint32_t magnitude = bits & 0x7FFFFFFF;

    if (magnitude > 0x7F800000) {
        /* NaN: quiet, with the upper bits of its payload. */
        return (uint16_t)(sign | 0x7E00 | ((magnitude >> 13) & 0x1FF));
    }
    if (magnitude >= 0x47800000) {
        /* 65536 and above. Values between the largest half and that are rounded below and carry into infinity. */
        return sign | 0x7C00;
    }
    if (magnitude >= 0x38800000) {
        /* 2^-14 and above, a normal half: exponent bias 127 becomes 15. */
        return (uint16_t)(sign | shift_round(magnitude - (UINT32_C(112) << 23), 13));
    }
    if (magnitude < 0x33000000) {
        /* Below 2^-25, half of the smallest subnormal. */
        return sign;
    }
    /* Subnormal: the significand with its hidden bit, in units of 2^-24. */
    uint32_t significand = (magnitude & 0x7FFFFF) | 0x800000;
    return (uint16_t)(sign | shift_round(significand, 126 - (magnitude >> 23)));
}

uint16_t mr_fp16_from_double(double v)
{
    return mr_fp16_from_float(narrow(v));
}

float mr_fp16_to_float(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000) << 16;
    uint32_t exponent = (h >> 10) & 0x1F;
    uint32_t fraction = h & 0x3FF;

    if (exponent == 0x1F) {
        return float_of(sign | 0x7F800000 | fraction << 13);
    }
    if (exponent != 0) {
        return float_of(sign | (exponent + 112) << 23 | fraction << 13);
    }
    /* Zero or subnormal: exact in a float, by multiplication. */
    float f = (float)fraction * 0x1p-24f;
    return sign ? -f : f;
}

uint16_t mr_bf16_from_float(float f)
{
    uint32_t bits = bits_of(f);

    if ((bits & 0x7FFFFFFF) > 0x7F800000) {
        /* Rounding could carry a NaN into infinity; cut it and make it quiet. */
        return (uint16_t)(bits >> 16 | 0x40);
    }
    return (uint16_t)((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16);
}

uint16_t mr_bf16_from_double(double v)
{
    return mr_bf16_from_float(narrow(v));
}

float mr_bf16_to_float(uint16_t h)
{
    return float_of((uint32_t)h << 16);
}
