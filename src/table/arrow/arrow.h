/* Arrow IPC: messages, their schema and their record batches. Private.
 * Source: arrow.apache.org/docs/format/Columnar.html, and format/{Schema,Message,File}.fbs of Apache Arrow.
 *
 * A message is a FlatBuffer and a body. A record batch's FlatBuffer gives the places of its columns' buffers in the
 * body; columns are nodes, numbered in the order of a walk over the schema, parents first. None of it is trusted:
 * each access to a buffer is checked (arrow_fetch), and columns are only read through it. */
#ifndef MR_TABLE_ARROW_H
#define MR_TABLE_ARROW_H

#include "arrow_flat.h"
#include "table/merge.h"
#include "table/rows/formats.h"

#define ARROW_MAGIC       "ARROW1\0"
#define ARROW_MAGIC_BYTES 8 /* at the start of a file, with padding; 6 at its end */
#define ARROW_NESTING     64
#define ARROW_FIELDS      65536 /* limit of all fields, nested ones included */

enum { ARROW_VERSION_4 = 3, ARROW_VERSION_5 = 4 };
enum { ARROW_LZ4 = 0, ARROW_ZSTD = 1 };
enum arrow_kind { ARROW_SCHEMA = 1, ARROW_DICTIONARY = 2, ARROW_BATCH = 3 };

/* The format's numbers. */
enum arrow_type {
    ARROW_NULL = 1,
    ARROW_INT,
    ARROW_FLOAT,
    ARROW_BINARY,
    ARROW_UTF8,
    ARROW_BOOL,
    ARROW_DECIMAL,
    ARROW_DATE,
    ARROW_TIME,
    ARROW_TIMESTAMP,
    ARROW_INTERVAL,
    ARROW_LIST,
    ARROW_STRUCT,
    ARROW_UNION,
    ARROW_FIXED_BINARY,
    ARROW_FIXED_LIST,
    ARROW_MAP,
    ARROW_DURATION,
    ARROW_LARGE_BINARY,
    ARROW_LARGE_UTF8,
    ARROW_LARGE_LIST,
    ARROW_RUN_END,
    ARROW_BINARY_VIEW,
    ARROW_UTF8_VIEW,
    ARROW_LIST_VIEW,
    ARROW_LARGE_LIST_VIEW,
    ARROW_TYPES
};

/* ---- arrow_schema.c ---- */

struct arrow_field {
    char *name;
    enum arrow_type type;
    enum mr_column_type column; /* the type of the column; NONE: unsupported */
    uint8_t bits;               /* of a number or an offset */
    uint8_t precision;
    uint8_t scale;
    bool is_dense;       /* UNION */
    int64_t time_factor; /* to the unit of columns; below zero: divisor */
    uint64_t width;      /* FIXED_BINARY: bytes; FIXED_LIST: items */
    /* the type above is that of the dictionary's values; batches have indexes */
    bool is_dictionary;
    int64_t dictionary; /* its id */
    uint8_t index_bits; /* of an index */
    bool index_is_signed;
    uint32_t node;
    struct arrow_field *items;
    uint32_t item_count;
};

struct arrow_schema {
    struct arrow_field *fields;
    uint32_t count;
    uint32_t nodes;
};

/** Parses the table Schema of a message of this version. Errors: MR_E_INVALID, MR_E_UNSUPPORTED; fini is allowed
 *  after them. */
int arrow_schema_parse(struct arrow_schema *out, const struct flat_table *schema, int version,
                       struct mr_err *err);
void arrow_schema_fini(struct arrow_schema *s);
/** The field as a column of rows, into caller's memory. The type (or an item's type) is NONE if unsupported. */
void arrow_field_column(const struct arrow_field *f, struct mr_field *out);
const char *arrow_type_name(const struct arrow_field *f);
/** Number of buffers of its node, without those of views. */
unsigned arrow_buffers_of(const struct arrow_field *f);
static inline bool arrow_is_view(const struct arrow_field *f)
{
    return !f->is_dictionary && (f->type == ARROW_UTF8_VIEW || f->type == ARROW_BINARY_VIEW);
}

/* ---- arrow_message.c ---- */

struct arrow_message {
    struct flat flat; /* points to the metadata */
    enum arrow_kind kind;
    int version;
    struct flat_table header;
    uint64_t body_bytes;
};

/** Parses metadata, which must stay valid. Errors: MR_E_INVALID, MR_E_UNSUPPORTED. */
int arrow_message_parse(struct arrow_message *out, mr_bytes metadata, struct mr_err *err);

struct arrow_node {
    uint64_t rows;
    uint64_t nulls;
    uint32_t buffer; /* the first one */
    uint32_t views;  /* further buffers, of views */
};

struct arrow_buffer {
    uint64_t at; /* in the body */
    uint64_t bytes;
    uint8_t *unpacked; /* owned; NULL: not yet, or it is not compressed */
    uint64_t unpacked_bytes;
};

struct arrow_batch {
    struct arrow_batch *next; /* for its owner */
    uint64_t rows;
    struct arrow_node *nodes;
    uint32_t node_count;
    struct arrow_buffer *buffers;
    uint32_t buffer_count;
    int codec; /* -1: not compressed */
    int fd;    /* the file with the body, … */
    uint64_t body_at;
    uint8_t *body; /* … or the body; owned */
    uint64_t body_bytes;
    uint64_t held; /* memory of the body and of unpacked buffers */
    uint64_t held_most;
};

/** A record batch of these fields from the table RecordBatch. The caller sets the place of the body. Errors:
 *  MR_E_INVALID. */
int arrow_batch_new(struct arrow_batch **out, const struct flat_table *header,
                    const struct arrow_field *fields, uint32_t count, uint32_t nodes,
                    uint64_t body_bytes, struct mr_err *err);
void arrow_batch_free(struct arrow_batch **b);
/** Bytes [from, from + bytes) of a buffer, unpacked. Errors: MR_E_INVALID (out of range, damage), MR_E_EXHAUSTED,
 *  MR_E_UNSUPPORTED (the compression), MR_E_IO. */
int arrow_fetch(struct arrow_batch *b, uint32_t buffer, uint64_t from, uint64_t bytes, void *to,
                struct mr_err *err);

/* ---- arrow_dictionary.c ---- */

struct arrow_dictionary {
    int64_t id;
    struct arrow_field plain; /* the field of the values; its name is borrowed */
    struct mr_field field;
    struct mr_column_builder values;
};

struct arrow_dictionaries {
    struct arrow_dictionary *at;
    size_t count;
    uint64_t bytes_most;
};

/** Adds the dictionaries that a field needs. Errors: MR_E_UNSUPPORTED (dictionaries of lists), MR_E_INVALID; both
 *  name the column. */
int arrow_dictionaries_add(struct arrow_dictionaries *d, const struct arrow_field *f,
                           struct mr_err *err);
void arrow_dictionaries_fini(struct arrow_dictionaries *d);
/** Empties all. */
void arrow_dictionaries_reset(struct arrow_dictionaries *d);
struct arrow_dictionary *arrow_dictionary_find(const struct arrow_dictionaries *d, int64_t id);
/** True if a column that is read needs the dictionary in the message. */
bool arrow_dictionary_is_needed(const struct arrow_dictionaries *d, const struct arrow_message *m);
/** Replaces the dictionary by the message's values or, for a delta, appends them. The place of the body is taken from
 *  `where`. Errors: as arrow_batch_new and arrow_fetch. */
int arrow_dictionary_take(struct arrow_dictionaries *d, const struct arrow_message *m,
                          const struct arrow_batch *where, struct mr_err *err);

/* ---- arrow_column.c ---- */

/** Rows of a batch; batch NULL: null rows. */
struct arrow_slice {
    struct arrow_batch *batch;
    uint64_t first;
    uint64_t count;
};

struct arrow_slices {
    struct arrow_slice *at;
    size_t len;
    size_t cap;
};
/** Appends rows, to the last slice if they follow it. False: no memory. */
bool arrow_slices_add(struct arrow_slices *s, struct arrow_batch *batch, uint64_t first,
                      uint64_t count);

/** A row that cannot be read, by its number in the slices. */
struct arrow_bad {
    uint64_t row;
    const char *why; /* static */
};

struct arrow_bads {
    struct arrow_bad *at;
    size_t len;
    size_t cap;
};

struct arrow_reading {
    struct mr_rows *rows; /* provide the memory */
    const struct arrow_dictionaries *dictionaries;
    struct arrow_bads bads;
    struct mr_err *err;
};
/** Makes a column from the rows of all slices. Bad rows are appended to bads, ascending; their entries in the column
 *  are undefined. */
int arrow_column_read(struct arrow_reading *x, const struct arrow_field *f,
                      const struct mr_field *to, const struct arrow_slices *s,
                      struct mr_column *out);
/** Converts the numbers of a column to the type `to`, which is as wide or wider. Errors: MR_E_EXHAUSTED. */
int arrow_column_widen(struct arrow_reading *x, const struct arrow_field *f,
                       const struct mr_field *to, struct mr_column *c);
/** Bytes that rows of a field will take. Makes few accesses, as it is called often. */
int arrow_weight(const struct arrow_dictionaries *d, const struct arrow_field *f,
                 struct arrow_batch *b, uint64_t first, uint64_t count, uint64_t *out,
                 struct mr_err *err);

/* ---- arrow_file.c ---- */

struct arrow_block {
    uint64_t at;
    uint64_t first_row; /* in the file; for a dictionary: of the next batch */
    uint64_t rows;
    bool is_dictionary;
};

/** A file of either kind, and the places of its messages. */
struct arrow_file {
    const struct mr_source_file *file; /* borrowed; NULL: none is open */
    int fd;
    uint64_t bytes; /* of messages, before the footer */
    struct arrow_schema schema;
    struct arrow_block *blocks; /* dictionaries before the batches that use them */
    size_t count;
    size_t room;
    uint64_t rows;
    uint64_t metadata_most;
};
/** Errors: MR_E_IO, MR_E_INVALID (damage; the file has changed), MR_E_UNSUPPORTED; all name the file. */
int arrow_file_open(struct arrow_file *f, const struct mr_source_file *file, uint64_t memory_bytes,
                    struct mr_err *err);
/** The same for a descriptor, which it always takes. */
int arrow_file_scan(struct arrow_file *f, int fd, const struct mr_source_file *file,
                    uint64_t memory_bytes, struct mr_err *err);
/** Accepts an all-zero struct. */
void arrow_file_close(struct arrow_file *f);
/** Reads the message at an offset of the file: its metadata into `buf`, and the offsets of its body and of the next
 *  message. *out_is_end: it is the end mark, or the file ends. */
int arrow_file_message(const struct arrow_file *f, uint64_t at, struct mr_buf *buf,
                       struct arrow_message *out, uint64_t *out_body_at, bool *out_is_end,
                       struct mr_err *err);

/* ---- arrow_pipe.c ---- */

struct arrow_pipe;
void arrow_pipe_new(struct arrow_pipe **out, const struct mr_source_setup *setup);
void arrow_pipe_free(struct arrow_pipe **p);
enum arrow_pipe_state { ARROW_PIPE_MESSAGE, ARROW_PIPE_IDLE, ARROW_PIPE_END };
/** The next message; *out is valid until the next call. Waits until until_ns (INT64_MAX: without limit) and keeps an
 *  incomplete message. Errors: MR_E_INVALID, MR_E_EXHAUSTED, MR_E_CANCELLED, MR_E_IO. */
int arrow_pipe_next(struct arrow_pipe *p, int64_t until_ns, enum arrow_pipe_state *out_state,
                    const struct arrow_message **out, struct mr_err *err);
/** The body of that message; the caller frees it. */
uint8_t *arrow_pipe_body(struct arrow_pipe *p);

/* ---- arrow_put.c: metadata, into an empty buffer, whose `failed` reports lack of memory ---- */

/** A node (rows, nulls) or a buffer (place in the body, bytes), in the format of messages. */
struct arrow_pair {
    int64_t first;
    int64_t second;
};

/** The same for a footer. */
struct arrow_footer_block {
    int64_t at;
    int32_t metadata_bytes; /* with their prefix */
    int32_t padding;
    int64_t body_bytes;
};

void arrow_put_schema(struct mr_buf *b, const struct mr_schema *schema);
void arrow_put_batch(struct mr_buf *b, uint64_t rows, const struct arrow_pair *nodes,
                     uint32_t node_count, const struct arrow_pair *buffers, uint32_t buffer_count,
                     bool is_zstd, uint64_t body_bytes);
void arrow_put_footer(struct mr_buf *b, const struct mr_schema *schema,
                      const struct arrow_footer_block *blocks, uint32_t count);

/* ---- arrow_write.c ---- */

/** Writes the end mark and the footer. Errors: those of mr_writer_put. */
int arrow_end_write(int fd, const struct mr_schema *schema, const struct arrow_footer_block *blocks,
                    size_t count, const struct mr_no_room *no_room, uint64_t *out_bytes,
                    struct mr_err *err);

/* ---- the format ---- */

extern const struct mr_source_ops mr_arrow_source_ops;
extern const struct mr_writer_ops mr_arrow_writer_ops;
/** As mr_table_merge. */
int arrow_merge(const struct mr_merge_part *parts, size_t count, int out, struct mr_err *err);

#endif
