/* Copies DuckDB's vectors to columns.
 *
 * A column is made of slices: rows of vectors, in order. Its size is known before the copy, so each of its pieces is
 * allocated once and filled by whole runs. The items of a list vector may be in any order and have gaps; a list's
 * rows become slices of the child vector, and adjacent ones are joined, so that the usual vector is one slice again. */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "duckdb.h"

static bool is_valid(const uint64_t *validity, uint64_t row)
{
    return !validity || (validity[row / 64] >> row % 64 & 1);
}

static const char *string_at(const struct duck_string *s)
{
    return s->length <= DUCK_STRING_INLINE ? s->head : s->rest;
}

/* Bytes of a number in the vector; more than in the column where doubles become floats. */
static size_t vector_step(const struct duck_column *c, const struct mr_field *f)
{
    return c->leaf == DUCK_DOUBLE && f->type == MR_COLUMN_F32 ? sizeof(double)
                                                              : mr_column_type_bytes(f->type);
}

/* ---- sizes ---- */

static uint64_t bytes_of(const struct duck_api *duck, const struct duck_column *c,
                         const struct mr_field *f, int depth, void *vector, uint64_t first,
                         uint64_t count)
{
    const uint64_t *validity = duck->vector_get_validity(vector);
    uint64_t bytes = 0;

    if (f->item && c->arrays >> depth & 1) {
        return bytes_of(duck, c, f->item, depth + 1, duck->array_vector_get_child(vector),
                        first * f->width, count * f->width);
    }
    if (f->item) {
        const struct duck_range *ranges = duck->vector_get_data(vector);
        void *child = duck->list_vector_get_child(vector);
        const size_t size = f->item->item ? 0 : mr_column_type_bytes(f->item->type);
        for (uint64_t i = first; i < first + count; i++) {
            if (is_valid(validity, i)) {
                bytes += size > 0 ? ranges[i].length * size
                                  : bytes_of(duck, c, f->item, depth + 1, child, ranges[i].offset,
                                             ranges[i].length);
            }
        }
        return bytes + (f->type == MR_COLUMN_LIST ? count * sizeof(uint64_t) : 0);
    }
    if (mr_column_type_bytes(f->type) > 0) {
        return count * mr_column_type_bytes(f->type);
    }
    const struct duck_string *strings = duck->vector_get_data(vector);
    for (uint64_t i = first; i < first + count; i++) {
        bytes += is_valid(validity, i) ? strings[i].length : 0;
    }
    return bytes + count * sizeof(uint64_t);
}

uint64_t mr_duck_bytes(const struct duck_api *duck, const struct duck_column *c, void *vector,
                       uint64_t first, uint64_t count)
{
    return bytes_of(duck, c, &c->field, 0, vector, first, count);
}

/* ---- faults ---- */

/* The length of the row's first list that differs from its field's, -1: none. */
static int64_t length_wrong(const struct duck_api *duck, const struct duck_column *c,
                            const struct mr_field *f, int depth, void *vector, uint64_t row,
                            uint64_t *out_wanted)
{
    if (!f->item || !is_valid(duck->vector_get_validity(vector), row)) {
        return -1;
    }
    const bool is_array = c->arrays >> depth & 1;
    struct duck_range range = {row * f->width, f->width};
    if (!is_array) {
        range = ((const struct duck_range *)duck->vector_get_data(vector))[row];
    }
    if (f->type == MR_COLUMN_FIXED_LIST && range.length != f->width) {
        *out_wanted = f->width;
        return (int64_t)range.length;
    }
    void *child =
        is_array ? duck->array_vector_get_child(vector) : duck->list_vector_get_child(vector);
    for (uint64_t i = 0; f->item->item && i < range.length; i++) {
        const int64_t wrong =
            length_wrong(duck, c, f->item, depth + 1, child, range.offset + i, out_wanted);
        if (wrong >= 0) {
            return wrong;
        }
    }
    return -1;
}

const char *mr_duck_row_wrong(const struct duck_api *duck, const struct duck_column *c,
                              void *vector, uint64_t row, uint64_t max_bytes, char *buf,
                              size_t room)
{
    uint64_t wanted = 0;
    const int64_t length = length_wrong(duck, c, &c->field, 0, vector, row, &wanted);

    if (length >= 0) {
        snprintf(buf, room, "column '%s': a list of %lld items, not %llu", c->field.name,
                 (long long)length, (unsigned long long)wanted);
        return buf;
    }
    const uint64_t bytes = mr_duck_bytes(duck, c, vector, row, 1);
    if (bytes > max_bytes) {
        snprintf(buf, room, "column '%s': %llu bytes, more than %llu", c->field.name,
                 (unsigned long long)bytes, (unsigned long long)max_bytes);
        return buf;
    }
    return NULL;
}

bool mr_duck_may_be_wrong(const struct duck_api *duck, const struct duck_column *c, void *vector,
                          uint64_t first, uint64_t count, uint64_t max_bytes)
{
    const struct mr_field *f = &c->field;

    if (f->item && f->item->item) {
        return true;
    }
    if (f->type == MR_COLUMN_FIXED_LIST && !(c->arrays & 1)) {
        const struct duck_range *ranges = duck->vector_get_data(vector);
        const uint64_t *validity = duck->vector_get_validity(vector);
        for (uint64_t i = first; i < first + count; i++) {
            if (ranges[i].length != f->width && is_valid(validity, i)) {
                return true;
            }
        }
    }
    return mr_duck_bytes(duck, c, vector, first, count) > max_bytes;
}

/* ---- copying ---- */

struct copy {
    const struct duck_api *duck;
    const struct duck_column *column;
    struct mr_rows *rows;
};

/* Copies the null bits of the column and counts the nulls. The bits are made only if a vector has nulls. */
static bool valid_copy(struct copy *m, struct mr_column *to, const struct duck_slice *slices,
                       size_t n)
{
    bool has_nulls = false;

    for (size_t i = 0; i < n && !has_nulls; i++) {
        const uint64_t *validity =
            slices[i].vector ? m->duck->vector_get_validity(slices[i].vector) : NULL;
        has_nulls = !slices[i].vector && slices[i].count > 0;
        for (uint64_t k = 0; validity && k < slices[i].count && !has_nulls; k++) {
            has_nulls = !is_valid(validity, slices[i].first + k);
        }
    }
    if (!has_nulls) {
        return true;
    }
    const size_t bytes = (size_t)(to->count / 8 + 1);
    uint8_t *bits = mr_rows_alloc(m->rows, bytes);
    if (!bits) {
        return false;
    }
    memset(bits, 0, bytes);
    uint64_t at = 0;
    for (size_t i = 0; i < n; i++) {
        const uint64_t *validity =
            slices[i].vector ? m->duck->vector_get_validity(slices[i].vector) : NULL;
        for (uint64_t k = 0; k < slices[i].count; k++, at++) {
            if (slices[i].vector && is_valid(validity, slices[i].first + k)) {
                bits[at / 8] = (uint8_t)(bits[at / 8] | 1u << at % 8);
            } else {
                to->nulls++;
            }
        }
    }
    to->valid = bits;
    return true;
}

static void floats_copy(float *to, const double *from, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++) {
        to[i] = (float)from[i];
    }
}

static bool numbers_copy(struct copy *m, const struct mr_field *f, struct mr_column *to,
                         const struct duck_slice *slices, size_t n)
{
    const size_t size = mr_column_type_bytes(f->type);
    const size_t step = vector_step(m->column, f);
    size_t bytes;
    uint8_t *values = mr_size_mul(to->count, size, &bytes) ? mr_rows_alloc(m->rows, bytes) : NULL;

    if (!values) {
        return false;
    }
    uint8_t *at = values;
    for (size_t i = 0; i < n; i++) {
        const size_t part = (size_t)slices[i].count * size;
        const uint8_t *from = slices[i].vector ? m->duck->vector_get_data(slices[i].vector) : NULL;
        if (part == 0) {
            continue;
        }
        if (!from) {
            memset(at, 0, part);
        } else if (step == size) {
            memcpy(at, from + slices[i].first * step, part);
        } else {
            floats_copy((float *)at, (const double *)from + slices[i].first, slices[i].count);
        }
        at += part;
    }
    for (uint64_t i = 0; to->nulls > 0 && i < to->count; i++) {
        if (mr_column_is_null(to, i)) { /* undefined in a vector */
            memset(values + i * size, 0, size);
        }
    }
    to->values = values;
    return true;
}

static bool strings_copy(struct copy *m, struct mr_column *to, const struct duck_slice *slices,
                         size_t n)
{
    uint64_t *begin = mr_rows_alloc(m->rows, (size_t)(to->count + 1) * sizeof *begin);
    uint64_t at = 0;
    uint64_t row = 0;

    if (!begin) {
        return false;
    }
    begin[0] = 0;
    for (size_t i = 0; i < n; i++) {
        const struct duck_string *s =
            slices[i].vector ? m->duck->vector_get_data(slices[i].vector) : NULL;
        for (uint64_t k = 0; k < slices[i].count; k++, row++) {
            at += mr_column_is_null(to, row) ? 0 : s[slices[i].first + k].length;
            begin[row + 1] = at;
        }
    }
    char *values = mr_rows_alloc(m->rows, (size_t)at);
    if (!values) {
        return false;
    }
    row = 0;
    for (size_t i = 0; i < n; i++) {
        const struct duck_string *s =
            slices[i].vector ? m->duck->vector_get_data(slices[i].vector) : NULL;
        for (uint64_t k = 0; k < slices[i].count; k++, row++) {
            if (begin[row + 1] > begin[row]) {
                memcpy(values + begin[row], string_at(&s[slices[i].first + k]),
                       (size_t)(begin[row + 1] - begin[row]));
            }
        }
    }
    to->begin = begin;
    to->values = values;
    return true;
}

/* ---- lists ---- */

struct slices {
    struct duck_slice *at;
    size_t count;
    size_t room;
};

static bool slice_add(struct slices *s, void *vector, uint64_t first, uint64_t count)
{
    struct duck_slice *last = s->count > 0 ? &s->at[s->count - 1] : NULL;

    if (count == 0) {
        return true;
    }
    if (last && last->vector == vector && (!vector || last->first + last->count == first)) {
        last->count += count;
        return true;
    }
    if (s->count == s->room) {
        const size_t room = s->room ? 2 * s->room : 16;
        struct duck_slice *more = mr_try_realloc(s->at, room * sizeof *more);
        if (!more) {
            return false;
        }
        s->at = more;
        s->room = room;
    }
    s->at[s->count++] = (struct duck_slice){vector, first, count};
    return true;
}

static bool array_items(struct copy *m, const struct mr_field *f, const struct duck_slice *slice,
                        struct slices *out)
{
    const uint64_t *validity = m->duck->vector_get_validity(slice->vector);
    void *child = m->duck->array_vector_get_child(slice->vector);
    bool is_ok = true;

    for (uint64_t k = slice->first; is_ok && k < slice->first + slice->count; k++) {
        is_ok = slice_add(out, is_valid(validity, k) ? child : NULL, k * f->width, f->width);
    }
    return is_ok;
}

/* The slices of a list's items, and for a LIST the offsets of its rows. */
static bool list_items(struct copy *m, const struct mr_field *f, bool is_array,
                       const struct duck_slice *slices, size_t n, uint64_t *begin,
                       struct slices *out)
{
    uint64_t row = 0;
    bool is_ok = true;

    for (size_t i = 0; is_ok && i < n; i++) {
        const struct duck_slice *s = &slices[i];
        if (s->vector && is_array) {
            is_ok = array_items(m, f, s, out);
            continue;
        }
        const struct duck_range *ranges = s->vector ? m->duck->vector_get_data(s->vector) : NULL;
        const uint64_t *validity = s->vector ? m->duck->vector_get_validity(s->vector) : NULL;
        void *child = s->vector ? m->duck->list_vector_get_child(s->vector) : NULL;
        for (uint64_t k = s->first; is_ok && k < s->first + s->count; k++, row++) {
            const bool is_null = !s->vector || !is_valid(validity, k);
            const struct duck_range none = {0, begin ? 0 : f->width};
            const struct duck_range range = is_null ? none : ranges[k];
            is_ok = slice_add(out, is_null ? NULL : child, range.offset, range.length);
            if (begin) {
                begin[row + 1] = begin[row] + range.length;
            }
        }
    }
    return is_ok;
}

static bool field_copy(struct copy *m, const struct mr_field *f, int depth, struct mr_column *to,
                       const struct duck_slice *slices, size_t n);

static bool list_copy(struct copy *m, const struct mr_field *f, int depth, struct mr_column *to,
                      const struct duck_slice *slices, size_t n)
{
    struct slices items = {0};
    uint64_t *begin = NULL;

    to->item = mr_rows_alloc(m->rows, sizeof *to->item);
    if (!to->item) {
        return false;
    }
    *to->item = (struct mr_column){0};
    if (f->type == MR_COLUMN_LIST) {
        to->begin = begin = mr_rows_alloc(m->rows, (size_t)(to->count + 1) * sizeof *begin);
        if (!begin) {
            return false;
        }
        begin[0] = 0;
    }
    const bool is_ok = list_items(m, f, m->column->arrays >> depth & 1, slices, n, begin, &items) &&
                       field_copy(m, f->item, depth + 1, to->item, items.at, items.count);
    mr_free(items.at);
    return is_ok;
}

static bool field_copy(struct copy *m, const struct mr_field *f, int depth, struct mr_column *to,
                       const struct duck_slice *slices, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        to->count += slices[i].count;
    }
    if (!valid_copy(m, to, slices, n)) {
        return false;
    }
    if (f->item) {
        return list_copy(m, f, depth, to, slices, n);
    }
    return mr_column_type_bytes(f->type) > 0 ? numbers_copy(m, f, to, slices, n)
                                             : strings_copy(m, to, slices, n);
}

int mr_duck_copy(const struct duck_api *duck, const struct duck_column *c,
                 const struct duck_slice *slices, size_t slice_count, struct mr_rows *rows,
                 size_t i, struct mr_err *err)
{
    struct copy m = {duck, c, rows};

    if (!field_copy(&m, &c->field, 0, &rows->columns[i], slices, slice_count)) {
        return MR_FAIL(err, MR_E_EXHAUSTED, "no memory for %llu rows of column '%s'",
                       (unsigned long long)rows->count, c->field.name);
    }
    return MR_OK;
}
