/* Reading Thrift's compact protocol. Nesting is limited to a depth that no footer has. */
#include "parquet_read.h"

#define DEPTH_MOST 16

static uint8_t byte_read(struct thrift_in *in)
{
    in->failed |= in->at == in->end;
    return in->failed ? 0 : *in->at++;
}

uint64_t parquet_read_varint(struct thrift_in *in)
{
    uint64_t v = 0;

    for (unsigned shift = 0; shift < 64; shift += 7) {
        const uint8_t b = byte_read(in);
        v |= (uint64_t)(b & 0x7f) << shift;
        if (!(b & 0x80)) {
            return v;
        }
    }
    in->failed = true;
    return 0;
}

static int64_t zigzag_read(struct thrift_in *in)
{
    const uint64_t v = parquet_read_varint(in);
    return (int64_t)(v >> 1) ^ -(int64_t)(v & 1);
}

static void bytes_skip(struct thrift_in *in, uint64_t n)
{
    in->failed |= n > (uint64_t)(in->end - in->at);
    in->at += in->failed ? 0 : n;
}

/* An element takes at least a byte, which bounds their number by the remaining bytes. */
uint64_t parquet_read_list(struct thrift_in *in, int *out_type)
{
    const uint8_t head = byte_read(in);
    const uint64_t count = head >> 4 == 15 ? parquet_read_varint(in) : head >> 4;

    in->failed |= count > (uint64_t)(in->end - in->at);
    *out_type = head & 15;
    return in->failed ? 0 : count;
}

static bool field_read(struct thrift_in *in, int16_t *io_id, struct thrift_field *out, int depth);

static void value_skip(struct thrift_in *in, int type, bool is_element, int depth)
{
    struct thrift_field f;
    int16_t id = 0;
    int of;

    switch (depth < DEPTH_MOST ? type : 0) {
    case THRIFT_TRUE:
    case THRIFT_FALSE: bytes_skip(in, is_element); break;
    case THRIFT_BYTE: bytes_skip(in, 1); break;
    case THRIFT_I16:
    case THRIFT_I32:
    case THRIFT_I64: parquet_read_varint(in); break;
    case THRIFT_DOUBLE: bytes_skip(in, 8); break;
    case THRIFT_BINARY: bytes_skip(in, parquet_read_varint(in)); break;
    case THRIFT_LIST:
    case THRIFT_SET:
        for (uint64_t n = parquet_read_list(in, &of); n > 0 && !in->failed; n--) {
            value_skip(in, of, true, depth + 1);
        }
        break;
    case THRIFT_STRUCT:
        while (field_read(in, &id, &f, depth + 1)) {
        }
        break;
    default: in->failed = true; /* a map, which Parquet does not use */
    }
}

/* The next field of a struct; false: the end, or in->failed. */
static bool field_read(struct thrift_in *in, int16_t *io_id, struct thrift_field *out, int depth)
{
    const uint8_t head = byte_read(in);

    if (in->failed || head == 0) {
        return false;
    }
    *io_id = (int16_t)(head >> 4 ? *io_id + (head >> 4) : zigzag_read(in));
    out->id = *io_id;
    out->type = head & 15;
    out->value.ptr = in->at;
    value_skip(in, out->type, false, depth);
    out->value.len = (size_t)(in->at - out->value.ptr);
    return !in->failed;
}

struct thrift_in parquet_read_inside(const struct thrift_field *f)
{
    return (struct thrift_in){f->value.ptr, f->value.ptr + f->value.len, false};
}

int64_t parquet_read_number(const struct thrift_field *f, struct thrift_in *parent)
{
    struct thrift_in in = parquet_read_inside(f);

    parent->failed |= f->type != THRIFT_I16 && f->type != THRIFT_I32 && f->type != THRIFT_I64;
    return parent->failed ? 0 : zigzag_read(&in);
}

bool parquet_read_field(struct thrift_in *in, int16_t *io_id, struct thrift_field *out)
{
    return field_read(in, io_id, out, 0);
}

mr_str parquet_read_text(struct thrift_in *in)
{
    const uint64_t n = parquet_read_varint(in);
    const uint8_t *from = in->at;

    bytes_skip(in, n);
    return in->failed ? mr_str_n(NULL, 0) : mr_str_n((const char *)from, (size_t)n);
}
