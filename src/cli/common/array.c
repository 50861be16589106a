/* Arrays from text, and between types. The literal parser takes the shape from the nesting and the type from the
 * model, so that `[1, 2, 3]` becomes an array of the model's type. */
#include "array.h"

#include <math.h>
#include <string.h>

#include "codec/json.h"

uint64_t mr_array_count(const struct mr_array *a)
{
    uint64_t n = 1;

    for (int i = 0; i < a->rank; i++) {
        n *= (uint64_t)a->shape[i];
    }
    return n;
}

/* ---- literals ---- */

struct literal {
    struct mr_json j;
    struct mr_array *out;
};

static void put(struct mr_array *out, const void *value, size_t size)
{
    mr_buf_append(&out->data, value, size);
}

static int put_integer(struct literal *l, int64_t v)
{
    static const struct {
        int64_t min;
        int64_t max;
    } range[MR_DTYPE_COUNT] = {
        [MR_DTYPE_UINT8] = {0, UINT8_MAX},         [MR_DTYPE_UINT16] = {0, UINT16_MAX},
        [MR_DTYPE_UINT32] = {0, UINT32_MAX},       [MR_DTYPE_INT8] = {INT8_MIN, INT8_MAX},
        [MR_DTYPE_INT16] = {INT16_MIN, INT16_MAX}, [MR_DTYPE_INT32] = {INT32_MIN, INT32_MAX},
        [MR_DTYPE_INT64] = {INT64_MIN, INT64_MAX},
    };
    int dtype = l->out->dtype;

    if (v < range[dtype].min || v > range[dtype].max) {
        return mr_json_fail(&l->j, MR_E_INVALID, "%lld does not fit %s (%lld to %lld)",
                            (long long)v, mr_dtype_name(dtype), (long long)range[dtype].min,
                            (long long)range[dtype].max);
    }
    put(l->out, &v, mr_dtype_size(dtype)); /* little-endian: the low bytes */
    return MR_OK;
}

static int leaf_bool(struct literal *l)
{
    bool v;
    int64_t n;
    uint8_t byte;

    if (mr_json_peek(&l->j) == MR_JSON_NUMBER) {
        int rc = mr_json_i64(&l->j, &n);
        if (rc < 0 || n < 0 || n > 1) {
            return rc < 0 ? rc : mr_json_fail(&l->j, MR_E_INVALID, "a BOOL is true or false");
        }
        v = n == 1;
    } else if (mr_json_bool(&l->j, &v) < 0) {
        return l->j.status;
    }
    byte = v;
    put(l->out, &byte, 1);
    return MR_OK;
}

static int leaf_bytes(struct literal *l)
{
    const enum mr_json_type type = mr_json_peek(&l->j);
    mr_str s;

    if (type == MR_JSON_NULL) {
        return mr_json_fail(&l->j, MR_E_INVALID,
                            "an element of BYTES cannot be null (\"\" is an empty one)");
    }
    int rc = type == MR_JSON_STRING ? mr_json_string(&l->j, &s) : mr_json_skip(&l->j, &s);

    if (rc == MR_OK) {
        mr_array_add_bytes(l->out, s.ptr, s.len);
    }
    return rc;
}

/* In the form of a floating-point type. False: it is an infinity there. */
static bool store_float(int dtype, double d, char out[8])
{
    float f = (float)d;
    uint16_t h;

    switch (dtype) {
    case MR_DTYPE_FP64: memcpy(out, &d, sizeof d); return !isinf(d);
    case MR_DTYPE_FP32: memcpy(out, &f, sizeof f); return !isinf(f);
    case MR_DTYPE_FP16:
        h = mr_fp16_from_double(d);
        f = mr_fp16_to_float(h);
        break;
    default:
        h = mr_bf16_from_double(d);
        f = mr_bf16_to_float(h);
        break;
    }
    memcpy(out, &h, sizeof h);
    return !isinf(f);
}

static int leaf_float(struct literal *l)
{
    const int dtype = l->out->dtype;
    char bytes[8];
    mr_str text;
    double d = 0;
    float f = 0;
    const int rc = mr_json_number_text(&l->j, &text);

    if (rc < 0) {
        return rc;
    }
    if (dtype == MR_DTYPE_FP32 && mr_text_float(text, &f)) { /* rounded once */
        d = (double)f;
    } else {
        (void)mr_text_double(text, &d); /* it is one */
    }
    if (!store_float(dtype, d, bytes) && !mr_str_ends(text, MR_STR("Infinity"))) {
        return mr_json_fail(&l->j, MR_E_INVALID, "%.*s does not fit %s",
                            MR_STR_ARG(mr_str_sub(text, 0, 40)), mr_dtype_name(dtype));
    }
    put(l->out, bytes, mr_dtype_size(dtype));
    return MR_OK;
}

static int leaf(struct literal *l)
{
    int64_t v;
    uint64_t u;
    int rc;

    switch (l->out->dtype) {
    case MR_DTYPE_BOOL: return leaf_bool(l);
    case MR_DTYPE_BYTES: return leaf_bytes(l);
    case MR_DTYPE_FP16:
    case MR_DTYPE_FP32:
    case MR_DTYPE_FP64:
    case MR_DTYPE_BF16: return leaf_float(l);
    case MR_DTYPE_UINT64:
        if ((rc = mr_json_u64(&l->j, &u)) == MR_OK) {
            put(l->out, &u, sizeof u);
        }
        return rc;
    default: rc = mr_json_i64(&l->j, &v); return rc < 0 ? rc : put_integer(l, v);
    }
}

/* Parses a value at nesting `level`; the first at each level determines the number of items. MR_MAX_RANK bounds the
 * depth of the recursion. */
static int value(struct literal *l, int level)
{
    bool first = true;
    int64_t count = 0;
    int rc = MR_OK;

    if (mr_json_peek(&l->j) != MR_JSON_ARRAY) {
        if (l->out->rank < 0) {
            l->out->rank = level; /* the first leaf determines the depth */
        }
        return l->out->rank == level
                   ? leaf(l)
                   : mr_json_fail(&l->j, MR_E_INVALID, "the array is not nested evenly");
    }
    if (level == MR_MAX_RANK) {
        return mr_json_fail(&l->j, MR_E_INVALID, "more than %d dimensions", MR_MAX_RANK);
    }
    if (l->out->rank >= 0 && level >= l->out->rank) {
        return mr_json_fail(&l->j, MR_E_INVALID, "the array is not nested evenly");
    }
    mr_json_enter_array(&l->j);
    while (rc == MR_OK && mr_json_next_item(&l->j, &first)) {
        rc = value(l, level + 1);
        count++;
    }
    if (rc < 0 || l->j.status < 0) {
        return rc < 0 ? rc : l->j.status;
    }
    if (l->out->shape[level] < 0) {
        l->out->shape[level] = count;
    }
    if (l->out->rank < 0 && count == 0) {
        l->out->rank = level + 1; /* an empty list is a leaf of shape 0 */
    }
    return l->out->shape[level] == count
               ? MR_OK
               : mr_json_fail(&l->j, MR_E_INVALID, "the rows of the array differ in length");
}

static bool is_json_start(mr_str s)
{
    s = mr_str_trim(s);
    return s.len && (s.ptr[0] == '[' || s.ptr[0] == '"');
}

int mr_array_parse(mr_str text, int dtype, struct mr_array *out, struct mr_err *err)
{
    struct literal l = {.out = out};
    struct mr_arena arena;
    int rc;

    out->dtype = dtype;
    mr_buf_reset(&out->data);
    if (dtype == MR_DTYPE_BYTES && !is_json_start(text)) {
        out->rank = 0;
        mr_array_add_bytes(out, text.ptr, text.len);
        return MR_OK;
    }
    out->rank = -1;
    for (int i = 0; i < MR_MAX_RANK; i++) {
        out->shape[i] = -1;
    }
    mr_arena_init(&arena, 4096, (size_t)1 << 30);
    mr_json_init(&l.j, text, &arena, MR_MAX_RANK + 2, err);
    rc = value(&l, 0);
    if (rc == MR_OK) {
        rc = mr_json_finish(&l.j);
    }
    if (rc == MR_OK && out->data.failed) {
        rc = MR_FAIL(err, MR_E_TOO_LARGE, "the array is too large");
    }
    mr_arena_fini(&arena);
    return rc;
}

/* ---- conversions ---- */

/* An element during a conversion: a whole number with a separate sign, or a float. */
struct number {
    bool is_float;
    bool is_negative;
    uint64_t magnitude;
    double d;
};

static struct number load(int dtype, const char *p)
{
    struct number n = {0};
    size_t size = mr_dtype_size(dtype);
    uint64_t bits = 0;
    float f;

    memcpy(&bits, p, size);
    switch (dtype) {
    case MR_DTYPE_FP16: n.is_float = true, n.d = (double)mr_fp16_to_float((uint16_t)bits); break;
    case MR_DTYPE_BF16: n.is_float = true, n.d = (double)mr_bf16_to_float((uint16_t)bits); break;
    case MR_DTYPE_FP32: memcpy(&f, p, sizeof f), n.is_float = true, n.d = (double)f; break;
    case MR_DTYPE_FP64: memcpy(&n.d, p, sizeof n.d), n.is_float = true; break;
    case MR_DTYPE_INT8:
    case MR_DTYPE_INT16:
    case MR_DTYPE_INT32:
    case MR_DTYPE_INT64: {
        int shift = 64 - 8 * (int)size;
        int64_t v = (int64_t)(bits << shift) >> shift;
        n.is_negative = v < 0;
        n.magnitude = v < 0 ? 0 - (uint64_t)v : (uint64_t)v;
        break;
    }
    default: n.magnitude = bits; break;
    }
    return n;
}

static bool is_float(int dtype)
{
    return dtype == MR_DTYPE_FP16 || dtype == MR_DTYPE_BF16 || dtype == MR_DTYPE_FP32 ||
           dtype == MR_DTYPE_FP64;
}

static bool store(int dtype, struct number n, char out[8])
{
    double whole = n.is_negative ? -(double)n.magnitude : (double)n.magnitude;
    bool is_signed = dtype >= MR_DTYPE_INT8 && dtype <= MR_DTYPE_INT64;
    unsigned bits = dtype == MR_DTYPE_BOOL ? 1 : 8 * (unsigned)mr_dtype_size(dtype);
    uint64_t max = bits == 64 ? UINT64_MAX : (UINT64_C(1) << bits) - 1;

    if (is_float(dtype)) {
        const double d = n.is_float ? n.d : whole;
        return store_float(dtype, d, out) || isinf(d);
    }
    if (is_signed) {
        max = (max >> 1) + n.is_negative;
    } else if (n.is_negative && n.magnitude) {
        return false;
    }
    if (n.is_float || n.magnitude > max) {
        return false;
    }
    uint64_t v = n.is_negative ? 0 - n.magnitude : n.magnitude;
    memcpy(out, &v, sizeof v);
    return true;
}

int mr_array_cast(struct mr_array *a, int dtype, struct mr_err *err)
{
    struct mr_buf cast;
    size_t from = mr_dtype_size(a->dtype);
    size_t to = mr_dtype_size(dtype);
    uint64_t count = mr_array_count(a);

    if (a->dtype == dtype) {
        return MR_OK;
    }
    if (from == 0 || to == 0) {
        return MR_FAIL(err, MR_E_INVALID, "%s cannot be made %s", mr_dtype_name(a->dtype),
                       mr_dtype_name(dtype));
    }
    mr_buf_init(&cast, a->data.max);
    for (uint64_t i = 0; i < count; i++) {
        char out[8];
        struct number n = load(a->dtype, a->data.ptr + i * from);
        if (!store(dtype, n, out)) {
            mr_buf_fini(&cast);
            return MR_FAIL(err, MR_E_INVALID, "element %llu (%s) does not fit %s",
                           (unsigned long long)i, mr_dtype_name(a->dtype), mr_dtype_name(dtype));
        }
        mr_buf_append(&cast, out, to);
    }
    mr_buf_fini(&a->data);
    a->data = cast;
    a->dtype = dtype;
    return cast.failed ? MR_FAIL(err, MR_E_TOO_LARGE, "the array is too large") : MR_OK;
}

/* ---- shapes ---- */

static bool matches(const int64_t *have, const int64_t *want, int rank)
{
    for (int i = 0; i < rank; i++) {
        if (want[i] >= 0 && have[i] != want[i]) {
            return false;
        }
    }
    return true;
}

/* Splits a flat list (or a list of flat rows, or one element) so that it fills the model's shape. */
static bool divide(struct mr_array *a, const int64_t *shape, int rank)
{
    uint64_t fixed = 1;
    int open = -1;
    uint64_t count = mr_array_count(a);

    for (int i = 0; i < rank; i++) {
        if (shape[i] >= 0) {
            if (__builtin_mul_overflow(fixed, (uint64_t)shape[i], &fixed)) {
                return false;
            }
        } else if (open >= 0) {
            return false;
        } else {
            open = i;
        }
    }
    if (fixed == 0 || count % fixed != 0 || (open < 0 && count != fixed)) {
        return false;
    }
    /* A list of flat rows is accepted too, but its rows are kept. */
    bool is_rows = open == 0 && a->rank == 2 && (uint64_t)a->shape[0] == count / fixed;
    if (a->rank > 1 && !is_rows) {
        return false;
    }
    memcpy(a->shape, shape, (size_t)rank * sizeof *shape);
    if (open >= 0) {
        a->shape[open] = (int64_t)(count / fixed);
    }
    a->rank = rank;
    return true;
}

int mr_array_fit(struct mr_array *a, const int64_t *shape, int rank, struct mr_err *err)
{
    char have[160];
    char want[160];

    if (a->rank == rank && matches(a->shape, shape, rank)) {
        return MR_OK;
    }
    bool takes_batch = rank > 0 && (shape[0] < 0 || shape[0] == 1);
    if (a->rank + 1 == rank && takes_batch && matches(a->shape, shape + 1, a->rank)) {
        memmove(a->shape + 1, a->shape, (size_t)a->rank * sizeof *a->shape);
        a->shape[0] = 1;
        a->rank++;
        return MR_OK;
    }
    if (divide(a, shape, rank)) {
        return MR_OK;
    }
    return MR_FAIL(err, MR_E_INVALID, "shape %s does not fit the model's %s",
                   mr_shape_text(a->shape, a->rank, have, sizeof have),
                   mr_shape_text(shape, rank, want, sizeof want));
}
