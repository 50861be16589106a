/* What is proved of a workflow: that each node can run, and that each output has a value. Thread: loader. */
#include "proof.h"

#include "tensor/tensor.h"
#include "variant/split.h"

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
    for (uint32_t i = 0; i < p->output_count; i++) {
        const struct plan_tensor *t = &p->tensors[p->outputs[i]];
        if (t->writer == PLAN_NO_NODE) {
            return MR_FAIL(err, MR_E_INVALID, "workflow '%.*s': nothing writes output '%.*s'",
                           MR_STR_ARG(p->name), MR_STR_ARG(t->name));
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

static bool may_lack(const struct plan_node *node, const bool *nullable)
{
    for (uint32_t i = 0; i < node->input_count; i++) {
        if (nullable[node->inputs[i].tensor] && !node->inputs[i].is_optional) {
            return true;
        }
    }
    return false;
}

static bool branch_lacks(const struct plan *p, const struct plan_node *node, const bool *nullable)
{
    for (uint32_t k = 0; k < node->branch_count; k++) {
        if (may_lack(&p->nodes[node->branches[k]], nullable)) {
            return true;
        }
    }
    return false;
}

/* Whether a failure of the node leaves the tensor without a value. A fallback has none itself. */
static bool node_loses(const struct plan *p, const struct plan_node *node, uint32_t tensor,
                       const bool *nullable)
{
    const bool falls_back = node->on_error == PLAN_FALLBACK;

    node = falls_back ? &p->nodes[node->fallback] : node;
    return (falls_back && may_lack(node, nullable)) || node->on_error == PLAN_SKIP ||
           (node->on_error == PLAN_DEFAULT &&
            !has_default(node->defaults, node->default_count, tensor));
}

/* The same of the node, or of one of its branches. */
static bool may_lose(const struct plan *p, const struct plan_node *node, uint32_t tensor,
                     const bool *nullable)
{
    bool loses = node_loses(p, node, tensor, nullable);

    for (uint32_t k = 0; k < node->branch_count; k++) {
        loses |= node_loses(p, &p->nodes[node->branches[k]], tensor, nullable);
    }
    return loses;
}

/* Marks the tensors that may have no value. Nodes in the order in which they can run. */
static void nullable_mark(const struct plan *p, const uint32_t *order, uint32_t count,
                          bool *nullable)
{
    for (uint32_t k = 0; k < count; k++) {
        const struct plan_node *node = &p->nodes[order[k]];
        bool may_skip = node->when != NULL || may_lack(node, nullable);
        may_skip |= node->rows && node->rows->skips_empty;
        /* a row without a branch has a default: rows_check */
        may_skip |= node->branch_count && !node->is_by_row &&
                    (!(node->has_else || node->is_exhaustive) || branch_lacks(p, node, nullable));
        for (uint32_t i = 0; i < node->output_count; i++) {
            const uint32_t t = node->outputs[i].tensor;
            nullable[t] |= may_skip || (!node->is_by_row && may_lose(p, node, t, nullable));
        }
    }
}

/* Rows that no branch makes have a default. */
static int rows_check(const struct plan *p, uint32_t n, const bool *nullable, struct mr_err *err)
{
    const struct plan_node *node = &p->nodes[n];
    const bool lacks = node->is_by_row && branch_lacks(p, node, nullable);

    for (uint32_t i = 0; i < node->output_count && node->is_by_row; i++) {
        const uint32_t t = node->outputs[i].tensor;
        const bool may_miss = !node->has_else || lacks || may_lose(p, node, t, nullable);
        if (may_miss && !has_default(p->defaults, p->default_count, t)) {
            return MR_FAIL(err, MR_E_INVALID,
                           "workflow '%.*s': switch '%.*s': rows of tensor '%.*s' may have no "
                           "value, as %s, and the workflow has no 'default' for it",
                           MR_STR_ARG(p->name), MR_STR_ARG(node->name),
                           MR_STR_ARG(p->tensors[t].name),
                           !node->has_else ? "there is no 'else'"
                           : lacks         ? "what a branch reads may have none"
                                           : "a branch that fails gives none");
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
        if (nullable[t] && !has_default(p->defaults, p->default_count, t)) {
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

/* ---- defaults ---- */

/* Whether the value is one of an integer type. */
static bool fits_integer(const Millrace__WorkflowValue *v, int32_t dtype)
{
    const bool is_unsigned = dtype >= MR_DTYPE_UINT8 && dtype <= MR_DTYPE_UINT64;
    const int bits = (int)mr_dtype_size(dtype) * 8;
    const int64_t most = bits == 64 ? INT64_MAX : (INT64_C(1) << (bits - !is_unsigned)) - 1;

    return v->value_case == MILLRACE__WORKFLOW_VALUE__VALUE_BOOL ||
           (v->value_case == MILLRACE__WORKFLOW_VALUE__VALUE_INT64 && v->int64 <= most &&
            v->int64 >= (is_unsigned ? 0 : -most - 1));
}

static bool fits(const Millrace__WorkflowValue *v, int32_t dtype)
{
    const bool is_string = v->value_case == MILLRACE__WORKFLOW_VALUE__VALUE_STRING;

    switch (dtype) {
    case MR_DTYPE_INVALID: return true;
    case MR_DTYPE_BYTES: return is_string && strlen(v->string) <= PLAN_STRING_MAX;
    case MR_DTYPE_BOOL:
        return v->value_case == MILLRACE__WORKFLOW_VALUE__VALUE_BOOL ||
               (v->value_case == MILLRACE__WORKFLOW_VALUE__VALUE_INT64 &&
                (v->int64 == 0 || v->int64 == 1));
    case MR_DTYPE_FP16:
    case MR_DTYPE_BF16:
    case MR_DTYPE_FP32:
    case MR_DTYPE_FP64: return !is_string;
    default: return fits_integer(v, dtype);
    }
}

/* node: NULL for those of the workflow. */
static int values_fit(const struct plan *p, const struct plan_node *node,
                      const struct plan_value *list, uint32_t count, struct mr_err *err)
{
    for (uint32_t i = 0; i < count; i++) {
        const struct plan_tensor *t = &p->tensors[list[i].tensor];
        if (!fits(list[i].value, t->dtype)) {
            return MR_FAIL(
                err, MR_E_INVALID,
                "workflow '%.*s': the default of %s%.*s%s for tensor '%.*s' is no %s, or "
                "not in its range (strings: %u bytes)",
                MR_STR_ARG(p->name), node ? "node '" : "",
                MR_STR_ARG(node ? mr_str_sub(node->name, 0, 128) : MR_STR("the workflow")),
                node ? "'" : "", MR_STR_ARG(t->name), mr_dtype_name(t->dtype), PLAN_STRING_MAX);
        }
    }
    return MR_OK;
}

int plan_proof_defaults(const struct plan *p, struct mr_err *err)
{
    int rc = values_fit(p, NULL, p->defaults, p->default_count, err);

    for (uint32_t n = 0; n < p->node_count && rc == MR_OK; n++) {
        rc = values_fit(p, &p->nodes[n], p->nodes[n].defaults, p->nodes[n].default_count, err);
    }
    return rc;
}

/* ---- models with several answers ---- */

/* Of the node, or of what may run for it. */
static bool gives_several(const struct plan *p, uint32_t n)
{
    const struct plan_node *node = &p->nodes[n];
    bool is_so = node->is_streaming;

    for (uint32_t k = 0; k < node->branch_count && !is_so; k++) {
        is_so = gives_several(p, node->branches[k]);
    }
    return is_so || (node->fallback < p->node_count && gives_several(p, node->fallback));
}

static void splits_set(struct plan *p)
{
    for (uint32_t n = 0; n < p->node_count; n++) {
        struct plan_node *node = &p->nodes[n];
        for (size_t v = 1; node->split && v < mr_split_count(node->split); v++) {
            node->is_streaming |= p->nodes[node->variants + v - 1].is_streaming;
        }
    }
}

/* The nodes on which an output depends, in the order in which they can run. */
static uint32_t needed_order(const struct plan *p, uint32_t *order, uint32_t *room)
{
    bool *is_needed = MR_NEW_ARRAY(bool, (size_t)p->node_count + 1);
    const uint32_t count = plan_order(p, order, room);
    uint32_t len = 0;

    for (uint32_t i = 0; i < p->output_count; i++) {
        const uint32_t n = p->tensors[p->outputs[i]].writer;
        if (n < p->node_count) {
            is_needed[n] = true;
        }
    }
    for (uint32_t k = count; k-- > 0;) {
        const struct plan_node *node = &p->nodes[order[k]];
        for (uint32_t i = 0; i < node->before_count && is_needed[order[k]]; i++) {
            is_needed[node->before[i]] = true;
        }
    }
    for (uint32_t k = 0; k < count; k++) {
        if (is_needed[order[k]]) {
            order[len++] = order[k];
        }
    }
    mr_free(is_needed);
    return len;
}

/* The first node after both, PLAN_NO_NODE: only the outputs are. */
static uint32_t meeting_of(const struct plan *p, const uint32_t *order, uint32_t count, uint32_t a,
                           uint32_t b)
{
    uint8_t *behind = MR_NEW_ARRAY(uint8_t, (size_t)p->node_count + 1);
    uint32_t found = PLAN_NO_NODE;

    behind[a] = 1;
    behind[b] = 2;
    for (uint32_t k = 0; k < count && found == PLAN_NO_NODE; k++) {
        const struct plan_node *node = &p->nodes[order[k]];
        for (uint32_t i = 0; i < node->before_count; i++) {
            behind[order[k]] |= behind[node->before[i]];
        }
        found = behind[order[k]] == 3 ? order[k] : found;
    }
    mr_free(behind);
    return found;
}

static int streams_fail(const struct plan *p, uint32_t at, struct mr_err *err)
{
    const bool is_node = at != PLAN_NO_NODE;

    return MR_FAIL(
        err, MR_E_INVALID,
        "in %s %.*s, %s '%.*s' receives inputs originated from different decoupled models",
        p->is_workflow ? "workflow" : "ensemble", MR_STR_ARG(p->name),
        p->is_workflow && is_node ? "node" : "step of model",
        MR_STR_ARG(is_node ? p->nodes[at].name : p->name));
}

/* In the order in which they can run, each one has to come after the one before it. `last`: [node_count] the last one that a node
 * comes after. */
static int streams_check(const struct plan *p, const uint32_t *order, uint32_t count,
                         uint32_t *last, struct mr_err *err)
{
    uint32_t before = 0, streams = 0;

    memset(last, 0, p->node_count * sizeof *last);
    for (uint32_t k = 0; k < count; k++) {
        const uint32_t n = order[k];
        for (uint32_t i = 0; i < p->nodes[n].before_count; i++) {
            last[n] = MR_MAX(last[n], last[p->nodes[n].before[i]]);
        }
        if (!gives_several(p, n)) {
            continue;
        }
        if (last[n] != streams) {
            return streams_fail(p, meeting_of(p, order, count, before, n), err);
        }
        last[n] = ++streams;
        before = n;
    }
    return MR_OK;
}

int plan_proof_streams(struct plan *p, struct mr_err *err)
{
    if (!p->is_decoupled) {
        return MR_OK;
    }
    uint32_t *order = MR_NEW_ARRAY(uint32_t, 2 * (size_t)p->node_count + 1);
    splits_set(p);
    const uint32_t count = needed_order(p, order, order + p->node_count);
    const int rc = streams_check(p, order, count, order + p->node_count, err);

    mr_free(order);
    return rc;
}
