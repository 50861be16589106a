/* Reading one JSON number, inline for the bulk reader. Private.
 *
 * A number is scanned once into a 64-bit mantissa and a power of ten. If arithmetic on these is provably correctly
 * rounded, it is used; otherwise std::from_chars parses the text in a second pass, which a few percent of real data
 * need.
 *
 * double (Clinger 1990): mantissa < 2^53 and power of ten |e| <= 22 are exact doubles, so one
 * multiplication or division rounds once.
 *
 * float: the same arithmetic in double for any 64-bit mantissa, even one cut after 19 digits, is at
 * most 3 units in the last place off (cut < 2^-59, conversion and operation 2^-53 each, relative).
 * Rounding that to float is right unless it lies within this error of the middle between two floats, which shows in
 * the low 29 bits. The range, 1e-22 .. 2e41, excludes float's denormals. */
#ifndef MR_CODEC_JSON_NUMBER_H
#define MR_CODEC_JSON_NUMBER_H

#include "json_scan.h"

#include <float.h>

#include "float_text.h"

/* The powers of ten that are exact doubles. */
#define JSON_EXACT_EXP10    22
#define JSON_EXACT_MANTISSA (UINT64_C(1) << 53)
/* Digits that always fit 64 bits. */
#define JSON_MANTISSA_DIGITS 19

/** A scanned number: (-1)^negative * mantissa * 10^exp10, exactly so unless `is_cut`. */
struct json_number {
    uint64_t mantissa;
    int32_t exp10;
    bool negative;
    bool is_cut; /* digits beyond the 19th were dropped */
    bool is_integer;
};

extern const double mr_json_exp10[JSON_EXACT_EXP10 + 1];

/** Mantissa and exponent of a number with more than 19 digits. [p, end): digits with at most one
 *  '.'. */
void mr_json_number_long(const char *p, const char *end, struct json_number *n);

/* Eight ASCII digits as one word, first digit in the lowest byte. */
static inline bool json_is_8_digits(uint64_t v)
{
    return ((v & UINT64_C(0xf0f0f0f0f0f0f0f0)) |
            (((v + UINT64_C(0x0606060606060606)) & UINT64_C(0xf0f0f0f0f0f0f0f0)) >> 4)) ==
           UINT64_C(0x3333333333333333);
}

static inline uint32_t json_8_digits(uint64_t v)
{
    v -= UINT64_C(0x3030303030303030);
    v = v * 10 + (v >> 8);
    v = ((v & UINT64_C(0x000000ff000000ff)) * UINT64_C(0x000f424000000064) +
         ((v >> 16) & UINT64_C(0x000000ff000000ff)) * UINT64_C(0x0000271000000001)) >>
        32;
    return (uint32_t)v;
}

/** Digits from p on, appended to *io_value (which may wrap: the caller counts digits). */
static inline const char *json_digits(const char *p, const char *end, uint64_t *io_value)
{
    uint64_t value = *io_value;
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    while (end - p >= 8) {
        uint64_t word;
        memcpy(&word, p, 8);
        if (!json_is_8_digits(word)) {
            break;
        }
        value = value * 100000000 + json_8_digits(word);
        p += 8;
    }
#endif
    while (p < end && json_is_digit(*p)) {
        value = value * 10 + (uint64_t)(*p - '0');
        p++;
    }
    *io_value = value;
    return p;
}

/** The exponent at p ('e' or 'E'), added to *io_exp10; NULL if it is malformed. Saturates. */
static inline const char *json_exponent(const char *p, const char *end, int32_t *io_exp10)
{
    p++;
    bool negative = p < end && *p == '-';
    if (p < end && (*p == '-' || *p == '+')) {
        p++;
    }
    if (p == end || !json_is_digit(*p)) {
        return NULL;
    }
    int32_t value = 0;
    for (; p < end && json_is_digit(*p); p++) {
        value = value < 100000 ? value * 10 + (*p - '0') : value;
    }
    *io_exp10 += negative ? -value : value;
    return p;
}

/* Limit on the length of a number, as its digits are read without a break. No double has more than eight hundred
 * significant digits. */
#define JSON_NUMBER_MOST ((ptrdiff_t)64 * 1024)

/** The number at p by JSON's grammar: its end, or NULL if there is none. */
static inline const char *json_number_scan(const char *p, const char *end, struct json_number *n)
{
    *n = (struct json_number){.is_integer = true};
    end = end - p > JSON_NUMBER_MOST ? p + JSON_NUMBER_MOST : end;
    if (p < end && *p == '-') {
        n->negative = true;
        p++;
    }
    const char *first = p;
    p = json_digits(p, end, &n->mantissa);
    int64_t count = p - first;
    if (count == 0 || (count > 1 && *first == '0')) {
        return NULL;
    }
    if (p < end && *p == '.') {
        n->is_integer = false;
        const char *fraction = ++p;
        p = json_digits(p, end, &n->mantissa);
        if (p == fraction) {
            return NULL;
        }
        count += p - fraction;
        /* For more digits mr_json_number_long sets it. */
        n->exp10 = count <= JSON_MANTISSA_DIGITS ? -(int32_t)(p - fraction) : 0;
    }
    if (__builtin_expect(count > JSON_MANTISSA_DIGITS, 0)) {
        mr_json_number_long(first, p, n);
    }
    if (p < end && (*p | 0x20) == 'e') {
        n->is_integer = false;
        p = json_exponent(p, end, &n->exp10);
    }
    return p;
}

/** Value of a scanned number by exact arithmetic; false if that is not possible. */
static inline bool json_number_fast_double(const struct json_number *n, double *out)
{
#if FLT_EVAL_METHOD == 0
    if (n->mantissa < JSON_EXACT_MANTISSA && !n->is_cut && n->exp10 >= -JSON_EXACT_EXP10 &&
        n->exp10 <= JSON_EXACT_EXP10) {
        double m = (double)n->mantissa;
        double v = n->exp10 < 0 ? m / mr_json_exp10[-n->exp10] : m * mr_json_exp10[n->exp10];
        *out = n->negative ? -v : v;
        return true;
    }
#else
    (void)n;
    (void)out;
#endif
    return false;
}

static inline bool json_number_fast_float(const struct json_number *n, float *out)
{
#if FLT_EVAL_METHOD == 0
    if (n->exp10 < -JSON_EXACT_EXP10 || n->exp10 > JSON_EXACT_EXP10) {
        return false;
    }
    double m = (double)n->mantissa;
    double v = n->exp10 < 0 ? m / mr_json_exp10[-n->exp10] : m * mr_json_exp10[n->exp10];
    uint64_t bits;
    memcpy(&bits, &v, sizeof bits);
    const uint32_t middle = UINT32_C(1) << 28;
    uint32_t low = (uint32_t)bits & (2 * middle - 1);
    if (low - (middle - 4) <= 8) {
        return false;
    }
    *out = (float)(n->negative ? -v : v);
    return true;
#else
    (void)n;
    (void)out;
    return false;
#endif
}

/** Reads a float of any form. Returns the end of its text, or NULL when there is no number at p. */
static inline const char *json_read_double(const char *p, const char *end, double *out)
{
    struct json_number n;
    const char *stop = json_number_scan(p, end, &n);
    if (__builtin_expect(!stop, 0)) {
        size_t len = mr_json_special_len(p, end, out);
        return len ? p + len : NULL;
    }
    if (json_number_fast_double(&n, out) || mr_codec_double_get(p, stop, out)) {
        return stop;
    }
    return NULL;
}

static inline const char *json_read_float(const char *p, const char *end, float *out)
{
    struct json_number n;
    const char *stop = json_number_scan(p, end, &n);
    if (__builtin_expect(!stop, 0)) {
        double special;
        size_t len = mr_json_special_len(p, end, &special);
        *out = len ? (float)special : *out;
        return len ? p + len : NULL;
    }
    if (json_number_fast_float(&n, out) || mr_codec_float_get(p, stop, out)) {
        return stop;
    }
    return NULL;
}

/** The result of reading an integer. */
enum json_integer {
    JSON_INTEGER_OK,
    JSON_INTEGER_NONE,     /* no digit here */
    JSON_INTEGER_FRACTION, /* a number, but with a point or exponent */
    JSON_INTEGER_RANGE,    /* more than 64 bits */
    JSON_INTEGER_GRAMMAR   /* leading zero */
};

/** json_read_integer for the common case: up to 18 digits followed by a comma, bracket or blank, not at the very end
 *  of the text. False for any other, *io_p unchanged. Always inlined: for arrays of small numbers a call would double
 *  the cost. */
static inline __attribute__((always_inline)) bool json_read_plain_integer(const char **io_p,
                                                                          const char *end,
                                                                          bool *out_negative,
                                                                          uint64_t *out_magnitude)
{
    const char *p = *io_p;
    if (end - p < JSON_MANTISSA_DIGITS + 1) {
        return false;
    }
    bool negative = *p == '-';
    const char *first = p + negative;
    uint64_t value = (uint64_t)((unsigned char)*first - '0');
    uint64_t digit;
    if (value > 9) {
        return false;
    }
    for (p = first + 1; (digit = (uint64_t)((unsigned char)*p - '0')) < 10; p++) {
        if (p - first == JSON_MANTISSA_DIGITS - 1) {
            return false;
        }
        value = value * 10 + digit;
    }
    if ((*p != ',' && *p != ']' && *p != ' ') || (*first == '0' && p - first > 1)) {
        return false;
    }
    *io_p = p;
    *out_negative = negative;
    *out_magnitude = value;
    return true;
}

/** Sign and magnitude of the integer at *io_p; moves *io_p past it when OK. */
static inline enum json_integer json_read_integer(const char **io_p, const char *end,
                                                  bool *out_negative, uint64_t *out_magnitude)
{
    const char *p = *io_p;
    bool negative = p < end && *p == '-';
    p += negative;
    const char *first = p;
    uint64_t value = 0;
    if (end - p > 1 && *p == '0' && json_is_digit(p[1])) { /* zeros without end never overflow */
        return JSON_INTEGER_GRAMMAR;
    }
    for (; p < end && json_is_digit(*p); p++) {
        if (__builtin_mul_overflow(value, UINT64_C(10), &value) ||
            __builtin_add_overflow(value, (uint64_t)(*p - '0'), &value)) {
            return JSON_INTEGER_RANGE;
        }
    }
    if (p == first) {
        return JSON_INTEGER_NONE;
    }
    if (p < end && (*p == '.' || (*p | 0x20) == 'e')) {
        return JSON_INTEGER_FRACTION;
    }
    *io_p = p;
    *out_negative = negative;
    *out_magnitude = value;
    return JSON_INTEGER_OK;
}

/** Sets the error for one of the failures above. */
int mr_json_integer_fail(struct mr_json *j, enum json_integer outcome) __attribute__((cold));

#endif
