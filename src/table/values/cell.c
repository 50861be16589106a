/* Cells of text tables: adds a JSON value, or a text, to a column.
 *
 * Lists of numbers are the bulk of models' input, so a flat one is read straight into the column: a look-ahead to its
 * bracket counts its commas, which gives the exact room. */

#include <string.h>

#include "base/arena.h"
#include "codec/json.h"
#include "table/rows/formats.h"
#include "tensor/tensor.h"
#include "values.h"

static const int fill_kinds[MR_COLUMN_TYPES] = {
    [MR_COLUMN_BOOL] = MR_JSON_FILL_BOOL + 1, [MR_COLUMN_I8] = MR_JSON_FILL_I8 + 1,
    [MR_COLUMN_I16] = MR_JSON_FILL_I16 + 1,   [MR_COLUMN_I32] = MR_JSON_FILL_I32 + 1,
    [MR_COLUMN_I64] = MR_JSON_FILL_I64 + 1,   [MR_COLUMN_U8] = MR_JSON_FILL_U8 + 1,
    [MR_COLUMN_U16] = MR_JSON_FILL_U16 + 1,   [MR_COLUMN_U32] = MR_JSON_FILL_U32 + 1,
    [MR_COLUMN_U64] = MR_JSON_FILL_U64 + 1,   [MR_COLUMN_F32] = MR_JSON_FILL_F32 + 1,
    [MR_COLUMN_F64] = MR_JSON_FILL_F64 + 1,
};

#define EXACT_MOST (INT64_C(1) << 53) /* below it no two whole numbers are the same double */

static int list_json(struct mr_json *j, struct mr_column_builder *b);

/* False: out of the type's range. */
static bool signed_add(struct mr_column_builder *b, int64_t v)
{
    const unsigned bits = 8 * (unsigned)mr_column_type_bytes(b->field->type);
    const int64_t most = (int64_t)(UINT64_MAX >> (65 - bits));

    if (v > most || v < -most - 1) {
        return false;
    }
    switch (b->field->type) {
    case MR_COLUMN_I8: mr_column_add(b, &(int8_t){(int8_t)v}); break;
    case MR_COLUMN_I16: mr_column_add(b, &(int16_t){(int16_t)v}); break;
    case MR_COLUMN_I32: mr_column_add(b, &(int32_t){(int32_t)v}); break;
    default: mr_column_add(b, &v); break;
    }
    return true;
}

static bool unsigned_add(struct mr_column_builder *b, uint64_t v)
{
    const unsigned bits = 8 * (unsigned)mr_column_type_bytes(b->field->type);

    if (v > UINT64_MAX >> (64 - bits)) {
        return false;
    }
    switch (b->field->type) {
    case MR_COLUMN_U8: mr_column_add(b, &(uint8_t){(uint8_t)v}); break;
    case MR_COLUMN_U16: mr_column_add(b, &(uint16_t){(uint16_t)v}); break;
    case MR_COLUMN_U32: mr_column_add(b, &(uint32_t){(uint32_t)v}); break;
    default: mr_column_add(b, &v); break;
    }
    return true;
}

bool mr_cell_whole(struct mr_column_builder *b, int64_t v)
{
    switch (b->field->type) {
    case MR_COLUMN_I8:
    case MR_COLUMN_I16:
    case MR_COLUMN_I32:
    case MR_COLUMN_I64: return signed_add(b, v);
    case MR_COLUMN_U8:
    case MR_COLUMN_U16:
    case MR_COLUMN_U32:
    case MR_COLUMN_U64: return v >= 0 && unsigned_add(b, (uint64_t)v);
    case MR_COLUMN_BOOL:
        if (v != 0 && v != 1) {
            return false;
        }
        mr_column_add(b, &(uint8_t){(uint8_t)v});
        return true;
    default:
        return !(b->field->is_guessed && (v > EXACT_MOST || v < -EXACT_MOST)) &&
               mr_cell_real(b, (double)v);
    }
}

bool mr_cell_real(struct mr_column_builder *b, double v)
{
    switch (b->field->type) {
    case MR_COLUMN_F16: mr_column_add(b, &(uint16_t){mr_fp16_from_double(v)}); return true;
    case MR_COLUMN_F32: mr_column_add(b, &(float){(float)v}); return true;
    case MR_COLUMN_F64: mr_column_add(b, &v); return true;
    default:
        return mr_column_type_bytes(b->field->type) > 0 && b->field->type <= MR_COLUMN_U64 &&
               v >= -9223372036854775808.0 && v < 9223372036854775808.0 &&
               (double)(int64_t)v == v && mr_cell_whole(b, (int64_t)v);
    }
}

/* A whole number that is written as a fraction (3.0, 3e0); one of 2^53 or more may not be the number that was written. */
static bool whole_add(struct mr_column_builder *b, double v)
{
    return v > -(double)EXACT_MOST && v < (double)EXACT_MOST && mr_cell_real(b, v);
}

static bool is_fraction(struct mr_json *j)
{
    const char *p;

    if (mr_json_peek(j) != MR_JSON_NUMBER) {
        return false;
    }
    for (p = j->pos; p < j->end && (*p == '-' || (*p >= '0' && *p <= '9')); p++) {
    }
    return p < j->end && (*p == '.' || *p == 'e' || *p == 'E');
}

static int fraction_json(struct mr_json *j, struct mr_column_builder *b)
{
    double v;
    int rc = mr_json_double(j, &v);

    return rc < 0 || whole_add(b, v)
               ? rc
               : mr_json_fail(j, MR_E_INVALID, "value %.17g is not an integer of this type", v);
}

static int signed_json(struct mr_json *j, struct mr_column_builder *b)
{
    int64_t v;
    int rc = mr_json_i64(j, &v);

    return rc < 0 || signed_add(b, v)
               ? rc
               : mr_json_fail(j, MR_E_INVALID, "value %lld is out of range", (long long)v);
}

static int unsigned_json(struct mr_json *j, struct mr_column_builder *b)
{
    uint64_t v;
    int rc = mr_json_u64(j, &v);

    return rc < 0 || unsigned_add(b, v)
               ? rc
               : mr_json_fail(j, MR_E_INVALID, "value %llu is out of range", (unsigned long long)v);
}

#define LOSES_DIGITS "'%.*s' has digits that this type, guessed from the first rows, loses"

static bool loses_digits(const struct mr_field *f, mr_str number)
{
    const bool is_f64 = f->type == MR_COLUMN_F64;

    return f->is_guessed && (is_f64 || f->type == MR_COLUMN_I64) &&
           (mr_number_has_zeros(number) || (is_f64 && !mr_number_is_f64(number)));
}

static int float_json(struct mr_json *j, struct mr_column_builder *b)
{
    double wide;
    float v;
    int rc;

    if (b->field->type != MR_COLUMN_F32) {
        mr_json_peek(j); /* to its first character */
        const char *begin = j->pos;
        rc = mr_json_double(j, &wide);
        if (rc == MR_OK && loses_digits(b->field, mr_str_n(begin, (size_t)(j->pos - begin)))) {
            return mr_json_fail(j, MR_E_INVALID, LOSES_DIGITS, (int)MR_MIN(j->pos - begin, 64),
                                begin);
        }
        if (rc == MR_OK) {
            mr_cell_real(b, wide);
        }
        return rc;
    }
    rc = mr_json_float(j, &v);
    if (rc == MR_OK) {
        mr_column_add(b, &v);
    }
    return rc;
}

/* A text unchanged; any other value, and in a JSON column any value, as its JSON text. */
static int string_json(struct mr_json *j, struct mr_column_builder *b)
{
    mr_str text;
    const bool is_text = (mr_json_peek(j) == MR_JSON_STRING && !b->field->is_json) ||
                         b->field->type == MR_COLUMN_BINARY;
    int rc = is_text ? mr_json_string(j, &text) : mr_json_skip(j, &text);

    if (rc == MR_OK) {
        mr_column_add_bytes(b, text);
    }
    return rc;
}

int mr_cell_json(struct mr_json *j, struct mr_column_builder *b)
{
    bool flag;
    int rc;

    if (mr_column_is_integer(b->field->type) && is_fraction(j)) {
        return fraction_json(j, b);
    }
    switch (b->field->type) {
    case MR_COLUMN_BOOL:
        rc = mr_json_bool(j, &flag);
        if (rc == MR_OK) {
            mr_column_add(b, &flag);
        }
        return rc;
    case MR_COLUMN_I8:
    case MR_COLUMN_I16:
    case MR_COLUMN_I32:
    case MR_COLUMN_I64: return signed_json(j, b);
    case MR_COLUMN_U8:
    case MR_COLUMN_U16:
    case MR_COLUMN_U32:
    case MR_COLUMN_U64: return unsigned_json(j, b);
    case MR_COLUMN_F16:
    case MR_COLUMN_F32:
    case MR_COLUMN_F64: return float_json(j, b);
    case MR_COLUMN_STRING:
    case MR_COLUMN_BINARY: return string_json(j, b);
    default: return list_json(j, b);
    }
}

/* ---- lists ---- */

/* The number of items of a flat list of numbers, from the text up to its bracket; 0: not flat, or incomplete. */
static uint64_t items_count(const struct mr_json *j)
{
    const char *end = memchr(j->pos, ']', (size_t)(j->end - j->pos));
    uint64_t commas = 0;
    uint64_t brackets = 0;

    for (const char *p = j->pos; end && p < end; p++) {
        commas += *p == ',';
        brackets += *p == '[';
    }
    return brackets == 1 ? commas + 1 : 0;
}

static int numbers_json(struct mr_json *j, struct mr_column_builder *item, int kind)
{
    uint64_t count = mr_json_peek(j) == MR_JSON_ARRAY ? items_count(j) : 1;

    if (count == 0) {
        return memchr(j->pos, ']', (size_t)(j->end - j->pos))
                   ? mr_json_fail(j, MR_E_INVALID, "expected a flat list of numbers")
                   : mr_json_fail(j, MR_E_INVALID, "a list without closing bracket");
    }
    void *room = mr_column_room(item, count);
    if (!room) {
        return mr_json_fail(j, MR_E_EXHAUSTED, "no memory for a list of numbers");
    }
    int rc = mr_json_fill(j, (enum mr_json_fill)kind, room, count, &count);
    if (rc == MR_OK) {
        mr_column_took(item, count);
    }
    return rc;
}

static int items_json(struct mr_json *j, struct mr_column_builder *item)
{
    bool is_first = true;
    int rc = mr_json_enter_array(j);

    while (rc == MR_OK && mr_json_next_item(j, &is_first)) {
        if (mr_json_peek(j) == MR_JSON_NULL &&
            (item->field->is_nullable || item->field->type == MR_COLUMN_STRING ||
             item->field->type == MR_COLUMN_BINARY)) {
            rc = mr_json_null(j);
            mr_column_add_null(item);
        } else {
            rc = mr_cell_json(j, item);
        }
    }
    return j->status;
}

/* True if the list that follows has what only items_json takes: nulls, and integers written as fractions. */
static bool is_mixed(const struct mr_json *j, const struct mr_field *item)
{
    const char *end = memchr(j->pos, ']', (size_t)(j->end - j->pos));
    const size_t n = end ? (size_t)(end - j->pos) : 0;

    return (item->is_nullable && memchr(j->pos, 'n', n)) ||
           (mr_column_is_integer(item->type) &&
            (memchr(j->pos, '.', n) || memchr(j->pos, 'e', n) || memchr(j->pos, 'E', n)));
}

static int flat_json(struct mr_json *j, struct mr_column_builder *item)
{
    const int kind = fill_kinds[item->field->type];

    return kind && !is_mixed(j, item->field) ? numbers_json(j, item, kind - 1)
                                             : items_json(j, item);
}

/* True if a list of lists follows ("[["). */
static bool is_nested(const struct mr_json *j)
{
    unsigned brackets = 0;

    for (const char *p = j->pos; p < j->end && brackets < 2; p++) {
        if (*p == '[') {
            brackets++;
        } else if (*p != ' ' && *p != '\t') {
            return false;
        }
    }
    return brackets == 2;
}

/* Flattens a list of lists into one list. `want` are the lengths of its levels, -1 until the first one is read. */
static int nested_json(struct mr_json *j, struct mr_column_builder *b, int64_t *want,
                       unsigned level)
{
    const bool is_last = level + 1u == b->field->dim_count;
    const uint64_t before = b->item->count;
    uint64_t count = 0;
    bool is_first = true;
    int rc;

    if (mr_json_peek(j) != MR_JSON_ARRAY) {
        return mr_json_fail(j, MR_E_INVALID, "expected a list at level %u", level + 1);
    }
    if (is_last) {
        rc = flat_json(j, b->item);
        count = b->item->count - before;
    } else {
        rc = mr_json_enter_array(j);
        while (rc == MR_OK && mr_json_next_item(j, &is_first)) {
            rc = nested_json(j, b, want, level + 1);
            count++;
        }
        rc = rc < 0 ? rc : j->status;
    }
    if (rc < 0) {
        return rc;
    }
    if (want[level] >= 0 && count != (uint64_t)want[level] && !b->item->has_failed) {
        return mr_json_fail(j, MR_E_INVALID, "a list of %llu items at level %u, not %lld as %s",
                            (unsigned long long)count, level + 1, (long long)want[level],
                            b->field->dims[level] >= 0 ? "the model asks for"
                                                       : "the first one has");
    }
    want[level] = (int64_t)count;
    return MR_OK;
}

static int list_json(struct mr_json *j, struct mr_column_builder *b)
{
    const uint64_t before = b->item->count;
    int64_t want[MR_FIELD_DEPTH];
    int rc;

    if (b->field->dim_count > 1 && is_nested(j)) {
        for (unsigned i = 0; i < b->field->dim_count; i++) {
            want[i] = b->field->dims[i];
        }
        rc = nested_json(j, b, want, 0);
    } else {
        rc = flat_json(j, b->item);
    }

    if (rc < 0) {
        return rc;
    }
    const uint64_t got = b->item->count - before;
    if (b->field->type == MR_COLUMN_FIXED_LIST && got != b->field->width && !b->item->has_failed) {
        return mr_json_fail(j, MR_E_INVALID, "expected %llu items, found %llu",
                            (unsigned long long)b->field->width, (unsigned long long)got);
    }
    mr_column_end_list(b);
    return MR_OK;
}

/* ---- a text ---- */

static int list_text(struct mr_column_builder *b, mr_str text, struct mr_arena *scratch,
                     struct mr_err *err)
{
    struct mr_json j;

    mr_json_init(&j, text, scratch, 0, err);
    const int rc = mr_cell_json(&j, b);
    return rc < 0 ? rc : mr_json_finish(&j);
}

static bool fraction_text(struct mr_column_builder *b, mr_str text)
{
    double v;

    return mr_column_is_integer(b->field->type) && mr_text_double(text, &v) && whole_add(b, v);
}

/* False: not such a number. */
static bool number_text(struct mr_column_builder *b, mr_str text)
{
    int64_t whole;
    uint64_t natural;
    double wide;
    float v;
    bool flag;

    switch (b->field->type) {
    case MR_COLUMN_BOOL:
        if (!mr_str_to_bool(text, &flag)) {
            return false;
        }
        mr_column_add(b, &flag);
        return true;
    case MR_COLUMN_I8:
    case MR_COLUMN_I16:
    case MR_COLUMN_I32:
    case MR_COLUMN_I64: return mr_str_to_i64(text, &whole) && signed_add(b, whole);
    case MR_COLUMN_U8:
    case MR_COLUMN_U16:
    case MR_COLUMN_U32:
    case MR_COLUMN_U64: return mr_str_to_u64(text, &natural) && unsigned_add(b, natural);
    case MR_COLUMN_F32:
        if (!mr_text_float(text, &v)) {
            return false;
        }
        mr_column_add(b, &v);
        return true;
    default: return mr_text_double(text, &wide) && mr_cell_real(b, wide);
    }
}

int mr_cell_text(struct mr_column_builder *b, mr_str text, struct mr_arena *scratch,
                 struct mr_err *err)
{
    const enum mr_column_type type = b->field->type;

    if (type == MR_COLUMN_STRING && !mr_utf8_valid(text)) {
        return MR_FAIL(err, MR_E_INVALID, "the text is not valid UTF-8");
    }
    if (type == MR_COLUMN_STRING || type == MR_COLUMN_BINARY) {
        mr_column_add_bytes(b, text);
        return MR_OK;
    }
    if (type == MR_COLUMN_LIST || type == MR_COLUMN_FIXED_LIST) {
        return list_text(b, text, scratch, err);
    }
    const mr_str bare = mr_str_trim(text);
    const bool is_lost = loses_digits(b->field, bare);
    if (!is_lost && (number_text(b, bare) || fraction_text(b, bare))) {
        return MR_OK;
    }
    return MR_FAIL(err, MR_E_INVALID, is_lost ? LOSES_DIGITS : "'%.*s' is not a value of this type",
                   (int)MR_MIN(text.len, (size_t)64), text.len ? text.ptr : "");
}

/* ---- types ---- */

static int type_check(const struct mr_field *column, const struct mr_field *f, uint64_t items,
                      uint64_t max_cell_bytes, int depth, struct mr_err *err)
{
    const bool is_list = f->type == MR_COLUMN_LIST || f->type == MR_COLUMN_FIXED_LIST;
    char text[64];

    if (f->type == MR_COLUMN_NONE || f->type == MR_COLUMN_DATE || f->type == MR_COLUMN_TIMESTAMP ||
        f->type == MR_COLUMN_DECIMAL || (unsigned)f->type >= MR_COLUMN_TYPES ||
        is_list != (f->item != NULL) || depth > MR_FIELD_DEPTH) {
        return MR_FAIL(err, MR_E_UNSUPPORTED, "column '%s': text cannot be read as %s",
                       column->name, mr_field_text(column, text, sizeof text));
    }
    if (f->type == MR_COLUMN_FIXED_LIST &&
        (__builtin_mul_overflow(items, f->width, &items) || items > max_cell_bytes)) {
        return MR_FAIL(err, MR_E_INVALID, "column '%s': %s is more than a cell may hold",
                       column->name, mr_field_text(column, text, sizeof text));
    }
    return is_list ? type_check(column, f->item, items, max_cell_bytes, depth + 1, err) : MR_OK;
}

int mr_cell_check(const struct mr_field *f, uint64_t max_cell_bytes, struct mr_err *err)
{
    return type_check(f, f, 1, max_cell_bytes, 0, err);
}
