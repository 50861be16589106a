/* Rows into a table of PostgreSQL, by COPY in its binary format.
 *
 * A commit begins by locking the job's row in millrace_jobs. So it waits for the end of an earlier attempt that may
 * still run in the server, whose outcome it then sees, and a later start waits for it. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "database.h"
#include "pg_value.h"
#include "store_priv.h"

#define SQL_MOST   (1u << 20)
#define COPY_PIECE ((size_t)256 << 10)

struct store {
    struct pg pg;
    const struct mr_store_options *options;
    char *table;   /* SQL */
    char *jobs;    /* SQL of millrace_jobs, in the same schema */
    char *commits; /* SQL of millrace_commits */
    char *columns; /* SQL */
    unsigned *types;
};

/* ---- asking ---- */

/* `sql` has %s in place of the table. */
static int ask(struct store *s, const char *sql, const char *table, const char *const *values,
               int count, void **out, struct mr_err *err)
{
    const char *gap = strstr(sql, "%s");
    struct mr_buf text;

    mr_buf_init(&text, SQL_MOST);
    mr_buf_append(&text, sql, (size_t)(gap - sql));
    mr_buf_c(&text, table);
    mr_buf_c(&text, gap + 2);
    int rc = mr_pg_query(&s->pg, mr_buf_cstr(&text), values, count, false, out, err);
    mr_buf_fini(&text);
    return rc;
}

static int run(struct store *s, const char *sql, struct mr_err *err)
{
    return mr_pg_query(&s->pg, sql, NULL, 0, false, NULL, err);
}

/* Locks the job's row: afterwards this start is known to be the last one, and no attempt of it runs elsewhere. */
static int fence_check(struct store *s, struct mr_err *err)
{
    const char *const job[] = {s->options->job};
    int64_t epoch = -1;
    void *result;
    int rc =
        ask(s, "SELECT epoch FROM %s WHERE job = $1 FOR UPDATE", s->jobs, job, 1, &result, err);

    if (rc < 0) {
        return rc;
    }
    mr_str_to_i64(mr_pg_value(&s->pg, result, 0, 0), &epoch);
    s->pg.api->clear(result);
    return epoch == (int64_t)s->options->epoch ? MR_OK : mr_store_fenced(s->options, epoch, err);
}

/* Runs `act` in a transaction. On failure it was not committed, except after MR_E_UNAVAILABLE, where that is unknown. */
typedef int(act_fn)(struct store *s, const struct mr_store_add *add, struct mr_err *err);

static int transact(struct store *s, act_fn *act, const struct mr_store_add *add,
                    struct mr_err *err)
{
    void *result = NULL;
    int rc;

    MR_TRY(run(s, "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE", err));
    MR_TRY(act(s, add, err));
    MR_TRY(mr_pg_query(&s->pg, "COMMIT", NULL, 0, false, &result, err));
    if (strcmp(s->pg.api->cmdStatus(result), "COMMIT") != 0) {
        rc = MR_FAIL(err, MR_E_UNAVAILABLE, "PostgreSQL took the transaction back");
    }
    s->pg.api->clear(result);
out:
    if (rc < 0) {
        mr_pg_close(&s->pg); /* which also rolls the transaction back */
    }
    return rc;
}

/* ---- opening ---- */

static int is_there(struct store *s, const char *table, bool *out, struct mr_err *err)
{
    void *result;
    int rc = mr_pg_query(&s->pg, "SELECT to_regclass($1) IS NOT NULL", (const char *const[]){table},
                         1, false, &result, err);

    if (rc == MR_OK) {
        *out = mr_str_eq_c(mr_pg_value(&s->pg, result, 0, 0), "t");
        s->pg.api->clear(result);
    }
    return rc;
}

/* Not IF NOT EXISTS, which requires the right to create tables even if they exist. */
static int make(struct store *s, const char *table, const char *sql, struct mr_err *err)
{
    bool is_made = false;
    int rc = is_there(s, table, &is_made, err);

    return rc < 0 || is_made ? rc : ask(s, sql, table, NULL, 0, NULL, err);
}

static int table_make(struct store *s, struct mr_err *err)
{
    const struct mr_schema *schema = s->options->schema;
    struct mr_buf sql;

    mr_buf_init(&sql, SQL_MOST);
    mr_buf_printf(&sql, "CREATE TABLE %s (", s->table);
    for (size_t i = 0; i < schema->count; i++) {
        mr_buf_c(&sql, i ? ", " : "");
        mr_database_quote(&sql, mr_str_c(schema->fields[i].name));
        mr_buf_char(&sql, ' ');
        mr_pg_put_type(&sql, &schema->fields[i]);
    }
    mr_buf_char(&sql, ')');
    int rc = run(s, mr_buf_cstr(&sql), err);
    mr_buf_fini(&sql);
    return rc;
}

static int column_check(struct store *s, const void *result, size_t column, struct mr_err *err)
{
    const struct mr_field *f = &s->options->schema->fields[column];
    struct mr_buf expected;
    uint64_t type = 0;
    int64_t mod = -1;
    int rc = MR_OK;
    int row = 0;

    while (row < s->pg.api->ntuples(result) &&
           !mr_str_eq_c(mr_pg_value(&s->pg, result, row, 0), f->name)) {
        row++;
    }
    if (row == s->pg.api->ntuples(result)) {
        return mr_store_no_column(s->options, f->name, err);
    }
    mr_str_to_u64(mr_pg_value(&s->pg, result, row, 1), &type);
    mr_str_to_i64(mr_pg_value(&s->pg, result, row, 3), &mod);
    s->types[column] = (unsigned)type;
    if (!mr_pg_takes((unsigned)type, (int)mod, f)) {
        mr_buf_init(&expected, 256);
        mr_pg_put_type(&expected, f);
        rc = mr_store_other_type(s->options, f->name, mr_pg_value(&s->pg, result, row, 2),
                                 mr_buf_cstr(&expected), err);
        mr_buf_fini(&expected);
    }
    return rc;
}

static int table_check(struct store *s, struct mr_err *err)
{
    void *result = NULL;
    int rc = mr_pg_query(
        &s->pg,
        "SELECT attname, atttypid::bigint, format_type(atttypid, atttypmod), "
        "atttypmod FROM pg_attribute WHERE attrelid = to_regclass($1) AND attnum > 0 AND NOT "
        "attisdropped",
        (const char *const[]){s->table}, 1, false, &result, err);

    for (size_t i = 0; rc == MR_OK && i < s->options->schema->count; i++) {
        rc = column_check(s, result, i, err);
    }
    s->pg.api->clear(result);
    return rc;
}

static int fence_set(struct store *s, struct mr_err *err)
{
    char epoch[16];
    const char *const values[] = {s->options->job, epoch, s->options->table};

    snprintf(epoch, sizeof epoch, "%u", s->options->epoch);
    int rc = ask(s,
                 "INSERT INTO %s AS j VALUES ($1, $2::bigint, $3) ON CONFLICT (job) DO UPDATE SET "
                 "epoch = excluded.epoch WHERE j.epoch < excluded.epoch",
                 s->jobs, values, 3, NULL, err);
    return rc < 0 ? rc : fence_check(s, err);
}

/* Commits that the manifest lacks count, too: the job takes them from here. */
static int table_missing(struct store *s, struct mr_err *err)
{
    const char *const job[] = {s->options->job};
    void *result;
    int rc = ask(s, "SELECT FROM %s WHERE job = $1 LIMIT 1", s->commits, job, 1, &result, err);

    if (rc < 0) {
        return rc;
    }
    const bool has_commits = s->pg.api->ntuples(result) > 0;
    s->pg.api->clear(result);
    return s->options->has_rows || has_commits ? mr_store_no_table(s->options, err)
                                               : table_make(s, err);
}

static int open_act(struct store *s, const struct mr_store_add *add, struct mr_err *err)
{
    bool has_table;
    int rc;

    (void)add;
    /* Prevents two concurrent starts from both creating the tables. The number is arbitrary. */
    MR_TRY(run(s, "SELECT pg_advisory_xact_lock(7812434902713)", err));
    MR_TRY(
        make(s, s->jobs,
             "CREATE TABLE %s (job text PRIMARY KEY, epoch bigint NOT NULL, target text NOT NULL)",
             err));
    MR_TRY(make(s, s->commits,
                "CREATE TABLE %s (job text, part text, row_count bigint NOT NULL, extents text NOT "
                "NULL, PRIMARY KEY (job, part))",
                err));
    MR_TRY(fence_set(s, err));
    MR_TRY(is_there(s, s->table, &has_table, err));
    MR_TRY(has_table ? MR_OK : table_missing(s, err));
    rc = table_check(s, err);
out:
    return rc;
}

/* The next start would miss commits that the server loses in a crash. */
static int connect_now(struct store *s, struct mr_err *err)
{
    int rc = mr_pg_open(&s->pg, s->options->database, err);

    return rc < 0 ? rc
                  : run(s,
                        "SELECT set_config('synchronous_commit', 'on', false) WHERE "
                        "current_setting('synchronous_commit') = 'off'",
                        err);
}

static char *beside(const char *table, const char *name)
{
    const char *dot = strchr(table, '.');
    struct mr_buf sql;

    mr_buf_init(&sql, SQL_MOST);
    if (dot) {
        mr_database_quote(&sql, mr_str_n(table, (size_t)(dot - table)));
        mr_buf_char(&sql, '.');
    }
    mr_buf_c(&sql, name);
    char *text = mr_strndup(mr_buf_cstr(&sql), sql.len);
    mr_buf_fini(&sql);
    return text;
}

static void names_make(struct store *s)
{
    const struct mr_schema *schema = s->options->schema;
    struct mr_buf sql;

    mr_buf_init(&sql, SQL_MOST);
    mr_pg_quote_table(&sql, s->options->table);
    s->table = mr_strndup(mr_buf_cstr(&sql), sql.len);
    s->jobs = beside(s->options->table, MR_STORE_JOBS);
    s->commits = beside(s->options->table, MR_STORE_COMMITS);
    mr_buf_reset(&sql);
    for (size_t i = 0; i < schema->count; i++) {
        mr_buf_c(&sql, i ? ", " : "");
        mr_database_quote(&sql, mr_str_c(schema->fields[i].name));
    }
    s->columns = mr_strndup(mr_buf_cstr(&sql), sql.len);
    mr_buf_fini(&sql);
}

static void store_close(void *state)
{
    struct store *s = state;

    mr_pg_close(&s->pg);
    mr_free(s->table);
    mr_free(s->jobs);
    mr_free(s->commits);
    mr_free(s->columns);
    mr_free(s->types);
    mr_free(s);
}

static int store_open(void **out, const struct mr_store_options *options,
                      const _Atomic int64_t *until_ns, struct mr_err *err)
{
    struct store *s = MR_NEW(struct store);
    int rc;

    s->options = options;
    s->pg.cancel_fd = -1;
    s->pg.until_ns = until_ns;
    s->pg.is_stopped = options->is_stopped;
    s->pg.ctx = options->ctx;
    s->types = MR_NEW_ARRAY(unsigned, options->schema->count + 1);
    names_make(s);
    MR_TRY(connect_now(s, err));
    MR_TRY(transact(s, open_act, NULL, err));
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
    const char *const job[] = {s->options->job};
    void *result;
    int rc = ask(s, "SELECT part, row_count, extents FROM %s WHERE job = $1 ORDER BY part",
                 s->commits, job, 1, &result, err);

    if (rc < 0) {
        return rc;
    }
    for (int i = 0; rc == MR_OK && i < s->pg.api->ntuples(result); i++) {
        uint64_t rows = 0;
        mr_str_to_u64(mr_pg_value(&s->pg, result, i, 1), &rows);
        rc = fn(ctx, mr_pg_value(&s->pg, result, i, 0), rows, mr_pg_value(&s->pg, result, i, 2),
                err);
    }
    s->pg.api->clear(result);
    return rc;
}

static int rows_copy(struct store *s, const struct mr_rows *rows, struct mr_buf *data,
                     struct mr_err *err)
{
    const size_t columns = rows->schema->count;
    int rc = MR_OK;

    for (uint64_t row = 0; row < rows->count; row++) {
        const uint8_t count[2] = {(uint8_t)(columns >> 8), (uint8_t)columns};
        mr_buf_append(data, count, sizeof count);
        for (size_t i = 0; i < columns; i++) {
            MR_TRY(mr_pg_put(data, s->types[i], &rows->schema->fields[i], &rows->columns[i], row,
                             err));
        }
        if (data->len >= COPY_PIECE) {
            MR_TRY(mr_pg_copy_put(&s->pg, data->ptr, data->len, err));
            mr_buf_reset(data);
        }
    }
out:
    return rc;
}

static int add_copy(struct store *s, const struct mr_store_add *add, struct mr_err *err)
{
    static const char head[19] = "PGCOPY\n\377\r\n"; /* then a NUL, no flags, no extension */
    struct mr_buf data;
    int rc;

    mr_buf_init(&data, (size_t)1 << 30);
    mr_buf_printf(&data, "COPY %s (%s) FROM STDIN (FORMAT binary)", s->table, s->columns);
    MR_TRY(mr_pg_query(&s->pg, mr_buf_cstr(&data), NULL, 0, false, NULL, err));
    mr_buf_reset(&data);
    mr_buf_append(&data, head, sizeof head);
    for (size_t i = 0; i < add->count; i++) {
        MR_TRY(rows_copy(s, add->rows[i], &data, err));
    }
    mr_buf_append(&data, "\377\377", 2);
    MR_TRY(mr_pg_copy_put(&s->pg, data.ptr, data.len, err));
    rc = mr_pg_copy_end(&s->pg, err);
out:
    mr_buf_fini(&data);
    return rc;
}

static int commit_act(struct store *s, const struct mr_store_add *add, struct mr_err *err)
{
    char rows[24];
    char *name = mr_strndup(add->name.ptr, add->name.len);
    char *note = mr_strndup(add->note.ptr, add->note.len);
    const char *const values[] = {s->options->job, name, rows, note};
    void *result = NULL;
    int rc;

    snprintf(rows, sizeof rows, "%" PRIu64, add->row_count);
    MR_TRY(fence_check(s, err));
    MR_TRY(ask(s, "INSERT INTO %s VALUES ($1, $2, $3::bigint, $4) ON CONFLICT DO NOTHING",
               s->commits, values, 4, &result, err));
    /* No row: an earlier attempt with unknown outcome has made it. */
    const bool is_new = strcmp(s->pg.api->cmdTuples(result), "1") == 0;
    s->pg.api->clear(result);
    rc = is_new ? add_copy(s, add, err) : MR_OK;
out:
    mr_free(name);
    mr_free(note);
    return rc;
}

static int store_commit(void *state, const struct mr_store_add *add, struct mr_err *err)
{
    struct store *s = state;

    s->pg.is_stopped = NULL; /* commits have their own time limit */
    int rc = s->pg.conn ? MR_OK : connect_now(s, err);

    return rc < 0 ? rc : transact(s, commit_act, add, err);
}

const struct mr_store_ops mr_pg_store_ops = {
    .open = store_open,
    .commits = store_commits,
    .commit = store_commit,
    .close = store_close,
};
