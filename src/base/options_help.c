/* Options, the output: --help and --dump-options, both generated from the table. */
#include <stdio.h>

#include "base_priv.h"

#define HELP_COLUMN 34
#define HELP_WIDTH  98

static void pad_to(struct mr_buf *out, size_t line_start, size_t column)
{
    while (out->len - line_start < column && !out->failed) {
        mr_buf_char(out, ' ');
    }
}

/* Words of `text`, wrapped, from the current column on; further lines begin at `indent`. */
static void put_wrapped(struct mr_buf *out, size_t line_start, size_t indent, mr_str text)
{
    mr_str word;
    bool first = true;

    while (mr_str_split(&text, ' ', &word)) {
        if (word.len == 0) {
            continue;
        }
        if (!first && out->len - line_start + 1 + word.len > HELP_WIDTH) {
            mr_buf_char(out, '\n');
            line_start = out->len;
            pad_to(out, line_start, indent);
        } else if (!first) {
            mr_buf_char(out, ' ');
        }
        mr_buf_str(out, word);
        first = false;
    }
    mr_buf_char(out, '\n');
}

/* "sentence (text|json; default text; 0 to 9; repeatable)" */
static void describe(const struct mr_option *row, struct mr_buf *out)
{
    size_t open;

    mr_buf_c(out, row->help ? row->help : "");
    MR_BUF_LIT(out, " (");
    open = out->len;
    for (int i = 0; row->choices && row->choices[i]; i++) {
        mr_buf_printf(out, "%s%s", i ? ", " : "", row->choices[i]);
    }
    const bool is_switch = row->kind == MR_OPTION_BOOL; /* put_row shows the other value */
    if (row->fallback && row->fallback[0] && !is_switch) {
        mr_buf_printf(out, "%sdefault %s", out->len > open ? "; " : "", row->fallback);
    }
    if (row->min || row->max) {
        const bool is_first = out->len == open;
        mr_buf_c(out, is_first ? "" : "; ");
        const size_t range = out->len;
        mr_option_range(row, out);
        if (out->len == range && !is_first) {
            out->len -= 2; /* any number from 0: no range to show */
        }
    }
    if (row->kind == MR_OPTION_LIST) {
        mr_buf_c(out, out->len > open ? "; repeatable" : "repeatable");
    }
    if (out->len == open) {
        out->len -= 2;
    } else {
        mr_buf_char(out, ')');
    }
}

static void put_row(const struct mr_option *row, struct mr_buf *out)
{
    size_t start = out->len;
    struct mr_buf text;

    if (row->letter) {
        mr_buf_printf(out, "  -%c, --%s", row->letter, row->name);
    } else {
        mr_buf_printf(out, "      --%s", row->name);
    }
    if (row->kind != MR_OPTION_BOOL) {
        mr_buf_printf(out, " %s", row->value ? row->value : "VALUE");
    } else if (row->fallback && strcmp(row->fallback, "true") == 0) {
        MR_BUF_LIT(out, "[=false]"); /* on by default */
    }
    if (out->len - start >= HELP_COLUMN - 1) {
        mr_buf_char(out, '\n');
        start = out->len;
    }
    pad_to(out, start, HELP_COLUMN);
    mr_buf_init(&text, 4096);
    describe(row, &text);
    put_wrapped(out, start, HELP_COLUMN, mr_buf_view(&text));
    mr_buf_fini(&text);
}

static void put_group(const struct mr_option *row, struct mr_buf *out)
{
    mr_buf_printf(out, "\n%s\n", row->name);
    if (row->help) {
        size_t start = out->len;
        pad_to(out, start, 2);
        put_wrapped(out, start, 2, mr_str_c(row->help));
    }
}

/* The options that exist for compatibility only, in one paragraph. */
static void put_names(const struct mr_options *o, uint32_t flag, const char *title,
                      struct mr_buf *out)
{
    struct mr_buf names;

    mr_buf_init(&names, 16384);
    for (size_t i = 0; i < o->count; i++) {
        if (o->table[i].flags & flag) {
            mr_buf_printf(&names, "%s--%s", names.len ? ", " : "", o->table[i].name);
        }
    }
    if (names.len) {
        mr_buf_printf(out, "\n%s\n", title);
        size_t start = out->len;
        pad_to(out, start, 6);
        put_wrapped(out, start, 6, mr_buf_view(&names));
    }
    mr_buf_fini(&names);
}

void mr_options_help(const struct mr_options *o, struct mr_buf *out)
{
    for (size_t i = 0; i < o->count; i++) {
        const struct mr_option *row = &o->table[i];
        if (row->kind == MR_OPTION_GROUP) {
            put_group(row, out);
        } else if (!(row->flags & (MR_OPTION_HIDDEN | MR_OPTION_IGNORED | MR_OPTION_REFUSED))) {
            put_row(row, out);
        }
    }
    put_names(o, MR_OPTION_IGNORED, "Accepted, but without effect here (a warning says why)", out);
    put_names(o, MR_OPTION_REFUSED, "Known, but not available in this version", out);
}

static const char *source_text(const struct mr_option_state *s)
{
    switch (s->source) {
    case MR_OPTION_FROM_FILE:
    case MR_OPTION_FROM_ENVIRONMENT: return s->where;
    case MR_OPTION_FROM_COMMAND_LINE: return "command line";
    case MR_OPTION_FROM_DEFAULT: break;
    }
    return "default";
}

/* The last line of a value of several lines cannot hold a comment. */
static bool takes_lines(const struct mr_option *row, const char *text)
{
    mr_str s = mr_str_c(text);

    return !(row->flags & MR_OPTION_SECRET) &&
           (mr_str_find(s, '\n') >= 0 || mr_str_find(s, '"') >= 0);
}

static void put_value(const struct mr_option *row, const char *text, struct mr_buf *out)
{
    mr_str s = mr_str_c(text);
    bool plain = s.len && s.len == mr_str_trim(s).len && mr_str_find(s, '#') < 0;

    if (row->flags & MR_OPTION_SECRET) {
        MR_BUF_LIT(out, "********");
    } else if (takes_lines(row, text)) {
        mr_buf_printf(out, "\"\"\"\n%s\n\"\"\"", text);
    } else if (plain) {
        mr_buf_str(out, s);
    } else {
        mr_buf_printf(out, "\"%s\"", text);
    }
}

static void dump_row(const struct mr_option *row, const struct mr_option_state *state,
                     struct mr_buf *out)
{
    for (size_t i = 0; i < state->texts.len; i++) {
        size_t start = out->len;
        /* A config file cannot name a config file: a comment, so that the dump can be read as one. */
        mr_buf_printf(out, "%s%s = ", row->flags & MR_OPTION_CONFIG ? "# " : "", row->name);
        put_value(row, state->texts.at[i], out);
        if (takes_lines(row, state->texts.at[i])) {
            mr_buf_char(out, '\n');
            continue;
        }
        pad_to(out, start, 48);
        mr_buf_printf(out, "  # %s\n", source_text(state));
    }
    if (state->texts.len == 0) {
        size_t start = out->len;
        mr_buf_printf(out, "# %s is not set", row->name);
        pad_to(out, start, 48);
        MR_BUF_LIT(out, "  # default\n");
    }
}

void mr_options_dump(const struct mr_options *o, struct mr_buf *out)
{
    for (size_t i = 0; i < o->count; i++) {
        const struct mr_option *row = &o->table[i];
        uint32_t hidden = MR_OPTION_REFUSED | MR_OPTION_CLI_ONLY;
        /* An option without effect is shown only if it was set. */
        bool idle =
            (row->flags & MR_OPTION_IGNORED) && o->states[i].source == MR_OPTION_FROM_DEFAULT;
        if (row->kind == MR_OPTION_GROUP) {
            mr_buf_printf(out, "%s# %s\n", out->len ? "\n" : "", row->name);
        } else if (!(row->flags & hidden) && !idle) {
            dump_row(row, &o->states[i], out);
        }
    }
}
