/* Statistics of a column chunk.
 *
 * Source: apache/parquet-format, parquet.thrift, Statistics and ColumnOrder (TYPE_ORDER). NaN does not count; a zero
 * of floats is -0 as the minimum and +0 as the maximum, as readers compare either way. Strings are cut to 64 bytes:
 * the cut minimum is still a lower bound, the cut maximum is increased in its last character. */
#include <float.h>
#include <math.h>

#include "parquet.h"

#define LANES 16

/* Lanes let the compiler compare several values at once. A comparison with NaN is false and has no effect. */
#define RANGE_OF(name, type, member, least, most)                                                  \
    static void name(struct parquet_stats *s, const type *v, uint64_t n)                           \
    {                                                                                              \
        type lo[LANES];                                                                            \
        type hi[LANES];                                                                            \
        uint64_t i = 0;                                                                            \
        for (int k = 0; k < LANES; k++) {                                                          \
            lo[k] = most;                                                                          \
            hi[k] = least;                                                                         \
        }                                                                                          \
        for (; n - i >= LANES; i += LANES) {                                                       \
            for (int k = 0; k < LANES; k++) {                                                      \
                lo[k] = v[i + k] < lo[k] ? v[i + k] : lo[k];                                       \
                hi[k] = v[i + k] > hi[k] ? v[i + k] : hi[k];                                       \
            }                                                                                      \
        }                                                                                          \
        for (; i < n; i++) {                                                                       \
            lo[0] = v[i] < lo[0] ? v[i] : lo[0];                                                   \
            hi[0] = v[i] > hi[0] ? v[i] : hi[0];                                                   \
        }                                                                                          \
        for (int k = 1; k < LANES; k++) {                                                          \
            lo[0] = lo[k] < lo[0] ? lo[k] : lo[0];                                                 \
            hi[0] = hi[k] > hi[0] ? hi[k] : hi[0];                                                 \
        }                                                                                          \
        if (lo[0] > hi[0]) {                                                                       \
            return;                                                                                \
        }                                                                                          \
        if (!s->has || lo[0] < s->min.member) {                                                    \
            s->min.member = lo[0];                                                                 \
        }                                                                                          \
        if (!s->has || hi[0] > s->max.member) {                                                    \
            s->max.member = hi[0];                                                                 \
        }                                                                                          \
        s->has = true;                                                                             \
    }
/* clang-format off */
RANGE_OF(range_i8, int8_t, i, INT8_MIN, INT8_MAX)
RANGE_OF(range_i16, int16_t, i, INT16_MIN, INT16_MAX)
RANGE_OF(range_i32, int32_t, i, INT32_MIN, INT32_MAX)
RANGE_OF(range_i64, int64_t, i, INT64_MIN, INT64_MAX)
RANGE_OF(range_u8, uint8_t, u, 0, UINT8_MAX)
RANGE_OF(range_u16, uint16_t, u, 0, UINT16_MAX)
RANGE_OF(range_u32, uint32_t, u, 0, UINT32_MAX)
RANGE_OF(range_u64, uint64_t, u, 0, UINT64_MAX)
RANGE_OF(range_f32, float, f, -INFINITY, INFINITY)
RANGE_OF(range_f64, double, d, -INFINITY, INFINITY)
/* clang-format on */

/* Half-precision numbers as integers of the same order; both zeros are 0. */
static void range_f16(struct parquet_stats *s, const uint16_t *v, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++) {
        const int16_t size = (int16_t)(v[i] & 0x7fff);
        if (size <= 0x7c00) {
            range_i16(s, &(int16_t){(int16_t)(v[i] & 0x8000 ? -size : size)}, 1);
        }
    }
}

static void range_decimal(struct parquet_stats *s, const uint8_t *v, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++) {
        __int128 x;
        memcpy(&x, v + 16 * i, sizeof x);
        if (!s->has || x < s->min.x) {
            s->min.x = x;
        }
        if (!s->has || x > s->max.x) {
            s->max.x = x;
        }
        s->has = true;
    }
}

void parquet_stats_numbers(struct parquet_stats *s, enum mr_column_type type, const void *values,
                           uint64_t n)
{
    switch (type) {
    case MR_COLUMN_I8: range_i8(s, values, n); break;
    case MR_COLUMN_I16: range_i16(s, values, n); break;
    case MR_COLUMN_I32:
    case MR_COLUMN_DATE: range_i32(s, values, n); break;
    case MR_COLUMN_I64:
    case MR_COLUMN_TIMESTAMP: range_i64(s, values, n); break;
    case MR_COLUMN_BOOL:
    case MR_COLUMN_U8: range_u8(s, values, n); break;
    case MR_COLUMN_U16: range_u16(s, values, n); break;
    case MR_COLUMN_U32: range_u32(s, values, n); break;
    case MR_COLUMN_U64: range_u64(s, values, n); break;
    case MR_COLUMN_F16: range_f16(s, values, n); break;
    case MR_COLUMN_F32: range_f32(s, values, n); break;
    case MR_COLUMN_F64: range_f64(s, values, n); break;
    case MR_COLUMN_DECIMAL: range_decimal(s, values, n); break;
    default: break;
    }
}

/* ---- strings ---- */

static int text_compare(const struct parquet_bound *b, const uint8_t *text, size_t len)
{
    const int order = memcmp(text, b->text, MR_MIN(len, (size_t)b->len));
    return order != 0 ? order : (len > b->len) - (len < b->len);
}

static void bound_set(struct parquet_bound *b, const uint8_t *text, size_t kept, bool is_whole)
{
    memcpy(b->text, text, kept);
    b->len = (uint8_t)kept;
    b->is_exact = is_whole;
}

void parquet_stats_text(struct parquet_stats *s, const uint8_t *text, size_t len)
{
    const size_t kept = MR_MIN(len, (size_t)PARQUET_STAT_BYTES);
    const bool is_whole = kept == len;
    const int low = s->has ? text_compare(&s->min, text, kept) : -1;
    const int high = s->has ? text_compare(&s->max, text, kept) : 1;

    /* Of strings with the same first 64 bytes, one that ends there is the smallest. */
    if (low < 0 || (low == 0 && is_whole)) {
        bound_set(&s->min, text, kept, is_whole);
    }
    if (high > 0 || (high == 0 && !is_whole)) {
        bound_set(&s->max, text, kept, is_whole);
    }
    s->has = true;
}

/* The length without an incomplete last character. */
static size_t whole_characters(const uint8_t *text, size_t len)
{
    size_t start = len;

    while (start > 0 && len - start < 4 && (text[start - 1] & 0xc0) == 0x80) {
        start--;
    }
    if (start == 0 || text[start - 1] < 0xc0) {
        return len;
    }
    const uint8_t lead = text[start - 1];
    const size_t want = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
    return len - start + 1 < want ? start - 1 : len;
}

/* Makes a cut bound larger than all strings that begin with it, by incrementing the last possible byte; in text only
 * ASCII, so that it stays valid. False: no such byte. */
static bool bound_raise(struct parquet_bound *b, bool is_text)
{
    const uint8_t limit = is_text ? 0x7f : 0xff;

    for (; b->len > 0; b->len--) {
        uint8_t *last = &b->text[b->len - 1];
        if (*last < limit) {
            (*last)++;
            return true;
        }
    }
    return false;
}

static void texts_write(struct parquet_thrift *t, const struct parquet_leaf *l)
{
    const bool is_text = l->field->type == MR_COLUMN_STRING;
    struct parquet_bound min = l->stats.min;
    struct parquet_bound max = l->stats.max;

    if (!min.is_exact && is_text) {
        min.len = (uint8_t)whole_characters(min.text, min.len);
    }
    const bool has_max = max.is_exact || bound_raise(&max, is_text);
    if (has_max) {
        parquet_thrift_bytes(t, 5, max.text, max.len);
    }
    parquet_thrift_bytes(t, 6, min.text, min.len);
    if (has_max) {
        parquet_thrift_bool(t, 7, max.is_exact);
    }
    parquet_thrift_bool(t, 8, min.is_exact);
}

/* ---- writing ---- */

/* The bound as a value of the file; returns its length. */
static size_t number_spell(const struct parquet_leaf *l, const struct parquet_bound *b, bool is_max,
                           uint8_t to[16])
{
    switch (l->field->type) {
    case MR_COLUMN_F32: {
        const float v = b->f == 0 ? (is_max ? 0.0f : -0.0f) : b->f;
        memcpy(to, &v, sizeof v);
        return sizeof v;
    }
    case MR_COLUMN_F64: {
        const double v = b->d == 0 ? (is_max ? 0.0 : -0.0) : b->d;
        memcpy(to, &v, sizeof v);
        return sizeof v;
    }
    case MR_COLUMN_F16: {
        const bool is_minus = b->i < 0 || (b->i == 0 && !is_max);
        const uint16_t v = (uint16_t)(is_minus ? 0x8000 | -b->i : b->i);
        memcpy(to, &v, sizeof v);
        return sizeof v;
    }
    case MR_COLUMN_DECIMAL:
        for (int i = 0; i < 16; i++) {
            to[i] = (uint8_t)(b->x >> 8 * (15 - i));
        }
        return 16;
    default: break;
    }
    memcpy(to, &b->i, sizeof b->i);
    return l->type == PARQUET_BOOLEAN ? 1 : l->type == PARQUET_INT32 ? 4 : 8;
}

void parquet_stats_write(struct parquet_thrift *t, int16_t id, const struct parquet_leaf *l)
{
    uint8_t value[16];

    parquet_thrift_begin(t, id);
    parquet_thrift_i64(t, 3, (int64_t)(l->chunk_entries - l->chunk_values));
    if (l->stats.has && l->type == PARQUET_BYTE_ARRAY) {
        texts_write(t, l);
    } else if (l->stats.has) {
        parquet_thrift_bytes(t, 5, value, number_spell(l, &l->stats.max, true, value));
        parquet_thrift_bytes(t, 6, value, number_spell(l, &l->stats.min, false, value));
        parquet_thrift_bool(t, 7, true);
        parquet_thrift_bool(t, 8, true);
    }
    parquet_thrift_end(t);
}
