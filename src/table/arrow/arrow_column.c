/* Columns of record batches as columns of rows.
 *
 * A column is made of slices: rows of batches, in order, and rows that are null. Its size is known before anything is
 * copied, so each of its pieces is allocated once and filled by whole runs. The items of lists, and the bytes of
 * strings, are slices again; neighbours are joined, so that the usual column is one slice on each level. */
#include <string.h>

#include "arrow.h"
#include "base/mem.h"
#include "tensor/tensor.h"

#define VIEW_BYTES  16
#define VIEW_INLINE 12
#define WEIGHED     512 /* rows weighed together */

static const char not_text[] = "not UTF-8";
static const char no_time[] = "a time that microseconds, or a date that 32 bits, cannot hold";

bool arrow_slices_add(struct arrow_slices *s, struct arrow_batch *batch, uint64_t first,
                      uint64_t count)
{
    struct arrow_slice *last = s->len > 0 ? &s->at[s->len - 1] : NULL;

    if (count == 0) {
        return true;
    }
    if (last && last->batch == batch && (!batch || last->first + last->count == first)) {
        last->count += count;
        return true;
    }
    if (s->len == s->cap) {
        const size_t cap = s->cap ? 2 * s->cap : 8;
        struct arrow_slice *more = mr_try_realloc(s->at, cap * sizeof *more);
        if (!more) {
            return false;
        }
        s->at = more;
        s->cap = cap;
    }
    s->at[s->len++] = (struct arrow_slice){batch, first, count};
    return true;
}

static int no_memory(struct arrow_reading *x)
{
    return MR_FAIL(x->err, MR_E_EXHAUSTED, "no memory for rows");
}

static int bad_add(struct arrow_reading *x, uint64_t row, const char *why)
{
    struct arrow_bads *b = &x->bads;

    if (b->len == b->cap) {
        const size_t cap = b->cap ? 2 * b->cap : 8;
        struct arrow_bad *more = mr_try_realloc(b->at, cap * sizeof *more);
        if (!more) {
            return no_memory(x);
        }
        b->at = more;
        b->cap = cap;
    }
    b->at[b->len++] = (struct arrow_bad){row, why};
    return MR_OK;
}

/* count * size bytes of the rows; NULL: no memory. */
static void *piece(struct arrow_reading *x, uint64_t count, size_t size)
{
    size_t bytes;

    return count <= SIZE_MAX && mr_size_mul((size_t)count, size, &bytes)
               ? mr_rows_alloc(x->rows, bytes)
               : NULL;
}

static struct arrow_node *node_of(const struct arrow_batch *b, const struct arrow_field *f)
{
    return &b->nodes[f->node];
}

/* ---- sizes ---- */

static int rows_are_there(const struct arrow_field *f, const struct arrow_batch *b, uint64_t first,
                          uint64_t count, struct mr_err *err)
{
    const uint64_t rows = node_of(b, f)->rows;

    return first <= rows && count <= rows - first
               ? MR_OK
               : MR_FAIL(err, MR_E_INVALID, "lists have more items than there are");
}

static uint64_t sum_of(uint64_t a, uint64_t b)
{
    return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

static uint64_t product_of(uint64_t a, uint64_t b)
{
    uint64_t product;

    return __builtin_mul_overflow(a, b, &product) ? UINT64_MAX : product;
}

static bool is_large(const struct arrow_field *f)
{
    return f->type == ARROW_LARGE_BINARY || f->type == ARROW_LARGE_UTF8 ||
           f->type == ARROW_LARGE_LIST;
}

static int offset_at(const struct arrow_field *f, struct arrow_batch *b, uint64_t i, int64_t *out,
                     struct mr_err *err)
{
    int32_t small = 0;
    int64_t large = 0;
    int rc = is_large(f) ? arrow_fetch(b, node_of(b, f)->buffer + 1, product_of(i, sizeof large),
                                       sizeof large, &large, err)
                         : arrow_fetch(b, node_of(b, f)->buffer + 1, product_of(i, sizeof small),
                                       sizeof small, &small, err);
    *out = is_large(f) ? large : small;
    return rc;
}

/* The range of the content of strings or lists. */
static int range_of(const struct arrow_field *f, struct arrow_batch *b, uint64_t first,
                    uint64_t count, uint64_t *out_first, uint64_t *out_count, struct mr_err *err)
{
    int64_t begin;
    int64_t end;

    if (f->type == ARROW_FIXED_BINARY || f->type == ARROW_FIXED_LIST) {
        *out_first = product_of(first, f->width);
        *out_count = product_of(count, f->width);
        return MR_OK;
    }
    int rc = offset_at(f, b, first, &begin, err);
    rc = rc < 0 ? rc : offset_at(f, b, first + count, &end, err);
    if (rc == MR_OK && (begin < 0 || end < begin)) {
        rc = MR_FAIL(err, MR_E_INVALID, "offsets of its rows do not ascend");
    }
    if (rc == MR_OK) {
        *out_first = (uint64_t)begin;
        *out_count = (uint64_t)(end - begin);
    }
    return rc;
}

/* Indexes into a dictionary; those of null rows are undefined. */
static int indexes_fetch(const struct arrow_field *f, struct arrow_batch *b, uint64_t first,
                         uint64_t count, uint64_t *out, struct mr_err *err)
{
    const size_t size = f->index_bits / 8u;
    uint8_t *from = (uint8_t *)out + count * (sizeof *out - size);
    int rc = arrow_fetch(b, node_of(b, f)->buffer + 1, product_of(first, size),
                         product_of(count, size), from, err);
    /* A negative index becomes larger than any dictionary. */
    const unsigned shift = f->index_is_signed ? 64 - f->index_bits : 0;
    for (uint64_t i = 0; rc == MR_OK && i < count; i++) {
        uint64_t v = 0;
        memcpy(&v, from + i * size, size);
        out[i] = (uint64_t)((int64_t)(v << shift) >> shift);
    }
    return rc;
}

static int indexes_weight(const struct arrow_dictionaries *d, const struct arrow_field *f,
                          struct arrow_batch *b, uint64_t first, uint64_t count, uint64_t *out,
                          struct mr_err *err)
{
    const struct mr_column_builder *values = &arrow_dictionary_find(d, f->dictionary)->values;
    uint64_t indexes[WEIGHED];
    uint64_t sum = product_of(count, sizeof(uint64_t));
    int rc = MR_OK;

    for (uint64_t at = 0, n; rc == MR_OK && at < count; at += n) {
        n = MR_MIN(count - at, (uint64_t)WEIGHED);
        rc = indexes_fetch(f, b, first + at, n, indexes, err);
        for (uint64_t i = 0; rc == MR_OK && i < n; i++) {
            if (indexes[i] < values->count) {
                sum = sum_of(sum, values->begin[indexes[i] + 1] - values->begin[indexes[i]]);
            }
        }
    }
    *out = sum;
    return rc;
}

static int views_weight(const struct arrow_field *f, struct arrow_batch *b, uint64_t first,
                        uint64_t count, uint64_t *out, struct mr_err *err)
{
    uint8_t views[WEIGHED * VIEW_BYTES];
    uint64_t sum = product_of(count, sizeof(uint64_t));
    int rc = MR_OK;

    for (uint64_t at = 0, n; rc == MR_OK && at < count; at += n) {
        n = MR_MIN(count - at, (uint64_t)WEIGHED);
        rc = arrow_fetch(b, node_of(b, f)->buffer + 1, product_of(first + at, VIEW_BYTES),
                         n * VIEW_BYTES, views, err);
        for (uint64_t i = 0; rc == MR_OK && i < n; i++) {
            int32_t bytes;
            memcpy(&bytes, views + i * VIEW_BYTES, sizeof bytes);
            sum = sum_of(sum, (uint64_t)MR_MAX(bytes, 0));
        }
    }
    *out = sum;
    return rc;
}

int arrow_weight(const struct arrow_dictionaries *d, const struct arrow_field *f,
                 struct arrow_batch *b, uint64_t first, uint64_t count, uint64_t *out,
                 struct mr_err *err)
{
    const uint64_t offsets = f->column == MR_COLUMN_FIXED_LIST ? 0 : product_of(count, 8);
    const size_t size = mr_column_type_bytes(f->column);
    uint64_t from = 0;
    uint64_t n = 0;
    uint64_t items;
    int rc = rows_are_there(f, b, first, count, err);

    if (rc < 0 || count == 0 || size > 0 || f->type == ARROW_NULL) {
        *out = size > 0 ? product_of(count, size) : offsets;
        return rc;
    }
    if (f->is_dictionary) {
        return indexes_weight(d, f, b, first, count, out, err);
    }
    if (arrow_is_view(f)) {
        return views_weight(f, b, first, count, out, err);
    }
    rc = range_of(f, b, first, count, &from, &n, err);
    if (rc < 0) {
        return rc;
    }
    if (f->column != MR_COLUMN_LIST && f->column != MR_COLUMN_FIXED_LIST) {
        *out = sum_of(offsets, n);
        return MR_OK;
    }
    rc = arrow_weight(d, &f->items[0], b, from, n, &items, err);
    *out = sum_of(offsets, items);
    return rc;
}

/* ---- nulls ---- */

static void bits_set(uint8_t *bits, uint64_t at, uint64_t count)
{
    for (uint64_t i = at; i < at + count; i++) {
        bits[i / 8] = (uint8_t)(bits[i / 8] | 1u << i % 8);
    }
}

/* Expands bits [first, first + count) of a buffer to bytes, in a buffer with room for one more. The bits are read to
 * its end, ahead of the bytes made from them. */
static int bits_fetch(struct arrow_batch *b, uint32_t buffer, uint64_t first, uint64_t count,
                      uint8_t *out, struct mr_err *err)
{
    const uint64_t from = first / 8;
    const uint64_t bytes = (first + count - 1) / 8 - from + 1;
    uint8_t *bits = out + count - bytes + 1;
    int rc = arrow_fetch(b, buffer, from, bytes, bits, err);

    for (uint64_t i = 0; rc == MR_OK && i < count; i++) {
        const uint64_t at = first % 8 + i;
        out[i] = bits[at / 8] >> at % 8 & 1;
    }
    return rc;
}

static bool has_nulls(const struct arrow_field *f, const struct arrow_slices *s)
{
    for (size_t i = 0; i < s->len; i++) {
        if (!s->at[i].batch || f->type == ARROW_NULL || node_of(s->at[i].batch, f)->nulls > 0) {
            return true;
        }
    }
    return false;
}

static int valid_slice(struct arrow_reading *x, const struct arrow_field *f,
                       const struct arrow_slice *s, uint8_t *bits, uint64_t at)
{
    if (!s->batch || f->type == ARROW_NULL) {
        return MR_OK;
    }
    if (node_of(s->batch, f)->nulls == 0) {
        bits_set(bits, at, s->count);
        return MR_OK;
    }
    uint8_t *flags = mr_try_alloc(s->count + 1);
    if (!flags) {
        return no_memory(x);
    }
    int rc = bits_fetch(s->batch, node_of(s->batch, f)->buffer, s->first, s->count, flags, x->err);
    for (uint64_t i = 0; rc == MR_OK && i < s->count; i++) {
        bits[(at + i) / 8] = (uint8_t)(bits[(at + i) / 8] | flags[i] << (at + i) % 8);
    }
    mr_free(flags);
    return rc;
}

static int valid_read(struct arrow_reading *x, const struct arrow_field *f,
                      const struct arrow_slices *s, struct mr_column *c)
{
    uint64_t at = 0;
    uint64_t set = 0;

    if (!has_nulls(f, s)) {
        return MR_OK;
    }
    uint8_t *bits = piece(x, c->count / 8 + 1, 1);
    if (!bits) {
        return no_memory(x);
    }
    memset(bits, 0, c->count / 8 + 1);
    for (size_t i = 0; i < s->len; i++) {
        int rc = valid_slice(x, f, &s->at[i], bits, at);
        if (rc < 0) {
            return rc;
        }
        at += s->at[i].count;
    }
    for (uint64_t i = 0; i < c->count / 8 + 1; i++) {
        set += (uint64_t)__builtin_popcount(bits[i]);
    }
    c->nulls = c->count - set;
    c->valid = c->nulls > 0 ? bits : NULL;
    return MR_OK;
}

/* ---- numbers ---- */

/* Bytes of a number in the batch, 0: bits. */
static size_t wire_bytes(const struct arrow_field *f)
{
    switch (f->type) {
    case ARROW_BOOL: return 0;
    case ARROW_DATE:
    case ARROW_DECIMAL: return f->bits / 8u;
    default: return mr_column_type_bytes(f->column);
    }
}

/* Converts a number to its width in rows. */
static bool number_widen(const struct arrow_field *f, const uint8_t *from, uint8_t *to)
{
    int64_t v = 0;

    memcpy(&v, from, f->bits / 8u);
    if (f->bits == 32) {
        v = (int32_t)v;
    }
    if (f->type == ARROW_DECIMAL) {
        const __int128 wide = v;
        memcpy(to, &wide, sizeof wide);
        return true;
    }
    const int64_t days = v / -f->time_factor - (v % -f->time_factor < 0);
    const int32_t narrow = (int32_t)days;
    memcpy(to, &narrow, sizeof narrow);
    return narrow == days;
}

static bool time_scale(int64_t factor, int64_t *io)
{
    if (factor > 0) {
        return !__builtin_mul_overflow(*io, factor, io);
    }
    *io = *io / -factor - (*io % -factor < 0);
    return true;
}

static int numbers_slice(struct arrow_reading *x, const struct arrow_field *f,
                         const struct arrow_slice *s, struct mr_column *c, uint8_t *to, uint64_t at)
{
    const size_t size = mr_column_type_bytes(f->column);
    const size_t wire = wire_bytes(f);
    const uint32_t buffer = node_of(s->batch, f)->buffer + 1;
    uint8_t *room = NULL;
    int rc;

    if (wire == size) {
        rc = arrow_fetch(s->batch, buffer, product_of(s->first, size), s->count * size, to, x->err);
    } else {
        room = mr_try_alloc(product_of(s->count, MR_MAX(wire, (size_t)1)) + 1);
        rc = !room       ? no_memory(x)
             : wire == 0 ? bits_fetch(s->batch, buffer, s->first, s->count, room, x->err)
                         : arrow_fetch(s->batch, buffer, product_of(s->first, wire),
                                       s->count * wire, room, x->err);
    }
    for (uint64_t i = 0; rc == MR_OK && wire == 0 && i < s->count; i++) {
        to[i] = room[i];
    }
    for (uint64_t i = 0; rc == MR_OK && wire > 0 && wire != size && i < s->count; i++) {
        if (!number_widen(f, room + i * wire, to + i * size) && !mr_column_is_null(c, at + i)) {
            rc = bad_add(x, at + i, no_time);
        }
    }
    for (uint64_t i = 0;
         rc == MR_OK && f->type == ARROW_TIMESTAMP && f->time_factor != 1 && i < s->count; i++) {
        if (!time_scale(f->time_factor, (int64_t *)(void *)to + i) &&
            !mr_column_is_null(c, at + i)) {
            rc = bad_add(x, at + i, no_time);
        }
    }
    mr_free(room);
    return rc;
}

static int numbers_read(struct arrow_reading *x, const struct arrow_field *f,
                        const struct arrow_slices *s, struct mr_column *c)
{
    const size_t size = mr_column_type_bytes(f->column);
    uint8_t *to = piece(x, c->count, size);
    uint64_t at = 0;
    int rc = to ? MR_OK : no_memory(x);

    c->values = to;
    for (size_t i = 0; rc == MR_OK && i < s->len; i++) {
        if (s->at[i].batch) {
            rc = numbers_slice(x, f, &s->at[i], c, to + at * size, at);
        }
        at += s->at[i].count;
    }
    for (uint64_t i = 0; rc == MR_OK && c->nulls > 0 && i < c->count; i++) {
        if (mr_column_is_null(c, i)) {
            memset(to + i * size, 0, size);
        }
    }
    return rc;
}

/* ---- strings and lists ---- */

/* Reads the offsets of rows into `begin`, unchanged. */
static int offsets_fetch(const struct arrow_field *f, const struct arrow_slice *s, uint64_t *begin,
                         struct mr_err *err)
{
    const uint32_t buffer = node_of(s->batch, f)->buffer + 1;
    const uint64_t n = s->count + 1;

    if (f->type == ARROW_FIXED_BINARY) {
        for (uint64_t i = 0; i < n; i++) {
            begin[i] = (s->first + i) * f->width;
        }
        return MR_OK;
    }
    if (is_large(f)) {
        return arrow_fetch(s->batch, buffer, product_of(s->first, 8), n * 8, begin, err);
    }
    /* Into the upper half, ahead of the widened offsets. */
    uint8_t *half = (uint8_t *)begin + n * 4;
    int rc = arrow_fetch(s->batch, buffer, product_of(s->first, 4), n * 4, half, err);
    for (uint64_t i = 0; rc == MR_OK && i < n; i++) {
        int32_t offset;
        memcpy(&offset, half + i * 4, sizeof offset);
        begin[i] = (uint64_t)(int64_t)offset;
    }
    return rc;
}

/* Converts offsets of the batch to those of the column, whose rows begin at `at`; appends their ranges to `out`. */
static int ranges_slice(struct arrow_reading *x, const struct arrow_slice *s,
                        const struct mr_column *c, uint64_t *begin, uint64_t at, uint64_t base,
                        struct arrow_slices *out)
{
    for (uint64_t i = 0; i < s->count; i++) {
        const uint64_t from = begin[i];
        const uint64_t to = begin[i + 1];
        begin[i] = base;
        if (to < from || to > INT64_MAX) {
            return MR_FAIL(x->err, MR_E_INVALID, "offsets of its rows do not ascend");
        }
        if (!mr_column_is_null(c, at + i)) {
            if (__builtin_add_overflow(base, to - from, &base) ||
                !arrow_slices_add(out, s->batch, from, to - from)) {
                return no_memory(x);
            }
        }
    }
    begin[s->count] = base;
    return MR_OK;
}

static int ranges_read(struct arrow_reading *x, const struct arrow_field *f,
                       const struct arrow_slices *s, struct mr_column *c, struct arrow_slices *out)
{
    uint64_t *begin = piece(x, c->count + 1, sizeof *begin);
    uint64_t at = 0;
    uint64_t base = 0;

    if (!begin) {
        return no_memory(x);
    }
    begin[0] = 0;
    for (size_t i = 0; i < s->len; i++) {
        const struct arrow_slice *slice = &s->at[i];
        int rc = MR_OK;
        if (slice->batch) {
            rc = offsets_fetch(f, slice, begin + at, x->err);
            rc = rc < 0 ? rc : ranges_slice(x, slice, c, begin + at, at, base, out);
        } else {
            for (uint64_t k = 0; k <= slice->count; k++) {
                begin[at + k] = base;
            }
        }
        if (rc < 0) {
            return rc;
        }
        at += slice->count;
        base = begin[at];
    }
    c->begin = begin;
    return MR_OK;
}

/* Checks strings one by one only if all of them together are not valid UTF-8, or an offset splits a character. */
static int texts_check(struct arrow_reading *x, const struct mr_column *c)
{
    const uint8_t *text = c->values;
    const uint64_t bytes = c->begin[c->count];
    bool is_good = mr_utf8_valid(mr_str_n((const char *)text, bytes));

    for (uint64_t i = 0; is_good && i < c->count; i++) {
        is_good = c->begin[i] == bytes || (text[c->begin[i]] & 0xc0) != 0x80;
    }
    for (uint64_t i = 0; !is_good && i < c->count; i++) {
        const mr_bytes s = mr_column_bytes(c, i);
        if (!mr_utf8_valid(mr_str_n((const char *)s.ptr, s.len))) {
            int rc = bad_add(x, i, not_text);
            if (rc < 0) {
                return rc;
            }
        }
    }
    return MR_OK;
}

static int strings_read(struct arrow_reading *x, const struct arrow_field *f,
                        const struct arrow_slices *s, struct mr_column *c)
{
    struct arrow_slices runs = {0};
    uint8_t *to = NULL;
    int rc = ranges_read(x, f, s, c, &runs);

    if (rc == MR_OK) {
        c->values = to = piece(x, c->begin[c->count], 1);
        rc = to ? MR_OK : no_memory(x);
    }
    for (size_t i = 0; rc == MR_OK && i < runs.len; i++) {
        const struct arrow_slice *run = &runs.at[i];
        const uint32_t buffer =
            node_of(run->batch, f)->buffer + (f->type == ARROW_FIXED_BINARY ? 1 : 2);
        rc = arrow_fetch(run->batch, buffer, run->first, run->count, to, x->err);
        to += run->count;
    }
    mr_free(runs.at);
    return rc;
}

/* Lengths of strings, and 16 bytes for each: the string, or where it is. */
static int views_fetch(struct arrow_reading *x, const struct arrow_field *f,
                       const struct arrow_slices *s, struct mr_column *c, uint8_t *views)
{
    uint64_t *begin = piece(x, c->count + 1, sizeof *begin);
    uint64_t at = 0;

    if (!begin) {
        return no_memory(x);
    }
    c->begin = begin;
    begin[0] = 0;
    for (size_t i = 0; i < s->len; i++) {
        const struct arrow_slice *slice = &s->at[i];
        int rc = slice->batch
                     ? arrow_fetch(slice->batch, node_of(slice->batch, f)->buffer + 1,
                                   product_of(slice->first, VIEW_BYTES), slice->count * VIEW_BYTES,
                                   views + at * VIEW_BYTES, x->err)
                     : MR_OK;
        for (uint64_t k = 0; rc == MR_OK && k < slice->count; k++, at++) {
            int32_t bytes = 0;
            if (!mr_column_is_null(c, at)) {
                memcpy(&bytes, views + at * VIEW_BYTES, sizeof bytes);
            }
            begin[at + 1] = begin[at] + (uint64_t)MR_MAX(bytes, 0);
        }
        if (rc < 0) {
            return rc;
        }
    }
    return MR_OK;
}

static int view_copy(struct arrow_reading *x, const struct arrow_field *f, struct arrow_batch *b,
                     const uint8_t *view, uint64_t bytes, uint8_t *to)
{
    const struct arrow_node *node = node_of(b, f);
    int32_t where[2]; /* buffer, offset */

    if (bytes <= VIEW_INLINE) {
        memcpy(to, view + 4, bytes);
        return MR_OK;
    }
    memcpy(where, view + 8, sizeof where);
    if (where[0] < 0 || (uint32_t)where[0] >= node->views || where[1] < 0) {
        return MR_FAIL(x->err, MR_E_INVALID, "a string lies in a buffer that does not exist");
    }
    return arrow_fetch(b, node->buffer + 2 + (uint32_t)where[0], (uint64_t)where[1], bytes, to,
                       x->err);
}

static int views_read(struct arrow_reading *x, const struct arrow_field *f,
                      const struct arrow_slices *s, struct mr_column *c)
{
    uint8_t *views = mr_try_alloc(product_of(c->count, VIEW_BYTES) | 1);
    uint8_t *to = NULL;
    uint64_t at = 0;
    int rc = views ? views_fetch(x, f, s, c, views) : no_memory(x);

    if (rc == MR_OK) {
        c->values = to = piece(x, c->begin[c->count], 1);
        rc = to ? MR_OK : no_memory(x);
    }
    for (size_t i = 0; rc == MR_OK && i < s->len; i++) {
        for (uint64_t k = 0; rc == MR_OK && k < s->at[i].count; k++, at++) {
            const uint64_t bytes = c->begin[at + 1] - c->begin[at];
            if (bytes > 0) {
                rc = view_copy(x, f, s->at[i].batch, views + at * VIEW_BYTES, bytes,
                               to + c->begin[at]);
            }
        }
    }
    mr_free(views);
    return rc;
}

/* Items of fixed lists; the items of a null list are null. */
static int runs_of_fixed(struct arrow_reading *x, const struct arrow_field *f,
                         const struct arrow_slices *s, const struct mr_column *c,
                         struct arrow_slices *out)
{
    uint64_t at = 0;

    for (size_t i = 0; i < s->len; i++) {
        const struct arrow_slice *slice = &s->at[i];
        for (uint64_t k = 0; k < slice->count; k++, at++) {
            const bool is_null = mr_column_is_null(c, at);
            if (!arrow_slices_add(out, is_null ? NULL : slice->batch,
                                  is_null ? 0 : product_of(slice->first + k, f->width), f->width)) {
                return no_memory(x);
            }
        }
    }
    return MR_OK;
}

/* Bad items from `since` on make their lists bad. */
static void bads_up(struct arrow_reading *x, const struct arrow_field *f, const struct mr_column *c,
                    size_t since)
{
    struct arrow_bads *b = &x->bads;
    size_t kept = since;
    uint64_t row = 0;

    for (size_t i = since; i < b->len; i++) {
        const uint64_t item = b->at[i].row;
        if (f->column == MR_COLUMN_FIXED_LIST) {
            row = item / f->width;
        } else {
            while (c->begin[row + 1] <= item) {
                row++;
            }
        }
        if (kept == since || b->at[kept - 1].row != row) {
            b->at[kept++] = (struct arrow_bad){row, b->at[i].why};
        }
    }
    b->len = kept;
}

static int lists_read(struct arrow_reading *x, const struct arrow_field *f,
                      const struct mr_field *to, const struct arrow_slices *s, struct mr_column *c)
{
    struct arrow_slices runs = {0};
    const size_t since = x->bads.len;
    struct mr_column *item = mr_rows_alloc(x->rows, sizeof *item);
    int rc = !item                               ? no_memory(x)
             : f->column == MR_COLUMN_FIXED_LIST ? runs_of_fixed(x, f, s, c, &runs)
                                                 : ranges_read(x, f, s, c, &runs);

    if (rc == MR_OK) {
        rc = arrow_column_read(x, &f->items[0], to->item, &runs, item);
    }
    if (rc == MR_OK) {
        c->item = item;
        bads_up(x, f, c, since);
    }
    mr_free(runs.at);
    return rc;
}

/* ---- dictionaries ---- */

#define NO_VALUE UINT64_MAX

/* The value of each row; NO_VALUE: null. */
static int values_find(struct arrow_reading *x, const struct arrow_field *f,
                       const struct arrow_slices *s, const struct mr_column *c,
                       const struct mr_column_builder *values, uint64_t *out)
{
    uint64_t at = 0;

    for (size_t i = 0; i < s->len; i++) {
        const struct arrow_slice *slice = &s->at[i];
        int rc = slice->batch
                     ? indexes_fetch(f, slice->batch, slice->first, slice->count, out + at, x->err)
                     : MR_OK;
        for (uint64_t k = 0; rc == MR_OK && k < slice->count; k++, at++) {
            if (mr_column_is_null(c, at)) {
                out[at] = NO_VALUE;
            } else if (out[at] >= values->count) {
                rc =
                    MR_FAIL(x->err, MR_E_INVALID, "a value has number %llu of a dictionary of %llu",
                            (unsigned long long)out[at], (unsigned long long)values->count);
            } else if (values->valid && !(values->valid[out[at] / 8] >> out[at] % 8 & 1)) {
                out[at] = NO_VALUE;
            }
        }
        if (rc < 0) {
            return rc;
        }
    }
    return MR_OK;
}

static int valid_of_values(struct arrow_reading *x, const uint64_t *which, struct mr_column *c)
{
    uint8_t *bits = piece(x, c->count / 8 + 1, 1);

    if (!bits) {
        return no_memory(x);
    }
    memset(bits, 0, c->count / 8 + 1);
    c->nulls = 0;
    for (uint64_t i = 0; i < c->count; i++) {
        c->nulls += which[i] == NO_VALUE;
        bits[i / 8] = (uint8_t)(bits[i / 8] | (which[i] != NO_VALUE) << i % 8);
    }
    c->valid = c->nulls > 0 ? bits : NULL;
    return MR_OK;
}

static int values_copy(struct arrow_reading *x, const struct arrow_field *f,
                       const struct mr_column_builder *values, const uint64_t *which,
                       struct mr_column *c)
{
    const size_t size = mr_column_type_bytes(f->column);
    uint64_t *begin = size ? NULL : piece(x, c->count + 1, sizeof *begin);
    uint64_t bytes = 0;

    if (!size && !begin) {
        return no_memory(x);
    }
    for (uint64_t i = 0; begin && i < c->count; i++) {
        begin[i] = bytes;
        bytes += which[i] == NO_VALUE ? 0 : values->begin[which[i] + 1] - values->begin[which[i]];
    }
    uint8_t *to = size ? piece(x, c->count, size) : piece(x, bytes, 1);
    if (!to) {
        return no_memory(x);
    }
    c->values = to;
    for (uint64_t i = 0; size && i < c->count; i++) {
        if (which[i] == NO_VALUE) {
            memset(to + i * size, 0, size);
        } else {
            memcpy(to + i * size, values->values + which[i] * size, size);
        }
    }
    if (begin) {
        begin[c->count] = bytes;
        c->begin = begin;
    }
    for (uint64_t i = 0; begin && i < c->count; i++) {
        if (begin[i + 1] > begin[i]) {
            memcpy(to + begin[i], values->values + values->begin[which[i]],
                   begin[i + 1] - begin[i]);
        }
    }
    return MR_OK;
}

static int indexes_read(struct arrow_reading *x, const struct arrow_field *f,
                        const struct arrow_slices *s, struct mr_column *c)
{
    const struct mr_column_builder *values =
        &arrow_dictionary_find(x->dictionaries, f->dictionary)->values;
    uint64_t *which = mr_try_alloc(product_of(c->count, sizeof *which) | 1);
    int rc = which ? values_find(x, f, s, c, values, which) : no_memory(x);

    rc = rc < 0 ? rc : valid_of_values(x, which, c);
    rc = rc < 0 ? rc : values_copy(x, f, values, which, c);
    mr_free(which);
    return rc;
}

/* ---- the whole ---- */

/* All rows are null: the batch has no data. */
static int nothing_read(struct arrow_reading *x, struct mr_column *c)
{
    uint64_t *begin = piece(x, c->count + 1, sizeof *begin);

    c->values = piece(x, 1, 1);
    if (!begin || !c->values) {
        return no_memory(x);
    }
    memset(begin, 0, (c->count + 1) * sizeof *begin);
    c->begin = begin;
    return MR_OK;
}

static int values_read(struct arrow_reading *x, const struct arrow_field *f,
                       const struct mr_field *to, const struct arrow_slices *s, struct mr_column *c)
{
    int rc;

    if (f->is_dictionary) {
        return indexes_read(x, f, s, c); /* its values have been checked */
    }
    switch (f->column) {
    case MR_COLUMN_LIST:
    case MR_COLUMN_FIXED_LIST: return lists_read(x, f, to, s, c);
    case MR_COLUMN_STRING:
    case MR_COLUMN_BINARY:
        rc = f->type == ARROW_NULL ? nothing_read(x, c)
             : arrow_is_view(f)    ? views_read(x, f, s, c)
                                   : strings_read(x, f, s, c);
        return rc == MR_OK && f->column == MR_COLUMN_STRING ? texts_check(x, c) : rc;
    default: return numbers_read(x, f, s, c);
    }
}

int arrow_column_read(struct arrow_reading *x, const struct arrow_field *f,
                      const struct mr_field *to, const struct arrow_slices *s,
                      struct mr_column *out)
{
    *out = (struct mr_column){0};
    for (size_t i = 0; i < s->len; i++) {
        const struct arrow_slice *slice = &s->at[i];
        int rc = slice->batch ? rows_are_there(f, slice->batch, slice->first, slice->count, x->err)
                              : MR_OK;
        if (rc < 0) {
            return rc;
        }
        if (__builtin_add_overflow(out->count, slice->count, &out->count)) {
            return no_memory(x);
        }
    }
    int rc = valid_read(x, f, s, out);
    return rc < 0 ? rc : values_read(x, f, to, s, out);
}

/* ---- columns that are wider in other files ---- */

static bool is_signed(enum mr_column_type t)
{
    return t >= MR_COLUMN_I8 && t <= MR_COLUMN_I64;
}

/* A little-endian integer of any width to a wider one, which holds all of its values. */
static void integer_widen(enum mr_column_type type, size_t from_bytes, const uint8_t *from,
                          size_t to_bytes, uint8_t *to)
{
    const bool is_below_0 = is_signed(type) && from[from_bytes - 1] >> 7;

    memcpy(to, from, from_bytes);
    memset(to + from_bytes, is_below_0 ? 0xff : 0, to_bytes - from_bytes);
}

static void real_widen(enum mr_column_type type, const uint8_t *from, size_t to_bytes, uint8_t *to)
{
    uint16_t half;
    float single;

    if (type == MR_COLUMN_F16) {
        memcpy(&half, from, sizeof half);
        single = mr_fp16_to_float(half);
    } else {
        memcpy(&single, from, sizeof single);
    }
    const double wide = single;
    memcpy(to, to_bytes == sizeof single ? (const void *)&single : (const void *)&wide, to_bytes);
}

int arrow_column_widen(struct arrow_reading *x, const struct arrow_field *f,
                       const struct mr_field *to, struct mr_column *c)
{
    for (; to->item; to = to->item, f = &f->items[0], c = c->item) {
    }
    const size_t have = mr_column_type_bytes(f->column);
    const size_t size = mr_column_type_bytes(to->type);
    if (have >= size || have == 0) {
        return MR_OK; /* equal types; others are not joined */
    }
    uint8_t *wide = piece(x, c->count, size);
    if (!wide) {
        return no_memory(x);
    }
    const uint8_t *from = c->values;
    for (uint64_t i = 0; i < c->count; i++) {
        if (f->column >= MR_COLUMN_F16 && f->column <= MR_COLUMN_F64) {
            real_widen(f->column, from + i * have, size, wide + i * size);
        } else {
            integer_widen(f->column, have, from + i * have, size, wide + i * size);
        }
    }
    c->values = wide;
    return MR_OK;
}
