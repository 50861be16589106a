/* What the formats have in common, and their tables of functions. Private. */
#ifndef MR_TABLE_FORMATS_H
#define MR_TABLE_FORMATS_H

#include "table/table.h"

/** A format's writer: the functions of table.h over a state that `open` makes. */
struct mr_writer_ops {
    int (*open)(void **out, int fd, const struct mr_schema *schema,
                const struct mr_writer_options *options, struct mr_err *err);
    int (*put)(void *w, const struct mr_rows *rows, uint64_t first, uint64_t count,
               struct mr_err *err);
    int (*flush)(void *w, struct mr_err *err); /* NULL: it cannot */
    uint64_t (*bytes)(const void *w);
    int (*finish)(void *w, struct mr_err *err);
    void (*free)(void *w);
};

/** What a format's source is opened with. The files are found; the rest of the options is as given, with the defaults
 *  put in. All of it outlives the state. */
struct mr_source_setup {
    struct mr_source_file *files; /* sorted; a format may fill in `rows` once it knows them */
    size_t file_count;
    const struct mr_source_options *options;
    struct mr_s3 *s3; /* NULL: there are no objects among them */
    int cancel_fd;    /* of a stream: readable once nobody wants more of it */
};

/** A format's source: one state for all files. source.c finds the files, compares their schemas, picks the columns and
 *  casts them as wanted where the types are guessed. */
struct mr_source_ops {
    int (*open)(void **out, const struct mr_source_setup *setup, struct mr_err *err);
    /** The columns of one file as they lie there, in the file's order; a later call may be about another file. Where
     *  types are guessed, MR_COLUMN_NONE is a column or item of which nothing but nulls was seen, and a file that has
     *  no row and says nothing about its columns has none. */
    int (*schema)(void *s, size_t file, struct mr_schema *out, struct mr_err *err);
    /** Once, after the schemas and before the first read: the columns that rows are to have. They are among those of
     *  the files that are not left out, by name; borrowed. Errors: MR_E_UNSUPPORTED (a type that cannot be read; names the column). */
    int (*begin)(void *s, const struct mr_schema *schema, struct mr_err *err);
    /** As mr_source_read; max_rows and max_bytes are at least 1. */
    int (*read)(void *s, size_t file, uint64_t first, uint64_t max_rows, uint64_t max_bytes,
                struct mr_rows **out, struct mr_err *err);
    void (*close)(void *s);
    /** As mr_source_cancel, on any thread. NULL: reads never wait. */
    void (*cancel)(void *s);
    /** Types are guessed from the first rows: `wanted` says otherwise by name, files may lack columns of others, and
     *  whole numbers in one file go with fractions in another. Otherwise `wanted` is for `schema` to look at, and numbers
     *  of a file may be narrower than those of the schema that `begin` gets. */
    bool is_guessed;
    /** As mr_source_bytes. NULL: next to nothing. */
    uint64_t (*bytes)(const void *s);
    bool skips_columns; /* those of a file that rows do not have cost nothing */
    /** As mr_source_row_after. NULL: nothing can be read behind damage. */
    uint64_t (*row_after)(const void *s, size_t file, uint64_t row);
};

/** The first file that is not left out. */
size_t mr_first_good_file(const struct mr_source_setup *setup);

#endif
