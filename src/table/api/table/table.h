/* Tables: files and databases as sources and sinks of rows.
 *
 * A source is a list of files of one schema, read row range by row range: a range is (file, first row, count), which
 * means the same rows as long as the file does not change. Sources are optimised for reading forwards; going back may
 * mean reading from the start. Text files may be compressed with gzip or zstd, which their first bytes show.
 *
 * A writer writes one file. A caller that wants a file to appear complete and durable writes it under another name,
 * syncs and renames it; writers do not rename.
 *
 * Thread: one at a time for each source and each writer. */
#ifndef MR_TABLE_TABLE_H
#define MR_TABLE_TABLE_H

#include "table/rows.h"

enum mr_table_format {
    /* by the name: .jsonl .ndjson .json .csv .tsv .parquet .arrow .arrows .feather; text also
     * with .gz or .zst */
    MR_TABLE_AUTO = 0,
    MR_TABLE_JSONL, /* one object per line; missing members are nulls */
    /** One record per line (RFC 4180), the first with the column names; a column without a name is column0, column1,
     *  … by position. An empty cell is a null, `""` an empty text; lists are JSON in their cell. An empty line is not
     *  a row, except in a table of one column, where it is a null. Lines end with LF; CR LF is also read. */
    MR_TABLE_CSV,
    MR_TABLE_PARQUET,
    /** IPC, read as a file (with a footer) or as a stream, which the first bytes show. Duplicate names and
     *  unsupported types are errors. */
    MR_TABLE_ARROW
};

/** "jsonl", … Static. */
const char *mr_table_format_name(enum mr_table_format f);
/** From option text ("jsonl") or from the end of a path. MR_TABLE_AUTO: unknown. */
enum mr_table_format mr_table_format_of(mr_str name_or_path);

/* ---- sources ---- */

struct mr_s3_options; /* s3/s3.h */

/** A pipe or another descriptor that is read once, from its current position. */
struct mr_source_stream {
    int fd;            /* borrowed, like this struct, until the source is closed */
    mr_str first;      /* bytes read from it before */
    int64_t linger_ns; /* how long a read that has a row waits for more rows */
};

struct mr_source_options {
    /* files, folders (all their files of the format, by name), and patterns (* ? [ ]); likewise
     * of s3:// */
    const char *const *paths;
    size_t path_count;
    const char *not_in; /* a folder that is not searched, such as that of results; NULL: none */
    /** SQL of DuckDB instead of paths: a source of one file named "query", with rows in the order of the query. For
     *  repeated reads the query must always return the same rows. If the only path is a database (see
     *  mr_database_kind_of): SQL of that database, with an ORDER BY. NULL: none. */
    const char *query;
    /** Instead of a query: a table of the database named by the only path, in the order of its keys. */
    const char *table;
    int64_t outage_ns; /* how long to wait for a database that can no longer be reached */
    /** Database to which rows are committed during the reads; a source that would keep it locked is MR_E_INVALID.
     *  NULL: none. */
    const char *sink;
    /** Called a few times a second during waits for a database: true ends them with MR_E_CANCELLED.
     *  NULL: never. */
    bool (*is_stopped)(void *ctx);
    void *ctx;
    /** JSONL, CSV or ARROW instead of paths: a source of one file named "stdin", read forwards and not decompressed.
     *  Its columns are those of `wanted`; no types are guessed, as rows may come late. A column without a type is any
     *  JSON (see mr_field.is_json), in CSV text. Arrow streams have their own types. NULL: none. */
    const struct mr_source_stream *stream;
    enum mr_table_format format;
    /** Access to objects of S3 ("s3://bucket/key" among the paths); borrowed for the call. NULL: from the
     *  environment. */
    const struct mr_s3_options *s3;
    /** Folder for temporary copies of Parquet objects, at most the wanted columns of one object; they are deleted
     *  automatically. NULL: TMPDIR, or /var/tmp. Borrowed for the call. */
    const char *spool;
    const char *const *columns; /* the wanted columns in order; count 0: all */
    size_t column_count;
    /** Types of columns, used if the format has none (JSONL, CSV) or if a cast costs nothing. Names that the table
     *  lacks and fields without a type are ignored. NULL: types as found. */
    const struct mr_schema *wanted;
    /** Columns that are not in `wanted` are not read if that saves work: in Parquet files (not objects), unless
     *  `columns` is set or the files have no wanted column. See mr_source_whole. */
    bool reads_wanted_only;
    /** Files that are damaged, lack a wanted column or have it with another type count as files without rows if there
     *  are other files; otherwise they are errors. A file that cannot be read now is one. */
    bool skips_bad_files;
    uint64_t max_cell_bytes; /* 0: 64 MiB. A larger cell is a fault of its row, without its bytes */
    char delimiter;          /* CSV; 0: a comma, or a tab for .tsv */
    bool has_no_header;      /* CSV: the columns are column0, column1, … */
    uint64_t memory_bytes;   /* memory for reading, besides the rows; 0: 256 MiB */
    uint32_t threads;        /* for reading; 0: one */
};

struct mr_source_file {
    const char *path;
    uint64_t bytes;
    int64_t mtime_ns;
    int64_t rows;     /* -1: unknown before the file is read */
    const char *etag; /* of an object of S3, owned like the path; NULL: not an object */
    /** For a database or an object, instead of bytes and time: JSON that changes with it, owned like the path; NULL:
     *  a file. */
    const char *state;
    /** Why it is skipped (skips_bad_files), owned like the path; NULL: it is read. */
    const char *bad;
};

/* ---- databases ---- */

/** "sqlite:FILE" and "postgresql://…" (or "postgres://…", as in libpq) are databases. Their libraries are loaded at
 *  the first open. */
enum mr_database_kind { MR_DATABASE_IS_NONE, MR_DATABASE_IS_SQLITE, MR_DATABASE_IS_POSTGRESQL };
enum mr_database_kind mr_database_kind_of(const char *name);

struct mr_source;
/** Finds the files, sorted by path, and the schema: from the files if they contain it, otherwise guessed from their
 *  first rows. Wanted columns (all, without `columns` and reads_wanted_only) must be in all files, as integers or
 *  floating-point numbers of any width or as the same type; other columns are left out if files differ in them. Files of
 *  JSON lines may lack columns, and so may an empty file of CSV, or any one if all columns are wanted: their rows have
 *  nulls.
 *  Errors: MR_E_NOT_FOUND (no file), MR_E_INVALID (a bad file, different schemas, a missing column; names it),
 *  MR_E_UNSUPPORTED (a format or a type), MR_E_IO. */
int mr_source_open(struct mr_source **out, const struct mr_source_options *options,
                   struct mr_err *err);
/** Opens the same files with all readable columns, if `s` leaves some out (reads_wanted_only); otherwise *out is
 *  NULL. Any thread, while `s` is open. Errors: as mr_source_open. */
int mr_source_whole(struct mr_source **out, const struct mr_source *s, struct mr_err *err);
/** Valid until the source is closed. */
const struct mr_schema *mr_source_schema(const struct mr_source *s);
/** All columns of the files, whether they are read or not. Valid until the source is closed. */
const struct mr_schema *mr_source_columns(const struct mr_source *s);
size_t mr_source_file_count(const struct mr_source *s);
/** Not while another thread reads, as a read may set the number of rows. */
struct mr_source_file mr_source_file(const struct mr_source *s, size_t file);
/** Valid until the source is closed. Any thread. */
const char *mr_source_path(const struct mr_source *s, size_t file);
/** Rows [first, first + count) of a file, count at most max_rows, and about max_bytes at most (at least one row).
 *  *out NULL: the file ends before row `first`. A row that cannot be read is a fault in the rows, not an error.
 *  Errors: MR_E_INVALID (the file is damaged; names the place), MR_E_IO (it cannot be read now, or has changed since it
 *  was opened), MR_E_EXHAUSTED. */
int mr_source_read(struct mr_source *s, size_t file, uint64_t first, uint64_t max_rows,
                   uint64_t max_bytes, struct mr_rows **out, struct mr_err *err);
/** After a read of `row` failed with MR_E_INVALID or MR_E_IO: the next row of the file after the damaged part, where
 *  reading can continue; UINT64_MAX: unknown in this format. Thread: as mr_source_read. */
uint64_t mr_source_row_after(const struct mr_source *s, size_t file, uint64_t row);
/** Approximate memory that it holds besides the returned rows: data decoded in advance. Thread: as mr_source_read. */
uint64_t mr_source_bytes(const struct mr_source *s);
/** Raw bytes of a file or an object at an offset, at most `room`; *out_n 0: it ends before that.
 *  Errors: as mr_source_read. */
int mr_source_peek(struct mr_source *s, size_t file, uint64_t at, void *out, size_t room,
                   size_t *out_n, struct mr_err *err);
/** Ends a read that waits for its stream, database or object, and all later ones, with MR_E_CANCELLED. Any thread. */
void mr_source_cancel(struct mr_source *s);
/** All its rows must have been freed. */
void mr_source_close(struct mr_source **s);

/* ---- writers ---- */

enum mr_compression { MR_COMPRESSION_NONE, MR_COMPRESSION_ZSTD, MR_COMPRESSION_GZIP };

/** Called when a file system is full or fails: fn may wait; true retries the rest. NULL: the writer fails. */
struct mr_no_room {
    bool (*fn)(void *ctx, const struct mr_err *err);
    void *ctx;
};

struct mr_writer_options {
    enum mr_table_format format;
    /* PARQUET, ARROW: none or zstd, of pages and buffers; JSONL, CSV: of the whole file */
    enum mr_compression compression;
    char delimiter;           /* CSV; 0: a comma */
    bool has_no_header;       /* CSV: no header line */
    bool is_stream;           /* ARROW: no footer */
    uint64_t row_group_bytes; /* PARQUET; 0: 64 MiB */
    struct mr_no_room on_no_room;
    const char *const *notes; /* PARQUET: 2 * note_count strings, keys and values, for the footer */
    size_t note_count;
};

struct mr_writer;
/** A writer that appends to fd, which it neither owns nor syncs. Schema: borrowed. Arrow's schema message is written
 *  at once. Errors: MR_E_UNSUPPORTED (a type that the format does not have), MR_E_INVALID (an option),
 *  MR_E_EXHAUSTED, MR_E_IO. */
int mr_writer_new(struct mr_writer **out, int fd, const struct mr_schema *schema,
                  const struct mr_writer_options *options, struct mr_err *err);
/** Writes rows [first, first + count) of an equal schema. Does not keep them. Errors: MR_E_IO, MR_E_EXHAUSTED (disk
 *  full, no memory), MR_E_TOO_LARGE (a value that the format cannot hold); after an error only mr_writer_free. */
int mr_writer_put(struct mr_writer *w, const struct mr_rows *rows, uint64_t first, uint64_t count,
                  struct mr_err *err);
/** Approximate size of the file so far; buffered rows count uncompressed. */
uint64_t mr_writer_bytes(const struct mr_writer *w);
/** Writes buffered rows to the file, if the format allows it (JSONL, CSV, ARROW). Errors: as mr_writer_put. */
int mr_writer_flush(struct mr_writer *w, struct mr_err *err);
/** Writes the rest. Errors: as mr_writer_put. */
int mr_writer_finish(struct mr_writer *w, struct mr_err *err);
void mr_writer_free(struct mr_writer **w);

#endif
