/* Rows into a table of an SQLite file.
 *
 * The file is locked for the time of a commit only. Each commit begins as a writer (BEGIN IMMEDIATE), so that the
 * epoch that it reads stays valid until its end. After any failure no transaction is open. */
#include <inttypes.h>
#include <string.h>
#include <strings.h>

#include "base/clock.h"
#include "base/mem.h"
#include "database.h"
#include "sqlite.h"
#include "store_priv.h"
#include "table/rows/formats.h"
#include "table/values/values.h"
#include "tensor/tensor.h"

#define SQL_MOST   (1u << 20)
#define BUSY_MS    200 /* short, as store.c retries on a locked file */
#define VALUE_MOST INT32_MAX

struct store {
    struct sqlite file;
    const struct mr_store_options *options;
    void *insert;
    struct mr_buf text; /* of one value */
};

/* ---- types ---- */

/* The declared type of columns, by which SQLite converts values. */
static const char *type_of(const struct mr_field *f)
{
    switch (f->type) {
    case MR_COLUMN_BOOL: return "BOOLEAN";
    case MR_COLUMN_F16:
    case MR_COLUMN_F32:
    case MR_COLUMN_F64: return "REAL";
    case MR_COLUMN_BINARY: return "BLOB";
    default: return f->type <= MR_COLUMN_U64 ? "INTEGER" : "TEXT";
    }
}

/* True if a column with another declaration keeps such values unchanged. */
static bool is_kept(const struct mr_field *f, mr_str declared)
{
    static const struct {
        const char *word;
        const char *type;
    } words[] = {{"INT", "INTEGER"}, {"CHAR", "TEXT"}, {"CLOB", "TEXT"}, {"TEXT", "TEXT"},
                 {"BLOB", "BLOB"},   {"REAL", "REAL"}, {"FLOA", "REAL"}, {"DOUB", "REAL"}};
    const char *type = type_of(f);
    char text[64] = "";

    memcpy(text, declared.ptr, MR_MIN(declared.len, sizeof text - 1));
    if (!text[0]) {
        return true;
    }
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        if (strcasestr(text, words[i].word)) {
            return strcmp(words[i].type, type) == 0 ||
                   (f->type == MR_COLUMN_BOOL && strcmp(words[i].type, "INTEGER") == 0);
        }
    }
    /* With any other declaration SQLite converts texts that look like numbers. */
    return strcmp(type, "TEXT") != 0;
}

/* ---- opening ---- */

/* *out: true if the table exists. */
static int table_check(const struct store *s, bool *out, struct mr_err *err)
{
    const struct mr_schema *schema = s->options->schema;
    const struct sqlite_api *api = s->file.api;
    bool *seen = MR_NEW_ARRAY(bool, schema->count + 1);
    void *statement = NULL;
    int rc;

    *out = false;
    MR_TRY(mr_sqlite_prepare(&s->file, "SELECT name, type FROM pragma_table_info(?1)", &statement,
                             err));
    api->bind_text(statement, 1, s->options->table, (int)strlen(s->options->table), SQLITE_STATIC);
    while (rc == MR_OK && api->step(statement) == SQLITE_ROW) {
        const char *name = (const char *)api->column_text(statement, 0);
        const mr_str declared = mr_sqlite_text(&s->file, statement, 1);
        *out = true;
        for (size_t i = 0; i < schema->count; i++) {
            if (strcasecmp(schema->fields[i].name, name) != 0) {
                continue;
            }
            seen[i] = true;
            if (!is_kept(&schema->fields[i], declared)) {
                rc = mr_store_other_type(s->options, name, declared, type_of(&schema->fields[i]),
                                         err);
            }
        }
    }
    for (size_t i = 0; *out && rc == MR_OK && i < schema->count; i++) {
        rc = seen[i] ? MR_OK : mr_store_no_column(s->options, schema->fields[i].name, err);
    }
out:
    api->finalize(statement);
    mr_free(seen);
    return rc;
}

static int table_make(const struct store *s, struct mr_err *err)
{
    const struct mr_schema *schema = s->options->schema;
    struct mr_buf sql;

    mr_buf_init(&sql, SQL_MOST);
    MR_BUF_LIT(&sql, "CREATE TABLE ");
    mr_database_quote(&sql, mr_str_c(s->options->table));
    for (size_t i = 0; i < schema->count; i++) {
        mr_buf_c(&sql, i ? ", " : " (");
        mr_database_quote(&sql, mr_str_c(schema->fields[i].name));
        mr_buf_printf(&sql, " %s", type_of(&schema->fields[i]));
    }
    mr_buf_char(&sql, ')');
    int rc = mr_sqlite_exec(&s->file, mr_buf_cstr(&sql), err);
    mr_buf_fini(&sql);
    return rc;
}

/* Runs a statement with at most two texts and two numbers, which returns a number or nothing. */
static int ask(const struct store *s, const char *sql, mr_str one, mr_str two, int64_t number,
               mr_str three, int64_t *out, struct mr_err *err)
{
    const struct sqlite_api *api = s->file.api;
    void *statement;
    int rc = mr_sqlite_prepare(&s->file, sql, &statement, err);

    if (rc < 0) {
        return rc;
    }
    /* Binding a parameter that the statement lacks fails, which is ignored. */
    api->bind_text(statement, 1, one.ptr, (int)one.len, SQLITE_STATIC);
    api->bind_text(statement, 2, two.ptr, (int)two.len, SQLITE_STATIC);
    api->bind_int64(statement, 3, number);
    api->bind_text(statement, 4, three.ptr, (int)three.len, SQLITE_STATIC);
    const int code = api->step(statement);
    if (code != SQLITE_ROW && code != SQLITE_DONE) {
        rc = mr_sqlite_fail(&s->file, code, "", err);
    } else if (code == SQLITE_ROW && out) {
        *out = api->column_int64(statement, 0);
    }
    api->finalize(statement);
    return rc;
}

static mr_str job_of(const struct store *s)
{
    return mr_str_c(s->options->job);
}

/* Within a transaction: checks that this start is the last one. */
static int fence_check(const struct store *s, struct mr_err *err)
{
    int64_t epoch = -1;
    int rc = ask(s, "SELECT epoch FROM " MR_STORE_JOBS " WHERE job = ?1", job_of(s), MR_STR(""), 0,
                 MR_STR(""), &epoch, err);

    if (rc == MR_OK && epoch != (int64_t)s->options->epoch) {
        rc = mr_store_fenced(s->options, epoch, err);
    }
    return rc;
}

static int fence_set(const struct store *s, struct mr_err *err)
{
    int rc = ask(s,
                 "INSERT INTO " MR_STORE_JOBS " VALUES (?1, ?3, ?2) ON CONFLICT (job) DO UPDATE "
                 "SET epoch = excluded.epoch WHERE epoch < excluded.epoch",
                 job_of(s), mr_str_c(s->options->table), s->options->epoch, MR_STR(""), NULL, err);
    return rc < 0 ? rc : fence_check(s, err);
}

/* Commits that the manifest lacks count, too: the job takes them from here. */
static int table_missing(const struct store *s, struct mr_err *err)
{
    int64_t commits = 0;
    const int rc = ask(s, "SELECT count(*) FROM " MR_STORE_COMMITS " WHERE job = ?1", job_of(s),
                       MR_STR(""), 0, MR_STR(""), &commits, err);

    return rc < 0                                ? rc
           : s->options->has_rows || commits > 0 ? mr_store_no_table(s->options, err)
                                                 : table_make(s, err);
}

static int set_up(const struct store *s, struct mr_err *err)
{
    bool is_there;
    int rc;

    MR_TRY(mr_sqlite_exec(&s->file,
                          "CREATE TABLE IF NOT EXISTS " MR_STORE_JOBS
                          " (job TEXT PRIMARY KEY, epoch INTEGER NOT NULL, target TEXT NOT NULL);"
                          "CREATE TABLE IF NOT EXISTS " MR_STORE_COMMITS
                          " (job TEXT, part TEXT, row_count INTEGER NOT NULL, extents TEXT NOT "
                          "NULL, PRIMARY KEY (job, part))",
                          err));
    MR_TRY(fence_set(s, err));
    MR_TRY(table_check(s, &is_there, err));
    rc = is_there ? MR_OK : table_missing(s, err);
out:
    return rc;
}

/* The work of one transaction. */
typedef int(act_fn)(struct store *s, const struct mr_store_add *add, struct mr_err *err);

static int open_act(struct store *s, const struct mr_store_add *add, struct mr_err *err)
{
    (void)add;
    return set_up(s, err);
}

static int transact(struct store *s, act_fn *act, const struct mr_store_add *add,
                    struct mr_err *err)
{
    int rc = mr_sqlite_exec(&s->file, "BEGIN IMMEDIATE", err);

    if (rc < 0) {
        return rc;
    }
    rc = act(s, add, err);
    if (rc == MR_OK) {
        rc = mr_sqlite_exec(&s->file, "COMMIT", err);
    }
    if (rc < 0 && !s->file.api->get_autocommit(s->file.db)) {
        mr_sqlite_exec(&s->file, "ROLLBACK", NULL);
    }
    return rc;
}

static void store_close(void *state)
{
    struct store *s = state;

    if (s->insert) {
        s->file.api->finalize(s->insert);
    }
    mr_sqlite_close(&s->file);
    mr_buf_fini(&s->text);
    mr_free(s);
}

static int insert_prepare(struct store *s, struct mr_err *err)
{
    const struct mr_schema *schema = s->options->schema;
    struct mr_buf sql;

    mr_buf_init(&sql, SQL_MOST);
    MR_BUF_LIT(&sql, "INSERT INTO ");
    mr_database_quote(&sql, mr_str_c(s->options->table));
    for (size_t i = 0; i < schema->count; i++) {
        mr_buf_c(&sql, i ? ", " : " (");
        mr_database_quote(&sql, mr_str_c(schema->fields[i].name));
    }
    for (size_t i = 0; i < schema->count; i++) {
        mr_buf_c(&sql, i ? ", ?" : ") VALUES (?");
    }
    mr_buf_char(&sql, ')');
    int rc = mr_sqlite_prepare(&s->file, mr_buf_cstr(&sql), &s->insert, err);
    mr_buf_fini(&sql);
    return rc;
}

static int store_open(void **out, const struct mr_store_options *options,
                      const _Atomic int64_t *until_ns, struct mr_err *err)
{
    struct store *s = MR_NEW(struct store);
    int rc;

    (void)until_ns; /* no wait here is long */
    s->options = options;
    mr_buf_init(&s->text, VALUE_MOST);
    MR_TRY(mr_sqlite_open(&s->file, options->database, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE,
                          err));
    MR_TRY(transact(s, open_act, NULL, err));
    MR_TRY(insert_prepare(s, err));
    s->file.api->busy_timeout(s->file.db, BUSY_MS);
    *out = s;
    return MR_OK;
out:
    store_close(s);
    return rc;
}

/* ---- commits ---- */

static int store_commits(void *state, mr_store_commit_fn *fn, void *ctx, struct mr_err *err)
{
    struct store *s = state;
    const struct sqlite_api *api = s->file.api;
    void *statement;
    int code = SQLITE_ROW;
    int rc = mr_sqlite_prepare(&s->file,
                               "SELECT part, row_count, extents FROM " MR_STORE_COMMITS
                               " WHERE job = ?1 ORDER BY part",
                               &statement, err);
    if (rc < 0) {
        return rc;
    }
    api->bind_text(statement, 1, s->options->job, (int)strlen(s->options->job), SQLITE_STATIC);
    while (rc == MR_OK && (code = api->step(statement)) == SQLITE_ROW) {
        rc = fn(ctx, mr_sqlite_text(&s->file, statement, 0),
                (uint64_t)api->column_int64(statement, 1), mr_sqlite_text(&s->file, statement, 2),
                err);
    }
    if (rc == MR_OK && code != SQLITE_DONE) {
        rc = mr_sqlite_fail(&s->file, code, "", err);
    }
    api->finalize(statement);
    return rc;
}

static int bind_text(struct store *s, int at, mr_str text, bool is_blob)
{
    const char *bytes = text.ptr ? text.ptr : "";

    return is_blob ? s->file.api->bind_blob(s->insert, at, bytes, (int)text.len, SQLITE_STATIC)
                   : s->file.api->bind_text(s->insert, at, bytes, (int)text.len, SQLITE_STATIC);
}

/* A number of a column. */
#define NUMBER(type) (((const type *)c->values)[row])

static bool number_of(const struct mr_field *f, const struct mr_column *c, uint64_t row,
                      int64_t *out)
{
    switch (f->type) {
    case MR_COLUMN_BOOL:
    case MR_COLUMN_U8: *out = NUMBER(uint8_t); return true;
    case MR_COLUMN_I8: *out = NUMBER(int8_t); return true;
    case MR_COLUMN_I16: *out = NUMBER(int16_t); return true;
    case MR_COLUMN_I32: *out = NUMBER(int32_t); return true;
    case MR_COLUMN_I64: *out = NUMBER(int64_t); return true;
    case MR_COLUMN_U16: *out = NUMBER(uint16_t); return true;
    case MR_COLUMN_U32: *out = NUMBER(uint32_t); return true;
    default: *out = (int64_t)NUMBER(uint64_t); return NUMBER(uint64_t) <= INT64_MAX;
    }
}

static double real_of(const struct mr_field *f, const struct mr_column *c, uint64_t row)
{
    return f->type == MR_COLUMN_F16   ? (double)mr_fp16_to_float(NUMBER(uint16_t))
           : f->type == MR_COLUMN_F32 ? (double)NUMBER(float)
                                      : NUMBER(double);
}

static int value_bind(struct store *s, int at, const struct mr_field *f, const struct mr_column *c,
                      uint64_t row, struct mr_err *err)
{
    const struct sqlite_api *api = s->file.api;
    int64_t whole;
    int code;

    if (mr_column_is_null(c, row)) {
        code = api->bind_null(s->insert, at);
    } else if (f->type == MR_COLUMN_STRING || f->type == MR_COLUMN_BINARY) {
        const mr_bytes bytes = mr_column_bytes(c, row);
        if (bytes.len > VALUE_MOST) {
            return MR_FAIL(err, MR_E_TOO_LARGE, "column '%s': a value of %zu bytes", f->name,
                           bytes.len);
        }
        code = bind_text(s, at, mr_str_n((const char *)bytes.ptr, bytes.len),
                         f->type == MR_COLUMN_BINARY);
    } else if (f->type >= MR_COLUMN_F16 && f->type <= MR_COLUMN_F64) {
        code = api->bind_double(s->insert, at, real_of(f, c, row));
    } else if (f->type <= MR_COLUMN_U64) {
        if (!number_of(f, c, row, &whole)) {
            return MR_FAIL(err, MR_E_TOO_LARGE,
                           "column '%s': SQLite has no whole numbers above 2^63 - 1", f->name);
        }
        code = api->bind_int64(s->insert, at, whole);
    } else {
        mr_buf_reset(&s->text);
        if (f->item) {
            mr_put_json_strict(&s->text, f, c, row);
        } else {
            mr_put_scalar(&s->text, f, c, row);
        }
        if (s->text.failed) {
            return MR_FAIL(err, MR_E_TOO_LARGE, "column '%s': a value of more than %d bytes",
                           f->name, VALUE_MOST);
        }
        code = api->bind_text(s->insert, at, mr_buf_cstr(&s->text), (int)s->text.len,
                              SQLITE_TRANSIENT);
    }
    return code == SQLITE_OK ? MR_OK : mr_sqlite_fail(&s->file, code, f->name, err);
}

static int rows_insert(struct store *s, const struct mr_rows *rows, struct mr_err *err)
{
    const struct sqlite_api *api = s->file.api;
    int rc = MR_OK;

    for (uint64_t row = 0; row < rows->count && rc == MR_OK; row++) {
        for (size_t i = 0; i < rows->schema->count && rc == MR_OK; i++) {
            rc = value_bind(s, (int)i + 1, &rows->schema->fields[i], &rows->columns[i], row, err);
        }
        if (rc == MR_OK) {
            const int code = api->step(s->insert);
            rc = code == SQLITE_DONE ? MR_OK
                                     : mr_sqlite_fail(&s->file, code, s->options->table, err);
        }
        api->reset(s->insert);
    }
    return rc;
}

static int commit_act(struct store *s, const struct mr_store_add *add, struct mr_err *err)
{
    int64_t is_there = 0;
    int rc;

    MR_TRY(fence_check(s, err));
    MR_TRY(ask(s, "SELECT 1 FROM " MR_STORE_COMMITS " WHERE job = ?1 AND part = ?2", job_of(s),
               add->name, 0, MR_STR(""), &is_there, err));
    if (is_there) {
        return MR_OK; /* made by an earlier attempt with unknown outcome */
    }
    MR_TRY(ask(s, "INSERT INTO " MR_STORE_COMMITS " VALUES (?1, ?2, ?3, ?4)", job_of(s), add->name,
               (int64_t)add->row_count, add->note, NULL, err));
    for (size_t i = 0; i < add->count && rc == MR_OK; i++) {
        rc = rows_insert(s, add->rows[i], err);
    }
out:
    return rc;
}

static int store_commit(void *state, const struct mr_store_add *add, struct mr_err *err)
{
    return transact(state, commit_act, add, err);
}

const struct mr_store_ops mr_sqlite_store_ops = {
    .open = store_open,
    .commits = store_commits,
    .commit = store_commit,
    .close = store_close,
};
