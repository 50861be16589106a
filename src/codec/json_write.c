/* The JSON writer: strings and floats into a buffer. Braces and commas are the caller's.
 *
 * A string is copied in stretches that need no escape. Bytes that are not UTF-8 each become U+FFFD:
 * an answer must be valid JSON whatever a model or a file put into a string. */
#include "codec/json.h"

#ifdef __SSE2__
#    include <emmintrin.h>
#endif

/* True when all of the 4 to 16 bytes can be copied as they are: nearly every name. Two words that overlap hold them;
 * a byte of `hit` has its highest bit set if the word's byte is not a plain character, or follows such a one. */
static bool is_short_plain(const char *p, size_t n)
{
    const uint64_t ones = UINT64_C(0x0101010101010101);
    uint64_t words[2];

    if (n < 8) {
        uint32_t first, last;
        memcpy(&first, p, sizeof first);
        memcpy(&last, p + n - sizeof last, sizeof last);
        words[0] = words[1] = first | (uint64_t)last << 32;
    } else {
        memcpy(&words[0], p, sizeof words[0]);
        memcpy(&words[1], p + n - sizeof words[1], sizeof words[1]);
    }
    uint64_t hit = 0;
    for (int i = 0; i < 2; i++) {
        uint64_t w = words[i];
        uint64_t quote = w ^ ones * '"';
        uint64_t backslash = w ^ ones * '\\';
        hit |= w | (w - ones * 0x20) | (quote - ones) | (backslash - ones) | (w + ones);
    }
    return (hit & ones * 0x80) == 0;
}

/* First byte that cannot be copied unchanged: not ASCII, or in need of an escape. */
static const char *ascii_skip(const char *p, const char *end)
{
#ifdef __SSE2__
    const __m128i quote = _mm_set1_epi8('"');
    const __m128i backslash = _mm_set1_epi8('\\');
    const __m128i space = _mm_set1_epi8(0x20);
    while (end - p >= 16) {
        __m128i v = _mm_loadu_si128((const __m128i *)(const void *)p);
        __m128i hit = _mm_or_si128(_mm_cmpeq_epi8(v, quote), _mm_cmpeq_epi8(v, backslash));
        /* As signed bytes, control characters and everything above 0x7f are below a blank. */
        hit = _mm_or_si128(hit, _mm_cmplt_epi8(v, space));
        unsigned stop = (unsigned)_mm_movemask_epi8(hit);
        if (stop) {
            return p + __builtin_ctz(stop);
        }
        p += 16;
    }
#endif
    while (p < end && *p >= 0x20 && *p < 0x7f && *p != '"' && *p != '\\') {
        p++;
    }
    return p;
}

/* Length of the UTF-8 sequence of a lead byte, 0 for a byte that leads none. */
static size_t utf8_lead_len(unsigned char c)
{
    if (c < 0x80) {
        return 1;
    }
    if (c >= 0xc2 && c <= 0xdf) {
        return 2;
    }
    if (c >= 0xe0 && c <= 0xef) {
        return 3;
    }
    return c >= 0xf0 && c <= 0xf4 ? 4 : 0;
}

/* Writes a character that is not plain ASCII; returns the position after it. */
static const char *char_put(struct mr_buf *b, const char *p, const char *end)
{
    unsigned char c = (unsigned char)*p;
    if (c >= 0x80) {
        size_t len = utf8_lead_len(c);
        if (len && (size_t)(end - p) >= len && mr_utf8_valid(mr_str_n(p, len))) {
            mr_buf_append(b, p, len);
            return p + len;
        }
        MR_BUF_LIT(b, "\xef\xbf\xbd");
        return p + 1;
    }
    static const char names[] = "\"\\bfnrt";
    static const char values[] = "\"\\\b\f\n\r\t";
    const char *at = memchr(values, c, sizeof values - 1);
    if (at) {
        char text[2] = {'\\', names[at - values]};
        mr_buf_append(b, text, 2);
    } else if (c < 0x20) {
        mr_buf_printf(b, "\\u%04x", c);
    } else {
        mr_buf_char(b, (char)c);
    }
    return p + 1;
}

void mr_json_put_part(struct mr_buf *b, const char *p, const char *end)
{
    size_t n = (size_t)(end - p);

    if (n >= 4 && n <= 16 && is_short_plain(p, n)) {
        mr_buf_append(b, p, n);
        return;
    }
    while (p < end) {
        const char *stop = ascii_skip(p, end);
        if (stop > p) {
            mr_buf_append(b, p, (size_t)(stop - p));
        }
        p = stop;
        if (p < end) {
            p = char_put(b, p, end);
        }
    }
}

void mr_json_put_string(struct mr_buf *b, mr_str s)
{
    const char *p = s.len ? s.ptr : "";
    const char *end = p + s.len;
    mr_buf_char(b, '"');
    mr_json_put_part(b, p, end);
    mr_buf_char(b, '"');
}

void mr_json_put_double(struct mr_buf *b, double v)
{
    char *to = mr_buf_reserve(b, 32);
    if (to) {
        b->len += mr_double_text(v, to);
    }
}

void mr_json_put_float(struct mr_buf *b, float v)
{
    char *to = mr_buf_reserve(b, 32);
    if (to) {
        b->len += mr_float_text(v, to);
    }
}
