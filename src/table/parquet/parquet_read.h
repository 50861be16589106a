/* Reading Thrift's compact protocol, as far as Parquet's footers use it. Private.
 *
 * An error sets in->failed; after it everything reads as zero. Nothing is read beyond the end.
 * Source: thrift/doc/specs/thrift-compact-protocol.md. */
#ifndef MR_TABLE_PARQUET_READ_H
#define MR_TABLE_PARQUET_READ_H

#include "base/str.h"

enum thrift_type {
    THRIFT_TRUE = 1,
    THRIFT_FALSE,
    THRIFT_BYTE,
    THRIFT_I16,
    THRIFT_I32,
    THRIFT_I64,
    THRIFT_DOUBLE,
    THRIFT_BINARY,
    THRIFT_LIST,
    THRIFT_SET,
    THRIFT_MAP,
    THRIFT_STRUCT
};

struct thrift_in {
    const uint8_t *at;
    const uint8_t *end;
    bool failed;
};

struct thrift_field {
    int16_t id;
    int type;
    mr_bytes value; /* the raw bytes */
};

/** The next field of a struct; false: the end, or in->failed. *io_id is 0 before the first one. */
bool parquet_read_field(struct thrift_in *in, int16_t *io_id, struct thrift_field *out);
/** A reader for the content of a field. */
struct thrift_in parquet_read_inside(const struct thrift_field *f);
/** The value of an integer field; another type makes the parent fail. */
int64_t parquet_read_number(const struct thrift_field *f, struct thrift_in *parent);
/** The head of a list; the count is at most the number of remaining bytes. */
uint64_t parquet_read_list(struct thrift_in *in, int *out_type);
uint64_t parquet_read_varint(struct thrift_in *in);
/** The next length-prefixed bytes. */
mr_str parquet_read_text(struct thrift_in *in);

#endif
