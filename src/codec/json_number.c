/* Numbers of the JSON reader, one at a time, and float text outside JSON. The arithmetic and its proof are in
 * json_number.h; here are its rare cases and the functions of json.h. */
#include "json_number.h"

#include <math.h>

const double mr_json_exp10[JSON_EXACT_EXP10 + 1] = {
    1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11,
    1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22,
};

void mr_json_number_long(const char *p, const char *end, struct json_number *n)
{
    /* Far beyond any float, and far below the limits of int32_t even with an exponent added. */
    const int32_t bound = 1000000;
    uint64_t value = 0;
    int32_t exp10 = 0;
    int digits = 0;
    bool in_fraction = false;
    for (; p < end; p++) {
        if (*p == '.') {
            in_fraction = true;
            continue;
        }
        if (digits < JSON_MANTISSA_DIGITS) {
            value = value * 10 + (uint64_t)(*p - '0');
            digits += value != 0;
            exp10 -= in_fraction && exp10 > -bound;
        } else {
            n->is_cut |= *p != '0';
            exp10 += !in_fraction && exp10 < bound;
        }
    }
    n->mantissa = value;
    n->exp10 = exp10;
}

size_t mr_json_number_len(const char *p, const char *end)
{
    struct json_number n;
    const char *stop = json_number_scan(p, end, &n);
    return stop ? (size_t)(stop - p) : 0;
}

size_t mr_json_special_len(const char *p, const char *end, double *out)
{
    static const struct {
        mr_str word;
        double value;
    } words[] = {
        {MR_STR_INIT("NaN"), NAN},
        {MR_STR_INIT("Infinity"), INFINITY},
        {MR_STR_INIT("-Infinity"), -INFINITY},
    };
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        if (mr_str_starts(mr_str_n(p, (size_t)(end - p)), words[i].word)) {
            *out = words[i].value;
            return words[i].word.len;
        }
    }
    return 0;
}

int mr_json_integer_fail(struct mr_json *j, enum json_integer outcome)
{
    switch (outcome) {
    case JSON_INTEGER_FRACTION:
        return mr_json_fail(j, MR_E_INVALID, "expected an integer, found a fraction or exponent");
    case JSON_INTEGER_RANGE: return mr_json_fail(j, MR_E_INVALID, "integer does not fit 64 bits");
    case JSON_INTEGER_GRAMMAR:
        return mr_json_fail(j, MR_E_INVALID, "malformed number (leading zero)");
    default: return mr_json_expected(j, "an integer");
    }
}

int mr_json_i64(struct mr_json *j, int64_t *out)
{
    if (!json_enter(j)) {
        return j->status;
    }
    bool negative;
    uint64_t magnitude;
    const char *p = j->pos;
    enum json_integer outcome = json_read_integer(&p, j->end, &negative, &magnitude);
    if (outcome != JSON_INTEGER_OK) {
        return mr_json_integer_fail(j, outcome);
    }
    if (magnitude > (uint64_t)INT64_MAX + negative) {
        return mr_json_fail(j, MR_E_INVALID, "integer does not fit a signed 64-bit integer");
    }
    j->pos = p;
    *out = (int64_t)(negative ? 0 - magnitude : magnitude);
    return MR_OK;
}

int mr_json_u64(struct mr_json *j, uint64_t *out)
{
    if (!json_enter(j)) {
        return j->status;
    }
    bool negative;
    uint64_t magnitude;
    const char *p = j->pos;
    enum json_integer outcome = json_read_integer(&p, j->end, &negative, &magnitude);
    if (outcome != JSON_INTEGER_OK) {
        return mr_json_integer_fail(j, outcome);
    }
    if (negative && magnitude > 0) {
        return mr_json_fail(j, MR_E_INVALID, "integer must not be negative");
    }
    j->pos = p;
    *out = magnitude;
    return MR_OK;
}

int mr_json_double(struct mr_json *j, double *out)
{
    if (!json_enter(j)) {
        return j->status;
    }
    const char *stop = json_read_double(j->pos, j->end, out);
    if (!stop) {
        return mr_json_expected(j, "a valid number");
    }
    j->pos = stop;
    return MR_OK;
}

int mr_json_float(struct mr_json *j, float *out)
{
    if (!json_enter(j)) {
        return j->status;
    }
    const char *stop = json_read_float(j->pos, j->end, out);
    if (!stop) {
        return mr_json_expected(j, "a valid number");
    }
    j->pos = stop;
    return MR_OK;
}

int mr_json_number_text(struct mr_json *j, mr_str *out)
{
    if (!json_enter(j)) {
        return j->status;
    }
    double ignored;
    size_t len = mr_json_number_len(j->pos, j->end);
    len = len ? len : mr_json_special_len(j->pos, j->end, &ignored);
    if (len == 0) {
        return mr_json_expected(j, "a valid number");
    }
    *out = mr_str_n(j->pos, len);
    j->pos += len;
    return MR_OK;
}

static size_t special_text(double v, char *out)
{
    const char *word = isnan(v) ? "NaN" : v > 0 ? "Infinity" : "-Infinity";
    size_t len = strlen(word);
    memcpy(out, word, len);
    return len;
}

size_t mr_double_text(double v, char out[32])
{
    return isfinite(v) ? mr_codec_double_put(v, out) : special_text(v, out);
}

size_t mr_double_text_17(double v, char out[32])
{
    return mr_codec_double_put_17(v, out);
}

size_t mr_float_text(float v, char out[32])
{
    return isfinite(v) ? mr_codec_float_put(v, out) : special_text((double)v, out);
}

/* nan, inf, infinity in any case, with an optional '-'. */
static bool special_parse(mr_str s, double *out)
{
    bool negative = s.len > 0 && s.ptr[0] == '-';
    mr_str word = mr_str_sub(s, negative, s.len);
    if (mr_str_ieq(word, MR_STR("nan"))) {
        *out = NAN;
    } else if (mr_str_ieq(word, MR_STR("inf")) || mr_str_ieq(word, MR_STR("infinity"))) {
        *out = negative ? -INFINITY : INFINITY;
    } else {
        return false;
    }
    return true;
}

/* from_chars accepts further words ("nan(...)"), so only numbers are passed to it. */
static bool looks_decimal(mr_str s)
{
    size_t at = s.len > 0 && s.ptr[0] == '-';
    return s.len > at && (json_is_digit(s.ptr[at]) || s.ptr[at] == '.');
}

bool mr_text_double(mr_str s, double *out)
{
    if (!looks_decimal(s)) {
        return special_parse(s, out);
    }
    return mr_codec_double_get(s.ptr, s.ptr + s.len, out);
}

bool mr_text_float(mr_str s, float *out)
{
    if (!looks_decimal(s)) {
        double special;
        if (!special_parse(s, &special)) {
            return false;
        }
        *out = (float)special;
        return true;
    }
    return mr_codec_float_get(s.ptr, s.ptr + s.len, out);
}
