/* The plan of an ensemble. The texts are Triton's. Thread: loader. */
#include "plan.h"

static int port_make(struct plan *p, struct plan_port *to, const char *port, const char *tensor,
                     struct mr_err *err)
{
    to->name = mr_arena_str(&p->arena, mr_str_c(port));
    return to->name.ptr ? plan_tensor_of(p, tensor, &to->tensor, err) : plan_no_memory(p, err);
}

static int step_make(struct plan *p, uint32_t n, const Inference__ModelEnsembling__Step *s,
                     struct mr_err *err)
{
    struct plan_node *node = &p->nodes[n];
    struct plan_port *ports =
        MR_ARENA_ARRAY(&p->arena, struct plan_port, s->n_input_map + s->n_output_map + 1);
    int rc = MR_OK;

    node->name = node->model = mr_arena_str(&p->arena, mr_str_c(s->model_name));
    node->version = s->model_version > 0 || s->model_version < -1
                        ? mr_arena_printf(&p->arena, "%lld", (long long)s->model_version)
                        : MR_STR("");
    if (!ports || !node->name.ptr || !node->version.ptr) {
        return plan_no_memory(p, err);
    }
    node->fallback = PLAN_NO_NODE;
    node->inputs = ports;
    node->outputs = ports + s->n_input_map;
    for (size_t i = 0; i < s->n_input_map && rc == MR_OK; i++) {
        rc = port_make(p, ports++, s->input_map[i]->key, s->input_map[i]->value, err);
        node->input_count++;
    }
    for (size_t i = 0; i < s->n_output_map && rc == MR_OK; i++) {
        rc = port_make(p, ports, s->output_map[i]->key, s->output_map[i]->value, err);
        if (rc == MR_OK) {
            p->tensors[ports++->tensor].writer = n;
        }
        node->output_count++;
    }
    return rc;
}

static bool is_ready(const struct plan *p, uint32_t tensor)
{
    const uint32_t writer = p->tensors[tensor].writer;

    return writer == PLAN_CLIENT || (writer < p->node_count && p->nodes[writer].is_reachable);
}

/* A tensor on which the output depends, and which is never there. */
static mr_str missing_of(const struct plan *p, uint32_t tensor)
{
    const uint32_t writer = p->tensors[tensor].writer;

    for (uint32_t i = 0; writer < p->node_count && i < p->nodes[writer].input_count; i++) {
        if (!is_ready(p, p->nodes[writer].inputs[i].tensor)) {
            return p->tensors[p->nodes[writer].inputs[i].tensor].name;
        }
    }
    return p->tensors[tensor].name;
}

static int outputs_check(const struct plan *p, struct mr_err *err)
{
    for (uint32_t i = 0; i < p->output_count; i++) {
        if (!is_ready(p, p->outputs[i])) {
            return MR_FAIL(err, MR_E_INVALID,
                           "output '%.*s' for ensemble '%.*s' is not written: at least one of its "
                           "depending tensors, '%.*s', is not connected",
                           MR_STR_ARG(p->tensors[p->outputs[i]].name), MR_STR_ARG(p->name),
                           MR_STR_ARG(missing_of(p, p->outputs[i])));
        }
    }
    return MR_OK;
}

int plan_ensemble(struct plan **out, const Inference__ModelConfig *c, struct mr_err *err)
{
    const Inference__ModelEnsembling *e = c->ensemble_scheduling;
    struct plan *p = NULL;
    int rc;

    if (e->n_step > PLAN_NODES_MAX) {
        return MR_FAIL(err, MR_E_INVALID, "ensemble '%.128s' has %zu steps, at most %u are allowed",
                       c->name, e->n_step, PLAN_NODES_MAX);
    }
    MR_TRY(plan_new(&p, c, err));
    p->max_inflight = e->max_inflight_requests;
    p->node_count = (uint32_t)e->n_step;
    p->nodes = MR_ARENA_ARRAY(&p->arena, struct plan_node, e->n_step + 1);
    if (!p->nodes) {
        rc = plan_no_memory(p, err);
        goto out;
    }
    for (uint32_t i = 0; i < p->node_count; i++) {
        rc = step_make(p, i, e->step[i], err);
        if (rc < 0) {
            MR_WRAP(err, rc, "ensemble '%.128s', step %u", c->name, i);
            goto out;
        }
    }
    MR_TRY(plan_link(p, err));
    MR_TRY(outputs_check(p, err));
    *out = p;
    return MR_OK;
out:
    plan_free(&p);
    return rc;
}
