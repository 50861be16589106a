/* Operators in plans. Thread: loader. */
#include "op_node.h"

#include "tensor/tensor.h"

#define NAME(s) MR_STR_ARG(mr_str_sub((s), 0, 80))

static int node_fail(const struct plan *p, uint32_t node, int rc, struct mr_err *err)
{
    return MR_WRAP(err, rc, "workflow '%.*s', node '%.*s'", NAME(p->name),
                   NAME(p->nodes[node].name));
}

/* ---- in place ---- */

/* Marks the nodes that have ended before `node` starts. */
static void before_mark(const struct plan *p, uint32_t node, bool *is_before, uint32_t *stack)
{
    uint32_t len = 0;

    stack[len++] = node;
    while (len > 0) {
        const struct plan_node *n = &p->nodes[stack[--len]];
        for (uint32_t i = 0; i < n->before_count; i++) {
            if (!is_before[n->before[i]]) {
                is_before[n->before[i]] = true;
                stack[len++] = n->before[i];
            }
        }
    }
}

static uint32_t reads_of(const struct plan_node *n, uint32_t tensor)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < n->input_count; i++) {
        count += n->inputs[i].tensor == tensor;
    }
    return count;
}

/* Another reader that need not have ended, or the node itself if it reads the tensor twice; PLAN_NO_NODE: none. */
static uint32_t reader_beside(const struct plan *p, uint32_t node, uint32_t tensor,
                              const bool *is_before)
{
    for (uint32_t m = 0; m < p->node_count; m++) {
        const uint32_t reads = reads_of(&p->nodes[m], tensor);
        if (m == node ? reads > 1 : reads > 0 && !is_before[m]) {
            return m;
        }
    }
    return PLAN_NO_NODE;
}

int plan_op_may_write(const struct plan *p, uint32_t node, uint32_t input, struct mr_err *err)
{
    const uint32_t tensor = p->nodes[node].inputs[input].tensor;
    const mr_str name = p->tensors[tensor].name;
    int rc;

    if (plan_is_output(p, tensor)) {
        rc = MR_FAIL(err, MR_E_INVALID,
                     "read_write of tensor '%.*s', which is an output of the workflow", NAME(name));
        return node_fail(p, node, rc, err);
    }
    bool *is_before = mr_try_alloc(p->node_count * (sizeof(uint32_t) + 1) + sizeof(uint32_t));
    if (!is_before) {
        return plan_no_memory(p, err);
    }
    memset(is_before, 0, p->node_count);
    uint32_t *stack = mr_try_alloc((p->node_count + (size_t)1) * sizeof *stack);
    uint32_t other = PLAN_NO_NODE;
    if (stack) {
        before_mark(p, node, is_before, stack);
        other = reader_beside(p, node, tensor, is_before);
    }
    rc = stack ? MR_OK : plan_no_memory(p, err);
    mr_free(stack);
    mr_free(is_before);
    if (rc < 0 || other == PLAN_NO_NODE) {
        return rc;
    }
    rc = other == node ? MR_FAIL(err, MR_E_INVALID,
                                 "read_write of tensor '%.*s', which it reads twice", NAME(name))
                       : MR_FAIL(err, MR_E_INVALID,
                                 "read_write of tensor '%.*s', which node '%.*s' reads, too, and "
                                 "need not have ended before",
                                 NAME(name), NAME(p->nodes[other].name));
    return node_fail(p, node, rc, err);
}

/* ---- creation ---- */

/* Names as C strings: those of the arena have a NUL. */
static int inputs_describe(struct plan *p, uint32_t node, const struct plan_type *types,
                           struct mr_op_io *out, struct mr_err *err)
{
    const struct plan_node *n = &p->nodes[node];

    for (uint32_t i = 0; i < n->input_count; i++) {
        const struct plan_type *t = &types[n->inputs[i].tensor];
        if (t->dtype == MR_DTYPE_INVALID) {
            const int rc = MR_FAIL(err, MR_E_INVALID,
                                   "the type of tensor '%.*s', which it reads, is not known",
                                   NAME(p->tensors[n->inputs[i].tensor].name));
            return node_fail(p, node, rc, err);
        }
        out[i] = (struct mr_op_io){
            .name = n->inputs[i].name.ptr, .dims = t->dims, .dtype = t->dtype, .rank = t->rank};
    }
    return MR_OK;
}

/* Finds the inputs that the node may change, after the proof that it may. */
static int writes_describe(struct plan *p, uint32_t node, const struct plan_op_desc *d,
                           struct mr_op_io *inputs, uint8_t *may_write, struct mr_err *err)
{
    const struct plan_node *n = &p->nodes[node];

    for (size_t k = 0; k < d->read_write_count; k++) {
        uint32_t i = 0;
        while (i < n->input_count && !mr_str_eq_c(n->inputs[i].name, d->read_write[k])) {
            i++;
        }
        if (i == n->input_count) {
            return node_fail(p, node,
                             MR_FAIL(err, MR_E_INVALID,
                                     "read_write of '%.80s', which input_map does not have",
                                     d->read_write[k]),
                             err);
        }
        const int rc = plan_op_may_write(p, node, i, err);
        if (rc < 0) {
            return rc;
        }
        inputs[i].flags |= MR_OP_IO_READ_WRITE;
        /* what the client sent stays as it is: it is the request's */
        may_write[i] = p->tensors[n->inputs[i].tensor].writer < p->node_count;
    }
    return MR_OK;
}

/* What the operator makes becomes known. */
static int outputs_take(struct plan *p, uint32_t node, struct plan_type *types)
{
    const struct plan_node *n = &p->nodes[node];
    const struct mr_op_io *io = mr_op_outputs(n->op);

    for (uint32_t i = 0; i < n->output_count; i++) {
        types[n->outputs[i].tensor] = (struct plan_type){io[i].dtype, io[i].rank, io[i].dims};
    }
    return MR_OK;
}

static int op_create(struct plan *p, uint32_t node, const struct mr_ops *ops,
                     const struct plan_op_desc *d, const struct plan_type *types,
                     struct mr_op_io *io, struct mr_err *err)
{
    struct plan_node *n = &p->nodes[node];
    uint8_t *may_write = MR_ARENA_ARRAY(&p->arena, uint8_t, n->input_count + 1u);
    int rc;

    if (!may_write) {
        return plan_no_memory(p, err);
    }
    n->may_write = may_write;
    MR_TRY(inputs_describe(p, node, types, io, err));
    MR_TRY(writes_describe(p, node, d, io, may_write, err));
    for (uint32_t i = 0; i < n->output_count; i++) {
        io[n->input_count + i] = (struct mr_op_io){.name = n->outputs[i].name.ptr, .rank = -1};
    }
    const struct mr_op_desc desc = {.parameter_count = d->parameter_count,
                                    .parameters = d->parameters,
                                    .workflow = p->name.ptr,
                                    .node = n->name.ptr,
                                    .inputs = io,
                                    .outputs = io + n->input_count,
                                    .input_count = n->input_count,
                                    .output_count = n->output_count,
                                    .model_dir = d->model_dir,
                                    .version_dir = d->version_dir};
    rc = mr_op_create(ops, d->op, &desc, &n->op, err);
    if (rc < 0) {
        node_fail(p, node, rc, err);
    }
out:
    return rc;
}

int plan_op_open(struct plan *p, uint32_t node, const struct mr_ops *ops,
                 const struct plan_op_desc *d, struct plan_type *types, struct mr_err *err)
{
    const struct plan_node *n = &p->nodes[node];
    struct mr_op_io *io =
        MR_NEW_ARRAY(struct mr_op_io, (size_t)n->input_count + n->output_count + 1);
    int rc = op_create(p, node, ops, d, types, io, err);

    mr_free(io);
    return rc < 0 ? rc : outputs_take(p, node, types);
}
