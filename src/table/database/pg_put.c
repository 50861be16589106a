/* Writing values of PostgreSQL in its binary format. Numbers are big-endian; each value follows its length. */
#include <endian.h>
#include <string.h>

#include "base/mem.h"
#include "pg_value.h"
#include "table/values/values.h"
#include "tensor/tensor.h"

#define VALUE_MOST ((uint64_t)1 << 30) /* PostgreSQL's limit of a field */

/* ---- types ---- */

/* Nested lists are arrays of several dimensions if the inner lists have fixed lengths; otherwise JSON. */
static bool is_json(const struct mr_field *f)
{
    for (f = f->item; f && f->item; f = f->item) {
        if (f->type == MR_COLUMN_LIST) {
            return true;
        }
    }
    return false;
}

static const struct mr_field *leaf_of(const struct mr_field *f)
{
    while (f->item) {
        f = f->item;
    }
    return f;
}

static bool is_among(unsigned type, const unsigned *types)
{
    for (; *types; types++) {
        if (*types == type) {
            return true;
        }
    }
    return false;
}

static bool takes_scalar(unsigned type, enum mr_column_type from)
{
    static const unsigned types[MR_COLUMN_TYPES][5] = {
        [MR_COLUMN_BOOL] = {PG_BOOL},
        [MR_COLUMN_I8] = {PG_INT2, PG_INT4, PG_INT8, PG_NUMERIC},
        [MR_COLUMN_U8] = {PG_INT2, PG_INT4, PG_INT8, PG_NUMERIC},
        [MR_COLUMN_I16] = {PG_INT2, PG_INT4, PG_INT8, PG_NUMERIC},
        [MR_COLUMN_U16] = {PG_INT4, PG_INT8, PG_NUMERIC},
        [MR_COLUMN_I32] = {PG_INT4, PG_INT8, PG_NUMERIC},
        [MR_COLUMN_U32] = {PG_INT8, PG_NUMERIC},
        [MR_COLUMN_I64] = {PG_INT8, PG_NUMERIC},
        [MR_COLUMN_U64] = {PG_NUMERIC},
        [MR_COLUMN_F16] = {PG_FLOAT4, PG_FLOAT8},
        [MR_COLUMN_F32] = {PG_FLOAT4, PG_FLOAT8},
        [MR_COLUMN_F64] = {PG_FLOAT8},
        [MR_COLUMN_DATE] = {PG_DATE},
        [MR_COLUMN_TIMESTAMP] = {PG_TIMESTAMPTZ, PG_TIMESTAMP},
        [MR_COLUMN_DECIMAL] = {PG_NUMERIC},
        [MR_COLUMN_STRING] = {PG_TEXT, PG_VARCHAR},
        [MR_COLUMN_BINARY] = {PG_BYTEA},
    };
    return is_among(type, types[from]);
}

/* PostgreSQL silently rounds values with more decimals than the column. */
static bool takes_places(unsigned type, int mod, const struct mr_field *leaf)
{
    const int scale = leaf->type == MR_COLUMN_DECIMAL ? leaf->scale : 0;

    switch (type) {
    case PG_NUMERIC:
        return mod < 4 || (mr_pg_scale(mod) >= scale &&
                           (leaf->type != MR_COLUMN_DECIMAL ||
                            mr_pg_precision(mod) - mr_pg_scale(mod) >= leaf->precision - scale));
    case PG_TIMESTAMP:
    case PG_TIMESTAMPTZ: return mod < 0 || mod >= 6;
    default: return true;
    }
}

bool mr_pg_takes(unsigned type, int mod, const struct mr_field *f)
{
    const struct mr_field *leaf = leaf_of(f);
    const unsigned scalar = f->item ? mr_pg_item_of(type) : type;

    if (is_json(f)) {
        return type == PG_JSONB;
    }
    return takes_scalar(scalar, leaf->type) && takes_places(scalar, mod, leaf);
}

void mr_pg_put_type(struct mr_buf *b, const struct mr_field *f)
{
    static const char *const names[MR_COLUMN_TYPES] = {
        [MR_COLUMN_BOOL] = "boolean",    [MR_COLUMN_I8] = "smallint",
        [MR_COLUMN_U8] = "smallint",     [MR_COLUMN_I16] = "smallint",
        [MR_COLUMN_U16] = "integer",     [MR_COLUMN_I32] = "integer",
        [MR_COLUMN_U32] = "bigint",      [MR_COLUMN_I64] = "bigint",
        [MR_COLUMN_U64] = "numeric",     [MR_COLUMN_F16] = "real",
        [MR_COLUMN_F32] = "real",        [MR_COLUMN_F64] = "double precision",
        [MR_COLUMN_DATE] = "date",       [MR_COLUMN_TIMESTAMP] = "timestamp with time zone",
        [MR_COLUMN_DECIMAL] = "numeric", [MR_COLUMN_STRING] = "text",
        [MR_COLUMN_BINARY] = "bytea",
    };

    if (is_json(f)) {
        MR_BUF_LIT(b, "jsonb");
        return;
    }
    const struct mr_field *leaf = leaf_of(f);
    mr_buf_c(b, names[leaf->type] ? names[leaf->type] : "text");
    if (leaf->type == MR_COLUMN_DECIMAL) {
        mr_buf_printf(b, "(%u,%u)", leaf->precision, leaf->scale);
    }
    mr_buf_c(b, f->item ? "[]" : "");
}

/* ---- numbers ---- */

static void put16(struct mr_buf *b, uint16_t v)
{
    v = htobe16(v);
    mr_buf_append(b, &v, sizeof v);
}

static void put32(struct mr_buf *b, uint32_t v)
{
    v = htobe32(v);
    mr_buf_append(b, &v, sizeof v);
}

static void put64(struct mr_buf *b, uint64_t v)
{
    v = htobe64(v);
    mr_buf_append(b, &v, sizeof v);
}

#define NUMBER(type) (((const type *)c->values)[row])

static __int128 whole_of(enum mr_column_type type, const struct mr_column *c, uint64_t row)
{
    __int128 wide;

    switch (type) {
    case MR_COLUMN_I8: return NUMBER(int8_t);
    case MR_COLUMN_U8: return NUMBER(uint8_t);
    case MR_COLUMN_I16: return NUMBER(int16_t);
    case MR_COLUMN_U16: return NUMBER(uint16_t);
    case MR_COLUMN_I32: return NUMBER(int32_t);
    case MR_COLUMN_U32: return NUMBER(uint32_t);
    case MR_COLUMN_I64: return NUMBER(int64_t);
    case MR_COLUMN_U64: return NUMBER(uint64_t);
    default: memcpy(&wide, (const char *)c->values + row * sizeof wide, sizeof wide); return wide;
    }
}

static double real_of(enum mr_column_type type, const struct mr_column *c, uint64_t row)
{
    return type == MR_COLUMN_F16   ? (double)mr_fp16_to_float(NUMBER(uint16_t))
           : type == MR_COLUMN_F32 ? (double)NUMBER(float)
                                   : NUMBER(double);
}

/* In digits of base 10,000 on both sides of the point. */
static void numeric_put(struct mr_buf *b, __int128 v, int scale)
{
    char digits[48]; /* the last one first */
    int count = 0;

    for (unsigned __int128 rest = v < 0 ? 0 - (unsigned __int128)v : (unsigned __int128)v; rest > 0;
         rest /= 10) {
        digits[count++] = (char)(rest % 10);
    }
    const int low = -((scale + 3) / 4);
    const int last = count - 1 - scale; /* the weight of the first digit: 0 = ones */
    const int high = last >= 0 ? last / 4 : -((3 - last) / 4);
    const int groups = count > 0 ? high - low + 1 : 0;

    put32(b, (uint32_t)(8 + 2 * groups));
    put16(b, (uint16_t)groups);
    put16(b, (uint16_t)(groups > 0 ? high : 0));
    put16(b, v < 0 ? 0x4000 : 0);
    put16(b, (uint16_t)scale);
    for (int g = high; g >= low && groups > 0; g--) {
        unsigned group = 0;
        for (int k = 3; k >= 0; k--) {
            const int at = 4 * g + k + scale;
            group = 10 * group + (at >= 0 && at < count ? (unsigned)digits[at] : 0);
        }
        put16(b, (uint16_t)group);
    }
}

static void real_put(struct mr_buf *b, unsigned type, double v)
{
    const float narrow = (float)v;
    uint32_t bits;
    uint64_t wide;

    put32(b, type == PG_FLOAT4 ? 4 : 8);
    if (type == PG_FLOAT4) {
        memcpy(&bits, &narrow, sizeof bits);
        put32(b, bits);
    } else {
        memcpy(&wide, &v, sizeof wide);
        put64(b, wide);
    }
}

/* ---- values ---- */

static int bytes_put(struct mr_buf *b, const struct mr_field *f, mr_bytes bytes, struct mr_err *err)
{
    if (bytes.len >= VALUE_MOST) {
        return MR_FAIL(err, MR_E_TOO_LARGE, "column '%s': a value of %zu bytes", f->name,
                       bytes.len);
    }
    put32(b, (uint32_t)bytes.len);
    mr_buf_append(b, bytes.ptr, bytes.len);
    return MR_OK;
}

static int scalar_put(struct mr_buf *b, unsigned type, const struct mr_field *f,
                      const struct mr_column *c, uint64_t row, struct mr_err *err)
{
    switch (type) {
    case PG_BOOL:
        put32(b, 1);
        mr_buf_char(b, (char)NUMBER(uint8_t));
        return MR_OK;
    case PG_INT2:
        put32(b, 2);
        put16(b, (uint16_t)whole_of(f->type, c, row));
        return MR_OK;
    case PG_INT4:
        put32(b, 4);
        put32(b, (uint32_t)whole_of(f->type, c, row));
        return MR_OK;
    case PG_INT8:
        put32(b, 8);
        put64(b, (uint64_t)whole_of(f->type, c, row));
        return MR_OK;
    case PG_NUMERIC:
        numeric_put(b, whole_of(f->type, c, row), f->type == MR_COLUMN_DECIMAL ? f->scale : 0);
        return MR_OK;
    case PG_FLOAT4:
    case PG_FLOAT8: real_put(b, type, real_of(f->type, c, row)); return MR_OK;
    case PG_DATE:
        put32(b, 4);
        put32(b, (uint32_t)(NUMBER(int32_t) - PG_EPOCH_DAYS));
        return MR_OK;
    case PG_TIMESTAMP:
    case PG_TIMESTAMPTZ:
        put32(b, 8);
        put64(b, (uint64_t)NUMBER(int64_t) - (uint64_t)PG_EPOCH_US);
        return MR_OK;
    default: return bytes_put(b, f, mr_column_bytes(c, row), err);
    }
}

/* An array: its dimensions from the outermost one, then the innermost values, which are contiguous. */
static int array_put(struct mr_buf *b, unsigned item, const struct mr_field *f,
                     const struct mr_column *c, uint64_t row, struct mr_err *err)
{
    uint64_t begin = f->type == MR_COLUMN_LIST ? c->begin[row] : row * f->width;
    uint64_t end = f->type == MR_COLUMN_LIST ? c->begin[row + 1] : begin + f->width;
    const size_t at = b->len;
    uint64_t widths[MR_FIELD_DEPTH + 1] = {end - begin};
    uint32_t dims = 1;
    int rc = MR_OK;

    for (f = f->item, c = c->item; f->item; f = f->item, c = c->item) {
        widths[dims++] = f->width;
        begin *= f->width;
        end *= f->width;
    }
    put32(b, 0); /* room for its length */
    put32(b, end > begin ? dims : 0);
    put32(b, c->nulls > 0);
    put32(b, item);
    for (uint32_t i = 0; i < dims && end > begin; i++) {
        put32(b, (uint32_t)widths[i]);
        put32(b, 1);
    }
    for (uint64_t i = begin; i < end && rc == MR_OK && !b->failed; i++) {
        if (mr_column_is_null(c, i)) {
            put32(b, UINT32_MAX);
        } else {
            rc = scalar_put(b, item, f, c, i, err);
        }
    }
    if (rc == MR_OK && !b->failed) {
        const uint32_t len = htobe32((uint32_t)(b->len - at - 4));
        rc = b->len - at - 4 < VALUE_MOST
                 ? MR_OK
                 : MR_FAIL(err, MR_E_TOO_LARGE, "column '%s': a list of %zu bytes", f->name,
                           b->len - at);
        memcpy(b->ptr + at, &len, sizeof len);
    }
    return rc;
}

static int json_put(struct mr_buf *b, const struct mr_field *f, const struct mr_column *c,
                    uint64_t row)
{
    const size_t at = b->len;

    put32(b, 0);
    mr_buf_char(b, 1);                /* the version of the format; text follows */
    mr_put_json_strict(b, f, c, row); /* PostgreSQL requires strict JSON */
    if (!b->failed) {
        const uint32_t len = htobe32((uint32_t)(b->len - at - 4));
        memcpy(b->ptr + at, &len, sizeof len);
    }
    return MR_OK;
}

int mr_pg_put(struct mr_buf *b, unsigned type, const struct mr_field *f, const struct mr_column *c,
              uint64_t row, struct mr_err *err)
{
    if (mr_column_is_null(c, row)) {
        put32(b, UINT32_MAX);
        return MR_OK;
    }
    int rc = type == PG_JSONB ? json_put(b, f, c, row)
             : f->item        ? array_put(b, mr_pg_item_of(type), f, c, row, err)
                              : scalar_put(b, type, f, c, row, err);
    return rc == MR_OK && b->failed
               ? MR_FAIL(err, MR_E_TOO_LARGE, "column '%s': a row of more than 1 GiB", f->name)
               : rc;
}
