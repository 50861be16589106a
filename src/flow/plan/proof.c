/* What is proved of a workflow: that each node can run, and that each output has a value. Thread: loader. */
#include "proof.h"

int plan_proof_reachable(const struct plan *p, struct mr_err *err)
{
    for (uint32_t n = 0; n < p->node_count; n++) {
        const struct plan_node *node = &p->nodes[n];
        for (uint32_t i = 0; i < node->input_count; i++) {
            if (p->tensors[node->inputs[i].tensor].writer == PLAN_NO_NODE) {
                return MR_FAIL(
                    err, MR_E_INVALID,
                    "workflow '%.*s': node '%.*s' reads tensor '%.*s', which nothing writes",
                    MR_STR_ARG(p->name), MR_STR_ARG(node->name),
                    MR_STR_ARG(p->tensors[node->inputs[i].tensor].name));
            }
        }
    }
    for (uint32_t n = 0; n < p->node_count; n++) {
        if (!p->nodes[n].is_reachable) {
            return MR_FAIL(
                err, MR_E_INVALID,
                "workflow '%.*s': node '%.*s' waits for itself, by what it reads or by 'after'",
                MR_STR_ARG(p->name), MR_STR_ARG(p->nodes[n].name));
        }
    }
    return MR_OK;
}

static bool has_default(const struct plan_value *list, uint32_t count, uint32_t tensor)
{
    for (uint32_t i = 0; i < count; i++) {
        if (list[i].tensor == tensor) {
            return true;
        }
    }
    return false;
}

static bool branch_lacks(const struct plan *p, const struct plan_node *node, const bool *nullable)
{
    for (uint32_t k = 0; k < node->branch_count; k++) {
        const struct plan_node *n = &p->nodes[node->branches[k]];
        for (uint32_t i = 0; i < n->input_count; i++) {
            if (nullable[n->inputs[i].tensor] && !n->inputs[i].is_optional) {
                return true;
            }
        }
    }
    return false;
}

/* Whether a failure leaves the tensor without a value: of the node, or of one of its branches. */
static bool may_lose(const struct plan *p, const struct plan_node *node, uint32_t tensor)
{
    bool loses =
        node->on_error == PLAN_SKIP || (node->on_error == PLAN_DEFAULT &&
                                        !has_default(node->defaults, node->default_count, tensor));

    for (uint32_t k = 0; k < node->branch_count; k++) {
        const struct plan_node *n = &p->nodes[node->branches[k]];
        loses |= n->on_error == PLAN_SKIP || (n->on_error == PLAN_DEFAULT &&
                                              !has_default(n->defaults, n->default_count, tensor));
    }
    return loses;
}

/* Marks the tensors that may have no value. Nodes in the order in which they can run. */
static void nullable_mark(const struct plan *p, const uint32_t *order, uint32_t count,
                          bool *nullable)
{
    for (uint32_t k = 0; k < count; k++) {
        const struct plan_node *node = &p->nodes[order[k]];
        bool may_skip = node->when != NULL;
        for (uint32_t i = 0; i < node->input_count; i++) {
            may_skip |= nullable[node->inputs[i].tensor] && !node->inputs[i].is_optional;
        }
        may_skip |= node->rows && node->rows->skips_empty;
        /* a row without a branch has a default: rows_check */
        may_skip |= node->branch_count && !node->is_by_row &&
                    (!node->has_else || branch_lacks(p, node, nullable));
        for (uint32_t i = 0; i < node->output_count; i++) {
            const uint32_t t = node->outputs[i].tensor;
            nullable[t] |= may_skip || may_lose(p, node, t);
        }
    }
}

/* Rows that no branch makes have a default. */
static int rows_check(const struct plan *p, uint32_t n, const bool *nullable, struct mr_err *err)
{
    const struct plan_node *node = &p->nodes[n];

    if (!node->is_by_row || (node->has_else && !branch_lacks(p, node, nullable))) {
        return MR_OK;
    }
    for (uint32_t i = 0; i < node->output_count; i++) {
        const uint32_t t = node->outputs[i].tensor;
        if (!has_default(p->defaults, p->default_count, t)) {
            return MR_FAIL(
                err, MR_E_INVALID,
                "workflow '%.*s': switch '%.*s': rows of tensor '%.*s' may have no "
                "value, as %s, and the workflow has no 'default' for it",
                MR_STR_ARG(p->name), MR_STR_ARG(node->name), MR_STR_ARG(p->tensors[t].name),
                node->has_else ? "what a branch reads may have none" : "there is no 'else'");
        }
    }
    return MR_OK;
}

int plan_proof_nulls(const struct plan *p, struct mr_err *err)
{
    uint32_t *room = MR_NEW_ARRAY(uint32_t, 2 * (size_t)p->node_count + 1);
    bool *nullable = MR_NEW_ARRAY(bool, (size_t)p->tensor_count + 1);
    const uint32_t count = plan_order(p, room, room + p->node_count);
    int rc = MR_OK;

    for (uint32_t i = 0; i < p->input_count; i++) {
        nullable[p->inputs[i]] = p->input_is_optional[i];
    }
    nullable_mark(p, room, count, nullable);
    for (uint32_t n = 0; n < p->node_count && rc == MR_OK; n++) {
        rc = rows_check(p, n, nullable, err);
    }
    for (uint32_t i = 0; i < p->output_count && rc == MR_OK; i++) {
        const uint32_t t = p->outputs[i];
        if (p->tensors[t].writer == PLAN_NO_NODE) {
            rc = MR_FAIL(err, MR_E_INVALID, "workflow '%.*s': nothing writes output '%.*s'",
                         MR_STR_ARG(p->name), MR_STR_ARG(p->tensors[t].name));
        } else if (nullable[t] && !has_default(p->defaults, p->default_count, t)) {
            rc = MR_FAIL(err, MR_E_INVALID,
                         "workflow '%.*s': output '%.*s' of node '%.*s' may have no value, and has "
                         "no 'default'",
                         MR_STR_ARG(p->name), MR_STR_ARG(p->tensors[t].name),
                         MR_STR_ARG(p->tensors[t].writer < p->node_count
                                        ? p->nodes[p->tensors[t].writer].name
                                        : MR_STR("the client")));
        }
    }
    mr_free(nullable);
    mr_free(room);
    return rc;
}
