/* Whether the text of a number can be had from the number again: what looks like a number may be a key, or have more
 * digits than a double. */
#include <float.h>
#include <stdio.h>
#include <string.h>

#include "values.h"

#define F64_WHOLE   (INT64_C(1) << 53) /* up to it each whole number is a double */
#define DIGITS_MOST 64

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

bool mr_number_is_whole(mr_str text)
{
    size_t i = text.len > 0 && text.ptr[0] == '-';

    while (i < text.len && is_digit(text.ptr[i])) {
        i++;
    }
    return i == text.len;
}

bool mr_number_has_zeros(mr_str text)
{
    const size_t sign = text.len > 0 && text.ptr[0] == '-';

    return text.len > sign + 1 && text.ptr[sign] == '0' && is_digit(text.ptr[sign + 1]);
}

/* The digits before the exponent, without zeros at either end; the number of them may be more than there is room for. */
static size_t digits_take(mr_str text, char out[DIGITS_MOST])
{
    size_t count = 0;
    size_t kept = 0;

    for (size_t i = 0; i < text.len && text.ptr[i] != 'e' && text.ptr[i] != 'E'; i++) {
        if (!is_digit(text.ptr[i]) || (count == 0 && text.ptr[i] == '0')) {
            continue;
        }
        if (count < DIGITS_MOST) {
            out[count] = text.ptr[i];
        }
        count++;
        kept = text.ptr[i] != '0' ? count : kept;
    }
    return kept;
}

/* A fraction of at most 17 digits may be the text of any double, as not all programs write the nearest text of so many
 * digits. A longer one is kept if the double, written with as many digits, has the same ones: texts that were made from
 * doubles have, however long they are. */
bool mr_number_is_f64(mr_str text)
{
    char written[DIGITS_MOST + 16];
    char want[DIGITS_MOST];
    char got[DIGITS_MOST];
    int64_t whole;
    double v;

    if (mr_number_is_whole(text)) {
        return mr_str_to_i64(text, &whole) && whole <= F64_WHOLE && whole >= -F64_WHOLE;
    }
    const size_t n = digits_take(text, want);
    if (n <= DBL_DECIMAL_DIG || !mr_text_double(text, &v)) {
        return true;
    }
    if (n > DIGITS_MOST) {
        return false;
    }
    snprintf(written, sizeof written, "%.*e", (int)n - 1, v);
    return digits_take(mr_str_c(written), got) == n && memcmp(got, want, n) == 0;
}
