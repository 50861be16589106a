/* Writing Thrift's compact protocol. */
#include "parquet_thrift.h"

enum { TRUE_ = 1, FALSE_ = 2, BYTE = 3, I16 = 4, I64 = 6, LIST = 9 };

void parquet_varint(struct mr_buf *out, uint64_t v)
{
    while (v >= 0x80) {
        mr_buf_char(out, (char)(v | 0x80));
        v >>= 7;
    }
    mr_buf_char(out, (char)v);
}

static uint64_t zigzag(int64_t v)
{
    return (uint64_t)v << 1 ^ (uint64_t)(v >> 63);
}

static void field(struct parquet_thrift *t, int16_t id, int type)
{
    int16_t *last = &t->last[t->depth];
    const int step = id - *last;

    if (step >= 1 && step <= 15) {
        mr_buf_char(t->out, (char)(step << 4 | type));
    } else {
        mr_buf_char(t->out, (char)type);
        parquet_varint(t->out, zigzag(id));
    }
    *last = id;
}

void parquet_thrift_bool(struct parquet_thrift *t, int16_t id, bool v)
{
    field(t, id, v ? TRUE_ : FALSE_);
}

void parquet_thrift_i8(struct parquet_thrift *t, int16_t id, int8_t v)
{
    field(t, id, BYTE);
    mr_buf_char(t->out, (char)v);
}

void parquet_thrift_i16(struct parquet_thrift *t, int16_t id, int16_t v)
{
    field(t, id, I16);
    parquet_varint(t->out, zigzag(v));
}

void parquet_thrift_i32(struct parquet_thrift *t, int16_t id, int32_t v)
{
    field(t, id, PARQUET_THRIFT_I32);
    parquet_varint(t->out, zigzag(v));
}

void parquet_thrift_i64(struct parquet_thrift *t, int16_t id, int64_t v)
{
    field(t, id, I64);
    parquet_varint(t->out, zigzag(v));
}

static void bytes(struct parquet_thrift *t, const void *v, size_t len)
{
    parquet_varint(t->out, len);
    mr_buf_append(t->out, v, len);
}

void parquet_thrift_bytes(struct parquet_thrift *t, int16_t id, const void *v, size_t len)
{
    field(t, id, PARQUET_THRIFT_BINARY);
    bytes(t, v, len);
}

void parquet_thrift_raw(struct parquet_thrift *t, int16_t id, int type, const void *v, size_t len)
{
    field(t, id, type);
    mr_buf_append(t->out, v, len);
}

void parquet_thrift_text(struct parquet_thrift *t, int16_t id, const char *v)
{
    parquet_thrift_bytes(t, id, v, strlen(v));
}

void parquet_thrift_begin(struct parquet_thrift *t, int16_t id)
{
    field(t, id, PARQUET_THRIFT_STRUCT);
    parquet_thrift_element(t);
}

void parquet_thrift_element(struct parquet_thrift *t)
{
    t->last[++t->depth] = 0;
}

void parquet_thrift_end(struct parquet_thrift *t)
{
    mr_buf_char(t->out, 0);
    t->depth--;
}

void parquet_thrift_list(struct parquet_thrift *t, int16_t id, enum parquet_thrift_type type,
                         size_t count)
{
    field(t, id, LIST);
    if (count < 15) {
        mr_buf_char(t->out, (char)(count << 4 | type));
    } else {
        mr_buf_char(t->out, (char)(0xf0 | type));
        parquet_varint(t->out, count);
    }
}

void parquet_thrift_element_i32(struct parquet_thrift *t, int32_t v)
{
    parquet_varint(t->out, zigzag(v));
}

void parquet_thrift_element_text(struct parquet_thrift *t, const char *v)
{
    bytes(t, v, strlen(v));
}
