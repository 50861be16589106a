/* Thrift's compact protocol, read: as much of it as Parquet's footers have. Private.
 *
 * What is wrong shows in in->failed; then everything that is read is zero. Nothing is read beyond the end.
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
    mr_bytes value; /* as it lies there */
};

/** The next field of a struct; false: there is none, or in->failed. *io_id is 0 before the first one. */
bool thrift_field(struct thrift_in *in, int16_t *io_id, struct thrift_field *out);
/** What a field holds. */
struct thrift_in thrift_inside(const struct thrift_field *f);
/** A field that is an integer; anything else makes the parent fail. */
int64_t thrift_number(const struct thrift_field *f, struct thrift_in *parent);
/** The head of a list; a count of no more than the bytes that are left. */
uint64_t thrift_list(struct thrift_in *in, int *out_type);
uint64_t thrift_varint(struct thrift_in *in);
/** The next bytes with their length before them. */
mr_str thrift_text(struct thrift_in *in);

#endif
