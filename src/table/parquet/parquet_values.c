/* Values into pages: Parquet's PLAIN encoding.
 *
 * Values whose format in the file equals that in rows are not copied at once: the page remembers their range, which
 * grows while the next values are adjacent. A page that ends before they are copied is written from the rows' own
 * memory. */
#include "parquet.h"

static void near_add(struct parquet_leaf *l, const uint8_t *from, uint64_t bytes)
{
    if (l->near_bytes > 0 && l->near + l->near_bytes == from) {
        l->near_bytes += bytes;
        return;
    }
    parquet_values_settle(l);
    l->near = from;
    l->near_bytes = bytes;
}

void parquet_values_count_near(struct parquet_leaf *l)
{
    if (l->is_direct && l->near_bytes > 0) {
        parquet_stats_numbers(&l->stats, l->field->type, l->near, l->near_bytes / l->bytes);
    }
}

void parquet_values_settle(struct parquet_leaf *l)
{
    if (l->near_bytes > 0) {
        parquet_values_count_near(l);
        mr_buf_append(&l->values, l->near, l->near_bytes);
        l->near_bytes = 0;
    }
}

static void bools_add(struct parquet_leaf *l, const uint8_t *v, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++) {
        if (l->bit_count == 0) {
            mr_buf_char(&l->values, 0);
        }
        if (l->values.failed) {
            return;
        }
        l->values.ptr[l->values.len - 1] |= (char)((v[i] != 0) << l->bit_count);
        l->bit_count = (l->bit_count + 1) % 8;
    }
}

static void narrow_add(struct mr_buf *out, enum mr_column_type type, const void *values,
                       uint64_t first, uint64_t n)
{
    int32_t *to = (int32_t *)(void *)mr_buf_reserve(out, n * sizeof *to);

    if (!to) {
        return;
    }
#define WIDEN(t)                                                                                   \
    for (uint64_t i = 0; i < n; i++) {                                                             \
        to[i] = ((const t *)values)[first + i];                                                    \
    }
    if (type == MR_COLUMN_I8) {
        WIDEN(int8_t)
    } else if (type == MR_COLUMN_U8) {
        WIDEN(uint8_t)
    } else if (type == MR_COLUMN_I16) {
        WIDEN(int16_t)
    } else {
        WIDEN(uint16_t)
    }
#undef WIDEN
    out->len += n * sizeof *to;
}

static void decimals_add(struct mr_buf *out, const uint8_t *from, uint64_t n)
{
    char *to = mr_buf_reserve(out, n * 16);

    for (uint64_t i = 0; to && i < n; i++, from += 16, to += 16) {
        uint64_t half[2];
        memcpy(half, from, 16);
        half[0] = __builtin_bswap64(half[0]);
        half[1] = __builtin_bswap64(half[1]);
        memcpy(to, &half[1], 8);
        memcpy(to + 8, &half[0], 8);
    }
    out->len += to ? n * 16 : 0;
}

static void texts_add(struct parquet_leaf *l, const struct mr_column *c, uint64_t first, uint64_t n)
{
    for (uint64_t i = first; i < first + n; i++) {
        const mr_bytes v = mr_column_bytes(c, i);
        const uint32_t len = (uint32_t)v.len;
        if (v.len > INT32_MAX) {
            l->is_too_large = true;
            return;
        }
        parquet_stats_text(&l->stats, v.ptr, v.len);
        mr_buf_append(&l->values, &len, sizeof len);
        if (len > PARQUET_PAGE_MOST) { /* the page ends after it */
            l->near = v.ptr;
            l->near_bytes = len;
        } else {
            mr_buf_append(&l->values, v.ptr, len);
        }
    }
}

void parquet_values_add(struct parquet_leaf *l, const struct mr_column *c, uint64_t first,
                        uint64_t count)
{
    const enum mr_column_type type = l->field->type;

    if (count == 0) {
        return;
    }
    l->value_count += count;
    if (l->bytes == 0) {
        texts_add(l, c, first, count);
        return;
    }
    const uint8_t *from = (const uint8_t *)c->values + first * mr_column_type_bytes(type);
    if (l->is_direct) {
        near_add(l, from, count * l->bytes);
        return;
    }
    parquet_stats_numbers(&l->stats, type, from, count);
    if (type == MR_COLUMN_BOOL) {
        bools_add(l, from, count);
    } else if (type == MR_COLUMN_DECIMAL) {
        decimals_add(&l->values, from, count);
    } else {
        narrow_add(&l->values, type, c->values, first, count);
    }
}
