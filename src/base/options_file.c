/* Options, the config file: `name = value` lines. The file has exactly the options of the command line, by the same
 * names. */
#include <errno.h>
#include <stdio.h>

#include "base_priv.h"

#define FILE_BYTES_MAX ((size_t)1 << 20)
#define MANY_LINES     "\"\"\""

static int slurp(const char *path, struct mr_buf *out, struct mr_err *err)
{
    FILE *f = fopen(path, "re");
    char chunk[4096];
    size_t n;

    if (!f) {
        return MR_FAIL(err, MR_E_IO, "cannot read config file %s: %s", path, strerror(errno));
    }
    errno = 0;
    while ((n = fread(chunk, 1, sizeof chunk, f)) > 0) {
        mr_buf_append(out, chunk, n);
    }
    int read_errno = ferror(f) ? (errno ? errno : EIO) : 0;
    fclose(f);
    if (read_errno) {
        return MR_FAIL(err, MR_E_IO, "cannot read config file %s: %s", path, strerror(read_errno));
    }
    if (out->failed) {
        return MR_FAIL(err, MR_E_TOO_LARGE, "config file %s is larger than 1 MiB", path);
    }
    return MR_OK;
}

/* The line without its comment, which begins after blanks, outside of quotes. */
static mr_str strip_comment(mr_str line)
{
    bool quoted = false;

    for (size_t i = 0; i < line.len; i++) {
        if (line.ptr[i] == '"') {
            quoted = !quoted;
        }
        bool starts = i == 0 || line.ptr[i - 1] == ' ' || line.ptr[i - 1] == '\t';
        if (line.ptr[i] == '#' && !quoted && starts) {
            return mr_str_sub(line, 0, i);
        }
    }
    return line;
}

static int unquote(mr_str *io_value, const char *where, struct mr_err *err)
{
    mr_str v = *io_value;

    if (v.len == 0 || v.ptr[0] != '"') {
        return MR_OK;
    }
    if (v.len < 2 || v.ptr[v.len - 1] != '"' ||
        mr_str_find(mr_str_sub(v, 1, v.len - 1), '"') >= 0) {
        return MR_FAIL(err, MR_E_INVALID, "%s: a quoted value is \"...\" without '\"' inside",
                       where);
    }
    *io_value = mr_str_sub(v, 1, v.len - 1);
    return MR_OK;
}

/* ---- the program that a line is for ---- */

static const struct mr_option *sibling_find(const struct mr_options *o, mr_str name)
{
    const struct mr_options all = {.table = o->sibling, .count = o->sibling_count};

    return mr_option_find(&all, name);
}

static int row_find(const struct mr_options *o, const char *where, mr_str name,
                    const struct mr_option **out, struct mr_err *err)
{
    const struct mr_option *row = mr_option_find(o, name);
    const uint32_t closed = MR_OPTION_CONFIG | (o->files_take_all ? 0 : MR_OPTION_CLI_ONLY);

    row = row ? row : sibling_find(o, name);
    if (!row) {
        char prefix[320];
        snprintf(prefix, sizeof prefix, "%.300s: ", where);
        return mr_option_unknown(o, prefix, "", mr_str_sub(name, 0, 80), err);
    }
    if (row->flags & closed) {
        return MR_FAIL(err, MR_E_INVALID, "%s: %s cannot be set in a config file", where,
                       row->name);
    }
    *out = row;
    return MR_OK;
}

/* *out: only the sibling has the name or accepts the value. A value that neither accepts is an error when it is
 * applied. */
static int sibling_probe(const struct mr_options *o, const struct option_given *g, bool *out,
                         struct mr_err *err)
{
    const struct mr_option *theirs = sibling_find(o, mr_str_c(g->row->name));
    char label[320];

    snprintf(label, sizeof label, "%.250s: %.60s", g->where, g->row->name);
    if (theirs == g->row) {
        *out = true;
        return mr_option_store(theirs, NULL, label, g->text, err);
    }
    *out = theirs && mr_option_store(g->row, NULL, label, g->text, NULL) < 0 &&
           mr_option_store(theirs, NULL, label, g->text, NULL) == MR_OK;
    return MR_OK;
}

/* ---- lines ---- */

struct file_scan {
    struct mr_options *o;
    struct option_givens *out;
    const char *path;
    mr_str rest;
    unsigned number; /* of the last line read */
};

static bool line_next(struct file_scan *s, mr_str *out)
{
    const bool is_there = mr_str_split(&s->rest, '\n', out);

    s->number += is_there;
    return is_there;
}

/* The lines up to one of """ alone. */
static int lines_take(struct file_scan *s, const char *where, const char **out, struct mr_err *err)
{
    struct mr_buf text;
    mr_str line;
    bool is_over = false;

    mr_buf_init(&text, FILE_BYTES_MAX);
    while (!is_over && line_next(s, &line)) {
        is_over = mr_str_eq_c(mr_str_trim(line), MANY_LINES);
        if (!is_over) {
            line.len -= line.len > 0 && line.ptr[line.len - 1] == '\r';
            mr_buf_c(&text, text.len ? "\n" : "");
            mr_buf_str(&text, line);
        }
    }
    *out = mr_option_keep(s->o, mr_buf_view(&text));
    mr_buf_fini(&text);
    return is_over ? MR_OK
                   : MR_FAIL(err, MR_E_INVALID,
                             "%s: no line of " MANY_LINES " alone ends the value that begins here",
                             where);
}

static int value_take(struct file_scan *s, const char *where, mr_str value, const char **out,
                      struct mr_err *err)
{
    if (mr_str_eq_c(value, MANY_LINES)) {
        return lines_take(s, where, out, err);
    }
    int rc = unquote(&value, where, err);
    *out = rc == MR_OK ? mr_option_keep(s->o, value) : NULL;
    return rc;
}

static int read_line(struct file_scan *s, const char *where, mr_str line, struct mr_err *err)
{
    struct option_given given = {.source = MR_OPTION_FROM_FILE, .where = where, .file = s->path};
    bool is_other;
    int rc;

    line = mr_str_trim(strip_comment(line));
    if (line.len == 0) {
        return MR_OK;
    }
    ptrdiff_t equals = mr_str_find(line, '=');
    if (equals < 0) {
        return MR_FAIL(err, MR_E_INVALID, "%s: expected 'name = value', got '%.*s'", where,
                       MR_STR_ARG(mr_str_sub(line, 0, 80)));
    }
    mr_str name = mr_str_trim(mr_str_sub(line, 0, (size_t)equals));
    mr_str value = mr_str_trim(mr_str_sub(line, (size_t)equals + 1, line.len));
    MR_TRY(row_find(s->o, where, name, &given.row, err));
    MR_TRY(value_take(s, where, value, &given.text, err));
    MR_TRY(sibling_probe(s->o, &given, &is_other, err));
    if (!is_other) {
        MR_VEC_PUSH(&s->out->list, given);
    }
out:
    return rc;
}

int mr_option_read_file(struct mr_options *o, const char *path, struct option_givens *out,
                        struct mr_err *err)
{
    struct file_scan s = {.o = o, .out = out, .path = path};
    struct mr_buf text;
    mr_str line;

    mr_buf_init(&text, FILE_BYTES_MAX);
    int rc = slurp(path, &text, err);
    s.rest = text.len ? mr_buf_view(&text) : mr_str_c("");
    if (rc == MR_OK && memchr(s.rest.ptr, '\0', s.rest.len)) {
        rc = MR_FAIL(err, MR_E_INVALID, "config file %s is not text", path);
    }
    while (rc == MR_OK && line_next(&s, &line)) {
        rc = read_line(&s, mr_option_keepf(o, "%s:%u", path, s.number), line, err);
    }
    mr_buf_fini(&text);
    return rc;
}
