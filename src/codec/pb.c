/* Protocol-buffers wire format. The reader never copies: a field's payload is a slice of the input,
 * and the caller descends by reading that slice, so nesting costs no stack here. The writer
 * appends; a nested message is written first and its length inserted afterwards, which moves a few
 * bytes but needs no pass to compute sizes. Bulk payloads are not copied at all: see
 * mr_pb_put_len. */
#include "codec/pb.h"

#include "base/turn.h"

#define FIELD_NUMBER_MAX ((UINT32_C(1) << 29) - 1)

bool mr_pb_varint_long(mr_bytes *io, uint64_t *out)
{
    const uint8_t *p = io->ptr;
    size_t max = MR_MIN(io->len, 10);
    uint64_t value = 0;
    for (size_t i = 0; i < max; i++) {
        value |= (uint64_t)(p[i] & 0x7f) << (7 * i);
        if (p[i] < 0x80) {
            /* The tenth byte holds bit 63 only. */
            if (i == 9 && p[i] > 1) {
                return false;
            }
            *io = (mr_bytes){p + i + 1, io->len - i - 1};
            *out = value;
            return true;
        }
    }
    return false;
}

/* `bytes` little-endian bytes off the front. */
static bool fixed_take(mr_bytes *io, size_t bytes, uint64_t *out)
{
    if (io->len < bytes) {
        return false;
    }
    uint64_t value = 0;
    for (size_t i = 0; i < bytes; i++) {
        value |= (uint64_t)io->ptr[i] << (8 * i);
    }
    *io = (mr_bytes){io->ptr + bytes, io->len - bytes};
    *out = value;
    return true;
}

static bool payload_take(mr_bytes *io, mr_bytes *out)
{
    uint64_t len;
    if (!mr_pb_varint(io, &len) || len > io->len) {
        return false;
    }
    *out = (mr_bytes){io->ptr, (size_t)len};
    *io = (mr_bytes){io->ptr + len, io->len - (size_t)len};
    return true;
}

static bool value_take(mr_bytes *io, struct mr_pb_field *field)
{
    switch (field->wire) {
    case MR_PB_VARINT: return mr_pb_varint(io, &field->value);
    case MR_PB_I64: return fixed_take(io, 8, &field->value);
    case MR_PB_I32: return fixed_take(io, 4, &field->value);
    case MR_PB_LEN: return payload_take(io, &field->bytes);
    default: return false;
    }
}

int mr_pb_next(mr_bytes *io, struct mr_pb_field *out)
{
    if (io->len == 0) {
        return 0;
    }
    mr_bytes rest = *io;
    uint64_t tag;
    if (!mr_turn_spend(16)) {
        return -1;
    }
    if (!mr_pb_varint(&rest, &tag) || tag >> 3 == 0 || tag >> 3 > FIELD_NUMBER_MAX) {
        return -1;
    }
    *out = (struct mr_pb_field){.number = (uint32_t)(tag >> 3), .wire = (enum mr_pb_wire)(tag & 7)};
    if (!value_take(&rest, out)) {
        return -1;
    }
    *io = rest;
    return 1;
}

size_t mr_pb_varint_size(uint64_t v)
{
    /* One byte for each 7 bits, at least one. */
    unsigned bits = 64u - (unsigned)__builtin_clzll(v | 1);
    return (bits + 6) / 7;
}

size_t mr_pb_len_size(uint32_t number, size_t payload)
{
    return mr_pb_varint_size((uint64_t)number << 3) + mr_pb_varint_size(payload) + payload;
}

static char *varint_write(char *to, uint64_t v)
{
    while (v >= 0x80) {
        *to++ = (char)(v | 0x80);
        v >>= 7;
    }
    *to++ = (char)v;
    return to;
}

void mr_pb_put_varint(struct mr_buf *b, uint64_t v)
{
    if (v < 0x80) {
        mr_buf_char(b, (char)v);
        return;
    }
    char *to = mr_buf_reserve(b, mr_pb_varint_size(v));
    if (to) {
        b->len += (size_t)(varint_write(to, v) - to);
    }
}

void mr_pb_put_tag(struct mr_buf *b, uint32_t number, enum mr_pb_wire wire)
{
    mr_pb_put_varint(b, (uint64_t)number << 3 | (uint64_t)wire);
}

void mr_pb_set_u64(struct mr_buf *b, uint32_t number, uint64_t v)
{
    mr_pb_put_tag(b, number, MR_PB_VARINT);
    mr_pb_put_varint(b, v);
}

void mr_pb_set_i64(struct mr_buf *b, uint32_t number, int64_t v)
{
    mr_pb_set_u64(b, number, (uint64_t)v);
}

void mr_pb_set_double(struct mr_buf *b, uint32_t number, double v)
{
    uint64_t bits;
    memcpy(&bits, &v, sizeof bits);
    mr_pb_put_tag(b, number, MR_PB_I64);
    for (size_t i = 0; i < 8; i++) {
        mr_buf_char(b, (char)(bits >> (8 * i)));
    }
}

void mr_pb_set_str(struct mr_buf *b, uint32_t number, mr_str s)
{
    mr_pb_put_len(b, number, s.len);
    if (s.len > 0) {
        mr_buf_append(b, s.ptr, s.len);
    }
}

void mr_pb_put_u64(struct mr_buf *b, uint32_t number, uint64_t v)
{
    if (v != 0) {
        mr_pb_set_u64(b, number, v);
    }
}

void mr_pb_put_i64(struct mr_buf *b, uint32_t number, int64_t v)
{
    mr_pb_put_u64(b, number, (uint64_t)v);
}

void mr_pb_put_bool(struct mr_buf *b, uint32_t number, bool v)
{
    mr_pb_put_u64(b, number, v);
}

void mr_pb_put_str(struct mr_buf *b, uint32_t number, mr_str s)
{
    if (s.len > 0) {
        mr_pb_set_str(b, number, s);
    }
}

void mr_pb_put_len(struct mr_buf *b, uint32_t number, size_t payload)
{
    mr_pb_put_tag(b, number, MR_PB_LEN);
    mr_pb_put_varint(b, payload);
}

size_t mr_pb_begin(struct mr_buf *b, uint32_t number)
{
    mr_pb_put_tag(b, number, MR_PB_LEN);
    return b->len;
}

void mr_pb_end(struct mr_buf *b, size_t mark)
{
    /* A buffer that failed has dropped data: the mark may be invalid. */
    if (b->failed || mark > b->len) {
        return;
    }
    size_t payload = b->len - mark;
    size_t size = mr_pb_varint_size(payload);
    if (!mr_buf_reserve(b, size)) {
        return;
    }
    memmove(b->ptr + mark + size, b->ptr + mark, payload);
    varint_write(b->ptr + mark, payload);
    b->len += size;
}
