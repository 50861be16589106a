/* Writing Arrow's schema and messages. */
#include <string.h>

#include "arrow.h"

#define COUNT(a) (sizeof(a) / sizeof *(a))

static size_t empty_put(struct mr_buf *b)
{
    struct flat_out t;

    return flat_put_table(&t, b, NULL, 0);
}

static size_t int_put(struct mr_buf *b, unsigned bits, bool is_signed)
{
    static const uint8_t sizes[] = {4, 1};
    struct flat_out t;
    const size_t at = flat_put_table(&t, b, sizes, COUNT(sizes));

    flat_put_int(&t, 0, 4, bits);
    flat_put_int(&t, 1, 1, is_signed);
    return at;
}

/* A table of one number: the precision of a float, the unit of a date, the items of a list. */
static size_t one_put(struct mr_buf *b, uint8_t bytes, int64_t value)
{
    struct flat_out t;
    const size_t at = flat_put_table(&t, b, &bytes, 1);

    flat_put_int(&t, 0, bytes, value);
    return at;
}

static size_t decimal_put(struct mr_buf *b, const struct mr_field *f)
{
    static const uint8_t sizes[] = {4, 4, 4};
    struct flat_out t;
    const size_t at = flat_put_table(&t, b, sizes, COUNT(sizes));

    flat_put_int(&t, 0, 4, f->precision);
    flat_put_int(&t, 1, 4, f->scale);
    flat_put_int(&t, 2, 4, 128);
    return at;
}

static size_t timestamp_put(struct mr_buf *b)
{
    static const uint8_t sizes[] = {2, 4};
    struct flat_out t;
    const size_t at = flat_put_table(&t, b, sizes, COUNT(sizes));

    flat_put_int(&t, 0, 2, 2); /* microseconds */
    flat_put_link(&t, 1, flat_put_text(b, MR_STR("UTC")));
    return at;
}

static size_t type_put(struct mr_buf *b, const struct mr_field *f, enum arrow_type *out)
{
    const unsigned bits = 8 * (unsigned)mr_column_type_bytes(f->type);

    switch (f->type) {
    case MR_COLUMN_BOOL: *out = ARROW_BOOL; return empty_put(b);
    case MR_COLUMN_I8:
    case MR_COLUMN_I16:
    case MR_COLUMN_I32:
    case MR_COLUMN_I64: *out = ARROW_INT; return int_put(b, bits, true);
    case MR_COLUMN_U8:
    case MR_COLUMN_U16:
    case MR_COLUMN_U32:
    case MR_COLUMN_U64: *out = ARROW_INT; return int_put(b, bits, false);
    case MR_COLUMN_F16: *out = ARROW_FLOAT; return one_put(b, 2, 0);
    case MR_COLUMN_F32: *out = ARROW_FLOAT; return one_put(b, 2, 1);
    case MR_COLUMN_F64: *out = ARROW_FLOAT; return one_put(b, 2, 2);
    case MR_COLUMN_DATE: *out = ARROW_DATE; return one_put(b, 2, 0);
    case MR_COLUMN_TIMESTAMP: *out = ARROW_TIMESTAMP; return timestamp_put(b);
    case MR_COLUMN_DECIMAL: *out = ARROW_DECIMAL; return decimal_put(b, f);
    case MR_COLUMN_BINARY: *out = ARROW_BINARY; return empty_put(b);
    case MR_COLUMN_LIST: *out = ARROW_LIST; return empty_put(b);
    case MR_COLUMN_FIXED_LIST: *out = ARROW_FIXED_LIST; return one_put(b, 4, (int64_t)f->width);
    default: *out = ARROW_UTF8; return empty_put(b);
    }
}

/* All fields are nullable, as results may be null even if the table's columns are not. */
static size_t field_put(struct mr_buf *b, const struct mr_field *f, const char *name)
{
    static const uint8_t sizes[] = {4, 1, 1, 4, 0, 4};
    struct flat_out t;
    enum arrow_type type;
    const size_t at = flat_put_table(&t, b, sizes, COUNT(sizes));

    flat_put_link(&t, 0, flat_put_text(b, mr_str_c(name)));
    flat_put_int(&t, 1, 1, 1);
    flat_put_link(&t, 3, type_put(b, f, &type));
    flat_put_int(&t, 2, 1, type);
    const size_t items = flat_put_list(b, f->item ? 1 : 0, 4);
    flat_put_link(&t, 5, items);
    if (f->item) {
        const size_t item = field_put(b, f->item, "item");
        flat_link(b, items + 4, item);
    }
    return at;
}

static size_t schema_put(struct mr_buf *b, const struct mr_schema *s)
{
    static const uint8_t sizes[] = {2, 4};
    struct flat_out t;
    const size_t at = flat_put_table(&t, b, sizes, COUNT(sizes));
    const size_t fields = flat_put_list(b, (uint32_t)s->count, 4);

    flat_put_link(&t, 1, fields);
    for (size_t i = 0; i < s->count; i++) {
        const size_t field = field_put(b, &s->fields[i], s->fields[i].name);
        flat_link(b, fields + 4 + 4 * i, field);
    }
    return at;
}

/* The table Message; the caller links field 2 of `out` to the next table. */
static void message_begin(struct flat_out *out, struct mr_buf *b, enum arrow_kind kind,
                          uint64_t body_bytes)
{
    static const uint8_t sizes[] = {2, 1, 4, 8};

    mr_buf_reset(b);
    flat_put_list(b, 0, 4); /* four bytes for the place of the root */
    flat_link(b, 0, flat_put_table(out, b, sizes, COUNT(sizes)));
    flat_put_int(out, 0, 2, ARROW_VERSION_5);
    flat_put_int(out, 1, 1, kind);
    flat_put_int(out, 3, 8, (int64_t)body_bytes);
}

void arrow_put_schema(struct mr_buf *b, const struct mr_schema *schema)
{
    struct flat_out message;

    message_begin(&message, b, ARROW_SCHEMA, 0);
    flat_put_link(&message, 2, schema_put(b, schema));
    flat_pad(b, 8);
}

static size_t pairs_put(struct mr_buf *b, const struct arrow_pair *pairs, uint32_t count)
{
    const size_t at = flat_put_list(b, count, sizeof *pairs);

    if (!b->failed && count > 0) {
        memcpy(b->ptr + at + 4, pairs, count * sizeof *pairs);
    }
    return at;
}

void arrow_put_batch(struct mr_buf *b, uint64_t rows, const struct arrow_pair *nodes,
                     uint32_t node_count, const struct arrow_pair *buffers, uint32_t buffer_count,
                     bool is_zstd, uint64_t body_bytes)
{
    const uint8_t sizes[] = {8, 4, 4, is_zstd ? 4 : 0};
    struct flat_out message;
    struct flat_out t;

    message_begin(&message, b, ARROW_BATCH, body_bytes);
    flat_put_link(&message, 2, flat_put_table(&t, b, sizes, COUNT(sizes)));
    flat_put_int(&t, 0, 8, (int64_t)rows);
    flat_put_link(&t, 1, pairs_put(b, nodes, node_count));
    flat_put_link(&t, 2, pairs_put(b, buffers, buffer_count));
    if (is_zstd) {
        flat_put_link(&t, 3, one_put(b, 1, ARROW_ZSTD));
    }
    flat_pad(b, 8);
}

void arrow_put_footer(struct mr_buf *b, const struct mr_schema *schema,
                      const struct arrow_footer_block *blocks, uint32_t count)
{
    static const uint8_t sizes[] = {2, 4, 4, 4};
    struct flat_out t;

    mr_buf_reset(b);
    flat_put_list(b, 0, 4); /* four bytes for the place of the root */
    flat_link(b, 0, flat_put_table(&t, b, sizes, COUNT(sizes)));
    flat_put_int(&t, 0, 2, ARROW_VERSION_5);
    flat_put_link(&t, 1, schema_put(b, schema));
    flat_put_link(&t, 2, flat_put_list(b, 0, sizeof *blocks));
    const size_t list = flat_put_list(b, count, sizeof *blocks);
    flat_put_link(&t, 3, list);
    if (!b->failed && count > 0) {
        memcpy(b->ptr + list + 4, blocks, count * sizeof *blocks);
    }
    flat_pad(b, 8);
}
