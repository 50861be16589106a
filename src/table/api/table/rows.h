/* Rows in columns: the output of sources, the input of sinks, and the data of jobs.
 *
 * The layout is that of Apache Arrow (packed values, offsets for types of variable length, a bit per row for nulls,
 * least significant first), with two differences: a boolean takes a byte, as in tensors, and offsets have 64 bits. So
 * numbers become a tensor, a page of a file or a message without conversion.
 *
 * One thread builds rows; after that they do not change, and any thread may read them. */
#ifndef MR_TABLE_ROWS_H
#define MR_TABLE_ROWS_H

#include "base/buf.h"
#include "base/err.h"
#include "base/str.h"

enum mr_column_type {
    MR_COLUMN_NONE = 0,
    MR_COLUMN_BOOL, /* a byte, 0 or 1 */
    MR_COLUMN_I8,
    MR_COLUMN_I16,
    MR_COLUMN_I32,
    MR_COLUMN_I64,
    MR_COLUMN_U8,
    MR_COLUMN_U16,
    MR_COLUMN_U32,
    MR_COLUMN_U64,
    MR_COLUMN_F16,
    MR_COLUMN_F32,
    MR_COLUMN_F64,
    MR_COLUMN_DATE,      /* int32, days since 1970-01-01 */
    MR_COLUMN_TIMESTAMP, /* int64, microseconds since then, UTC */
    MR_COLUMN_DECIMAL, /* 16 bytes, two's complement, host byte order: the number times 10^scale */
    MR_COLUMN_STRING,  /* UTF-8 */
    MR_COLUMN_BINARY,
    MR_COLUMN_LIST,       /* any number of items of one field */
    MR_COLUMN_FIXED_LIST, /* `width` items in each row */
    MR_COLUMN_TYPES
};

#define MR_FIELD_DEPTH 16 /* limit of nested lists */

/** A name and a type. The item of a list also has a field; its name is "element". */
struct mr_field {
    char *name;
    enum mr_column_type type;
    bool is_nullable;
    bool is_json;    /* STRING: the text of a JSON value, written to JSON unchanged */
    bool is_kept;    /* in `wanted`: typed sources do not convert its numbers */
    bool has_long;   /* a guess: some numbers have digits that F64 loses */
    bool is_guessed; /* from values: a later number, but in a list, must not lose digits or zeros */
    uint8_t precision; /* DECIMAL: digits, 1..38 */
    uint8_t scale;     /* DECIMAL: digits after the point */
    uint64_t width;    /* FIXED_LIST */
    /** For a list read from text: nested lists of these lengths (-1 = any) are also accepted and flattened. */
    uint8_t dim_count; /* 0: no nested lists */
    int32_t dims[MR_FIELD_DEPTH];
    struct mr_field *item; /* LIST, FIXED_LIST; owned */
};

struct mr_schema {
    struct mr_field *fields;
    size_t count;
};

/** One column. The arrays have at least `count` entries; the entry of a null is zero, or an empty range. */
struct mr_column {
    uint64_t count;
    uint64_t nulls;       /* number of nulls */
    const uint8_t *valid; /* one bit per row, 1: not null; NULL: no nulls */
    /* STRING, BINARY, LIST: count + 1 offsets into `values` or `item`; the first may not be 0 */
    const uint64_t *begin;
    const void *values;     /* numbers, or the bytes of all strings; aligned for their type */
    struct mr_column *item; /* LIST, FIXED_LIST: count * width items, or at least begin[count] */
};

/** A row that could not be read by the schema. Its columns are null. */
struct mr_row_fault {
    uint64_t row; /* relative to the first of these rows */
    char *text;   /* names the column and the error */
};

struct mr_rows {
    const struct mr_schema *schema; /* borrowed: outlives the rows */
    uint64_t count;
    struct mr_column *columns;   /* one per field of the schema */
    struct mr_row_fault *faults; /* by ascending row, at most one per row */
    uint64_t fault_count;
    uint64_t bytes; /* of memory held */
    struct mr_rows_owner *owner;
    /* for rows from mr_source_read: their place. */
    const char *file; /* the path, valid as long as the source; NULL: rows from elsewhere */
    uint64_t first;
};

/** "I64", "LIST<F32>", "FIXED_LIST<F32>[64]" into buf, cut if too long; returns buf. */
char *mr_field_text(const struct mr_field *f, char *buf, size_t room);
static inline bool mr_column_is_integer(enum mr_column_type t)
{
    return t >= MR_COLUMN_I8 && t <= MR_COLUMN_U64;
}
/** Bytes of one value; 0 for strings, binaries and lists. */
size_t mr_column_type_bytes(enum mr_column_type type);
/** A deep copy into caller's memory. */
void mr_field_copy(struct mr_field *to, const struct mr_field *from);
void mr_field_fini(struct mr_field *f);
bool mr_field_equals(const struct mr_field *a, const struct mr_field *b);
/** Number of lists around a value: 0 for a scalar. */
size_t mr_field_levels(const struct mr_field *f);
/** Appends a copy of the field. */
void mr_schema_add(struct mr_schema *s, const struct mr_field *f);
void mr_schema_fini(struct mr_schema *s);
/** Writes a hint for errors to buf, cut if too long: "it has id, x, name", only the first if there are many, and a
 *  suggestion if one name looks like several. Returns buf. */
char *mr_schema_hint(const struct mr_schema *s, char *buf, size_t room);
/** Index of the field, -1 = no such name. */
int mr_schema_find(const struct mr_schema *s, mr_str name);

static inline bool mr_column_is_null(const struct mr_column *c, uint64_t row)
{
    return c->valid && !(c->valid[row / 8] >> row % 8 & 1);
}
/** A string or binary value; empty for a null. */
static inline mr_bytes mr_column_bytes(const struct mr_column *c, uint64_t row)
{
    return (mr_bytes){(const uint8_t *)c->values + c->begin[row],
                      c->begin[row + 1] - c->begin[row]};
}

/** Rows without data: columns all zero, one reference. The caller fills them in. NULL: no memory. */
struct mr_rows *mr_rows_new(const struct mr_schema *schema);
struct mr_rows *mr_rows_ref(struct mr_rows *r);
/** Drops a reference and nulls the pointer. Accepts NULL. Any thread. */
void mr_rows_unref(struct mr_rows **r);
/** Memory that is freed with the rows, not zeroed, aligned to 64; counted in r->bytes. NULL: no memory. */
void *mr_rows_alloc(struct mr_rows *r, size_t bytes);
/** Calls fn(ctx) when the rows are freed; adds `bytes` to r->bytes. Always takes ctx: without memory, fn is called at
 *  once, and false is returned. */
bool mr_rows_on_free(struct mr_rows *r, uint64_t bytes, void (*fn)(void *ctx), void *ctx);
/** A copy of rows [first, first + count) without faults. NULL: no memory. */
struct mr_rows *mr_rows_copy(const struct mr_rows *r, uint64_t first, uint64_t count);
/** Appends a fault, rows ascending; the text is copied. False: no memory, or too many (a million). */
bool mr_rows_fault(struct mr_rows *r, uint64_t row, const char *text);
/** The fault of a row, NULL = none. */
const char *mr_rows_fault_of(const struct mr_rows *r, uint64_t row);

/** Appends a row as in JSON lines, an object of at most about max_bytes, but as strict JSON: NaN and infinities are
 *  strings. Columns that do not fit are left out, and their names appended to out_left as JSON strings separated by
 *  commas. */
void mr_row_put_json(struct mr_buf *b, const struct mr_rows *rows, uint64_t row, size_t max_bytes,
                     struct mr_buf *out_left);

/** Appends a value that is not null as readable text: a string unchanged, any other value as in JSON, without quotes. */
void mr_value_put_text(struct mr_buf *b, const struct mr_field *f, const struct mr_column *c,
                       uint64_t row);

/** Checks rows from outside against the schema: counts, offsets (ascending and in range), bits and nulls. Costs a
 *  pass over the offsets. The caller must ensure that the value arrays are large enough. Errors: MR_E_INVALID. */
int mr_rows_check(const struct mr_rows *r, struct mr_err *err);

/* ---- building a column value by value ---- */

/** Grows a column on the heap; lists have a builder for their items. After a failed allocation appends have no
 *  effect, and finish reports the error. */
struct mr_column_builder {
    const struct mr_field *field; /* borrowed */
    uint64_t count;
    uint64_t nulls;
    uint8_t *valid;
    size_t valid_room;
    uint64_t *begin;
    size_t begin_room;
    uint8_t *values;
    uint64_t value_bytes;
    size_t value_room;
    struct mr_column_builder *item;
    bool has_failed;
};

void mr_column_builder_init(struct mr_column_builder *b, const struct mr_field *field);
void mr_column_builder_fini(struct mr_column_builder *b);
/** Drops the content; keeps the memory. */
void mr_column_builder_reset(struct mr_column_builder *b);
void mr_column_add_null(struct mr_column_builder *b);
/** Appends a value of a fixed-size type. */
void mr_column_add(struct mr_column_builder *b, const void *value);
/** STRING, BINARY. */
void mr_column_add_bytes(struct mr_column_builder *b, mr_str value);
/** Room for n more values of a fixed-size type; mr_column_took follows. NULL: no memory. */
void *mr_column_room(struct mr_column_builder *b, uint64_t n);
void mr_column_took(struct mr_column_builder *b, uint64_t n);
/** Appends rows [first, first + count) of a column of the same type. */
void mr_column_add_rows(struct mr_column_builder *b, const struct mr_column *from, uint64_t first,
                        uint64_t count);
/** LIST, FIXED_LIST: ends a row, whose items were added to b->item since the last row. The caller has checked the
 *  width. */
void mr_column_end_list(struct mr_column_builder *b);
/** Removes rows (and their items) from `count` on. */
void mr_column_cut(struct mr_column_builder *b, uint64_t count);
/** Bytes held. */
uint64_t mr_column_builder_bytes(const struct mr_column_builder *b);
/** Moves the built column into the rows as column number i; the builder is then empty and has no memory.
 *  Errors: MR_E_EXHAUSTED. */
int mr_column_builder_finish(struct mr_column_builder *b, struct mr_rows *rows, size_t i,
                             struct mr_err *err);

#endif
