/* What the readers of text have in common: files through a window, lines, cells. Private. */
#ifndef MR_TABLE_TEXT_H
#define MR_TABLE_TEXT_H

#include "codec/json.h"
#include "formats.h"

/* ---- files ---- */

/** A file read forwards through a window of memory: buf[begin, end) was read and is not used up. */
struct mr_input {
    const struct mr_source_file *file; /* borrowed; NULL: none is open */
    int fd;
    char *buf;
    size_t begin;
    size_t end;
    size_t room;
    bool is_end; /* nothing follows buf[end) */
};

/** Errors: MR_E_IO, MR_E_INVALID (the file has changed since it was found; mr_input_more tells as well at its end). */
int mr_input_open(struct mr_input *in, const struct mr_source_file *file, struct mr_err *err);
/** All-zero is fine as well. */
void mr_input_close(struct mr_input *in);
/** Reads more behind end, or sets is_end; what is there moves to the front of the window, which grows as needed. The
 *  caller sees to it that it does not grow without bound. Errors: MR_E_IO, MR_E_INVALID, MR_E_EXHAUSTED. */
int mr_input_more(struct mr_input *in, struct mr_err *err);
/** The byte order mark, if the file begins with one. */
int mr_input_skip_mark(struct mr_input *in, struct mr_err *err);

/* ---- cells ---- */

/** A row of a column from a JSON value that is not null. On failure j->status and its err say why; the builder may hold
 *  a part of the row then. MR_E_EXHAUSTED: no memory; any other: the value does not fit. Without memory for the column
 *  itself its builder tells at the end, as for all appends. */
int mr_cell_json(struct mr_json *j, struct mr_column_builder *b);
/** Whether columns can have that type. Errors: MR_E_UNSUPPORTED, MR_E_INVALID (lists wider than max_cell_bytes);
 *  names the column. */
int mr_cell_check(const struct mr_field *f, uint64_t max_cell_bytes, struct mr_err *err);
/** Joins what the next value tells to what is known of its column; MR_COLUMN_NONE: nothing yet. False: j->status. */
bool mr_guess_json(struct mr_json *j, struct mr_field *io);

/* ---- writing ---- */

/** Text on its way to a file. Append to `text`; call mr_out_row between rows. */
struct mr_out {
    struct mr_buf text;
    int fd;
    uint64_t written;
};

void mr_out_init(struct mr_out *o, int fd);
void mr_out_fini(struct mr_out *o);
/** Writes what is held when it is much. Errors: MR_E_IO, MR_E_EXHAUSTED. */
int mr_out_row(struct mr_out *o, struct mr_err *err);
/** Writes all that is left. */
int mr_out_finish(struct mr_out *o, struct mr_err *err);
/** Of the file, with what is held. */
uint64_t mr_out_bytes(const struct mr_out *o);

/** A value that is not null and neither a list nor a string, without quotes. */
void mr_put_scalar(struct mr_buf *b, const struct mr_field *f, const struct mr_column *c,
                   uint64_t row);
/** A value of any type as JSON. */
void mr_put_json(struct mr_buf *b, const struct mr_field *f, const struct mr_column *c,
                 uint64_t row);

#endif
