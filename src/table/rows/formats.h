/* Shared by the formats, and their tables of functions. Private. */
#ifndef MR_TABLE_FORMATS_H
#define MR_TABLE_FORMATS_H

#include "table/table.h"

/** A format's writer: the functions of table.h over a state that `open` makes. */
struct mr_writer_ops {
    int (*open)(void **out, int fd, const struct mr_schema *schema,
                const struct mr_writer_options *options, struct mr_err *err);
    int (*put)(void *w, const struct mr_rows *rows, uint64_t first, uint64_t count,
               struct mr_err *err);
    int (*flush)(void *w, struct mr_err *err); /* NULL: not possible */
    uint64_t (*bytes)(const void *w);
    int (*finish)(void *w, struct mr_err *err);
    void (*free)(void *w);
};

/** The input of a format's source: the files found, and the options with defaults filled in. It outlives the state. */
struct mr_source_setup {
    struct mr_source_file *files; /* sorted; a format may set `rows` when it knows them */
    size_t file_count;
    const struct mr_source_options *options;
    struct mr_s3 *s3; /* NULL: no objects */
    int cancel_fd;    /* for a stream: readable once the source is cancelled */
};

/** A format's source: one state for all files. source.c finds the files, compares their schemas, picks the columns and
 *  casts guessed types as wanted. */
struct mr_source_ops {
    int (*open)(void **out, const struct mr_source_setup *setup, struct mr_err *err);
    /** The columns of one file, in the file's order; a later call may be for another file. With guessed types,
     *  MR_COLUMN_NONE is a column or item with only nulls so far, and a file without rows and names has no columns. */
    int (*schema)(void *s, size_t file, struct mr_schema *out, struct mr_err *err);
    /** Called once, after the schemas and before the first read, with the columns of the rows: a subset, by name, of
     *  those of the files that are not skipped; borrowed. Errors: MR_E_UNSUPPORTED (a type that cannot be read; names
     *  the column). */
    int (*begin)(void *s, const struct mr_schema *schema, struct mr_err *err);
    /** As mr_source_read; max_rows and max_bytes are at least 1. */
    int (*read)(void *s, size_t file, uint64_t first, uint64_t max_rows, uint64_t max_bytes,
                struct mr_rows **out, struct mr_err *err);
    void (*close)(void *s);
    /** As mr_source_cancel, on any thread. NULL: reads never wait. */
    void (*cancel)(void *s);
    /** Types are guessed from the first rows: `wanted` overrides them by name, files may lack columns of others, and
     *  whole numbers in one file match fractions in another. Otherwise `schema` may use `wanted`, and numbers of a
     *  file may be narrower than those of the schema for `begin`. */
    bool is_guessed;
    /** With is_guessed: a file that has columns at all names each of them, so that all columns in `columns`, or in
     *  `wanted` with reads_wanted_only, must be there. */
    bool names_columns;
    /** As mr_source_bytes. NULL: negligible. */
    uint64_t (*bytes)(const void *s);
    bool skips_columns; /* columns of a file that are not read cost nothing */
    /** As mr_source_row_after. NULL: nothing can be read after damage. */
    uint64_t (*row_after)(const void *s, size_t file, uint64_t row);
};

/** The first file that is not skipped. */
size_t mr_first_good_file(const struct mr_source_setup *setup);

#endif
