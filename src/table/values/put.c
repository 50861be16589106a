/* Values of columns as text: JSON, and the texts of numbers and times that CSV shares with it.
 *
 * Days are converted to dates by counting in eras of 400 years, which all have 146,097 days, from 1 March of the year
 * 0, so that the leap day is the last day of a year. */
#include <math.h>
#include <stdio.h>

#include "base/arena.h"
#include "codec/json.h"
#include "table/rows/formats.h"
#include "tensor/tensor.h"
#include "values.h"

#define DAY_US INT64_C(86400000000)

#define VALUE(c, type, row) (((const type *)(c)->values)[row])

static void date_put(struct mr_buf *b, int64_t days)
{
    const int64_t from_march = days + 719468;
    const int64_t era = (from_march >= 0 ? from_march : from_march - 146096) / 146097;
    const int64_t day = from_march - era * 146097; /* [0, 146096] */
    const int64_t year = (day - day / 1460 + day / 36524 - day / 146096) / 365;
    const int64_t of_year = day - (365 * year + year / 4 - year / 100);
    const int64_t march = (5 * of_year + 2) / 153; /* 0: March */
    const int64_t month = march < 10 ? march + 3 : march - 9;

    mr_buf_printf(b, "%04lld-%02lld-%02lld", (long long)(year + era * 400 + (month <= 2)),
                  (long long)month, (long long)(of_year - (153 * march + 2) / 5 + 1));
}

static void timestamp_put(struct mr_buf *b, int64_t us)
{
    int64_t days = us / DAY_US;
    int64_t rest = us % DAY_US;

    if (rest < 0) {
        rest += DAY_US;
        days--;
    }
    date_put(b, days);
    const long long second = rest / 1000000;
    mr_buf_printf(b, "T%02lld:%02lld:%02lld", second / 3600, second / 60 % 60, second % 60);
    if (rest % 1000000) {
        mr_buf_printf(b, ".%06lld", (long long)(rest % 1000000));
    }
    mr_buf_char(b, 'Z');
}

static void decimal_put(struct mr_buf *b, const struct mr_field *f, const struct mr_column *c,
                        uint64_t row)
{
    __int128 v;
    char text[48];
    char *end = text + sizeof text;
    char *p = end;

    memcpy(&v, (const char *)c->values + row * sizeof v, sizeof v);
    unsigned __int128 rest = v < 0 ? 0 - (unsigned __int128)v : (unsigned __int128)v;
    const int scale = MR_MIN(f->scale, 38);
    for (int digits = 0; digits <= scale || rest > 0; digits++) {
        if (digits == scale && scale > 0) {
            *--p = '.';
        }
        *--p = (char)('0' + (int)(rest % 10));
        rest /= 10;
    }
    if (v < 0) {
        *--p = '-';
    }
    mr_buf_append(b, p, (size_t)(end - p));
}

void mr_put_scalar(struct mr_buf *b, const struct mr_field *f, const struct mr_column *c,
                   uint64_t row)
{
    switch (f->type) {
    case MR_COLUMN_BOOL: mr_buf_c(b, VALUE(c, uint8_t, row) ? "true" : "false"); break;
    case MR_COLUMN_I8: mr_buf_i64(b, VALUE(c, int8_t, row)); break;
    case MR_COLUMN_I16: mr_buf_i64(b, VALUE(c, int16_t, row)); break;
    case MR_COLUMN_I32: mr_buf_i64(b, VALUE(c, int32_t, row)); break;
    case MR_COLUMN_I64: mr_buf_i64(b, VALUE(c, int64_t, row)); break;
    case MR_COLUMN_U8: mr_buf_u64(b, VALUE(c, uint8_t, row)); break;
    case MR_COLUMN_U16: mr_buf_u64(b, VALUE(c, uint16_t, row)); break;
    case MR_COLUMN_U32: mr_buf_u64(b, VALUE(c, uint32_t, row)); break;
    case MR_COLUMN_U64: mr_buf_u64(b, VALUE(c, uint64_t, row)); break;
    case MR_COLUMN_F16: mr_json_put_float(b, mr_fp16_to_float(VALUE(c, uint16_t, row))); break;
    case MR_COLUMN_F32: mr_json_put_float(b, VALUE(c, float, row)); break;
    case MR_COLUMN_F64: mr_json_put_double(b, VALUE(c, double, row)); break;
    case MR_COLUMN_DATE: date_put(b, VALUE(c, int32_t, row)); break;
    case MR_COLUMN_TIMESTAMP: timestamp_put(b, VALUE(c, int64_t, row)); break;
    case MR_COLUMN_DECIMAL: decimal_put(b, f, c, row); break;
    case MR_COLUMN_BINARY: mr_base64_encode(mr_column_bytes(c, row), b); break;
    default: break;
    }
}

static bool is_special(const struct mr_field *f, const struct mr_column *c, uint64_t row)
{
    switch (f->type) {
    case MR_COLUMN_F16: return !isfinite(mr_fp16_to_float(VALUE(c, uint16_t, row)));
    case MR_COLUMN_F32: return !isfinite(VALUE(c, float, row));
    case MR_COLUMN_F64: return !isfinite(VALUE(c, double, row));
    default: return false;
    }
}

static void json_put(struct mr_buf *b, const struct mr_field *f, const struct mr_column *c,
                     uint64_t row, bool is_strict);

static void list_put(struct mr_buf *b, const struct mr_field *f, const struct mr_column *c,
                     uint64_t row, bool is_strict)
{
    const uint64_t begin = f->type == MR_COLUMN_LIST ? c->begin[row] : row * f->width;
    const uint64_t end = f->type == MR_COLUMN_LIST ? c->begin[row + 1] : begin + f->width;

    mr_buf_char(b, '[');
    for (uint64_t i = begin; i < end && !b->failed; i++) {
        if (i > begin) {
            mr_buf_char(b, ',');
        }
        json_put(b, f->item, c->item, i, is_strict);
    }
    mr_buf_char(b, ']');
}

static void quoted_put(struct mr_buf *b, const struct mr_field *f, const struct mr_column *c,
                       uint64_t row)
{
    mr_buf_char(b, '"');
    mr_put_scalar(b, f, c, row);
    mr_buf_char(b, '"');
}

/* The length of a NaN or an infinity at the start of the text; 0: there is none. */
static size_t special_len(mr_str text)
{
    static const mr_str words[] = {MR_STR_INIT("NaN"), MR_STR_INIT("Infinity"),
                                   MR_STR_INIT("-Infinity")};

    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        if (mr_str_starts(text, words[i])) {
            return words[i].len;
        }
    }
    return 0;
}

/* On one line: in JSON, line ends occur only between values. is_strict: as json_put. */
static void json_text_put(struct mr_buf *b, mr_str text, bool is_strict)
{
    bool is_in_string = false;
    bool is_escaped = false;
    size_t begin = 0;

    for (size_t i = 0; i < text.len; i++) {
        const char c = text.ptr[i];
        const size_t n =
            is_strict && !is_in_string ? special_len(mr_str_sub(text, i, text.len)) : 0;
        if (c == '\n' || c == '\r') {
            mr_buf_str(b, mr_str_sub(text, begin, i));
            mr_buf_char(b, ' ');
            begin = i + 1;
        } else if (n > 0) {
            mr_buf_str(b, mr_str_sub(text, begin, i));
            mr_buf_char(b, '"');
            mr_buf_str(b, mr_str_sub(text, i, i + n));
            mr_buf_char(b, '"');
            i += n - 1;
            begin = i + 1;
        }
        is_in_string ^= c == '"' && !is_escaped;
        is_escaped = c == '\\' && !is_escaped;
    }
    mr_buf_str(b, mr_str_sub(text, begin, text.len));
}

/* NaN and infinities are not JSON, but readers of tables accept them as bare words. is_strict: they are strings. */
static void json_put(struct mr_buf *b, const struct mr_field *f, const struct mr_column *c,
                     uint64_t row, bool is_strict)
{
    if (mr_column_is_null(c, row)) {
        MR_BUF_LIT(b, "null");
        return;
    }
    switch (f->type) {
    case MR_COLUMN_STRING: {
        const mr_bytes bytes = mr_column_bytes(c, row);
        const mr_str text = mr_str_n((const char *)bytes.ptr, bytes.len);
        if (f->is_json) {
            json_text_put(b, text, is_strict);
        } else {
            mr_json_put_string(b, text);
        }
        break;
    }
    case MR_COLUMN_DATE:
    case MR_COLUMN_TIMESTAMP:
    case MR_COLUMN_DECIMAL:
    case MR_COLUMN_BINARY: quoted_put(b, f, c, row); break;
    case MR_COLUMN_LIST:
    case MR_COLUMN_FIXED_LIST: list_put(b, f, c, row, is_strict); break;
    default:
        if (is_strict && is_special(f, c, row)) {
            quoted_put(b, f, c, row);
        } else {
            mr_put_scalar(b, f, c, row);
        }
    }
}

void mr_put_json(struct mr_buf *b, const struct mr_field *f, const struct mr_column *c,
                 uint64_t row)
{
    json_put(b, f, c, row, false);
}

void mr_put_json_strict(struct mr_buf *b, const struct mr_field *f, const struct mr_column *c,
                        uint64_t row)
{
    json_put(b, f, c, row, true);
}

/* Writes the text of a JSON string. Any other value, or invalid JSON, is written unchanged. */
static void json_put_text(struct mr_buf *b, mr_str text)
{
    struct mr_arena scratch;
    struct mr_json j;
    mr_str s = text;

    mr_arena_init(&scratch, 1024, SIZE_MAX);
    mr_json_init(&j, text, &scratch, 0, NULL);
    if (mr_json_peek(&j) == MR_JSON_STRING && mr_json_string(&j, &s) < 0) {
        s = text;
    }
    mr_buf_str(b, s);
    mr_arena_fini(&scratch);
}

void mr_value_put_text(struct mr_buf *b, const struct mr_field *f, const struct mr_column *c,
                       uint64_t row)
{
    if (f->type == MR_COLUMN_STRING) {
        const mr_bytes bytes = mr_column_bytes(c, row);
        const mr_str text = mr_str_n((const char *)bytes.ptr, bytes.len);
        if (f->is_json) {
            json_put_text(b, text);
        } else {
            mr_buf_str(b, text);
        }
    } else if (f->item) {
        mr_put_json(b, f, c, row);
    } else {
        mr_put_scalar(b, f, c, row);
    }
}

void mr_row_put_json(struct mr_buf *b, const struct mr_rows *rows, uint64_t row, size_t max_bytes,
                     struct mr_buf *out_left)
{
    struct mr_buf member;
    size_t room = MR_MAX(max_bytes, (size_t)1); /* 0 would be the buffer's default */
    bool is_first = true;

    mr_buf_init(&member, room);
    mr_buf_char(b, '{');
    for (size_t i = 0; i < rows->schema->count; i++) {
        const struct mr_field *f = &rows->schema->fields[i];
        mr_buf_reset(&member);
        mr_json_put_string(&member, mr_str_c(f->name));
        mr_buf_char(&member, ':');
        json_put(&member, f, &rows->columns[i], row, true);
        if (member.failed || member.len >= room) {
            mr_buf_c(out_left, out_left->len > 0 ? "," : "");
            mr_json_put_string(out_left, mr_str_c(f->name));
            continue;
        }
        room -= member.len + 1;
        mr_buf_c(b, is_first ? "" : ",");
        mr_buf_str(b, mr_buf_view(&member));
        is_first = false;
    }
    mr_buf_char(b, '}');
    mr_buf_fini(&member);
}
