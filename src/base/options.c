/* Options, the part that finds values: command line, environment, and the order among them.
 *
 * Nothing is stored while the sources are read. Each value found becomes an option_given; then the
 * defaults are stored and all given values are applied over them, lowest source first. So the same code checks every
 * value, also an overridden one: a mistake in a config file shows at once, and not only when the command line no
 * longer overrides it. */
#include "base/options.h"

#include <stdarg.h>
#include <stdio.h>

#include "base_priv.h"

static const char *env_prefix(const struct mr_options *o)
{
    return o->env_prefix ? o->env_prefix : "MILLRACE_";
}

void mr_options_init(struct mr_options *o, const char *program, const struct mr_option *table,
                     size_t count, void *target)
{
    *o = (struct mr_options){.table = table, .count = count, .target = target, .program = program};
    o->states = MR_NEW_ARRAY(struct mr_option_state, count + 1);
}

void mr_options_fini(struct mr_options *o)
{
    for (size_t i = 0; i < o->count; i++) {
        MR_VEC_FINI(&o->states[i].texts);
    }
    for (size_t i = 0; i < o->owned.len; i++) {
        mr_free(o->owned.at[i]);
    }
    mr_freep(&o->states);
    MR_VEC_FINI(&o->owned);
    MR_VEC_FINI(&o->foreign);
    MR_VEC_FINI(&o->args);
    MR_VEC_FINI(&o->warnings);
    o->count = 0;
}

const char *mr_option_keep(struct mr_options *o, mr_str text)
{
    char *copy = mr_strndup(text.len ? text.ptr : "", text.len);

    MR_VEC_PUSH(&o->owned, copy);
    return copy;
}

const char *mr_option_keepf(struct mr_options *o, const char *fmt, ...)
{
    va_list ap;
    va_list again;

    va_start(ap, fmt);
    va_copy(again, ap);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    char *text = mr_alloc(n < 0 ? 1 : (size_t)n + 1);
    if (n > 0) {
        vsnprintf(text, (size_t)n + 1, fmt, again);
    }
    va_end(again);
    MR_VEC_PUSH(&o->owned, text);
    return text;
}

const struct mr_option *mr_option_find(const struct mr_options *o, mr_str name)
{
    for (size_t i = 0; i < o->count; i++) {
        if (o->table[i].kind != MR_OPTION_GROUP && mr_str_eq_c(name, o->table[i].name)) {
            return &o->table[i];
        }
    }
    return NULL;
}

static const struct mr_option *find_letter(const struct mr_options *o, char letter)
{
    for (size_t i = 0; i < o->count; i++) {
        if (o->table[i].letter == letter && o->table[i].kind != MR_OPTION_GROUP) {
            return &o->table[i];
        }
    }
    return NULL;
}

const char *mr_nearest_word(mr_str word, const char *const *words)
{
    const char *best = NULL;
    size_t best_distance = MR_MAX(word.len / 3, (size_t)1) + 1;

    for (; *words; words++) {
        size_t distance = mr_str_distance(word, mr_str_c(*words));
        /* The beginning of a word is a better guess than a short word that happens to be near. */
        if (word.len >= 3 && mr_str_starts(mr_str_c(*words), word)) {
            distance = MR_MIN(distance, (size_t)1);
        }
        if (distance < best_distance) {
            best = *words;
            best_distance = distance;
        }
    }
    return best;
}

/* Also among the sibling's names if they are taken. */
static const char *nearest_name(const struct mr_options *o, mr_str name, bool with_sibling)
{
    const size_t count = o->count + (with_sibling ? o->sibling_count : 0);
    const char **names = MR_NEW_ARRAY(const char *, count + 1);
    size_t n = 0;

    for (size_t i = 0; i < count; i++) {
        const struct mr_option *row = i < o->count ? &o->table[i] : &o->sibling[i - o->count];
        if (row->kind != MR_OPTION_GROUP) {
            names[n++] = row->name;
        }
    }
    const char *best = mr_nearest_word(name, names);
    mr_free(names);
    return best;
}

int mr_option_unknown(const struct mr_options *o, const char *where, const char *dashes,
                      mr_str name, struct mr_err *err)
{
    const char *near = nearest_name(o, name, dashes[0] == '\0'); /* a file has no dashes */

    if (!near) {
        return MR_FAIL(err, MR_E_INVALID, "%s%s%.*s is not an option; '%s --help' lists them",
                       where, dashes, MR_STR_ARG(name), o->program);
    }
    return MR_FAIL(err, MR_E_INVALID, "%s%s%.*s is not an option; did you mean %s%s?", where,
                   dashes, MR_STR_ARG(name), dashes, near);
}

/* ---- command line ---- */

struct arg_scan {
    struct mr_options *o;
    struct option_givens *out;
    int argc;
    char *const *argv;
    int at;
};

static void give_arg(struct arg_scan *s, const struct mr_option *row, const char *text)
{
    struct option_given given = {.row = row, .text = text, .source = MR_OPTION_FROM_COMMAND_LINE};

    MR_VEC_PUSH(&s->out->list, given);
}

/* The value in the next argument, or NULL. For a bool only if it is the text of a bool. */
static const char *next_value(struct arg_scan *s, const struct mr_option *row)
{
    bool ignored;

    if (s->at + 1 >= s->argc) {
        return NULL;
    }
    const char *text = s->argv[s->at + 1];
    if (row->kind == MR_OPTION_BOOL &&
        (s->o->max_args || !mr_option_bool(mr_str_c(text), &ignored))) {
        return NULL;
    }
    /* In "--model-repository --http-port 0" a value is missing: an option is never a value. */
    if (text[0] == '-' && text[1] == '-') {
        return NULL;
    }
    s->at++;
    return text;
}

static int take_option(struct arg_scan *s, const struct mr_option *row, const char *inline_value,
                       struct mr_err *err)
{
    const char *text = inline_value ? inline_value : next_value(s, row);

    if (!text && row->kind == MR_OPTION_BOOL) {
        text = "true";
    }
    if (!text) {
        return MR_FAIL(err, MR_E_INVALID, "--%s needs a value: --%s=%s", row->name, row->name,
                       row->value ? row->value : "VALUE");
    }
    give_arg(s, row, text);
    return MR_OK;
}

static int scan_long(struct arg_scan *s, const char *arg, struct mr_err *err)
{
    const char *equals = strchr(arg, '=');
    mr_str name = equals ? mr_str_n(arg, (size_t)(equals - arg)) : mr_str_c(arg);
    const struct mr_option *row = mr_option_find(s->o, name);

    if (!row) {
        return mr_option_unknown(s->o, "", "--", name, err);
    }
    return take_option(s, row, equals ? equals + 1 : NULL, err);
}

/* -m VALUE, -mVALUE, -m=VALUE; -v. */
static int scan_letter(struct arg_scan *s, const char *arg, struct mr_err *err)
{
    const struct mr_option *row = find_letter(s->o, arg[1]);

    if (!row) {
        return MR_FAIL(err, MR_E_INVALID, "%s is not an option; '%s --help' lists them", arg,
                       s->o->program);
    }
    const char *value = arg[2] == '=' ? arg + 3 : arg + 2;
    return take_option(s, row, arg[2] ? value : NULL, err);
}

static int scan_plain(struct arg_scan *s, const char *arg, struct mr_err *err)
{
    if (s->o->args.len >= s->o->max_args) {
        if (s->o->max_args == 0) {
            return MR_FAIL(err, MR_E_INVALID, "only options are taken, got '%s'", arg);
        }
        return MR_FAIL(err, MR_E_INVALID, "too many arguments at '%s'", arg);
    }
    MR_VEC_PUSH(&s->o->args, arg);
    return MR_OK;
}

static int scan_args(struct mr_options *o, int argc, char *const *argv, struct option_givens *out,
                     struct mr_err *err)
{
    struct arg_scan s = {.o = o, .out = out, .argc = argc, .argv = argv};
    bool only_plain = false;
    int rc = MR_OK;

    for (s.at = 0; s.at < argc && rc == MR_OK && !o->wants_help; s.at++) {
        const char *arg = argv[s.at];
        if (only_plain || arg[0] != '-' || arg[1] == '\0') {
            rc = scan_plain(&s, arg, err);
        } else if (strcmp(arg, "--") == 0) {
            only_plain = true;
        } else if (strcmp(arg, "--help") == 0 || strcmp(arg, "-h") == 0) {
            o->wants_help = true;
        } else if (arg[1] == '-') {
            rc = scan_long(&s, arg + 2, err);
        } else {
            rc = scan_letter(&s, arg, err);
        }
    }
    return rc;
}

/* ---- environment ---- */

/* "http-port" is HTTP_PORT after the prefix. */
static bool is_variable_of(const char *p, const struct mr_option *row)
{
    const char *q = row->name;

    for (; *p && *p != '=' && *q; p++, q++) {
        char c = *q == '-' ? '_' : (char)(*q >= 'a' && *q <= 'z' ? *q - 'a' + 'A' : *q);
        if (*p != c) {
            return false;
        }
    }
    return *p == '=' && *q == '\0';
}

static const struct mr_option *find_variable(const struct mr_options *o, const char *variable)
{
    for (size_t i = 0; i < o->count; i++) {
        const struct mr_option *row = &o->table[i];
        if (row->kind != MR_OPTION_GROUP && !(row->flags & MR_OPTION_CLI_ONLY) &&
            is_variable_of(variable + strlen(env_prefix(o)), row)) {
            return row;
        }
    }
    return NULL;
}

/* Other programs may use the prefix too, so an unknown variable causes a warning only if it resembles an option. */
static void warn_variable(struct mr_options *o, mr_str name)
{
    char lower[64];
    size_t n = 0;

    for (size_t i = strlen(env_prefix(o)); i < name.len && n < sizeof lower - 1; i++) {
        char c = name.ptr[i];
        lower[n++] = (char)(c == '_' ? '-' : c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
    }
    const char *near = nearest_name(o, mr_str_n(lower, n), false);
    if (near && !mr_option_find(o, mr_str_n(lower, n))) {
        MR_VEC_PUSH(&o->warnings,
                    mr_option_keepf(o, "environment variable %.*s sets nothing; did you mean --%s?",
                                    MR_STR_ARG(name), near));
    }
}

static void give_variable(struct mr_options *o, const struct mr_option *row, mr_str name,
                          const char *value, struct option_givens *out)
{
    struct option_given given = {.row = row,
                                 .text = value,
                                 .source = MR_OPTION_FROM_ENVIRONMENT,
                                 .where = mr_option_keep(o, name)};
    mr_str rest = mr_str_c(value);
    mr_str piece;

    if (row->kind != MR_OPTION_LIST) {
        MR_VEC_PUSH(&out->list, given);
        return;
    }
    while (mr_str_split(&rest, ';', &piece)) {
        if (piece.len) {
            given.text = mr_option_keep(o, piece);
            MR_VEC_PUSH(&out->list, given);
        }
    }
}

static void scan_environment(struct mr_options *o, char *const *env, struct option_givens *out)
{
    for (; env && *env; env++) {
        const char *equals = strchr(*env, '=');
        if (!equals || strncmp(*env, env_prefix(o), strlen(env_prefix(o))) != 0) {
            continue;
        }
        mr_str name = mr_str_n(*env, (size_t)(equals - *env));
        const struct mr_option *row = find_variable(o, *env);
        if (row) {
            give_variable(o, row, name, equals + 1, out);
        } else {
            warn_variable(o, name);
        }
    }
}

static bool has_variable(const struct option_givens *found, const struct mr_option *row)
{
    for (size_t i = 0; i < found->list.len; i++) {
        const struct option_given *g = &found->list.at[i];
        if (g->row == row && g->source == MR_OPTION_FROM_ENVIRONMENT) {
            return true;
        }
    }
    return false;
}

static void scan_foreign(struct mr_options *o, struct option_givens *out)
{
    for (size_t i = 0; i < o->foreign.len; i++) {
        const struct mr_option_foreign *f = &o->foreign.at[i];
        if (!has_variable(out, f->row)) {
            give_variable(o, f->row, mr_str_c(f->where), f->value, out);
        }
    }
}

void mr_options_give(struct mr_options *o, const char *name, const char *where, const char *value)
{
    struct mr_option_foreign f = {mr_option_find(o, mr_str_c(name)), where,
                                  mr_option_keep(o, mr_str_c(value))};

    MR_ASSERT(f.row);
    MR_VEC_PUSH(&o->foreign, f);
}

/* ---- config files named by the command line or the environment ---- */

static int read_files(struct mr_options *o, const struct option_givens *named,
                      struct option_givens *out, struct mr_err *err)
{
    enum mr_option_source from = MR_OPTION_FROM_DEFAULT;

    for (size_t i = 0; i < named->list.len; i++) {
        const struct option_given *g = &named->list.at[i];
        if ((g->row->flags & MR_OPTION_CONFIG) && g->source > from) {
            from = g->source;
        }
    }
    for (size_t i = 0; i < named->list.len; i++) {
        const struct option_given *g = &named->list.at[i];
        if ((g->row->flags & MR_OPTION_CONFIG) && g->source == from) {
            int rc = mr_option_read_file(o, g->text, out, err);
            if (rc < 0) {
                return rc;
            }
        }
    }
    return MR_OK;
}

/* ---- applying ---- */

/* How an error names the option: as the user wrote it. */
static void label_of(const struct option_given *g, char label[256])
{
    if (g->source == MR_OPTION_FROM_COMMAND_LINE) {
        snprintf(label, 256, "--%s", g->row->name);
    } else if (g->source == MR_OPTION_FROM_FILE) {
        snprintf(label, 256, "%s: %s", g->where, g->row->name);
    } else {
        snprintf(label, 256, "%s", g->where ? g->where : g->row->name);
    }
}

static int refuse(const struct mr_option *row, const char *label, const char *text,
                  struct mr_err *err)
{
    bool is_on = true;

    if (row->fallback && strcmp(text, row->fallback) == 0) {
        return MR_OK;
    }
    if (row->kind == MR_OPTION_BOOL && mr_option_bool(mr_str_c(text), &is_on) && !is_on) {
        return MR_OK;
    }
    return MR_FAIL(err, MR_E_UNSUPPORTED, "%s: %s not available in this version", label, row->help);
}

static int apply(struct mr_options *o, const struct option_given *g, struct mr_err *err)
{
    struct mr_option_state *state = &o->states[g->row - o->table];
    char label[256];

    label_of(g, label);
    if (g->row->flags & MR_OPTION_REFUSED) {
        return refuse(g->row, label, g->text, err);
    }
    if (g->source == MR_OPTION_FROM_FILE && state->file == g->file &&
        g->row->kind != MR_OPTION_LIST) {
        return MR_FAIL(err, MR_E_INVALID, "%s is given twice, first at %s", label, state->where);
    }
    int rc = mr_option_store(g->row, o->target, label, g->text, err);
    if (rc < 0) {
        return rc;
    }
    if ((g->row->flags & MR_OPTION_IGNORED) && state->texts.len == 0) {
        MR_VEC_PUSH(&o->warnings, mr_option_keepf(o, "%s has no effect: %s", label, g->row->help));
    }
    if ((g->row->flags & MR_OPTION_OLD) && state->source == MR_OPTION_FROM_DEFAULT) {
        MR_VEC_PUSH(&o->warnings, mr_option_keepf(o, "%s is deprecated: %s", label, g->row->help));
    }
    if (g->source != state->source || g->row->kind != MR_OPTION_LIST) {
        state->texts.len = 0;
    }
    MR_VEC_PUSH(&state->texts, g->text);
    state->source = g->source;
    state->where = g->where;
    state->file = g->file;
    return MR_OK;
}

static int apply_defaults(struct mr_options *o, struct mr_err *err)
{
    for (size_t i = 0; i < o->count; i++) {
        const struct mr_option *row = &o->table[i];
        if (row->kind == MR_OPTION_GROUP || !row->fallback || (row->flags & MR_OPTION_REFUSED)) {
            continue;
        }
        int rc = mr_option_store(row, o->target, row->name, row->fallback, err);
        if (rc < 0) {
            return rc;
        }
        MR_VEC_PUSH(&o->states[i].texts, row->fallback);
    }
    return MR_OK;
}

/* Lists are stored at the end, when their arrays no longer move. */
static void hand_over_lists(struct mr_options *o)
{
    for (size_t i = 0; i < o->count; i++) {
        if (o->table[i].kind == MR_OPTION_LIST && o->table[i].size) {
            struct mr_option_list list = {o->states[i].texts.at, o->states[i].texts.len};
            memcpy((char *)o->target + o->table[i].offset, &list, sizeof list);
        }
    }
}

static int apply_all(struct mr_options *o, const struct option_givens *found, struct mr_err *err)
{
    int rc = apply_defaults(o, err);

    for (int source = MR_OPTION_FROM_FILE; source <= MR_OPTION_FROM_COMMAND_LINE; source++) {
        for (size_t i = 0; i < found->list.len && rc == MR_OK; i++) {
            if ((int)found->list.at[i].source == source) {
                rc = apply(o, &found->list.at[i], err);
            }
        }
    }
    if (rc == MR_OK) {
        hand_over_lists(o);
    }
    return rc;
}

int mr_options_parse(struct mr_options *o, int argc, char *const *argv, char *const *env,
                     struct mr_err *err)
{
    struct option_givens found = {0};
    struct option_givens files = {0};
    int rc = MR_OK;

    MR_TRY(scan_args(o, argc, argv, &found, err));
    if (o->wants_help) {
        goto out;
    }
    scan_environment(o, env, &found);
    scan_foreign(o, &found);
    MR_TRY(read_files(o, &found, &files, err));
    for (size_t i = 0; i < files.list.len; i++) {
        MR_VEC_PUSH(&found.list, files.list.at[i]);
    }
    rc = apply_all(o, &found, err);
out:
    MR_VEC_FINI(&found.list);
    MR_VEC_FINI(&files.list);
    return rc;
}

enum mr_option_source mr_options_source(const struct mr_options *o, const char *name)
{
    const struct mr_option *row = mr_option_find(o, mr_str_c(name));

    MR_ASSERT(row);
    return o->states[row - o->table].source;
}
