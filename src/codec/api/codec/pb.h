/* Protocol-buffers wire format: a reader over a slice and a writer into a buffer, for the hot path.
 * Messages off the hot path use protobuf-c. */
#ifndef MR_CODEC_PB_H
#define MR_CODEC_PB_H

#include "base/buf.h"
#include "base/str.h"

enum mr_pb_wire { MR_PB_VARINT = 0, MR_PB_I64 = 1, MR_PB_LEN = 2, MR_PB_I32 = 5 };

/** One field as read: for VARINT, I64 and I32 `value` is set, for LEN `bytes`. */
struct mr_pb_field {
    uint32_t number;
    enum mr_pb_wire wire;
    uint64_t value;
    mr_bytes bytes;
};

/** Cut the next field off *io. Returns 1, 0 at the end, -1 when the bytes are not protobuf
 *  (truncated, over-long varint, field number 0 or too large, group); *io is then left as it
 *  was. */
int mr_pb_next(mr_bytes *io, struct mr_pb_field *out);
/** The text of a LEN field; ptr NULL: it is none. */
static inline mr_str mr_pb_text(const struct mr_pb_field *f)
{
    return f->wire == MR_PB_LEN ? mr_str_n((const char *)f->bytes.ptr, f->bytes.len) : (mr_str){0};
}
/** Cut one varint off *io; false, *io untouched, when it is truncated or does not fit 64 bits. */
bool mr_pb_varint_long(mr_bytes *io, uint64_t *out);
static inline bool mr_pb_varint(mr_bytes *io, uint64_t *out)
{
    if (io->len == 0 || io->ptr[0] >= 0x80) {
        return mr_pb_varint_long(io, out);
    }
    *out = *io->ptr++;
    io->len--;
    return true;
}

static inline double mr_pb_double(uint64_t i64)
{
    double d;
    memcpy(&d, &i64, 8);
    return d;
}

size_t mr_pb_varint_size(uint64_t v);
/** Encoded size of a LEN field with this payload, tag included. */
size_t mr_pb_len_size(uint32_t number, size_t payload);
void mr_pb_put_varint(struct mr_buf *b, uint64_t v);
void mr_pb_put_tag(struct mr_buf *b, uint32_t number, enum mr_pb_wire wire);
/** Fields with proto3 meaning: zero and empty values are left out. */
void mr_pb_put_u64(struct mr_buf *b, uint32_t number, uint64_t v);
/** int32 and int64: negative values take ten bytes. */
void mr_pb_put_i64(struct mr_buf *b, uint32_t number, int64_t v);
void mr_pb_put_bool(struct mr_buf *b, uint32_t number, bool v);
void mr_pb_put_str(struct mr_buf *b, uint32_t number, mr_str s);
/** Written even if zero or empty: members of a oneof, elements of a repeated field, map entries. */
void mr_pb_set_u64(struct mr_buf *b, uint32_t number, uint64_t v);
void mr_pb_set_i64(struct mr_buf *b, uint32_t number, int64_t v);
void mr_pb_set_double(struct mr_buf *b, uint32_t number, double v);
void mr_pb_set_str(struct mr_buf *b, uint32_t number, mr_str s);
/** Tag and length only: the caller adds the payload, also by reference after this buffer. */
void mr_pb_put_len(struct mr_buf *b, uint32_t number, size_t payload);
/** Nested message: begin remembers the place, end inserts the length (moves the payload). */
size_t mr_pb_begin(struct mr_buf *b, uint32_t number);
void mr_pb_end(struct mr_buf *b, size_t mark);

#endif
