/* UTF-8 well-formedness after RFC 3629 (the table is Unicode 15, table 3-7): no overlong forms, no
 * surrogates, nothing above U+10FFFF. Plain ASCII, which nearly all input is, goes eight bytes at a
 * time. */
#include "base/turn.h"
#include "base_priv.h"

#define STEP_BYTES ((size_t)16 * 1024)

static bool is_tail(uint8_t c)
{
    return (c & 0xC0) == 0x80;
}

/* Three bytes: no overlong form, no surrogate. */
static bool is_three(const uint8_t *p)
{
    uint8_t low = p[0] == 0xE0 ? 0xA0 : 0x80;
    uint8_t high = p[0] == 0xED ? 0x9F : 0xBF;

    return p[1] >= low && p[1] <= high && is_tail(p[2]);
}

/* Four bytes: no overlong form, nothing above U+10FFFF. */
static bool is_four(const uint8_t *p)
{
    uint8_t low = p[0] == 0xF0 ? 0x90 : 0x80;
    uint8_t high = p[0] == 0xF4 ? 0x8F : 0xBF;

    return p[1] >= low && p[1] <= high && is_tail(p[2]) && is_tail(p[3]);
}

size_t mr_utf8_step(mr_str s)
{
    const uint8_t *p = (const uint8_t *)s.ptr;

    if (s.len == 0) {
        return 0;
    }
    if (p[0] < 0x80) {
        return 1;
    }
    if (p[0] >= 0xC2 && p[0] <= 0xDF) {
        return s.len >= 2 && is_tail(p[1]) ? 2 : 0;
    }
    if (p[0] >= 0xE0 && p[0] <= 0xEF) {
        return s.len >= 3 && is_three(p) ? 3 : 0;
    }
    if (p[0] >= 0xF0 && p[0] <= 0xF4) {
        return s.len >= 4 && is_four(p) ? 4 : 0;
    }
    return 0;
}

size_t mr_utf8_whole(mr_str s)
{
    size_t tails = 0;

    while (tails < s.len && tails < 3 && is_tail((uint8_t)s.ptr[s.len - 1 - tails])) {
        tails++;
    }
    if (tails == s.len) {
        return s.len;
    }
    uint8_t lead = (uint8_t)s.ptr[s.len - 1 - tails];
    size_t want = lead >= 0xF0 ? 3 : lead >= 0xE0 ? 2 : lead >= 0xC0 ? 1 : 0;
    return want > tails ? s.len - 1 - tails : s.len;
}

bool mr_utf8_valid(mr_str s)
{
    size_t step_end = s.len > STEP_BYTES ? s.len - STEP_BYTES : 0; /* as s.len */

    while (s.len > 0) {
        if (s.len < step_end) {
            step_end = s.len > STEP_BYTES ? s.len - STEP_BYTES : 0;
            if (!mr_turn_spend(STEP_BYTES)) {
                return false;
            }
        }
        uint64_t word;
        if (s.len >= sizeof word) {
            memcpy(&word, s.ptr, sizeof word);
            if ((word & UINT64_C(0x8080808080808080)) == 0) {
                s.ptr += sizeof word;
                s.len -= sizeof word;
                continue;
            }
        }
        size_t n = (uint8_t)*s.ptr < 0x80 ? 1 : mr_utf8_step(s);
        if (n == 0) {
            return false;
        }
        s.ptr += n;
        s.len -= n;
    }
    return true;
}
