/* Sources: the part shared by all formats.
 *
 * Opening checks all files once: a job of days should report a file with wrong columns before its first row
 * (schema_join.c). */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/mem.h"
#include "finder.h"
#include "s3/s3.h"
#include "table/arrow/arrow.h"
#include "table/database/database.h"
#include "table/duckdb/duckdb.h"
#include "table/rows/formats.h"
#include "table/rows/schema_join.h"
#include "table/text/text.h"

#define CELL_BYTES_DEFAULT   ((uint64_t)64 << 20)
#define MEMORY_BYTES_DEFAULT ((uint64_t)256 << 20)

struct mr_source {
    const struct mr_source_ops *ops;
    void *state;
    struct mr_source_options options;
    struct mr_source_setup setup;
    struct mr_schema schema;
    /* all columns of the files, if some are left out; otherwise empty */
    struct mr_schema whole;
    char *query; /* NULL: files */
};

static const struct mr_source_ops *ops_of(enum mr_table_format format)
{
    switch (format) {
    case MR_TABLE_ARROW: return &mr_arrow_source_ops;
    case MR_TABLE_CSV: return &mr_csv_source_ops;
    case MR_TABLE_JSONL: return &mr_jsonl_source_ops;
    case MR_TABLE_PARQUET: return &mr_parquet_source_ops;
    default: return NULL;
    }
}

/* ---- columns ---- */

static bool may_leave_out(const struct mr_source *s)
{
    const struct mr_source_options *o = &s->options;

    return o->reads_wanted_only && s->ops->skips_columns && !o->query && !s->setup.s3;
}

/* Takes the wanted columns, or all of them. */
static void columns_take(struct mr_source *s, struct mr_schema *all)
{
    const struct mr_schema *wanted = s->options.wanted;

    for (size_t i = 0; may_leave_out(s) && i < all->count; i++) {
        if (mr_schema_find(wanted, mr_str_c(all->fields[i].name)) >= 0) {
            mr_schema_add(&s->schema, &all->fields[i]);
        }
    }
    if (s->schema.count == 0) {
        s->schema = *all;
        *all = (struct mr_schema){0};
    } else if (s->schema.count < all->count) {
        s->whole = *all;
        *all = (struct mr_schema){0};
    }
}

static int columns_pick(struct mr_source *s, struct mr_schema *all, struct mr_err *err)
{
    for (size_t i = 0; i < s->options.column_count; i++) {
        const char *name = s->options.columns[i];
        const int at = mr_schema_find(all, mr_str_c(name));
        if (at < 0) {
            char hint[250];
            return MR_FAIL(err, MR_E_INVALID, "'%s' has no column '%s'; %s", s->setup.files[0].path,
                           name, mr_schema_hint(all, hint, sizeof hint));
        }
        if (mr_schema_find(&s->schema, mr_str_c(name)) >= 0) {
            return MR_FAIL(err, MR_E_INVALID, "column '%s' is named twice", name);
        }
        mr_schema_add(&s->schema, &all->fields[at]);
    }
    if (s->options.column_count == 0) {
        columns_take(s, all);
    }
    return MR_OK;
}

/* ---- the functions of table.h ---- */

static void query_setup(struct mr_source *s)
{
    s->ops = &mr_parquet_source_ops;
    s->query = mr_strndup(s->options.query, strlen(s->options.query));
    s->options.query = s->query;
    s->setup.files = MR_NEW(struct mr_source_file);
    s->setup.files[0] = (struct mr_source_file){.path = mr_strndup("query", 5), .rows = -1};
    s->setup.file_count = 1;
}

static int database_setup(struct mr_source *s, enum mr_database_kind kind, struct mr_err *err)
{
    const struct mr_source_options *o = &s->options;

    s->ops = kind == MR_DATABASE_IS_SQLITE ? &mr_sqlite_source_ops : &mr_pg_source_ops;
    s->setup.files = MR_NEW(struct mr_source_file);
    s->setup.files[0].rows = -1;
    s->setup.file_count = 1;
    if (o->path_count > 1) {
        return MR_FAIL(err, MR_E_INVALID, "a database is the only input, and %zu are named",
                       o->path_count);
    }
    if (!o->query == !o->table) {
        return MR_FAIL(err, MR_E_INVALID, "of a database either a table or a query is named");
    }
    return MR_OK;
}

static enum mr_database_kind database_of(const struct mr_source_options *o)
{
    enum mr_database_kind kind = MR_DATABASE_IS_NONE;

    for (size_t i = 0; i < o->path_count && kind == MR_DATABASE_IS_NONE; i++) {
        kind = mr_database_kind_of(o->paths[i]);
    }
    return kind;
}

/* Columns of text are given, not detected; those of Arrow are in the stream, and selected by name. */
static int stream_setup(struct mr_source *s, const char **names, struct mr_err *err)
{
    const enum mr_table_format format = s->options.format;
    const struct mr_schema *wanted = s->options.wanted;

    s->ops = format == MR_TABLE_PARQUET ? NULL : ops_of(format);
    s->setup.files = MR_NEW(struct mr_source_file);
    s->setup.files[0] = (struct mr_source_file){.path = mr_strndup("stdin", 5), .rows = -1};
    s->setup.file_count = 1;
    s->options.columns = names;
    for (size_t i = 0; wanted && i < wanted->count; i++) {
        if (format == MR_TABLE_ARROW) {
            names[s->options.column_count++] = wanted->fields[i].name;
            continue;
        }
        mr_schema_add(&s->schema, &wanted->fields[i]);
        struct mr_field *f = &s->schema.fields[i];
        f->is_json = f->type == MR_COLUMN_NONE && format == MR_TABLE_JSONL;
        f->type = f->type == MR_COLUMN_NONE ? MR_COLUMN_STRING : f->type;
        f->is_nullable = true;
    }
    s->setup.cancel_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    return s->setup.cancel_fd < 0
               ? MR_FAIL(err, MR_E_EXHAUSTED, "cannot make an eventfd: %s", strerror(errno))
               : MR_OK;
}

int mr_source_open(struct mr_source **out, const struct mr_source_options *options,
                   struct mr_err *err)
{
    struct mr_source *s = MR_NEW(struct mr_source);
    const char **names =
        MR_NEW_ARRAY(const char *, (options->wanted ? options->wanted->count : 0) + 1);
    struct mr_schema all = {0};
    int rc;

    s->options = *options;
    s->options.max_cell_bytes =
        options->max_cell_bytes ? options->max_cell_bytes : CELL_BYTES_DEFAULT;
    s->options.memory_bytes = options->memory_bytes ? options->memory_bytes : MEMORY_BYTES_DEFAULT;
    s->options.threads = MR_MAX(options->threads, 1U);
    s->setup.options = &s->options;
    s->setup.cancel_fd = -1;
    const enum mr_database_kind kind = database_of(options);
    if (options->stream) {
        MR_TRY(stream_setup(s, names, err));
    } else if (kind != MR_DATABASE_IS_NONE) {
        MR_TRY(database_setup(s, kind, err));
    } else if (options->table) {
        rc = MR_FAIL(err, MR_E_INVALID, "table '%s': the input is no database", options->table);
        goto out;
    } else if (options->query) {
        query_setup(s);
    } else {
        MR_TRY(mr_files_find(&s->setup, &s->options.format, err));
        s->ops = ops_of(s->options.format);
    }
    if (!s->ops) {
        rc = MR_FAIL(err, MR_E_UNSUPPORTED, "tables of the format '%s' cannot be read",
                     mr_table_format_name(s->options.format));
        goto out;
    }
    if (s->setup.s3 && s->options.format == MR_TABLE_ARROW) {
        rc = MR_FAIL(err, MR_E_UNSUPPORTED, "Arrow IPC is read from files, not from objects of S3");
        goto out;
    }
    MR_TRY(s->ops->open(&s->state, &s->setup, err));
    if (!options->stream || !s->ops->is_guessed) {
        MR_TRY(mr_schemas_join(s->ops, s->state, &s->setup, &all, err));
        MR_TRY(columns_pick(s, &all, err));
    }
    rc = s->ops->begin(s->state, &s->schema, err);
out:
    mr_schema_fini(&all);
    mr_free(names);
    if (rc < 0) {
        mr_source_close(&s);
        return rc;
    }
    /* They are borrowed for the call only. */
    s->options.paths = s->options.columns = NULL;
    s->options.path_count = s->options.column_count = 0;
    s->options.query = s->query;
    s->options.table = NULL;
    s->options.s3 = NULL;
    s->options.spool = NULL;
    s->options.wanted = NULL;
    *out = s;
    return MR_OK;
}

static bool can_be_read(const struct mr_field *f)
{
    return f->item ? can_be_read(f->item) : f->type != MR_COLUMN_NONE;
}

int mr_source_whole(struct mr_source **out, const struct mr_source *s, struct mr_err *err)
{
    int rc = MR_OK;

    *out = NULL;
    if (s->whole.count == 0) {
        return MR_OK;
    }
    struct mr_source *n = MR_NEW(struct mr_source);
    n->ops = s->ops;
    n->options = s->options;
    n->setup = s->setup;
    n->setup.options = &n->options;
    n->setup.files = MR_NEW_ARRAY(struct mr_source_file, s->setup.file_count);
    for (size_t i = 0; i < s->setup.file_count; i++) {
        n->setup.files[i] = s->setup.files[i];
        n->setup.files[i].path = mr_strndup(s->setup.files[i].path, strlen(s->setup.files[i].path));
        const char *bad = s->setup.files[i].bad;
        n->setup.files[i].bad = bad ? mr_strndup(bad, strlen(bad)) : NULL;
    }
    for (size_t i = 0; i < s->whole.count; i++) {
        if (can_be_read(&s->whole.fields[i])) {
            mr_schema_add(&n->schema, &s->whole.fields[i]);
        }
    }
    MR_TRY(n->ops->open(&n->state, &n->setup, err));
    rc = n->ops->begin(n->state, &n->schema, err);
out:
    if (rc < 0) {
        mr_source_close(&n);
        return rc;
    }
    *out = n;
    return MR_OK;
}

const struct mr_schema *mr_source_schema(const struct mr_source *s)
{
    return &s->schema;
}

const struct mr_schema *mr_source_columns(const struct mr_source *s)
{
    return s->whole.count > 0 ? &s->whole : &s->schema;
}

size_t mr_source_file_count(const struct mr_source *s)
{
    return s->setup.file_count;
}

struct mr_source_file mr_source_file(const struct mr_source *s, size_t file)
{
    return s->setup.files[file];
}

const char *mr_source_path(const struct mr_source *s, size_t file)
{
    return s->setup.files[file].path;
}

int mr_source_read(struct mr_source *s, size_t file, uint64_t first, uint64_t max_rows,
                   uint64_t max_bytes, struct mr_rows **out, struct mr_err *err)
{
    const int64_t rows = s->setup.files[file].rows;

    if (rows >= 0 && first >= (uint64_t)rows) {
        *out = NULL;
        return MR_OK;
    }
    const int rc = s->ops->read(s->state, file, first, MR_MAX(max_rows, UINT64_C(1)),
                                MR_MAX(max_bytes, UINT64_C(1)), out, err);
    if (rc == MR_OK && *out) {
        (*out)->file = s->setup.files[file].path;
        (*out)->first = first;
    }
    return mr_damage_check(&s->setup.files[file], rc, err);
}

uint64_t mr_source_row_after(const struct mr_source *s, size_t file, uint64_t row)
{
    return s->ops->row_after ? s->ops->row_after(s->state, file, row) : UINT64_MAX;
}

uint64_t mr_source_bytes(const struct mr_source *s)
{
    return s->ops->bytes ? s->ops->bytes(s->state) : 0;
}

static int object_peek(const struct mr_source *s, const struct mr_source_file *f, uint64_t at,
                       void *out, size_t n, struct mr_err *err)
{
    struct mr_block *block = NULL;
    struct mr_s3_place place;
    mr_bytes data;
    int rc = mr_s3_uri_parse(f->path, &place.bucket, &place.key, err);

    if (rc < 0) {
        return rc;
    }
    struct mr_s3_fetch *fetch = mr_s3_fetch_begin(s->setup.s3, place, f->etag, at, n);
    rc = mr_s3_fetch_end(&fetch, &block, &data, err);
    if (rc == MR_OK) {
        memcpy(out, data.ptr, data.len);
        mr_block_unref(&block);
    }
    return rc;
}

static int file_peek(const struct mr_source_file *f, uint64_t at, void *out, size_t n,
                     struct mr_err *err)
{
    const int fd = open(f->path, O_RDONLY | O_CLOEXEC);
    const ssize_t got = fd < 0 ? -1 : pread(fd, out, n, (off_t)at);
    const int why = errno;

    if (fd >= 0) {
        close(fd);
    }
    return got == (ssize_t)n ? MR_OK
                             : MR_FAIL(err, MR_E_IO, "cannot read '%s': %s", f->path,
                                       got < 0 ? strerror(why) : "it became shorter");
}

int mr_source_peek(struct mr_source *s, size_t file, uint64_t at, void *out, size_t room,
                   size_t *out_n, struct mr_err *err)
{
    const struct mr_source_file *f = &s->setup.files[file];
    const size_t n = (size_t)MR_MIN(at < f->bytes ? f->bytes - at : 0, (uint64_t)room);
    const int rc = n == 0    ? MR_OK
                   : f->etag ? object_peek(s, f, at, out, n, err)
                             : file_peek(f, at, out, n, err);

    if (rc == MR_OK) {
        *out_n = n;
    }
    return rc;
}

void mr_source_cancel(struct mr_source *s)
{
    const uint64_t one = 1;

    if (s->setup.s3) {
        mr_s3_cancel(s->setup.s3);
    }

    if (s->ops->cancel) {
        s->ops->cancel(s->state);
    }
    /* Fails only after a huge number of cancellations. */
    if (s->setup.cancel_fd >= 0 && write(s->setup.cancel_fd, &one, sizeof one) < 0) {
        return;
    }
}

void mr_source_close(struct mr_source **source)
{
    struct mr_source *s = *source;

    *source = NULL;
    if (!s) {
        return;
    }
    if (s->state) {
        s->ops->close(s->state);
    }
    for (size_t i = 0; i < s->setup.file_count; i++) {
        mr_source_file_fini(&s->setup.files[i]);
    }
    mr_free(s->setup.files);
    mr_s3_free(&s->setup.s3);
    if (s->setup.cancel_fd >= 0) {
        close(s->setup.cancel_fd);
    }
    mr_schema_fini(&s->schema);
    mr_schema_fini(&s->whole);
    mr_free(s->query);
    mr_free(s);
}
