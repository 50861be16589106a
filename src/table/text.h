/* What the readers of text have in common: files through a window, lines, cells. Private. */
#ifndef MR_TABLE_TEXT_H
#define MR_TABLE_TEXT_H

#include <stdatomic.h>

#include "base/map.h"
#include "codec/json.h"
#include "formats.h"

/* ---- files ---- */

#define MR_WINDOW_BIG ((size_t)4 << 20)

/** A file read forwards through a window of memory: buf[begin, end) was read and is not used up. */
struct mr_input {
    const struct mr_source_file *file; /* borrowed; NULL: none is open */
    int fd;                            /* -1: of an object */
    struct mr_s3_reader *object;       /* NULL: a file */
    bool is_stream;                    /* fd is somebody else's; cancel_fd ends a wait for it */
    int cancel_fd;
    struct mr_unpacker *unpacker; /* NULL: the file is not compressed */
    char *buf;
    size_t begin;
    size_t end;
    size_t room;
    bool is_end; /* nothing follows buf[end) */
};

/** Errors: MR_E_IO, MR_E_INVALID (the file has changed since it was found; mr_input_more tells as well at its end). */
int mr_input_open(struct mr_input *in, const struct mr_source_file *file, struct mr_s3 *s3,
                  struct mr_err *err);
/** Errors: MR_E_EXHAUSTED. */
int mr_input_open_stream(struct mr_input *in, const struct mr_source_file *file,
                         const struct mr_source_stream *stream, int cancel_fd, struct mr_err *err);
/** Of a stream: can more be read, or its end, at once, or until then (INT64_MAX: some time)? Errors: MR_E_CANCELLED,
 *  MR_E_IO. */
int mr_input_wait(const struct mr_input *in, int64_t until_ns, bool *out, struct mr_err *err);
/** All-zero is fine as well. */
void mr_input_close(struct mr_input *in);
/** Reads more behind end, or sets is_end; what is there moves to the front of the window, which grows as needed. The
 *  caller sees to it that it does not grow without bound. Errors: MR_E_IO, MR_E_INVALID, MR_E_EXHAUSTED. */
int mr_input_more(struct mr_input *in, struct mr_err *err);
/** Gives back what it grew by for a long row. Pointers into it are not valid any more. */
void mr_input_trim(struct mr_input *in);
/** Unpacks all of a compressed file, to see whether it is damaged. One that is cut off is not: what is there is right.
 *  Errors: MR_E_INVALID (says where), MR_E_IO, MR_E_EXHAUSTED, MR_E_CANCELLED. */
int mr_input_check(const struct mr_source_file *file, struct mr_s3 *s3, const atomic_bool *stop,
                   struct mr_err *err);
/** The byte order mark, if the file begins with one. */
int mr_input_skip_mark(struct mr_input *in, struct mr_err *err);

struct mr_unpacker;
#define MR_UNPACKER_MARK  4 /* bytes that tell whether a file is compressed */
#define MR_UNPACKER_FIRST ((size_t)64 << 10)
/** Puts the next bytes of a file into `out`; *out_n 0: there are no more. */
typedef int(mr_raw_read_fn)(void *ctx, void *out, size_t room, size_t *out_n, struct mr_err *err);
/** What a file unpacks to. *out NULL: it is not compressed. `first` are its first bytes, MR_UNPACKER_MARK or all of a
 *  shorter file, at most MR_UNPACKER_FIRST; the rest comes from read(ctx). Borrows path and ctx. Errors: MR_E_INVALID (its
 *  name says that it is compressed, and it is not), MR_E_EXHAUSTED. */
int mr_unpacker_new(struct mr_unpacker **out, const char *path, mr_bytes first,
                    mr_raw_read_fn *read, void *ctx, struct mr_err *err);
void mr_unpacker_free(struct mr_unpacker **u);
/** The next bytes; *out_n 0: there are no more. Errors: MR_E_IO, MR_E_INVALID (damaged or cut off: says where),
 *  MR_E_EXHAUSTED. */
int mr_unpacker_read(struct mr_unpacker *u, void *out, size_t room, size_t *out_n,
                     struct mr_err *err);
/** Has the last read failed because the file ends too early? */
bool mr_unpacker_is_cut(const struct mr_unpacker *u);

/* ---- rows ---- */

/** The text of a row, in the window until the next one is asked for. */
struct mr_text_row {
    mr_str text;
    bool is_end;   /* there is none: the file ends */
    bool is_idle;  /* a stream: there is none yet, and rows before it need not wait */
    bool is_wrong; /* it cannot be told apart from its cells on: `text` is empty, `why` says what */
    char why[200];
};

/** What the sources of text share: the file that is open, and the columns of the rows being read. A format's state
 *  begins with it. */
struct mr_text_source {
    const struct mr_text_ops *ops;
    const struct mr_source_setup *setup;
    struct mr_input in;
    size_t window_most; /* a row may be as long */
    size_t file;
    bool is_sound;            /* the file was unpacked to its end without damage */
    atomic_bool is_cancelled; /* set by any thread */
    uint64_t row;             /* that comes next */
    uint64_t row_text;        /* bytes of the longest one of late */
    uint64_t row_least;       /* bytes that each takes in the builders, whatever it says */
    uint64_t lines;           /* before it; 0: they are not counted */
    int64_t
        patience_ns; /* of a stream: the next row is waited for until then; INT64_MAX: some time */
    const struct mr_schema *schema; /* NULL: the types are being guessed */
    struct mr_column_builder *builders;
    struct mr_map columns;   /* of the schema: name -> index + 1 */
    struct mr_arena scratch; /* for one row */
};

struct mr_text_ops {
    const char *name; /* "JSON lines" */
    /** The file was opened; `out` not NULL: its columns are asked for as well, as far as they are told. May be NULL. */
    int (*head)(struct mr_text_source *s, struct mr_schema *out, struct mr_err *err);
    /** Goes to the next row. Errors are those of the file. */
    int (*next)(struct mr_text_source *s, struct mr_text_row *out, struct mr_err *err);
    /** Joins what a row tells about the types to the columns. Errors: MR_E_EXHAUSTED and MR_E_UNSUPPORTED; any other is
     *  what is wrong with the row. */
    int (*guess)(struct mr_text_source *s, mr_str text, struct mr_schema *io, struct mr_err *err);
    /** Adds the row to all builders, a null where it has nothing. Errors: MR_E_EXHAUSTED; any other is what is wrong
     *  with the row, in *out_column, -1: as a whole. */
    int (*parse)(struct mr_text_source *s, mr_str text, int *out_column, struct mr_err *err);
};

#define MR_TEXT_COLUMNS 16384 /* most of them in a file */

void mr_text_source_init(struct mr_text_source *s, const struct mr_text_ops *ops,
                         const struct mr_source_setup *setup);
void mr_text_source_fini(struct mr_text_source *s);
/** mr_input_more for `next`, which returns when it has set out->is_idle, and is asked again for the same row. */
int mr_text_source_more(struct mr_text_source *s, struct mr_text_row *out, struct mr_err *err);
/* As those of struct mr_source_ops. */
int mr_text_source_schema(struct mr_text_source *s, size_t file, struct mr_schema *out,
                          struct mr_err *err);
int mr_text_source_begin(struct mr_text_source *s, const struct mr_schema *schema,
                         struct mr_err *err);
int mr_text_source_read(struct mr_text_source *s, size_t file, uint64_t first, uint64_t max_rows,
                        uint64_t max_bytes, struct mr_rows **out, struct mr_err *err);
uint64_t mr_text_source_bytes(const void *source);
void mr_text_source_cancel(void *source);

/* ---- cells ---- */

/** A row of a column from a JSON value that is not null. On failure j->status and its err say why; the builder may hold
 *  a part of the row then. MR_E_EXHAUSTED: no memory; any other: the value does not fit. Without memory for the column
 *  itself its builder tells at the end, as for all appends. */
int mr_cell_json(struct mr_json *j, struct mr_column_builder *b);
/** A row of a column from the text of a cell: numbers with white space around them, `true` and `false` in any case, 1
 *  and 0; a list is JSON. Errors: as above, in err. */
int mr_cell_text(struct mr_column_builder *b, mr_str text, struct mr_arena *scratch,
                 struct mr_err *err);
/** A row of a column of numbers. False: it is none, or the number does not fit; nothing was added. */
bool mr_cell_whole(struct mr_column_builder *b, int64_t v);
bool mr_cell_real(struct mr_column_builder *b, double v);
/** Whether columns can have that type. Errors: MR_E_UNSUPPORTED, MR_E_INVALID (lists wider than max_cell_bytes);
 *  names the column. */
int mr_cell_check(const struct mr_field *f, uint64_t max_cell_bytes, struct mr_err *err);
/** Joins what the next value tells to what is known of its column; MR_COLUMN_NONE: nothing yet. False: j->status. */
bool mr_guess_json(struct mr_json *j, struct mr_field *io);
/** The same of the text of a cell. */
void mr_guess_text(mr_str text, struct mr_field *io, struct mr_arena *scratch);

/* ---- writing ---- */

struct mr_packer;
/** Compresses into a file as the options say. *out NULL: not with MR_COMPRESSION_NONE. Errors: MR_E_EXHAUSTED. */
int mr_packer_new(struct mr_packer **out, int fd, const struct mr_writer_options *options,
                  struct mr_err *err);
void mr_packer_free(struct mr_packer **p);
/** Errors: MR_E_IO, MR_E_EXHAUSTED. */
int mr_packer_write(struct mr_packer *p, mr_bytes data, bool is_last, struct mr_err *err);
uint64_t mr_packer_written(const struct mr_packer *p);

/** Text on its way to a file. Append to `text`; call mr_out_row between rows. */
struct mr_out {
    struct mr_buf text;
    int fd;
    struct mr_no_room no_room;
    struct mr_packer *packer; /* NULL: as it is */
    uint64_t written;
};

/** Errors: MR_E_EXHAUSTED; fini is fine then. */
int mr_out_init(struct mr_out *o, int fd, const struct mr_writer_options *options,
                struct mr_err *err);
void mr_out_fini(struct mr_out *o);
/** Writes what is held when it is much. Errors: MR_E_IO, MR_E_EXHAUSTED. */
int mr_out_row(struct mr_out *o, struct mr_err *err);
/** Writes what is held; the text goes on. */
int mr_out_flush(struct mr_out *o, struct mr_err *err);
/** Writes all that is left. */
int mr_out_finish(struct mr_out *o, struct mr_err *err);
/** Of the file, with what is held. */
uint64_t mr_out_bytes(const struct mr_out *o);

/** A value that is not null and neither a list nor a string, without quotes. */
void mr_put_scalar(struct mr_buf *b, const struct mr_field *f, const struct mr_column *c,
                   uint64_t row);
/** A value of any type as JSON, but for NaN and infinities, which are bare. */
void mr_put_json(struct mr_buf *b, const struct mr_field *f, const struct mr_column *c,
                 uint64_t row);
/** The same as strict JSON: NaN and infinities are strings. */
void mr_put_json_strict(struct mr_buf *b, const struct mr_field *f, const struct mr_column *c,
                        uint64_t row);

#endif
