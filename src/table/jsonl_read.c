/* JSON lines: a row a line.
 *
 * One cursor: a file that is open, and the number of the row that comes next in it. Reading on from there costs one
 * pass; going to a later row looks for line feeds only; going back opens the file again. Lines of white space are no
 * rows.
 *
 * A line is parsed where it lies in the window, each value straight into the builder of its column. Rows of a file tend
 * to have their members in one order, so the place of a member in its row says which column it is: `guesses` keeps
 * what was last found there, and the map of names is asked only where that does not hold.
 *
 * A line longer than the window may grow, or with a cell longer than allowed, is passed over as it comes in. */
#include <stdio.h>
#include <string.h>

#include "base/map.h"
#include "base/mem.h"
#include "text.h"

#define GUESS_ROWS        1000
#define GUESS_BYTES       ((uint64_t)1 << 20)
#define GUESS_BYTES_OTHER ((uint64_t)64 << 10) /* of each file but the first */
#define COLUMNS_MOST      16384
#define GUESSES_MOST      4096
#define ROWS_MOST         1000000 /* a range; each may be a fault */

/* Follows the members of a line that comes in piece by piece, for their lengths. */
struct cells {
    size_t at;    /* bytes of the line that were looked at */
    size_t begin; /* of the value that `at` is in; 0: it is before one */
    size_t name_begin;
    size_t name_end;
    int depth;
    bool in_text;
    bool is_escaped;
};

struct line {
    mr_str text;
    bool is_end;  /* no line: the file ends */
    bool is_over; /* too long: `text` is empty, `why` says what */
    char why[200];
};

struct guess {
    char name[55];
    uint8_t len;
    int column;
};

struct jsonl {
    const struct mr_source_setup *setup;
    size_t window_most;
    struct mr_input in;
    size_t file;
    uint64_t row; /* that comes next */
    const struct mr_schema *schema;
    struct mr_column_builder *builders;
    uint64_t *seen; /* the stamp of the last row that had the column */
    uint64_t stamp;
    struct mr_map columns; /* name -> index + 1 */
    struct guess *guesses;
    size_t guess_count;
    struct mr_arena arena;
};

/* ---- lines ---- */

/* Goes on over the line in [text, text + len). True: a cell is longer than allowed. */
static bool cells_over(struct cells *c, const char *text, size_t len, uint64_t max_cell)
{
    for (; c->at < len; c->at++) {
        const char b = text[c->at];
        if (c->in_text) {
            if (c->is_escaped) {
                c->is_escaped = false;
            } else if (b == '\\') {
                c->is_escaped = true;
            } else if (b == '"') {
                c->in_text = false;
                c->name_end = c->depth == 1 && c->begin == 0 ? c->at : c->name_end;
            }
        } else if (b == '"') {
            c->in_text = true;
            c->name_begin = c->depth == 1 && c->begin == 0 ? c->at + 1 : c->name_begin;
        } else if (b == ':' && c->depth == 1) {
            c->begin = c->at + 1;
        } else if (b == ',' && c->depth == 1) {
            c->begin = 0;
        } else if (b == '{' || b == '[') {
            c->depth++;
        } else if (b == '}' || b == ']') {
            c->depth--;
        }
        if (c->begin > 0 && c->at > c->begin && c->at - c->begin > max_cell) {
            return true;
        }
    }
    return false;
}

/* Up to the line feed, or the end. */
static int line_drop(struct mr_input *in, struct mr_err *err)
{
    for (;;) {
        char *feed = memchr(in->buf + in->begin, '\n', in->end - in->begin);
        if (feed) {
            in->begin = (size_t)(feed - in->buf) + 1;
            return MR_OK;
        }
        in->begin = in->end;
        if (in->is_end) {
            return MR_OK;
        }
        int rc = mr_input_more(in, err);
        if (rc < 0) {
            return rc;
        }
    }
}

/* The part of a line that is there is no line yet, and is long: whether it is too long. */
static bool line_is_over(const struct jsonl *s, struct cells *cells, struct line *out)
{
    const char *text = s->in.buf + s->in.begin;
    const size_t len = s->in.end - s->in.begin;
    const uint64_t max_cell = s->setup->options->max_cell_bytes;

    if (len > max_cell && cells_over(cells, text, len, max_cell)) {
        const size_t name_len = cells->name_end > cells->name_begin /* not so: `{:` */
                                    ? MR_MIN(cells->name_end - cells->name_begin, (size_t)64)
                                    : 0;
        snprintf(out->why, sizeof out->why, "column '%.*s': a cell of more than %llu bytes",
                 (int)name_len, text + cells->name_begin, (unsigned long long)max_cell);
        return true;
    }
    if (len >= s->window_most) {
        snprintf(out->why, sizeof out->why, "a line of more than %zu bytes", s->window_most);
        return true;
    }
    return false;
}

static bool is_blank(const char *p, const char *end)
{
    while (p < end && (*p == ' ' || *p == '\t' || *p == '\r')) {
        p++;
    }
    return p == end;
}

static int line_next(struct jsonl *s, struct line *out, struct mr_err *err)
{
    struct mr_input *in = &s->in;
    struct cells cells = {0};
    size_t searched = 0;

    out->is_end = out->is_over = false;
    for (;;) {
        const char *begin = in->buf + in->begin;
        const size_t len = in->end - in->begin;
        const char *feed = len > searched ? memchr(begin + searched, '\n', len - searched) : NULL;
        if (feed || (in->is_end && len > 0)) {
            const char *end = feed ? feed : begin + len;
            in->begin += (size_t)(end - begin) + (feed ? 1 : 0);
            searched = 0;
            if (is_blank(begin, end)) {
                continue;
            }
            out->text = mr_str_n(begin, (size_t)(end - begin));
            return MR_OK;
        }
        if (in->is_end) {
            out->is_end = true;
            return MR_OK;
        }
        if (line_is_over(s, &cells, out)) {
            out->is_over = true;
            out->text = mr_str_n("", 0);
            return line_drop(in, err);
        }
        searched = len;
        int rc = mr_input_more(in, err);
        if (rc < 0) {
            return rc;
        }
    }
}

static void file_close(struct jsonl *s)
{
    mr_input_close(&s->in);
    s->row = 0;
}

static int file_open(struct jsonl *s, size_t file, struct mr_err *err)
{
    file_close(s);
    s->file = file;
    int rc = mr_input_open(&s->in, &s->setup->files[file], err);
    return rc < 0 ? rc : mr_input_skip_mark(&s->in, err);
}

/* ---- guessing the columns ---- */

struct columns {
    struct mr_schema *schema;
    struct mr_map at; /* name -> index + 1 */
};

static bool name_is_usable(mr_str name)
{
    return !name.len || !memchr(name.ptr, '\0', name.len); /* ours end with a NUL */
}

/* Joins a whole line to the columns. Errors in it are a fault of its row, later. */
static int guess_line(struct jsonl *s, mr_str text, struct columns *c, struct mr_err *err)
{
    bool is_first = true;
    struct mr_json j;
    mr_str name;

    mr_json_init(&j, text, &s->arena, 0, err);
    if (mr_json_peek(&j) != MR_JSON_OBJECT) {
        return mr_json_enter_object(&j);
    }
    if (mr_json_skip(&j, NULL) < 0 || mr_json_finish(&j) < 0) {
        return j.status;
    }
    mr_json_init(&j, text, &s->arena, 0, err);
    mr_json_enter_object(&j);
    while (mr_json_next_key(&j, &is_first, &name)) {
        uintptr_t at = (uintptr_t)mr_map_find(&c->at, name);
        if (at == 0 && name_is_usable(name)) {
            if (c->schema->count == COLUMNS_MOST) {
                return MR_FAIL(err, MR_E_UNSUPPORTED, "more than %d columns", COLUMNS_MOST);
            }
            char *copy = mr_strndup(name.ptr, name.len);
            mr_schema_add(c->schema, &(struct mr_field){.name = copy, .is_nullable = true});
            mr_free(copy);
            at = c->schema->count;
            mr_map_put(&c->at, name, (void *)at); /* NOLINT: a number */
        }
        if (at ? !mr_guess_json(&j, &c->schema->fields[at - 1]) : mr_json_skip(&j, NULL) < 0) {
            break;
        }
    }
    return j.status;
}

static int jsonl_schema(void *state, size_t file, struct mr_schema *out, struct mr_err *err)
{
    struct jsonl *s = state;
    struct columns columns = {.schema = out};
    const uint64_t most = file == 0 ? GUESS_BYTES : GUESS_BYTES_OTHER;
    uint64_t bytes = 0;
    uint64_t rows = 0;
    uint64_t good = 0;
    struct mr_err first = {0};
    struct line line;
    int rc;

    MR_TRY(file_open(s, file, err));
    while (rows < GUESS_ROWS && bytes < most) {
        struct mr_err bad = {0};
        MR_TRY(line_next(s, &line, err));
        if (line.is_end) {
            break;
        }
        if (line.is_over) {
            rc = MR_FAIL(&bad, MR_E_INVALID, "%s", line.why);
        } else {
            rc = guess_line(s, line.text, &columns, &bad);
            mr_arena_reset(&s->arena);
        }
        if (rc == MR_E_EXHAUSTED || rc == MR_E_UNSUPPORTED) {
            rc = MR_FAIL(err, rc, "'%s': row %llu: %s", s->in.file->path, (unsigned long long)rows,
                         bad.msg);
            goto out;
        }
        if (rc < 0 && rows == 0) {
            first = bad;
        }
        good += rc == MR_OK;
        rows++;
        bytes += line.text.len;
    }
    rc = MR_OK;
    if (rows > 0 && good == 0) {
        rc = MR_FAIL(
            err, MR_E_INVALID,
            "'%s' is no table of JSON lines: of its first %llu rows none is an object; row 0: %s",
            s->in.file->path, (unsigned long long)rows, first.msg);
    }
out:
    mr_map_fini(&columns.at);
    file_close(s);
    if (rc < 0) {
        mr_schema_fini(out);
    }
    return rc;
}

/* ---- rows ---- */

static int column_find(struct jsonl *s, size_t place, mr_str name)
{
    struct guess *g = place < s->guess_count ? &s->guesses[place] : NULL;

    if (g && mr_str_eq(name, mr_str_n(g->name, g->len))) {
        return g->column;
    }
    const int column = (int)(uintptr_t)mr_map_find(&s->columns, name) - 1;
    if (!g && place == s->guess_count && place < GUESSES_MOST) {
        g = &s->guesses[s->guess_count++];
        *g = (struct guess){.column = -1};
    }
    if (g && name.len <= sizeof g->name) {
        memcpy(g->name, name.len ? name.ptr : "", name.len);
        g->len = (uint8_t)name.len;
        g->column = column;
    }
    return column;
}

static int value_read(struct jsonl *s, struct mr_json *j, size_t column)
{
    const uint64_t max_cell = s->setup->options->max_cell_bytes;
    struct mr_column_builder *b = &s->builders[column];

    if (s->seen[column] == s->stamp) {
        return mr_json_fail(j, MR_E_INVALID, "the name is there twice");
    }
    s->seen[column] = s->stamp;
    if (mr_json_peek(j) == MR_JSON_NULL) {
        mr_column_add_null(b);
        return mr_json_null(j);
    }
    const char *begin = j->pos;
    int rc = mr_cell_json(j, b);
    if (rc == MR_OK && (uint64_t)(j->pos - begin) > max_cell) {
        return mr_json_fail(j, MR_E_INVALID, "a cell of more than %llu bytes",
                            (unsigned long long)max_cell);
    }
    return rc;
}

/* One row into the builders; *out_column: where it went wrong, -1: with the line as a whole. */
static int row_parse(struct jsonl *s, mr_str text, int *out_column, size_t *out_seen,
                     struct mr_err *err)
{
    struct mr_json j;
    bool is_first = true;
    mr_str name;

    *out_column = -1;
    *out_seen = 0;
    s->stamp++;
    mr_json_init(&j, text, &s->arena, 0, err);
    mr_json_enter_object(&j);
    for (size_t place = 0; mr_json_next_key(&j, &is_first, &name); place++) {
        const int column = column_find(s, place, name);
        if (column < 0) {
            mr_json_skip(&j, NULL);
        } else if (value_read(s, &j, (size_t)column) < 0) {
            *out_column = column;
            return j.status;
        } else {
            (*out_seen)++;
        }
    }
    return mr_json_finish(&j);
}

static int row_fault(struct jsonl *s, struct mr_rows *rows, const char *text, struct mr_err *err)
{
    for (size_t i = 0; i < s->schema->count; i++) {
        mr_column_cut(&s->builders[i], rows->count);
        mr_column_add_null(&s->builders[i]);
    }
    return mr_rows_fault(rows, rows->count, text)
               ? MR_OK
               : MR_FAIL(err, MR_E_EXHAUSTED, "no memory for what is wrong with a row");
}

static int row_read(struct jsonl *s, mr_str text, struct mr_rows *rows, struct mr_err *err)
{
    struct mr_err why;
    char type[64];
    char fault[sizeof why.msg + 200];
    size_t seen;
    int column;

    mr_err_clear(&why);
    int rc = row_parse(s, text, &column, &seen, &why);
    if (s->arena.chunks) {
        mr_arena_reset(&s->arena);
    }
    if (rc == MR_OK) {
        for (size_t i = 0; seen < s->schema->count && i < s->schema->count; i++) {
            if (s->seen[i] != s->stamp) {
                mr_column_add_null(&s->builders[i]);
            }
        }
        return MR_OK;
    }
    if (rc == MR_E_EXHAUSTED) {
        return MR_FAIL(err, rc, "'%s': row %llu: %s", s->in.file->path, (unsigned long long)s->row,
                       why.msg);
    }
    if (column < 0) {
        snprintf(fault, sizeof fault, "not a row of JSON: %s", why.msg);
    } else {
        const struct mr_field *f = &s->schema->fields[column];
        snprintf(fault, sizeof fault, "column '%.100s' (%s): %s", f->name,
                 mr_field_text(f, type, sizeof type), why.msg);
    }
    return row_fault(s, rows, fault, err);
}

/* Whether the builders hold about `most`; looked at only after some more text was read. */
static bool is_full(const struct jsonl *s, uint64_t *io_unseen, uint64_t most)
{
    uint64_t bytes = 0;

    if (*io_unseen < most / 32) {
        return false;
    }
    *io_unseen = 0;
    for (size_t i = 0; i < s->schema->count; i++) {
        bytes += mr_column_builder_bytes(&s->builders[i]);
    }
    return bytes >= most;
}

static int rows_read(struct jsonl *s, uint64_t max_rows, uint64_t max_bytes, struct mr_rows *rows,
                     struct mr_err *err)
{
    uint64_t unseen = 0;
    struct line line;
    int rc;

    while (rows->count < max_rows) {
        rc = line_next(s, &line, err);
        if (rc < 0) {
            return rc;
        }
        if (line.is_end) {
            s->setup->files[s->file].rows = (int64_t)s->row;
            break;
        }
        rc = line.is_over ? row_fault(s, rows, line.why, err) : row_read(s, line.text, rows, err);
        if (rc < 0) {
            return rc;
        }
        rows->count++;
        s->row++;
        unseen += line.text.len + s->schema->count * 8;
        if (is_full(s, &unseen, max_bytes)) {
            break;
        }
    }
    for (size_t i = 0; rows->count > 0 && i < s->schema->count; i++) {
        rc = mr_column_builder_finish(&s->builders[i], rows, i, err);
        if (rc < 0) {
            return rc;
        }
    }
    return MR_OK;
}

/* To a row of a file; *out_is_there: it has it. */
static int row_seek(struct jsonl *s, size_t file, uint64_t row, bool *out_is_there,
                    struct mr_err *err)
{
    struct line line = {0};
    int rc = MR_OK;

    if (!s->in.file || s->file != file || s->row > row) {
        rc = file_open(s, file, err);
    }
    while (rc == MR_OK && s->row < row && !line.is_end) {
        rc = line_next(s, &line, err);
        s->row += rc == MR_OK && !line.is_end;
    }
    if (rc == MR_OK && line.is_end) {
        s->setup->files[file].rows = (int64_t)s->row;
    }
    *out_is_there = !line.is_end;
    return rc;
}

static int jsonl_read(void *state, size_t file, uint64_t first, uint64_t max_rows,
                      uint64_t max_bytes, struct mr_rows **out, struct mr_err *err)
{
    struct jsonl *s = state;
    struct mr_rows *rows = NULL;
    bool is_there;
    int rc;

    MR_TRY(row_seek(s, file, first, &is_there, err));
    if (is_there) {
        rows = mr_rows_new(s->schema);
        rc = rows ? rows_read(s, MR_MIN(max_rows, (uint64_t)ROWS_MOST), max_bytes, rows, err)
                  : MR_FAIL(err, MR_E_EXHAUSTED, "no memory for rows");
    }
out:
    if (rc < 0) {
        for (size_t i = 0; i < s->schema->count; i++) {
            mr_column_builder_reset(&s->builders[i]);
        }
        file_close(s);
        mr_rows_unref(&rows);
        return rc;
    }
    if (rows && rows->count == 0) {
        mr_rows_unref(&rows);
    }
    *out = rows;
    return MR_OK;
}

/* ---- life ---- */

static int jsonl_open(void **out, const struct mr_source_setup *setup, struct mr_err *err)
{
    struct jsonl *s = MR_NEW(struct jsonl);
    const uint64_t half = MR_MIN(setup->options->memory_bytes / 2, (uint64_t)SIZE_MAX / 4);

    (void)err;
    s->setup = setup;
    s->window_most = (size_t)half;
    /* Texts with escapes are at most as long as their line, plus what the arena keeps for itself. */
    mr_arena_init(&s->arena, 16384, (size_t)half * 2 + 65536);
    *out = s;
    return MR_OK;
}

static int jsonl_begin(void *state, const struct mr_schema *schema, struct mr_err *err)
{
    struct jsonl *s = state;

    for (size_t i = 0; i < schema->count; i++) {
        int rc = mr_cell_check(&schema->fields[i], s->setup->options->max_cell_bytes, err);
        if (rc < 0) {
            return rc;
        }
    }
    s->schema = schema;
    s->builders = MR_NEW_ARRAY(struct mr_column_builder, schema->count);
    s->seen = MR_NEW_ARRAY(uint64_t, schema->count);
    s->guesses = MR_NEW_ARRAY(struct guess, GUESSES_MOST);
    for (size_t i = 0; i < schema->count; i++) {
        mr_column_builder_init(&s->builders[i], &schema->fields[i]);
        mr_map_put(&s->columns, mr_str_c(schema->fields[i].name), (void *)(i + 1)); /* NOLINT */
    }
    return MR_OK;
}

static void jsonl_close(void *state)
{
    struct jsonl *s = state;

    file_close(s);
    for (size_t i = 0; s->schema && i < s->schema->count; i++) {
        mr_column_builder_fini(&s->builders[i]);
    }
    mr_free(s->builders);
    mr_free(s->seen);
    mr_free(s->guesses);
    mr_map_fini(&s->columns);
    mr_arena_fini(&s->arena);
    mr_free(s);
}

const struct mr_source_ops mr_jsonl_source_ops = {
    .open = jsonl_open,
    .schema = jsonl_schema,
    .begin = jsonl_begin,
    .read = jsonl_read,
    .close = jsonl_close,
    .is_guessed = true,
};
