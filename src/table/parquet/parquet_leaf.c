/* From rows to pages: repetition and definition levels.
 *
 * Source: the record shredding of the Dremel paper, in the layout of apache/parquet-format, LogicalTypes.md, "Lists": a
 * list is a group of three levels. An entry of a page stands for a value, a null or an empty list. Its repetition
 * level says which list it continues, its definition level how many levels of the path are present.
 *
 * The common case is fast: if all lists are fixed and nothing is null ("regular" rows), the levels of a page follow
 * from the number of rows alone. They are made when the page ends, and kept for the next one with the same number of
 * rows. */
#include <stdlib.h>

#include "parquet.h"

static const struct {
    enum parquet_type type;
    uint8_t bytes; /* of a value in a page, 0 = strings; BOOL counts as one */
    bool is_direct;
} physical[MR_COLUMN_TYPES] = {
    [MR_COLUMN_BOOL] = {PARQUET_BOOLEAN, 1, false},
    [MR_COLUMN_I8] = {PARQUET_INT32, 4, false},
    [MR_COLUMN_I16] = {PARQUET_INT32, 4, false},
    [MR_COLUMN_I32] = {PARQUET_INT32, 4, true},
    [MR_COLUMN_I64] = {PARQUET_INT64, 8, true},
    [MR_COLUMN_U8] = {PARQUET_INT32, 4, false},
    [MR_COLUMN_U16] = {PARQUET_INT32, 4, false},
    [MR_COLUMN_U32] = {PARQUET_INT32, 4, true},
    [MR_COLUMN_U64] = {PARQUET_INT64, 8, true},
    [MR_COLUMN_F16] = {PARQUET_FIXED_LEN_BYTE_ARRAY, 2, true},
    [MR_COLUMN_F32] = {PARQUET_FLOAT, 4, true},
    [MR_COLUMN_F64] = {PARQUET_DOUBLE, 8, true},
    [MR_COLUMN_DATE] = {PARQUET_INT32, 4, true},
    [MR_COLUMN_TIMESTAMP] = {PARQUET_INT64, 8, true},
    [MR_COLUMN_DECIMAL] = {PARQUET_FIXED_LEN_BYTE_ARRAY, 16, false},
    [MR_COLUMN_STRING] = {PARQUET_BYTE_ARRAY, 0, false},
    [MR_COLUMN_BINARY] = {PARQUET_BYTE_ARRAY, 0, false},
};

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "values go to the file as they are");

/* ---- making ---- */

static int leaf_init(struct parquet_leaf *l, const struct mr_field *f, struct mr_err *err)
{
    const char *name = f->name;
    unsigned def = 0;

    l->fixed_items = 1;
    for (;; f = f->item) {
        l->path[l->depth] = f;
        l->def[l->depth] = (uint8_t)def;
        def += f->is_nullable;
        if (!f->item) {
            break;
        }
        def++;
        const uint64_t width = f->type == MR_COLUMN_FIXED_LIST ? f->width : 0;
        if (__builtin_mul_overflow(l->fixed_items, width, &l->fixed_items)) {
            return MR_FAIL(err, MR_E_UNSUPPORTED, "column '%s': its lists are too wide", name);
        }
        if (++l->depth > MR_FIELD_DEPTH) {
            return MR_FAIL(err, MR_E_UNSUPPORTED,
                           "column '%s' has more than %d lists in each other", name,
                           MR_FIELD_DEPTH);
        }
    }
    if (f->type <= MR_COLUMN_NONE || f->type >= MR_COLUMN_LIST) {
        return MR_FAIL(err, MR_E_UNSUPPORTED, "column '%s' has no type that Parquet has", name);
    }
    if (f->type == MR_COLUMN_DECIMAL &&
        (f->precision < 1 || f->precision > 38 || f->scale > f->precision)) {
        return MR_FAIL(err, MR_E_UNSUPPORTED,
                       "column '%s': a decimal of %u digits, %u of them after the point", name,
                       f->precision, f->scale);
    }
    l->def_most = (uint8_t)def;
    l->field = f;
    l->type = physical[f->type].type;
    l->bytes = physical[f->type].bytes;
    l->is_direct = physical[f->type].is_direct;
    if (l->bytes > 0 && l->fixed_items > PARQUET_PAGE_MOST / l->bytes) {
        l->fixed_items = 0; /* such rows are split over pages */
    }
    return MR_OK;
}

int parquet_leaves_new(struct parquet_writer *w, struct mr_err *err)
{
    int rc = MR_OK;

    w->leaf_count = w->schema->count;
    w->leaves = MR_NEW_ARRAY(struct parquet_leaf, MR_MAX(w->leaf_count, (size_t)1));
    for (size_t i = 0; i < w->leaf_count && rc == MR_OK; i++) {
        struct parquet_leaf *l = &w->leaves[i];
        l->column = i;
        rc = leaf_init(l, &w->schema->fields[i], err);
        parquet_levels_init(&l->rep, l->depth);
        parquet_levels_init(&l->levels_def, l->def_most);
        mr_buf_init(&l->values, INT32_MAX);
        mr_buf_init(&l->regular_rep, INT32_MAX);
        l->held_end = &l->held;
    }
    return rc;
}

void parquet_leaves_free(struct parquet_writer *w)
{
    for (size_t i = 0; i < w->leaf_count; i++) {
        struct parquet_leaf *l = &w->leaves[i];
        parquet_held_drop(l);
        parquet_levels_fini(&l->rep);
        parquet_levels_fini(&l->levels_def);
        mr_buf_fini(&l->values);
        mr_buf_fini(&l->regular_rep);
    }
    mr_freep(&w->leaves);
}

/* ---- weighing ---- */

uint64_t parquet_leaf_weight(const struct parquet_leaf *l, const struct mr_rows *rows,
                             uint64_t first, uint64_t count)
{
    const struct mr_column *c = &rows->columns[l->column];
    uint64_t levels = count / 8;

    for (unsigned i = 0; i < l->depth && count > 0; i++, c = c->item) {
        if (l->path[i]->type == MR_COLUMN_FIXED_LIST) {
            first *= l->path[i]->width;
            count *= l->path[i]->width;
        } else {
            const uint64_t end = c->begin[first + count];
            first = c->begin[first];
            count = end - first;
        }
    }
    if (count == 0) {
        return levels;
    }
    return levels + (l->bytes > 0
                         ? count * l->bytes
                         : count * sizeof(uint32_t) + c->begin[first + count] - c->begin[first]);
}

/* The number of rows from `first` on, of `count`, whose bytes are at most `most`; at least one. */
static uint64_t rows_within(const struct parquet_leaf *l, const struct mr_rows *rows,
                            uint64_t first, uint64_t count, uint64_t most)
{
    uint64_t low = 1;

    if (parquet_leaf_weight(l, rows, first, count) <= most) {
        return count;
    }
    for (uint64_t high = count; high - low > 1;) {
        const uint64_t middle = low + (high - low) / 2;
        if (parquet_leaf_weight(l, rows, first, middle) <= most) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return low;
}

/* ---- levels ---- */

static void levels_add(struct parquet_leaf *l, unsigned rep, unsigned next_rep, unsigned def,
                       uint64_t n)
{
    parquet_levels_add(&l->rep, (uint8_t)rep, 1);
    if (n > 1) {
        parquet_levels_add(&l->rep, (uint8_t)next_rep, n - 1);
    }
    parquet_levels_add(&l->levels_def, (uint8_t)def, n);
    l->entries += n;
}

/* Adds values that are not null. A row too large for a page continues in the next one. */
static int values_put(struct parquet_writer *w, struct parquet_leaf *l, const struct mr_column *c,
                      uint64_t first, uint64_t count, unsigned rep, struct mr_err *err)
{
    while (count > 0) {
        uint64_t n = l->bytes > 0 ? MR_MIN(count, PARQUET_PAGE_MOST / l->bytes) : 1;
        for (uint64_t bytes = 0; l->bytes == 0 && n < count; n++) {
            bytes = c->begin[first + n + 1] - c->begin[first];
            if (bytes > PARQUET_PAGE_MOST) {
                break;
            }
        }
        levels_add(l, rep, l->depth, l->def_most, n);
        parquet_values_add(l, c, first, n);
        if (parquet_page_bytes(l) >= PARQUET_PAGE_MOST) {
            int rc = parquet_page_end(w, l, err);
            if (rc < 0) {
                return rc;
            }
        }
        first += n;
        count -= n;
        rep = l->depth;
    }
    return MR_OK;
}

static uint64_t run_of(const struct mr_column *c, uint64_t at, uint64_t end, bool is_null)
{
    const uint64_t first = at;

    while (at < end && mr_column_is_null(c, at) == is_null) {
        at++;
    }
    return at - first;
}

static int leaf_put(struct parquet_writer *w, struct parquet_leaf *l, const struct mr_column *c,
                    uint64_t first, uint64_t count, unsigned rep, struct mr_err *err)
{
    const uint64_t end = first + count;
    int rc = MR_OK;

    if (c->nulls == 0) {
        return values_put(w, l, c, first, count, rep, err);
    }
    while (first < end && rc == MR_OK) {
        const bool is_null = mr_column_is_null(c, first);
        const uint64_t n = run_of(c, first, end, is_null);
        if (is_null) {
            levels_add(l, rep, l->depth, l->def[l->depth], n);
        } else {
            rc = values_put(w, l, c, first, n, rep, err);
        }
        first += n;
        rep = l->depth;
    }
    return rc;
}

/* Adds entries [first, first + count) of the column `level` lists down; the first of them has the repetition level
 * `rep`. Recursion ends at MR_FIELD_DEPTH. */
static int entries_put(struct parquet_writer *w, struct parquet_leaf *l, const struct mr_column *c,
                       unsigned level, uint64_t first, uint64_t count, unsigned rep,
                       struct mr_err *err)
{
    const struct mr_field *f = l->path[level];
    int rc = MR_OK;

    if (level == l->depth) {
        return leaf_put(w, l, c, first, count, rep, err);
    }
    for (uint64_t i = first; i < first + count && rc == MR_OK; i++, rep = level) {
        const bool is_fixed = f->type == MR_COLUMN_FIXED_LIST;
        const uint64_t begin = is_fixed ? i * f->width : c->begin[i];
        const uint64_t n = is_fixed ? f->width : c->begin[i + 1] - begin;
        if (mr_column_is_null(c, i)) {
            levels_add(l, rep, rep, l->def[level], 1);
        } else if (n == 0) {
            levels_add(l, rep, rep, l->def[level] + f->is_nullable, 1);
        } else {
            rc = entries_put(w, l, c->item, level + 1, begin, n, rep, err);
        }
    }
    return rc;
}

/* ---- rows ---- */

/* The levels of one regular row. */
static void regular_levels(struct parquet_leaf *l, unsigned level, unsigned rep)
{
    const uint64_t width = level < l->depth ? l->path[level]->width : 1;

    if (level + 1 >= l->depth) {
        parquet_levels_add(&l->rep, (uint8_t)rep, 1);
        if (width > 1) {
            parquet_levels_add(&l->rep, (uint8_t)(level + 1), width - 1);
        }
        return;
    }
    for (uint64_t i = 0; i < width; i++) {
        regular_levels(l, level + 1, i == 0 ? rep : level + 1);
    }
}

void parquet_regular_spell(struct parquet_leaf *l)
{
    for (; l->regular > 0; l->regular--) {
        regular_levels(l, 0, 0);
        parquet_levels_add(&l->levels_def, l->def_most, l->fixed_items);
    }
}

/* The column of the leaf if its rows have no nulls at any level and fixed_items values each; otherwise NULL. */
static const struct mr_column *regular_column(const struct parquet_leaf *l,
                                              const struct mr_rows *rows)
{
    const struct mr_column *c = &rows->columns[l->column];

    if (l->fixed_items == 0 || l->bytes == 0) {
        return NULL;
    }
    for (unsigned i = 0; i < l->depth && c->nulls == 0; i++) {
        c = c->item;
    }
    return c->nulls == 0 ? c : NULL;
}

int parquet_leaf_put(struct parquet_writer *w, struct parquet_leaf *l, const struct mr_rows *rows,
                     uint64_t first, uint64_t count, struct mr_err *err)
{
    const struct mr_column *regular = regular_column(l, rows);
    int rc = MR_OK;

    while (count > 0 && rc == MR_OK) {
        const uint64_t used = parquet_page_bytes(l);
        const uint64_t n = rows_within(l, rows, first, count,
                                       used < PARQUET_PAGE_BYTES ? PARQUET_PAGE_BYTES - used : 0);
        if (regular && l->entries == l->regular * l->fixed_items) {
            l->regular += n;
            l->entries += n * l->fixed_items;
            parquet_values_add(l, regular, first * l->fixed_items, n * l->fixed_items);
        } else {
            parquet_regular_spell(l);
            rc = entries_put(w, l, &rows->columns[l->column], 0, first, n, 0, err);
        }
        first += n;
        count -= n;
        if (rc == MR_OK && (count > 0 || parquet_page_bytes(l) >= PARQUET_PAGE_BYTES)) {
            rc = parquet_page_end(w, l, err);
        }
    }
    if (rc == MR_OK && l == w->streamed && l->values.len == 0 &&
        l->near_bytes >= PARQUET_PAGE_BYTES / 4) {
        rc = parquet_page_end(w, l, err);
    }
    parquet_values_settle(l);
    return rc;
}
