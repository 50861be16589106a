#include "condition.h"

#include <ctype.h>

#include "codec/json.h"

struct scan {
    mr_str rest;
    bool (*is_tensor)(void *ctx, mr_str name);
    void *ctx;
    mr_str predictions;
    mr_str parameter; /* to which the path leads; len 0: to a tensor */
    struct mr_arena *arena;
};

static bool take(mr_str *s, const char *word)
{
    const mr_str w = mr_str_c(word);

    if (!mr_str_starts(*s, w)) {
        return false;
    }
    *s = mr_str_sub(*s, w.len, s->len);
    return true;
}

static mr_str take_name(mr_str *s)
{
    size_t n = 0;

    while (n < s->len &&
           (isalnum((unsigned char)s->ptr[n]) || s->ptr[n] == '_' || s->ptr[n] == '-')) {
        n++;
    }
    const mr_str name = mr_str_n(s->ptr, n);
    *s = mr_str_sub(*s, n, s->len);
    return name;
}

/* #(name=="X") after inputs. or outputs. */
static bool take_named(mr_str *s, mr_str *out)
{
    if (!take(s, "#(name==\"")) {
        return false;
    }
    *out = take_name(s);
    return out->len > 0 && take(s, "\")");
}

/* A name as expressions write it. */
static mr_str quoted(struct scan *c, mr_str name)
{
    for (size_t i = 0; i < name.len; i++) {
        if (name.ptr[i] == '-' || (i == 0 && isdigit((unsigned char)name.ptr[0]))) {
            return mr_arena_printf(c->arena, "`%.*s`", MR_STR_ARG(name));
        }
    }
    return name;
}

static mr_str parameter_of(struct scan *c, mr_str name)
{
    c->parameter = name;
    return mr_arena_printf(c->arena, "parameter(\"%.*s\")", MR_STR_ARG(name));
}

/* The value that a path leads to. */
static mr_str value_of(struct scan *c)
{
    mr_str name;

    if (take(&c->rest, "parameters.")) {
        name = take_name(&c->rest);
        return name.len > 0 ? parameter_of(c, name) : (mr_str){NULL, 0};
    }
    if ((take(&c->rest, "inputs.") || take(&c->rest, "outputs."))) {
        return take_named(&c->rest, &name) ? quoted(c, name) : (mr_str){NULL, 0};
    }
    if (c->predictions.len > 0 && take(&c->rest, "predictions.")) {
        name = take_name(&c->rest);
        uint64_t index;
        return mr_str_to_u64(name, &index)
                   ? mr_arena_printf(c->arena, "%.*s[%llu]", MR_STR_ARG(quoted(c, c->predictions)),
                                     (unsigned long long)index)
                   : (mr_str){NULL, 0};
    }
    name = take_name(&c->rest);
    if (name.len == 0 || c->is_tensor(c->ctx, name)) {
        return name.len > 0 ? quoted(c, name) : (mr_str){NULL, 0};
    }
    return parameter_of(c, name);
}

static const char *take_operator(mr_str *s)
{
    static const char *const operators[] = {"==", "!=", "<=", ">=", "<", ">"};

    for (size_t i = 0; i < sizeof operators / sizeof *operators; i++) {
        if (take(s, operators[i])) {
            return operators[i];
        }
    }
    return NULL;
}

/* A number, or a text in quotes without escapes. */
static bool is_literal(mr_str s)
{
    double ignored;

    if (s.len >= 2 && s.ptr[0] == '"' && s.ptr[s.len - 1] == '"') {
        const mr_str inner = mr_str_sub(s, 1, s.len - 1);
        return mr_str_find(inner, '"') < 0 && mr_str_find(inner, '\\') < 0;
    }
    return mr_text_double(s, &ignored);
}

/* A parameter is a string, unless a default says otherwise. */
static mr_str number_of(struct scan *c, mr_str parameter)
{
    return mr_arena_printf(c->arena, "present(%.*s) and parameter(\"%.*s\", 0.0)",
                           MR_STR_ARG(parameter), MR_STR_ARG(c->parameter));
}

static bool compared(struct scan *c, mr_str *out)
{
    mr_str value = value_of(c);
    c->rest = mr_str_trim(c->rest);
    const char *operator= take_operator(&c->rest);
    const mr_str right = mr_str_trim(c->rest);

    if (!value.ptr || !operator|| !mr_str_ends(right, MR_STR(")"))) {
        return false;
    }
    const mr_str literal = mr_str_sub(right, 0, right.len - 1);
    if (!is_literal(literal)) {
        return false;
    }
    if (c->parameter.len > 0 && literal.ptr[0] != '"') {
        value = number_of(c, value);
    }
    *out =
        mr_arena_printf(c->arena, "%.*s %s %.*s", MR_STR_ARG(value), operator, MR_STR_ARG(literal));
    return value.ptr && out->ptr;
}

static bool exists(struct scan *c, mr_str *out)
{
    const mr_str value = value_of(c);

    if (!value.ptr || c->rest.len > 0) {
        return false;
    }
    *out = mr_arena_printf(c->arena, "present(%.*s)", MR_STR_ARG(value));
    return out->ptr != NULL;
}

int condition_translate(mr_str path, bool (*is_tensor)(void *ctx, mr_str name), void *ctx,
                        mr_str predictions, struct mr_arena *arena, mr_str *out, struct mr_err *err)
{
    struct scan c = {.rest = mr_str_trim(path),
                     .is_tensor = is_tensor,
                     .ctx = ctx,
                     .predictions = predictions,
                     .arena = arena};
    mr_str text;

    if (take(&c.rest, "[@this].#(") ? compared(&c, &text) : exists(&c, &text)) {
        *out = text;
        return MR_OK;
    }
    return MR_FAIL(err, MR_E_UNSUPPORTED,
                   "the condition '%.128s' looks into JSON, where a workflow knows parameters and "
                   "tensors only",
                   path.ptr);
}
