/* Decimal text to and from binary floats, by std::from_chars and std::to_chars: exact, shortest,
 * without locale, allocation or exceptions. The only C++ file of the module, and it stays this
 * small: what a number may look like is decided by its callers in C. */
#include "float_text.h"

#include <charconv>
#include <limits>
#include <system_error>

namespace
{

const long bound = 1000000000;

/* Of the digits before the exponent, at which *at ends. */
long digits_of(const char **at, const char *end)
{
    const char *p = *at;
    long digits = 0;
    bool seen_point = false, seen_digit = false;
    for (; p < end && *p != 'e' && *p != 'E'; p++) {
        if (*p == '.') {
            seen_point = true;
        } else if (*p != '-') {
            seen_digit = seen_digit || *p != '0';
            if (seen_digit && !seen_point && digits < bound) {
                digits++;
            } else if (!seen_digit && seen_point && digits > -bound) {
                digits--;
            }
        }
    }
    *at = p;
    return digits;
}

/* Power of ten of the first digit that is not 0, plus one ("12" and "0.5e2" -> 2). Only its sign
 * matters to the caller, so it saturates. */
long magnitude(const char *p, const char *end)
{
    long digits = digits_of(&p, end);
    if (p >= end) {
        return digits;
    }
    p++;
    bool negative = p < end && *p == '-';
    if (p < end && (*p == '-' || *p == '+')) {
        p++;
    }
    long exponent = 0;
    for (; p < end; p++) {
        exponent = exponent < bound ? exponent * 10 + (*p - '0') : exponent;
    }
    /* An exponent of ten digits and more outweighs any text that fits in memory. */
    return digits + (negative ? -exponent : exponent);
}

template <typename T> bool get(const char *begin, const char *end, T *out)
{
    T value = 0;
    std::from_chars_result r = std::from_chars(begin, end, value, std::chars_format::general);
    if (r.ptr != end || r.ec == std::errc::invalid_argument) {
        return false;
    }
    if (r.ec == std::errc::result_out_of_range) {
        value = magnitude(begin, end) > 0 ? std::numeric_limits<T>::infinity() : T(0);
        value = *begin == '-' ? -value : value;
    }
    *out = value;
    return true;
}

template <typename T> size_t put(T v, char *out)
{
    return static_cast<size_t>(std::to_chars(out, out + 32, v).ptr - out);
}

} // namespace

size_t mr_codec_double_put(double v, char *out)
{
    return put(v, out);
}

size_t mr_codec_float_put(float v, char *out)
{
    return put(v, out);
}

size_t mr_codec_double_put_17(double v, char *out)
{
    return static_cast<size_t>(std::to_chars(out, out + 32, v, std::chars_format::general, 17).ptr -
                               out);
}

bool mr_codec_double_get(const char *begin, const char *end, double *out)
{
    return get(begin, end, out);
}

bool mr_codec_float_get(const char *begin, const char *end, float *out)
{
    return get(begin, end, out);
}
