/* Reading values of PostgreSQL in its binary format. Numbers are big-endian.
 *
 * The server's data is checked like all outside data: lengths before use, counts against the available bytes. */
#include "pg_value.h"

#include <endian.h>
#include <string.h>

#include "base/mem.h"
#include "database.h"
#include "table/values/values.h"

#define ARRAY_DIMS 6 /* PostgreSQL's limit */

/* ---- types ---- */

static enum mr_column_type type_of(unsigned type)
{
    switch (type) {
    case PG_BOOL: return MR_COLUMN_BOOL;
    case PG_INT2: return MR_COLUMN_I16;
    case PG_INT4: return MR_COLUMN_I32;
    case PG_INT8: return MR_COLUMN_I64;
    case PG_OID: return MR_COLUMN_U32;
    case PG_FLOAT4: return MR_COLUMN_F32;
    case PG_FLOAT8: return MR_COLUMN_F64;
    case PG_BYTEA: return MR_COLUMN_BINARY;
    case PG_DATE: return MR_COLUMN_DATE;
    case PG_TIMESTAMP:
    case PG_TIMESTAMPTZ: return MR_COLUMN_TIMESTAMP;
    case PG_TEXT:
    case PG_VARCHAR:
    case PG_BPCHAR:
    case PG_JSON: return MR_COLUMN_STRING;
    default: return MR_COLUMN_NONE;
    }
}

/* numeric(precision, scale) with a supported number of digits. */
static bool decimal_of(int mod, struct mr_field *out)
{
    const int precision = mod < 4 ? 0 : mr_pg_precision(mod);
    const int scale = mod < 4 ? 0 : mr_pg_scale(mod);

    if (precision < 1 || precision > 38 || scale < 0 || scale > precision) {
        return false;
    }
    out->type = MR_COLUMN_DECIMAL;
    out->precision = (uint8_t)precision;
    out->scale = (uint8_t)scale;
    return true;
}

bool mr_pg_field_of(const char *name, unsigned type, int mod, struct mr_field *out)
{
    const unsigned item = mr_pg_item_of(type);
    struct mr_field f = {.name = (char *)(uintptr_t)name, .is_nullable = true};
    struct mr_field element = {.name = (char *)(uintptr_t) "element", .is_nullable = true};

    f.type = type_of(type);
    if (type == PG_NUMERIC && !decimal_of(mod, &f)) {
        return false;
    }
    if (item) {
        element.type = type_of(item);
        if (element.type == MR_COLUMN_NONE) {
            return false;
        }
        f.type = MR_COLUMN_LIST;
        f.item = &element;
    }
    if (f.type == MR_COLUMN_NONE) {
        return false;
    }
    mr_field_copy(out, &f);
    return true;
}

/* ---- numbers ---- */

static uint16_t get16(const char *p)
{
    uint16_t v;
    memcpy(&v, p, sizeof v);
    return be16toh(v);
}

static uint32_t get32(const char *p)
{
    uint32_t v;
    memcpy(&v, p, sizeof v);
    return be32toh(v);
}

static uint64_t get64(const char *p)
{
    uint64_t v;
    memcpy(&v, p, sizeof v);
    return be64toh(v);
}

static float float_of(uint32_t bits)
{
    float v;
    memcpy(&v, &bits, sizeof v);
    return v;
}

static double double_of(uint64_t bits)
{
    double v;
    memcpy(&v, &bits, sizeof v);
    return v;
}

static size_t bytes_of(unsigned type)
{
    switch (type) {
    case PG_BOOL: return 1;
    case PG_INT2: return 2;
    case PG_INT4:
    case PG_OID:
    case PG_FLOAT4:
    case PG_DATE: return 4;
    case PG_INT8:
    case PG_FLOAT8:
    case PG_TIMESTAMP:
    case PG_TIMESTAMPTZ: return 8;
    default: return 0;
    }
}

/* Adds a value of bytes_of() bytes. */
static bool number_add(struct mr_column_builder *b, unsigned type, const char *p)
{
    switch (type) {
    case PG_BOOL: return mr_cell_whole(b, *p != 0);
    case PG_INT2: return mr_cell_whole(b, (int16_t)get16(p));
    case PG_INT4: return mr_cell_whole(b, (int32_t)get32(p));
    case PG_OID: return mr_cell_whole(b, get32(p));
    case PG_INT8: return mr_cell_whole(b, (int64_t)get64(p));
    case PG_FLOAT4: return mr_cell_real(b, (double)float_of(get32(p)));
    default: return mr_cell_real(b, double_of(get64(p)));
    }
}

/* ---- times ---- */

static const char *date_add(struct mr_column_builder *b, int32_t days)
{
    const int64_t since_1970 = (int64_t)days + PG_EPOCH_DAYS;

    if (days == INT32_MAX || days == INT32_MIN || since_1970 > INT32_MAX) {
        return "the date is infinite, or too far away";
    }
    mr_column_add(b, &(int32_t){(int32_t)since_1970});
    return NULL;
}

static const char *timestamp_add(struct mr_column_builder *b, int64_t us)
{
    int64_t since_1970;

    if (us == INT64_MAX || us == INT64_MIN ||
        __builtin_add_overflow(us, PG_EPOCH_US, &since_1970)) {
        return "the timestamp is infinite, or too far away";
    }
    mr_column_add(b, &since_1970);
    return NULL;
}

/* ---- numerics ---- */

/* Digits of base 10,000: their number, the weight of the first, a sign, the number of displayed decimals. */
static const char *numeric_add(struct mr_column_builder *b, mr_str value)
{
    static const char wrong[] = "the number is no decimal of that size";
    const int scale = b->field->scale;
    __int128 v = 0;
    __int128 most = 1;

    if (value.len < 8) {
        return wrong;
    }
    const int count = (int16_t)get16(value.ptr);
    const int weight = (int16_t)get16(value.ptr + 2);
    const unsigned sign = get16(value.ptr + 4);
    if (count < 0 || value.len != 8 + 2 * (size_t)count || (sign != 0 && sign != 0x4000)) {
        return sign == 0xc000 ? "the number is NaN" : wrong;
    }
    for (int i = 0; i < b->field->precision; i++) {
        most *= 10;
    }
    /* Digit by digit, down to the last one of the scale; all further ones are zero, by the type. */
    for (int place = 4 * weight + 3; place >= -scale; place--) {
        const int index = weight - (place >= 0 ? place / 4 : -((3 - place) / 4));
        unsigned digit = index < count ? get16(value.ptr + 8 + 2 * index) : 0;
        for (int k = place >= 0 ? place % 4 : 3 - (-place - 1) % 4; k > 0; k--) {
            digit /= 10;
        }
        if (v > most / 10) {
            return wrong;
        }
        v = v * 10 + digit % 10;
        if (v >= most) {
            return wrong;
        }
    }
    v = sign ? -v : v;
    mr_column_add(b, &v);
    return NULL;
}

/* ---- arrays ---- */

/* Number of items; -1: not a valid array. */
static int64_t array_head(mr_str value, unsigned item, size_t *out_begin)
{
    const uint32_t dims = value.len >= 12 ? get32(value.ptr) : UINT32_MAX;
    uint64_t count = 1;

    if (dims > ARRAY_DIMS || value.len < 12 + 8 * (size_t)dims || get32(value.ptr + 8) != item) {
        return -1;
    }
    *out_begin = 12 + 8 * (size_t)dims;
    for (uint32_t i = 0; i < dims; i++) {
        const uint32_t n = get32(value.ptr + 12 + 8 * i);
        if (__builtin_mul_overflow(count, (uint64_t)n, &count)) {
            return -1;
        }
    }
    count = dims > 0 ? count : 0;
    return count <= (value.len - *out_begin) / 4 ? (int64_t)count : -1;
}

/* Several dimensions are in row-major order. */
static const char *array_add(struct mr_column_builder *b, unsigned item, mr_str value,
                             struct mr_arena *scratch, struct mr_err *why)
{
    size_t at;
    const int64_t count = array_head(value, item, &at);
    const char *wrong = NULL;

    if (count < 0) {
        return "the array cannot be understood";
    }
    if (!b->item || b->item->field->item) {
        return "the value is an array";
    }
    if (b->field->type == MR_COLUMN_FIXED_LIST && (uint64_t)count != b->field->width) {
        return "the array has another number of items";
    }
    for (int64_t i = 0; i < count && !wrong; i++) {
        if (value.len - at < 4) {
            return "the array cannot be understood";
        }
        const uint32_t len = get32(value.ptr + at);
        at += 4;
        if (len == UINT32_MAX) {
            mr_column_add_null(b->item);
            continue;
        }
        if (len > value.len - at) {
            return "the array cannot be understood";
        }
        wrong = mr_pg_add(b->item, item, mr_str_n(value.ptr + at, len), scratch, why);
        at += len;
    }
    if (!wrong) {
        mr_column_end_list(b);
    }
    return wrong;
}

/* ---- any value ---- */

const char *mr_pg_add(struct mr_column_builder *b, unsigned type, mr_str value,
                      struct mr_arena *scratch, struct mr_err *why)
{
    const enum mr_column_type to = b->field->type;
    const unsigned item = mr_pg_item_of(type);
    const size_t bytes = bytes_of(type);

    if (item) {
        return array_add(b, item, value, scratch, why);
    }
    if (bytes > 0 && value.len != bytes) {
        return "the value has another length than its type";
    }
    switch (type) {
    case PG_DATE:
        return to == MR_COLUMN_DATE ? date_add(b, (int32_t)get32(value.ptr))
                                    : "the value is a date";
    case PG_TIMESTAMP:
    case PG_TIMESTAMPTZ:
        return to == MR_COLUMN_TIMESTAMP ? timestamp_add(b, (int64_t)get64(value.ptr))
                                         : "the value is a timestamp";
    case PG_NUMERIC:
        return to == MR_COLUMN_DECIMAL ? numeric_add(b, value) : "the value is a decimal";
    case PG_BYTEA:
        if (to == MR_COLUMN_BINARY) {
            mr_column_add_bytes(b, value);
            return NULL;
        }
        return b->item ? mr_database_add_raw(b, value) : "the value is bytea";
    default: break;
    }
    if (bytes > 0) {
        return number_add(b, type, value.ptr) ? NULL : "the number does not fit";
    }
    return mr_cell_text(b, value, scratch, why) < 0 ? why->msg : NULL;
}
