/* Parquet files and SQL queries as sources, through DuckDB.
 *
 * One connection to a database in memory. A file is read by one streaming query, which stays open while reads go
 * forwards: the library buffers a few chunks in advance, whatever the size of the file. A far jump ends the query and
 * starts another one at that row; row groups before it are not read. Chunks are copied into rows of the requested
 * size; the rest of a chunk is kept for the next read.
 *
 * A query is a source of one file, "query", whose rows can only be counted from its start.
 *
 * The library's cache of files and its temporary files are off: memory is bounded by `memory_bytes`, and only the
 * tables are accessed on disk. It never downloads extensions. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/map.h"
#include "base/mem.h"
#include "duckdb.h"
#include "table/parquet/parquet_facts.h"
#include "table/parquet/spool.h"
#include "table/rows/formats.h"

#define SQL_MOST        ((size_t)64 << 20)
#define ROW_NUMBER      "file_row_number"
#define CHUNKS_AT_FIRST 16
#define NEAR_ROWS       UINT64_C(8192)    /* skipped in less time than a query takes to start */
#define ROWS_MOST       UINT64_C(1000000) /* of a read: the limit of faults */

/* Rows of a fetched chunk that were not returned yet. */
struct piece {
    void *chunk;
    uint64_t first;
    uint64_t count;
};

struct source {
    const struct duck_api *duck;
    const struct mr_source_setup *setup;
    const struct mr_schema *schema; /* from `begin` on */
    void *database;
    void *connection;
    /* the open query, if is_open */
    bool is_open;
    bool is_at_end;
    size_t file;
    uint64_t next_row; /* of the first piece, or of the next chunk */
    void *statement;
    struct duck_result result;
    struct duck_column *columns; /* one per field of the schema */
    /* the file has a column of that name, so rows cannot be selected by number */
    bool has_row_number;
    struct mr_spool *spool; /* NULL until an object is read */
    struct parquet_facts facts;
    size_t facts_file;
    const char **names; /* of the schema */
    /* after a read error in this file: each row group is a query of its own */
    bool is_careful;
    size_t careful_file;
    uint64_t until;       /* the first row after the query */
    struct piece left;    /* chunk NULL: empty */
    uint64_t chunk_bytes; /* of the largest chunk so far, approximately */
    /* gathered by a read */
    struct piece *pieces;
    size_t piece_room;
};

static const char *query_of(const struct source *s)
{
    return s->setup->options->query;
}

static const char *name_of(const struct source *s, size_t file)
{
    return s->setup->files[file].path;
}

/* The path that the library opens. */
static const char *path_of(const struct source *s, size_t file)
{
    return s->setup->files[file].etag ? mr_spool_path(s->spool) : name_of(s, file);
}

/* Makes an object available as a file, with its footer. */
static int object_ready(struct source *s, size_t file, struct mr_err *err)
{
    if (!s->setup->files[file].etag) {
        return MR_OK;
    }
    if (s->facts.fd >= 0 && s->facts_file != file) {
        parquet_facts_fini(
            &s->facts); /* of a file that the spool gives up, though this one may not be there */
    }
    const int rc = s->spool ? MR_OK : mr_spool_new(&s->spool, s->setup, err);
    return rc < 0 ? rc : mr_spool_open(s->spool, file, err);
}

/* "Invalid Input Error: …\n\nLINE 1: …": uses the first line. */
static int fail(const struct source *s, size_t file, const char *message, struct mr_err *err)
{
    const char *text = message ? message : "no message";
    /* Bytes beyond the end of a file are damage, and mr_source_read checks whether it has changed; it cannot for the files of a
     * query. */
    const bool is_io = strncmp(text, "IO Error", strlen("IO Error")) == 0 &&
                       (query_of(s) || !strstr(text, "Could not read enough bytes"));
    const int first_line = (int)strcspn(text, "\n");

    if (strncmp(text, "Out of Memory", strlen("Out of Memory")) == 0) {
        return MR_FAIL(err, MR_E_EXHAUSTED,
                       "'%s': reading takes more than %" PRIu64
                       " MiB, use a larger --memory%s: %.*s",
                       name_of(s, file), s->setup->options->memory_bytes >> 20,
                       query_of(s) ? "" : " or smaller row groups", first_line, text);
    }
    return MR_FAIL(err, is_io ? MR_E_IO : MR_E_INVALID, "'%s': %.*s", name_of(s, file), first_line,
                   text);
}

/* ---- SQL ---- */

/* Special characters of patterns are escaped by brackets. */
static void path_sql(struct mr_buf *b, const char *path)
{
    struct mr_buf plain;

    mr_buf_init(&plain, 0);
    for (const char *p = path; *p; p++) {
        if (strchr("*?[", *p)) {
            mr_buf_printf(&plain, "[%c]", *p);
        } else {
            mr_buf_char(&plain, *p);
        }
    }
    mr_duck_quote(b, '\'', mr_buf_cstr(&plain));
    mr_buf_fini(&plain);
}

/* True if a folder of the path has the name of a column that the file has itself. */
static bool path_hides_column(const struct source *s, const char *path)
{
    for (size_t i = 0; i < s->facts.columns.len; i++) {
        if (mr_path_has_column(path, s->facts.columns.at[i].name)) {
            return true;
        }
    }
    return false;
}

/* Call it after facts_open. */
static void from_sql(const struct source *s, struct mr_buf *b, size_t file, bool has_row_number)
{
    MR_BUF_LIT(b, " FROM ");
    if (query_of(s)) {
        mr_str text = mr_str_trim(mr_str_c(query_of(s)));
        while (mr_str_ends(text, MR_STR(";"))) {
            text = mr_str_trim(mr_str_sub(text, 0, text.len - 1));
        }
        mr_buf_char(b, '(');
        mr_buf_str(b, text);
        MR_BUF_LIT(b, "\n)"); /* the query may end with a comment */
        return;
    }
    MR_BUF_LIT(b, "read_parquet(");
    path_sql(b, path_of(s, file));
    /* The library would replace the file's own values. */
    mr_buf_c(b, path_hides_column(s, path_of(s, file)) ? ", hive_partitioning=false"
                                                       : ", hive_partitioning=true");
    if (has_row_number) {
        MR_BUF_LIT(b, ", " ROW_NUMBER "=true");
    }
    mr_buf_char(b, ')');
}

static int prepare(const struct source *s, size_t file, struct mr_buf *sql, void **out,
                   struct mr_err *err)
{
    const char *text = mr_buf_cstr(sql);
    void *statement = NULL;

    if (sql->failed) {
        return MR_FAIL(err, MR_E_EXHAUSTED, "no memory for the query");
    }
    if (s->duck->prepare(s->connection, text, &statement) != 0) {
        const int rc = fail(s, file, s->duck->prepare_error(statement), err);
        s->duck->destroy_prepare(&statement);
        return rc;
    }
    *out = statement;
    return MR_OK;
}

/* ---- the library's side ---- */

static int configure(const struct source *s, void *config, struct mr_err *err)
{
    char memory[32];
    char threads[16];
    const struct mr_source_options *o = s->setup->options;

    snprintf(memory, sizeof memory, "%" PRIu64 "B", o->memory_bytes);
    snprintf(threads, sizeof threads, "%u", o->threads);
    const char *const settings[][2] = {
        {"memory_limit", memory},
        {"threads", threads},
        {"preserve_insertion_order", "true"},
        {"temp_directory", ""},
        {"autoinstall_known_extensions", "false"},
        {"enable_external_file_cache", "false"},
    };
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
        if (s->duck->set_config(config, settings[i][0], settings[i][1]) != 0) {
            return MR_FAIL(err, MR_E_UNSUPPORTED, "DuckDB %s does not have the setting %s",
                           s->duck->library_version(), settings[i][0]);
        }
    }
    return MR_OK;
}

/* Settings that a library does not know are skipped. */
static void settings_make(const struct source *s)
{
    static const char *const settings[] = {
        /* Chunks of a query wait in the buffer, which does not count the bytes of texts: with long texts the default
         * of 1 MB can be hundreds. */
        "SET streaming_buffer_size = '64KiB'",
        /* Returns the memory of a large chunk to the system at once; for smaller pieces that would take too long. */
        "SET allocator_bulk_deallocation_flush_threshold = '4MiB'",
        "SET TimeZone = 'UTC'", /* in queries */
    };

    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
        struct duck_result ignored;
        s->duck->query(s->connection, settings[i], &ignored);
        s->duck->destroy_result(&ignored);
    }
}

static int connect_to(struct source *s, struct mr_err *err)
{
    void *config = NULL;
    char *message = NULL;
    int rc = MR_OK;

    if (s->duck->create_config(&config) != 0) {
        return MR_FAIL(err, MR_E_EXHAUSTED, "DuckDB could not be set up");
    }
    rc = configure(s, config, err);
    if (rc == MR_OK && s->duck->open_ext(NULL, &s->database, config, &message) != 0) {
        rc = MR_FAIL(err, MR_E_EXHAUSTED, "DuckDB could not be set up: %s", message);
        s->duck->free(message);
    }
    if (rc == MR_OK && s->duck->connect(s->database, &s->connection) != 0) {
        rc = MR_FAIL(err, MR_E_EXHAUSTED, "DuckDB could not be set up");
    }
    s->duck->destroy_config(&config);
    if (rc == MR_OK) {
        settings_make(s);
    }
    return rc;
}

static void query_close(struct source *s)
{
    if (s->left.chunk) {
        s->duck->destroy_data_chunk(&s->left.chunk);
    }
    s->left = (struct piece){0};
    if (s->is_open) {
        s->duck->destroy_result(&s->result);
    }
    if (s->statement) {
        s->duck->destroy_prepare(&s->statement);
    }
    for (size_t i = 0; s->columns && i < s->schema->count; i++) {
        mr_duck_column_fini(&s->columns[i]);
    }
    mr_freep(&s->columns);
    s->is_open = s->is_at_end = false;
}

static void close_source(void *state)
{
    struct source *s = state;

    query_close(s);
    if (s->connection) {
        s->duck->disconnect(&s->connection);
    }
    if (s->database) {
        s->duck->close(&s->database);
    }
    parquet_facts_fini(&s->facts);
    mr_spool_free(&s->spool);
    mr_free(s->names);
    mr_free(s->pieces);
    mr_free(s);
}

static int open_source(void **out, const struct mr_source_setup *setup, struct mr_err *err)
{
    const struct duck_api *duck;
    int rc = mr_duck_load(&duck, err);

    if (rc < 0) {
        return rc;
    }
    struct source *s = MR_NEW(struct source);
    s->duck = duck;
    s->setup = setup;
    parquet_facts_init(&s->facts);
    rc = connect_to(s, err);
    if (rc < 0) {
        close_source(s);
        return rc;
    }
    *out = s;
    return MR_OK;
}

/* ---- schema ---- */

/* Queries a whole number from the footer of a file: SQL, the path and more SQL. */
static int footer_ask(struct source *s, size_t file, const char *front, const char *back,
                      int64_t *out, struct mr_err *err)
{
    struct mr_buf sql;
    struct duck_result result;
    int rc = MR_OK;

    mr_buf_init(&sql, SQL_MOST);
    mr_buf_c(&sql, front);
    path_sql(&sql, path_of(s, file));
    mr_buf_c(&sql, back);
    const char *text = mr_buf_cstr(&sql);
    if (sql.failed) {
        rc = MR_FAIL(err, MR_E_EXHAUSTED, "no memory for the query");
    } else if (s->duck->query(s->connection, text, &result) != 0) {
        rc = fail(s, file, s->duck->result_error(&result), err);
        s->duck->destroy_result(&result);
    } else {
        void *chunk = s->duck->fetch_chunk(result);
        if (chunk && s->duck->data_chunk_get_size(chunk) == 1) {
            const int64_t *number =
                s->duck->vector_get_data(s->duck->data_chunk_get_vector(chunk, 0));
            *out = number[0];
        } else {
            rc = MR_FAIL(err, MR_E_INVALID, "'%s' has no footer", name_of(s, file));
        }
        if (chunk) {
            s->duck->destroy_data_chunk(&chunk);
        }
        s->duck->destroy_result(&result);
    }
    mr_buf_fini(&sql);
    return rc;
}

/* Counts the rows of a file. */
static int rows_count(struct source *s, size_t file, struct mr_err *err)
{
    return footer_ask(s, file, "SELECT CAST(num_rows AS BIGINT) FROM parquet_file_metadata(", ")",
                      &s->setup->files[file].rows, err);
}

/* Reads the facts of the file itself, if possible. */
static int facts_open(struct source *s, size_t file, struct mr_err *err)
{
    if (query_of(s) || (s->facts.fd >= 0 && s->facts_file == file)) {
        return MR_OK;
    }
    parquet_facts_fini(&s->facts);
    s->facts_file = file;
    const int rc = parquet_facts_open(&s->facts, path_of(s, file), name_of(s, file), err);
    if (rc < 0) {
        parquet_facts_fini(&s->facts);
    }
    return rc;
}

/* Prepares a statement over all columns of a file, to list them. */
static int describe(struct source *s, size_t file, void **out, struct mr_err *err)
{
    struct mr_buf sql;

    mr_buf_init(&sql, SQL_MOST);
    MR_BUF_LIT(&sql, "SELECT *");
    from_sql(s, &sql, file, false);
    const int rc = prepare(s, file, &sql, out, err);
    mr_buf_fini(&sql);
    return rc;
}

/* "ID" beside "id" is "ID_1" to the library. Columns of the path follow those of the file. */
static struct duck_column_of column_name(const struct source *s, uint64_t i, const char *sql_name)
{
    struct duck_column_of of = {mr_str_c(sql_name), mr_str_c(sql_name), false};

    if (i < s->facts.columns.len) {
        const struct parquet_column *c = &s->facts.columns.at[i];
        const mr_str name = mr_str_c(c->name);
        if (of.sql_name.len >= name.len && mr_str_ieq(mr_str_sub(of.sql_name, 0, name.len), name)) {
            of.name = name;
            of.is_wide = c->is_wide;
        }
    }
    return of;
}

static void column_of(const struct source *s, void *statement, uint64_t i,
                      const struct mr_schema *wanted, struct duck_column *out)
{
    const char *sql_name = s->duck->prepared_statement_column_name(statement, i);
    void *type = s->duck->prepared_statement_column_logical_type(statement, i);
    const struct duck_column_of of = column_name(s, i, sql_name);
    const int at = wanted ? mr_schema_find(wanted, of.name) : -1;

    mr_duck_column_init(s->duck, out, &of, type, at < 0 ? NULL : &wanted->fields[at]);
    s->duck->destroy_logical_type(&type);
    s->duck->free((void *)(uintptr_t)sql_name);
}

static int schema(void *state, size_t file, struct mr_schema *out, struct mr_err *err)
{
    struct source *s = state;
    void *statement;
    int rc = object_ready(s, file, err);

    rc = rc < 0 ? rc : facts_open(s, file, err);
    rc = rc < 0 ? rc : describe(s, file, &statement, err);
    if (rc < 0) {
        return rc;
    }
    const uint64_t count = s->duck->prepared_statement_column_count(statement);
    for (uint64_t i = 0; i < count; i++) {
        struct duck_column c;
        column_of(s, statement, i, s->setup->options->wanted, &c);
        mr_schema_add(out, &c.field);
        mr_duck_column_fini(&c);
    }
    s->duck->destroy_prepare(&statement);
    if (!query_of(s)) {
        rc = rows_count(s, file, err);
    }
    if (rc < 0) {
        mr_schema_fini(out);
    }
    return rc;
}

/* Maps the names of a file's columns to their places, from 1. */
static void places_find(struct source *s, void *statement, struct mr_map *out)
{
    s->has_row_number = false;
    for (uint64_t i = s->duck->prepared_statement_column_count(statement); i > 0; i--) {
        const char *sql_name = s->duck->prepared_statement_column_name(statement, i - 1);
        mr_map_put(out, column_name(s, i - 1, sql_name).name, (void *)i); /* NOLINT: a number */
        s->has_row_number |= mr_str_ieq(mr_str_c(sql_name), MR_STR(ROW_NUMBER));
        s->duck->free((void *)(uintptr_t)sql_name);
    }
}

/* Finds the column of the file for field `f` of the schema; by its name alone if none has that type. */
static int column_find(const struct source *s, size_t file, void *statement,
                       const struct mr_map *places, const struct mr_field *f,
                       struct duck_column *out, struct mr_err *err)
{
    const struct mr_schema one = {(struct mr_field *)(uintptr_t)f, 1};
    const uintptr_t place = (uintptr_t)mr_map_find(places, mr_str_c(f->name));

    if (place > 0) {
        column_of(s, statement, place - 1, &one, out);
        if (mr_duck_leaf(&out->field)->type == MR_COLUMN_NONE) {
            const int rc = MR_FAIL(err, MR_E_UNSUPPORTED,
                                   "'%s': column '%s' is of type %s, which cannot be read",
                                   name_of(s, file), f->name, mr_duck_type_name(out->leaf));
            mr_duck_column_fini(out);
            return rc;
        }
        if (mr_field_equals(&out->field, f)) {
            return MR_OK;
        }
        mr_duck_column_fini(out);
    }
    return MR_FAIL(err, MR_E_INVALID, "'%s' has changed: its column '%s' is another one",
                   name_of(s, file), f->name);
}

/* Finds all columns of the schema; allocates them. */
static int columns_find(struct source *s, size_t file, struct mr_err *err)
{
    void *statement;
    int rc = object_ready(s, file, err);

    rc = rc < 0 ? rc : facts_open(s, file, err);
    rc = rc < 0 ? rc : describe(s, file, &statement, err);
    if (rc < 0) {
        return rc;
    }
    struct duck_column *columns = MR_NEW_ARRAY(struct duck_column, s->schema->count + 1);
    struct mr_map places = {0};
    size_t n = 0;
    places_find(s, statement, &places);
    for (; rc == MR_OK && n < s->schema->count; n++) {
        rc = column_find(s, file, statement, &places, &s->schema->fields[n], &columns[n], err);
    }
    mr_map_fini(&places);
    s->duck->destroy_prepare(&statement);
    if (rc < 0) {
        for (size_t i = 0; i + 1 < n; i++) {
            mr_duck_column_fini(&columns[i]);
        }
        mr_free(columns);
        return rc;
    }
    s->columns = columns;
    return MR_OK;
}

static int begin(void *state, const struct mr_schema *picked, struct mr_err *err)
{
    struct source *s = state;

    s->schema = picked;
    if (s->setup->file_count == 0) {
        return MR_OK;
    }
    s->names = MR_NEW_ARRAY(const char *, picked->count + 1);
    for (size_t i = 0; i < picked->count; i++) {
        s->names[i] = picked->fields[i].name;
    }
    /* Fails with the name of an unsupported type. */
    const int rc = columns_find(s, mr_first_good_file(s->setup), err);
    query_close(s);
    return rc;
}

/* ---- reading ---- */

static int unchanged(const struct source *s, size_t file, struct mr_err *err)
{
    const struct mr_source_file *f = &s->setup->files[file];
    struct stat st;

    if (query_of(s) || f->etag) { /* an object: each range request requires its ETag */
        return MR_OK;
    }
    if (stat(f->path, &st) != 0) {
        return MR_FAIL(err, MR_E_IO, "'%s' is gone", f->path);
    }
    const int64_t mtime_ns = st.st_mtim.tv_sec * INT64_C(1000000000) + st.st_mtim.tv_nsec;
    if ((uint64_t)st.st_size != f->bytes || mtime_ns != f->mtime_ns) {
        return MR_FAIL(err, MR_E_INVALID, "'%s' has changed since it was opened", f->path);
    }
    return MR_OK;
}

static void read_sql(const struct source *s, struct mr_buf *sql, size_t file, uint64_t first)
{
    const bool is_bounded = s->until < UINT64_MAX;
    const bool is_jump = (first > 0 || is_bounded) && !query_of(s);
    const bool by_number = is_jump && !s->has_row_number;

    MR_BUF_LIT(sql, "SELECT ");
    for (size_t i = 0; i < s->schema->count; i++) {
        if (i > 0) {
            MR_BUF_LIT(sql, ", ");
        }
        mr_duck_column_sql(sql, &s->columns[i]);
    }
    if (s->schema->count == 0) { /* without columns, rows are only counted */
        MR_BUF_LIT(sql, "true");
    }
    from_sql(s, sql, file, by_number);
    if (is_jump) {
        mr_buf_printf(sql, by_number ? " WHERE " ROW_NUMBER " >= %" PRIu64 : " OFFSET %" PRIu64,
                      first);
    }
    if (is_bounded) {
        mr_buf_printf(sql, " AND " ROW_NUMBER " < %" PRIu64, s->until);
    }
}

/* The end of the row group of the row; UINT64_MAX: unknown. */
static uint64_t group_end(const struct source *s, uint64_t row)
{
    const size_t group = parquet_facts_group(&s->facts, row);

    return group == SIZE_MAX || s->has_row_number ? UINT64_MAX : s->facts.groups.at[group].end;
}

static int start(struct source *s, size_t file, uint64_t first, struct mr_err *err)
{
    struct mr_buf sql;
    void *pending = NULL;
    int rc;

    mr_buf_init(&sql, SQL_MOST);
    MR_TRY(unchanged(s, file, err));
    MR_TRY(columns_find(s, file, err));
    MR_TRY(s->setup->files[file].etag ? mr_spool_fill(s->spool, s->schema, first, err) : MR_OK);
    s->until = s->is_careful && s->careful_file == file ? group_end(s, first) : UINT64_MAX;
    read_sql(s, &sql, file, first);
    MR_TRY(prepare(s, file, &sql, &s->statement, err));
    if (s->duck->pending_prepared_streaming(s->statement, &pending) != 0) {
        rc = fail(s, file, s->duck->pending_error(pending), err);
    } else if (s->duck->execute_pending(pending, &s->result) != 0) {
        rc = fail(s, file, s->duck->result_error(&s->result), err);
        s->duck->destroy_result(&s->result);
    } else {
        s->is_open = true;
        s->file = file;
        s->next_row = query_of(s) ? 0 : first;
    }
    s->duck->destroy_pending(&pending);
out:
    mr_buf_fini(&sql);
    if (rc < 0) {
        query_close(s);
    }
    return rc;
}

/* Fetches the next chunk into `left`, which must be empty. */
static int fetch(struct source *s, struct mr_err *err)
{
    while (!s->left.chunk && !s->is_at_end) {
        void *chunk = s->duck->fetch_chunk(s->result);
        if (chunk) {
            const uint64_t count = s->duck->data_chunk_get_size(chunk);
            if (count > 0) {
                s->left = (struct piece){chunk, 0, count};
            } else { /* empty after filtering; NULL is the end */
                s->duck->destroy_data_chunk(&chunk);
            }
            continue;
        }
        const char *message = s->duck->result_error(&s->result);
        if (message && *message) {
            return fail(s, s->file, message, err);
        }
        s->is_at_end = true;
    }
    const int64_t rows = s->setup->files[s->file].rows;
    if (!s->left.chunk && rows >= 0 && s->next_row < MR_MIN(s->until, (uint64_t)rows)) {
        return MR_FAIL(err, MR_E_INVALID,
                       "'%s' ends after %" PRIu64 " rows; its footer said %" PRId64,
                       name_of(s, s->file), s->next_row, rows);
    }
    return MR_OK;
}

static void left_drop(struct source *s, uint64_t rows)
{
    s->left.first += rows;
    s->left.count -= rows;
    s->next_row += rows;
    if (s->left.count == 0) {
        s->duck->destroy_data_chunk(&s->left.chunk);
    }
}

/* Provides a query whose next row is `first`: the open one skips to it if it is near, or if rows cannot be selected. */
static int seek(struct source *s, size_t file, uint64_t first, struct mr_err *err)
{
    int rc = MR_OK;

    if (!s->is_open || s->file != file || first < s->next_row || first >= s->until ||
        (first - s->next_row > NEAR_ROWS && !query_of(s))) {
        query_close(s);
        rc = start(s, file, first, err);
    }
    while (rc == MR_OK && s->next_row < first) {
        rc = fetch(s, err);
        if (rc < 0 || !s->left.chunk) {
            break;
        }
        left_drop(s, MR_MIN(s->left.count, first - s->next_row));
    }
    return rc;
}

static uint64_t piece_bytes(const struct source *s, uint64_t first, uint64_t count)
{
    uint64_t bytes = 0;

    for (size_t i = 0; i < s->schema->count; i++) {
        bytes += mr_duck_bytes(s->duck, &s->columns[i],
                               s->duck->data_chunk_get_vector(s->left.chunk, i), first, count);
    }
    return bytes;
}

/* The number of rows of `left` that fit into the bytes, and their size. */
static uint64_t rows_fitting(const struct source *s, uint64_t most, uint64_t room, uint64_t *bytes)
{
    *bytes = piece_bytes(s, s->left.first, most);
    if (*bytes <= room) {
        return most;
    }
    *bytes = 0;
    for (uint64_t i = 0; i < most; i++) {
        const uint64_t row = piece_bytes(s, s->left.first + i, 1);
        if (row > room - *bytes) {
            return i;
        }
        *bytes += row;
    }
    return most;
}

static void pieces_drop(struct source *s, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (s->pieces[i].chunk != s->left.chunk) {
            s->duck->destroy_data_chunk(&s->pieces[i].chunk);
        }
    }
}

/* Takes the rows of a read from the stream. A partly used chunk stays in `left`. */
static int gather(struct source *s, uint64_t max_rows, uint64_t max_bytes, size_t *out_count,
                  uint64_t *out_rows, struct mr_err *err)
{
    size_t n = 0;
    uint64_t rows = 0;
    uint64_t room = max_bytes;

    max_rows = MR_MIN(max_rows, ROWS_MOST);
    while (rows < max_rows) {
        const int rc = fetch(s, err);
        if (rc < 0) {
            pieces_drop(s, n);
            return rc;
        }
        if (!s->left.chunk) {
            break;
        }
        uint64_t bytes;
        uint64_t take = rows_fitting(s, MR_MIN(s->left.count, max_rows - rows), room, &bytes);
        if (take == 0 && rows > 0) {
            break;
        }
        take = MR_MAX(take, UINT64_C(1)); /* a single row larger than the limit */
        room -= MR_MIN(room, bytes);
        s->chunk_bytes = MR_MAX(s->chunk_bytes, bytes / take * s->left.count);
        if (n == s->piece_room) {
            s->piece_room = n ? 2 * n : CHUNKS_AT_FIRST;
            s->pieces = mr_realloc_array(s->pieces, s->piece_room, sizeof *s->pieces);
        }
        s->pieces[n++] = (struct piece){s->left.chunk, s->left.first, take};
        rows += take;
        s->next_row += take;
        s->left.first += take;
        s->left.count -= take;
        if (s->left.count > 0) {
            break;
        }
        s->left.chunk = NULL;
    }
    *out_count = n;
    *out_rows = rows;
    return MR_OK;
}

/* Adds faults for the rows of all pieces that cannot be read. */
static bool faults_find(const struct source *s, size_t n, struct mr_rows *rows)
{
    const uint64_t max_bytes = s->setup->options->max_cell_bytes;
    uint64_t base = 0;

    for (size_t p = 0; p < n; p++) {
        const struct piece *at = &s->pieces[p];
        bool may_be_wrong = false;
        for (size_t i = 0; i < s->schema->count && !may_be_wrong; i++) {
            may_be_wrong = mr_duck_may_be_wrong(s->duck, &s->columns[i],
                                                s->duck->data_chunk_get_vector(at->chunk, i),
                                                at->first, at->count, max_bytes);
        }
        for (uint64_t k = 0; may_be_wrong && k < at->count; k++) {
            char text[256];
            const char *wrong = NULL;
            for (size_t i = 0; i < s->schema->count && !wrong; i++) {
                wrong = mr_duck_row_wrong(s->duck, &s->columns[i],
                                          s->duck->data_chunk_get_vector(at->chunk, i),
                                          at->first + k, max_bytes, text, sizeof text);
            }
            if (wrong && !mr_rows_fault(rows, base + k, wrong)) {
                return false;
            }
        }
        base += at->count;
    }
    return true;
}

/* One column's slices of all pieces, without the faulty rows. */
static size_t slices_make(const struct source *s, size_t n, size_t column,
                          const struct mr_rows *rows, struct duck_slice *out)
{
    size_t count = 0;
    uint64_t base = 0;
    uint64_t fault = 0;

    for (size_t p = 0; p < n; p++) {
        const struct piece *at = &s->pieces[p];
        void *vector = s->duck->data_chunk_get_vector(at->chunk, column);
        uint64_t done = 0;
        while (done < at->count) {
            uint64_t end = at->count;
            if (fault < rows->fault_count && rows->faults[fault].row < base + at->count) {
                end = rows->faults[fault].row - base;
            }
            if (end > done) {
                out[count++] = (struct duck_slice){vector, at->first + done, end - done};
                done = end;
            } else {
                out[count++] = (struct duck_slice){NULL, 0, 1};
                done++;
                fault++;
            }
        }
        base += at->count;
    }
    return count;
}

static int rows_make(const struct source *s, size_t n, uint64_t count, struct mr_rows **out,
                     struct mr_err *err)
{
    struct mr_rows *rows = mr_rows_new(s->schema);
    struct duck_slice *slices = NULL;
    int rc = MR_OK;

    if (rows) {
        rows->count = count;
    }
    if (!rows || !faults_find(s, n, rows) ||
        !(slices = mr_try_alloc((n + 2 * (size_t)rows->fault_count) * sizeof *slices))) {
        rc = MR_FAIL(err, MR_E_EXHAUSTED, "no memory for %" PRIu64 " rows", count);
    }
    for (size_t i = 0; rc == MR_OK && i < s->schema->count; i++) {
        const size_t m = slices_make(s, n, i, rows, slices);
        rc = mr_duck_copy(s->duck, &s->columns[i], slices, m, rows, i, err);
    }
    mr_free(slices);
    if (rc < 0) {
        mr_rows_unref(&rows);
        return rc;
    }
    *out = rows;
    return MR_OK;
}

/* Counts rows from `first` on, at most `most`, in pages that match their checksums. */
static int sound_rows(struct source *s, uint64_t first, uint64_t most, uint64_t *out,
                      struct mr_err *err)
{
    uint64_t sound = 0;

    for (size_t g = parquet_facts_group(&s->facts, first); g < s->facts.groups.len && sound < most;
         g++) {
        const int rc = parquet_facts_check(&s->facts, g, s->names, s->schema->count, err);
        if (rc < 0 && sound == 0) {
            return rc;
        }
        if (rc < 0) {
            break;
        }
        sound = s->facts.groups.at[g].end - first;
    }
    *out = sound > 0 ? MR_MIN(sound, most) : most; /* unknown */
    return MR_OK;
}

static int rows_get(struct source *s, size_t file, uint64_t first, uint64_t max_rows,
                    uint64_t max_bytes, struct mr_rows **out, struct mr_err *err)
{
    size_t n = 0;
    uint64_t count = 0;
    int rc = seek(s, file, first, err);

    if (rc == MR_OK && s->next_row == first) {
        rc = sound_rows(s, first, max_rows, &max_rows, err);
        rc = rc < 0 ? rc : gather(s, max_rows, max_bytes, &n, &count, err);
    }
    if (rc == MR_OK && count > 0) {
        rc = rows_make(s, n, count, out, err);
        pieces_drop(s, n);
    } else if (rc == MR_OK) {
        *out = NULL;
    }
    if (rc < 0) {
        query_close(s);
    }
    return rc;
}

/* The library decodes ahead: an error may be in later rows. */
static int read_rows(void *state, size_t file, uint64_t first, uint64_t max_rows,
                     uint64_t max_bytes, struct mr_rows **out, struct mr_err *err)
{
    struct source *s = state;
    int rc = rows_get(s, file, first, max_rows, max_bytes, out, err);

    if ((rc == MR_E_INVALID || rc == MR_E_IO) && !query_of(s) &&
        !(s->is_careful && s->careful_file == file)) {
        s->is_careful = true;
        s->careful_file = file;
        rc = rows_get(s, file, first, max_rows, max_bytes, out, err);
    }
    return rc;
}

static uint64_t row_after(const void *state, size_t file, uint64_t row)
{
    const struct source *s = state;

    return s->facts.fd >= 0 && s->facts_file == file && !query_of(s) ? group_end(s, row)
                                                                     : UINT64_MAX;
}

/* The current chunk, the next one in the buffer, and the one being decoded; a query may sort and join with all of its
 * allowed memory. */
static uint64_t source_bytes(const void *state)
{
    const struct source *s = state;

    return query_of(s) ? s->setup->options->memory_bytes : 3 * s->chunk_bytes;
}

const struct mr_source_ops mr_parquet_source_ops = {
    .open = open_source,
    .schema = schema,
    .begin = begin,
    .read = read_rows,
    .close = close_source,
    .bytes = source_bytes,
    .skips_columns = true,
    .row_after = row_after,
};
