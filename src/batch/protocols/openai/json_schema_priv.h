/* A schema as nodes: between its reader and its checker. Private. */
#ifndef MR_BATCH_JSON_SCHEMA_PRIV_H
#define MR_BATCH_JSON_SCHEMA_PRIV_H

#include <regex.h>

#include "json_schema.h"

#define JSON_SCHEMA_DEPTH 64 /* of schemas, and of answers */

enum kind {
    KIND_NULL = 1,
    KIND_BOOL = 2,
    KIND_INTEGER = 4,
    KIND_NUMBER = 8,
    KIND_STRING = 16,
    KIND_ARRAY = 32,
    KIND_OBJECT = 64,
};

/* One of several nodes: a property, a definition, an alternative. */
struct member {
    struct member *next;
    mr_str name;
    struct node *node; /* NULL: it is only required */
    bool is_required;
    size_t number;        /* of those of its node, as they came first */
    size_t place;         /* among all properties of the schema */
    struct mr_field item; /* of a list, for json_schema_property */
};

struct scalar {
    struct scalar *next;
    mr_str text;
};

struct pattern {
    struct pattern *next;
    mr_str text;
    regex_t regex;
};

struct node {
    bool is_never;          /* the schema false */
    unsigned kinds;         /* 0: any */
    struct scalar *allowed; /* NULL: any */
    struct member *properties;
    size_t property_count;
    bool is_closed;      /* no other properties, … */
    struct node *others; /* … or those fit this; NULL: any */
    struct node *items;
    uint64_t least_items, most_items;
    uint64_t least_length, most_length;
    double least, most;
    bool is_above, is_below; /* these themselves do not fit */
    struct pattern *pattern;
    struct member *any_of, *one_of, *all_of;
    mr_str ref;
    struct node *target;
    struct node *next_ref;
};

struct json_schema {
    struct mr_arena arena;
    mr_str text;
    struct node *root;
    struct member *definitions;
    struct node *refs;
    struct pattern *patterns;
    struct member **listed; /* the root's properties in their order */
    size_t listed_count;
};

struct json_schema_kind {
    const char *name;
    enum kind kind;
    enum mr_column_type column; /* MR_COLUMN_NONE: of no type of its own */
};
extern const struct json_schema_kind json_schema_kinds[7];

/** The node that references lead to. */
struct node *json_schema_followed(struct node *n);
/** NULL: there is none. */
struct member *json_schema_member(struct member *list, mr_str name);

#endif
