/* Base64, RFC 4648 section 4: strict, so that each value has exactly one text. */
#include "base/turn.h"
#include "codec/json.h"

#define STEP_BYTES                                                                                 \
    ((size_t)8 * 1024) /* multiple of four: text decoded between two calls of mr_turn_spend */

static const char alphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

static int digit_value(char c)
{
    if (c >= 'A' && c <= 'Z') {
        return c - 'A';
    }
    if (c >= 'a' && c <= 'z') {
        return c - 'a' + 26;
    }
    if (c >= '0' && c <= '9') {
        return c - '0' + 52;
    }
    return c == '+' ? 62 : c == '/' ? 63 : -1;
}

/* `digits` of four characters count, the others are padding: 24 bits, or -1. */
static int32_t group_value(const char *p, int digits)
{
    int32_t value = 0;
    for (int i = 0; i < 4; i++) {
        int v = i < digits ? digit_value(p[i]) : 0;
        if (v < 0) {
            return -1;
        }
        value = value << 6 | v;
    }
    return value;
}

bool mr_base64_decode(mr_str s, uint8_t *out, size_t *out_len)
{
    if (s.len % 4 != 0) {
        return false;
    }
    uint8_t *to = out;
    for (size_t at = 0; at < s.len; at += 4) {
        const char *p = s.ptr + at;
        int digits = 4;
        if (at % STEP_BYTES == 0 && !mr_turn_spend(STEP_BYTES * 2)) {
            return false;
        }
        if (at + 4 == s.len && p[3] == '=') {
            digits = p[2] == '=' ? 2 : 3;
        }
        int32_t v = group_value(p, digits);
        /* Bits after the last whole byte must be zero: 8 in the third byte, 16 in two. */
        if (v < 0 || (digits < 4 && (v & ((1 << (4 - digits) * 8) - 1)) != 0)) {
            return false;
        }
        *to++ = (uint8_t)(v >> 16);
        if (digits > 2) {
            *to++ = (uint8_t)(v >> 8);
        }
        if (digits > 3) {
            *to++ = (uint8_t)v;
        }
    }
    *out_len = (size_t)(to - out);
    return true;
}

void mr_base64_encode(mr_bytes in, struct mr_buf *out)
{
    if (in.len > SIZE_MAX / 2) {
        out->failed = true;
        return;
    }
    size_t len = (in.len + 2) / 3 * 4;
    char *to = mr_buf_reserve(out, len);
    if (!to) {
        return;
    }
    for (size_t at = 0; at < in.len; at += 3) {
        size_t have = MR_MIN(in.len - at, 3);
        uint32_t v = (uint32_t)in.ptr[at] << 16;
        v |= have > 1 ? (uint32_t)in.ptr[at + 1] << 8 : 0;
        v |= have > 2 ? in.ptr[at + 2] : 0;
        *to++ = alphabet[v >> 18];
        *to++ = alphabet[v >> 12 & 63];
        *to++ = have > 1 ? alphabet[v >> 6 & 63] : '=';
        *to++ = have > 2 ? alphabet[v & 63] : '=';
    }
    out->len += len;
}
