/* Shared by the files of the JSON reader: errors, white space, and the fast scanners. Private. */
#ifndef MR_CODEC_JSON_SCAN_H
#define MR_CODEC_JSON_SCAN_H

#include <stddef.h>

#include "base/turn.h"
#include "codec/json.h"

#ifdef __SSE2__
#    include <emmintrin.h>
#endif

#define MR_JSON_DEPTH_MAX 1000
#define JSON_SPACE_NEAR   64
#define JSON_STEP         ((ptrdiff_t)16 * 1024) /* text read between two calls of mr_turn_spend */

/** Like mr_json_fail, with the place given. */
int mr_json_fail_at(struct mr_json *j, const char *at, int status, const char *fmt, ...)
    __attribute__((format(printf, 4, 5), cold, noinline));
/** "expected <what>, found ... at offset N" for the value that comes next. */
int mr_json_expected(struct mr_json *j, const char *what) __attribute__((cold, noinline));
/** Cuts one string, opening quote included, off the text without unescaping. *out_raw is the checked text between the
 *  quotes; *out_escaped is true if it holds a backslash. */
int mr_json_cut_string(struct mr_json *j, mr_str *out_raw, bool *out_escaped);
/** json_skip_space over a long stretch; `end` when the turn was ended. */
const char *mr_json_skip_far(const char *p, const char *end) __attribute__((noinline));
/** Called in every loop over text. False, with the error set, when the turn was ended. */
static inline bool json_spend(struct mr_json *j, uint64_t units)
{
    return mr_turn_spend(units) || mr_json_fail(j, MR_E_CANCELLED, "ended") == MR_OK;
}
/** Length of the JSON number at p, 0 if there is none. */
size_t mr_json_number_len(const char *p, const char *end);
/** Length of NaN, Infinity or -Infinity at p, 0 if none of them; *out its value. */
size_t mr_json_special_len(const char *p, const char *end, double *out);

static inline bool json_is_space(char c)
{
    return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

static inline bool json_is_digit(char c)
{
    return (unsigned)(c - '0') < 10;
}

/** First byte that is not white space. Most values are followed by none or by a single blank. */
static inline const char *json_skip_space(const char *p, const char *end)
{
    if (p < end && (unsigned char)*p > ' ') {
        return p;
    }
    const char *near = end - p > JSON_SPACE_NEAR ? p + JSON_SPACE_NEAR : end;
    while (p < near && json_is_space(*p)) {
        p++;
    }
    return p < near || near == end ? p : mr_json_skip_far(p, end);
}

/** Length of the string whose opening quote is before p, if it is short (up to 15 bytes), plain
 *  ASCII without escapes, and not at the very end of the text: nearly all names and keys. -1 for any other string,
 *  which mr_json_cut_string reads. */
static inline int json_short_string(const char *p, const char *end)
{
#ifdef __SSE2__
    if (end - p >= 16) {
        __m128i v = _mm_loadu_si128((const __m128i *)(const void *)p);
        /* As signed bytes, control characters and everything above 0x7f are below a blank. */
        __m128i other = _mm_or_si128(_mm_cmpeq_epi8(v, _mm_set1_epi8('\\')),
                                     _mm_cmplt_epi8(v, _mm_set1_epi8(0x20)));
        unsigned quotes = (unsigned)_mm_movemask_epi8(_mm_cmpeq_epi8(v, _mm_set1_epi8('"')));
        unsigned before = (quotes & (0u - quotes)) - 1; /* the bytes before the first quote */
        if (quotes && !((unsigned)_mm_movemask_epi8(other) & before)) {
            return __builtin_ctz(quotes);
        }
    }
#endif
    (void)p;
    (void)end;
    return -1;
}

static inline bool json_enter(struct mr_json *j)
{
    j->pos = json_skip_space(j->pos, j->end);
    return j->status == MR_OK;
}

#endif
