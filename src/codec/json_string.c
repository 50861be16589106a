/* Strings of the JSON reader.
 *
 * Most strings hold no escape and are plain ASCII: one scan, 16 bytes at a time with SSE2, looks for the closing
 * quote, a backslash or a control character and notes whether a byte was not ASCII; the string is then a slice of the
 * text. UTF-8 is checked only if a byte was not ASCII; escapes are plain ASCII, so checking the raw text checks the
 * unescaped one. A string with escapes is copied into the arena, where it never grows: each escape is at least as
 * long as its value. */
#include "json_scan.h"

static bool is_plain(unsigned char c)
{
    return c >= 0x20 && c != '"' && c != '\\';
}

/* First byte in [p, end) that is a quote, a backslash or a control character. *io_high collects
 * whether bytes above 0x7f were passed. */
static const char *plain_skip(const char *p, const char *end, bool *io_high)
{
#ifdef __SSE2__
    const __m128i quote = _mm_set1_epi8('"');
    const __m128i backslash = _mm_set1_epi8('\\');
    const __m128i control = _mm_set1_epi8(0x1f);
    while (end - p >= 16) {
        __m128i v = _mm_loadu_si128((const __m128i *)(const void *)p);
        __m128i hit = _mm_or_si128(_mm_cmpeq_epi8(v, quote), _mm_cmpeq_epi8(v, backslash));
        hit = _mm_or_si128(hit, _mm_cmpeq_epi8(_mm_min_epu8(v, control), v));
        unsigned stop = (unsigned)_mm_movemask_epi8(hit);
        unsigned high = (unsigned)_mm_movemask_epi8(v);
        if (stop) {
            unsigned n = (unsigned)__builtin_ctz(stop);
            *io_high |= (high & ((1u << n) - 1)) != 0;
            return p + n;
        }
        *io_high |= high != 0;
        p += 16;
    }
#endif
    while (p < end && is_plain((unsigned char)*p)) {
        *io_high |= (*p & 0x80) != 0;
        p++;
    }
    return p;
}

/* Value of four hexadecimal digits at p, or -1. */
static int hex4(const char *p, const char *end)
{
    if (end - p < 4) {
        return -1;
    }
    int value = 0;
    for (int i = 0; i < 4; i++) {
        int digit = mr_hex_digit(p[i]);
        if (digit < 0) {
            return -1;
        }
        value = value * 16 + digit;
    }
    return value;
}

/* Length of the escape at p (a backslash) and the code point it stands for; 0 if it is
 * malformed. */
static size_t escape_decode(const char *p, const char *end, uint32_t *out_code)
{
    static const char names[] = "\"\\/bfnrt";
    static const char values[] = "\"\\/\b\f\n\r\t";
    if (end - p < 2) {
        return 0;
    }
    if (p[1] != 'u') {
        const char *at = memchr(names, p[1], sizeof names - 1);
        if (!at) {
            return 0;
        }
        *out_code = (unsigned char)values[at - names];
        return 2;
    }
    int unit = hex4(p + 2, end);
    if (unit < 0 || (unit >= 0xdc00 && unit <= 0xdfff)) {
        return 0;
    }
    *out_code = (uint32_t)unit;
    if (unit < 0xd800 || unit > 0xdbff) {
        return 6;
    }
    int low = end - p >= 12 && p[6] == '\\' && p[7] == 'u' ? hex4(p + 8, end) : -1;
    if (low < 0xdc00 || low > 0xdfff) {
        return 0;
    }
    *out_code = 0x10000u + (((uint32_t)unit - 0xd800u) << 10) + ((uint32_t)low - 0xdc00u);
    return 12;
}

int mr_json_cut_string(struct mr_json *j, mr_str *out_raw, bool *out_escaped)
{
    const char *begin = j->pos + 1;
    const char *p = begin;
    bool high = false;
    bool escaped = false;
    for (;;) {
        const char *stop = j->end - p > JSON_STEP ? p + JSON_STEP : j->end;
        const char *from = p;
        p = plain_skip(p, stop, &high);
        if (!json_spend(j, 8 + (uint64_t)(p - from))) {
            return j->status;
        }
        if (p == stop && stop != j->end) {
            continue;
        }
        if (p == j->end) {
            return mr_json_fail(j, MR_E_INVALID, "string without closing quote");
        }
        if (*p == '"') {
            break;
        }
        uint32_t code;
        size_t n = *p == '\\' ? escape_decode(p, j->end, &code) : 0;
        if (n == 0) {
            return mr_json_fail_at(j, p, MR_E_INVALID, "%s in a string",
                                   *p == '\\' ? "malformed escape" : "control character");
        }
        escaped = true;
        p += n;
    }
    *out_raw = mr_str_n(begin, (size_t)(p - begin));
    *out_escaped = escaped;
    if (high && !mr_utf8_valid(*out_raw)) {
        return mr_json_fail(j, MR_E_INVALID, "string is not valid UTF-8");
    }
    j->pos = p + 1;
    return MR_OK;
}

static char *utf8_put(char *out, uint32_t c)
{
    if (c < 0x80) {
        *out++ = (char)c;
    } else if (c < 0x800) {
        *out++ = (char)(0xc0 | c >> 6);
        *out++ = (char)(0x80 | (c & 0x3f));
    } else if (c < 0x10000) {
        *out++ = (char)(0xe0 | c >> 12);
        *out++ = (char)(0x80 | (c >> 6 & 0x3f));
        *out++ = (char)(0x80 | (c & 0x3f));
    } else {
        *out++ = (char)(0xf0 | c >> 18);
        *out++ = (char)(0x80 | (c >> 12 & 0x3f));
        *out++ = (char)(0x80 | (c >> 6 & 0x3f));
        *out++ = (char)(0x80 | (c & 0x3f));
    }
    return out;
}

/* raw is known to be well-formed. */
static int unescape(struct mr_json *j, mr_str raw, mr_str *out)
{
    char *text = j->arena ? mr_arena_try(j->arena, raw.len, 1) : NULL;
    if (!text) {
        return mr_json_fail_at(j, raw.ptr, MR_E_EXHAUSTED, "no room for a string of %zu bytes",
                               raw.len);
    }
    const char *p = raw.ptr;
    const char *end = raw.ptr + raw.len;
    char *to = text;
    while (p < end) {
        bool ignored = false;
        const char *stop = plain_skip(p, end - p > JSON_STEP ? p + JSON_STEP : end, &ignored);
        if (!json_spend(j, 8 + (uint64_t)(stop - p))) {
            return j->status;
        }
        memcpy(to, p, (size_t)(stop - p));
        to += stop - p;
        p = stop;
        if (p < end && !is_plain((unsigned char)*p)) {
            uint32_t code = 0;
            p += escape_decode(p, end, &code);
            to = utf8_put(to, code);
        }
    }
    *out = mr_str_n(text, (size_t)(to - text));
    return MR_OK;
}

int mr_json_string(struct mr_json *j, mr_str *out)
{
    if (!json_enter(j)) {
        return j->status;
    }
    if (j->pos == j->end || *j->pos != '"') {
        return mr_json_expected(j, "a string");
    }
    int len = json_short_string(j->pos + 1, j->end);
    if (len >= 0) {
        *out = mr_str_n(j->pos + 1, (size_t)len);
        j->pos += len + 2;
        return MR_OK;
    }
    mr_str raw;
    bool escaped;
    int rc = mr_json_cut_string(j, &raw, &escaped);
    if (rc < 0) {
        return rc;
    }
    if (escaped) {
        return unescape(j, raw, out);
    }
    *out = raw;
    return MR_OK;
}
