/* Maps DuckDB's types to column types, with the casts in the query. */
#include <string.h>

#include "base/mem.h"
#include "duckdb.h"

/* The column type of each type; with `is_cast`, through a cast to that type's sql_name. */
static const struct {
    const char *name;
    enum mr_column_type type;
    bool is_cast;
} duck_types[] = {
    [DUCK_BOOLEAN] = {"BOOLEAN", MR_COLUMN_BOOL, false},
    [DUCK_TINYINT] = {"TINYINT", MR_COLUMN_I8, false},
    [DUCK_SMALLINT] = {"SMALLINT", MR_COLUMN_I16, false},
    [DUCK_INTEGER] = {"INTEGER", MR_COLUMN_I32, false},
    [DUCK_BIGINT] = {"BIGINT", MR_COLUMN_I64, false},
    [DUCK_UTINYINT] = {"UTINYINT", MR_COLUMN_U8, false},
    [DUCK_USMALLINT] = {"USMALLINT", MR_COLUMN_U16, false},
    [DUCK_UINTEGER] = {"UINTEGER", MR_COLUMN_U32, false},
    [DUCK_UBIGINT] = {"UBIGINT", MR_COLUMN_U64, false},
    [DUCK_FLOAT] = {"FLOAT", MR_COLUMN_F32, false},
    [DUCK_DOUBLE] = {"DOUBLE", MR_COLUMN_F64, false},
    [DUCK_TIMESTAMP] = {"TIMESTAMP", MR_COLUMN_TIMESTAMP, false},
    [DUCK_DATE] = {"DATE", MR_COLUMN_DATE, false},
    [DUCK_TIME] = {"TIME", MR_COLUMN_NONE, false},
    [DUCK_INTERVAL] = {"INTERVAL", MR_COLUMN_NONE, false},
    [DUCK_HUGEINT] = {"HUGEINT", MR_COLUMN_NONE, false},
    [DUCK_VARCHAR] = {"VARCHAR", MR_COLUMN_STRING, false},
    [DUCK_BLOB] = {"BLOB", MR_COLUMN_BINARY, false},
    [DUCK_DECIMAL] = {"DECIMAL", MR_COLUMN_DECIMAL, true}, /* all widths as the largest */
    [DUCK_TIMESTAMP_S] = {"TIMESTAMP_S", MR_COLUMN_TIMESTAMP, true},
    [DUCK_TIMESTAMP_MS] = {"TIMESTAMP_MS", MR_COLUMN_TIMESTAMP, true},
    [DUCK_TIMESTAMP_NS] = {"TIMESTAMP_NS", MR_COLUMN_TIMESTAMP, true},
    [DUCK_ENUM] = {"ENUM", MR_COLUMN_STRING, true},
    [DUCK_STRUCT] = {"STRUCT", MR_COLUMN_NONE, false},
    [DUCK_MAP] = {"MAP", MR_COLUMN_NONE, false},
    [DUCK_UUID] = {"UUID", MR_COLUMN_STRING, true},
    [DUCK_UNION] = {"UNION", MR_COLUMN_NONE, false},
    [DUCK_BIT] = {"BIT", MR_COLUMN_NONE, false},
    [DUCK_TIME_TZ] = {"TIME WITH TIME ZONE", MR_COLUMN_NONE, false},
    [DUCK_TIMESTAMP_TZ] = {"TIMESTAMP WITH TIME ZONE", MR_COLUMN_TIMESTAMP, false},
    [DUCK_UHUGEINT] = {"UHUGEINT", MR_COLUMN_NONE, false},
    [DUCK_SQLNULL] = {"NULL", MR_COLUMN_STRING, true},
};

static const char *const sql_names[MR_COLUMN_TYPES] = {
    [MR_COLUMN_BOOL] = "BOOLEAN",        [MR_COLUMN_I8] = "TINYINT",
    [MR_COLUMN_I16] = "SMALLINT",        [MR_COLUMN_I32] = "INTEGER",
    [MR_COLUMN_I64] = "BIGINT",          [MR_COLUMN_U8] = "UTINYINT",
    [MR_COLUMN_U16] = "USMALLINT",       [MR_COLUMN_U32] = "UINTEGER",
    [MR_COLUMN_U64] = "UBIGINT",         [MR_COLUMN_F32] = "FLOAT",
    [MR_COLUMN_F64] = "DOUBLE",          [MR_COLUMN_DATE] = "DATE",
    [MR_COLUMN_TIMESTAMP] = "TIMESTAMP", [MR_COLUMN_STRING] = "VARCHAR",
    [MR_COLUMN_BINARY] = "BLOB",
};

const char *mr_duck_type_name(enum duck_type t)
{
    const bool is_known = (size_t)t < sizeof duck_types / sizeof *duck_types && duck_types[t].name;

    return is_known                 ? duck_types[t].name
           : t == DUCK_WIDE_DECIMAL ? "DECIMAL of more than 38 digits"
                                    : "of an unknown type";
}

const struct mr_field *mr_duck_leaf(const struct mr_field *f)
{
    while (f->item) {
        f = f->item;
    }
    return f;
}

static void leaf_init(const struct duck_api *duck, struct duck_column *c, struct mr_field *f,
                      void *type)
{
    const bool is_known = (size_t)c->leaf < sizeof duck_types / sizeof *duck_types;

    f->type = is_known ? duck_types[c->leaf].type : MR_COLUMN_NONE;
    c->has_cast = is_known && duck_types[c->leaf].is_cast;
    if (c->leaf == DUCK_DECIMAL) {
        f->precision = duck->decimal_width(type);
        f->scale = duck->decimal_scale(type);
    }
}

/* Descends through lists. */
static void found_init(const struct duck_api *duck, struct duck_column *c, struct mr_field *f,
                       void *type, int depth)
{
    f->is_nullable = true;
    c->leaf = (enum duck_type)duck->get_type_id(type);
    if ((c->leaf != DUCK_LIST && c->leaf != DUCK_ARRAY) || depth == MR_FIELD_DEPTH) {
        leaf_init(duck, c, f, type);
        return;
    }
    const bool is_array = c->leaf == DUCK_ARRAY;
    void *child = is_array ? duck->array_type_child_type(type) : duck->list_type_child_type(type);
    f->type = is_array ? MR_COLUMN_FIXED_LIST : MR_COLUMN_LIST;
    f->width = is_array ? duck->array_type_array_size(type) : 0;
    c->arrays |= is_array ? 1u << depth : 0;
    f->item = MR_NEW(struct mr_field);
    f->item->name = mr_strndup("element", strlen("element"));
    found_init(duck, c, f->item, child, depth + 1);
    duck->destroy_logical_type(&child);
}

/* ---- wanted types ---- */

static bool is_unsigned(enum mr_column_type t)
{
    return t >= MR_COLUMN_U8 && t <= MR_COLUMN_U64;
}

/* True for a cast that cannot fail. Casts to floats round. */
static bool casts_safely(enum mr_column_type from, enum duck_type leaf, enum mr_column_type to)
{
    const bool is_huge = leaf == DUCK_HUGEINT || leaf == DUCK_UHUGEINT;

    if (to == MR_COLUMN_F32 || to == MR_COLUMN_F64) {
        return is_huge || mr_column_is_integer(from) || from == MR_COLUMN_DECIMAL ||
               from == MR_COLUMN_F32 || from == MR_COLUMN_F64;
    }
    if (to == MR_COLUMN_STRING) {
        return is_huge || mr_column_is_integer(from) || from == MR_COLUMN_DATE ||
               from == MR_COLUMN_DECIMAL;
    }
    if (!mr_column_is_integer(from) || !mr_column_is_integer(to)) {
        return false;
    }
    const size_t have = mr_column_type_bytes(from);
    const size_t room = mr_column_type_bytes(to);
    return is_unsigned(from) == is_unsigned(to) ? have <= room : is_unsigned(from) && have < room;
}

/* Nested lists stay unchanged if one list is wanted, whose width is the number of all their items. */
static void follow(struct duck_column *c, struct mr_field *f, const struct mr_field *wanted)
{
    const bool is_kept = wanted->is_kept;

    if (mr_field_levels(f) > mr_field_levels(wanted)) {
        return;
    }
    for (; f->item && wanted->item; f = f->item, wanted = wanted->item) {
        if (f->type == MR_COLUMN_LIST && wanted->type == MR_COLUMN_FIXED_LIST &&
            wanted->width <= INT32_MAX) {
            f->type = MR_COLUMN_FIXED_LIST;
            f->width = wanted->width;
        }
    }
    if (f->item || wanted->item || wanted->type == f->type ||
        !casts_safely(f->type, c->leaf, wanted->type) ||
        (is_kept && f->type != MR_COLUMN_NONE && wanted->type <= MR_COLUMN_F64)) {
        return;
    }
    f->type = wanted->type;
    f->precision = f->scale = 0;
    c->has_cast |=
        c->leaf !=
        DUCK_DOUBLE; /* doubles become floats during the copy, which unlike a cast cannot fail */
}

/* Unsupported, whatever type the library reports. */
static void wide_init(struct duck_column *c, struct mr_field *f)
{
    for (; f->item; f = f->item) {
    }
    f->type = MR_COLUMN_NONE;
    c->leaf = DUCK_WIDE_DECIMAL;
}

void mr_duck_column_init(const struct duck_api *duck, struct duck_column *c,
                         const struct duck_column_of *of, void *type, const struct mr_field *wanted)
{
    *c = (struct duck_column){.field.name = mr_strndup(of->name.ptr, of->name.len),
                              .sql_name = mr_strndup(of->sql_name.ptr, of->sql_name.len)};
    found_init(duck, c, &c->field, type, 0);
    if (of->is_wide) {
        wide_init(c, &c->field);
    } else if (wanted) {
        follow(c, &c->field, wanted);
    }
}

void mr_duck_column_fini(struct duck_column *c)
{
    mr_freep(&c->sql_name);
    mr_field_fini(&c->field);
}

/* ---- SQL ---- */

void mr_duck_quote(struct mr_buf *b, char quote, const char *text)
{
    mr_buf_char(b, quote);
    for (; *text; text++) {
        if (*text == quote) {
            mr_buf_char(b, quote);
        }
        mr_buf_char(b, *text);
    }
    mr_buf_char(b, quote);
}

static void type_sql(struct mr_buf *b, const struct duck_column *c, const struct mr_field *f,
                     int depth)
{
    if (f->item) {
        type_sql(b, c, f->item, depth + 1);
        if (c->arrays >> depth & 1) {
            mr_buf_printf(b, "[%llu]", (unsigned long long)f->width);
        } else {
            MR_BUF_LIT(b, "[]");
        }
    } else if (f->type == MR_COLUMN_DECIMAL) {
        mr_buf_printf(b, "DECIMAL(38,%u)", f->scale);
    } else {
        mr_buf_c(b, sql_names[f->type]);
    }
}

void mr_duck_column_sql(struct mr_buf *b, const struct duck_column *c)
{
    if (c->has_cast) {
        MR_BUF_LIT(b, "CAST(");
    }
    mr_duck_quote(b, '"', c->sql_name);
    if (c->has_cast) {
        MR_BUF_LIT(b, " AS ");
        type_sql(b, c, &c->field, 0);
        mr_buf_char(b, ')');
    }
}
