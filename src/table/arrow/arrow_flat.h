/* FlatBuffers, as far as Arrow's messages need them. Private.
 *
 * A table has a list of its fields' places (its vtable); a missing field has its default. Offsets are relative to
 * their own place. Source: flatbuffers.dev/internals. */
#ifndef MR_TABLE_ARROW_FLAT_H
#define MR_TABLE_ARROW_FLAT_H

#include "base/buf.h"

/* ---- reading ---- */

/** A message from outside. Reads beyond its end return zero and set is_bad. */
struct flat {
    mr_bytes all;
    bool is_bad;
};

struct flat_table {
    struct flat *in;
    size_t at; /* 0: no table; all fields are missing */
    size_t vtable;
    uint16_t vtable_bytes;
};

struct flat_vector {
    struct flat *in;
    size_t at; /* of the first item */
    uint32_t count;
    uint32_t step; /* bytes of an item */
};

struct flat_table flat_root(struct flat *in);
/** A number of 1, 2, 4 or 8 bytes, sign extended. */
int64_t flat_int(const struct flat_table *t, unsigned field, unsigned bytes, int64_t missing);
struct flat_table flat_child(const struct flat_table *t, unsigned field);
/** Empty if missing. */
mr_str flat_text(const struct flat_table *t, unsigned field);
/** Items of `step` bytes each, all inside the message. */
struct flat_vector flat_list(const struct flat_table *t, unsigned field, uint32_t step);
/** Item i < count. For a list of tables (step 4). */
struct flat_table flat_list_table(const struct flat_vector *v, uint32_t i);
/** Eight bytes at an offset within item i. */
int64_t flat_list_i64(const struct flat_vector *v, uint32_t i, uint32_t offset);

/* ---- writing ---- */

#define FLAT_FIELDS 8

/** A table being written, front to back. */
struct flat_out {
    struct mr_buf *b;
    size_t at[FLAT_FIELDS]; /* of the fields in the buffer; 0: missing */
};

/** Appends a table whose field i has sizes[i] bytes (0: missing), all zero; returns its place. The buffer is one
 *  message from its offset 0. */
size_t flat_put_table(struct flat_out *t, struct mr_buf *b, const uint8_t *sizes, unsigned count);
void flat_put_int(const struct flat_out *t, unsigned field, unsigned bytes, int64_t value);
/** Points a field, or the four bytes at a place, to a later place. */
void flat_put_link(const struct flat_out *t, unsigned field, size_t to);
void flat_link(struct mr_buf *b, size_t from, size_t to);
/** Appends a text or a list; returns its place. */
size_t flat_put_text(struct mr_buf *b, mr_str text);
/** Appends the head of a list and zeros for its items, which begin at the place + 4. */
size_t flat_put_list(struct mr_buf *b, uint32_t count, uint32_t step);
/** Appends zeros until the length is a multiple of `to`. */
void flat_pad(struct mr_buf *b, size_t to);

#endif
