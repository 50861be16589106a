/* What the readers of text have in common: rows that are lines, and their types. Private. */
#ifndef MR_TABLE_TEXT_H
#define MR_TABLE_TEXT_H

#include <stdatomic.h>

#include "base/map.h"
#include "codec/json.h"
#include "table/io/io.h"
#include "table/rows/formats.h"

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

/* ---- types ---- */

/** Joins what the next value tells to what is known of its column; MR_COLUMN_NONE: nothing yet. False: j->status. */
bool mr_guess_json(struct mr_json *j, struct mr_field *io);
/** The same of the text of a cell. */
void mr_guess_text(mr_str text, struct mr_field *io, struct mr_arena *scratch);

/* ---- formats ---- */

extern const struct mr_source_ops mr_csv_source_ops;
extern const struct mr_writer_ops mr_csv_writer_ops;
extern const struct mr_source_ops mr_jsonl_source_ops;
extern const struct mr_writer_ops mr_jsonl_writer_ops;

#endif
