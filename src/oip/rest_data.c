/* JSON tensor data, flat or nested, into the tensor's type.
 *
 * The shape says how much memory is needed and comes from outside, so it is first held against the
 * text: an element takes at least two bytes of it, a string three. A shape that the text cannot fill is
 * refused before anything is allocated. Numbers are parsed straight to their place; strings get their
 * length prefix. Any thread. */
#include <math.h>

#include "rest_read.h"

/* Of the data of a request that is refused: how much is read again, for its error. */
#define COUNTED_BYTES ((ptrdiff_t)1 << 20)

/* The data's own reader failed, which may be a copy of the message's. */
static int data_failed(struct mr_rest_reader *r, const struct mr_json *j)
{
    r->json.status = j->status;
    return mr_rest_named(r, "data");
}

/* Elements of the data, or of so much of it as can be counted in a moment. */
static uint64_t elements_count(struct mr_json data, bool *out_is_all)
{
    int level = 0;
    uint64_t n = 0;
    *out_is_all = data.end - data.pos <= COUNTED_BYTES;
    data.end = *out_is_all ? data.end : data.pos + COUNTED_BYTES;
    data.err = NULL;
    while (mr_json_next_leaf(&data, &level) && mr_json_skip(&data, NULL) == MR_OK) {
        n++;
    }
    *out_is_all |= data.status == MR_OK;
    return n;
}

/* The reader `data` stands before them. The text begins as Triton's, which clients look for. */
static int data_mismatch(struct mr_rest_reader *r, const struct mr_json *data,
                         const struct mr_oip_tensor *t, uint64_t elements)
{
    char shape[128];
    bool is_all;
    uint64_t given = elements_count(*data, &is_all);
    r->is_named = true;
    return MR_FAIL(r->err, MR_E_INVALID,
                   "Unable to parse 'data': Shape does not match true shape of 'data' field: %s "
                   "'%.*s' of shape %s takes %llu elements, got %llu%s",
                   r->word, MR_STR_ARG(mr_str_sub(t->name, 0, 128)),
                   mr_shape_text(t->tensor.shape, t->tensor.rank, shape, sizeof shape),
                   (unsigned long long)elements, (unsigned long long)given,
                   is_all ? "" : " or more");
}

static int size_check(struct mr_rest_reader *r, const struct mr_oip_tensor *t, uint64_t bytes)
{
    if (r->max_json_bytes == 0 || bytes <= r->max_json_bytes) {
        return MR_OK;
    }
    r->is_named = true;
    return MR_FAIL(
        r->err, MR_E_TOO_LARGE,
        "JSON data of %s '%.*s' makes a tensor of %llu bytes, which exceeds the maximum allowed "
        "value of %llu bytes. Use %s to increase the limit.",
        r->word, MR_STR_ARG(t->name), (unsigned long long)bytes,
        (unsigned long long)r->max_json_bytes, r->size_option);
}

#define NARROW_STEP 4096 /* elements between calls of mr_turn_spend */

/* FP16 and BF16 are read as doubles and narrowed in place: element i is read at 8i and written at 2i. */
static int narrow(struct mr_rest_reader *r, int dtype, void *data, uint64_t n)
{
    uint16_t infinity = dtype == MR_DTYPE_FP16 ? 0x7C00 : 0x7F80;
    const char *from = data;
    char *to = data;
    for (uint64_t i = 0; i < n; i++) {
        if (i % NARROW_STEP == 0 && !mr_turn_spend((uint64_t)8 * NARROW_STEP)) {
            return mr_oip_ended(r->err);
        }
        double v;
        memcpy(&v, from + 8 * i, 8);
        uint16_t half = dtype == MR_DTYPE_FP16 ? mr_fp16_from_double(v) : mr_bf16_from_double(v);
        if ((half & 0x7FFF) == infinity && isfinite(v)) {
            r->is_named = true;
            return MR_FAIL(r->err, MR_E_INVALID,
                           "Unable to parse 'data': value %.9g does not fit %s", v,
                           mr_dtype_name(dtype));
        }
        memcpy(to + 2 * i, &half, 2);
    }
    return MR_OK;
}

/* mr_json_fail has written "more than N elements" when the text has more than the shape. */
static bool is_too_many(const struct mr_err *err)
{
    return err && mr_str_starts(mr_str_c(err->msg), MR_STR("more than "));
}

static int numbers_read(struct mr_rest_reader *r, struct mr_json *j, uint64_t elements,
                        struct mr_oip_tensor *t)
{
    static const struct {
        enum mr_json_fill kind;
        uint8_t size; /* while reading */
    } fills[MR_DTYPE_COUNT] = {
        [MR_DTYPE_BOOL] = {MR_JSON_FILL_BOOL, 1},  [MR_DTYPE_UINT8] = {MR_JSON_FILL_U8, 1},
        [MR_DTYPE_UINT16] = {MR_JSON_FILL_U16, 2}, [MR_DTYPE_UINT32] = {MR_JSON_FILL_U32, 4},
        [MR_DTYPE_UINT64] = {MR_JSON_FILL_U64, 8}, [MR_DTYPE_INT8] = {MR_JSON_FILL_I8, 1},
        [MR_DTYPE_INT16] = {MR_JSON_FILL_I16, 2},  [MR_DTYPE_INT32] = {MR_JSON_FILL_I32, 4},
        [MR_DTYPE_INT64] = {MR_JSON_FILL_I64, 8},  [MR_DTYPE_FP16] = {MR_JSON_FILL_F64, 8},
        [MR_DTYPE_FP32] = {MR_JSON_FILL_F32, 4},   [MR_DTYPE_FP64] = {MR_JSON_FILL_F64, 8},
        [MR_DTYPE_BF16] = {MR_JSON_FILL_F64, 8},
    };
    int dtype = t->tensor.dtype;
    const struct mr_json data = *j;
    if (elements > INT64_MAX / mr_dtype_size(dtype)) {
        return MR_FAIL(r->err, MR_E_INVALID,
                       "byte size overflow for input '%.*s': element count (%llu) * data type size "
                       "(%zu) exceeds maximum allowed size (%lld)",
                       MR_STR_ARG(t->name), (unsigned long long)elements,
                       (size_t)mr_dtype_size(dtype), (long long)INT64_MAX);
    }
    if (elements > (uint64_t)(j->end - j->pos) / 2 + 1) {
        return data_mismatch(r, &data, t, elements);
    }
    int rc = size_check(r, t, elements * mr_dtype_size(dtype));
    if (rc < 0) {
        return rc;
    }
    rc = mr_oip_data_new(r->arena, t, elements * fills[dtype].size, r->err);
    if (rc < 0) {
        return rc;
    }
    uint64_t count = 0;
    uint64_t nowhere; /* a place of any alignment for no elements */
    void *to = t->tensor.data ? t->tensor.data : &nowhere;
    if (mr_json_fill(j, fills[dtype].kind, to, elements, &count) < 0) {
        return is_too_many(r->err) ? data_mismatch(r, &data, t, elements) : data_failed(r, j);
    }
    if (count != elements) {
        return data_mismatch(r, &data, t, elements);
    }
    if (dtype == MR_DTYPE_FP16 || dtype == MR_DTYPE_BF16) {
        t->tensor.bytes = elements * 2;
        return narrow(r, dtype, to, elements);
    }
    return MR_OK;
}

/* Strings with escapes are unescaped outside the request's arena, which would otherwise have to hold
 * all of them beside the tensor. */
struct scratch {
    struct mr_arena arena;
    mr_str text;
};

static void scratch_drop(struct scratch *s, mr_str used)
{
    bool is_of_text = used.ptr >= s->text.ptr && used.ptr <= s->text.ptr + s->text.len;
    if (!is_of_text && s->arena.chunks) {
        mr_arena_reset(&s->arena);
    }
}

static int strings_fill(struct mr_rest_reader *r, struct mr_json *j, struct scratch *scratch,
                        uint64_t elements, uint64_t room, struct mr_oip_tensor *t)
{
    const struct mr_json data = *j;
    char *to = t->tensor.data;
    uint64_t used = 0;
    uint64_t count = 0;
    int level = 0;
    while (mr_json_next_leaf(j, &level)) {
        mr_str s;
        if (mr_json_string(j, &s) < 0) {
            return data_failed(r, j);
        }
        /* The second cannot happen: unescaped text is never longer than its source. */
        if (count == elements || room - used < 4 || room - used - 4 < s.len) {
            return data_mismatch(r, &data, t, elements);
        }
        uint32_t len = (uint32_t)s.len;
        memcpy(to + used, &len, 4);
        if (!mr_turn_copy(to + used + 4, s.ptr, s.len)) {
            return mr_oip_ended(r->err);
        }
        used += 4 + s.len;
        count++;
        scratch_drop(scratch, s);
    }
    if (j->status < 0) {
        return data_failed(r, j);
    }
    t->tensor.bytes = used;
    return count == elements ? MR_OK : data_mismatch(r, &data, t, elements);
}

static int strings_read(struct mr_rest_reader *r, struct mr_json *j, uint64_t elements,
                        struct mr_oip_tensor *t)
{
    struct scratch scratch;
    struct mr_json sub = *j;
    if (mr_json_skip(j, &scratch.text) < 0) {
        return data_failed(r, j);
    }
    sub.end = scratch.text.ptr + scratch.text.len;
    if (elements > scratch.text.len / 3 + 1 || scratch.text.len > UINT32_MAX) {
        return data_mismatch(r, &sub, t, elements);
    }
    /* Each element has two quotes in the text and four bytes of length in the tensor. */
    uint64_t room = scratch.text.len + 2 * elements;
    int rc = size_check(r, t, room);
    if (rc == MR_OK) {
        rc = mr_oip_data_new(r->arena, t, elements > 0 ? room : 0, r->err);
    }
    if (rc < 0) {
        return rc;
    }
    mr_arena_init(&scratch.arena, 1024, 2 * scratch.text.len + 65536);
    sub.arena = &scratch.arena;
    rc = strings_fill(r, &sub, &scratch, elements, elements > 0 ? room : 0, t);
    mr_arena_fini(&scratch.arena);
    return rc;
}

int mr_rest_data(struct mr_rest_reader *r, struct mr_json *j, uint64_t elements,
                 struct mr_oip_tensor *t)
{
    if (t->tensor.dtype == MR_DTYPE_BYTES) {
        return strings_read(r, j, elements, t);
    }
    return numbers_read(r, j, elements, t);
}
