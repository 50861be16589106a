/* Copies of rows, for callers that keep few of many rows for long. */
#include <string.h>

#include "base/mem.h"
#include "table/rows.h"

static bool column_copy(struct mr_rows *to, const struct mr_field *f, const struct mr_column *c,
                        uint64_t first, uint64_t count, struct mr_column *out);

static bool valid_copy(struct mr_rows *to, const struct mr_column *c, uint64_t first,
                       struct mr_column *out)
{
    if (c->nulls == 0) {
        return true;
    }
    uint8_t *valid = mr_rows_alloc(to, out->count / 8 + 1);
    if (!valid) {
        return false;
    }
    memset(valid, 0, out->count / 8 + 1);
    for (uint64_t i = 0; i < out->count; i++) {
        const bool is_null = mr_column_is_null(c, first + i);
        valid[i / 8] |= (uint8_t)(!is_null << i % 8);
        out->nulls += is_null;
    }
    out->valid = valid;
    return true;
}

static bool values_copy(struct mr_rows *to, const void *from, uint64_t bytes, const void **out)
{
    void *values = mr_rows_alloc(to, bytes + 1);

    if (values && bytes > 0) {
        memcpy(values, from, bytes);
    }
    *out = values;
    return values != NULL;
}

static bool items_copy(struct mr_rows *to, const struct mr_field *f, const struct mr_column *c,
                       uint64_t first, uint64_t count, struct mr_column *out)
{
    out->item = mr_rows_alloc(to, sizeof *out->item);
    return out->item && column_copy(to, f->item, c->item, first, count, out->item);
}

static bool varying_copy(struct mr_rows *to, const struct mr_field *f, const struct mr_column *c,
                         uint64_t first, struct mr_column *out)
{
    const uint64_t from = c->begin[first];
    const uint64_t count = c->begin[first + out->count] - from;
    uint64_t *begin = mr_rows_alloc(to, (out->count + 1) * sizeof *begin);

    if (!begin) {
        return false;
    }
    for (uint64_t i = 0; i <= out->count; i++) {
        begin[i] = c->begin[first + i] - from;
    }
    out->begin = begin;
    return f->type == MR_COLUMN_LIST
               ? items_copy(to, f, c, from, count, out)
               : values_copy(to, (const uint8_t *)c->values + from, count, &out->values);
}

static bool column_copy(struct mr_rows *to, const struct mr_field *f, const struct mr_column *c,
                        uint64_t first, uint64_t count, struct mr_column *out)
{
    const size_t size = mr_column_type_bytes(f->type);

    *out = (struct mr_column){.count = count};
    if (!valid_copy(to, c, first, out)) {
        return false;
    }
    if (c->begin) {
        return varying_copy(to, f, c, first, out);
    }
    return f->type == MR_COLUMN_FIXED_LIST
               ? items_copy(to, f, c, first * f->width, count * f->width, out)
               : values_copy(to, (const uint8_t *)c->values + first * size, count * size,
                             &out->values);
}

struct mr_rows *mr_rows_copy(const struct mr_rows *r, uint64_t first, uint64_t count)
{
    struct mr_rows *copy = mr_rows_new(r->schema);
    bool ok = copy != NULL;

    for (size_t i = 0; ok && i < r->schema->count; i++) {
        ok = column_copy(copy, &r->schema->fields[i], &r->columns[i], first, count,
                         &copy->columns[i]);
    }
    if (ok) {
        copy->count = count;
        copy->file = r->file;
        copy->first = r->first + first;
        return copy;
    }
    mr_rows_unref(&copy);
    return NULL;
}
