/* A gather: dimension 0 of a tensor, that of the items of a foreach, becomes dimension `axis`. For axis 0 the tensor is handed on
 * as it is. Thread: that of the walk. */
#include "exec.h"

#include "base/mem.h"
#include "base/turn.h"
#include "tensor/tensor.h"

#define NAME(s) MR_STR_ARG(mr_str_sub((s), 0, 80))

/* A tensor of `items`, each of `groups` groups of `bytes`, with the groups outside. */
static void groups_copy(char *to, const char *from, uint64_t items, uint64_t groups, uint64_t bytes)
{
    for (uint64_t g = 0; g < groups; g++) {
        for (uint64_t i = 0; i < items; i++) {
            memcpy(to + (g * items + i) * bytes, from + (i * groups + g) * bytes, bytes);
        }
    }
}

/* The size of what is copied at once, and the shape. */
static int axis_move(struct walk *w, const struct mr_tensor *t, uint32_t axis,
                     struct mr_tensor *out, struct mr_block **out_block, struct mr_err *err)
{
    int64_t *shape = MR_ARENA_ARRAY(&w->arena, int64_t, (size_t)t->rank + 1);
    uint64_t groups;

    if (!shape) {
        return MR_ARENA_FAIL(err);
    }
    const int rc = mr_shape_elements(t->shape + 1, (int)axis, &groups, err);
    if (rc < 0) {
        return rc;
    }
    memcpy(shape, t->shape + 1, axis * sizeof *shape);
    shape[axis] = t->shape[0];
    memcpy(shape + axis + 1, t->shape + axis + 1,
           (size_t)(t->rank - (int32_t)axis - 1) * sizeof *shape);
    *out = *t;
    out->shape = shape;
    *out_block = mr_block_new(MR_MAX(t->bytes, (uint64_t)1));
    if (!*out_block) {
        return MR_FAIL(err, MR_E_EXHAUSTED, "no memory for %llu bytes",
                       (unsigned long long)t->bytes);
    }
    out->data = (*out_block)->data;
    if (t->bytes > 0) {
        const uint64_t items = (uint64_t)t->shape[0];
        groups_copy(out->data, t->data, items, groups, t->bytes / items / groups);
    }
    return MR_OK;
}

int flow_gather_start(struct walk *w, uint32_t node, struct mr_err *err)
{
    const struct plan_node *n = &w->run.plan->nodes[node];
    const struct run_value *v = &w->run.values[n->inputs[0].tensor];
    struct mr_block *block = NULL;
    struct mr_tensor t;

    if (n->axis == 0) {
        run_set(&w->run, n->outputs[0].tensor, &v->tensor, v->block);
        return MR_OK;
    }
    if ((int32_t)n->axis >= v->tensor.rank || v->tensor.dtype == MR_DTYPE_BYTES) {
        return MR_FAIL(err, MR_E_INVALID,
                       "node '%.*s': tensor '%.*s' is %s and has %d dimensions, axis %u is none of "
                       "those that can be moved",
                       NAME(n->name), NAME(w->run.plan->tensors[n->inputs[0].tensor].name),
                       mr_dtype_name(v->tensor.dtype), v->tensor.rank, n->axis);
    }
    const int rc = axis_move(w, &v->tensor, n->axis, &t, &block, err);
    if (rc < 0) {
        return MR_WRAP(err, rc, "node '%.*s'", NAME(n->name));
    }
    run_set(&w->run, n->outputs[0].tensor, &t, block);
    mr_block_unref(&block);
    return MR_OK;
}
