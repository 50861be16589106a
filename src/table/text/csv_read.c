/* CSV and TSV (RFC 4180): one record per row, which may span lines within quotes.
 *
 * One pass over the window finds the end of a record and the bounds of its cells; for an incomplete record the pass
 * later continues where it stopped. A quote opens a quoted cell only at the start of a cell; elsewhere it is an
 * ordinary character, as in most programs. A record ends with LF or CR LF, the last one also with the file.
 *
 * An empty cell without quotes is a null, `""` is an empty text. An empty line is not a row, except in a table of one
 * column, where it is a null. A record with more or fewer cells than the file has columns is a fault of its row, as
 * is a cell longer than allowed, or a record longer than the window's limit: both are skipped without being stored. */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "table/io/io.h"
#include "table/values/values.h"
#include "text.h"

struct cell { /* offsets in the record */
    size_t begin;
    size_t end;
    bool is_quoted;
    bool has_quotes; /* contains doubled quotes */
    bool is_torn;    /* has text after its closing quote */
};

enum place {
    CELL_BEGIN,
    IN_PLAIN,
    IN_QUOTES,
    BEHIND_QUOTE, /* ends the cell unless another one follows */
    BEHIND_CELL
};

/* The state of the pass over a record. */
struct scan {
    size_t at;
    size_t cell_begin;
    size_t after; /* BEHIND_CELL: position after the closing quote */
    enum place place;
    bool is_dropped; /* positions are no longer valid */
};

struct csv {
    struct mr_text_source t;
    char delimiter;
    struct cell *cells; /* of the record */
    size_t cell_count;  /* may exceed the stored ones */
    size_t cell_room;
    size_t column_count; /* of the file */
    int *targets;        /* column of the file -> of the schema, -1: not wanted */
    size_t target_room;
    bool *is_here;    /* per column of the schema: the file has it */
    const char *hint; /* appended to the error of a row with a wrong number of cells */
};

/* ---- records ---- */

static int cell_add(struct csv *s, const struct scan *c, struct mr_err *err)
{
    if (s->cell_count < MR_TEXT_COLUMNS) {
        if (s->cell_count == s->cell_room) {
            const size_t room = MR_MAX(2 * s->cell_room, (size_t)16);
            struct cell *more = mr_try_realloc(s->cells, room * sizeof *more);
            if (!more) {
                return MR_FAIL(err, MR_E_EXHAUSTED, "no memory for the cells of a row");
            }
            s->cells = more;
            s->cell_room = room;
        }
        s->cells[s->cell_count] = (struct cell){.begin = c->cell_begin};
    }
    s->cell_count++;
    return MR_OK;
}

static struct cell *cell_last(struct csv *s)
{
    return &s->cells[MR_MIN(s->cell_count, (size_t)MR_TEXT_COLUMNS) - 1];
}

/* The cell ends before `at`; without its CR if the record ends there. */
static void plain_end(struct csv *s, const struct scan *c, const char *text, bool is_last)
{
    const bool has_cr =
        is_last && !c->is_dropped && c->at > c->cell_begin && text[c->at - 1] == '\r';
    cell_last(s)->end = c->at - has_cr;
}

static void behind_end(struct csv *s, const struct scan *c, const char *text, bool is_last)
{
    const bool is_cr = is_last && !c->is_dropped && c->at == c->after + 1 && text[c->after] == '\r';
    cell_last(s)->is_torn = !is_cr;
}

static int cell_begin(struct csv *s, struct scan *c, const char *text, struct mr_err *err)
{
    const bool is_quoted = text[c->at] == '"';

    c->at += is_quoted;
    c->cell_begin = c->at;
    c->place = is_quoted ? IN_QUOTES : IN_PLAIN;
    int rc = cell_add(s, c, err);
    if (rc == MR_OK) {
        cell_last(s)->is_quoted = is_quoted;
    }
    return rc;
}

/* Handles the byte after a quote in a quoted cell. */
static void quote_pass(struct csv *s, struct scan *c, char b)
{
    if (b == '"') {
        cell_last(s)->has_quotes = true;
        c->place = IN_QUOTES;
        c->at++;
        return;
    }
    cell_last(s)->end = c->at - 1;
    c->after = c->at;
    c->place = BEHIND_CELL;
}

/* Continues in [text, text + len). *out_is_end: text[at] is the LF that ends the record. */
static int scan_on(struct csv *s, struct scan *c, const char *text, size_t len, bool *out_is_end,
                   struct mr_err *err)
{
    const char delimiter = s->delimiter;
    const char *quote;
    int rc;

    *out_is_end = false;
    while (c->at < len) {
        switch (c->place) {
        case CELL_BEGIN:
            rc = cell_begin(s, c, text, err);
            if (rc < 0) {
                return rc;
            }
            break;
        case IN_QUOTES:
            quote = memchr(text + c->at, '"', len - c->at);
            c->at = quote ? (size_t)(quote - text) + 1 : len;
            c->place = quote ? BEHIND_QUOTE : IN_QUOTES;
            break;
        case BEHIND_QUOTE: quote_pass(s, c, text[c->at]); break;
        default:
            while (c->at < len && text[c->at] != delimiter && text[c->at] != '\n') {
                c->at++;
            }
            if (c->at == len) {
                break;
            }
            *out_is_end = text[c->at] == '\n';
            if (c->place == IN_PLAIN) {
                plain_end(s, c, text, *out_is_end);
            } else if (c->at > c->after) {
                behind_end(s, c, text, *out_is_end);
            }
            if (*out_is_end) {
                return MR_OK;
            }
            c->at++;
            c->place = CELL_BEGIN;
            break;
        }
    }
    return MR_OK;
}

/* The file ends after the record. False: within quotes. */
static int scan_end(struct csv *s, struct scan *c, const char *text, bool *out_is_whole,
                    struct mr_err *err)
{
    *out_is_whole = c->place != IN_QUOTES;
    switch (c->place) {
    case CELL_BEGIN: /* after a delimiter */
        c->cell_begin = c->at;
        int rc = cell_add(s, c, err);
        if (rc < 0) {
            return rc;
        }
        plain_end(s, c, text, false);
        break;
    case IN_PLAIN: plain_end(s, c, text, true); break;
    case BEHIND_QUOTE: cell_last(s)->end = c->at - 1; break;
    case BEHIND_CELL: behind_end(s, c, text, true); break;
    default: break;
    }
    return MR_OK;
}

/* True if the received part of a record is too long already. The result does not depend on the window's position. */
static bool record_is_over(const struct csv *s, const struct scan *c, bool is_end,
                           struct mr_text_row *out)
{
    const uint64_t max_cell = s->t.setup->options->max_cell_bytes;
    const bool is_in_cell = c->place != CELL_BEGIN && c->place != BEHIND_CELL && !is_end;

    /* After the cell's last byte there may be a quote or a CR, which are not part of it. */
    if (is_in_cell && c->at - c->cell_begin > max_cell + 1) {
        const size_t column = s->cell_count - 1;
        const int target = s->t.schema && column < s->column_count ? s->targets[column] : -1;
        const struct mr_field *f = target < 0 ? NULL : &s->t.schema->fields[target];
        char type[64];
        if (f) {
            snprintf(out->why, sizeof out->why,
                     "column '%.64s' (%s): a cell of more than %llu bytes", f->name,
                     mr_field_text(f, type, sizeof type), (unsigned long long)max_cell);
        } else {
            snprintf(out->why, sizeof out->why,
                     "not a row of CSV: cell %zu: a cell of more than %llu bytes", column,
                     (unsigned long long)max_cell);
        }
        return true;
    }
    if (c->at > s->t.window_most) {
        snprintf(out->why, sizeof out->why, "a row of more than %zu bytes", s->t.window_most);
        return true;
    }
    return false;
}

/* Reads one record, or skips the rest of a too long one part by part. */
static int record_next(struct mr_text_source *t, struct mr_text_row *out, struct mr_err *err)
{
    struct csv *s = (struct csv *)t;
    struct mr_input *in = &t->in;
    struct scan c = {0};
    bool is_whole = true;
    bool is_end = false;
    int rc;

    s->cell_count = 0;
    out->is_end = out->is_wrong = out->is_idle = false;
    for (;;) {
        const char *text = in->buf + in->begin;
        const size_t len = in->end - in->begin;
        MR_TRY(scan_on(s, &c, text, len, &is_end, err));
        if (!c.is_dropped && record_is_over(s, &c, is_end || in->is_end, out)) {
            out->is_wrong = c.is_dropped = true;
        }
        if (is_end || in->is_end) {
            break;
        }
        if (c.is_dropped) {
            in->begin = in->end;
            c.at = 0;
        }
        MR_TRY(c.is_dropped ? mr_input_more(in, err) : mr_text_source_more(t, out, err));
        if (out->is_idle) {
            return MR_OK;
        }
    }
    if (!is_end) {
        out->is_end = c.place == CELL_BEGIN && c.at == 0 && !c.is_dropped;
        MR_TRY(out->is_end ? MR_OK : scan_end(s, &c, in->buf + in->begin, &is_whole, err));
    }
    out->text = out->is_wrong ? MR_STR("") : mr_str_n(in->buf + in->begin, c.at);
    in->begin += c.at + is_end;
    if (!is_whole && !out->is_wrong) {
        out->is_wrong = true;
        out->text = MR_STR("");
        snprintf(out->why, sizeof out->why, "the file ends within a quoted cell");
    }
    rc = MR_OK;
out:
    return rc;
}

static bool is_blank(const struct csv *s, const struct mr_text_row *row)
{
    return !row->is_wrong && !row->is_end && !row->is_idle && s->cell_count <= 1 &&
           (row->text.len == 0 || (row->text.len == 1 && row->text.ptr[0] == '\r'));
}

static int row_next(struct mr_text_source *t, struct mr_text_row *out, struct mr_err *err)
{
    const struct csv *s = (const struct csv *)t;
    int rc;

    do {
        rc = record_next(t, out, err);
    } while (rc == MR_OK && s->column_count != 1 && is_blank(s, out));
    return rc;
}

/* ---- cells ---- */

/* Replaces doubled quotes in place; call it once per cell. */
static mr_str cell_text(const struct cell *c, mr_str record)
{
    char *begin = (char *)(uintptr_t)record.ptr + c->begin;
    char *to = begin;
    char *end = begin + (c->end - c->begin);

    if (!c->has_quotes) {
        return mr_str_n(begin, c->end - c->begin);
    }
    for (char *from = begin; from < end;) {
        char *quote = memchr(from, '"', (size_t)(end - from));
        const size_t n = (size_t)((quote ? quote + 1 : end) - from);
        memmove(to, from, n);
        to += n;
        from += n + (quote != NULL);
    }
    return mr_str_n(begin, (size_t)(to - begin));
}

static bool cell_is_null(const struct cell *c)
{
    return !c->is_quoted && c->begin == c->end;
}

/* *out_column: the column of the bad cell, if it is a wanted one. */
static int cells_check(const struct csv *s, int *out_column, struct mr_err *err)
{
    const uint64_t max_cell = s->t.setup->options->max_cell_bytes;

    const size_t kept = MR_MIN(s->cell_count, (size_t)MR_TEXT_COLUMNS);
    char where[32] = "";

    *out_column = -1;
    for (size_t i = 0; i < kept; i++) {
        const bool is_long = s->cells[i].end - s->cells[i].begin > max_cell;
        if (!is_long && !s->cells[i].is_torn) {
            continue;
        }
        *out_column = s->t.schema && i < s->column_count ? s->targets[i] : -1;
        if (*out_column < 0) {
            snprintf(where, sizeof where, "cell %zu: ", i);
        }
        return is_long ? MR_FAIL(err, MR_E_INVALID, "%sa cell of more than %llu bytes", where,
                                 (unsigned long long)max_cell)
                       : MR_FAIL(err, MR_E_INVALID, "%stext after the closing quote", where);
    }
    return s->cell_count == s->column_count
               ? MR_OK
               : MR_FAIL(err, MR_E_INVALID, "expected %zu cells, found %zu%s", s->column_count,
                         s->cell_count, s->hint);
}

/* ---- columns ---- */

static char delimiter_of(const struct csv *s)
{
    const mr_str path = mr_str_c(s->t.in.file->path);
    const bool is_tsv = mr_str_ends(path, MR_STR(".tsv")) || mr_str_ends(path, MR_STR(".tsv.gz")) ||
                        mr_str_ends(path, MR_STR(".tsv.zst"));
    const char named = s->t.setup->options->delimiter;

    return named ? named : is_tsv ? '\t' : ',';
}

/* A hint for one name that looks like several. */
static const char *hint_of(mr_str names)
{
    return memchr(names.ptr, ';', names.len) ? "; the names have ';' between them: --delimiter ';'"
           : memchr(names.ptr, '\t', names.len)
               ? "; the names have tabs between them: --delimiter $'\\t'"
           : memchr(names.ptr, '|', names.len)
               ? "; the names have '|' between them: --delimiter '|'"
               : "";
}

static int header_read(struct csv *s, mr_str text, struct mr_schema *out, struct mr_err *err)
{
    const bool has_no_header = s->t.setup->options->has_no_header;
    struct mr_buf made;
    int rc = MR_OK;

    mr_buf_init(&made, 0);
    s->hint = !has_no_header && s->column_count == 1 && text.len > 0 ? hint_of(text) : "";
    for (size_t i = 0; rc == MR_OK && i < s->column_count; i++) {
        mr_str name = has_no_header ? MR_STR("") : cell_text(&s->cells[i], text);
        if (name.len == 0) {
            mr_buf_reset(&made);
            mr_buf_printf(&made, "column%zu", i);
            name = mr_buf_view(&made);
        }
        if (made.failed) {
            rc = MR_FAIL(err, MR_E_EXHAUSTED, "no memory for the name of a column");
        } else if (!mr_utf8_valid(name) || memchr(name.ptr, '\0', name.len)) {
            rc = MR_FAIL(err, MR_E_INVALID, "'%s': the name of column %zu is not UTF-8",
                         s->t.in.file->path, i);
        } else if (out) {
            char *copy = mr_strndup(name.ptr, name.len);
            mr_schema_add(out, &(struct mr_field){.name = copy, .is_nullable = true});
            mr_free(copy);
        } else {
            const int target = (int)(uintptr_t)mr_map_find(&s->t.columns, name) - 1;
            if (target >= 0 && s->is_here[target] && s->t.in.is_stream) {
                rc = MR_FAIL(err, MR_E_INVALID, "'%s': two columns are named '%.*s'",
                             s->t.in.file->path, (int)MR_MIN(name.len, (size_t)100), name.ptr);
            }
            s->targets[i] = target >= 0 && !s->is_here[target] ? target : -1;
            if (target >= 0) {
                s->is_here[target] = true;
            }
        }
    }
    mr_buf_fini(&made);
    return rc;
}

static int targets_room(struct csv *s, struct mr_err *err)
{
    if (s->column_count > s->target_room) {
        int *more = mr_try_realloc(s->targets, s->column_count * sizeof *more);
        if (!more) {
            return MR_FAIL(err, MR_E_EXHAUSTED, "no memory for the columns of a file");
        }
        s->targets = more;
        s->target_room = s->column_count;
    }
    for (size_t i = 0; i < s->column_count; i++) {
        s->targets[i] = -1;
    }
    return MR_OK;
}

/* The first record gives the number of columns, and their names unless it is a row. */
static int header_next(struct mr_text_source *t, struct mr_schema *out, struct mr_err *err)
{
    struct csv *s = (struct csv *)t;
    struct mr_text_row row;
    int column;
    int rc;

    s->column_count = 0;
    s->hint = "";
    s->delimiter = delimiter_of(s);
    if (t->schema) {
        memset(s->is_here, 0, t->schema->count * sizeof *s->is_here);
    }
    MR_TRY(row_next(t, &row, err));
    if (row.is_end) {
        return MR_OK;
    }
    if (!row.is_wrong && s->cell_count > MR_TEXT_COLUMNS) {
        return MR_FAIL(err, MR_E_UNSUPPORTED, "'%s': more than %d columns", t->in.file->path,
                       MR_TEXT_COLUMNS);
    }
    s->column_count = s->cell_count;
    struct mr_err why = {0};
    MR_TRY(targets_room(s, err));
    if (row.is_wrong || cells_check(s, &column, &why) < 0) {
        return MR_FAIL(err, MR_E_INVALID, "'%s' is no table of CSV: in its first line: %s",
                       t->in.file->path, row.is_wrong ? row.why : why.msg);
    }
    MR_TRY(header_read(s, row.text, out, err));
    for (size_t i = 0; t->in.is_stream && i < t->schema->count; i++) {
        if (!s->is_here[i]) { /* files were checked when they were opened */
            return MR_FAIL(err, MR_E_INVALID, "'%s' has no column '%s'", t->in.file->path,
                           t->schema->fields[i].name);
        }
    }
    if (t->setup->options->has_no_header) {
        t->in.begin = (size_t)(row.text.ptr - t->in.buf);
    }
out:
    return rc;
}

static int row_guess(struct mr_text_source *t, mr_str text, struct mr_schema *io,
                     struct mr_err *err)
{
    const struct csv *s = (const struct csv *)t;
    int column;
    int rc = cells_check(s, &column, err);

    for (size_t i = 0; rc == MR_OK && i < s->column_count; i++) {
        if (!cell_is_null(&s->cells[i])) {
            mr_guess_text(cell_text(&s->cells[i], text), &io->fields[i], &t->scratch);
        }
    }
    return rc;
}

static int row_parse(struct mr_text_source *t, mr_str text, int *out_column, struct mr_err *err)
{
    const struct csv *s = (const struct csv *)t;
    size_t seen = 0;
    int rc = cells_check(s, out_column, err);

    for (size_t i = 0; rc == MR_OK && i < s->column_count; i++) {
        const struct cell *c = &s->cells[i];
        if (s->targets[i] < 0) {
            continue;
        }
        struct mr_column_builder *b = &t->builders[s->targets[i]];
        *out_column = s->targets[i];
        seen++;
        if (cell_is_null(c)) {
            mr_column_add_null(b);
        } else {
            rc = mr_cell_text(b, cell_text(c, text), &t->scratch, err);
        }
    }
    for (size_t i = 0; rc == MR_OK && seen < t->schema->count && i < t->schema->count; i++) {
        if (!s->is_here[i]) {
            mr_column_add_null(&t->builders[i]);
        }
    }
    return rc;
}

/* ---- life ---- */

static const struct mr_text_ops row_ops = {
    .name = "CSV",
    .head = header_next,
    .next = row_next,
    .guess = row_guess,
    .parse = row_parse,
};

static int csv_open(void **out, const struct mr_source_setup *setup, struct mr_err *err)
{
    const char delimiter = setup->options->delimiter;

    if (delimiter == '"' || delimiter == '\n' || delimiter == '\r') {
        return MR_FAIL(err, MR_E_INVALID, "a quote or an end of a line cannot be the delimiter");
    }
    struct csv *s = MR_NEW(struct csv);
    mr_text_source_init(&s->t, &row_ops, setup);
    *out = s;
    return MR_OK;
}

static int csv_schema(void *state, size_t file, struct mr_schema *out, struct mr_err *err)
{
    return mr_text_source_schema(&((struct csv *)state)->t, file, out, err);
}

static int csv_begin(void *state, const struct mr_schema *schema, struct mr_err *err)
{
    struct csv *s = state;

    s->is_here = MR_NEW_ARRAY(bool, schema->count);
    return mr_text_source_begin(&s->t, schema, err);
}

static int csv_read(void *state, size_t file, uint64_t first, uint64_t max_rows, uint64_t max_bytes,
                    struct mr_rows **out, struct mr_err *err)
{
    return mr_text_source_read(&((struct csv *)state)->t, file, first, max_rows, max_bytes, out,
                               err);
}

static void csv_close(void *state)
{
    struct csv *s = state;

    mr_text_source_fini(&s->t);
    mr_free(s->cells);
    mr_free(s->targets);
    mr_free(s->is_here);
    mr_free(s);
}

const struct mr_source_ops mr_csv_source_ops = {
    .open = csv_open,
    .schema = csv_schema,
    .begin = csv_begin,
    .read = csv_read,
    .close = csv_close,
    .is_guessed = true,
    .names_columns = true,
    .cancel = mr_text_source_cancel,
    .bytes = mr_text_source_bytes,
};
