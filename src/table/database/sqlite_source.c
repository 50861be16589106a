/* Rows of SQLite files.
 *
 * A table is read in the order of its rowids, with one statement per read. So no lock is held between reads, and
 * writers, perhaps the job itself, need not wait. A row's number is its place in that order, found again by counting
 * rowids. Tables without rowids and queries are read by one statement, which holds its lock from the first row to the
 * last.
 *
 * In SQLite each value has its own type. A column's type is its declared one, by SQLite's rules, or else that of the
 * first rows; a value of another type is a fault of its row. Lists are JSON texts, or BLOBs of packed little-endian
 * numbers. */
#include "sqlite.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <time.h>

#include "base/arena.h"
#include "base/clock.h"
#include "base/mem.h"
#include "base/vec.h"
#include "database.h"
#include "table/rows/formats.h"
#include "table/values/values.h"

#define GUESS_ROWS 1000
#define BUSY_MS    200 /* short, as read_rows tries again while the file is locked */
#define PAUSE_NS   (100 * MR_NS_PER_MS)
#define SQL_MOST   (1u << 20)

struct source {
    struct sqlite file;
    const struct mr_source_setup *setup;
    char *from; /* SQL of the table, or the query in brackets */
    char *key;  /* SQL of its rowid; NULL: none */
    /* SQL: " ORDER BY …" for a table without rowid; "" for a query, which has its own */
    char *order;
    int64_t first_key;
    int64_t last_key;
    void *rows;      /* the statement that reads rows; NULL: not prepared yet */
    bool is_stepped; /* without rowids: it is positioned after row next - 1 */
    uint64_t next;   /* the next row */
    int64_t key_before;
    struct mr_arena scratch;
    struct mr_database_rows made;
    bool has_waited; /* for a lock, which was logged */
    _Atomic bool is_cancelled;
};

static int failed(const struct source *s, int code, struct mr_err *err)
{
    return mr_sqlite_fail(&s->file, code, "", err);
}

static int changed(const struct source *s, struct mr_err *err)
{
    return MR_FAIL(err, MR_E_IO, "'%s' has changed since it was opened", s->setup->files[0].path);
}

/* ---- what is read ---- */

/* The rowid has three names; a column of the same name hides it. */
static char *key_find(const struct source *s)
{
    static const char *const names[] = {"rowid", "_rowid_", "oid"};
    char *found = NULL;
    struct mr_buf sql;

    mr_buf_init(&sql, SQL_MOST);
    for (size_t i = 0; i < sizeof names / sizeof *names && !found; i++) {
        void *statement = NULL;
        mr_buf_reset(&sql);
        mr_buf_printf(&sql, "SELECT * FROM %s", s->from);
        if (mr_sqlite_prepare(&s->file, mr_buf_cstr(&sql), &statement, NULL) < 0) {
            break;
        }
        bool is_column = false;
        for (int k = 0; k < s->file.api->column_count(statement); k++) {
            is_column =
                is_column || strcasecmp(s->file.api->column_name(statement, k), names[i]) == 0;
        }
        s->file.api->finalize(statement);
        mr_buf_reset(&sql);
        mr_buf_printf(&sql, "SELECT %s FROM %s", names[i], s->from);
        if (!is_column &&
            mr_sqlite_prepare(&s->file, mr_buf_cstr(&sql), &statement, NULL) == MR_OK) {
            s->file.api->finalize(statement);
            found = mr_strndup(names[i], strlen(names[i]));
        }
    }
    mr_buf_fini(&sql);
    return found;
}

/* The order of a table without rowids. */
static int order_find(struct source *s, const char *table, struct mr_err *err)
{
    struct mr_buf order;
    void *statement = NULL;
    int rc;

    mr_buf_init(&order, SQL_MOST);
    MR_TRY(mr_sqlite_prepare(&s->file,
                             "SELECT name FROM pragma_table_info(?1) WHERE pk > 0 ORDER BY pk",
                             &statement, err));
    s->file.api->bind_text(statement, 1, table, (int)strlen(table), SQLITE_STATIC);
    while (s->file.api->step(statement) == SQLITE_ROW) {
        mr_buf_c(&order, order.len ? ", " : " ORDER BY ");
        mr_database_quote(&order, mr_sqlite_text(&s->file, statement, 0));
    }
    s->order = mr_strndup(mr_buf_cstr(&order), order.len);
    rc = s->order[0] ? MR_OK
                     : MR_FAIL(err, MR_E_INVALID,
                               "'%s' has neither rowids nor a primary key: read it by a query with "
                               "an ORDER BY",
                               table);
out:
    s->file.api->finalize(statement);
    mr_buf_fini(&order);
    return rc;
}

static int table_find(struct source *s, const char *table, struct mr_err *err)
{
    struct mr_buf from;
    void *statement = NULL;
    int rc;

    mr_buf_init(&from, SQL_MOST);
    MR_TRY(mr_sqlite_prepare(&s->file,
                             "SELECT type FROM sqlite_master WHERE name = ?1 COLLATE NOCASE AND "
                             "type IN ('table', 'view')",
                             &statement, err));
    s->file.api->bind_text(statement, 1, table, (int)strlen(table), SQLITE_STATIC);
    const int code = s->file.api->step(statement);
    const bool is_table =
        code == SQLITE_ROW && mr_str_eq_c(mr_sqlite_text(&s->file, statement, 0), "table");
    if (code != SQLITE_ROW && code != SQLITE_DONE) {
        rc = failed(s, code, err);
    } else if (!is_table) {
        rc =
            MR_FAIL(err, code == SQLITE_ROW ? MR_E_INVALID : MR_E_NOT_FOUND,
                    code == SQLITE_ROW ? "'%s' in sqlite:%s is a view, which has no order: read it "
                                         "by a query with an ORDER BY"
                                       : "there is no table '%s' in sqlite:%s",
                    table, s->file.path);
    }
    MR_TRY(rc);
    mr_database_quote(&from, mr_str_c(table));
    s->from = mr_strndup(mr_buf_cstr(&from), from.len);
    s->key = key_find(s);
    rc = s->key ? MR_OK : order_find(s, table, err);
out:
    s->file.api->finalize(statement);
    mr_buf_fini(&from);
    return rc;
}

static int query_find(struct source *s, const char *query, struct mr_err *err)
{
    struct mr_buf from;
    void *statement = NULL;
    int rc;

    mr_buf_init(&from, SQL_MOST);
    MR_TRY(mr_sqlite_prepare(&s->file, query, &statement, err));
    const bool is_select =
        s->file.api->stmt_readonly(statement) && s->file.api->column_count(statement) > 0;
    s->file.api->finalize(statement);
    if (!is_select || !mr_database_has_order(query)) {
        rc = is_select ? mr_database_no_order(err)
                       : MR_FAIL(err, MR_E_INVALID, "the query gives no rows");
        goto out;
    }
    mr_str bare = mr_str_trim(mr_str_c(query));
    bare.len -= mr_str_ends(bare, MR_STR(";"));
    /* The line end is needed after a query that ends with a comment. */
    mr_buf_char(&from, '(');
    mr_buf_str(&from, bare);
    mr_buf_c(&from, "\n)");
    s->from = mr_strndup(mr_buf_cstr(&from), from.len);
    s->order = mr_strndup("", 0);
out:
    mr_buf_fini(&from);
    return rc;
}

/* Counts the rows, and finds the first and last key. */
static int rows_count(struct source *s, struct mr_source_file *file, struct mr_err *err)
{
    struct mr_buf sql;
    void *statement = NULL;
    int rc;

    mr_buf_init(&sql, SQL_MOST);
    MR_BUF_LIT(&sql, "SELECT count(*)");
    if (s->key) {
        mr_buf_printf(&sql, ", min(%s), max(%s)", s->key, s->key);
    }
    mr_buf_printf(&sql, " FROM %s", s->from);
    MR_TRY(mr_sqlite_prepare(&s->file, mr_buf_cstr(&sql), &statement, err));
    const int code = s->file.api->step(statement);
    if (code != SQLITE_ROW) {
        rc = failed(s, code, err);
        goto out;
    }
    file->rows = s->file.api->column_int64(statement, 0);
    mr_buf_reset(&sql);
    mr_buf_printf(&sql, "{\"rows\":%" PRId64, file->rows);
    if (s->key) {
        s->first_key = s->file.api->column_int64(statement, 1);
        s->last_key = s->file.api->column_int64(statement, 2);
        mr_buf_printf(&sql, ",\"first\":%" PRId64 ",\"last\":%" PRId64, s->first_key, s->last_key);
    }
    mr_buf_char(&sql, '}');
    file->state = mr_strndup(mr_buf_cstr(&sql), sql.len);
out:
    s->file.api->finalize(statement);
    mr_buf_fini(&sql);
    return rc;
}

static bool is_same_file(const char *path, const char *database)
{
    struct stat a;
    struct stat b;

    return database && mr_database_kind_of(database) == MR_DATABASE_IS_SQLITE &&
           stat(path, &a) == 0 && stat(database + strlen(MR_DATABASE_SQLITE), &b) == 0 &&
           a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

/* A source of one statement locks the file until everything is read, while the commits to it wait: a deadlock. */
static int lock_check(struct source *s, struct mr_err *err)
{
    void *statement = NULL;
    int rc;

    if (s->key || !is_same_file(s->file.path, s->setup->options->sink)) {
        return MR_OK;
    }
    MR_TRY(mr_sqlite_prepare(&s->file, "PRAGMA journal_mode", &statement, err));
    const int code = s->file.api->step(statement);
    if (code != SQLITE_ROW) {
        rc = failed(s, code, err);
    } else if (!mr_str_eq_c(mr_sqlite_text(&s->file, statement, 0), "wal")) {
        rc =
            MR_FAIL(err, MR_E_INVALID,
                    "sqlite:%s is also what results go to, but a query, or a table without rowids, "
                    "locks it until all rows are read: set PRAGMA journal_mode=WAL in it, or write "
                    "to another file",
                    s->file.path);
    }
out:
    s->file.api->finalize(statement);
    return rc;
}

static void close_source(void *state)
{
    struct source *s = state;

    if (s->rows) {
        s->file.api->finalize(s->rows);
    }
    mr_database_rows_fini(&s->made);
    mr_arena_fini(&s->scratch);
    mr_sqlite_close(&s->file);
    mr_free(s->from);
    mr_free(s->key);
    mr_free(s->order);
    mr_free(s);
}

static int open_source(void **out, const struct mr_source_setup *setup, struct mr_err *err)
{
    const struct mr_source_options *o = setup->options;
    struct source *s = MR_NEW(struct source);
    struct mr_source_file *file = &setup->files[0];
    struct mr_buf path;
    int rc;

    mr_buf_init(&path, SQL_MOST);
    s->setup = setup;
    atomic_init(&s->is_cancelled, false);
    mr_arena_init(&s->scratch, 16384, (size_t)MR_MIN(o->memory_bytes, (uint64_t)1 << 40) + 65536);
    MR_TRY(mr_database_label(o->paths[0], o->table ? o->table : "query", &path, err));
    file->path = mr_strndup(mr_buf_cstr(&path), path.len);
    /* For writing if possible: after a crash of a writer its unfinished work must be rolled back before a read. */
    MR_TRY(mr_sqlite_open(&s->file, o->paths[0], SQLITE_OPEN_READWRITE, err));
    MR_TRY(mr_sqlite_exec(&s->file, "PRAGMA query_only = ON", err));
    MR_TRY(o->table ? table_find(s, o->table, err) : query_find(s, o->query, err));
    MR_TRY(lock_check(s, err));
    if (o->table) {
        MR_TRY(rows_count(s, file, err));
    } else {
        file->state = mr_strndup("null", strlen("null"));
    }
    *out = s;
out:
    mr_buf_fini(&path);
    if (rc < 0) {
        close_source(s);
    }
    return rc;
}

static void cancel(void *state)
{
    struct source *s = state;

    /* Relaxed: it orders nothing. The flag ends a statement that begins later, the call a running one. */
    atomic_store_explicit(&s->is_cancelled, true, memory_order_relaxed);
    s->file.api->interrupt(s->file.db);
}

/* ---- types ---- */

/* SQLite's rules for declarations (datatype3.html, 3.1), plus BOOLEAN, which SQLite treats as a number. */
static enum mr_column_type type_declared(const char *declared)
{
    static const struct {
        const char *word;
        enum mr_column_type type;
    } words[] = {{"INT", MR_COLUMN_I64},     {"CHAR", MR_COLUMN_STRING}, {"CLOB", MR_COLUMN_STRING},
                 {"TEXT", MR_COLUMN_STRING}, {"BLOB", MR_COLUMN_BINARY}, {"REAL", MR_COLUMN_F64},
                 {"FLOA", MR_COLUMN_F64},    {"DOUB", MR_COLUMN_F64},    {"BOOL", MR_COLUMN_BOOL}};

    for (size_t i = 0; declared && i < sizeof words / sizeof *words; i++) {
        if (strcasestr(declared, words[i].word)) {
            return words[i].type;
        }
    }
    return MR_COLUMN_NONE;
}

static enum mr_column_type type_of_value(int type)
{
    static const enum mr_column_type types[] = {[SQLITE_INTEGER] = MR_COLUMN_I64,
                                                [SQLITE_FLOAT] = MR_COLUMN_F64,
                                                [SQLITE_TEXT] = MR_COLUMN_STRING,
                                                [SQLITE_BLOB] = MR_COLUMN_BINARY,
                                                [SQLITE_NULL] = MR_COLUMN_NONE};
    return type > 0 && type <= SQLITE_NULL ? types[type] : MR_COLUMN_NONE;
}

/* Columns without a declaration have the type of their first value, or fractions if both kinds of numbers occur in
 * the first rows. */
static int guess(const struct source *s, void *statement, struct mr_field *fields, int count,
                 const bool *is_declared, struct mr_err *err)
{
    bool is_open = false;
    int code = SQLITE_ROW;

    for (int i = 0; i < count; i++) {
        is_open = is_open || !is_declared[i];
    }
    for (int row = 0; is_open && row < GUESS_ROWS && code == SQLITE_ROW; row++) {
        code = s->file.api->step(statement);
        for (int i = 0; code == SQLITE_ROW && i < count; i++) {
            const enum mr_column_type seen = type_of_value(s->file.api->column_type(statement, i));
            if (!is_declared[i] && (fields[i].type == MR_COLUMN_NONE ||
                                    (fields[i].type == MR_COLUMN_I64 && seen == MR_COLUMN_F64))) {
                fields[i].type = seen;
            }
        }
    }
    return code == SQLITE_ROW || code == SQLITE_DONE ? MR_OK : failed(s, code, err);
}

static void want(const struct source *s, struct mr_field *f)
{
    const struct mr_schema *wanted = s->setup->options->wanted;
    const int i = wanted ? mr_schema_find(wanted, mr_str_c(f->name)) : -1;
    const enum mr_column_type found = f->type;

    f->type = found == MR_COLUMN_NONE ? MR_COLUMN_STRING : found;
    if (i >= 0 && wanted->fields[i].type != MR_COLUMN_NONE &&
        mr_database_may_become(found, &wanted->fields[i])) {
        mr_field_fini(f);
        mr_field_copy(f, &wanted->fields[i]);
        f->is_json = false; /* texts need not be JSON */
    }
    f->is_nullable = true;
}

static int schema(void *state, size_t file, struct mr_schema *out, struct mr_err *err)
{
    struct source *s = state;
    struct mr_field *fields = NULL;
    bool *is_declared = NULL;
    void *statement = NULL;
    struct mr_buf sql;
    int count = 0;
    int rc;

    (void)file;
    mr_buf_init(&sql, SQL_MOST);
    mr_buf_printf(&sql, "SELECT * FROM %s%s", s->from, s->order ? s->order : "");
    MR_TRY(mr_sqlite_prepare(&s->file, mr_buf_cstr(&sql), &statement, err));
    count = s->file.api->column_count(statement);
    fields = MR_NEW_ARRAY(struct mr_field, (size_t)count);
    is_declared = MR_NEW_ARRAY(bool, (size_t)count);
    for (int i = 0; i < count; i++) {
        const char *name = s->file.api->column_name(statement, i);
        fields[i].name = mr_strndup(name, strlen(name));
        fields[i].type = type_declared(s->file.api->column_decltype(statement, i));
        is_declared[i] = fields[i].type != MR_COLUMN_NONE;
    }
    MR_TRY(guess(s, statement, fields, count, is_declared, err));
    for (int i = 0; i < count; i++) {
        fields[i].is_guessed = !is_declared[i];
        want(s, &fields[i]);
        mr_schema_add(out, &fields[i]);
    }
out:
    for (int i = 0; i < count; i++) {
        mr_field_fini(&fields[i]);
    }
    s->file.api->finalize(statement);
    mr_free(fields);
    mr_free(is_declared);
    mr_buf_fini(&sql);
    return rc;
}

/* Prepares the statement that reads rows: with keys, a number of rows from a key on. */
static int begin(void *state, const struct mr_schema *columns, struct mr_err *err)
{
    struct source *s = state;
    struct mr_buf sql;
    int rc;

    mr_buf_init(&sql, SQL_MOST);
    MR_TRY(mr_database_rows_init(&s->made, columns, s->setup->options->max_cell_bytes, err));
    mr_buf_printf(&sql, "SELECT %s", s->key ? s->key : "0");
    for (size_t i = 0; i < columns->count; i++) {
        mr_buf_c(&sql, ", ");
        mr_database_quote(&sql, mr_str_c(columns->fields[i].name));
    }
    mr_buf_printf(&sql, " FROM %s", s->from);
    if (s->key) {
        mr_buf_printf(&sql, " WHERE %s >= ?1 ORDER BY %s LIMIT ?2", s->key, s->key);
    } else {
        mr_buf_c(&sql, s->order);
    }
    MR_TRY(mr_sqlite_prepare(&s->file, mr_buf_cstr(&sql), &s->rows, err));
    s->file.api->busy_timeout(s->file.db, BUSY_MS);
out:
    mr_buf_fini(&sql);
    return rc;
}

/* ---- values ---- */

/* Returns NULL or the error, perhaps as text in why. */
static const char *value_add(struct source *s, struct mr_column_builder *b, int i,
                             struct mr_err *why)
{
    const struct sqlite_api *api = s->file.api;
    const int type = api->column_type(s->rows, i);
    const enum mr_column_type to = b->field->type;
    mr_str bytes;

    switch (type) {
    case SQLITE_NULL: mr_column_add_null(b); return NULL;
    case SQLITE_INTEGER:
        return mr_cell_whole(b, api->column_int64(s->rows, i)) ? NULL
               : mr_column_type_bytes(to) > 0                  ? "the number does not fit"
                                                               : "the value is a number";
    case SQLITE_FLOAT:
        return mr_cell_real(b, api->column_double(s->rows, i)) ? NULL
               : mr_column_type_bytes(to) > 0                  ? "the number does not fit"
                                                               : "the value is a number";
    case SQLITE_TEXT: bytes = mr_sqlite_text(&s->file, s->rows, i); break;
    default:
        bytes.ptr = api->column_blob(s->rows, i);
        bytes.len = (size_t)api->column_bytes(s->rows, i);
        break;
    }
    if (bytes.len > s->setup->options->max_cell_bytes) {
        return "the value is larger than a cell may be";
    }
    if (type == SQLITE_TEXT) {
        return mr_cell_text(b, bytes, &s->scratch, why) < 0 ? why->msg : NULL;
    }
    if (to == MR_COLUMN_BINARY) {
        mr_column_add_bytes(b, bytes);
        return NULL;
    }
    return b->item ? mr_database_add_raw(b, bytes) : "the value is a BLOB";
}

static int row_add(struct source *s, struct mr_err *err)
{
    const char *wrong = NULL;
    struct mr_err why;
    size_t i;

    mr_err_clear(&why);
    for (i = 0; i < s->made.schema->count && !wrong; i++) {
        wrong = value_add(s, &s->made.builders[i], (int)i + 1, &why);
    }
    if (s->scratch.chunks) {
        mr_arena_reset(&s->scratch);
    }
    return mr_database_row_end(&s->made, i - 1, wrong, &why, s->setup->files[0].path, s->next, err);
}

/* ---- reading ---- */

/* The key of an existing row. */
static int key_of(struct source *s, uint64_t row, int64_t *out, struct mr_err *err)
{
    struct mr_buf sql;
    void *statement = NULL;
    int rc;

    /* The keys have no gaps. */
    if ((uint64_t)s->last_key - (uint64_t)s->first_key == (uint64_t)s->setup->files[0].rows - 1) {
        *out = (int64_t)((uint64_t)s->first_key + row);
        return MR_OK;
    }
    mr_buf_init(&sql, SQL_MOST);
    mr_buf_printf(&sql, "SELECT %s FROM %s ORDER BY %s LIMIT 1 OFFSET %" PRIu64, s->key, s->from,
                  s->key, row);
    MR_TRY(mr_sqlite_prepare(&s->file, mr_buf_cstr(&sql), &statement, err));
    const int code = s->file.api->step(statement);
    if (code == SQLITE_ROW) {
        *out = s->file.api->column_int64(statement, 0);
    } else {
        rc = code == SQLITE_DONE ? changed(s, err) : failed(s, code, err);
    }
out:
    s->file.api->finalize(statement);
    mr_buf_fini(&sql);
    return rc;
}

static int keyed_seek(struct source *s, uint64_t first, uint64_t max_rows, struct mr_err *err)
{
    int64_t before = s->key_before;

    if (first > 0 && (first != s->next || s->next == 0)) {
        const int rc = key_of(s, first - 1, &before, err);
        if (rc < 0) {
            return rc;
        }
    }
    if (first > 0 && before == INT64_MAX) {
        return changed(s, err);
    }
    s->next = first;
    s->file.api->reset(s->rows);
    s->file.api->bind_int64(s->rows, 1, first > 0 ? before + 1 : s->first_key);
    s->file.api->bind_int64(s->rows, 2, (int64_t)MR_MIN(max_rows, MR_DATABASE_ROWS));
    return MR_OK;
}

/* Makes row `first` the statement's next step, unless the rows end before. */
static int seek(struct source *s, uint64_t first, struct mr_err *err)
{
    int code = SQLITE_ROW;

    if (!s->is_stepped || first < s->next) {
        s->file.api->reset(s->rows);
        s->next = 0;
    }
    while (s->next < first && code == SQLITE_ROW) {
        code = s->file.api->step(s->rows);
        s->is_stepped = true;
        s->next += code == SQLITE_ROW;
    }
    if (code == SQLITE_DONE) {
        s->is_stepped = false; /* a further step would start again */
    }
    return code == SQLITE_ROW || code == SQLITE_DONE ? MR_OK : failed(s, code, err);
}

/* True unless the table still has the counted rows, up to the same key. */
static bool has_changed(const struct source *s, int code, int64_t key)
{
    const int64_t rows = s->setup->files[0].rows;

    return rows >= 0 &&
           (code == SQLITE_DONE ? s->next < (uint64_t)rows
                                : s->key && s->next + 1 == (uint64_t)rows && key != s->last_key);
}

static int window_read(struct source *s, uint64_t max_rows, uint64_t max_bytes, struct mr_err *err)
{
    const struct sqlite_api *api = s->file.api;
    int64_t *rows = &s->setup->files[0].rows;

    for (uint64_t n = 0; n < MR_MIN(max_rows, MR_DATABASE_ROWS); n++) {
        if (n > 0 && mr_database_rows_bytes(&s->made) >= max_bytes) {
            break;
        }
        if (atomic_load_explicit(&s->is_cancelled, memory_order_relaxed)) {
            return MR_FAIL(err, MR_E_CANCELLED, "stopped");
        }
        const int code = api->step(s->rows);
        s->is_stepped = true;
        if (code != SQLITE_ROW && code != SQLITE_DONE) {
            return failed(s, code, err);
        }
        const int64_t key = code == SQLITE_ROW ? api->column_int64(s->rows, 0) : 0;
        if (has_changed(s, code, key)) {
            return changed(s, err);
        }
        if (code == SQLITE_DONE) {
            *rows = (int64_t)s->next;
            break;
        }
        const int rc = row_add(s, err);
        if (rc < 0) {
            return rc;
        }
        s->next++;
        s->key_before = key;
        if (*rows >= 0 && s->next == (uint64_t)*rows) {
            break;
        }
    }
    return MR_OK;
}

/* Only damage is MR_E_INVALID: a table that is gone, or a file that cannot be opened, may be there again. */
static int read_failed(const struct source *s, int rc, struct mr_err *err)
{
    const int code = s->file.api->errcode(s->file.db) & 0xff;

    return rc == MR_E_INVALID && code != SQLITE_CORRUPT && code != SQLITE_NOTADB
               ? MR_FAIL(err, MR_E_IO, "%s", err->msg)
               : rc;
}

static int rows_make(struct source *s, uint64_t first, uint64_t max_rows, uint64_t max_bytes,
                     struct mr_rows **out, struct mr_err *err)
{
    int rc;

    MR_TRY(mr_database_rows_begin(&s->made, err));
    MR_TRY(s->key ? keyed_seek(s, first, max_rows, err) : seek(s, first, err));
    if (s->next == first) { /* otherwise the rows end before */
        MR_TRY(window_read(s, max_rows, max_bytes, err));
    }
    MR_TRY(mr_database_rows_end(&s->made, out, err));
out:
    rc = read_failed(s, rc, err);
    if (s->key || rc < 0 || s->next == (uint64_t)s->setup->files[0].rows) {
        s->file.api->reset(s->rows); /* releases its lock */
        s->is_stepped = false;
    }
    if (rc < 0) {
        mr_database_rows_drop(&s->made);
        s->next = 0;
    }
    return rc;
}

/* False: the wait was ended. */
static bool pause_for(const struct source *s)
{
    const struct mr_source_options *o = s->setup->options;
    const struct timespec pause = {0, PAUSE_NS};

    nanosleep(&pause, NULL);
    return !atomic_load_explicit(&s->is_cancelled, memory_order_relaxed) &&
           !(o->is_stopped && o->is_stopped(o->ctx));
}

static int read_rows(void *state, size_t file, uint64_t first, uint64_t max_rows,
                     uint64_t max_bytes, struct mr_rows **out, struct mr_err *err)
{
    struct source *s = state;
    const int64_t give_up_ns = mr_ns_after(mr_now_ns(), s->setup->options->outage_ns);

    (void)file;
    for (;;) {
        const int rc = rows_make(s, first, max_rows, max_bytes, out, err);
        if (rc != MR_E_UNAVAILABLE || mr_now_ns() >= give_up_ns) {
            return rc;
        }
        mr_database_read_waits(&s->has_waited, err);
        if (!pause_for(s)) {
            return MR_FAIL(err, MR_E_CANCELLED, "stopped");
        }
    }
}

const struct mr_source_ops mr_sqlite_source_ops = {
    .open = open_source,
    .schema = schema,
    .begin = begin,
    .read = read_rows,
    .close = close_source,
    .cancel = cancel,
};
