/* Shared by the readers of text: rows as lines, and their types. Private. */
#ifndef MR_TABLE_TEXT_H
#define MR_TABLE_TEXT_H

#include <stdatomic.h>

#include "base/map.h"
#include "codec/json.h"
#include "table/io/io.h"
#include "table/rows/formats.h"

/** The text of a row, in the window; valid until the next call. */
struct mr_text_row {
    mr_str text;
    bool is_end;   /* the end of the file */
    bool is_idle;  /* a stream: no row yet; earlier rows need not wait */
    bool is_wrong; /* the row cannot be split into cells: `text` is empty, `why` has the error */
    char why[200];
};

/** Shared by the sources of text: the open file, and the columns being read. A format's state begins with it. */
struct mr_text_source {
    const struct mr_text_ops *ops;
    const struct mr_source_setup *setup;
    struct mr_input in;
    size_t window_most; /* the limit of a row */
    size_t file;
    bool is_sound;            /* the file was decompressed to its end without damage */
    atomic_bool is_cancelled; /* set by any thread */
    uint64_t row;             /* the next one */
    uint64_t row_text;        /* bytes of the longest recent row */
    uint64_t row_least;       /* least bytes of a row in the builders */
    uint64_t lines;           /* before the next row; 0: not counted */
    /* for a stream: how long to wait for the next row; INT64_MAX: without limit */
    int64_t patience_ns;
    const struct mr_schema *schema; /* NULL: while types are guessed */
    struct mr_column_builder *builders;
    struct mr_map columns;   /* of the schema: name -> index + 1 */
    struct mr_arena scratch; /* for one row */
};

struct mr_text_ops {
    const char *name; /* "JSON lines" */
    /** (optional) Called when the file is opened; `out` not NULL: also appends its columns, if the file names them. */
    int (*head)(struct mr_text_source *s, struct mr_schema *out, struct mr_err *err);
    /** Goes to the next row. Errors are those of the file. */
    int (*next)(struct mr_text_source *s, struct mr_text_row *out, struct mr_err *err);
    /** Joins the types of a row to the columns. Errors: MR_E_EXHAUSTED and MR_E_UNSUPPORTED; any other is a fault of
     *  the row. */
    int (*guess)(struct mr_text_source *s, mr_str text, struct mr_schema *io, struct mr_err *err);
    /** Adds the row to all builders, with a null for a missing value. Errors: MR_E_EXHAUSTED; any other is a fault of
     *  the row, in column *out_column (-1: the whole row). */
    int (*parse)(struct mr_text_source *s, mr_str text, int *out_column, struct mr_err *err);
};

#define MR_TEXT_COLUMNS 16384 /* most columns of a file */

void mr_text_source_init(struct mr_text_source *s, const struct mr_text_ops *ops,
                         const struct mr_source_setup *setup);
void mr_text_source_fini(struct mr_text_source *s);
/** mr_input_more for `next`. If it sets out->is_idle, `next` returns and is called again for the same row. */
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

/* ---- types ---- */

/** Joins the type of the next value to the column's type so far (MR_COLUMN_NONE: none). False: error in j->status. */
bool mr_guess_json(struct mr_json *j, struct mr_field *io);
/** The same for the text of a cell. */
void mr_guess_text(mr_str text, struct mr_field *io, struct mr_arena *scratch);

/* ---- formats ---- */

extern const struct mr_source_ops mr_csv_source_ops;
extern const struct mr_writer_ops mr_csv_writer_ops;
extern const struct mr_source_ops mr_jsonl_source_ops;
extern const struct mr_writer_ops mr_jsonl_writer_ops;

#endif
