/* An answer beside its schema. A value is looked at as text, as alternatives (anyOf) look at it several times. How deep
 * both go is bounded by the JSON reader; what a $ref leads to counts as well. */
#include "json_schema.h"

#include <math.h>
#include <stdio.h>

#include "codec/json.h"
#include "json_schema_priv.h"

#define CHECKS_MOST 1000000 /* alternatives within alternatives multiply */

/* ---- columns ---- */

size_t json_schema_property_count(const struct json_schema *s)
{
    return s->listed_count;
}

static enum mr_column_type column_type(const struct node *n)
{
    const unsigned without_null = n->kinds & ~(unsigned)KIND_NULL;

    if (n->any_of || n->one_of || n->all_of || n->is_never) {
        return MR_COLUMN_NONE;
    }
    for (size_t i = 0; i < sizeof json_schema_kinds / sizeof *json_schema_kinds; i++) {
        if (without_null == (unsigned)json_schema_kinds[i].kind) {
            return json_schema_kinds[i].column;
        }
    }
    return MR_COLUMN_NONE;
}

void json_schema_property(const struct json_schema *s, size_t i, struct mr_field *out)
{
    struct member *m = s->listed[i];
    struct node *n = json_schema_followed(m->node);
    struct node *items = n->items ? json_schema_followed(n->items) : NULL;
    const bool is_list = (n->kinds & ~(unsigned)KIND_NULL) == KIND_ARRAY && items &&
                         column_type(items) != MR_COLUMN_NONE;

    *out = (struct mr_field){.name = (char *)(uintptr_t)m->name.ptr, .is_nullable = true};
    out->type = is_list ? MR_COLUMN_LIST : column_type(n);
    if (is_list) {
        m->item = (struct mr_field){
            .name = (char *)(uintptr_t) "element", .type = column_type(items), .is_nullable = true};
        out->item = &m->item;
    } else if (out->type == MR_COLUMN_NONE) {
        out->type = MR_COLUMN_STRING;
        out->is_json = true;
    }
}

/* ---- checking ---- */

/* Where a value is. */
struct place {
    const struct place *up;
    mr_str key; /* ptr NULL: an item */
    uint64_t index;
    int depth;
};

struct checking {
    struct mr_arena *scratch;
    struct mr_err *err;
    uint32_t *left; /* values that may still be looked at */
};

static int value_check(struct checking *c, const struct node *n, mr_str text,
                       const struct place *at);

static size_t place_text(const struct place *p, char *to, size_t size)
{
    size_t n = p->up ? place_text(p->up, to, size) : 0;
    int more = 0;

    if (!p->up) {
        more = snprintf(to, size, "$");
    } else if (n < size) {
        more = p->key.ptr ? snprintf(to + n, size - n, ".%.*s", (int)MR_MIN(p->key.len, (size_t)60),
                                     p->key.ptr)
                          : snprintf(to + n, size - n, "[%llu]", (unsigned long long)p->index);
    }
    return n + (size_t)more;
}

#define UNFIT(c, at, ...) unfit((c), (at), MR_HERE, __VA_ARGS__)

static int unfit(struct checking *c, const struct place *at, const char *where, const char *fmt,
                 ...) __attribute__((format(printf, 4, 5)));

static int unfit(struct checking *c, const struct place *at, const char *where, const char *fmt,
                 ...)
{
    char place[160] = "";
    char text[240];
    va_list args;

    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    place_text(at, place, sizeof place);
    return mr_err_set(c->err, MR_E_INVALID, where, "%s %s", place, text);
}

static mr_str string_of(struct checking *c, mr_str text)
{
    struct mr_json j;
    mr_str s = {0};

    mr_json_init(&j, text, c->scratch, 0, NULL);
    mr_json_string(&j, &s);
    return s;
}

static double number_of(mr_str text)
{
    double v = NAN;
    return mr_text_double(text, &v) ? v : NAN;
}

static enum mr_json_type type_of(mr_str text)
{
    struct mr_json j;

    mr_json_init(&j, text, NULL, 0, NULL);
    return mr_json_peek(&j);
}

static unsigned kinds_of(mr_str text)
{
    switch (type_of(text)) {
    case MR_JSON_NULL: return KIND_NULL;
    case MR_JSON_BOOL: return KIND_BOOL;
    case MR_JSON_STRING: return KIND_STRING;
    case MR_JSON_ARRAY: return KIND_ARRAY;
    case MR_JSON_OBJECT: return KIND_OBJECT;
    case MR_JSON_NUMBER: {
        const double v = number_of(text);
        return isfinite(v) ? (v == floor(v) ? KIND_INTEGER | KIND_NUMBER : KIND_NUMBER) : 0;
    }
    default: return 0;
    }
}

static bool scalars_equal(struct checking *c, mr_str a, mr_str b)
{
    const enum mr_json_type type = type_of(a);

    if (type != type_of(b)) {
        return false;
    }
    switch (type) {
    case MR_JSON_STRING: return mr_str_eq(string_of(c, a), string_of(c, b));
    case MR_JSON_NUMBER: return number_of(a) == number_of(b);
    default: return mr_str_eq(a, b);
    }
}

static int allowed_check(struct checking *c, const struct node *n, mr_str text,
                         const struct place *at)
{
    for (const struct scalar *s = n->allowed; s; s = s->next) {
        if (scalars_equal(c, s->text, text)) {
            return MR_OK;
        }
    }
    return n->allowed ? UNFIT(c, at, "is %.*s, which is none of the allowed values",
                              (int)MR_MIN(text.len, (size_t)60), text.ptr)
                      : MR_OK;
}

static int kind_check(struct checking *c, const struct node *n, mr_str text, const struct place *at)
{
    char wanted[100] = "";
    size_t len = 0;

    if (n->kinds == 0 || (n->kinds & kinds_of(text))) {
        return MR_OK;
    }
    for (size_t i = 0;
         i < sizeof json_schema_kinds / sizeof *json_schema_kinds && len < sizeof wanted; i++) {
        if (n->kinds & json_schema_kinds[i].kind) {
            len += (size_t)snprintf(wanted + len, sizeof wanted - len, "%s%s", len ? " or " : "",
                                    json_schema_kinds[i].name);
        }
    }
    return UNFIT(c, at, "is %.*s, which is not of type %s", (int)MR_MIN(text.len, (size_t)40),
                 text.ptr, wanted);
}

static int number_check(struct checking *c, const struct node *n, mr_str text,
                        const struct place *at)
{
    const double v = number_of(text);
    const bool is_column = (n->kinds & (KIND_INTEGER | KIND_NUMBER)) == KIND_INTEGER;
    int64_t whole;

    if (!isfinite(v) ||
        (is_column && !mr_str_to_i64(text, &whole) && (v < -0x1p63 || v >= 0x1p63))) {
        return UNFIT(c, at, "does not fit 64 bits");
    }
    if (v < n->least || (n->is_above && v <= n->least)) {
        return UNFIT(c, at, "is %g, which must be %s %g", v, n->is_above ? "more than" : "at least",
                     n->least);
    }
    if (v > n->most || (n->is_below && v >= n->most)) {
        return UNFIT(c, at, "is %g, which must be %s %g", v, n->is_below ? "less than" : "at most",
                     n->most);
    }
    return MR_OK;
}

static int string_check(struct checking *c, const struct node *n, mr_str text,
                        const struct place *at)
{
    const mr_str s = string_of(c, text);
    uint64_t length = 0;

    for (size_t i = 0; i < s.len; i++) {
        length += ((uint8_t)s.ptr[i] & 0xc0) != 0x80;
    }
    if (length < n->least_length || length > n->most_length) {
        return UNFIT(
            c, at, "has %llu characters, and must have %s %llu", (unsigned long long)length,
            length < n->least_length ? "at least" : "at most",
            (unsigned long long)(length < n->least_length ? n->least_length : n->most_length));
    }
    if (n->pattern) {
        const mr_str copy = mr_arena_str(c->scratch, s);
        if (!copy.ptr) {
            return MR_FAIL(c->err, MR_E_EXHAUSTED, "no memory");
        }
        if (memchr(copy.ptr, '\0', copy.len) ||
            regexec(&n->pattern->regex, copy.ptr, 0, NULL, 0) != 0) {
            return UNFIT(c, at, "does not match the pattern '%.*s'",
                         (int)MR_MIN(n->pattern->text.len, (size_t)100), n->pattern->text.ptr);
        }
    }
    return MR_OK;
}

static int array_check(struct checking *c, const struct node *n, mr_str text,
                       const struct place *at)
{
    bool is_first = true;
    uint64_t count = 0;
    struct mr_json j;

    mr_json_init(&j, text, c->scratch, 0, c->err);
    mr_json_enter_array(&j);
    while (mr_json_next_item(&j, &is_first)) {
        const struct place below = {.up = at, .index = count++, .depth = at->depth + 1};
        mr_str item;
        if (mr_json_skip(&j, &item) < 0) {
            break;
        }
        int rc = n->items ? value_check(c, n->items, item, &below) : MR_OK;
        if (rc < 0) {
            return rc;
        }
    }
    if (j.status == MR_OK && (count < n->least_items || count > n->most_items)) {
        return UNFIT(c, at, "has %llu items, and must have %s %llu", (unsigned long long)count,
                     count < n->least_items ? "at least" : "at most",
                     (unsigned long long)(count < n->least_items ? n->least_items : n->most_items));
    }
    return j.status;
}

static int member_check(struct checking *c, const struct node *n, mr_str key, mr_str value,
                        bool *seen, const struct place *at)
{
    const struct place below = {.up = at, .key = key, .depth = at->depth + 1};
    const struct member *m = json_schema_member(n->properties, key);

    if (m && seen[m->number]) {
        return UNFIT(c, &below, "is there twice");
    }
    if (m) {
        seen[m->number] = true;
    }
    if (m && m->node) {
        return value_check(c, m->node, value, &below);
    }
    if (n->is_closed) {
        return UNFIT(c, &below, "is no property of the schema");
    }
    return n->others ? value_check(c, n->others, value, &below) : MR_OK;
}

static int object_check(struct checking *c, const struct node *n, mr_str text,
                        const struct place *at)
{
    bool *seen = MR_ARENA_ARRAY(c->scratch, bool, n->property_count + 1);
    bool is_first = true;
    struct mr_json j;
    mr_str key;

    if (!seen) {
        return MR_FAIL(c->err, MR_E_EXHAUSTED, "no memory");
    }
    mr_json_init(&j, text, c->scratch, 0, c->err);
    mr_json_enter_object(&j);
    while (mr_json_next_key(&j, &is_first, &key)) {
        mr_str value;
        if (mr_json_skip(&j, &value) < 0) {
            break;
        }
        int rc = member_check(c, n, key, value, seen, at);
        if (rc < 0) {
            return rc;
        }
    }
    for (const struct member *m = n->properties; m && j.status == MR_OK; m = m->next) {
        if (m->is_required && !seen[m->number]) {
            return UNFIT(c, at, "lacks the property '%.*s'", (int)MR_MIN(m->name.len, (size_t)60),
                         m->name.ptr);
        }
    }
    return j.status;
}

static int alternatives_check(struct checking *c, const struct node *n, mr_str text,
                              const struct place *at)
{
    struct checking quiet = {c->scratch, NULL, c->left};
    int rc = MR_OK;
    int fits = 0;

    for (const struct member *m = n->all_of; m && rc == MR_OK; m = m->next) {
        rc = value_check(c, m->node, text, at);
    }
    if (rc == MR_OK && n->any_of) {
        for (const struct member *m = n->any_of; m && fits == 0; m = m->next) {
            fits += value_check(&quiet, m->node, text, at) == MR_OK;
        }
        rc = fits > 0 ? MR_OK : UNFIT(c, at, "fits none of the schemas of anyOf");
    }
    if (rc == MR_OK && n->one_of) {
        fits = 0;
        for (const struct member *m = n->one_of; m; m = m->next) {
            fits += value_check(&quiet, m->node, text, at) == MR_OK;
        }
        rc = fits == 1 ? MR_OK : UNFIT(c, at, "fits %d of the schemas of oneOf", fits);
    }
    return rc;
}

static int value_check(struct checking *c, const struct node *n, mr_str text,
                       const struct place *at)
{
    const struct place here = {at->up, at->key, at->index, at->depth + 1};
    int rc = MR_OK;

    text = mr_str_trim(text);
    if (n->is_never || here.depth > 4 * JSON_SCHEMA_DEPTH || *c->left == 0) {
        return UNFIT(c, at, n->is_never ? "must not be there" : "is too deep, or takes too long");
    }
    --*c->left;
    MR_TRY(kind_check(c, n, text, at));
    MR_TRY(allowed_check(c, n, text, at));
    switch (type_of(text)) {
    case MR_JSON_NUMBER: rc = number_check(c, n, text, at); break;
    case MR_JSON_STRING: rc = string_check(c, n, text, at); break;
    case MR_JSON_ARRAY: rc = array_check(c, n, text, &here); break;
    case MR_JSON_OBJECT: rc = object_check(c, n, text, &here); break;
    default: break;
    }
    MR_TRY(rc);
    MR_TRY(alternatives_check(c, n, text, &here));
    rc = n->target ? value_check(c, n->target, text, &here) : MR_OK;
out:
    return rc;
}

int json_schema_check(const struct json_schema *s, mr_str text, struct mr_arena *scratch,
                      struct mr_err *err)
{
    uint32_t left = CHECKS_MOST;
    struct checking c = {scratch, err, &left};
    const struct place top = {0};
    struct mr_json j;

    mr_json_init(&j, text, scratch, JSON_SCHEMA_DEPTH, err);
    mr_json_skip(&j, NULL);
    int rc = mr_json_finish(&j);
    if (rc < 0) {
        return MR_WRAP(err, rc, "it is no JSON");
    }
    return value_check(&c, s->root, mr_str_trim(text), &top);
}
