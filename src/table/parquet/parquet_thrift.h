/* Writing Thrift's compact protocol, as far as Parquet's headers and footer need it. Private.
 * Source: thrift/doc/specs/thrift-compact-protocol.md. */
#ifndef MR_TABLE_PARQUET_THRIFT_H
#define MR_TABLE_PARQUET_THRIFT_H

#include "base/buf.h"

#define PARQUET_THRIFT_DEPTH 12

/** Fields of a struct are written by ascending id. A zeroed writer with `out` set is inside the outermost struct.
 *  Lack of memory sets out->failed. */
struct parquet_thrift {
    struct mr_buf *out;
    int depth;
    int16_t last[PARQUET_THRIFT_DEPTH]; /* id of the last field, for each open struct */
};

enum parquet_thrift_type {
    PARQUET_THRIFT_I32 = 5,
    PARQUET_THRIFT_BINARY = 8,
    PARQUET_THRIFT_STRUCT = 12
};

void parquet_varint(struct mr_buf *out, uint64_t v);
void parquet_thrift_bool(struct parquet_thrift *t, int16_t id, bool v);
void parquet_thrift_i8(struct parquet_thrift *t, int16_t id, int8_t v);
void parquet_thrift_i16(struct parquet_thrift *t, int16_t id, int16_t v);
void parquet_thrift_i32(struct parquet_thrift *t, int16_t id, int32_t v);
void parquet_thrift_i64(struct parquet_thrift *t, int16_t id, int64_t v);
void parquet_thrift_bytes(struct parquet_thrift *t, int16_t id, const void *v, size_t len);
void parquet_thrift_text(struct parquet_thrift *t, int16_t id, const char *v);
/** A value of any type, copied from another message. */
void parquet_thrift_raw(struct parquet_thrift *t, int16_t id, int type, const void *v, size_t len);
/** Opens a field that is a struct. */
void parquet_thrift_begin(struct parquet_thrift *t, int16_t id);
/** Opens a struct that is an element of a list. */
void parquet_thrift_element(struct parquet_thrift *t);
/** Ends what begin or element opened, and the outermost struct. */
void parquet_thrift_end(struct parquet_thrift *t);
/** The head of a list; its `count` elements follow. */
void parquet_thrift_list(struct parquet_thrift *t, int16_t id, enum parquet_thrift_type type,
                         size_t count);
/** Elements of lists. */
void parquet_thrift_element_i32(struct parquet_thrift *t, int32_t v);
void parquet_thrift_element_text(struct parquet_thrift *t, const char *v);

#endif
