/* Slices: a pointer and a length, passed by value, owning nothing and not NUL-terminated.
 * `mr_str` is text (UTF-8 unless said otherwise), `mr_bytes` is anything. */
#ifndef MR_BASE_STR_H
#define MR_BASE_STR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef struct mr_str {
    const char *ptr;
    size_t len;
} mr_str;

typedef struct mr_bytes {
    const uint8_t *ptr;
    size_t len;
} mr_bytes;

/** A slice of a string literal, also usable as a static initialiser with MR_STR_INIT. */
#define MR_STR(lit) ((mr_str){"" lit, sizeof(lit) - 1})
/* clang-format would take the braces for a block. */
/* clang-format off */
#define MR_STR_INIT(lit) {"" lit, sizeof(lit) - 1}
/* clang-format on */
/** Arguments for "%.*s". */
#define MR_STR_ARG(s) (int)((s).len > 65535 ? 65535 : (s).len), (s).ptr ? (s).ptr : ""

/** A slice over a NUL-terminated string; NULL gives the empty slice. */
static inline mr_str mr_str_c(const char *s)
{
    return (mr_str){s ? s : "", s ? strlen(s) : 0};
}

static inline mr_str mr_str_n(const char *ptr, size_t len)
{
    return (mr_str){ptr, len};
}

static inline bool mr_str_eq(mr_str a, mr_str b)
{
    /* b.len: often the length of a literal, so that the compiler inlines the comparison */
    return a.len == b.len && (b.len == 0 || memcmp(a.ptr, b.ptr, b.len) == 0);
}

static inline bool mr_str_eq_c(mr_str a, const char *b)
{
    return mr_str_eq(a, mr_str_c(b));
}

static inline bool mr_str_starts(mr_str s, mr_str prefix)
{
    return s.len >= prefix.len && (prefix.len == 0 || memcmp(s.ptr, prefix.ptr, prefix.len) == 0);
}

static inline bool mr_str_ends(mr_str s, mr_str suffix)
{
    return s.len >= suffix.len &&
           (suffix.len == 0 || memcmp(s.ptr + s.len - suffix.len, suffix.ptr, suffix.len) == 0);
}

/** s[from, to) clipped to the string. */
static inline mr_str mr_str_sub(mr_str s, size_t from, size_t to)
{
    from = from > s.len ? s.len : from;
    to = to > s.len ? s.len : to;
    /* NULL + 0 is undefined, and an absent slice stays one */
    return (mr_str){s.ptr ? s.ptr + from : NULL, to > from ? to - from : 0};
}

/** ASCII case-insensitive equality (HTTP names). */
bool mr_str_ieq(mr_str a, mr_str b);
/** <0, 0, >0 in byte order. */
int mr_str_cmp(mr_str a, mr_str b);
/** Without leading and trailing spaces and tabs, CR and LF. */
mr_str mr_str_trim(mr_str s);
/** Position of the first `c`, or -1. */
ptrdiff_t mr_str_find(mr_str s, char c);
/** Position of the first occurrence of `needle`, or -1. */
ptrdiff_t mr_str_find_str(mr_str s, mr_str needle);
/** Cuts the next piece up to `sep` off the front of *rest; the rest begins after `sep`.
 *  Returns false when *rest was exhausted (ptr NULL). */
bool mr_str_split(mr_str *rest, char sep, mr_str *out_piece);

/** Decimal integers, whole slice, optional '-' for signed, no other sign, no spaces.
 *  False if the text is no such integer or does not fit. */
bool mr_str_to_i64(mr_str s, int64_t *out);
bool mr_str_to_u64(mr_str s, uint64_t *out);

/** Value of a hexadecimal digit of either case; -1 for any other character. */
int mr_hex_digit(char c);
/** Percent-encoding undone, into `max` bytes at `out`, which may be s.ptr; what is no escape stays as it is. Returns the bytes written, s.len
 *  at most. */
size_t mr_percent_decode(mr_str s, char *out, size_t max);
/** Room that mr_u64_put and mr_i64_put may need. */
#define MR_U64_TEXT 20
#define MR_I64_TEXT 20
/** Writes v in decimal, without a NUL; returns the end of the text. */
char *mr_u64_put_long(char *p, uint64_t v);
static inline char *mr_u64_put(char *p, uint64_t v)
{
    if (v < 10) {
        *p = (char)('0' + v);
        return p + 1;
    }
    return mr_u64_put_long(p, v);
}
static inline char *mr_i64_put(char *p, int64_t v)
{
    if (v < 0) {
        *p++ = '-';
        return mr_u64_put(p, 0 - (uint64_t)v);
    }
    return mr_u64_put(p, (uint64_t)v);
}

/** "true"/"false"/"1"/"0", case-insensitive. */
bool mr_str_to_bool(mr_str s, bool *out);

/** True for well-formed UTF-8 (RFC 3629: no surrogates, no overlong forms). */
bool mr_utf8_valid(mr_str s);
/** Length of `s` without an incomplete UTF-8 sequence at its end: of a text that was cut. */
size_t mr_utf8_whole(mr_str s);

/** Edit distance of two short words, for "did you mean": insert, delete, replace, swap neighbours.
 *  UINT_MAX when either is longer than 64 bytes. */
unsigned mr_str_distance(mr_str a, mr_str b);

#endif
