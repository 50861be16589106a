/* Options, the values: text to bool, number, size, duration, choice, each with its range and an error that names the
 * allowed values. */
#include <stdio.h>

#include "base/clock.h"
#include "base_priv.h"

struct unit {
    const char *name;
    int64_t factor;
};

static const struct unit byte_units[] = {
    {"B", 1},
    {"K", INT64_C(1) << 10},
    {"Ki", INT64_C(1) << 10},
    {"KiB", INT64_C(1) << 10},
    {"M", INT64_C(1) << 20},
    {"Mi", INT64_C(1) << 20},
    {"MiB", INT64_C(1) << 20},
    {"G", INT64_C(1) << 30},
    {"Gi", INT64_C(1) << 30},
    {"GiB", INT64_C(1) << 30},
    {"T", INT64_C(1) << 40},
    {"Ti", INT64_C(1) << 40},
    {"TiB", INT64_C(1) << 40},
    {"KB", INT64_C(1000)},
    {"MB", INT64_C(1000000)},
    {"GB", INT64_C(1000000000)},
    {"TB", INT64_C(1000000000000)},
    {NULL, 0},
};

static const struct unit time_units[] = {
    {"ns", 1},
    {"us", MR_NS_PER_US},
    {"ms", MR_NS_PER_MS},
    {"s", MR_NS_PER_S},
    {"m", 60 * MR_NS_PER_S},
    {"h", 3600 * MR_NS_PER_S},
    {"d", 86400 * MR_NS_PER_S},
    {NULL, 0},
};

static int64_t scale_of(const struct mr_option *row)
{
    return row->scale ? row->scale : 1;
}

/* The largest value that the member can hold. */
static int64_t size_max(size_t size)
{
    return size >= 8 ? INT64_MAX : (INT64_C(1) << (8 * size)) - 1;
}

/* The allowed range in the unit of storage. */
static void bounds_of(const struct mr_option *row, int64_t *out_min, int64_t *out_max)
{
    int64_t scale = scale_of(row);

    if (row->min == 0 && row->max == 0) {
        *out_min = 0;
        *out_max = size_max(row->size ? row->size : 8);
        return;
    }
    *out_min = row->min * scale;
    if (__builtin_mul_overflow(row->max, scale, out_max)) {
        *out_max = INT64_MAX;
    }
}

static void put_bytes(int64_t v, struct mr_buf *out)
{
    static const char *const names[] = {"", " KiB", " MiB", " GiB", " TiB"};
    size_t i = 0;

    while (i < 4 && v >= 1024 && v % 1024 == 0) {
        v /= 1024;
        i++;
    }
    mr_buf_printf(out, "%lld%s", (long long)v, names[i]);
}

static void put_time(int64_t ns, struct mr_buf *out)
{
    int best = 0;

    for (int i = 0; time_units[i].name && ns; i++) {
        if (ns % time_units[i].factor == 0) {
            best = i;
        }
    }
    mr_buf_printf(out, "%lld", (long long)(ns / time_units[best].factor));
    if (ns) {
        mr_buf_printf(out, " %s", time_units[best].name);
    }
}

static void put_quantity(const struct mr_option *row, int64_t v, struct mr_buf *out)
{
    if (row->kind == MR_OPTION_BYTES) {
        put_bytes(v, out);
    } else if (row->kind == MR_OPTION_DURATION) {
        put_time(v, out);
    } else {
        mr_buf_i64(out, v / scale_of(row));
    }
}

void mr_option_range(const struct mr_option *row, struct mr_buf *out)
{
    int64_t min;
    int64_t max;

    if (row->kind != MR_OPTION_INT && row->kind != MR_OPTION_BYTES &&
        row->kind != MR_OPTION_DURATION) {
        return;
    }
    bounds_of(row, &min, &max);
    if (max == INT64_MAX) {
        if (min != 0) {
            MR_BUF_LIT(out, "at least ");
            put_quantity(row, min, out);
        }
        return;
    }
    put_quantity(row, min, out);
    MR_BUF_LIT(out, " to ");
    put_quantity(row, max, out);
}

/* Digits and a unit; `plain` is the factor of a number without one. False: not of this form. */
static bool parse_quantity(mr_str text, const struct unit *units, int64_t plain, int64_t *out)
{
    size_t digits = text.len && text.ptr[0] == '-' ? 1 : 0;
    int64_t number;

    while (digits < text.len && text.ptr[digits] >= '0' && text.ptr[digits] <= '9') {
        digits++;
    }
    mr_str unit = mr_str_trim(mr_str_sub(text, digits, text.len));
    if (!mr_str_to_i64(mr_str_sub(text, 0, digits), &number)) {
        return false;
    }
    if (unit.len == 0) {
        return !__builtin_mul_overflow(number, plain, out);
    }
    for (; units && units->name; units++) {
        if (mr_str_eq_c(unit, units->name)) {
            return !__builtin_mul_overflow(number, units->factor, out);
        }
    }
    return false;
}

static void put_integer(void *at, size_t size, int64_t v)
{
    /* Two's complement, little-endian: the low bytes are the value in any narrower type. */
    memcpy(at, &v, size < sizeof v ? size : sizeof v);
}

static const char *form_of(const struct mr_option *row)
{
    switch (row->kind) {
    case MR_OPTION_BYTES: return "a size such as 4096, 64KiB or 2GiB";
    case MR_OPTION_DURATION: return "a duration such as 500ms, 10s or 2m";
    default: return "a whole number";
    }
}

static int store_number(const struct mr_option *row, void *at, const char *label, mr_str text,
                        struct mr_err *err)
{
    const struct unit *units = row->kind == MR_OPTION_BYTES      ? byte_units
                               : row->kind == MR_OPTION_DURATION ? time_units
                                                                 : NULL;
    int64_t v;
    int64_t min;
    int64_t max;

    if (!parse_quantity(text, units, scale_of(row), &v)) {
        return MR_FAIL(err, MR_E_INVALID, "%s: '%.*s' is not %s", label, MR_STR_ARG(text),
                       form_of(row));
    }
    bounds_of(row, &min, &max);
    if (v < min || v > max) {
        struct mr_buf range;
        mr_buf_init(&range, 256);
        mr_option_range(row, &range);
        if (range.len == 0) {
            mr_buf_c(&range, "0 or more");
        }
        int rc = MR_FAIL(err, MR_E_INVALID, "%s: %.*s is out of range; allowed: %s", label,
                         MR_STR_ARG(text), mr_buf_cstr(&range));
        mr_buf_fini(&range);
        return rc;
    }
    put_integer(at, row->size, v);
    return MR_OK;
}

bool mr_option_bool(mr_str text, bool *out)
{
    bool is_on = mr_str_ieq(text, MR_STR("on"));

    if (is_on || mr_str_ieq(text, MR_STR("off"))) {
        *out = is_on;
        return true;
    }
    return mr_str_to_bool(text, out);
}

static int store_bool(void *at, const char *label, mr_str text, struct mr_err *err)
{
    bool v;

    if (!mr_option_bool(text, &v)) {
        return MR_FAIL(err, MR_E_INVALID, "%s: '%.*s' is not true or false", label,
                       MR_STR_ARG(text));
    }
    memcpy(at, &v, sizeof v);
    return MR_OK;
}

static int store_choice(const struct mr_option *row, void *at, const char *label, mr_str text,
                        struct mr_err *err)
{
    struct mr_buf all;

    for (int i = 0; row->choices[i]; i++) {
        if (mr_str_eq_c(text, row->choices[i])) {
            memcpy(at, &i, sizeof i);
            return MR_OK;
        }
    }
    mr_buf_init(&all, 1024);
    for (int i = 0; row->choices[i]; i++) {
        mr_buf_printf(&all, "%s%s", i ? ", " : "", row->choices[i]);
    }
    int rc = MR_FAIL(err, MR_E_INVALID, "%s: '%.*s' is not one of %s", label, MR_STR_ARG(text),
                     mr_buf_cstr(&all));
    mr_buf_fini(&all);
    return rc;
}

static int run_check(const struct mr_option *row, const char *label, mr_str text,
                     struct mr_err *err)
{
    int rc = row->check ? row->check(text, err) : MR_OK;

    return rc < 0 ? MR_WRAP(err, rc, "%s", label) : MR_OK;
}

int mr_option_store(const struct mr_option *row, void *target, const char *label, const char *text,
                    struct mr_err *err)
{
    char scratch[16];
    void *at = row->size && target ? (char *)target + row->offset : scratch;
    mr_str s = mr_str_c(text);
    int rc = run_check(row, label, s, err);

    if (rc < 0) {
        return rc;
    }
    switch (row->kind) {
    case MR_OPTION_BOOL: return store_bool(at, label, s, err);
    case MR_OPTION_INT:
    case MR_OPTION_BYTES:
    case MR_OPTION_DURATION: return store_number(row, at, label, s, err);
    case MR_OPTION_CHOICE: return store_choice(row, at, label, s, err);
    case MR_OPTION_STRING: memcpy(at, &text, sizeof text); return MR_OK;
    case MR_OPTION_LIST:
    case MR_OPTION_GROUP: break;
    }
    return MR_OK;
}
