/* Tables: files and databases that rows come from and go to.
 *
 * A source is a list of files of one schema, read row range by row range: a range is (file, first row, count), which
 * means the same rows as long as the file does not change. Reading forwards is what a source is made for; going back
 * may cost reading from the begin.
 * Files of text may be compressed with gzip or zstd, which is known by their first bytes.
 *
 * A writer makes one file whole. Whoever wants rows to appear at once and for good writes under another name, syncs
 * and renames; a writer never renames.
 *
 * Thread: one at a time for each source and each writer. */
#ifndef MR_TABLE_TABLE_H
#define MR_TABLE_TABLE_H

#include "table/rows.h"

enum mr_table_format {
    MR_TABLE_AUTO =
        0, /* by the name: .jsonl .ndjson .json .csv .tsv .parquet .arrow .arrows .feather, and .gz or .zst behind text */
    MR_TABLE_JSONL, /* an object a line; rows lack members as they like: nulls */
    /** A record a line (RFC 4180), the first one with the names of the columns; one without a name is column0, column1,
     *  … by its place. An empty cell is a null, `""` an empty text; lists are JSON in their cell. An empty line is no
     *  row, but in a table of one column, where it is a null. Read and written are LF, read is CR LF as well. */
    MR_TABLE_CSV,
    MR_TABLE_PARQUET,
    /** IPC, read as a file (with a footer) or as a stream, which the first bytes tell. A name that is used twice, and a
     *  type that rows do not have, are errors. */
    MR_TABLE_ARROW
};

/** "jsonl", … Static. */
const char *mr_table_format_name(enum mr_table_format f);
/** By option text ("jsonl") or, for a path, by its end. MR_TABLE_AUTO: unknown. */
enum mr_table_format mr_table_format_of(mr_str name_or_path);

/* ---- sources ---- */

struct mr_s3_options; /* s3/s3.h */

/** A pipe or anything else that is read once, from where it is. */
struct mr_source_stream {
    int fd;            /* borrowed, as is this, for as long as the source lives */
    mr_str first;      /* what was read of it already */
    int64_t linger_ns; /* a read that has a row waits for more of them so long, not for ever */
};

struct mr_source_options {
    const char *const *
        paths; /* files, folders (all files of the format below, by name), and patterns (* ? [ ]); the same of s3:// */
    size_t path_count;
    /** SQL of DuckDB instead of paths: a source of one file named "query", whose rows have the order that the query
     *  gives them. Whoever comes back to them needs a query that always gives the same rows. Where the only path is a
     *  database (see mr_database_kind_of), SQL of that, with an ORDER BY. NULL: none. */
    const char *query;
    /** Instead of a query: a table of the database that is the only path, in the order of its keys. */
    const char *table;
    int64_t outage_ns; /* how long a database that cannot be reached any more is waited for */
    /** Database to which rows are committed while these are read; a source that would keep it locked is MR_E_INVALID. NULL:
     *  none. */
    const char *sink;
    /** Asked five times a second while PostgreSQL is waited for: true ends it with MR_E_CANCELLED. NULL: never. */
    bool (*is_stopped)(void *ctx);
    void *ctx;
    /** JSONL, CSV or ARROW instead of paths: a source of one file named "stdin", that is read forwards and not unpacked.
     *  Its columns are those of `wanted`; nothing is guessed from rows, which may come late. In text, one without a type is
     *  taken as it is: JSON of any kind (see mr_field.is_json), in CSV text. In Arrow the stream tells the types. NULL:
     *  none. */
    const struct mr_source_stream *stream;
    enum mr_table_format format;
    /** How objects of S3 ("s3://bucket/key" among the paths) are reached; borrowed for the call. NULL: as the environment
     *  says. */
    const struct mr_s3_options *s3;
    /** Folder for what of Parquet objects is being read, at most the columns wanted of one object, in files that go by
     *  themselves. NULL: TMPDIR, or /var/tmp. Borrowed for the call. */
    const char *spool;
    const char *const *columns; /* those wanted, in the order wanted; count 0: all */
    size_t column_count;
    /** What a column is to be read as where the format leaves it open (JSONL, CSV) or where a cast costs nothing.
     *  Names that the table does not have are passed over, and fields without a type. NULL: as found. */
    const struct mr_schema *wanted;
    /** Columns that are not among `wanted` are not read where that saves something: of Parquet files that are no objects,
     *  unless `columns` says what is read, or the files have none that is wanted. See mr_source_whole. */
    bool reads_wanted_only;
    /** Files that cannot be opened, or lack a column that is wanted, count as files without rows, if there are others.
     *  Otherwise they are errors. */
    bool skips_bad_files;
    uint64_t max_cell_bytes; /* 0: 64 MiB. A larger one is a fault of its row, without its bytes */
    char delimiter;          /* CSV; 0: a comma, or a tab for .tsv */
    bool has_no_header;      /* CSV: columns are column0, column1, … */
    uint64_t memory_bytes;   /* what reading may take besides the rows; 0: 256 MiB */
    uint32_t threads;        /* that reading may use; 0: one */
};

struct mr_source_file {
    const char *path;
    uint64_t bytes;
    int64_t mtime_ns;
    int64_t rows;     /* -1: not known before it was read */
    const char *etag; /* of an object of S3, owned as the path is; NULL: something else */
    /** Of a database or an object, in the place of bytes and time: JSON by which a change is noticed, owned as the path is; NULL: a file. */
    const char *state;
    /** Why it is left out (skips_bad_files), owned as the path is; NULL: it is read. */
    const char *bad;
};

/* ---- databases ---- */

/** "sqlite:FILE" and "postgresql://…" (or "postgres://…", as of libpq) are no files. Their libraries are loaded when one
 *  is opened. */
enum mr_database_kind { MR_DATABASE_IS_NONE, MR_DATABASE_IS_SQLITE, MR_DATABASE_IS_POSTGRESQL };
enum mr_database_kind mr_database_kind_of(const char *name);

struct mr_source;
/** Finds the files, sorted by path, and the schema: from the files where they say it, otherwise from their first rows.
 *  Columns that are wanted (all of them, without reads_wanted_only) must be in all files, as integers or floating-point
 *  numbers of any width or as the same type; those that are not wanted are left out where files differ in them.
 *  Errors: MR_E_NOT_FOUND (no file), MR_E_INVALID (a file is not what it should be, schemas differ, a column is not
 *  there; says which), MR_E_UNSUPPORTED (a format or a type), MR_E_IO. */
int mr_source_open(struct mr_source **out, const struct mr_source_options *options,
                   struct mr_err *err);
/** The same files, as they were found, with all columns that can be read, if `s` leaves some out (reads_wanted_only);
 *  otherwise *out is NULL. Any thread, while `s` is open. Errors: as mr_source_open. */
int mr_source_whole(struct mr_source **out, const struct mr_source *s, struct mr_err *err);
/** Lives as long as the source. */
const struct mr_schema *mr_source_schema(const struct mr_source *s);
/** All columns that the files have, whether they are read or not. Lives as long as the source. */
const struct mr_schema *mr_source_columns(const struct mr_source *s);
size_t mr_source_file_count(const struct mr_source *s);
/** Not while another thread reads, which may find out how many rows there are. */
struct mr_source_file mr_source_file(const struct mr_source *s, size_t file);
/** Lives as long as the source. Any thread. */
const char *mr_source_path(const struct mr_source *s, size_t file);
/** Rows [first, first + count) of a file, count at most max_rows, and about max_bytes at most (at least one row).
 *  *out NULL: the file has no row `first`. A row that cannot be read is a fault in the rows, not an error.
 *  Errors: MR_E_IO, MR_E_INVALID (the file is damaged: says where), MR_E_EXHAUSTED. */
int mr_source_read(struct mr_source *s, size_t file, uint64_t first, uint64_t max_rows,
                   uint64_t max_bytes, struct mr_rows **out, struct mr_err *err);
/** A read of `row` has failed with MR_E_INVALID or MR_E_IO: the next row of the file that does not lie in what is damaged, so
 *  that reading can go on there; UINT64_MAX: the format names none. As mr_source_read. */
uint64_t mr_source_row_after(const struct mr_source *s, size_t file, uint64_t row);
/** What it keeps in memory beyond the rows that it has given, about: what it decodes in advance. As mr_source_read. */
uint64_t mr_source_bytes(const struct mr_source *s);
/** Bytes of a file or an object as they lie there, at most `room`; *out_n 0: it ends before. For a look at some of it.
 *  Errors: as mr_source_read. */
int mr_source_peek(struct mr_source *s, size_t file, uint64_t at, void *out, size_t room,
                   size_t *out_n, struct mr_err *err);
/** A read that waits for its stream, database or object, and any later one, ends with MR_E_CANCELLED. Any thread. */
void mr_source_cancel(struct mr_source *s);
/** Rows must have gone before. */
void mr_source_close(struct mr_source **s);

/* ---- writers ---- */

enum mr_compression { MR_COMPRESSION_NONE, MR_COMPRESSION_ZSTD, MR_COMPRESSION_GZIP };

/** What to do when a file system has no room, or fails: fn may wait, and true tries the rest again. NULL: that ends the
 *  writer. */
struct mr_no_room {
    bool (*fn)(void *ctx, const struct mr_err *err);
    void *ctx;
};

struct mr_writer_options {
    enum mr_table_format format;
    enum mr_compression
        compression; /* PARQUET, ARROW: none or zstd, of pages and buffers; JSONL, CSV: of the whole file */
    char delimiter;           /* CSV; 0: a comma */
    bool has_no_header;       /* CSV: no line of names */
    bool is_stream;           /* ARROW: without the footer of a file */
    uint64_t row_group_bytes; /* PARQUET; 0: 64 MiB */
    struct mr_no_room on_no_room;
    const char *const *notes; /* PARQUET: 2 * note_count strings, keys and values, for the footer */
    size_t note_count;
};

struct mr_writer;
/** A writer into fd, which it neither owns nor syncs; bytes go to its end in order. Schema: borrowed.
 *  What a reader of Arrow needs before the first row goes out at once. Errors: MR_E_UNSUPPORTED (a type that the format does
 *  not have), MR_E_INVALID (an option), MR_E_EXHAUSTED, MR_E_IO. */
int mr_writer_new(struct mr_writer **out, int fd, const struct mr_schema *schema,
                  const struct mr_writer_options *options, struct mr_err *err);
/** Rows [first, first + count), of an equal schema. Does not keep them. Errors: MR_E_IO, MR_E_EXHAUSTED (disk full, no
 *  memory), MR_E_TOO_LARGE (a value that the format cannot hold); after an error only mr_writer_free. */
int mr_writer_put(struct mr_writer *w, const struct mr_rows *rows, uint64_t first, uint64_t count,
                  struct mr_err *err);
/** Bytes of the file so far, about: what is still held counts as it is. */
uint64_t mr_writer_bytes(const struct mr_writer *w);
/** Brings rows that are held to the file, where the format can (JSONL, CSV, ARROW). Errors: as mr_writer_put. */
int mr_writer_flush(struct mr_writer *w, struct mr_err *err);
/** Writes all that is left. Errors: as mr_writer_put. */
int mr_writer_finish(struct mr_writer *w, struct mr_err *err);
void mr_writer_free(struct mr_writer **w);

#endif
