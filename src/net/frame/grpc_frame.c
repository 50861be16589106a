/* Pure parts of gRPC. Source: grpc/grpc doc/PROTOCOL-HTTP2.md. Thread: any. */
#include "grpc_frame.h"

#include "base/clock.h"

bool mr_grpc_timeout_parse(mr_str value, int64_t *out_ns)
{
    int64_t n = 0;
    int64_t unit_ns;

    if (value.len < 2 || value.len > 9) {
        return false;
    }
    for (size_t i = 0; i + 1 < value.len; i++) {
        if (value.ptr[i] < '0' || value.ptr[i] > '9') {
            return false;
        }
        n = n * 10 + (value.ptr[i] - '0');
    }
    switch (value.ptr[value.len - 1]) {
    case 'H': unit_ns = 3600 * MR_NS_PER_S; break;
    case 'M': unit_ns = 60 * MR_NS_PER_S; break;
    case 'S': unit_ns = MR_NS_PER_S; break;
    case 'm': unit_ns = MR_NS_PER_MS; break;
    case 'u': unit_ns = MR_NS_PER_US; break;
    case 'n': unit_ns = 1; break;
    default: return false;
    }
    if (__builtin_mul_overflow(n, unit_ns, out_ns)) {
        *out_ns = INT64_MAX;
    }
    return true;
}

size_t mr_grpc_percent_encode(mr_str in, char *out)
{
    static const char hex[] = "0123456789ABCDEF";
    size_t n = 0;

    for (size_t i = 0; i < in.len; i++) {
        unsigned char c = (unsigned char)in.ptr[i];
        const bool is_outer_blank = c == ' ' && (i == 0 || i == in.len - 1); /* receivers drop it */
        if (c >= 0x20 && c <= 0x7e && c != '%' && !is_outer_blank) {
            out[n++] = (char)c;
        } else {
            out[n++] = '%';
            out[n++] = hex[c >> 4];
            out[n++] = hex[c & 15];
        }
    }
    return n;
}

bool mr_grpc_encoding_parse(mr_str name, enum mr_grpc_compression *out)
{
    if (name.len == 0 || mr_str_eq(name, MR_STR("identity"))) {
        *out = MR_GRPC_IDENTITY;
    } else if (mr_str_eq(name, MR_STR("gzip"))) {
        *out = MR_GRPC_GZIP;
    } else if (mr_str_eq(name, MR_STR("deflate"))) {
        *out = MR_GRPC_DEFLATE;
    } else {
        return false;
    }
    return true;
}

unsigned mr_grpc_accept_parse(mr_str value)
{
    unsigned mask = 1u << MR_GRPC_IDENTITY;
    mr_str item;
    enum mr_grpc_compression c;

    while (value.ptr && mr_str_split(&value, ',', &item)) {
        item = mr_str_trim(item);
        if (item.len > 0 && mr_grpc_encoding_parse(item, &c)) {
            mask |= 1u << c;
        }
    }
    return mask;
}

mr_str mr_grpc_encoding_name(enum mr_grpc_compression c)
{
    switch (c) {
    case MR_GRPC_GZIP: return MR_STR("gzip");
    case MR_GRPC_DEFLATE: return MR_STR("deflate");
    default: return MR_STR("identity");
    }
}

bool mr_grpc_prefix_parse(const uint8_t p[MR_GRPC_PREFIX_BYTES], struct mr_grpc_prefix *out)
{
    if (p[0] > 1) {
        return false;
    }
    out->is_compressed = p[0] == 1;
    out->length =
        (uint32_t)p[1] << 24 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 8 | (uint32_t)p[4];
    return true;
}

void mr_grpc_prefix_write(uint8_t p[MR_GRPC_PREFIX_BYTES], bool is_compressed, uint32_t length)
{
    p[0] = is_compressed;
    p[1] = (uint8_t)(length >> 24);
    p[2] = (uint8_t)(length >> 16);
    p[3] = (uint8_t)(length >> 8);
    p[4] = (uint8_t)length;
}

/* ---- alignment hint ------------------------------------------------------------------------- */

static bool varint(mr_bytes in, size_t *io_at, uint64_t *out)
{
    uint64_t v = 0;

    for (unsigned shift = 0; shift < 64 && *io_at < in.len; shift += 7) {
        uint8_t b = in.ptr[(*io_at)++];
        v |= (uint64_t)(b & 0x7f) << shift;
        if (!(b & 0x80)) {
            *out = v;
            return true;
        }
    }
    return false;
}

/* Skips one field's value; false if it ends beyond `in` or is invalid. */
static bool skip_value(mr_bytes in, size_t *io_at, unsigned wire_type, uint64_t *out_len)
{
    uint64_t n = 0;

    switch (wire_type) {
    case 0: return varint(in, io_at, &n);
    case 1: n = 8; break;
    case 2:
        if (!varint(in, io_at, &n)) {
            return false;
        }
        break;
    case 5: n = 4; break;
    default: return false;
    }
    *out_len = n;
    if (n > in.len - *io_at) {
        return false;
    }
    *io_at += (size_t)n;
    return true;
}

int64_t mr_grpc_align_hint(mr_bytes have, uint32_t field_number)
{
    size_t at = MR_GRPC_PREFIX_BYTES;
    uint64_t tag;

    /* A compressed message is decompressed to another place, so there is no offset. */
    if (have.len < MR_GRPC_PREFIX_BYTES || have.ptr[0] != 0) {
        return -1;
    }
    while (at < have.len && varint(have, &at, &tag)) {
        uint64_t len = 0;
        size_t value_at = at;
        bool is_field = tag >> 3 == field_number && (tag & 7) == 2;
        bool is_skipped = skip_value(have, &at, (unsigned)(tag & 7), &len);
        if (is_field && len >= 64) {
            size_t from = value_at;
            uint64_t n;
            return varint(have, &from, &n) ? (int64_t)from : -1;
        }
        if (!is_skipped) {
            return -1;
        }
    }
    return -1;
}
