/* Rows of PostgreSQL.
 *
 * One transaction with one snapshot, read through a cursor, so that rows do not change after the source was opened,
 * and the server holds rows not yet fetched. A table is read in the order of its primary key (or of another unique
 * index without nulls), a query in its own order. A row's number is its place in that order; the cursor skips rows
 * without sending them, and to go back it is opened again with an OFFSET.
 *
 * After a lost connection the snapshot is a new one: a table with another number of rows or other first and last keys
 * is refused as changed. */
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/vec.h"
#include "codec/json.h"
#include "database.h"
#include "pg_value.h"

#define SQL_MOST    (1u << 20)
#define FETCH_FIRST 8
#define FETCH_MOST  8192
#define FETCH_BYTES ((uint64_t)1 << 20) /* approximate size of a fetch */
#define PAUSE_NS    (MR_NS_PER_S / 2)

struct found {
    char *name;
    unsigned type;    /* of the sent values */
    const char *cast; /* "" for none */
};

struct source {
    struct pg pg;
    const struct mr_source_setup *setup;
    char *database;
    char *from;      /* SQL of the table, or of the query in brackets */
    char *order;     /* SQL: "a, b" of a table, "" of a query */
    char *backwards; /* the same from its end */
    MR_VEC(struct found) found;
    char *select; /* SQL of the columns */
    unsigned *types;
    bool has_cursor;
    uint64_t next;        /* the next row */
    bool is_fetching;     /* rows of a FETCH are outstanding */
    void *fetched;        /* row `next`; NULL: not received yet */
    uint64_t taken_rows;  /* of this FETCH */
    uint64_t taken_bytes; /* bytes of these rows */
    uint64_t fetch_rows;  /* rows of the next FETCH */
    struct mr_arena scratch;
    struct mr_database_rows made;
};

static void close_source(void *state);

/* ---- the snapshot ---- */

static int begin_transaction(struct source *s, struct mr_err *err)
{
    int rc = mr_pg_open(&s->pg, s->database, err);

    return rc < 0 ? rc
                  : mr_pg_query(&s->pg, "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY", NULL, 0,
                                false, NULL, err);
}

/* Reads the state by which a change of a table is detected. */
static int state_find(struct source *s, int64_t *out_rows, struct mr_buf *out, struct mr_err *err)
{
    struct mr_buf sql;
    void *result = NULL;
    int rc;

    mr_buf_init(&sql, SQL_MOST);
    mr_buf_printf(&sql,
                  "SELECT (SELECT count(*) FROM %s), (SELECT row(%s)::text FROM %s ORDER BY %s "
                  "LIMIT 1), (SELECT row(%s)::text FROM %s ORDER BY %s LIMIT 1)",
                  s->from, s->order, s->from, s->order, s->order, s->from, s->backwards);
    MR_TRY(mr_pg_query(&s->pg, mr_buf_cstr(&sql), NULL, 0, false, &result, err));
    mr_str_to_i64(mr_pg_value(&s->pg, result, 0, 0), out_rows);
    mr_buf_printf(out, "{\"rows\":%" PRId64 ",\"first\":", *out_rows);
    mr_json_put_string(out, mr_pg_value(&s->pg, result, 0, 1));
    MR_BUF_LIT(out, ",\"last\":");
    mr_json_put_string(out, mr_pg_value(&s->pg, result, 0, 2));
    mr_buf_char(out, '}');
    s->pg.api->clear(result);
out:
    mr_buf_fini(&sql);
    return rc;
}

/* ---- what is read ---- */

/* The columns of the best available key. */
#define KEY_SQL                                                                                    \
    "SELECT a.attname FROM pg_index i CROSS JOIN LATERAL unnest(i.indkey) WITH ORDINALITY k(no, "  \
    "place) JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.no WHERE k.place <= "  \
    "i.indnkeyatts AND i.indexrelid = (SELECT x.indexrelid FROM pg_index x WHERE x.indrelid = "    \
    "to_regclass($1) AND x.indisunique AND x.indisvalid AND x.indpred IS NULL AND x.indexprs IS "  \
    "NULL AND NOT EXISTS (SELECT FROM pg_attribute n WHERE n.attrelid = x.indrelid AND n.attnum "  \
    "= ANY (x.indkey) AND NOT n.attnotnull) ORDER BY x.indisprimary DESC, x.indnkeyatts, "         \
    "x.indexrelid LIMIT 1) ORDER BY k.place"

static int key_find(struct source *s, const char *table, struct mr_err *err)
{
    struct mr_buf order;
    struct mr_buf backwards;
    void *result;
    int rc;

    mr_buf_init(&order, SQL_MOST);
    mr_buf_init(&backwards, SQL_MOST);
    MR_TRY(mr_pg_query(&s->pg, KEY_SQL, (const char *const[]){s->from}, 1, false, &result, err));
    for (int i = 0; i < s->pg.api->ntuples(result); i++) {
        mr_buf_c(&order, i ? ", " : "");
        mr_database_quote(&order, mr_pg_value(&s->pg, result, i, 0));
        mr_buf_c(&backwards, i ? ", " : "");
        mr_database_quote(&backwards, mr_pg_value(&s->pg, result, i, 0));
        mr_buf_c(&backwards, " DESC");
    }
    s->pg.api->clear(result);
    s->order = mr_strndup(mr_buf_cstr(&order), order.len);
    s->backwards = mr_strndup(mr_buf_cstr(&backwards), backwards.len);
    rc = order.len > 0 ? MR_OK
                       : MR_FAIL(err, MR_E_INVALID,
                                 "the table '%s' has no primary key, nor another unique index "
                                 "without nulls, to be read in the order of: read it by a query "
                                 "with an ORDER BY",
                                 table);
out:
    mr_buf_fini(&order);
    mr_buf_fini(&backwards);
    return rc;
}

static int table_find(struct source *s, const char *table, struct mr_err *err)
{
    struct mr_buf from;
    void *result;
    int rc;

    mr_buf_init(&from, SQL_MOST);
    mr_pg_quote_table(&from, table);
    s->from = mr_strndup(mr_buf_cstr(&from), from.len);
    mr_buf_fini(&from);
    MR_TRY(mr_pg_query(&s->pg,
                       "SELECT relkind, relkind = 'r' AND EXISTS (SELECT FROM pg_inherits WHERE "
                       "inhparent = oid) FROM pg_class WHERE oid = to_regclass($1)",
                       (const char *const[]){s->from}, 1, false, &result, err));
    const bool is_there = s->pg.api->ntuples(result) > 0;
    const bool is_view = mr_str_eq_c(mr_pg_value(&s->pg, result, 0, 0), "v");
    const bool has_heirs = mr_str_eq_c(mr_pg_value(&s->pg, result, 0, 1), "t");
    s->pg.api->clear(result);
    if (has_heirs) {
        return MR_FAIL(
            err, MR_E_INVALID,
            "tables inherit from '%s', and its keys may be theirs once more: read it by a "
            "query (--query) with an ORDER BY over what is unique",
            table);
    }
    if (!is_there || is_view) {
        return MR_FAIL(err, is_view ? MR_E_INVALID : MR_E_NOT_FOUND,
                       is_view
                           ? "'%s' is a view, which has no order: read it by a query with an "
                             "ORDER BY"
                           : "there is no table '%s' in the database, or not in its search_path",
                       table);
    }
    rc = key_find(s, table, err);
out:
    return rc;
}

static int query_find(struct source *s, const char *query, struct mr_err *err)
{
    mr_str bare = mr_str_trim(mr_str_c(query));
    struct mr_buf from;

    bare.len -= mr_str_ends(bare, MR_STR(";"));
    mr_buf_init(&from, SQL_MOST);
    /* The line end is needed after a query that ends with a comment. */
    mr_buf_char(&from, '(');
    mr_buf_str(&from, bare);
    mr_buf_c(&from, "\n) AS query");
    s->from = mr_strndup(mr_buf_cstr(&from), from.len);
    s->order = mr_strndup("", 0);
    mr_buf_fini(&from);
    return mr_database_has_order(query) ? MR_OK : mr_database_no_order(err);
}

static int open_source(void **out, const struct mr_source_setup *setup, struct mr_err *err)
{
    const struct mr_source_options *o = setup->options;
    struct mr_source_file *file = &setup->files[0];
    struct source *s = MR_NEW(struct source);
    struct mr_buf text;
    int rc;

    s->setup = setup;
    s->fetch_rows = FETCH_FIRST;
    s->database = mr_strndup(o->paths[0], strlen(o->paths[0]));
    s->pg.is_stopped = o->is_stopped;
    s->pg.ctx = o->ctx;
    mr_buf_init(&text, SQL_MOST);
    mr_arena_init(&s->scratch, 16384, (size_t)MR_MIN(o->memory_bytes, (uint64_t)1 << 40) + 65536);
    s->pg.cancel_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (s->pg.cancel_fd < 0) {
        rc = MR_FAIL(err, MR_E_EXHAUSTED, "cannot make an eventfd: %s", strerror(errno));
        goto out;
    }
    MR_TRY(mr_database_label(s->database, o->table ? o->table : "query", &text, err));
    file->path = mr_strndup(mr_buf_cstr(&text), text.len);
    MR_TRY(begin_transaction(s, err));
    MR_TRY(o->table ? table_find(s, o->table, err) : query_find(s, o->query, err));
    mr_buf_reset(&text);
    if (o->table) {
        MR_TRY(state_find(s, &file->rows, &text, err));
    } else {
        MR_BUF_LIT(&text, "null");
    }
    file->state = mr_strndup(mr_buf_cstr(&text), text.len);
    *out = s;
out:
    mr_buf_fini(&text);
    if (rc < 0) {
        close_source(s);
    }
    return rc;
}

static void fetched_drop(struct source *s)
{
    if (s->fetched) {
        s->pg.api->clear(s->fetched);
        s->fetched = NULL;
    }
}

static void close_source(void *state)
{
    struct source *s = state;

    fetched_drop(s);
    mr_pg_close(&s->pg);
    if (s->pg.cancel_fd >= 0) {
        close(s->pg.cancel_fd);
    }
    for (size_t i = 0; i < s->found.len; i++) {
        mr_free(s->found.at[i].name);
    }
    MR_VEC_FINI(&s->found);
    mr_database_rows_fini(&s->made);
    mr_arena_fini(&s->scratch);
    mr_free(s->database);
    mr_free(s->from);
    mr_free(s->order);
    mr_free(s->backwards);
    mr_free(s->select);
    mr_free(s->types);
    mr_free(s);
}

static void cancel(void *state)
{
    const uint64_t one = 1;
    const struct source *s = state;

    /* Fails only after a huge number of cancellations. */
    if (write(s->pg.cancel_fd, &one, sizeof one) < 0) {
        return;
    }
}

/* ---- types ---- */

/* Finds the column's type, and the cast for a type that cannot be read directly. */
static void column_find(struct source *s, const void *result, int i, struct mr_field *out)
{
    const char *name = s->pg.api->fname(result, i);
    struct found f = {mr_strndup(name, strlen(name)), s->pg.api->ftype(result, i), ""};

    if (!mr_pg_field_of(name, f.type, s->pg.api->fmod(result, i), out)) {
        const bool is_numeric = f.type == PG_NUMERIC;
        const bool is_list = mr_pg_item_of(f.type) == PG_NUMERIC;
        f.cast = is_numeric ? "::float8" : is_list ? "::float8[]" : "::text";
        f.type = is_numeric ? PG_FLOAT8 : is_list ? 1022 : PG_TEXT;
        mr_pg_field_of(name, f.type, -1, out);
    }
    MR_VEC_PUSH(&s->found, f);
}

/* Lists of numbers may become lists of others, of any width. */
static bool may_become(const struct mr_field *found, const struct mr_field *wanted)
{
    if (!found->item) {
        return mr_database_may_become(found->type, wanted);
    }
    return wanted->item && !wanted->item->item &&
           (wanted->item->type == found->item->type ||
            (found->item->type <= MR_COLUMN_F64 && wanted->item->type <= MR_COLUMN_F64 &&
             !(wanted->is_kept && wanted->item->type != MR_COLUMN_BOOL)));
}

static void want(const struct source *s, struct mr_field *f)
{
    const struct mr_schema *wanted = s->setup->options->wanted;
    const int i = wanted ? mr_schema_find(wanted, mr_str_c(f->name)) : -1;

    if (i >= 0 && wanted->fields[i].type != MR_COLUMN_NONE && may_become(f, &wanted->fields[i])) {
        mr_field_fini(f);
        mr_field_copy(f, &wanted->fields[i]);
        f->is_json = false; /* texts need not be JSON */
        f->is_nullable = true;
    }
}

static int schema(void *state, size_t file, struct mr_schema *out, struct mr_err *err)
{
    struct source *s = state;
    struct mr_buf sql;
    void *result;
    int rc;

    (void)file;
    mr_buf_init(&sql, SQL_MOST);
    mr_buf_printf(&sql, "SELECT * FROM %s LIMIT 0", s->from);
    MR_TRY(mr_pg_query(&s->pg, mr_buf_cstr(&sql), NULL, 0, true, &result, err));
    for (int i = 0; i < s->pg.api->nfields(result); i++) {
        struct mr_field f = {0};
        column_find(s, result, i, &f);
        want(s, &f);
        mr_schema_add(out, &f);
        mr_field_fini(&f);
    }
    s->pg.api->clear(result);
out:
    mr_buf_fini(&sql);
    return rc;
}

static int begin(void *state, const struct mr_schema *columns, struct mr_err *err)
{
    struct source *s = state;
    struct mr_buf sql;
    int rc = mr_database_rows_init(&s->made, columns, s->setup->options->max_cell_bytes, err);

    if (rc < 0) {
        return rc;
    }
    mr_buf_init(&sql, SQL_MOST);
    s->types = MR_NEW_ARRAY(unsigned, columns->count + 1);
    for (size_t i = 0; i < columns->count; i++) {
        const struct found *f = s->found.at;
        while (strcmp(f->name, columns->fields[i].name) != 0) {
            f++;
        }
        mr_buf_c(&sql, i ? ", " : "");
        mr_database_quote(&sql, mr_str_c(f->name));
        mr_buf_c(&sql, f->cast);
        s->types[i] = f->type;
    }
    s->select = mr_strndup(mr_buf_cstr(&sql), sql.len);
    mr_buf_fini(&sql);
    return MR_OK;
}

/* ---- the cursor ---- */

static int run(struct source *s, struct mr_err *err, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
static int run(struct source *s, struct mr_err *err, const char *fmt, ...)
{
    char sql[128];
    va_list args;

    va_start(args, fmt);
    vsnprintf(sql, sizeof sql, fmt, args);
    va_end(args);
    return mr_pg_query(&s->pg, sql, NULL, 0, true, NULL, err);
}

/* The next row of the running FETCH, if any. */
static int row_take(struct source *s, struct mr_err *err)
{
    const struct pg_api *api = s->pg.api;
    int rc = mr_pg_row_take(&s->pg, &s->fetched, err);

    if (rc == MR_OK && s->fetched) {
        s->taken_rows++;
        for (int i = 0; i < api->nfields(s->fetched); i++) {
            s->taken_bytes += (uint64_t)api->getlength(s->fetched, 0, i) + 16;
        }
    } else if (rc == MR_OK) {
        const uint64_t fit = FETCH_BYTES / (s->taken_bytes / MR_MAX(s->taken_rows, 1) + 1);
        s->fetch_rows = MR_MAX(MR_MIN(fit, (uint64_t)FETCH_MOST), 1);
        s->is_fetching = false;
    }
    return rc;
}

/* Skips outstanding rows up to `first`. */
static int fetched_skip(struct source *s, uint64_t first, struct mr_err *err)
{
    int rc = MR_OK;

    while (rc == MR_OK && s->next < first && s->is_fetching) {
        rc = s->fetched ? MR_OK : row_take(s, err);
        s->next += s->fetched != NULL;
        fetched_drop(s);
    }
    return rc;
}

static int cursor_open(struct source *s, uint64_t first, struct mr_err *err)
{
    struct mr_buf sql;
    int rc;

    mr_buf_init(&sql, SQL_MOST);
    MR_TRY(fetched_skip(s, UINT64_MAX, err));
    if (s->has_cursor) {
        MR_TRY(run(s, err, "CLOSE millrace_rows"));
        s->has_cursor = false;
    }
    mr_buf_printf(&sql, "DECLARE millrace_rows NO SCROLL CURSOR FOR SELECT %s FROM %s", s->select,
                  s->from);
    if (s->order[0]) {
        mr_buf_printf(&sql, " ORDER BY %s", s->order);
    }
    if (first > 0) {
        mr_buf_printf(&sql, " OFFSET %" PRIu64, first);
    }
    MR_TRY(mr_pg_query(&s->pg, mr_buf_cstr(&sql), NULL, 0, false, NULL, err));
    s->has_cursor = true;
    s->next = first;
out:
    mr_buf_fini(&sql);
    return rc;
}

/* Opens a new connection and snapshot, if they are lost. */
static int connection_check(struct source *s, struct mr_err *err)
{
    const struct mr_source_file *file = &s->setup->files[0];
    struct mr_buf state;
    int64_t rows = -1;
    int rc = MR_OK;

    if (s->pg.conn) {
        return MR_OK;
    }
    fetched_drop(s);
    s->is_fetching = false;
    s->has_cursor = false;
    mr_buf_init(&state, SQL_MOST);
    MR_TRY(begin_transaction(s, err));
    if (s->order[0]) {
        MR_TRY(state_find(s, &rows, &state, err));
        rc = mr_str_eq_c(mr_buf_view(&state), file->state)
                 ? MR_OK
                 : MR_FAIL(err, MR_E_IO, "'%s' has changed since it was opened", file->path);
    }
out:
    mr_buf_fini(&state);
    if (rc < 0) {
        mr_pg_close(&s->pg);
    }
    return rc;
}

/* Makes row `first` the next one, unless the rows end before. */
static int seek(struct source *s, uint64_t first, struct mr_err *err)
{
    int rc = connection_check(s, err);

    if (rc < 0) {
        return rc;
    }
    /* MOVE accepts no larger number. */
    if (!s->has_cursor || first < s->next || first - s->next > INT32_MAX) {
        return cursor_open(s, first, err);
    }
    rc = fetched_skip(s, first, err);
    if (rc == MR_OK && s->next < first) {
        rc = run(s, err, "MOVE FORWARD %" PRIu64 " FROM millrace_rows", first - s->next);
        s->next = rc == MR_OK ? first : s->next; /* if it ended before, nothing follows either */
    }
    return rc;
}

/* *out: true if there is a row. */
static int fetch(struct source *s, bool *out, struct mr_err *err)
{
    char sql[96];
    bool is_asked = false; /* the reply decides */
    int rc = MR_OK;

    while (rc == MR_OK && !s->fetched && (s->is_fetching || !is_asked)) {
        if (s->is_fetching) {
            rc = row_take(s, err);
            continue;
        }
        snprintf(sql, sizeof sql, "FETCH FORWARD %" PRIu64 " FROM millrace_rows", s->fetch_rows);
        rc = mr_pg_rows_ask(&s->pg, sql, err);
        s->is_fetching = is_asked = rc == MR_OK;
        s->taken_rows = s->taken_bytes = 0;
    }
    *out = s->fetched != NULL;
    return rc;
}

/* ---- rows ---- */

static int row_add(struct source *s, struct mr_err *err)
{
    const struct pg_api *api = s->pg.api;
    const char *wrong = NULL;
    struct mr_err why;
    size_t i;

    mr_err_clear(&why);
    for (i = 0; i < s->made.schema->count && !wrong; i++) {
        struct mr_column_builder *b = &s->made.builders[i];
        const mr_str value = mr_pg_value(&s->pg, s->fetched, 0, (int)i);
        if (api->getisnull(s->fetched, 0, (int)i)) {
            mr_column_add_null(b);
        } else if (value.len > s->setup->options->max_cell_bytes) {
            wrong = "the value is larger than a cell may be";
        } else {
            wrong = mr_pg_add(b, s->types[i], value, &s->scratch, &why);
        }
    }
    if (s->scratch.chunks) {
        mr_arena_reset(&s->scratch);
    }
    return mr_database_row_end(&s->made, i - 1, wrong, &why, s->setup->files[0].path, s->next, err);
}

static int rows_make(struct source *s, uint64_t first, uint64_t max_rows, uint64_t max_bytes,
                     struct mr_rows **out, struct mr_err *err)
{
    bool is_there = true;
    int rc;

    MR_TRY(mr_database_rows_begin(&s->made, err));
    MR_TRY(seek(s, first, err));
    for (uint64_t n = 0; n < MR_MIN(max_rows, MR_DATABASE_ROWS); n++) {
        if (n > 0 && mr_database_rows_bytes(&s->made) >= max_bytes) {
            break;
        }
        MR_TRY(fetch(s, &is_there, err));
        if (!is_there) {
            s->setup->files[0].rows = (int64_t)s->next;
            break;
        }
        MR_TRY(row_add(s, err));
        fetched_drop(s);
        s->next++;
    }
    rc = mr_database_rows_end(&s->made, out, err);
out:
    /* Not damage of a file, which could be left out; the server reports its own as MR_E_IO, too. */
    if (rc == MR_E_INVALID) {
        rc = MR_FAIL(err, MR_E_IO, "%s", err->msg);
    }
    if (rc < 0) {
        mr_database_rows_drop(&s->made);
    }
    return rc;
}

/* False: the wait was ended. */
static bool pause_for(const struct source *s)
{
    struct pollfd fd = {s->pg.cancel_fd, POLLIN, 0};

    return poll(&fd, 1, (int)(PAUSE_NS / MR_NS_PER_MS)) <= 0;
}

static int read_rows(void *state, size_t file, uint64_t first, uint64_t max_rows,
                     uint64_t max_bytes, struct mr_rows **out, struct mr_err *err)
{
    struct source *s = state;
    const int64_t give_up_ns = mr_ns_after(mr_now_ns(), s->setup->options->outage_ns);
    bool has_waited = false;

    (void)file;
    for (;;) {
        const int rc = rows_make(s, first, max_rows, max_bytes, out, err);
        /* After any error the transaction is unusable; after the last row it only holds back VACUUM. */
        if (rc < 0 || s->next == (uint64_t)s->setup->files[0].rows) {
            mr_pg_close(&s->pg);
        }
        if (rc != MR_E_UNAVAILABLE || mr_now_ns() >= give_up_ns) {
            return rc;
        }
        mr_database_read_waits(&has_waited, err);
        if (!pause_for(s)) {
            return MR_FAIL(err, MR_E_CANCELLED, "stopped");
        }
    }
}

const struct mr_source_ops mr_pg_source_ops = {
    .open = open_source,
    .schema = schema,
    .begin = begin,
    .read = read_rows,
    .close = close_source,
    .cancel = cancel,
};
