/* libyaml's events become a tree. JSON is read by the same parser, as it is YAML but for rare cases. */
#include "doc.h"

#include <yaml.h>

#define DEPTH_MAX  64
#define VALUES_MAX 100000
#define KEYS_MAX   4096 /* each is compared with those before it */

struct reader {
    yaml_parser_t parser;
    struct mr_arena *arena;
    const char *file;
    uint32_t values;
};

/* A list or map that is being read. */
struct level {
    struct doc *value;
    struct doc **end;
    uint32_t count; /* of keys */
    mr_str key;     /* of the member that comes next; ptr NULL: the next scalar is a key */
};

static int fail(const struct reader *r, size_t line, int status, const char *why,
                struct mr_err *err)
{
    return MR_FAIL(err, status, "%s:%zu: %s", r->file, line + 1, why);
}

static int new_value(struct reader *r, const yaml_event_t *e, enum doc_kind kind, struct doc **out,
                     struct mr_err *err)
{
    struct doc *d = MR_ARENA_NEW(r->arena, struct doc);

    if (!d || ++r->values > VALUES_MAX) {
        return fail(r, e->start_mark.line, MR_E_TOO_LARGE, "more than 100000 values", err);
    }
    d->kind = kind;
    d->line = (uint32_t)e->start_mark.line + 1;
    *out = d;
    return MR_OK;
}

static bool is_null(const yaml_event_t *e, mr_str s)
{
    return e->data.scalar.style == YAML_PLAIN_SCALAR_STYLE &&
           (s.len == 0 || mr_str_eq_c(s, "~") || mr_str_eq_c(s, "null"));
}

static int read_scalar(struct reader *r, const yaml_event_t *e, struct doc **out,
                       struct mr_err *err)
{
    const mr_str s = {(const char *)e->data.scalar.value, e->data.scalar.length};
    int rc = new_value(r, e, DOC_SCALAR, out, err);

    if (rc < 0) {
        return rc;
    }
    if (memchr(s.ptr, '\0', s.len)) {
        return fail(r, e->start_mark.line, MR_E_INVALID, "a text with a NUL byte", err);
    }
    (*out)->is_null = is_null(e, s);
    (*out)->text = mr_arena_str(r->arena, (*out)->is_null ? MR_STR("") : s);
    return (*out)->text.ptr ? MR_OK : fail(r, e->start_mark.line, MR_E_TOO_LARGE, "no memory", err);
}

/* Puts a value where the innermost list or map wants it. */
static int put(struct reader *r, struct level *l, struct doc *d, struct mr_err *err)
{
    if (l->value && l->value->kind == DOC_MAP) {
        if (!l->key.ptr) {
            if (d->kind != DOC_SCALAR) {
                return fail(r, d->line - 1, MR_E_INVALID, "a key of a map is no text", err);
            }
            if (++l->count > KEYS_MAX) {
                return fail(r, d->line - 1, MR_E_TOO_LARGE, "a map with more than 4096 keys", err);
            }
            if (doc_get(l->value, d->text.ptr)) {
                return MR_FAIL(err, MR_E_INVALID, "%s:%u: the key '%.64s' is there twice", r->file,
                               d->line, d->text.ptr);
            }
            l->key = d->text;
            return MR_OK;
        }
        d->key = l->key;
        l->key.ptr = NULL;
    }
    *l->end = d;
    l->end = &d->next;
    return MR_OK;
}

static int next_event(struct reader *r, yaml_event_t *e, struct mr_err *err)
{
    if (yaml_parser_parse(&r->parser, e)) {
        return MR_OK;
    }
    const char *why = r->parser.problem ? r->parser.problem : "the text cannot be read";
    return fail(r, r->parser.problem_mark.line, MR_E_INVALID, why, err);
}

/* One event. Returns 1 at the end of the text. */
static int on_event(struct reader *r, const yaml_event_t *e, struct level *levels, int *io_depth,
                    struct mr_err *err)
{
    struct doc *d = NULL;
    int rc = MR_OK;

    switch (e->type) {
    case YAML_STREAM_END_EVENT: return 1;
    case YAML_ALIAS_EVENT:
        return fail(r, e->start_mark.line, MR_E_UNSUPPORTED, "aliases ('*name') are not read", err);
    case YAML_SCALAR_EVENT:
        rc = read_scalar(r, e, &d, err);
        return rc < 0 ? rc : put(r, &levels[*io_depth], d, err);
    case YAML_SEQUENCE_START_EVENT:
    case YAML_MAPPING_START_EVENT:
        if (*io_depth == DEPTH_MAX) {
            return fail(r, e->start_mark.line, MR_E_TOO_LARGE, "nested deeper than 64", err);
        }
        rc = new_value(r, e, e->type == YAML_SEQUENCE_START_EVENT ? DOC_LIST : DOC_MAP, &d, err);
        if (rc < 0 || (rc = put(r, &levels[*io_depth], d, err)) < 0) {
            return rc;
        }
        levels[++*io_depth] = (struct level){.value = d, .end = &d->first};
        return MR_OK;
    case YAML_SEQUENCE_END_EVENT:
    case YAML_MAPPING_END_EVENT: --*io_depth; return MR_OK;
    default: return MR_OK;
    }
}

int doc_parse(mr_str text, const char *file, struct mr_arena *arena, struct doc **out,
              struct mr_err *err)
{
    struct reader r = {.arena = arena, .file = file};
    struct doc *docs = NULL;
    struct level levels[DEPTH_MAX + 1] = {{.end = &docs}};
    yaml_event_t event;
    int depth = 0, rc = MR_OK;

    if (!yaml_parser_initialize(&r.parser)) {
        return MR_FAIL(err, MR_E_EXHAUSTED, "%s: no memory", file);
    }
    yaml_parser_set_input_string(&r.parser, (const unsigned char *)text.ptr, text.len);
    while (rc == MR_OK && (rc = next_event(&r, &event, err)) == MR_OK) {
        rc = on_event(&r, &event, levels, &depth, err);
        yaml_event_delete(&event);
    }
    yaml_parser_delete(&r.parser);
    if (rc < 0) {
        return rc;
    }
    if (!docs) {
        return MR_FAIL(err, MR_E_INVALID, "%s:1: the file is empty", file);
    }
    *out = docs;
    return MR_OK;
}

/* ---- what a document has ---- */

const struct doc *doc_get(const struct doc *map, const char *key)
{
    if (map && map->kind == DOC_MAP) {
        for (const struct doc *d = map->first; d; d = d->next) {
            if (mr_str_eq_c(d->key, key)) {
                return d->is_null ? NULL : d;
            }
        }
    }
    return NULL;
}

int doc_only(const struct doc *map, const struct doc_at *at, const char *const *keys,
             struct mr_err *err)
{
    if (map->kind != DOC_MAP) {
        return DOC_FAIL(err, MR_E_INVALID, at, map, "a map is needed");
    }
    for (const struct doc *d = map->first; d; d = d->next) {
        size_t i = 0;
        while (keys[i] && !mr_str_eq_c(d->key, keys[i])) {
            i++;
        }
        if (!keys[i] && !d->is_null) {
            return DOC_FAIL(err, MR_E_UNSUPPORTED, at, d, "'%.64s' has no counterpart here",
                            d->key.ptr);
        }
    }
    return MR_OK;
}

static int member(const struct doc *map, const char *key, enum doc_kind kind, bool is_needed,
                  const struct doc_at *at, const struct doc **out, struct mr_err *err)
{
    static const char *const names[] = {"a text", "a list", "a map"};
    const struct doc *d = doc_get(map, key);

    if (d ? d->kind != kind : is_needed) {
        return DOC_FAIL(err, MR_E_INVALID, at, d ? d : map, "'%s' has to be %s", key, names[kind]);
    }
    *out = d;
    return MR_OK;
}

int doc_text(const struct doc *map, const char *key, bool is_needed, const struct doc_at *at,
             mr_str *out, struct mr_err *err)
{
    const struct doc *d;
    int rc = member(map, key, DOC_SCALAR, is_needed, at, &d, err);

    if (rc == MR_OK && is_needed && d->text.len == 0) {
        rc = DOC_FAIL(err, MR_E_INVALID, at, d, "'%s' is empty", key);
    }
    if (rc == MR_OK) {
        *out = d ? d->text : MR_STR("");
    }
    return rc;
}

int doc_list(const struct doc *map, const char *key, bool is_needed, const struct doc_at *at,
             const struct doc **out, struct mr_err *err)
{
    return member(map, key, DOC_LIST, is_needed, at, out, err);
}

int doc_map(const struct doc *map, const char *key, bool is_needed, const struct doc_at *at,
            const struct doc **out, struct mr_err *err)
{
    return member(map, key, DOC_MAP, is_needed, at, out, err);
}

int doc_int(const struct doc *map, const char *key, int64_t absent, int64_t min, int64_t max,
            const struct doc_at *at, int64_t *out, struct mr_err *err)
{
    const struct doc *d;
    int64_t value = absent;
    int rc = member(map, key, DOC_SCALAR, false, at, &d, err);

    if (rc == MR_OK && d && (!mr_str_to_i64(d->text, &value) || value < min || value > max)) {
        rc = DOC_FAIL(err, MR_E_INVALID, at, d, "'%s' is '%.40s', allowed are %lld to %lld", key,
                      d->text.ptr, (long long)min, (long long)max);
    }
    if (rc == MR_OK) {
        *out = value;
    }
    return rc;
}
