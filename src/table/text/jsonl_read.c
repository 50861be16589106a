/* JSON lines: one row per line. Lines of white space are not rows.
 *
 * A line is parsed in place in the window, each value straight into the builder of its column. Rows of a file usually
 * have their members in the same order, so a member's place predicts its column: `guesses` keeps the last column at
 * each place, and the map of names is used only if the prediction fails.
 *
 * A line longer than the window's limit, or with a cell longer than allowed, is skipped without being stored. */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "table/io/io.h"
#include "table/values/values.h"
#include "text.h"

#define GUESSES_MOST 4096

/* Measures the members of a line that arrives in pieces. */
struct cells {
    size_t at;    /* bytes of the line scanned */
    size_t begin; /* start of the value at `at`; 0: before a value */
    size_t name_begin;
    size_t name_end;
    int depth;
    bool in_text;
    bool is_escaped;
};

struct guess {
    char name[55];
    uint8_t len;
    int column;
};

struct jsonl {
    struct mr_text_source t;
    uint64_t *seen; /* per column: the stamp of the last row that had it */
    uint64_t stamp;
    struct guess *guesses;
    size_t guess_count;
    struct mr_map found; /* while columns are guessed: name -> index + 1 */
};

/* ---- lines ---- */

/* A character within a text. */
static void text_step(struct cells *c, char b)
{
    if (c->is_escaped) {
        c->is_escaped = false;
    } else if (b == '\\') {
        c->is_escaped = true;
    } else if (b == '"') {
        c->in_text = false;
        c->name_end = c->depth == 1 && c->begin == 0 ? c->at : c->name_end;
    }
}

/* Continues over the line in [text, text + len). True: a cell is longer than allowed. */
static bool cells_over(struct cells *c, const char *text, size_t len, uint64_t max_cell)
{
    for (; c->at < len; c->at++) {
        const char b = text[c->at];
        if (c->in_text) {
            text_step(c, b);
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

/* Skips up to the line feed, or the end. */
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

/* True if a line, or the received part of one, is too long. The result does not depend on the window's position. */
static bool line_is_over(const struct mr_text_source *s, struct cells *cells, const char *text,
                         size_t len, struct mr_text_row *out)
{
    const uint64_t max_cell = s->setup->options->max_cell_bytes;

    if (len > max_cell && cells_over(cells, text, len, max_cell)) {
        const size_t name_len = cells->name_end > cells->name_begin /* no name in `{:` */
                                    ? MR_MIN(cells->name_end - cells->name_begin, (size_t)64)
                                    : 0;
        snprintf(out->why, sizeof out->why, "column '%.*s': a cell of more than %llu bytes",
                 (int)name_len, text + cells->name_begin, (unsigned long long)max_cell);
        return true;
    }
    if (len > s->window_most) {
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

static int line_next(struct mr_text_source *s, struct mr_text_row *out, struct mr_err *err)
{
    struct mr_input *in = &s->in;
    struct cells cells = {0};
    size_t searched = 0;

    out->is_end = out->is_wrong = out->is_idle = false;
    for (;;) {
        const char *begin = in->buf + in->begin;
        const size_t len = in->end - in->begin;
        const char *feed = len > searched ? memchr(begin + searched, '\n', len - searched) : NULL;
        if (feed || (in->is_end && len > 0)) {
            const char *end = feed ? feed : begin + len;
            in->begin += (size_t)(end - begin) + (feed ? 1 : 0);
            searched = 0;
            s->lines++;
            if (is_blank(begin, end)) {
                cells = (struct cells){0};
                continue;
            }
            out->is_wrong = line_is_over(s, &cells, begin, (size_t)(end - begin), out);
            out->text = out->is_wrong ? MR_STR("") : mr_str_n(begin, (size_t)(end - begin));
            return MR_OK;
        }
        if (in->is_end) {
            out->is_end = true;
            return MR_OK;
        }
        if (line_is_over(s, &cells, begin, len, out)) {
            out->is_wrong = true;
            out->text = mr_str_n("", 0);
            s->lines++;
            return line_drop(in, err);
        }
        searched = len;
        int rc = mr_text_source_more(s, out, err);
        if (rc < 0 || out->is_idle) {
            return rc;
        }
    }
}

/* ---- guessing the columns ---- */

static bool name_is_usable(mr_str name)
{
    return !name.len || !memchr(name.ptr, '\0', name.len); /* names are stored with a NUL */
}

/* Joins a whole line to the columns. Errors in it are a fault of its row, later. */
static int line_guess(struct mr_text_source *t, mr_str text, struct mr_schema *io,
                      struct mr_err *err)
{
    struct jsonl *s = (struct jsonl *)t;
    bool is_first = true;
    struct mr_json j;
    mr_str name;

    mr_json_init(&j, text, &t->scratch, 0, err);
    if (mr_json_peek(&j) != MR_JSON_OBJECT) {
        return mr_json_enter_object(&j);
    }
    if (mr_json_skip(&j, NULL) < 0 || mr_json_finish(&j) < 0) {
        return j.status;
    }
    mr_json_init(&j, text, &t->scratch, 0, err);
    mr_json_enter_object(&j);
    while (mr_json_next_key(&j, &is_first, &name)) {
        uintptr_t at = (uintptr_t)mr_map_find(&s->found, name);
        if (at == 0 && name_is_usable(name)) {
            if (io->count == MR_TEXT_COLUMNS) {
                return MR_FAIL(err, MR_E_UNSUPPORTED, "more than %d columns", MR_TEXT_COLUMNS);
            }
            char *copy = mr_strndup(name.ptr, name.len);
            mr_schema_add(io, &(struct mr_field){.name = copy, .is_nullable = true});
            mr_free(copy);
            at = io->count;
            mr_map_put(&s->found, name, (void *)at); /* NOLINT: a number */
        }
        if (at ? !mr_guess_json(&j, &io->fields[at - 1]) : mr_json_skip(&j, NULL) < 0) {
            break;
        }
    }
    return j.status;
}

static int jsonl_schema(void *state, size_t file, struct mr_schema *out, struct mr_err *err)
{
    struct jsonl *s = state;
    const int rc = mr_text_source_schema(&s->t, file, out, err);

    mr_map_fini(&s->found);
    return rc;
}

/* ---- rows ---- */

static int column_find(struct jsonl *s, size_t place, mr_str name)
{
    struct guess *g = place < s->guess_count ? &s->guesses[place] : NULL;

    if (g && mr_str_eq(name, mr_str_n(g->name, g->len))) {
        return g->column;
    }
    const int column = (int)(uintptr_t)mr_map_find(&s->t.columns, name) - 1;
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
    struct mr_column_builder *b = &s->t.builders[column];

    if (s->seen[column] == s->stamp) {
        return mr_json_fail(j, MR_E_INVALID, "the name is there twice");
    }
    s->seen[column] = s->stamp;
    if (mr_json_peek(j) == MR_JSON_NULL) {
        mr_column_add_null(b);
        return mr_json_null(j);
    }
    return mr_cell_json(j, b);
}

static int line_parse(struct mr_text_source *t, mr_str text, int *out_column, struct mr_err *err)
{
    struct jsonl *s = (struct jsonl *)t;
    struct mr_json j;
    bool is_first = true;
    size_t seen = 0;
    mr_str name;

    s->stamp++;
    mr_json_init(&j, text, &t->scratch, 0, err);
    mr_json_enter_object(&j);
    for (size_t place = 0; mr_json_next_key(&j, &is_first, &name); place++) {
        const int column = column_find(s, place, name);
        if (column < 0) {
            mr_json_skip(&j, NULL);
        } else if (value_read(s, &j, (size_t)column) < 0) {
            *out_column = column;
            return j.status;
        } else {
            seen++;
        }
    }
    int rc = mr_json_finish(&j);
    for (size_t i = 0; rc == MR_OK && seen < t->schema->count && i < t->schema->count; i++) {
        if (s->seen[i] != s->stamp) {
            mr_column_add_null(&t->builders[i]);
        }
    }
    return rc;
}

/* ---- life ---- */

static const struct mr_text_ops line_ops = {
    .name = "JSON lines",
    .next = line_next,
    .guess = line_guess,
    .parse = line_parse,
};

static int jsonl_open(void **out, const struct mr_source_setup *setup, struct mr_err *err)
{
    struct jsonl *s = MR_NEW(struct jsonl);

    (void)err;
    mr_text_source_init(&s->t, &line_ops, setup);
    *out = s;
    return MR_OK;
}

static int jsonl_begin(void *state, const struct mr_schema *schema, struct mr_err *err)
{
    struct jsonl *s = state;

    s->seen = MR_NEW_ARRAY(uint64_t, schema->count);
    s->guesses = MR_NEW_ARRAY(struct guess, GUESSES_MOST);
    return mr_text_source_begin(&s->t, schema, err);
}

static int jsonl_read(void *state, size_t file, uint64_t first, uint64_t max_rows,
                      uint64_t max_bytes, struct mr_rows **out, struct mr_err *err)
{
    return mr_text_source_read(&((struct jsonl *)state)->t, file, first, max_rows, max_bytes, out,
                               err);
}

static void jsonl_close(void *state)
{
    struct jsonl *s = state;

    mr_text_source_fini(&s->t);
    mr_free(s->seen);
    mr_free(s->guesses);
    mr_map_fini(&s->found);
    mr_free(s);
}

const struct mr_source_ops mr_jsonl_source_ops = {
    .open = jsonl_open,
    .schema = jsonl_schema,
    .begin = jsonl_begin,
    .read = jsonl_read,
    .close = jsonl_close,
    .is_guessed = true,
    .cancel = mr_text_source_cancel,
    .bytes = mr_text_source_bytes,
};
