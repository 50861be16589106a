/* What a workflow takes from its configuration and its request: conditions, and values for tensors that have none. */
#include "exec.h"

#include <string.h>

#include "base/mem.h"
#include "tensor/tensor.h"
#include "variant/split.h"

/* ---- conditions ---- */

static int when_tensor(void *ctx, const struct mr_expr_operand *operand,
                       const struct mr_tensor **out, struct mr_err *err)
{
    const struct run *r = ctx;
    const struct run_value *v = &r->values[operand->id];

    (void)err;
    *out = v->state == RUN_VALUE ? &v->tensor : NULL;
    return MR_OK;
}

mr_str flow_header(const struct walk *w, mr_str name)
{
    char lower[256];

    if (!w->asked->header || name.len >= sizeof lower) {
        return (mr_str){NULL, 0};
    }
    for (size_t i = 0; i < name.len; i++) {
        lower[i] =
            (char)(name.ptr[i] >= 'A' && name.ptr[i] <= 'Z' ? name.ptr[i] + 32 : name.ptr[i]);
    }
    lower[name.len] = '\0';
    return w->asked->header(w->asked->header_ctx, lower);
}

static mr_str parameter_of(const struct walk *w, mr_str name)
{
    for (uint32_t i = w->asked->parameter_count; i-- > 0;) { /* the last one of the name */
        if (mr_str_eq_c(name, w->asked->parameters[i].key)) {
            return mr_str_c(w->asked->parameters[i].value);
        }
    }
    return (mr_str){NULL, 0};
}

static mr_str variant_of(const struct walk *w, uint32_t node)
{
    return w->chosen && w->chosen[node]
               ? mr_split_tag(w->flow->plan->nodes[node].split, w->chosen[node] - 1u)
               : (mr_str){NULL, 0};
}

static int when_value(void *ctx, const struct mr_expr_operand *operand, struct mr_expr_value *out,
                      struct mr_err *err)
{
    const struct walk *w = MR_CONTAINER_OF((struct run *)ctx, struct walk, run);

    (void)err;
    const mr_str s = operand->form == MR_EXPR_HEADER    ? flow_header(w, operand->name)
                     : operand->form == MR_EXPR_VARIANT ? variant_of(w, operand->id)
                     : operand->form == MR_EXPR_STATUS
                         ? mr_str_c(flow_outcome_name(w->run.nodes[operand->id].outcome))
                         : parameter_of(w, operand->name);
    *out = (struct mr_expr_value){.type = MR_EXPR_STRING, .is_null = !s.ptr, .s = s};
    return MR_OK;
}

int flow_when(struct run *r, uint32_t node, struct mr_err *err)
{
    const struct mr_expr_source source = {when_tensor, when_value, r};
    struct mr_expr_value v;
    const int rc = mr_expr_run(r->plan->nodes[node].when, &source, &v, err);

    if (rc < 0) {
        return MR_WRAP(err, rc, "node '%.*s', 'when'", MR_STR_ARG(r->plan->nodes[node].name));
    }
    return !v.is_null && v.b;
}

int flow_when_rows(struct run *r, uint32_t node, uint64_t rows, uint8_t *out_mask,
                   struct mr_err *err)
{
    const struct mr_expr_source source = {when_tensor, when_value, r};
    const int rc = mr_expr_run_rows(r->plan->nodes[node].when, &source, rows, out_mask, err);

    return rc < 0 ? MR_WRAP(err, rc, "node '%.*s', 'when'", MR_STR_ARG(r->plan->nodes[node].name))
                  : MR_OK;
}

/* ---- values from the configuration ---- */

static double as_double(const Millrace__WorkflowValue *v)
{
    switch (v->value_case) {
    case MILLRACE__WORKFLOW_VALUE__VALUE_INT64: return (double)v->int64;
    case MILLRACE__WORKFLOW_VALUE__VALUE_DOUBLE: return v->double_;
    case MILLRACE__WORKFLOW_VALUE__VALUE_BOOL: return v->bool_ ? 1 : 0;
    default: return 0;
    }
}

static int64_t as_integer(const Millrace__WorkflowValue *v)
{
    const double d = as_double(v);

    if (v->value_case == MILLRACE__WORKFLOW_VALUE__VALUE_INT64) {
        return v->int64;
    }
    return d >= -9.2e18 && d <= 9.2e18 ? (int64_t)d : 0;
}

/* One element in the form that tensors have. Returns its bytes. */
static size_t element_make(const Millrace__WorkflowValue *v, int32_t dtype, uint8_t *out,
                           size_t room)
{
    const size_t size = mr_dtype_size(dtype);
    const float f = (float)as_double(v);
    const double d = as_double(v);
    const int64_t i = as_integer(v);
    uint16_t half;

    switch (dtype) {
    case MR_DTYPE_FP32: memcpy(out, &f, size); break;
    case MR_DTYPE_FP64: memcpy(out, &d, size); break;
    case MR_DTYPE_FP16:
        half = mr_fp16_from_double(d);
        memcpy(out, &half, size);
        break;
    case MR_DTYPE_BF16:
        half = mr_bf16_from_double(d);
        memcpy(out, &half, size);
        break;
    case MR_DTYPE_BOOL: out[0] = i != 0; break;
    case MR_DTYPE_BYTES: {
        const char *text = v->value_case == MILLRACE__WORKFLOW_VALUE__VALUE_STRING ? v->string : "";
        const uint32_t len = (uint32_t)MR_MIN(strlen(text), room - 4);
        memcpy(out, &len, 4);
        memcpy(out + 4, text, len);
        return 4 + (size_t)len;
    }
    default: memcpy(out, &i, size); break; /* little-endian: its low bytes */
    }
    return size;
}

#define ELEMENT_MAX (PLAN_STRING_MAX + 4)

int flow_value_fill(struct walk *w, const struct plan_value *v, struct mr_tensor *io,
                    struct mr_block **out_block, struct mr_err *err)
{
    uint8_t *element = mr_arena_try(&w->arena, ELEMENT_MAX + 4, 8);
    uint64_t count, total;

    if (!element) {
        return MR_ARENA_FAIL(err);
    }
    const size_t bytes = element_make(v->value, io->dtype, element, ELEMENT_MAX);
    const int rc = mr_shape_elements(io->shape, io->rank, &count, err);
    if (rc < 0) {
        return rc;
    }
    struct mr_block *block =
        __builtin_mul_overflow(count, bytes, &total) ? NULL : mr_block_new(MR_MAX(total, 1));
    if (!block) {
        return MR_FAIL(err, MR_E_EXHAUSTED, "no memory for the default of '%.*s'",
                       MR_STR_ARG(w->run.plan->tensors[v->tensor].name));
    }
    for (uint64_t i = 0; i < count; i++) {
        memcpy(block->data + i * bytes, element, bytes);
    }
    io->data = block->data;
    io->bytes = total;
    *out_block = block;
    return MR_OK;
}

/* As the tensor is declared, an open dimension 1 long. The first one is that of the request's rows if it is the batch dimension, or, as
 * a model without one has it, open. */
static int shape_declared(struct walk *w, uint32_t tensor, struct mr_tensor *out,
                          struct mr_err *err)
{
    const struct plan_tensor *t = &w->run.plan->tensors[tensor];
    const int64_t rows = w->run.plan->max_batch_size > 0 ? w->x->exec.row_count : 1;
    const int lead = t->has_batch ? 1 : 0;
    int64_t *shape = MR_ARENA_ARRAY(&w->arena, int64_t, (size_t)t->rank + 1);

    if (!shape) {
        return MR_ARENA_FAIL(err);
    }
    shape[0] = rows;
    for (int32_t i = 0; i < t->rank; i++) {
        shape[lead + i] = t->dims[i] >= 0 ? t->dims[i] : lead + i == 0 ? rows : 1;
    }
    out->shape = shape;
    out->rank = t->rank + lead;
    return MR_OK;
}

/* What was to make the outputs of node n: itself, the branch of a switch, or a fallback. */
static uint32_t maker_of(const struct run *r, uint32_t n)
{
    const struct plan *p = r->plan;
    uint32_t by = n;

    for (uint32_t k = 0; k < p->nodes[n].branch_count; k++) {
        const uint32_t branch = p->nodes[n].branches[k];
        by = r->nodes[branch].for_node == n + 1 ? branch : by;
    }
    const uint32_t spare = p->nodes[by].fallback;
    return spare < p->node_count && r->nodes[spare].for_node == n + 1 ? spare : by;
}

int flow_value(struct run *r, const struct plan_value *v, struct mr_err *err)
{
    struct walk *w = MR_CONTAINER_OF(r, struct walk, run);
    const uint32_t writer = r->plan->tensors[v->tensor].writer;
    const uint32_t by = writer < r->plan->node_count ? maker_of(r, writer) : writer;
    const struct plan_node *n = by < r->plan->node_count ? &r->plan->nodes[by] : NULL;
    struct mr_tensor t = {.dtype = r->plan->tensors[v->tensor].dtype, .rank = -1};
    struct mr_block *block = NULL;
    int rc;

    if (n && n->rows) {
        MR_TRY(flow_foreach_shape(w, by, v->tensor, &t, err));
    }
    if (t.rank < 0) {
        MR_TRY(shape_declared(w, v->tensor, &t, err));
    }
    MR_TRY(flow_value_fill(w, v, &t, &block, err));
    run_set(r, v->tensor, &t, block);
    mr_block_unref(&block);
out:
    return rc;
}
