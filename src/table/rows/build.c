/* Columns built value by value.
 *
 * Three buffers that double: bits, offsets, values. Finishing hands the buffers over without a copy. A column without
 * nulls has no bits: they are made at the first null. */
#include <string.h>

#include "base/mem.h"
#include "table/rows.h"

static bool has_offsets(const struct mr_field *f)
{
    return f->type == MR_COLUMN_STRING || f->type == MR_COLUMN_BINARY || f->type == MR_COLUMN_LIST;
}

void mr_column_builder_init(struct mr_column_builder *b, const struct mr_field *field)
{
    *b = (struct mr_column_builder){.field = field};
    if (field->item) {
        b->item = MR_NEW(struct mr_column_builder);
        mr_column_builder_init(b->item, field->item);
    }
}

void mr_column_builder_fini(struct mr_column_builder *b)
{
    mr_freep(&b->valid);
    mr_freep(&b->begin);
    mr_freep(&b->values);
    if (b->item) {
        mr_column_builder_fini(b->item);
        mr_freep(&b->item);
    }
}

void mr_column_builder_reset(struct mr_column_builder *b)
{
    b->has_failed = false;
    mr_column_cut(b, 0);
}

/* Makes room for `bytes` after `used`. */
static bool grow(struct mr_column_builder *b, void *pointer, size_t *io_room, size_t used,
                 size_t bytes)
{
    void **at = pointer;
    size_t need;

    if (!b->has_failed && used <= *io_room && bytes <= *io_room - used) {
        return true;
    }
    void *more = NULL;
    if (!b->has_failed && mr_size_add(used, bytes, &need) && need <= SIZE_MAX / 2) {
        need = MR_MAX(need, MR_MAX(2 * *io_room, (size_t)64));
        more = mr_try_realloc(*at, need);
    }
    if (!more) {
        b->has_failed = true;
        return false;
    }
    *at = more;
    *io_room = need;
    return true;
}

static size_t bits_bytes(uint64_t count)
{
    return (size_t)(count / 8 + (count % 8 != 0));
}

/* Adds the bit of the current row. */
static bool bit_add(struct mr_column_builder *b, bool is_valid)
{
    if (is_valid && !b->valid) {
        return true;
    }
    const size_t used = bits_bytes(b->count);
    if (!b->valid) { /* the first null: all earlier rows are valid */
        if (!grow(b, &b->valid, &b->valid_room, 0, used + 1)) {
            return false;
        }
        memset(b->valid, 0xff, used + 1);
    } else if (!grow(b, &b->valid, &b->valid_room, used, 1)) {
        return false;
    }
    const uint8_t bit = (uint8_t)(1u << b->count % 8);
    uint8_t *byte = &b->valid[b->count / 8];
    *byte = (uint8_t)(is_valid ? *byte | bit : *byte & ~bit);
    return true;
}

/* Adds the end offset of the current row. */
static bool end_add(struct mr_column_builder *b, uint64_t end)
{
    if (!grow(b, &b->begin, &b->begin_room, (b->count + 1) * sizeof *b->begin, sizeof *b->begin)) {
        return false;
    }
    b->begin[0] = 0;
    b->begin[b->count + 1] = end;
    return true;
}

static uint64_t end_now(const struct mr_column_builder *b)
{
    return b->item ? b->item->count : b->value_bytes;
}

void mr_column_add_null(struct mr_column_builder *b)
{
    const size_t bytes = mr_column_type_bytes(b->field->type);

    if (bytes > 0) {
        if (!grow(b, &b->values, &b->value_room, b->value_bytes, bytes)) {
            return;
        }
        memset(b->values + b->value_bytes, 0, bytes);
        b->value_bytes += bytes;
    } else if (has_offsets(b->field)) {
        if (!end_add(b, end_now(b))) {
            return;
        }
    } else {
        for (uint64_t i = 0; i < b->field->width && !b->item->has_failed; i++) {
            mr_column_add_null(b->item);
        }
    }
    if (bit_add(b, false)) {
        b->nulls++;
        b->count++;
    }
}

void *mr_column_room(struct mr_column_builder *b, uint64_t n)
{
    size_t bytes;

    if (n > SIZE_MAX || !mr_size_mul((size_t)n, mr_column_type_bytes(b->field->type), &bytes) ||
        !grow(b, &b->values, &b->value_room, b->value_bytes, bytes)) {
        b->has_failed = true;
        return NULL;
    }
    return b->values + b->value_bytes;
}

void mr_column_took(struct mr_column_builder *b, uint64_t n)
{
    b->value_bytes += n * mr_column_type_bytes(b->field->type);
    if (!b->valid) {
        b->count += n;
        return;
    }
    for (uint64_t i = 0; i < n && bit_add(b, true); i++) {
        b->count++;
    }
}

void mr_column_add(struct mr_column_builder *b, const void *value)
{
    void *to = mr_column_room(b, 1);

    if (to) {
        memcpy(to, value, mr_column_type_bytes(b->field->type));
        mr_column_took(b, 1);
    }
}

void mr_column_add_bytes(struct mr_column_builder *b, mr_str value)
{
    if (!grow(b, &b->values, &b->value_room, b->value_bytes, value.len) ||
        !end_add(b, b->value_bytes + value.len) || !bit_add(b, true)) {
        return;
    }
    if (value.len > 0) {
        memcpy(b->values + b->value_bytes, value.ptr, value.len);
    }
    b->value_bytes += value.len;
    b->count++;
}

void mr_column_end_list(struct mr_column_builder *b)
{
    if ((!has_offsets(b->field) || end_add(b, b->item->count)) && bit_add(b, true)) {
        b->count++;
    }
}

/* Rows that are not null are contiguous, and so are their items. */
static void regular_add(struct mr_column_builder *b, const struct mr_column *from, uint64_t first,
                        uint64_t count)
{
    const size_t bytes = mr_column_type_bytes(b->field->type);
    void *to = bytes > 0 ? mr_column_room(b, count) : NULL;

    if (to) {
        memcpy(to, (const uint8_t *)from->values + first * bytes, count * bytes);
        mr_column_took(b, count);
    } else if (b->field->type == MR_COLUMN_FIXED_LIST) {
        mr_column_add_rows(b->item, from->item, first * b->field->width, count * b->field->width);
        for (uint64_t i = 0; i < count; i++) {
            mr_column_end_list(b);
        }
    }
}

void mr_column_add_rows(struct mr_column_builder *b, const struct mr_column *from, uint64_t first,
                        uint64_t count)
{
    for (uint64_t i = first; i < first + count && !b->has_failed;) {
        uint64_t end = i;
        if (has_offsets(b->field) && !mr_column_is_null(from, i)) {
            if (b->item) {
                mr_column_add_rows(b->item, from->item, from->begin[i],
                                   from->begin[i + 1] - from->begin[i]);
                mr_column_end_list(b);
            } else {
                const mr_bytes value = mr_column_bytes(from, i);
                mr_column_add_bytes(b, mr_str_n((const char *)value.ptr, value.len));
            }
            i++;
            continue;
        }
        while (end < first + count && (from->nulls == 0 || !mr_column_is_null(from, end))) {
            end = from->nulls == 0 ? first + count : end + 1;
        }
        if (end > i) {
            regular_add(b, from, i, end - i);
            i = end;
        } else {
            mr_column_add_null(b);
            i++;
        }
    }
}

void mr_column_cut(struct mr_column_builder *b, uint64_t count)
{
    const size_t bytes = mr_column_type_bytes(b->field->type);

    if (count < b->count) {
        for (uint64_t i = count; b->valid && i < b->count; i++) {
            b->nulls -= !(b->valid[i / 8] >> i % 8 & 1);
        }
        b->count = count;
    }
    if (bytes > 0) {
        b->value_bytes = b->count * bytes;
    } else if (has_offsets(b->field)) {
        const uint64_t end = b->begin ? b->begin[b->count] : 0;
        if (b->item) {
            mr_column_cut(b->item, end);
        } else {
            b->value_bytes = end;
        }
    } else {
        mr_column_cut(b->item, b->count * b->field->width);
    }
}

uint64_t mr_column_builder_bytes(const struct mr_column_builder *b)
{
    return b->value_bytes + (b->begin ? (b->count + 1) * sizeof *b->begin : 0) +
           (b->valid ? bits_bytes(b->count) : 0) + (b->item ? mr_column_builder_bytes(b->item) : 0);
}

static bool give(struct mr_rows *rows, void *pointer, size_t *io_room)
{
    void **at = pointer;
    void *p = *at;
    const size_t room = *io_room;

    *at = NULL;
    *io_room = 0;
    return !p || mr_rows_on_free(rows, room, mr_free, p);
}

static bool column_finish(struct mr_column_builder *b, struct mr_rows *rows, struct mr_column *c)
{
    bool ok = !b->has_failed;

    if (ok && has_offsets(b->field) && !b->begin) {
        ok = grow(b, &b->begin, &b->begin_room, 0, sizeof *b->begin);
        if (ok) {
            b->begin[0] = 0;
        }
    }
    if (ok && has_offsets(b->field) && !b->item && !b->values) { /* avoids arithmetic on NULL */
        ok = grow(b, &b->values, &b->value_room, 0, 1);
    }
    *c = (struct mr_column){.count = b->count,
                            .nulls = b->nulls,
                            .valid = b->valid,
                            .begin = b->begin,
                            .values = b->values};
    if (b->item && ok) {
        c->item = mr_rows_alloc(rows, sizeof *c->item);
        ok = c->item && column_finish(b->item, rows, c->item);
    }
    ok = give(rows, &b->valid, &b->valid_room) && ok;
    ok = give(rows, &b->begin, &b->begin_room) && ok;
    ok = give(rows, &b->values, &b->value_room) && ok;
    b->count = b->nulls = b->value_bytes = 0;
    b->has_failed = false;
    return ok;
}

int mr_column_builder_finish(struct mr_column_builder *b, struct mr_rows *rows, size_t i,
                             struct mr_err *err)
{
    return column_finish(b, rows, &rows->columns[i])
               ? MR_OK
               : MR_FAIL(err, MR_E_EXHAUSTED, "no memory for the rows of column '%s'",
                         b->field->name);
}
