/* Runs a program: a loop over its steps with a stack of EXPR_STACK_MAX values. The types were checked by the compiler, so that
 * only null, ranges and overflow are left to find out. */
#include "read.h"

#include <math.h>
#include <stdio.h>

#include "base/turn.h"
#include "codec/json.h"
#include "tensor/tensor.h"

static struct mr_expr_value null_of(const struct expr_step *s)
{
    return (struct mr_expr_value){.type = (enum mr_expr_type)s->type, .is_null = true};
}

static struct mr_expr_value bool_value(bool b)
{
    return (struct mr_expr_value){.type = MR_EXPR_BOOL, .b = b};
}

/* ---- values of the request ---- */

static bool int_of(const struct mr_expr_value *v, int64_t *out)
{
    switch (v->type) {
    case MR_EXPR_INT: *out = v->i; return true;
    case MR_EXPR_STRING: return mr_str_to_i64(v->s, out);
    case MR_EXPR_FLOAT:
        if (!(v->f >= -0x1p63 && v->f < 0x1p63) || trunc(v->f) != v->f) {
            return false;
        }
        *out = (int64_t)v->f;
        return true;
    default: return false;
    }
}

static bool float_of(const struct mr_expr_value *v, double *out)
{
    switch (v->type) {
    case MR_EXPR_INT: *out = (double)v->i; return true;
    case MR_EXPR_FLOAT: *out = v->f; return true;
    case MR_EXPR_STRING: return mr_text_double(v->s, out);
    default: return false;
    }
}

static bool bool_of(const struct mr_expr_value *v, bool *out)
{
    if (v->type == MR_EXPR_BOOL) {
        *out = v->b;
        return true;
    }
    return v->type == MR_EXPR_STRING && mr_str_to_bool(v->s, out);
}

/* A value of the request as the type of its default. A text must be one already: numbers as text would need memory. */
static int convert(struct expr_run *r, const struct mr_expr_value *v, struct mr_expr_value *out)
{
    const struct mr_expr_operand *operand = &r->x->operands.at[r->step->operand];
    struct mr_expr_value to = {.type = (enum mr_expr_type)r->step->type};
    bool is_ok = false;

    switch (to.type) {
    case MR_EXPR_INT: is_ok = int_of(v, &to.i); break;
    case MR_EXPR_FLOAT: is_ok = float_of(v, &to.f); break;
    case MR_EXPR_BOOL: is_ok = bool_of(v, &to.b); break;
    case MR_EXPR_STRING:
        is_ok = v->type == MR_EXPR_STRING;
        to.s = v->s;
        break;
    }
    if (!is_ok) {
        return expr_run_fail(r, "%s '%.*s' of the request is a %s that is no %s",
                             operand->form == MR_EXPR_HEADER ? "header" : "parameter",
                             MR_STR_ARG(mr_str_sub(operand->name, 0, 80)),
                             mr_expr_type_name(v->type), mr_expr_type_name(to.type));
    }
    *out = to;
    return MR_OK;
}

static int run_value(struct expr_run *r, struct mr_expr_value *out)
{
    struct expr_operand_state *o;
    int rc = expr_fetch(r, &o);

    if (rc < 0) {
        return rc;
    }
    if (o->value.is_null) {
        *out = r->step->constant != UINT32_MAX ? r->x->constants.at[r->step->constant]
                                               : null_of(r->step);
        return MR_OK;
    }
    if (o->value.type == (enum mr_expr_type)r->step->type) {
        *out = o->value;
        return MR_OK;
    }
    return convert(r, &o->value, out);
}

/* ---- tensors ---- */

/* One index into `extent` elements, from the end if it is negative. */
static int index_in(struct expr_run *r, int64_t index, uint64_t extent, uint64_t *out)
{
    const struct mr_expr_operand *operand = &r->x->operands.at[r->step->operand];
    bool is_ok = index >= 0 ? (uint64_t)index < extent : 0 - (uint64_t)index <= extent;

    if (!is_ok) {
        return expr_run_fail(r, "index %lld of tensor '%.*s', which has %llu there",
                             (long long)index, MR_STR_ARG(mr_str_sub(operand->name, 0, 80)),
                             (unsigned long long)extent);
    }
    *out = index >= 0 ? (uint64_t)index : extent - (0 - (uint64_t)index);
    return MR_OK;
}

/* The element that `indices` name, one per dimension. */
static int flat_index(struct expr_run *r, const struct expr_operand_state *o,
                      const struct mr_expr_value *indices, uint64_t *out)
{
    const struct mr_tensor *t = o->tensor;
    int first = r->by_row && t->rank > 0 ? 1 : 0;
    uint64_t at = 0, index;

    if (t->rank - first != r->step->n) {
        return expr_run_fail(r, "%d indices of a tensor of %d dimensions%s", r->step->n,
                             t->rank - first, first ? " per row" : "");
    }
    for (int i = 0; i < r->step->n; i++) {
        uint64_t extent = (uint64_t)t->shape[first + i];
        int rc = index_in(r, indices[i].i, extent, &index);
        if (rc < 0) {
            return rc;
        }
        at = at * extent + index;
    }
    *out = at;
    return MR_OK;
}

/* An element; `indices` are the n values that are taken off the stack. */
static int run_element(struct expr_run *r, const struct mr_expr_value *indices,
                       struct mr_expr_value *out)
{
    struct expr_operand_state *o;
    uint64_t at = 0;
    int rc;

    MR_TRY(expr_fetch(r, &o));
    *out = null_of(r->step);
    for (int i = 0; i < r->step->n; i++) {
        if (indices[i].is_null) {
            return MR_OK;
        }
    }
    if (!o->tensor) {
        return MR_OK;
    }
    if (r->step->n == 0 && o->stride != 1) {
        const struct mr_expr_operand *operand = &r->x->operands.at[r->step->operand];
        return expr_run_fail(r, "tensor '%.*s' has %llu elements%s where one is needed",
                             MR_STR_ARG(mr_str_sub(operand->name, 0, 80)),
                             (unsigned long long)o->stride, r->by_row ? " per row" : "");
    }
    if (r->step->n == 1) {
        MR_TRY(index_in(r, indices[0].i, o->stride, &at));
    } else if (r->step->n > 1) {
        MR_TRY(flat_index(r, o, indices, &at));
    }
    rc = expr_element(r, o, at, out);
out:
    return rc;
}

/* What needs the tensor as a whole. */
static int run_tensor(struct expr_run *r, struct mr_expr_value *out)
{
    struct expr_operand_state *o;
    int rc = expr_fetch(r, &o);

    if (rc < 0) {
        return rc;
    }
    *out = null_of(r->step);
    if (!o->tensor) {
        return MR_OK;
    }
    switch (r->step->op) {
    case EXPR_AGGREGATE: return expr_aggregate(r, o, out);
    case EXPR_SIZE: out->i = (int64_t)o->stride; break;
    default:
        if (o->tensor->rank == 0) {
            return expr_run_fail(r, "rows() of a tensor without dimensions");
        }
        out->i = o->tensor->shape[0];
        break;
    }
    out->is_null = false;
    return MR_OK;
}

static int run_present(struct expr_run *r, struct mr_expr_value *out)
{
    struct expr_operand_state *o;
    int rc = expr_fetch(r, &o);

    if (rc == MR_OK) {
        bool is_tensor = r->x->operands.at[r->step->operand].is_tensor;
        *out = bool_value(is_tensor ? o->tensor != NULL : !o->value.is_null);
    }
    return rc;
}

/* ---- operators ---- */

/* The remainder that has the sign of b, as in Python: -1 % 3 is 2. */
static int64_t modulo(int64_t a, int64_t b)
{
    int64_t m = b == -1 ? 0 : a % b;

    return m != 0 && (m < 0) != (b < 0) ? m + b : m;
}

static int arithmetic_int(struct expr_run *r, int64_t a, int64_t b, int64_t *out)
{
    bool is_over = false;

    switch (r->step->op) {
    case EXPR_ADD: is_over = __builtin_add_overflow(a, b, out); break;
    case EXPR_SUBTRACT: is_over = __builtin_sub_overflow(a, b, out); break;
    case EXPR_MULTIPLY: is_over = __builtin_mul_overflow(a, b, out); break;
    default:
        if (b == 0) {
            return expr_run_fail(r, "%% by zero");
        }
        *out = modulo(a, b);
        break;
    }
    return is_over ? expr_run_fail(r, "the result does not fit into 64 bits") : MR_OK;
}

static double arithmetic_float(int op, double a, double b)
{
    switch (op) {
    case EXPR_ADD: return a + b;
    case EXPR_SUBTRACT: return a - b;
    case EXPR_MULTIPLY: return a * b;
    default: return a / b;
    }
}

/* -1, 0, 1; 2: no order (NaN). */
static int order(enum mr_expr_type type, const struct mr_expr_value *a,
                 const struct mr_expr_value *b)
{
    switch (type) {
    case MR_EXPR_INT: return (a->i > b->i) - (a->i < b->i);
    case MR_EXPR_FLOAT: return isunordered(a->f, b->f) ? 2 : (a->f > b->f) - (a->f < b->f);
    case MR_EXPR_BOOL: return (int)a->b - (int)b->b;
    default: {
        int c = mr_str_cmp(a->s, b->s);
        return (c > 0) - (c < 0);
    }
    }
}

static bool compare(const struct expr_step *s, const struct mr_expr_value *a,
                    const struct mr_expr_value *b)
{
    int c = order((enum mr_expr_type)s->type, a, b);

    switch (s->op) {
    case EXPR_EQ: return c == 0;
    case EXPR_NE: return c != 0;
    case EXPR_LT: return c == -1;
    case EXPR_LE: return c == -1 || c == 0;
    case EXPR_GT: return c == 1;
    default: return c == 1 || c == 0;
    }
}

/* Two values become one, in *a. */
static int run_binary(struct expr_run *r, struct mr_expr_value *a, const struct mr_expr_value *b)
{
    const struct expr_step *s = r->step;

    if (a->is_null || b->is_null) {
        *a = null_of(s);
        a->type = s->op >= EXPR_EQ ? MR_EXPR_BOOL : a->type;
        return MR_OK;
    }
    if (s->op >= EXPR_EQ && s->op <= EXPR_GE) {
        *a = bool_value(compare(s, a, b));
    } else if (s->op == EXPR_PREFIX) {
        *a = bool_value(mr_str_starts(a->s, b->s));
    } else if (s->op == EXPR_SUFFIX) {
        *a = bool_value(mr_str_ends(a->s, b->s));
    } else if (s->type == MR_EXPR_FLOAT) {
        a->f = arithmetic_float(s->op, a->f, b->f);
    } else {
        return arithmetic_int(r, a->i, b->i, &a->i);
    }
    return MR_OK;
}

/* Three-valued: what is certain whatever null stands for is certain. */
static void run_logic(const struct expr_step *s, struct mr_expr_value *a,
                      const struct mr_expr_value *b)
{
    bool decides = s->op == EXPR_OR; /* true for or, false for and */

    if ((!a->is_null && a->b == decides) || (!b->is_null && b->b == decides)) {
        *a = bool_value(decides);
    } else if (a->is_null || b->is_null) {
        *a = null_of(s);
        a->type = MR_EXPR_BOOL;
    } else {
        *a = bool_value(!decides);
    }
}

static int run_unary(struct expr_run *r, struct mr_expr_value *a)
{
    const struct expr_step *s = r->step;

    if (s->op == EXPR_TO_FLOAT || s->op == EXPR_TO_FLOAT_UNDER) {
        double f = a->is_null ? 0 : (double)a->i;
        a->type = MR_EXPR_FLOAT;
        a->f = f;
    } else if (a->is_null) {
        return MR_OK;
    } else if (s->op == EXPR_NOT) {
        a->b = !a->b;
    } else if (a->type == MR_EXPR_FLOAT) {
        a->f = s->op == EXPR_ABS ? fabs(a->f) : -a->f;
    } else if (s->op == EXPR_NEGATE || a->i < 0) {
        if (a->i == INT64_MIN) {
            return expr_run_fail(r, "the result does not fit into 64 bits");
        }
        a->i = -a->i;
    }
    return MR_OK;
}

static void run_in(struct expr_run *r, struct mr_expr_value *a)
{
    const struct mr_expr_value *list = r->x->constants.at + r->step->constant;
    bool is_in = false;

    if (!a->is_null) {
        for (int i = 0; i < r->step->n && !is_in; i++) {
            is_in = order((enum mr_expr_type)r->step->type, a, &list[i]) == 0;
        }
        *a = bool_value(is_in);
    }
    a->type = MR_EXPR_BOOL;
}

/* ---- the loop ---- */

/* One step that is no jump; `top` is the number of values. */
static int run_step(struct expr_run *r, struct mr_expr_value *stack, size_t *top)
{
    size_t n = *top;

    switch (r->step->op) {
    case EXPR_CONST: stack[(*top)++] = r->x->constants.at[r->step->constant]; return MR_OK;
    case EXPR_VALUE: return run_value(r, &stack[(*top)++]);
    case EXPR_PRESENT: return run_present(r, &stack[(*top)++]);
    case EXPR_ELEMENT: {
        struct mr_expr_value v;
        int rc = run_element(r, stack + n - r->step->n, &v);
        if (rc == MR_OK) {
            *top = n - r->step->n + 1;
            stack[*top - 1] = v;
        }
        return rc;
    }
    case EXPR_ROWS:
    case EXPR_SIZE:
    case EXPR_AGGREGATE: return run_tensor(r, &stack[(*top)++]);
    case EXPR_NOT:
    case EXPR_NEGATE:
    case EXPR_ABS:
    case EXPR_TO_FLOAT: return run_unary(r, &stack[n - 1]);
    case EXPR_TO_FLOAT_UNDER: return run_unary(r, &stack[n - 2]);
    case EXPR_IN: run_in(r, &stack[n - 1]); return MR_OK;
    case EXPR_AND:
    case EXPR_OR: run_logic(r->step, &stack[n - 2], &stack[n - 1]); break;
    default: {
        int rc = run_binary(r, &stack[n - 2], &stack[n - 1]);
        if (rc < 0) {
            return rc;
        }
        break;
    }
    }
    *top = n - 1;
    return MR_OK;
}

static int run_program(struct expr_run *r, struct mr_expr_value *out)
{
    struct mr_expr_value stack[EXPR_STACK_MAX];
    const struct mr_expr *x = r->x;
    size_t top = 0;

    for (size_t i = 0; i < x->steps.len; i++) {
        r->step = &x->steps.at[i];
        if (r->step->op == EXPR_JUMP_IF_FALSE || r->step->op == EXPR_JUMP_IF_TRUE) {
            const struct mr_expr_value *v = &stack[top - 1];
            if (!v->is_null && v->b == (r->step->op == EXPR_JUMP_IF_TRUE)) {
                i = r->step->constant - 1; /* the step after the jump's AND or OR */
            }
            continue;
        }
        int rc = run_step(r, stack, &top);
        if (rc < 0) {
            return rc;
        }
    }
    *out = stack[0];
    return MR_OK;
}

static void run_init(struct expr_run *r, const struct mr_expr *x,
                     const struct mr_expr_source *source, struct mr_err *err)
{
    r->x = x;
    r->source = source;
    r->err = err;
    r->by_row = x->by_row;
    r->rows = r->row = 0;
    r->spent = 0;
    r->step = NULL;
    for (size_t i = 0; i < x->operands.len; i++) {
        r->operands[i].is_fetched = false;
    }
}

int mr_expr_run(const struct mr_expr *expr, const struct mr_expr_source *source,
                struct mr_expr_value *out, struct mr_err *err)
{
    struct expr_run r;

    run_init(&r, expr, source, err);
    return run_program(&r, out);
}

int mr_expr_run_rows(const struct mr_expr *expr, const struct mr_expr_source *source, uint64_t rows,
                     uint8_t *out_mask, struct mr_err *err)
{
    struct expr_run r;
    struct mr_expr_value v;
    int rc;

    run_init(&r, expr, source, err);
    r.rows = rows;
    r.step = expr->steps.at;
    for (; r.row < rows; r.row++) {
        MR_TRY(expr_spend(&r, expr->steps.len));
        MR_TRY(run_program(&r, &v));
        out_mask[r.row] = !v.is_null && v.b;
    }
    return MR_OK;
out:
    return rc;
}
