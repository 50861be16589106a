/* The plan of a workflow: nodes by name, conditions, orders and what happens on errors. Thread: loader. */
#include <stdio.h>

#include "build.h"
#include "limits.h"
#include "ops.h"
#include "proof.h"
#include "rows_node.h"
#include "split_node.h"
#include "switch_node.h"
#include "twice.h"

/* ---- what operators and models have ---- */

static int node_features(struct plan_build *b, const node_config *n)
{
    const bool is_op = n->kind_case == MILLRACE__WORKFLOW_SCHEDULING__NODE__KIND_OP;
    const char *of_ops = n->n_read_write ? "read_write" : n->n_parameters ? "parameters" : NULL;
    const char *of_models = n->retry        ? "retry"
                            : n->timeout_ms ? "timeout_ms"
                            : n->hedge      ? "hedge"
                            : n->shadow     ? "shadow"
                                            : NULL;

    if (is_op ? !of_models : !of_ops) {
        return MR_OK;
    }
    return PLAN_BAD(b, "workflow '%.*s': node '%.128s' has '%s', which is for %s",
                    MR_STR_ARG(b->p->name), n->name, is_op ? of_models : of_ops,
                    is_op
                        ? "models: an operator computes on the request's thread, there is nothing "
                          "to wait for, and a second run gives the same"
                        : "operators");
}

/* ---- names ---- */

static int name_check(struct plan_build *b, uint32_t i, const node_config *n)
{
    const size_t len = strnlen(n->name, PLAN_NAME_MAX + 1);

    if (len == 0 || len > PLAN_NAME_MAX) {
        return PLAN_BAD(b, "workflow '%.*s': node %u has no name, or one of more than %u bytes",
                        MR_STR_ARG(b->p->name), i, PLAN_NAME_MAX);
    }
    if (mr_map_put(&b->names, mr_str_n(n->name, len), (void *)(uintptr_t)(i + 1))) {
        return PLAN_BAD(b, "workflow '%.*s': two nodes are named '%.128s'", MR_STR_ARG(b->p->name),
                        n->name);
    }
    return MR_OK;
}

/* ---- one node ---- */

static int ports_make(struct plan_build *b, struct plan_node *node, const node_config *n)
{
    struct plan *p = b->p;
    struct plan_port *ports =
        MR_ARENA_ARRAY(&p->arena, struct plan_port, n->n_input_map + n->n_output_map + 1);
    int rc = ports ? MR_OK : plan_no_memory(p, b->err);

    node->inputs = ports;
    node->outputs = ports ? ports + n->n_input_map : NULL;
    for (size_t i = 0; i < n->n_input_map && rc == MR_OK; i++, ports++) {
        ports->name = mr_str_c(n->input_map[i]->key);
        rc = plan_tensor_of(p, n->input_map[i]->value, &ports->tensor, b->err);
        node->input_count++;
    }
    for (size_t i = 0; i < n->n_output_map && rc == MR_OK; i++, ports++) {
        ports->name = mr_str_c(n->output_map[i]->key);
        rc = plan_tensor_of(p, n->output_map[i]->value, &ports->tensor, b->err);
        node->output_count++;
    }
    return rc < 0
               ? MR_WRAP(b->err, rc, "workflow '%.*s': node '%.128s'", MR_STR_ARG(p->name), n->name)
               : rc;
}

/* What is there for another policy than the node's. */
static int policy_check(struct plan_build *b, const struct plan_node *node, const node_config *n)
{
    static const char *const names[] = {"FAIL", "SKIP", "DEFAULT", "FALLBACK"};
    const char *unused = n->n_default_ && node->on_error != PLAN_DEFAULT  ? "default"
                         : n->fallback && node->on_error != PLAN_FALLBACK ? "fallback"
                                                                          : NULL;

    return !unused ? MR_OK
                   : PLAN_BAD(b,
                              "workflow '%.*s': node '%.128s' has '%s', which its on_error, %s%s, "
                              "does not use",
                              MR_STR_ARG(b->p->name), n->name, unused, names[node->on_error],
                              n->on_error ? "" : " as it has 'fallback'");
}

static int policy_read(struct plan_build *b, struct plan_node *node, const node_config *n)
{
    const Millrace__WorkflowScheduling__Defaults *d = b->w->defaults;
    int on = (int)n->on_error;

    if (on == MILLRACE__WORKFLOW_SCHEDULING__ON_ERROR__UNSET) {
        on = n->fallback     ? MILLRACE__WORKFLOW_SCHEDULING__ON_ERROR__FALLBACK
             : n->n_default_ ? MILLRACE__WORKFLOW_SCHEDULING__ON_ERROR__DEFAULT
             : d             ? (int)d->on_error
                             : on;
    }
    node->on_error = on == MILLRACE__WORKFLOW_SCHEDULING__ON_ERROR__SKIP       ? PLAN_SKIP
                     : on == MILLRACE__WORKFLOW_SCHEDULING__ON_ERROR__DEFAULT  ? PLAN_DEFAULT
                     : on == MILLRACE__WORKFLOW_SCHEDULING__ON_ERROR__FALLBACK ? PLAN_FALLBACK
                                                                               : PLAN_FAIL;
    node->timeout_ms = n->timeout_ms ? n->timeout_ms : d ? d->timeout_ms : 0;
    node->attempts = 1;
    if (n->retry) {
        if (n->retry->attempts < 1 || n->retry->attempts > 100 || n->retry->budget_percent > 100) {
            return PLAN_BAD(
                b,
                "workflow '%.*s': retry of node '%.128s' has attempts %u and budget_percent "
                "%u, allowed are 1 to 100 and 0 to 100",
                MR_STR_ARG(b->p->name), n->name, n->retry->attempts, n->retry->budget_percent);
        }
        node->attempts = n->retry->attempts;
        node->retry_percent = n->retry->budget_percent ? n->retry->budget_percent : 10;
        for (size_t i = 0; i < n->retry->n_on; i++) {
            node->retry_on |= n->retry->on[i] == MILLRACE__WORKFLOW_SCHEDULING__RETRY__ON__TIMEOUT
                                  ? PLAN_RETRY_TIMEOUT
                                  : PLAN_RETRY_UNAVAILABLE;
        }
        node->retry_on = node->retry_on ? node->retry_on : PLAN_RETRY_UNAVAILABLE;
    }
    return policy_check(b, node, n);
}

static int kind_read(struct plan_build *b, struct plan_node *node, const node_config *n)
{
    if (n->kind_case == MILLRACE__WORKFLOW_SCHEDULING__NODE__KIND_MODEL && n->model->name[0]) {
        return plan_build_model(b, mr_str_c(n->name), n->model, &node->model, &node->version);
    }
    if (n->kind_case == MILLRACE__WORKFLOW_SCHEDULING__NODE__KIND_OP && n->op[0]) {
        node->op_name = mr_str_c(n->op);
        node->version = MR_STR("");
        return MR_OK;
    }
    if (n->kind_case == MILLRACE__WORKFLOW_SCHEDULING__NODE__KIND_SPLIT) {
        node->version = MR_STR("");
        return MR_OK; /* plan_split_open gives it its models */
    }
    return PLAN_BAD(
        b, "workflow '%.*s': node '%.128s' must specify 'model' with a name, 'op' or 'split'",
        MR_STR_ARG(b->p->name), n->name);
}

static int node_make(struct plan_build *b, uint32_t i, const node_config *n)
{
    struct plan *p = b->p;
    struct plan_node *node = &p->nodes[i];
    int rc;

    MR_TRY(node_features(b, n));
    MR_TRY(kind_read(b, node, n));
    node->name = mr_str_c(n->name);
    node->fallback = PLAN_NO_NODE;
    if (n->n_output_map == 0 || !node->version.ptr) {
        rc = PLAN_BAD(b, "workflow '%.*s': node '%.128s' must specify 'output_map'",
                      MR_STR_ARG(p->name), n->name);
        goto out;
    }
    MR_TRY(ports_make(b, node, n));
    MR_TRY(policy_read(b, node, n));
    MR_TRY(plan_foreach_read(b, node, n));
    MR_TRY(n->hedge ? plan_hedge_read(b, node, n) : MR_OK);
    MR_TRY(n->shadow ? plan_shadow_read(b, node, n) : MR_OK);
out:
    return rc;
}

/* ---- fallbacks ---- */

/* The same node with another model. */
static int spare_make(struct plan_build *b, uint32_t of, const Millrace__WorkflowModel *m)
{
    struct plan *p = b->p;
    struct plan_node *spare = &p->nodes[p->node_count];

    if (!m->name[0]) {
        return PLAN_BAD(b, "workflow '%.*s': the fallback of node '%.*s' has no model",
                        MR_STR_ARG(p->name), MR_STR_ARG(p->nodes[of].name));
    }
    *spare = p->nodes[of];
    spare->op_name = (mr_str){0};
    spare->split = NULL;
    spare->is_copy = true;
    spare->is_spare = true;
    spare->on_error = PLAN_FAIL;
    spare->attempts = 1;
    spare->hedge_percent = 0;
    spare->shadow = NULL;
    p->nodes[of].fallback = p->node_count++;
    return plan_build_model(b, spare->name, m, &spare->model, &spare->version);
}

static int spare_use(struct plan_build *b, uint32_t of, const char *name)
{
    struct plan *p = b->p;
    struct plan_node *node = &p->nodes[of];
    uint32_t spare = 0;
    int rc = plan_build_node_of(b, node->name.ptr, "fallback", name, &spare);

    if (rc < 0) {
        return rc;
    }
    struct plan_node *s = &p->nodes[spare];
    bool is_equal = spare != of && s->output_count == node->output_count;
    for (uint32_t i = 0; is_equal && i < node->output_count; i++) {
        is_equal = plan_build_writes(s, node->outputs[i].tensor);
    }
    if (!is_equal || s->is_spare) {
        return PLAN_BAD(b, "workflow '%.*s': '%.128s', the fallback of node '%.*s', %s",
                        MR_STR_ARG(p->name), name, MR_STR_ARG(node->name),
                        s->is_spare ? "is that of another node" : "has to write the same tensors");
    }
    s->is_spare = true;
    node->fallback = spare;
    return MR_OK;
}

static int splits_make(struct plan_build *b)
{
    int rc = MR_OK;

    for (uint32_t i = 0; i < b->w->n_node && rc == MR_OK; i++) {
        const node_config *n = b->w->node[i];
        if (n->kind_case == MILLRACE__WORKFLOW_SCHEDULING__NODE__KIND_SPLIT) {
            rc = plan_split_open(b->p, i, n->split, b->err);
        }
    }
    return rc;
}

static int fallbacks_make(struct plan_build *b)
{
    int rc = MR_OK;

    for (uint32_t i = 0; i < b->w->n_node && rc == MR_OK; i++) {
        const Millrace__WorkflowScheduling__Fallback *f = b->w->node[i]->fallback;
        const bool is_node =
            f && f->target_case == MILLRACE__WORKFLOW_SCHEDULING__FALLBACK__TARGET_NODE;
        const bool is_model =
            f && f->target_case == MILLRACE__WORKFLOW_SCHEDULING__FALLBACK__TARGET_MODEL;
        if (is_node) {
            rc = spare_use(b, i, f->node);
        } else if (is_model) {
            rc = spare_make(b, i, f->model);
        } else if (b->p->nodes[i].on_error == PLAN_FALLBACK) {
            rc = PLAN_BAD(b, "workflow '%.*s': node '%.128s' must specify 'fallback'",
                          MR_STR_ARG(b->p->name), b->w->node[i]->name);
        }
    }
    for (uint32_t i = 0; i < b->p->node_count && rc == MR_OK; i++) {
        const struct plan_node *node = &b->p->nodes[i];
        if (node->is_spare && node->fallback != PLAN_NO_NODE && i < b->w->n_node) {
            rc = PLAN_BAD(b, "workflow '%.*s': node '%.*s' is a fallback and has one itself",
                          MR_STR_ARG(b->p->name), MR_STR_ARG(node->name));
        }
    }
    return rc;
}

/* ---- writers, orders, conditions ---- */

static int writers_set(struct plan_build *b)
{
    struct plan *p = b->p;

    for (uint32_t n = 0; n < p->node_count; n++) {
        for (uint32_t i = 0; i < p->nodes[n].output_count && !p->nodes[n].is_spare; i++) {
            struct plan_tensor *t = &p->tensors[p->nodes[n].outputs[i].tensor];
            if (t->writer != PLAN_NO_NODE) {
                return PLAN_BAD(
                    b, "workflow '%.*s': tensor '%.*s' is written by node '%.*s' and by %.*s",
                    MR_STR_ARG(p->name), MR_STR_ARG(t->name), MR_STR_ARG(p->nodes[n].name),
                    MR_STR_ARG(t->writer == PLAN_CLIENT ? MR_STR("the client")
                                                        : p->nodes[t->writer].name));
            }
            t->writer = n;
        }
    }
    return MR_OK;
}

static int after_read(struct plan_build *b, uint32_t n)
{
    const node_config *c = b->w->node[n];
    struct plan_node *node = &b->p->nodes[n];
    uint32_t *list = MR_ARENA_ARRAY(&b->p->arena, uint32_t, c->n_after + 1);
    int rc = list ? MR_OK : plan_no_memory(b->p, b->err);

    node->after = list;
    for (size_t i = 0; i < c->n_after && rc == MR_OK; i++) {
        rc = plan_build_node_of(b, c->name, "after", c->after[i], &list[i]);
        node->after_count++;
        if (rc == MR_OK && (node->is_spare || b->p->nodes[list[i]].is_spare)) {
            rc = PLAN_BAD(
                b,
                "workflow '%.*s': node '%.128s' has 'after' with '%.128s', and a fallback has "
                "no place in the order",
                MR_STR_ARG(b->p->name), c->name, c->after[i]);
        }
    }
    return rc;
}

/* The tensors that the condition, and the fallback, read besides the node's own inputs: the node waits for their writers. */
static int waits_add(struct plan_build *b, uint32_t n)
{
    struct plan *p = b->p;
    struct plan_node *node = &p->nodes[n];
    const struct plan_node *spare =
        node->fallback < p->node_count ? &p->nodes[node->fallback] : NULL;
    size_t operands = 0;
    const struct mr_expr_operand *o = node->when ? mr_expr_operands(node->when, &operands) : NULL;
    uint32_t *list = MR_ARENA_ARRAY(
        &p->arena, uint32_t, node->after_count + operands + (spare ? spare->input_count : 0u) + 1);

    if (!list) {
        return plan_no_memory(p, b->err);
    }
    memcpy(list, node->after, node->after_count * sizeof *list);
    node->after = list;
    for (size_t i = 0; i < operands; i++) {
        list[node->after_count++] = plan_build_operand(p, &o[i]);
    }
    for (uint32_t i = 0; spare && i < spare->input_count; i++) {
        list[node->after_count++] = p->tensors[spare->inputs[i].tensor].writer;
    }
    return MR_OK;
}

static int when_compile(struct plan_build *b, uint32_t n)
{
    const char *text = b->w->node[n]->when;

    if (text[0] && b->p->nodes[n].is_spare) {
        return PLAN_BAD(
            b, "workflow '%.*s': node '%.128s' is a fallback or branch of a switch and has 'when'",
            MR_STR_ARG(b->p->name), b->w->node[n]->name);
    }
    return text[0] ? plan_build_condition(b, n, text, false) : MR_OK;
}

static int orders_make(struct plan_build *b)
{
    int rc = MR_OK;

    for (uint32_t n = 0; n < b->w->n_node && rc == MR_OK; n++) {
        rc = after_read(b, n);
    }
    return rc;
}

static int conditions_make(struct plan_build *b)
{
    int rc = MR_OK;

    for (uint32_t n = 0; n < b->w->n_node && rc == MR_OK; n++) {
        rc = when_compile(b, n);
        rc = rc < 0 ? rc : waits_add(b, n);
    }
    return rc;
}

/* ---- values from the configuration ---- */

/* seen: for each tensor, the number of the last list with a value for it. */
static int values_read(struct plan_build *b, const char *of, Millrace__WorkflowValue **from,
                       size_t count, uint32_t *seen, uint32_t number, const struct plan_value **out,
                       uint32_t *out_count)
{
    struct plan_value *list = MR_ARENA_ARRAY(&b->p->arena, struct plan_value, count + 1);

    if (!list) {
        return plan_no_memory(b->p, b->err);
    }
    for (size_t i = 0; i < count; i++) {
        const uintptr_t known = (uintptr_t)mr_map_find(
            &b->p->names, mr_str_n(from[i]->tensor, strnlen(from[i]->tensor, PLAN_NAME_MAX)));
        const bool is_second = known && seen[known - 1] == number;
        if (!known || is_second ||
            from[i]->value_case == MILLRACE__WORKFLOW_VALUE__VALUE__NOT_SET) {
            return PLAN_BAD(b, "workflow '%.*s': a default of %s names '%.128s', %s",
                            MR_STR_ARG(b->p->name), of, from[i]->tensor,
                            !known      ? "which is no tensor of the workflow"
                            : is_second ? "and another one does as well"
                                        : "and gives no value");
        }
        seen[known - 1] = number;
        list[i] = (struct plan_value){.tensor = (uint32_t)(known - 1), .value = from[i]};
    }
    *out = list;
    *out_count = (uint32_t)count;
    return MR_OK;
}

static int node_defaults_read(struct plan_build *b, uint32_t n, uint32_t *seen)
{
    const node_config *c = b->w->node[n];
    struct plan_node *node = &b->p->nodes[n];
    char of[160];

    snprintf(of, sizeof of, "node '%.128s'", c->name);
    int rc = values_read(b, of, c->default_, c->n_default_, seen, n + 2, &node->defaults,
                         &node->default_count);
    for (uint32_t i = 0; i < node->default_count && rc == MR_OK; i++) {
        if (!plan_build_writes(node, node->defaults[i].tensor)) {
            rc = PLAN_BAD(b,
                          "workflow '%.*s': node '%.128s' has a default of '%.*s', which it does "
                          "not write",
                          MR_STR_ARG(b->p->name), c->name,
                          MR_STR_ARG(b->p->tensors[node->defaults[i].tensor].name));
        }
    }
    return rc;
}

/* Those of other tensors would never be used. */
static int default_use_check(struct plan_build *b, uint32_t tensor)
{
    const struct plan *p = b->p;
    const uint32_t writer = p->tensors[tensor].writer;

    return plan_is_output(p, tensor) || (writer < p->node_count && p->nodes[writer].is_by_row)
               ? MR_OK
               : PLAN_BAD(b,
                          "workflow '%.*s': a default of the workflow names '%.*s', which is no "
                          "output and not made by a switch per row",
                          MR_STR_ARG(p->name), MR_STR_ARG(p->tensors[tensor].name));
}

static int defaults_read(struct plan_build *b)
{
    uint32_t *seen = MR_NEW_ARRAY(uint32_t, (size_t)b->p->tensor_count + 1);
    int rc = values_read(b, "the workflow", b->w->default_, b->w->n_default_, seen, 1,
                         &b->p->defaults, &b->p->default_count);

    for (uint32_t i = 0; i < b->p->default_count && rc == MR_OK; i++) {
        rc = default_use_check(b, b->p->defaults[i].tensor);
    }
    for (uint32_t n = 0; n < b->w->n_node && rc == MR_OK; n++) {
        rc = node_defaults_read(b, n, seen);
    }
    mr_free(seen);
    return rc;
}

/* ---- the whole ---- */

static int nodes_make(struct plan_build *b)
{
    int rc = MR_OK;

    for (uint32_t i = 0; i < b->w->n_node && rc == MR_OK; i++) {
        rc = name_check(b, i, b->w->node[i]);
    }
    for (uint32_t i = 0; i < b->w->n_node && rc == MR_OK; i++) {
        rc = node_make(b, i, b->w->node[i]);
    }
    return rc;
}

/* With fallbacks and variants. */
static size_t nodes_room(const Millrace__WorkflowScheduling *w)
{
    size_t room = 2 * w->n_node + w->n_switch_ + w->n_gather + 1;

    for (size_t i = 0; i < w->n_node; i++) {
        if (w->node[i]->kind_case == MILLRACE__WORKFLOW_SCHEDULING__NODE__KIND_SPLIT) {
            room += w->node[i]->split->n_variant;
        }
    }
    return room;
}

int plan_workflow(struct plan **out, const Inference__ModelConfig *c, struct mr_err *err)
{
    struct plan_build b = {.c = c, .w = c->workflow_scheduling, .err = err};
    int rc;

    if (b.w->n_node == 0 || b.w->n_node > PLAN_NODES_MAX || b.w->n_switch_ > PLAN_NODES_MAX ||
        b.w->n_gather > PLAN_NODES_MAX) {
        return PLAN_BAD(&b,
                        "workflow '%.128s' has %zu nodes, %zu switches and %zu gathers, allowed "
                        "are 1 to %u nodes and as many of the others",
                        c->name, b.w->n_node, b.w->n_switch_, b.w->n_gather, PLAN_NODES_MAX);
    }
    MR_TRY(plan_new(&b.p, c, err));
    b.p->is_workflow = true;
    b.p->deadline_ms = b.w->deadline_ms;
    b.p->node_count = (uint32_t)b.w->n_node;
    b.p->nodes = MR_ARENA_ARRAY(&b.p->arena, struct plan_node, nodes_room(b.w));
    if (!b.p->nodes) {
        rc = plan_no_memory(b.p, err);
        goto out;
    }
    MR_TRY(plan_admission_read(&b));
    MR_TRY(nodes_make(&b));
    MR_TRY(splits_make(&b));
    MR_TRY(fallbacks_make(&b));
    MR_TRY(plan_switches_make(&b));
    MR_TRY(plan_gathers_make(&b));
    MR_TRY(writers_set(&b));
    MR_TRY(defaults_read(&b));
    MR_TRY(orders_make(&b));
    MR_TRY(plan_switches_order(&b));
    MR_TRY(plan_link(b.p, err));
    MR_TRY(plan_proof_reachable(b.p, err));
    *out = b.p;
    b.p = NULL;
out:
    mr_map_fini(&b.names);
    mr_map_fini(&b.others);
    plan_free(&b.p);
    return rc;
}

int plan_workflow_finish(struct plan *p, const Inference__ModelConfig *c,
                         const struct plan_ops_from *ops, struct mr_err *err)
{
    struct plan_build b = {.p = p, .c = c, .w = c->workflow_scheduling, .err = err};
    int rc = MR_OK;

    for (uint32_t i = 0; i < b.w->n_node; i++) {
        mr_map_put(&b.names, p->nodes[i].name, (void *)(uintptr_t)(i + 1));
    }
    /* conditions need the types of what operators make */
    MR_TRY(plan_ops_open(p, c, ops, err));
    MR_TRY(plan_proof_defaults(p, err));
    MR_TRY(conditions_make(&b));
    MR_TRY(plan_switches_link(&b));
    MR_TRY(plan_ops_check_when(p, err));
    MR_TRY(plan_link(p, err));
    MR_TRY(plan_proof_reachable(p, err));
    MR_TRY(plan_proof_nulls(p, err));
    MR_TRY(plan_proof_streams(p, err));
out:
    mr_map_fini(&b.names);
    return rc;
}
