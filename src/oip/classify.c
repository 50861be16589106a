/* The classification extension: the k largest elements of each row as "value:index[:label]" strings.
 *
 * Elements are compared as 64-bit keys that order as their values do, for every type alike; NaN has the
 * smallest key, so it comes last. A heap of the k best found so far, its worst on top, makes one pass
 * enough: O(n log k), and no sorting of what is not sent. Of equal values the lower index comes first,
 * so that answers do not depend on chance. Any thread. */
#include <math.h>
#include <stdio.h>

#include "oip_priv.h"

#define CLASSIFY_ELEMENTS_MAX 1000000
#define STEP_ELEMENTS         512 /* compared between calls of mr_turn_spend */

struct candidate {
    uint64_t key;
    uint32_t index; /* in its row */
    /* of its text, for which there is room: a process that made the tensor may still write it */
    uint32_t bound;
};

static uint64_t key_of_signed(int64_t v)
{
    return (uint64_t)v ^ (UINT64_C(1) << 63);
}

/* Bits of a double, turned so that unsigned order is numeric order. */
static uint64_t key_of_double(double v)
{
    if (isnan(v)) {
        return 0;
    }
    v += 0.0; /* -0 and 0 are equal */
    uint64_t bits;
    memcpy(&bits, &v, sizeof bits);
    return bits >> 63 ? ~bits : bits | UINT64_C(1) << 63;
}

static uint64_t key_at(int dtype, const void *data, uint64_t i)
{
    switch (dtype) {
    case MR_DTYPE_UINT8: return ((const uint8_t *)data)[i];
    case MR_DTYPE_UINT16: return ((const uint16_t *)data)[i];
    case MR_DTYPE_UINT32: return ((const uint32_t *)data)[i];
    case MR_DTYPE_UINT64: return ((const uint64_t *)data)[i];
    case MR_DTYPE_INT8: return key_of_signed(((const int8_t *)data)[i]);
    case MR_DTYPE_INT16: return key_of_signed(((const int16_t *)data)[i]);
    case MR_DTYPE_INT32: return key_of_signed(((const int32_t *)data)[i]);
    case MR_DTYPE_INT64: return key_of_signed(((const int64_t *)data)[i]);
    case MR_DTYPE_FP32: return key_of_double(((const float *)data)[i]);
    default: return key_of_double(((const double *)data)[i]);
    }
}

static double float_at(int dtype, const void *data, uint64_t i)
{
    return dtype == MR_DTYPE_FP32 ? ((const float *)data)[i] : ((const double *)data)[i];
}

/* Value and index as text; out has room for what text_bound says. */
static size_t class_text(int dtype, const void *data, uint64_t i, uint64_t index, char *out,
                         size_t room)
{
    int n;
    if (dtype == MR_DTYPE_FP32 || dtype == MR_DTYPE_FP64) {
        n = snprintf(out, room, "%f:%llu", float_at(dtype, data, i), (unsigned long long)index);
    } else if (dtype >= MR_DTYPE_INT8 && dtype <= MR_DTYPE_INT64) {
        n = snprintf(out, room, "%lld:%llu",
                     (long long)(key_at(dtype, data, i) ^ (UINT64_C(1) << 63)),
                     (unsigned long long)index);
    } else {
        n = snprintf(out, room, "%llu:%llu", (unsigned long long)key_at(dtype, data, i),
                     (unsigned long long)index);
    }
    return n < 0 ? 0 : MR_MIN((size_t)n, room - 1);
}

static size_t text_bound(int dtype, const void *data, uint64_t i)
{
    bool is_huge = (dtype == MR_DTYPE_FP32 || dtype == MR_DTYPE_FP64) &&
                   fabs(float_at(dtype, data, i)) >= 1e15;
    return is_huge ? 352 : 48; /* "%f" of DBL_MAX has 316 characters, the index at most 7 */
}

/* a is worse than b: comes later in the answer. */
static bool is_worse(struct candidate a, struct candidate b)
{
    return a.key != b.key ? a.key < b.key : a.index > b.index;
}

static void heap_sink(struct candidate *heap, size_t len, size_t at)
{
    for (;;) {
        size_t worst = at;
        for (size_t child = 2 * at + 1; child <= 2 * at + 2 && child < len; child++) {
            if (is_worse(heap[child], heap[worst])) {
                worst = child;
            }
        }
        if (worst == at) {
            return;
        }
        struct candidate moved = heap[at];
        heap[at] = heap[worst];
        heap[worst] = moved;
        at = worst;
    }
}

static bool check(uint64_t i)
{
    return i % STEP_ELEMENTS != 0 || mr_turn_spend((uint64_t)16 * STEP_ELEMENTS);
}

/* The k best of n elements from `begin` on, best first. k <= n. False: the turn was ended. */
static bool row_select(int dtype, const void *data, uint64_t begin, uint64_t n,
                       struct candidate *heap, size_t k)
{
    for (size_t i = 0; i < k; i++) {
        heap[i] = (struct candidate){key_at(dtype, data, begin + i), (uint32_t)i, 0};
    }
    for (size_t i = k / 2; i-- > 0;) {
        heap_sink(heap, k, i);
    }
    for (uint64_t i = k; i < n && k > 0; i++) {
        if (!check(i)) {
            return false;
        }
        struct candidate c = {key_at(dtype, data, begin + i), (uint32_t)i, 0};
        if (is_worse(heap[0], c)) {
            heap[0] = c;
            heap_sink(heap, k, 0);
        }
    }
    for (size_t left = k; left > 1; left--) {
        if (!check(left)) {
            return false;
        }
        struct candidate worst = heap[0];
        heap[0] = heap[left - 1];
        heap[left - 1] = worst;
        heap_sink(heap, left - 1, 0);
    }
    return true;
}

struct classes {
    const struct mr_oip_tensor *in;
    uint64_t rows;
    uint64_t row_elements;
    uint64_t k; /* per row */
    bool has_batch;
};

static int classes_init(struct classes *c, const struct mr_oip_tensor *in, struct mr_err *err)
{
    const struct mr_tensor *t = &in->tensor;
    bool is_number = (t->dtype >= MR_DTYPE_UINT8 && t->dtype <= MR_DTYPE_INT64) ||
                     t->dtype == MR_DTYPE_FP32 || t->dtype == MR_DTYPE_FP64;
    if (!is_number) {
        return MR_FAIL(err, MR_E_INVALID,
                       "class result not available for output due to unsupported type '%s'",
                       mr_dtype_name(t->dtype));
    }
    uint64_t elements;
    int rc = mr_shape_elements(t->shape, t->rank, &elements, err);
    if (rc < 0) {
        return rc;
    }
    c->in = in;
    c->has_batch = in->batched && t->rank > 0;
    c->rows = c->has_batch ? (uint64_t)t->shape[0] : 1;
    int skip = c->has_batch ? 1 : 0;
    rc = mr_shape_elements(t->shape + skip, t->rank - skip, &c->row_elements, err);
    if (rc < 0) {
        return rc;
    }
    /* The limit is per row, as Triton's; the whole is bounded by the tensor that exists already. */
    if (c->row_elements > CLASSIFY_ELEMENTS_MAX) {
        return MR_FAIL(err, MR_E_INVALID, "classification output tensor too large");
    }
    if (elements > SIZE_MAX / 8 || t->bytes != elements * mr_dtype_size(t->dtype)) {
        return MR_FAIL(err, MR_E_INTERNAL,
                       "output tensor shape does not match size of output for '%.*s'",
                       MR_STR_ARG(in->name));
    }
    c->k = MR_MIN((uint64_t)MR_MAX(in->classification, 0), c->row_elements);
    return MR_OK;
}

static mr_str label_at(const struct mr_oip_tensor *in, uint64_t index)
{
    return in->labels && index < in->label_count ? in->labels[index] : MR_STR("");
}

/* Select row after row into `chosen` ([rows][k]); *out_bound: the most bytes that their texts can take. False: the
 * turn was ended. */
static bool classes_select(const struct classes *c, struct candidate *chosen, uint64_t *out_bound)
{
    const struct mr_tensor *t = &c->in->tensor;
    uint64_t bound = 0;
    for (uint64_t row = 0; row < c->rows; row++) {
        struct candidate *best = chosen + row * c->k;
        uint64_t begin = row * c->row_elements;
        if (!mr_turn_spend(32) ||
            !row_select(t->dtype, t->data, begin, c->row_elements, best, (size_t)c->k)) {
            return false;
        }
        for (uint64_t i = 0; i < c->k; i++) {
            best[i].bound = (uint32_t)text_bound(t->dtype, t->data, begin + best[i].index);
            bound += 4 + best[i].bound + 1 + label_at(c->in, best[i].index).len;
        }
    }
    *out_bound = bound;
    return true;
}

static bool classes_write(const struct classes *c, const struct candidate *chosen, char *out,
                          uint64_t *out_bytes)
{
    const struct mr_tensor *t = &c->in->tensor;
    char *p = out;
    for (uint64_t n = 0; n < c->rows * c->k; n++) {
        if (!mr_turn_spend(256)) {
            return false;
        }
        uint64_t index = chosen[n].index;
        uint64_t at = n / c->k * c->row_elements + index;
        uint32_t len = (uint32_t)class_text(t->dtype, t->data, at, index, p + 4, chosen[n].bound);
        mr_str label = label_at(c->in, index);
        if (label.len > 0) {
            p[4 + len++] = ':';
            memcpy(p + 4 + len, label.ptr, label.len);
            len += (uint32_t)label.len;
        }
        memcpy(p, &len, 4);
        p += 4 + len;
    }
    *out_bytes = (uint64_t)(p - out);
    return true;
}

int mr_oip_classify(const struct mr_oip_tensor *in, struct mr_arena *arena, struct mr_tensor *out,
                    struct mr_err *err)
{
    struct classes c;
    int rc = classes_init(&c, in, err);
    if (rc < 0) {
        return rc;
    }
    /* Two tensors' worth of memory made the way a decoder makes it: from the arena while small. */
    struct mr_oip_tensor chosen = {0};
    struct mr_oip_tensor text = {0};
    int64_t *shape = MR_ARENA_ARRAY(arena, int64_t, 2);
    if (!shape) {
        return mr_oip_no_memory(err);
    }
    rc = mr_oip_data_new(arena, &chosen, c.rows * c.k * sizeof(struct candidate), err);
    if (rc < 0) {
        return rc;
    }
    bool is_empty = c.rows == 0 || c.k == 0;
    uint64_t bound = 0;
    uint64_t bytes = 0;
    if (!is_empty && !classes_select(&c, chosen.tensor.data, &bound)) {
        return mr_oip_ended(err);
    }
    rc = mr_oip_data_new(arena, &text, bound, err);
    if (rc < 0) {
        return rc;
    }
    if (!is_empty && !classes_write(&c, chosen.tensor.data, text.tensor.data, &bytes)) {
        return mr_oip_ended(err);
    }
    int rank = 0;
    if (c.has_batch) {
        shape[rank++] = (int64_t)c.rows;
    }
    shape[rank++] = (int64_t)c.k;
    *out = (struct mr_tensor){.dtype = MR_DTYPE_BYTES,
                              .rank = rank,
                              .shape = shape,
                              .data = text.tensor.data,
                              .bytes = bytes};
    return MR_OK;
}
