/* Arrow's schema as fields, and their conversion to columns. */
#include <string.h>

#include "arrow.h"
#include "base/mem.h"

static const char *const type_names[ARROW_TYPES] = {
    [ARROW_NULL] = "null",
    [ARROW_INT] = "int",
    [ARROW_FLOAT] = "float",
    [ARROW_BINARY] = "binary",
    [ARROW_UTF8] = "utf8",
    [ARROW_BOOL] = "bool",
    [ARROW_DECIMAL] = "decimal",
    [ARROW_DATE] = "date",
    [ARROW_TIME] = "time",
    [ARROW_TIMESTAMP] = "timestamp",
    [ARROW_INTERVAL] = "interval",
    [ARROW_LIST] = "list",
    [ARROW_STRUCT] = "struct",
    [ARROW_UNION] = "union",
    [ARROW_FIXED_BINARY] = "fixed_size_binary",
    [ARROW_FIXED_LIST] = "fixed_size_list",
    [ARROW_MAP] = "map",
    [ARROW_DURATION] = "duration",
    [ARROW_LARGE_BINARY] = "large_binary",
    [ARROW_LARGE_UTF8] = "large_utf8",
    [ARROW_LARGE_LIST] = "large_list",
    [ARROW_RUN_END] = "run_end_encoded",
    [ARROW_BINARY_VIEW] = "binary_view",
    [ARROW_UTF8_VIEW] = "utf8_view",
    [ARROW_LIST_VIEW] = "list_view",
    [ARROW_LARGE_LIST_VIEW] = "large_list_view",
};

const char *arrow_type_name(const struct arrow_field *f)
{
    while (f->column == MR_COLUMN_LIST || f->column == MR_COLUMN_FIXED_LIST) {
        f = &f->items[0];
    }
    return type_names[f->type];
}

unsigned arrow_buffers_of(const struct arrow_field *f)
{
    if (f->is_dictionary) {
        return 2;
    }
    switch (f->type) {
    case ARROW_NULL:
    case ARROW_RUN_END: return 0;
    case ARROW_STRUCT:
    case ARROW_FIXED_LIST: return 1;
    case ARROW_UNION: return f->is_dense ? 2 : 1;
    case ARROW_BINARY:
    case ARROW_UTF8:
    case ARROW_LARGE_BINARY:
    case ARROW_LARGE_UTF8:
    case ARROW_LIST_VIEW:
    case ARROW_LARGE_LIST_VIEW: return 3;
    default: return 2;
    }
}

/* ---- types ---- */

static enum mr_column_type int_column(int64_t bits, bool is_signed)
{
    switch (bits) {
    case 8: return is_signed ? MR_COLUMN_I8 : MR_COLUMN_U8;
    case 16: return is_signed ? MR_COLUMN_I16 : MR_COLUMN_U16;
    case 32: return is_signed ? MR_COLUMN_I32 : MR_COLUMN_U32;
    case 64: return is_signed ? MR_COLUMN_I64 : MR_COLUMN_U64;
    default: return MR_COLUMN_NONE;
    }
}

static void float_read(struct arrow_field *f, const struct flat_table *t)
{
    static const enum mr_column_type columns[] = {MR_COLUMN_F16, MR_COLUMN_F32, MR_COLUMN_F64};
    const int64_t precision = flat_int(t, 0, 2, 0);

    f->column = precision >= 0 && precision <= 2 ? columns[precision] : MR_COLUMN_NONE;
}

static void decimal_read(struct arrow_field *f, const struct flat_table *t)
{
    const int64_t precision = flat_int(t, 0, 4, 0);
    const int64_t scale = flat_int(t, 1, 4, 0);
    const int64_t bits = flat_int(t, 2, 4, 128);

    if ((bits == 32 || bits == 64 || bits == 128) && precision >= 1 && precision <= 38 &&
        scale >= 0 && scale <= precision) {
        f->column = MR_COLUMN_DECIMAL;
        f->bits = (uint8_t)bits;
        f->precision = (uint8_t)precision;
        f->scale = (uint8_t)scale;
    }
}

static void timestamp_read(struct arrow_field *f, const struct flat_table *t)
{
    static const int64_t factors[] = {1000000, 1000, 1, -1000}; /* from s, ms, us, ns */
    const int64_t unit = flat_int(t, 0, 2, 0);

    if (unit >= 0 && unit <= 3) {
        f->column = MR_COLUMN_TIMESTAMP;
        f->time_factor = factors[unit];
    }
}

static int width_read(struct arrow_field *f, const struct flat_table *t, enum mr_column_type column,
                      struct mr_err *err)
{
    const int64_t width = flat_int(t, 0, 4, 0);

    if (width < 0) {
        return MR_FAIL(err, MR_E_INVALID, "column '%s' is %lld wide", f->name, (long long)width);
    }
    f->width = (uint64_t)width;
    f->column = column == MR_COLUMN_FIXED_LIST && width == 0 ? MR_COLUMN_NONE : column;
    return MR_OK;
}

static void date_read(struct arrow_field *f, const struct flat_table *t)
{
    f->column = MR_COLUMN_DATE;
    f->bits = flat_int(t, 0, 2, 1) == 0 ? 32 : 64; /* of days, or of milliseconds */
    f->time_factor = f->bits == 32 ? 1 : -86400000;
}

static int union_read(struct arrow_field *f, const struct flat_table *t, int version,
                      struct mr_err *err)
{
    f->is_dense = flat_int(t, 0, 2, 0) == 1;
    return version < ARROW_VERSION_5
               ? MR_FAIL(err, MR_E_UNSUPPORTED,
                         "column '%s' is a union of an old version of the format", f->name)
               : MR_OK;
}

static int type_read(struct arrow_field *f, const struct flat_table *t, int version,
                     struct mr_err *err)
{
    switch (f->type) {
    case ARROW_NULL: f->column = MR_COLUMN_STRING; break;
    case ARROW_INT: f->column = int_column(flat_int(t, 0, 4, 0), flat_int(t, 1, 1, 0)); break;
    case ARROW_FLOAT: float_read(f, t); break;
    case ARROW_LARGE_BINARY:
    case ARROW_BINARY:
    case ARROW_BINARY_VIEW: f->column = MR_COLUMN_BINARY; break;
    case ARROW_LARGE_UTF8:
    case ARROW_UTF8:
    case ARROW_UTF8_VIEW: f->column = MR_COLUMN_STRING; break;
    case ARROW_BOOL: f->column = MR_COLUMN_BOOL; break;
    case ARROW_DECIMAL: decimal_read(f, t); break;
    case ARROW_DATE: date_read(f, t); break;
    case ARROW_TIMESTAMP: timestamp_read(f, t); break;
    case ARROW_LARGE_LIST:
    case ARROW_LIST: f->column = MR_COLUMN_LIST; break;
    case ARROW_UNION: return union_read(f, t, version, err);
    case ARROW_FIXED_BINARY: return width_read(f, t, MR_COLUMN_BINARY, err);
    case ARROW_FIXED_LIST: return width_read(f, t, MR_COLUMN_FIXED_LIST, err);
    default: break;
    }
    return MR_OK;
}

static int dictionary_read(struct arrow_field *f, const struct flat_table *t, struct mr_err *err)
{
    const struct flat_table index = flat_child(t, 1);

    if (t->at == 0) {
        return MR_OK;
    }
    f->is_dictionary = true;
    f->dictionary = flat_int(t, 0, 8, 0);
    f->index_bits = (uint8_t)flat_int(&index, 0, 4, 32);
    f->index_is_signed = index.at == 0 || flat_int(&index, 1, 1, 0);
    if (int_column(f->index_bits, true) == MR_COLUMN_NONE) {
        return MR_FAIL(err, MR_E_INVALID, "column '%s': its dictionary has indexes of %u bits",
                       f->name, f->index_bits);
    }
    return MR_OK;
}

/* ---- fields ---- */

struct parsing {
    struct arrow_schema *schema;
    uint32_t fields; /* so far, including those that are not nodes */
    size_t name_bytes;
    int version;
    struct mr_err *err;
};

static int field_read(struct parsing *p, struct arrow_field *f, const struct flat_table *t,
                      unsigned depth, bool is_node);

static int items_read(struct parsing *p, struct arrow_field *f, const struct flat_table *t,
                      unsigned depth, bool are_nodes)
{
    const struct flat_vector items = flat_list(t, 5, 4);
    const bool is_list = f->column == MR_COLUMN_LIST || f->column == MR_COLUMN_FIXED_LIST;

    if (items.count > ARROW_FIELDS - p->fields || depth == ARROW_NESTING) {
        return MR_FAIL(p->err, MR_E_UNSUPPORTED, "column '%s' has too many others in it", f->name);
    }
    if (is_list && items.count != 1) {
        return MR_FAIL(p->err, MR_E_INVALID, "column '%s' is a list of %u things", f->name,
                       items.count);
    }
    f->items = MR_NEW_ARRAY(struct arrow_field, items.count + 1);
    for (uint32_t i = 0; i < items.count; i++) {
        const struct flat_table item = flat_list_table(&items, i);
        f->item_count++;
        int rc = field_read(p, &f->items[i], &item, depth + 1, are_nodes);
        if (rc < 0) {
            return rc;
        }
    }
    return MR_OK;
}

/* A dictionary's values are not in the batch, nor are the fields below it. */
static int field_read(struct parsing *p, struct arrow_field *f, const struct flat_table *t,
                      unsigned depth, bool is_node)
{
    const mr_str name = flat_text(t, 0);
    const int64_t type = flat_int(t, 2, 1, 0);
    const struct flat_table details = flat_child(t, 3);
    const struct flat_table dictionary = flat_child(t, 4);

    if (p->fields == ARROW_FIELDS) {
        return MR_FAIL(p->err, MR_E_UNSUPPORTED, "there are more than %d columns", ARROW_FIELDS);
    }
    p->fields++;
    p->name_bytes += name.len;
    if (p->name_bytes > t->in->all.len) { /* columns may share a name's place */
        return MR_FAIL(p->err, MR_E_INVALID, "the names of columns are longer than the schema");
    }
    f->name = mr_strndup(name.ptr, name.len);
    if (!mr_utf8_valid(name) || memchr(name.ptr, 0, name.len)) {
        return MR_FAIL(p->err, MR_E_INVALID, "the name of a column is no text");
    }
    if (type <= 0 || type >= ARROW_TYPES) {
        return MR_FAIL(p->err, MR_E_UNSUPPORTED, "column '%s' is of type %lld, which is not known",
                       f->name, (long long)type);
    }
    f->type = (enum arrow_type)type;
    f->node = p->schema->nodes;
    p->schema->nodes += is_node;
    int rc = type_read(f, &details, p->version, p->err);
    rc = rc < 0 ? rc : dictionary_read(f, &dictionary, p->err);
    return rc < 0 ? rc : items_read(p, f, t, depth, is_node && !f->is_dictionary);
}

int arrow_schema_parse(struct arrow_schema *out, const struct flat_table *schema, int version,
                       struct mr_err *err)
{
    struct parsing p = {.schema = out, .version = version, .err = err};
    const struct flat_vector fields = flat_list(schema, 1, 4);

    *out = (struct arrow_schema){0};
    if (flat_int(schema, 0, 2, 0) != 0) {
        return MR_FAIL(err, MR_E_UNSUPPORTED, "its numbers are big-endian");
    }
    if (fields.count > ARROW_FIELDS) {
        return MR_FAIL(err, MR_E_UNSUPPORTED, "there are more than %d columns", ARROW_FIELDS);
    }
    out->fields = MR_NEW_ARRAY(struct arrow_field, fields.count + 1);
    for (uint32_t i = 0; i < fields.count; i++) {
        const struct flat_table field = flat_list_table(&fields, i);
        out->count++;
        int rc = field_read(&p, &out->fields[i], &field, 0, true);
        if (rc < 0) {
            return rc;
        }
    }
    return schema->in->is_bad ? MR_FAIL(err, MR_E_INVALID, "the schema is damaged") : MR_OK;
}

static void field_fini(struct arrow_field *f)
{
    for (uint32_t i = 0; i < f->item_count; i++) {
        field_fini(&f->items[i]);
    }
    mr_free(f->items);
    mr_free(f->name);
}

void arrow_schema_fini(struct arrow_schema *s)
{
    for (uint32_t i = 0; i < s->count; i++) {
        field_fini(&s->fields[i]);
    }
    mr_free(s->fields);
    *s = (struct arrow_schema){0};
}

/* ---- columns ---- */

static void column_init(const struct arrow_field *f, const char *name, unsigned depth,
                        struct mr_field *out)
{
    *out = (struct mr_field){.name = mr_strndup(name, strlen(name)),
                             .type = f->column,
                             .is_nullable = true,
                             .precision = f->precision,
                             .scale = f->scale};
    if (f->column == MR_COLUMN_LIST || f->column == MR_COLUMN_FIXED_LIST) {
        if (depth == MR_FIELD_DEPTH) {
            out->type = MR_COLUMN_NONE;
            return;
        }
        out->width = f->column == MR_COLUMN_FIXED_LIST ? f->width : 0;
        out->item = MR_NEW(struct mr_field);
        column_init(&f->items[0], "element", depth + 1, out->item);
    }
}

void arrow_field_column(const struct arrow_field *f, struct mr_field *out)
{
    column_init(f, f->name, 0, out);
}
