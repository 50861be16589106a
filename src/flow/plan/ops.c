/* Types go from the client's inputs and the models' outputs through the operators, in the order in which the nodes run. Fallbacks
 * come last: what they make must have the type that their node's readers rely on. Thread: loader. */
#include "ops.h"
#include "rows_node.h"

#include "tensor/tensor.h"

#define NAME(s) MR_STR_ARG(mr_str_sub((s), 0, 80))

static bool type_fits(const struct plan_type *made, const int64_t *dims, int32_t rank,
                      bool has_lead)
{
    const int32_t lead = has_lead ? 1 : 0;

    if (made->rank < 0) {
        return true;
    }
    if (made->rank != rank + lead) {
        return false;
    }
    for (int32_t i = 0; i < rank; i++) {
        const int64_t d = made->dims[i + lead];
        if (d >= 0 && dims[i] >= 0 && d != dims[i]) {
            return false;
        }
    }
    return true;
}

/* A tensor that only operators use gets the type that its writer gives it; one that others use has theirs. */
static int tensor_settle(struct plan *p, const struct plan_node *node, uint32_t tensor,
                         const struct plan_type *made, struct mr_err *err)
{
    struct plan_tensor *t = &p->tensors[tensor];
    const int32_t lead = p->max_batch_size > 0 ? 1 : 0;
    char a[256], b[256];

    if (t->dtype == MR_DTYPE_INVALID) {
        if (made->rank < lead) {
            return MR_FAIL(err, MR_E_INVALID,
                           "workflow '%.*s', node '%.*s': tensor '%.*s' has no batch dimension",
                           NAME(p->name), NAME(node->name), NAME(t->name));
        }
        t->dtype = made->dtype;
        t->rank = made->rank - lead;
        t->dims = made->dims + lead;
        t->has_batch = lead > 0;
        return MR_OK;
    }
    if (t->dtype == made->dtype && (type_fits(made, t->dims, t->rank, false) ||
                                    type_fits(made, t->dims, t->rank, t->has_batch))) {
        return MR_OK;
    }
    return MR_FAIL(
        err, MR_E_INVALID,
        "workflow '%.*s', node '%.*s' makes tensor '%.*s' as %s %s, and '%.*s' has it as "
        "%s %s%s",
        NAME(p->name), NAME(node->name), NAME(t->name), mr_dtype_name(made->dtype),
        mr_shape_text(made->dims, MR_MAX(made->rank, 0), a, sizeof a), NAME(t->user),
        mr_dtype_name(t->dtype), mr_shape_text(t->dims, t->rank, b, sizeof b),
        t->has_batch ? " and a batch dimension" : "");
}

/* What the branches of a switch make has one type, and the sizes that they have in common. */
static int branch_unify(struct plan *p, const struct plan_node *branch,
                        const struct plan_type *before, struct plan_type *io, struct mr_err *err)
{
    for (uint32_t i = 0; i < branch->output_count; i++) {
        const uint32_t t = branch->outputs[i].tensor;
        const struct plan_type *a = &before[t];
        if (a->dtype == MR_DTYPE_INVALID) {
            continue;
        }
        if (a->dtype != io[t].dtype || (a->rank >= 0 && io[t].rank >= 0 && a->rank != io[t].rank)) {
            return MR_FAIL(err, MR_E_INVALID,
                           "workflow '%.*s': node '%.*s' makes tensor '%.*s' with another type or "
                           "number of dimensions than another branch of its switch",
                           NAME(p->name), NAME(branch->name), NAME(p->tensors[t].name));
        }
        int64_t *dims = MR_ARENA_ARRAY(&p->arena, int64_t, MR_MAX_RANK + 1);
        if (!dims) {
            return plan_no_memory(p, err);
        }
        const int32_t rank = MR_MIN(a->rank, io[t].rank);
        for (int32_t k = 0; k < rank; k++) {
            dims[k] = a->dims[k] == io[t].dims[k] ? a->dims[k] : -1;
        }
        io[t] = (struct plan_type){a->dtype, rank, dims};
    }
    return MR_OK;
}

static bool is_same(const struct plan_type *a, const struct plan_type *b)
{
    return a->dtype == b->dtype && a->rank == b->rank &&
           (a->rank <= 0 || memcmp(a->dims, b->dims, (size_t)a->rank * sizeof *a->dims) == 0);
}

/* What a fallback makes has the type of what its node makes, on which others rely already. */
static int spare_check(struct plan *p, uint32_t n, const struct plan_type *now,
                       const struct plan_type *before, struct mr_err *err)
{
    const struct plan_node *node = &p->nodes[n];

    for (uint32_t i = 0; i < node->output_count; i++) {
        const uint32_t t = node->outputs[i].tensor;
        if (!is_same(&now[t], &before[t])) {
            return MR_FAIL(
                err, MR_E_INVALID,
                "workflow '%.*s': node '%.*s' is a fallback and makes tensor '%.*s' with "
                "another type or shape than the node for which it runs",
                NAME(p->name), NAME(node->name), NAME(p->tensors[t].name));
        }
    }
    return MR_OK;
}

/* Of a node that runs for rows: the operator sees them in dimension 0. */
static int op_rows_open(struct plan *p, uint32_t node, const struct mr_ops *ops,
                        const struct plan_op_desc *d, struct plan_type *types, struct mr_err *err)
{
    struct plan_type *kept =
        MR_ARENA_ARRAY(&p->arena, struct plan_type, p->nodes[node].input_count + 1u);
    int rc = kept ? plan_rows_op_inputs(p, node, types, kept, err) : plan_no_memory(p, err);

    rc = rc < 0 ? rc : plan_op_open(p, node, ops, d, types, err);
    return rc < 0 ? rc : plan_rows_op_outputs(p, node, types, kept, err);
}

/* `types`: [p->tensor_count] */
static int op_open(struct plan *p, const Millrace__WorkflowScheduling__Node *n, uint32_t node,
                   const struct plan_ops_from *from, struct plan_type *types, struct mr_err *err)
{
    struct mr_setting *settings = MR_ARENA_ARRAY(&p->arena, struct mr_setting, n->n_parameters + 1);
    const struct plan_op_desc d = {.op = p->nodes[node].op_name,
                                   .parameters = settings,
                                   .parameter_count = (uint32_t)n->n_parameters,
                                   .read_write = n->read_write,
                                   .read_write_count = n->n_read_write,
                                   .model_dir = from->model_dir,
                                   .version_dir = from->version_dir};

    if (!settings) {
        return plan_no_memory(p, err);
    }
    for (size_t i = 0; i < n->n_parameters; i++) {
        settings[i] = (struct mr_setting){n->parameters[i]->key, n->parameters[i]->value};
    }
    int rc = p->nodes[node].rows ? op_rows_open(p, node, from->ops, &d, types, err)
                                 : plan_op_open(p, node, from->ops, &d, types, err);
    for (uint32_t i = 0; i < p->nodes[node].output_count && rc == MR_OK; i++) {
        const uint32_t t = p->nodes[node].outputs[i].tensor;
        rc = tensor_settle(p, &p->nodes[node], t, &types[t], err);
    }
    return rc;
}

/* A gather's output has the dimensions of its input in another order. */
static int gather_open(struct plan *p, uint32_t node, struct plan_type *types, struct mr_err *err)
{
    const struct plan_node *n = &p->nodes[node];
    const struct plan_type *from = &types[n->inputs[0].tensor];
    struct plan_type *into = &types[n->outputs[0].tensor];
    int64_t *dims = MR_ARENA_ARRAY(&p->arena, int64_t, MR_MAX_RANK + 1);

    if (!dims) {
        return plan_no_memory(p, err);
    }
    if (from->dtype == MR_DTYPE_INVALID) {
        return MR_OK;
    }
    if (from->rank >= 0 && (int32_t)n->axis >= from->rank) {
        return MR_FAIL(err, MR_E_INVALID,
                       "workflow '%.*s': gather '%.*s' has axis %u, and tensor '%.*s' has %d "
                       "dimensions",
                       NAME(p->name), NAME(n->name), n->axis,
                       NAME(p->tensors[n->inputs[0].tensor].name), from->rank);
    }
    if (n->axis > 0 && from->dtype == MR_DTYPE_BYTES) {
        return MR_FAIL(err, MR_E_INVALID,
                       "workflow '%.*s': gather '%.*s' has axis %u, and tensor '%.*s' is BYTES, "
                       "which have axis 0 only",
                       NAME(p->name), NAME(n->name), n->axis,
                       NAME(p->tensors[n->inputs[0].tensor].name));
    }
    for (int32_t i = 0; i < from->rank; i++) {
        const int32_t axis = (int32_t)n->axis;
        dims[i] = from->dims[i < axis ? i + 1 : i == axis ? 0 : i];
    }
    *into = (struct plan_type){from->dtype, from->rank, dims};
    return from->rank < 0 ? MR_OK : tensor_settle(p, n, n->outputs[0].tensor, into, err);
}

static bool has_ops(const struct plan *p)
{
    for (uint32_t n = 0; n < p->node_count; n++) {
        if (p->nodes[n].op_name.len || p->nodes[n].is_gather) {
            return true;
        }
    }
    return false;
}

/* The operators among the branches of a switch for a request. before: room for types. */
static int branches_open(struct plan *p, const Millrace__WorkflowScheduling *w, uint32_t node,
                         const struct plan_ops_from *from, struct plan_type *types,
                         struct plan_type *before, struct mr_err *err)
{
    const struct plan_node *s = &p->nodes[node];
    int rc = MR_OK;

    for (uint32_t k = 0; k < s->branch_count && rc == MR_OK; k++) {
        const uint32_t n = s->branches[k];
        if (p->nodes[n].op_name.len) {
            memcpy(before, types, p->tensor_count * sizeof *types);
            rc = op_open(p, w->node[n], n, from, types, err);
            rc = rc < 0 ? rc : branch_unify(p, &p->nodes[n], before, types, err);
        }
    }
    return rc;
}

static int all_open(struct plan *p, const Inference__ModelConfig *c,
                    const struct plan_ops_from *from, struct plan_type *types,
                    struct plan_type *before, uint32_t *order, struct mr_err *err)
{
    const Millrace__WorkflowScheduling *w = c->workflow_scheduling;
    const uint32_t count = plan_order(p, order, order + p->node_count);
    int rc = MR_OK;

    for (uint32_t t = 0; t < p->tensor_count; t++) {
        types[t] = p->tensors[t].made;
    }
    for (uint32_t k = 0; k < count && rc == MR_OK; k++) {
        if (p->nodes[order[k]].branch_count) {
            rc = branches_open(p, w, order[k], from, types, before, err);
        } else if (p->nodes[order[k]].is_gather) {
            rc = gather_open(p, order[k], types, err);
        } else if (p->nodes[order[k]].op_name.len) {
            rc = op_open(p, w->node[order[k]], order[k], from, types, err);
        }
    }
    for (uint32_t n = 0; n < w->n_node && rc == MR_OK; n++) {
        if (p->nodes[n].is_spare && p->nodes[n].op_name.len && !p->nodes[n].op) {
            memcpy(before, types, p->tensor_count * sizeof *types);
            rc = op_open(p, w->node[n], n, from, types, err);
            rc = rc < 0 ? rc : spare_check(p, n, types, before, err);
            memcpy(types, before, p->tensor_count * sizeof *types);
        }
    }
    return rc;
}

int plan_ops_open(struct plan *p, const Inference__ModelConfig *c, const struct plan_ops_from *from,
                  struct mr_err *err)
{
    if (!has_ops(p)) {
        return MR_OK;
    }
    struct plan_type *types = MR_NEW_ARRAY(struct plan_type, 2 * (size_t)p->tensor_count + 1);
    uint32_t *order = MR_NEW_ARRAY(uint32_t, 2 * (size_t)p->node_count + 1);
    const int rc = all_open(p, c, from, types, types + p->tensor_count, order, err);

    mr_free(order);
    mr_free(types);
    return rc;
}

/* ---- conditions ---- */

static bool may_change(const struct plan_node *node, uint32_t tensor)
{
    for (uint32_t i = 0; node->may_write && i < node->input_count; i++) {
        if (node->may_write[i] && node->inputs[i].tensor == tensor) {
            return true;
        }
    }
    return false;
}

static int when_check(const struct plan *p, uint32_t reader, struct mr_err *err)
{
    size_t count = 0;
    const struct mr_expr_operand *o = mr_expr_operands(p->nodes[reader].when, &count);

    for (size_t i = 0; i < count; i++) {
        for (uint32_t n = 0; n < p->node_count && o[i].is_tensor; n++) {
            if (n != reader && may_change(&p->nodes[n], o[i].id)) {
                return MR_FAIL(err, MR_E_INVALID,
                               "workflow '%.*s', node '%.*s': read_write of tensor '%.*s', which "
                               "'when' of node '%.*s' reads",
                               NAME(p->name), NAME(p->nodes[n].name),
                               NAME(p->tensors[o[i].id].name), NAME(p->nodes[reader].name));
            }
        }
    }
    return MR_OK;
}

int plan_ops_check_when(const struct plan *p, struct mr_err *err)
{
    int rc = MR_OK;

    for (uint32_t n = 0; n < p->node_count && rc == MR_OK; n++) {
        rc = p->nodes[n].when ? when_check(p, n, err) : MR_OK;
    }
    return rc;
}
