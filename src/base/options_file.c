/* Options, the config file: `name = value` lines. Nothing else, on purpose: what can be said on a
 * command line can be said here by the same names, and the other way round. */
#include <errno.h>
#include <stdio.h>

#include "options_priv.h"

#define FILE_BYTES_MAX ((size_t)1 << 20)

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

/* Without a comment that begins behind blanks, outside of quotes. */
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

static int read_line(struct mr_options *o, const char *path, const char *where, mr_str line,
                     struct option_givens *out, struct mr_err *err)
{
    struct option_given given = {.source = MR_OPTION_FROM_FILE, .where = where, .file = path};

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
    given.row = mr_option_find(o, name);
    if (!given.row) {
        char prefix[320];
        snprintf(prefix, sizeof prefix, "%.300s: ", where);
        return mr_option_unknown(o, prefix, "", mr_str_sub(name, 0, 80), err);
    }
    if (given.row->flags & (MR_OPTION_CLI_ONLY | MR_OPTION_CONFIG)) {
        return MR_FAIL(err, MR_E_INVALID, "%s: %s cannot be set in a config file", where,
                       given.row->name);
    }
    int rc = unquote(&value, where, err);
    if (rc < 0) {
        return rc;
    }
    given.text = mr_option_keep(o, value);
    MR_VEC_PUSH(&out->list, given);
    return MR_OK;
}

int mr_option_read_file(struct mr_options *o, const char *path, struct option_givens *out,
                        struct mr_err *err)
{
    struct mr_buf text;
    mr_str line;
    unsigned number = 0;

    mr_buf_init(&text, FILE_BYTES_MAX);
    int rc = slurp(path, &text, err);
    mr_str rest = text.len ? mr_buf_view(&text) : mr_str_c("");
    if (rc == MR_OK && memchr(rest.ptr, '\0', rest.len)) {
        rc = MR_FAIL(err, MR_E_INVALID, "config file %s is not text", path);
    }
    while (rc == MR_OK && mr_str_split(&rest, '\n', &line)) {
        const char *where = mr_option_keepf(o, "%s:%u", path, ++number);
        rc = read_line(o, path, where, line, out, err);
    }
    mr_buf_fini(&text);
    return rc;
}
