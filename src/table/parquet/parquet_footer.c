/* The footer: schema, row groups, notes.
 *
 * Source: apache/parquet-format, parquet.thrift (SchemaElement, RowGroup, FileMetaData). A row group's description is
 * encoded as soon as it is written, so that only these bytes are kept until the file ends. */
#include "base/mem.h"
#include "parquet.h"

enum { REQUIRED = 0, OPTIONAL = 1, REPEATED = 2 };

/* ---- schema ---- */

/* Integers below 32 bits and unsigned ones have a converted type. */
static const struct {
    int8_t bits;
    bool is_signed;
    int8_t converted;
} integers[MR_COLUMN_TYPES] = {
    [MR_COLUMN_I8] = {8, true, 15},    [MR_COLUMN_I16] = {16, true, 16},
    [MR_COLUMN_I32] = {32, true, 17},  [MR_COLUMN_I64] = {64, true, 18},
    [MR_COLUMN_U8] = {8, false, 11},   [MR_COLUMN_U16] = {16, false, 12},
    [MR_COLUMN_U32] = {32, false, 13}, [MR_COLUMN_U64] = {64, false, 14},
};

/* Opens the field logicalType and in it the member of the union. */
static void logical_begin(struct parquet_thrift *t, int converted, int16_t member)
{
    if (converted >= 0) {
        parquet_thrift_i32(t, 6, converted);
    }
    if (member == 5) { /* DECIMAL has fields between these two */
        return;
    }
    parquet_thrift_begin(t, 10);
    parquet_thrift_begin(t, member);
}

static void logical_end(struct parquet_thrift *t)
{
    parquet_thrift_end(t);
    parquet_thrift_end(t);
}

static void logical_write(struct parquet_thrift *t, const struct mr_field *f)
{
    switch (f->type) {
    case MR_COLUMN_STRING: logical_begin(t, 0, 1); break;
    case MR_COLUMN_DATE: logical_begin(t, 6, 6); break;
    case MR_COLUMN_F16: logical_begin(t, -1, 15); break;
    case MR_COLUMN_TIMESTAMP:
        logical_begin(t, 10, 8);
        parquet_thrift_bool(t, 1, true); /* UTC */
        parquet_thrift_begin(t, 2);
        parquet_thrift_begin(t, 2); /* microseconds */
        parquet_thrift_end(t);
        parquet_thrift_end(t);
        break;
    case MR_COLUMN_DECIMAL:
        logical_begin(t, 5, 5);
        parquet_thrift_i32(t, 7, f->scale);
        parquet_thrift_i32(t, 8, f->precision);
        parquet_thrift_begin(t, 10);
        parquet_thrift_begin(t, 5);
        parquet_thrift_i32(t, 1, f->scale);
        parquet_thrift_i32(t, 2, f->precision);
        break;
    default:
        if (integers[f->type].bits == 0) {
            return;
        }
        logical_begin(t, integers[f->type].converted, 10);
        parquet_thrift_i8(t, 1, integers[f->type].bits);
        parquet_thrift_bool(t, 2, integers[f->type].is_signed);
    }
    logical_end(t);
}

static void leaf_write(struct parquet_thrift *t, const struct parquet_leaf *l, const char *name)
{
    parquet_thrift_element(t);
    parquet_thrift_i32(t, 1, l->type);
    if (l->type == PARQUET_FIXED_LEN_BYTE_ARRAY) {
        parquet_thrift_i32(t, 2, (int32_t)l->bytes);
    }
    parquet_thrift_i32(t, 3, l->field->is_nullable ? OPTIONAL : REQUIRED);
    parquet_thrift_text(t, 4, name);
    logical_write(t, l->field);
    parquet_thrift_end(t);
}

static void schema_write(struct parquet_thrift *t, const struct parquet_writer *w)
{
    size_t count = 1;

    for (size_t i = 0; i < w->leaf_count; i++) {
        count += 1 + 2 * (size_t)w->leaves[i].depth;
    }
    parquet_thrift_list(t, 2, PARQUET_THRIFT_STRUCT, count);
    parquet_thrift_element(t);
    parquet_thrift_text(t, 4, "schema");
    parquet_thrift_i32(t, 5, (int32_t)w->leaf_count);
    parquet_thrift_end(t);
    for (size_t i = 0; i < w->leaf_count; i++) {
        const struct parquet_leaf *l = &w->leaves[i];
        const char *name = l->path[0]->name;
        for (unsigned k = 0; k < l->depth; k++) {
            parquet_thrift_element(t);
            parquet_thrift_i32(t, 3, l->path[k]->is_nullable ? OPTIONAL : REQUIRED);
            parquet_thrift_text(t, 4, name);
            parquet_thrift_i32(t, 5, 1);
            logical_begin(t, 3, 3); /* LIST */
            logical_end(t);
            parquet_thrift_end(t);
            parquet_thrift_element(t);
            parquet_thrift_i32(t, 3, REPEATED);
            parquet_thrift_text(t, 4, "list");
            parquet_thrift_i32(t, 5, 1);
            parquet_thrift_end(t);
            name = "element";
        }
        leaf_write(t, l, name);
    }
}

/* ---- row groups ---- */

static void chunk_write(struct parquet_thrift *t, const struct parquet_writer *w,
                        const struct parquet_leaf *l)
{
    parquet_thrift_element(t);
    parquet_thrift_i64(t, 2, 0);
    parquet_thrift_begin(t, 3);
    parquet_thrift_i32(t, 1, l->type);
    parquet_thrift_list(t, 2, PARQUET_THRIFT_I32, 2);
    parquet_thrift_element_i32(t, 0); /* PLAIN */
    parquet_thrift_element_i32(t, 3); /* RLE */
    parquet_thrift_list(t, 3, PARQUET_THRIFT_BINARY, 1 + 2 * (size_t)l->depth);
    parquet_thrift_element_text(t, l->path[0]->name);
    for (unsigned k = 0; k < l->depth; k++) {
        parquet_thrift_element_text(t, "list");
        parquet_thrift_element_text(t, "element");
    }
    parquet_thrift_i32(t, 4, w->is_zstd ? 6 : 0);
    parquet_thrift_i64(t, 5, (int64_t)l->chunk_entries);
    parquet_thrift_i64(t, 6, (int64_t)l->chunk_plain);
    parquet_thrift_i64(t, 7, (int64_t)l->chunk_bytes);
    parquet_thrift_i64(t, 9, (int64_t)l->chunk_at);
    parquet_stats_write(t, 12, l);
    parquet_thrift_end(t);
    parquet_thrift_end(t);
}

int parquet_group_describe(struct parquet_writer *w, struct mr_err *err)
{
    struct parquet_thrift t = {.out = &w->groups};
    uint64_t plain = 0;

    parquet_thrift_element(&t);
    parquet_thrift_list(&t, 1, PARQUET_THRIFT_STRUCT, w->leaf_count);
    for (size_t i = 0; i < w->leaf_count; i++) {
        struct parquet_leaf *l = &w->leaves[i];
        chunk_write(&t, w, l);
        plain += l->chunk_plain;
        l->stats.has = false;
        l->chunk_entries = l->chunk_values = l->chunk_plain = l->chunk_bytes = 0;
    }
    parquet_thrift_i64(&t, 2, (int64_t)plain);
    parquet_thrift_i64(&t, 3, (int64_t)w->group_rows);
    parquet_thrift_i64(&t, 5, (int64_t)w->group_at);
    parquet_thrift_i64(&t, 6, (int64_t)(w->at - w->group_at));
    if (w->group_count <= INT16_MAX) {
        parquet_thrift_i16(&t, 7, (int16_t)w->group_count);
    }
    parquet_thrift_end(&t);
    return w->groups.failed
               ? MR_FAIL(err, MR_E_EXHAUSTED, "no memory for the footer of a Parquet file")
               : MR_OK;
}

/* ---- notes and the whole ---- */

void parquet_note(struct parquet_writer *w, const char *key, const char *value)
{
    struct parquet_thrift t = {.out = &w->notes};

    parquet_thrift_element(&t);
    parquet_thrift_text(&t, 1, key);
    parquet_thrift_text(&t, 2, value);
    parquet_thrift_end(&t);
    w->note_count++;
}

static void footer_spell(const struct parquet_writer *w, struct mr_buf *out)
{
    struct parquet_thrift t = {.out = out};

    parquet_thrift_i32(&t, 1, 2); /* version */
    schema_write(&t, w);
    parquet_thrift_i64(&t, 3, (int64_t)w->rows);
    parquet_thrift_list(&t, 4, PARQUET_THRIFT_STRUCT, w->group_count);
    mr_buf_append(out, w->groups.ptr, w->groups.len);
    if (w->note_count > 0) {
        parquet_thrift_list(&t, 5, PARQUET_THRIFT_STRUCT, w->note_count);
        mr_buf_append(out, w->notes.ptr, w->notes.len);
    }
    parquet_thrift_text(&t, 6, "millrace " MR_VERSION);
    parquet_thrift_list(&t, 7, PARQUET_THRIFT_STRUCT, w->leaf_count);
    for (size_t i = 0; i < w->leaf_count; i++) {
        parquet_thrift_element(&t);
        parquet_thrift_begin(&t, 1); /* the type's own order */
        parquet_thrift_end(&t);
        parquet_thrift_end(&t);
    }
    parquet_thrift_end(&t);
    const uint32_t len = (uint32_t)out->len;
    mr_buf_append(out, &len, sizeof len);
    MR_BUF_LIT(out, "PAR1");
    out->failed |= w->groups.failed || w->notes.failed;
}

int parquet_footer_write(struct parquet_writer *w, struct mr_err *err)
{
    struct mr_buf out;
    int rc;

    mr_buf_init(&out, UINT32_MAX);
    footer_spell(w, &out);
    if (out.failed) {
        rc = MR_FAIL(err, MR_E_EXHAUSTED, "no memory for the footer of a Parquet file");
    } else {
        rc = parquet_write(w, out.ptr, out.len, err);
    }
    mr_buf_fini(&out);
    return rc;
}
