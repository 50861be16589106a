/* Parses arrays of numbers into typed memory: the hot path of JSON inference requests.
 *
 * fill_walk handles brackets and commas. At a leaf it calls the run function of the element type, which reads values
 * in one tight loop while only commas and white space separate them, that is, a whole row. One macro makes the run
 * functions, so that the reader of each type is inlined in its loop. */
#include <math.h>
#include <string.h>

#include "json_number.h"

/* The array being filled. `pos` is only written back at the end of a run, to keep it in a
 * register. */
struct fill {
    struct mr_json *j;
    void *out;
    uint64_t capacity;
    uint64_t count;
};

#define FILL_STEP 512 /* elements read between two calls of mr_turn_spend */

typedef int(fill_run_fn)(struct fill *f);

static int fill_too_many(struct fill *f, const char *at)
{
    return mr_json_fail_at(f->j, at, MR_E_INVALID, "more than %llu elements",
                           (unsigned long long)f->capacity);
}

/* As run_continues, with any white space between the values. Not inlined, or the compiler would merge both and call
 * the result for each value. */
static __attribute__((noinline)) bool run_continues_far(const char **io_p, const char *end)
{
    const char *p = json_skip_space(*io_p, end);
    *io_p = p;
    if (p == end || *p != ',') {
        return false;
    }
    const char *next = json_skip_space(p + 1, end);
    if (next == end || *next == '[') {
        return false;
    }
    *io_p = next;
    return true;
}

/* After a value: true when another one follows in the same run. */
static inline bool run_continues(const char **io_p, const char *end)
{
    const char *p = *io_p;
    if (end - p >= 2 && *p == ',' && json_is_digit(p[1])) {
        *io_p = p + 1;
        return true;
    }
    return run_continues_far(io_p, end);
}

/* read(j, p, end, &value) gives the end of the value, or NULL with the error set. */
#define FILL_RUN(name, type, read)                                                                 \
    static int name(struct fill *f)                                                                \
    {                                                                                              \
        struct mr_json *j = f->j;                                                                  \
        const char *p = j->pos;                                                                    \
        const char *end = j->end;                                                                  \
        type *out = f->out;                                                                        \
        uint64_t count = f->count;                                                                 \
        do {                                                                                       \
            if (__builtin_expect(count == f->capacity, 0)) {                                       \
                return fill_too_many(f, p);                                                        \
            }                                                                                      \
            p = read(j, p, end, &out[count]);                                                      \
            if (__builtin_expect(!p, 0)) {                                                         \
                return j->status;                                                                  \
            }                                                                                      \
            count++;                                                                               \
        } while (run_continues(&p, end) &&                                                         \
                 (count % FILL_STEP != 0 || json_spend(j, (uint64_t)8 * FILL_STEP)));              \
        j->pos = p;                                                                                \
        f->count = count;                                                                          \
        return j->status;                                                                          \
    }

/* What is no finite number: null may stand for NaN, and a number beyond `type`, which ends at `stop`, may be refused.
 * Not inlined, for the same reason as run_continues_far. */
static __attribute__((noinline)) const char *read_special(struct mr_json *j, const char *p,
                                                          const char *end, const char *stop,
                                                          const char *type)
{
    if (stop) {
        if (!j->overflow_fails || !json_is_digit(p[*p == '-'])) {
            return stop;
        }
        int shown = stop - p < 32 ? (int)(stop - p) : 32;
        mr_json_fail_at(j, p, MR_E_INVALID, "value %.*s does not fit %s", shown, p, type);
        return NULL;
    }
    if (j->null_is_nan && end - p >= 4 && memcmp(p, "null", 4) == 0) {
        return p + 4;
    }
    j->pos = p;
    mr_json_expected(j, "a valid number");
    return NULL;
}

static inline const char *read_f32(struct mr_json *j, const char *p, const char *end, float *out)
{
    *out = NAN;
    const char *stop = json_read_float(p, end, out);
    if (__builtin_expect(!stop || !isfinite(*out), 0)) {
        stop = read_special(j, p, end, stop, "fp32");
    }
    return stop;
}

static inline const char *read_f64(struct mr_json *j, const char *p, const char *end, double *out)
{
    *out = NAN;
    const char *stop = json_read_double(p, end, out);
    if (__builtin_expect(!stop || !isfinite(*out), 0)) {
        stop = read_special(j, p, end, stop, "fp64");
    }
    return stop;
}

static inline const char *read_bool(struct mr_json *j, const char *p, const char *end, bool *out)
{
    size_t left = (size_t)(end - p);
    if (left >= 4 && memcmp(p, "true", 4) == 0) {
        *out = true;
        return p + 4;
    }
    if (left >= 5 && memcmp(p, "false", 5) == 0) {
        *out = false;
        return p + 5;
    }
    j->pos = p;
    mr_json_expected(j, "true or false");
    return NULL;
}

/* The range of an element type: integers in [-low, high]. */
struct integer_type {
    uint64_t low;
    uint64_t high;
    const char *text;
};

/* As read_integer, for integers of any form. Not inlined, for the same reason as run_continues_far. */
static __attribute__((noinline)) const char *read_integer_far(struct mr_json *j, const char *p,
                                                              const char *end,
                                                              const struct integer_type *type,
                                                              uint64_t *out)
{
    bool negative;
    const char *begin = p;
    enum json_integer outcome = json_read_integer(&p, end, &negative, out);
    if (outcome != JSON_INTEGER_OK) {
        j->pos = begin;
        mr_json_integer_fail(j, outcome);
        return NULL;
    }
    if (*out > (negative ? type->low : type->high)) {
        mr_json_fail_at(j, begin, MR_E_INVALID, "value %.*s does not fit %s", (int)(p - begin),
                        begin, type->text);
        return NULL;
    }
    *out = negative ? 0 - *out : *out;
    return p;
}

static inline __attribute__((always_inline)) const char *read_integer(
    struct mr_json *j, const char *p, const char *end, const struct integer_type *type,
    uint64_t *out)
{
    bool negative;
    const char *stop = p;
    if (__builtin_expect(!json_read_plain_integer(&stop, end, &negative, out) ||
                             *out > (negative ? type->low : type->high),
                         0)) {
        return read_integer_far(j, p, end, type, out);
    }
    *out = negative ? 0 - *out : *out;
    return stop;
}

#define READ_INTEGER(name, type, low, high, text)                                                  \
    static inline const char *name(struct mr_json *j, const char *p, const char *end, type *out)   \
    {                                                                                              \
        static const struct integer_type bounds = {(low), (high), text};                           \
        uint64_t value;                                                                            \
        p = read_integer(j, p, end, &bounds, &value);                                              \
        if (__builtin_expect(p != NULL, 1)) {                                                      \
            *out = (type)value;                                                                    \
        }                                                                                          \
        return p;                                                                                  \
    }

READ_INTEGER(read_u8, uint8_t, 0, UINT8_MAX, "uint8")
READ_INTEGER(read_u16, uint16_t, 0, UINT16_MAX, "uint16")
READ_INTEGER(read_u32, uint32_t, 0, UINT32_MAX, "uint32")
READ_INTEGER(read_u64, uint64_t, 0, UINT64_MAX, "uint64")
READ_INTEGER(read_i8, int8_t, (uint64_t)INT8_MAX + 1, INT8_MAX, "int8")
READ_INTEGER(read_i16, int16_t, (uint64_t)INT16_MAX + 1, INT16_MAX, "int16")
READ_INTEGER(read_i32, int32_t, (uint64_t)INT32_MAX + 1, INT32_MAX, "int32")
READ_INTEGER(read_i64, int64_t, (uint64_t)INT64_MAX + 1, INT64_MAX, "int64")

FILL_RUN(run_bool, bool, read_bool)
FILL_RUN(run_u8, uint8_t, read_u8)
FILL_RUN(run_u16, uint16_t, read_u16)
FILL_RUN(run_u32, uint32_t, read_u32)
FILL_RUN(run_u64, uint64_t, read_u64)
FILL_RUN(run_i8, int8_t, read_i8)
FILL_RUN(run_i16, int16_t, read_i16)
FILL_RUN(run_i32, int32_t, read_i32)
FILL_RUN(run_i64, int64_t, read_i64)
FILL_RUN(run_f32, float, read_f32)
FILL_RUN(run_f64, double, read_f64)

_Static_assert(sizeof(bool) == 1, "BOOL elements are one byte");

static fill_run_fn *const runs[] = {
    [MR_JSON_FILL_BOOL] = run_bool, [MR_JSON_FILL_U8] = run_u8,   [MR_JSON_FILL_U16] = run_u16,
    [MR_JSON_FILL_U32] = run_u32,   [MR_JSON_FILL_U64] = run_u64, [MR_JSON_FILL_I8] = run_i8,
    [MR_JSON_FILL_I16] = run_i16,   [MR_JSON_FILL_I32] = run_i32, [MR_JSON_FILL_I64] = run_i64,
    [MR_JSON_FILL_F32] = run_f32,   [MR_JSON_FILL_F64] = run_f64,
};

int mr_json_fill(struct mr_json *j, enum mr_json_fill kind, void *out, uint64_t capacity,
                 uint64_t *out_count)
{
    MR_ASSERT((unsigned)kind < sizeof runs / sizeof runs[0]);
    struct fill f = {.j = j, .out = out, .capacity = capacity};
    int level = 0;
    while (mr_json_next_leaf(j, &level)) {
        if (runs[kind](&f) < 0) {
            return j->status;
        }
    }
    if (j->status == MR_OK) {
        *out_count = f.count;
    }
    return j->status;
}
