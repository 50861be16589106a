/* A schema into nodes. Keywords that are not in the table end it. */
#include <math.h>

#include "codec/json.h"
#include "json_schema_priv.h"

#define SCHEMA_BYTES_MOST ((size_t)16 << 20)

const struct json_schema_kind json_schema_kinds[7] = {
    {"null", KIND_NULL, MR_COLUMN_NONE},       {"boolean", KIND_BOOL, MR_COLUMN_BOOL},
    {"integer", KIND_INTEGER, MR_COLUMN_I64},  {"number", KIND_NUMBER, MR_COLUMN_F64},
    {"string", KIND_STRING, MR_COLUMN_STRING}, {"array", KIND_ARRAY, MR_COLUMN_NONE},
    {"object", KIND_OBJECT, MR_COLUMN_NONE},
};

/* ---- reading a schema ---- */

struct reading {
    struct json_schema *schema;
    struct mr_json j;
    int depth;
    size_t places;
    bool is_reported; /* the keyword that an error is about */
};

static struct node *node_read(struct reading *r);

static void *room(struct reading *r, size_t bytes)
{
    void *p = r->j.status < 0 ? NULL : mr_arena_try_array(&r->schema->arena, 1, bytes, 16);

    if (!p && r->j.status == MR_OK) {
        mr_json_fail(&r->j, MR_E_EXHAUSTED, "the schema is too large");
    }
    return p;
}

static void type_add(struct reading *r, struct node *n)
{
    mr_str name = {0};

    if (mr_json_string(&r->j, &name) < 0) {
        return;
    }
    for (size_t i = 0; i < sizeof json_schema_kinds / sizeof *json_schema_kinds; i++) {
        if (mr_str_eq_c(name, json_schema_kinds[i].name)) {
            n->kinds |= json_schema_kinds[i].kind;
            return;
        }
    }
    mr_json_fail(&r->j, MR_E_INVALID, "there is no type '%.*s'", (int)MR_MIN(name.len, (size_t)40),
                 name.ptr);
}

static void read_type(struct reading *r, struct node *n)
{
    bool is_first = true;

    if (mr_json_peek(&r->j) != MR_JSON_ARRAY) {
        type_add(r, n);
        return;
    }
    mr_json_enter_array(&r->j);
    while (mr_json_next_item(&r->j, &is_first)) {
        type_add(r, n);
    }
}

static void scalar_add(struct reading *r, struct node *n)
{
    const enum mr_json_type type = mr_json_peek(&r->j);
    struct scalar *s = room(r, sizeof *s);
    mr_str text;

    if (type == MR_JSON_OBJECT || type == MR_JSON_ARRAY) {
        mr_json_fail(&r->j, MR_E_UNSUPPORTED, "enum and const are for scalars here");
    } else if (s && mr_json_skip(&r->j, &text) == MR_OK) {
        *s = (struct scalar){n->allowed, text};
        n->allowed = s;
    }
}

static void read_enum(struct reading *r, struct node *n)
{
    bool is_first = true;

    mr_json_enter_array(&r->j);
    while (mr_json_next_item(&r->j, &is_first)) {
        scalar_add(r, n);
    }
    if (!n->allowed && r->j.status == MR_OK) {
        mr_json_fail(&r->j, MR_E_INVALID, "an enum without values");
    }
}

struct member *json_schema_member(struct member *list, mr_str name)
{
    while (list && !mr_str_eq(list->name, name)) {
        list = list->next;
    }
    return list;
}

/* The one of this name, in the order in which they came first. */
static struct member *member_at(struct reading *r, struct node *n, mr_str name)
{
    struct member **at = &n->properties;
    struct member *found = json_schema_member(n->properties, name);

    if (found) {
        return found;
    }
    while (*at) {
        at = &(*at)->next;
    }
    *at = room(r, sizeof **at);
    if (*at) {
        **at = (struct member){.name = mr_arena_str(&r->schema->arena, name),
                               .number = n->property_count++};
    }
    return *at;
}

static void read_properties(struct reading *r, struct node *n)
{
    bool is_first = true;
    mr_str name;

    mr_json_enter_object(&r->j);
    while (mr_json_next_key(&r->j, &is_first, &name)) {
        struct member *m = member_at(r, n, name);
        struct node *node = node_read(r);
        if (m) {
            m->node = node;
            m->place = r->places++;
        }
    }
}

static void read_required(struct reading *r, struct node *n)
{
    bool is_first = true;

    mr_json_enter_array(&r->j);
    while (mr_json_next_item(&r->j, &is_first)) {
        mr_str name = {0};
        struct member *m = mr_json_string(&r->j, &name) < 0 ? NULL : member_at(r, n, name);
        if (m) {
            m->is_required = true;
        }
    }
}

static void read_others(struct reading *r, struct node *n)
{
    bool may_be = true;

    if (mr_json_peek(&r->j) == MR_JSON_BOOL) {
        mr_json_bool(&r->j, &may_be);
        n->is_closed = !may_be;
    } else {
        n->others = node_read(r);
    }
}

static void read_items(struct reading *r, struct node *n)
{
    n->items = node_read(r);
}

static void read_least_items(struct reading *r, struct node *n)
{
    mr_json_u64(&r->j, &n->least_items);
}

static void read_most_items(struct reading *r, struct node *n)
{
    mr_json_u64(&r->j, &n->most_items);
}

static void read_least_length(struct reading *r, struct node *n)
{
    mr_json_u64(&r->j, &n->least_length);
}

static void read_most_length(struct reading *r, struct node *n)
{
    mr_json_u64(&r->j, &n->most_length);
}

static void bound_read(struct reading *r, double *io, bool *io_is_strict, bool is_strict, int sign)
{
    double v = 0;

    if (mr_json_double(&r->j, &v) == MR_OK && (v - *io) * sign >= 0) {
        *io_is_strict = is_strict || (v == *io && *io_is_strict);
        *io = v;
    }
}

static void read_minimum(struct reading *r, struct node *n)
{
    bound_read(r, &n->least, &n->is_above, false, 1);
}

static void read_above(struct reading *r, struct node *n)
{
    bound_read(r, &n->least, &n->is_above, true, 1);
}

static void read_maximum(struct reading *r, struct node *n)
{
    bound_read(r, &n->most, &n->is_below, false, -1);
}

static void read_below(struct reading *r, struct node *n)
{
    bound_read(r, &n->most, &n->is_below, true, -1);
}

/* What others' expressions have, and would mean something else here. */
static const char *pattern_stranger(mr_str s)
{
    static const char *const strangers[] = {"\\d", "\\D", "(?",  "*?",  "+?",  "??",
                                            "}?",  "\\1", "\\2", "\\3", "\\4", "\\5",
                                            "\\6", "\\7", "\\8", "\\9", "\\u", "\\p"};
    for (size_t i = 0; i < sizeof strangers / sizeof *strangers; i++) {
        if (mr_str_find_str(s, mr_str_c(strangers[i])) >= 0) {
            return strangers[i];
        }
    }
    return NULL;
}

static void read_pattern(struct reading *r, struct node *n)
{
    struct pattern *p = room(r, sizeof *p);
    mr_str text = {0};
    char why[100];

    if (!p || mr_json_string(&r->j, &text) < 0) {
        return;
    }
    p->text = mr_arena_str(&r->schema->arena, text);
    const char *stranger = pattern_stranger(text);
    if (stranger || !p->text.ptr || memchr(text.ptr ? text.ptr : "", '\0', text.len)) {
        mr_json_fail(&r->j, MR_E_UNSUPPORTED,
                     "'%s' is not known to POSIX extended regular expressions ([0-9] are "
                     "digits)",
                     stranger ? stranger : "\\0");
        return;
    }
    const int rc = regcomp(&p->regex, p->text.ptr, REG_EXTENDED | REG_NOSUB);
    if (rc != 0) {
        regerror(rc, &p->regex, why, sizeof why);
        mr_json_fail(&r->j, MR_E_INVALID, "%s", why);
        return;
    }
    p->next = r->schema->patterns;
    r->schema->patterns = n->pattern = p;
}

static void alternatives_read(struct reading *r, struct member **io)
{
    bool is_first = true;

    mr_json_enter_array(&r->j);
    while (mr_json_next_item(&r->j, &is_first)) {
        struct member *m = room(r, sizeof *m);
        struct node *node = node_read(r);
        if (m) {
            *m = (struct member){.next = *io, .node = node};
            *io = m;
        }
    }
    if (!*io && r->j.status == MR_OK) {
        mr_json_fail(&r->j, MR_E_INVALID, "a list of schemas without one");
    }
}

static void read_any(struct reading *r, struct node *n)
{
    alternatives_read(r, &n->any_of);
}

static void read_one(struct reading *r, struct node *n)
{
    alternatives_read(r, &n->one_of);
}

static void read_all(struct reading *r, struct node *n)
{
    alternatives_read(r, &n->all_of);
}

static void read_ref(struct reading *r, struct node *n)
{
    if (mr_json_string(&r->j, &n->ref) == MR_OK) {
        n->next_ref = r->schema->refs;
        r->schema->refs = n;
    }
}

/* Of the whole, wherever they stand. */
static void read_definitions(struct reading *r, struct node *n)
{
    bool is_first = true;
    mr_str name;

    (void)n;
    mr_json_enter_object(&r->j);
    while (mr_json_next_key(&r->j, &is_first, &name)) {
        struct member *m = room(r, sizeof *m);
        struct node *node = node_read(r);
        if (m && json_schema_member(r->schema->definitions, name)) {
            mr_json_fail(&r->j, MR_E_UNSUPPORTED, "definition '%.*s' is there twice",
                         (int)MR_MIN(name.len, (size_t)60), name.ptr);
        } else if (m) {
            *m = (struct member){.next = r->schema->definitions, .name = name, .node = node};
            r->schema->definitions = m;
        }
    }
}

static void read_nothing(struct reading *r, struct node *n)
{
    (void)n;
    mr_json_skip(&r->j, NULL);
}

static const struct {
    const char *name;
    void (*read)(struct reading *r, struct node *n);
} keywords[] = {
    {"type", read_type},
    {"enum", read_enum},
    {"const", scalar_add},
    {"properties", read_properties},
    {"required", read_required},
    {"additionalProperties", read_others},
    {"items", read_items},
    {"minItems", read_least_items},
    {"maxItems", read_most_items},
    {"minLength", read_least_length},
    {"maxLength", read_most_length},
    {"minimum", read_minimum},
    {"exclusiveMinimum", read_above},
    {"maximum", read_maximum},
    {"exclusiveMaximum", read_below},
    {"pattern", read_pattern},
    {"anyOf", read_any},
    {"oneOf", read_one},
    {"allOf", read_all},
    {"$ref", read_ref},
    {"$defs", read_definitions},
    {"definitions", read_definitions},
    {"title", read_nothing},
    {"description", read_nothing},
    {"default", read_nothing},
    {"examples", read_nothing},
    {"format", read_nothing},
    {"deprecated", read_nothing},
    {"readOnly", read_nothing},
    {"writeOnly", read_nothing},
    {"$schema", read_nothing},
    {"$id", read_nothing},
    {"$comment", read_nothing},
};

static void keyword_read(struct reading *r, struct node *n, mr_str name)
{
    for (size_t i = 0; i < sizeof keywords / sizeof *keywords; i++) {
        if (mr_str_eq_c(name, keywords[i].name)) {
            keywords[i].read(r, n);
            if (r->j.status < 0 && !r->is_reported) {
                r->is_reported = true;
                MR_WRAP(r->j.err, r->j.status, "%s", keywords[i].name);
            }
            return;
        }
    }
    r->is_reported = true;
    mr_json_fail(&r->j, MR_E_UNSUPPORTED, "the keyword '%.*s' is not known here",
                 (int)MR_MIN(name.len, (size_t)60), name.ptr);
}

/* NULL only after an error. */
static struct node *node_read(struct reading *r)
{
    struct node *n = room(r, sizeof *n);
    bool is_first = true;
    bool may_be = true;
    mr_str name;

    if (!n) {
        return NULL;
    }
    *n = (struct node){
        .most_items = UINT64_MAX, .most_length = UINT64_MAX, .least = -INFINITY, .most = INFINITY};
    if (mr_json_peek(&r->j) == MR_JSON_BOOL) {
        mr_json_bool(&r->j, &may_be);
        n->is_never = !may_be;
        return n;
    }
    if (++r->depth > JSON_SCHEMA_DEPTH) {
        mr_json_fail(&r->j, MR_E_UNSUPPORTED, "more than %d schemas in each other",
                     JSON_SCHEMA_DEPTH);
        return n;
    }
    mr_json_enter_object(&r->j);
    while (mr_json_next_key(&r->j, &is_first, &name)) {
        keyword_read(r, n, name);
    }
    r->depth--;
    return n;
}

static int refs_resolve(struct json_schema *s, struct mr_err *err)
{
    for (struct node *n = s->refs; n; n = n->next_ref) {
        static const char *const prefixes[] = {"#/$defs/", "#/definitions/"};
        struct member *m = NULL;
        for (size_t i = 0; i < 2 && !m; i++) {
            if (mr_str_starts(n->ref, mr_str_c(prefixes[i]))) {
                m = json_schema_member(s->definitions,
                                       mr_str_sub(n->ref, strlen(prefixes[i]), n->ref.len));
            }
        }
        n->target = m ? m->node : mr_str_eq(n->ref, MR_STR("#")) ? s->root : NULL;
        if (!n->target) {
            return MR_FAIL(err, MR_E_UNSUPPORTED, "$ref: there is no '%.*s' in $defs",
                           (int)MR_MIN(n->ref.len, (size_t)100), n->ref.ptr);
        }
    }
    return MR_OK;
}

struct node *json_schema_followed(struct node *n)
{
    for (int i = 0; i < JSON_SCHEMA_DEPTH && n->target; i++) {
        n = n->target;
    }
    return n;
}

/* The root's properties as a table; those that are only required have no schema. */
static void properties_list(struct json_schema *s)
{
    const struct node *root = json_schema_followed(s->root);

    s->listed = MR_NEW_ARRAY(struct member *, root->property_count + 1);
    for (struct member *m = root->properties; m; m = m->next) {
        if (m->node && m->name.ptr) {
            size_t at = s->listed_count++;
            for (; at > 0 && s->listed[at - 1]->place > m->place; at--) {
                s->listed[at] = s->listed[at - 1];
            }
            s->listed[at] = m;
        }
    }
}

int json_schema_new(struct json_schema **out, mr_str text, struct mr_err *err)
{
    struct json_schema *s = MR_NEW(struct json_schema);
    struct reading r = {.schema = s};
    int rc;

    mr_arena_init(&s->arena, 4096, SCHEMA_BYTES_MOST);
    s->text = mr_arena_str(&s->arena, text);
    MR_TRY(s->text.ptr ? MR_OK : MR_FAIL(err, MR_E_EXHAUSTED, "the schema is too large"));
    mr_json_init(&r.j, s->text, &s->arena, 0, err);
    s->root = node_read(&r);
    MR_TRY(mr_json_finish(&r.j));
    MR_TRY(refs_resolve(s, err));
    properties_list(s);
    *out = s;
out:
    if (rc < 0) {
        json_schema_free(&s);
    }
    return rc;
}

void json_schema_free(struct json_schema **schema)
{
    struct json_schema *s = *schema;

    if (s) {
        for (struct pattern *p = s->patterns; p; p = p->next) {
            regfree(&p->regex);
        }
        mr_free(s->listed);
        mr_arena_fini(&s->arena);
        mr_freep(schema);
    }
}
