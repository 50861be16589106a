/* Slices: comparing, searching, cutting, and numbers from text. Nothing allocates. A slice may have ptr NULL when its
 * length is 0, so every call into libc is guarded by the length. */
#include "base/str.h"

#include <limits.h>

#include "base/mem.h"

static unsigned char lower(unsigned char c)
{
    return c >= 'A' && c <= 'Z' ? (unsigned char)(c + ('a' - 'A')) : c;
}

bool mr_str_ieq(mr_str a, mr_str b)
{
    if (a.len != b.len) {
        return false;
    }
    for (size_t i = 0; i < a.len; i++) {
        if (lower((unsigned char)a.ptr[i]) != lower((unsigned char)b.ptr[i])) {
            return false;
        }
    }
    return true;
}

int mr_str_cmp(mr_str a, mr_str b)
{
    size_t common = MR_MIN(a.len, b.len);
    int order = common ? memcmp(a.ptr, b.ptr, common) : 0;

    if (order != 0) {
        return order;
    }
    return (a.len > b.len) - (a.len < b.len);
}

static bool is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

mr_str mr_str_trim(mr_str s)
{
    while (s.len > 0 && is_space(s.ptr[0])) {
        s.ptr++;
        s.len--;
    }
    while (s.len > 0 && is_space(s.ptr[s.len - 1])) {
        s.len--;
    }
    return s;
}

ptrdiff_t mr_str_find(mr_str s, char c)
{
    const char *p = s.len ? memchr(s.ptr, c, s.len) : NULL;

    return p ? p - s.ptr : -1;
}

ptrdiff_t mr_str_find_str(mr_str s, mr_str needle)
{
    if (needle.len == 0) {
        return 0;
    }
    if (s.len < needle.len) {
        return -1;
    }
    const char *p = memmem(s.ptr, s.len, needle.ptr, needle.len);
    return p ? p - s.ptr : -1;
}

bool mr_str_split(mr_str *rest, char sep, mr_str *out_piece)
{
    if (!rest->ptr) {
        return false;
    }
    ptrdiff_t at = mr_str_find(*rest, sep);
    if (at < 0) {
        *out_piece = *rest;
        *rest = (mr_str){NULL, 0};
        return true;
    }
    *out_piece = (mr_str){rest->ptr, (size_t)at};
    rest->ptr += at + 1;
    rest->len -= (size_t)at + 1;
    return true;
}

bool mr_str_to_u64(mr_str s, uint64_t *out)
{
    uint64_t v = 0;

    if (s.len == 0) {
        return false;
    }
    for (size_t i = 0; i < s.len; i++) {
        unsigned digit = (unsigned)(unsigned char)s.ptr[i] - '0';
        if (digit > 9 || __builtin_mul_overflow(v, 10u, &v) ||
            __builtin_add_overflow(v, digit, &v)) {
            return false;
        }
    }
    *out = v;
    return true;
}

int mr_hex_digit(char c)
{
    if (c >= '0' && c <= '9') {
        return c - '0';
    }
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

size_t mr_percent_decode(mr_str s, char *out, size_t max)
{
    size_t n = 0;

    for (size_t i = 0; i < s.len && n < max; i++) {
        int high = s.ptr[i] == '%' && i + 2 < s.len ? mr_hex_digit(s.ptr[i + 1]) : -1;
        int low = high >= 0 ? mr_hex_digit(s.ptr[i + 2]) : -1;
        out[n++] = low >= 0 ? (char)(high << 4 | low) : s.ptr[i];
        i += low >= 0 ? 2 : 0;
    }
    return n;
}

bool mr_str_to_i64(mr_str s, int64_t *out)
{
    bool is_negative = s.len > 0 && s.ptr[0] == '-';
    uint64_t most = is_negative ? (uint64_t)INT64_MAX + 1 : (uint64_t)INT64_MAX;
    uint64_t v;

    if (is_negative) {
        s = mr_str_n(s.ptr + 1, s.len - 1);
    }
    if (!mr_str_to_u64(s, &v) || v > most) {
        return false;
    }
    /* 0 - v in unsigned arithmetic is the two's complement, INT64_MIN included. */
    *out = is_negative ? (int64_t)(0 - v) : (int64_t)v;
    return true;
}

static const char digit_pairs[] = "00010203040506070809101112131415161718192021222324"
                                  "25262728293031323334353637383940414243444546474849"
                                  "50515253545556575859606162636465666768697071727374"
                                  "75767778798081828384858687888990919293949596979899";

static char *pair_put(char *p, uint64_t v)
{
    memcpy(p, digit_pairs + v * 2, 2);
    return p + 2;
}

/* Up to four digits: most elements of most integer tensors. */
static char *short_put(char *p, uint64_t v)
{
    uint64_t high = v / 100;

    if (high == 0) {
        if (v >= 10) {
            return pair_put(p, v);
        }
        *p = (char)('0' + v);
        return p + 1;
    }
    if (high >= 10) {
        p = pair_put(p, high);
    } else {
        *p++ = (char)('0' + high);
    }
    return pair_put(p, v % 100);
}

char *mr_u64_put_long(char *p, uint64_t v)
{
    char text[MR_U64_TEXT];
    char *at = text + sizeof text;

    if (v < 10000) {
        return short_put(p, v);
    }
    while (v >= 100) {
        at -= 2;
        pair_put(at, v % 100);
        v /= 100;
    }
    if (v >= 10) {
        at -= 2;
        pair_put(at, v);
    } else {
        *--at = (char)('0' + v);
    }
    size_t len = (size_t)(text + sizeof text - at);
    memcpy(p, at, len);
    return p + len;
}

bool mr_str_to_bool(mr_str s, bool *out)
{
    if (mr_str_ieq(s, MR_STR("true")) || mr_str_eq(s, MR_STR("1"))) {
        *out = true;
        return true;
    }
    if (mr_str_ieq(s, MR_STR("false")) || mr_str_eq(s, MR_STR("0"))) {
        *out = false;
        return true;
    }
    return false;
}

#define WORD_MAX 64

static unsigned min3(unsigned a, unsigned b, unsigned c)
{
    unsigned m = MR_MIN(a, b);

    return MR_MIN(m, c);
}

/* Optimal string alignment: insert, delete, replace, and swap of two neighbours, because swapped
 * letters are the commonest typing error. Three rows suffice. */
unsigned mr_str_distance(mr_str a, mr_str b)
{
    unsigned char rows[3][WORD_MAX + 1];
    unsigned char *before = rows[0];
    unsigned char *above = rows[1];
    unsigned char *row = rows[2];

    if (a.len > WORD_MAX || b.len > WORD_MAX) {
        return UINT_MAX;
    }
    for (size_t j = 0; j <= b.len; j++) {
        above[j] = (unsigned char)j;
    }
    for (size_t i = 1; i <= a.len; i++) {
        row[0] = (unsigned char)i;
        for (size_t j = 1; j <= b.len; j++) {
            unsigned change = above[j - 1] + (a.ptr[i - 1] != b.ptr[j - 1]);
            unsigned best = min3(above[j] + 1u, row[j - 1] + 1u, change);
            if (i > 1 && j > 1 && a.ptr[i - 1] == b.ptr[j - 2] && a.ptr[i - 2] == b.ptr[j - 1]) {
                best = MR_MIN(best, before[j - 2] + 1u);
            }
            row[j] = (unsigned char)best;
        }
        unsigned char *oldest = before;
        before = above;
        above = row;
        row = oldest;
    }
    return above[b.len];
}
