/* Reads operands. A tensor comes from a model or a client, so its size is compared with its shape before anything is read, and the
 * elements of BYTES are walked with checks. */
#include "read.h"

#include <stdio.h>

#include "base/turn.h"
#include "lex.h"
#include "tensor/tensor.h"

int expr_run_fail(struct expr_run *r, const char *fmt, ...)
{
    char msg[360];
    va_list args;

    va_start(args, fmt);
    vsnprintf(msg, sizeof msg, fmt, args);
    va_end(args);
    expr_fail_at(r->x->text, r->step->at, r->err, "%s", msg);
    return r->by_row ? MR_WRAP(r->err, MR_E_INVALID, "row %llu", (unsigned long long)r->row)
                     : MR_E_INVALID;
}

int expr_spend(struct expr_run *r, uint64_t units)
{
    r->spent += units;
    if (r->spent > EXPR_BUDGET) {
        return expr_run_fail(r, "the expression reads more than %llu bytes over all rows",
                             (unsigned long long)EXPR_BUDGET);
    }
    return mr_turn_spend(units) ? MR_OK : MR_FAIL(r->err, MR_E_CANCELLED, "cancelled");
}

static const struct mr_expr_operand *operand_of(const struct expr_run *r)
{
    return &r->x->operands.at[r->step->operand];
}

#define NAME_OF(r) MR_STR_ARG(mr_str_sub(operand_of(r)->name, 0, 80))

/* Rows, stride and size of a tensor that was fetched. */
static int check_shape(struct expr_run *r, struct expr_operand_state *o)
{
    const struct mr_tensor *t = o->tensor;
    size_t size = mr_dtype_size(t->dtype);
    uint64_t rows = t->rank > 0 ? (uint64_t)t->shape[0] : 1;

    if (t->dtype != operand_of(r)->dtype) {
        return expr_run_fail(r, "tensor '%.*s' is %s where %s was declared", NAME_OF(r),
                             mr_dtype_name(t->dtype), mr_dtype_name(operand_of(r)->dtype));
    }
    if (mr_shape_elements(t->shape, t->rank, &o->elements, NULL) < 0 ||
        (size > 0 && (o->elements > UINT64_MAX / size || o->elements * size != t->bytes))) {
        return expr_run_fail(r, "tensor '%.*s' has %llu bytes, which its shape does not have",
                             NAME_OF(r), (unsigned long long)t->bytes);
    }
    o->stride = o->elements;
    o->is_shared = true;
    if (!r->by_row || rows == 1) {
        return MR_OK;
    }
    if (rows != r->rows) {
        return expr_run_fail(r, "tensor '%.*s' has %llu rows, there are %llu", NAME_OF(r),
                             (unsigned long long)rows, (unsigned long long)r->rows);
    }
    o->stride = rows > 0 ? o->elements / rows : 0;
    o->is_shared = false;
    return MR_OK;
}

int expr_fetch(struct expr_run *r, struct expr_operand_state **out)
{
    const struct mr_expr_operand *operand = operand_of(r);
    struct expr_operand_state *o = &r->operands[r->step->operand];
    int rc = MR_OK;

    *out = o;
    if (o->is_fetched) {
        return MR_OK;
    }
    *o = (struct expr_operand_state){0};
    if (!operand->is_tensor) {
        rc = r->source->value(r->source->ctx, operand, &o->value, r->err);
    } else {
        rc = r->source->tensor(r->source->ctx, operand, &o->tensor, r->err);
        if (rc == MR_OK && o->tensor) {
            rc = check_shape(r, o);
        }
    }
    o->is_fetched = rc == MR_OK;
    return rc;
}

/* Values of the tensor may be read here: in host memory, not too many, of the type that was promised. */
static int check_readable(struct expr_run *r, const struct expr_operand_state *o)
{
    const struct mr_tensor *t = o->tensor;
    size_t size = mr_dtype_size(t->dtype);
    uint64_t bytes = size > 0 ? o->stride * size : o->is_shared ? t->bytes : 0;

    if (t->memory_kind == MR_MEMORY_DEVICE) {
        return expr_run_fail(r, "tensor '%.*s' is not in host memory", NAME_OF(r));
    }
    if (bytes > MR_EXPR_TENSOR_MAX) {
        return expr_run_fail(r, "tensor '%.*s' has %llu bytes; an expression reads at most %d",
                             NAME_OF(r), (unsigned long long)bytes, MR_EXPR_TENSOR_MAX);
    }
    return MR_OK;
}

#define LOAD(type)                                                                                 \
    ({                                                                                             \
        type v_;                                                                                   \
        memcpy(&v_, (const char *)t->data + index * sizeof v_, sizeof v_);                         \
        v_;                                                                                        \
    })

static struct mr_expr_value int_value(int64_t i)
{
    return (struct mr_expr_value){.type = MR_EXPR_INT, .i = i};
}

static struct mr_expr_value float_value(double f)
{
    return (struct mr_expr_value){.type = MR_EXPR_FLOAT, .f = f};
}

/* Element `index` of the whole tensor, which is not BYTES. */
static int load_number(struct expr_run *r, const struct mr_tensor *t, uint64_t index,
                       struct mr_expr_value *out)
{
    switch (t->dtype) {
    case MR_DTYPE_BOOL:
        *out = (struct mr_expr_value){.type = MR_EXPR_BOOL, .b = LOAD(uint8_t) != 0};
        return MR_OK;
    case MR_DTYPE_UINT8: *out = int_value(LOAD(uint8_t)); return MR_OK;
    case MR_DTYPE_UINT16: *out = int_value(LOAD(uint16_t)); return MR_OK;
    case MR_DTYPE_UINT32: *out = int_value(LOAD(uint32_t)); return MR_OK;
    case MR_DTYPE_INT8: *out = int_value(LOAD(int8_t)); return MR_OK;
    case MR_DTYPE_INT16: *out = int_value(LOAD(int16_t)); return MR_OK;
    case MR_DTYPE_INT32: *out = int_value(LOAD(int32_t)); return MR_OK;
    case MR_DTYPE_INT64: *out = int_value(LOAD(int64_t)); return MR_OK;
    case MR_DTYPE_FP16: *out = float_value((double)mr_fp16_to_float(LOAD(uint16_t))); return MR_OK;
    case MR_DTYPE_BF16: *out = float_value((double)mr_bf16_to_float(LOAD(uint16_t))); return MR_OK;
    case MR_DTYPE_FP32: *out = float_value((double)LOAD(float)); return MR_OK;
    case MR_DTYPE_FP64: *out = float_value(LOAD(double)); return MR_OK;
    case MR_DTYPE_UINT64: break;
    default: return expr_run_fail(r, "tensor '%.*s' has no type", NAME_OF(r));
    }
    uint64_t u = LOAD(uint64_t);
    if (u > INT64_MAX) {
        return expr_run_fail(r, "tensor '%.*s' has the value %llu, which is too large for an int",
                             NAME_OF(r), (unsigned long long)u);
    }
    *out = int_value((int64_t)u);
    return MR_OK;
}

/* Walks from the cursor, so that rows in their order cost one pass. */
static int load_string(struct expr_run *r, struct expr_operand_state *o, uint64_t index,
                       struct mr_expr_value *out)
{
    const struct mr_tensor *t = o->tensor;
    mr_str element = {0};

    if (index < o->cursor_element) {
        o->cursor_element = 0;
        o->cursor_byte = 0;
    }
    mr_bytes rest = {(const uint8_t *)t->data + o->cursor_byte, t->bytes - o->cursor_byte};
    size_t before = rest.len;
    for (uint64_t i = o->cursor_element; i <= index; i++) {
        o->cursor_byte = t->bytes - rest.len;
        if (!mr_bytes_tensor_next(&rest, &element)) {
            return expr_run_fail(r, "tensor '%.*s' has less elements than its shape", NAME_OF(r));
        }
    }
    o->cursor_element = index;
    if (element.len > MR_EXPR_TENSOR_MAX) {
        return expr_run_fail(
            r, "tensor '%.*s' has an element of %zu bytes; an expression reads at most %d",
            NAME_OF(r), element.len, MR_EXPR_TENSOR_MAX);
    }
    *out = (struct mr_expr_value){.type = MR_EXPR_STRING, .s = element};
    return expr_spend(r, before - rest.len);
}

int expr_element(struct expr_run *r, struct expr_operand_state *o, uint64_t index,
                 struct mr_expr_value *out)
{
    int rc = check_readable(r, o);

    if (rc < 0) {
        return rc;
    }
    index += o->is_shared ? 0 : r->row * o->stride;
    return o->tensor->dtype == MR_DTYPE_BYTES ? load_string(r, o, index, out)
                                              : load_number(r, o->tensor, index, out);
}

/* Puts `v` to what min, max or sum has so far. */
static int accumulate(struct expr_run *r, int kind, struct mr_expr_value *sum,
                      struct mr_expr_value v)
{
    bool is_float = v.type == MR_EXPR_FLOAT;

    if (kind == EXPR_SUM && is_float) {
        sum->f += v.f;
    } else if (kind == EXPR_SUM) {
        if (__builtin_add_overflow(sum->i, v.type == MR_EXPR_BOOL ? (int64_t)v.b : v.i, &sum->i)) {
            return expr_run_fail(r, "sum(%.*s) is too large for an int", NAME_OF(r));
        }
    } else if (is_float) {
        /* NaN wins, whatever the order */
        bool is_better = kind == EXPR_MIN ? v.f < sum->f : v.f > sum->f;
        sum->f = is_better || v.f != v.f ? v.f : sum->f;
    } else {
        sum->i = kind == EXPR_MIN ? MR_MIN(sum->i, v.i) : MR_MAX(sum->i, v.i);
    }
    return MR_OK;
}

static bool is_true(struct mr_expr_value v)
{
    return v.type == MR_EXPR_FLOAT ? v.f != 0 : v.type == MR_EXPR_INT ? v.i != 0 : v.b;
}

static int aggregate_logic(struct expr_run *r, const struct expr_operand_state *o, uint64_t from,
                           bool is_any, struct mr_expr_value *out)
{
    struct mr_expr_value v;
    bool result = !is_any;

    for (uint64_t i = 0; i < o->stride && result != is_any; i++) {
        int rc = load_number(r, o->tensor, from + i, &v);
        if (rc < 0) {
            return rc;
        }
        result = is_true(v);
    }
    *out = (struct mr_expr_value){.type = MR_EXPR_BOOL, .b = result};
    return MR_OK;
}

int expr_aggregate(struct expr_run *r, struct expr_operand_state *o, struct mr_expr_value *out)
{
    int kind = r->step->n;
    uint64_t from = o->is_shared ? 0 : r->row * o->stride;
    struct mr_expr_value sum = {.type = (enum mr_expr_type)r->step->type};
    struct mr_expr_value v;
    int rc = MR_OK;

    MR_TRY(check_readable(r, o));
    MR_TRY(expr_spend(r, o->stride));
    if (kind == EXPR_ANY || kind == EXPR_ALL) {
        return aggregate_logic(r, o, from, kind == EXPR_ANY, out);
    }
    sum.is_null = kind != EXPR_SUM && o->stride == 0;
    for (uint64_t i = 0; i < o->stride; i++) {
        MR_TRY(load_number(r, o->tensor, from + i, &v));
        if (i == 0 && kind != EXPR_SUM) {
            sum = v;
        } else {
            MR_TRY(accumulate(r, kind, &sum, v));
        }
    }
    *out = sum;
out:
    return rc;
}
