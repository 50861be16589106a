/* Ensembles and workflows: models whose configuration is a graph of other models, and which have no file and no backend; and models of
 * other servers, which are opened in the same way.
 *
 * What can be said without the other models is judged here, with Triton's texts for ensembles; src/flow judges the rest
 * when it opens the model. Thread: any. */
#include "base/map.h"
#include "config_priv.h"
#include "model/remote.h"

bool mr_config_is_ensemble(const Inference__ModelConfig *c)
{
    return c->scheduling_choice_case ==
           INFERENCE__MODEL_CONFIG__SCHEDULING_CHOICE_ENSEMBLE_SCHEDULING;
}

bool mr_config_is_workflow(const Inference__ModelConfig *c)
{
    return c->scheduling_choice_case ==
           INFERENCE__MODEL_CONFIG__SCHEDULING_CHOICE_WORKFLOW_SCHEDULING;
}

bool mr_config_is_graph(const Inference__ModelConfig *c)
{
    return mr_config_is_ensemble(c) || mr_config_is_workflow(c) ||
           strcmp(c->platform, MR_CONFIG_ENSEMBLE) == 0 ||
           strcmp(c->platform, MR_CONFIG_WORKFLOW) == 0 || mr_config_is_remote(c);
}

bool mr_config_is_remote(const Inference__ModelConfig *c)
{
    return strcmp(c->platform, MR_CONFIG_REMOTE) == 0;
}

/* ---- the models that it asks ---- */

static const Millrace__WorkflowModel *node_model(const Millrace__WorkflowScheduling__Node *n)
{
    return n->kind_case == MILLRACE__WORKFLOW_SCHEDULING__NODE__KIND_MODEL ? n->model : NULL;
}

typedef void(model_fn)(void *ctx, const Millrace__WorkflowModel *m);

static void model_give(const Millrace__WorkflowModel *m, model_fn *each, void *ctx)
{
    if (m && m->name[0]) {
        each(ctx, m);
    }
}

static void node_give(const Millrace__WorkflowScheduling__Node *n, model_fn *each, void *ctx)
{
    model_give(node_model(n), each, ctx);
    if (n->kind_case == MILLRACE__WORKFLOW_SCHEDULING__NODE__KIND_SPLIT) {
        for (size_t i = 0; i < n->split->n_variant; i++) {
            model_give(n->split->variant[i]->model, each, ctx);
        }
    }
    if (n->fallback &&
        n->fallback->target_case == MILLRACE__WORKFLOW_SCHEDULING__FALLBACK__TARGET_MODEL) {
        model_give(n->fallback->model, each, ctx);
    }
    if (n->shadow) {
        model_give(n->shadow->model, each, ctx);
    }
}

static void workflow_give(const Inference__ModelConfig *c, model_fn *each, void *ctx)
{
    for (size_t i = 0; mr_config_is_workflow(c) && i < c->workflow_scheduling->n_node; i++) {
        node_give(c->workflow_scheduling->node[i], each, ctx);
    }
}

struct names {
    void (*each)(void *ctx, const char *name);
    void *ctx;
};

static void name_give(void *ctx, const Millrace__WorkflowModel *m)
{
    const struct names *k = ctx;
    struct mr_remote_model remote;
    char number[24];

    if (!mr_remote_of(m, number, &remote)) {
        k->each(k->ctx, m->name);
        return;
    }
    char *name = mr_remote_name(&remote);
    k->each(k->ctx, name);
    mr_free(name);
}

void mr_config_members(const Inference__ModelConfig *c, void (*each)(void *ctx, const char *name),
                       void *ctx)
{
    struct names k = {each, ctx};

    workflow_give(c, name_give, &k);
    for (size_t i = 0; mr_config_is_ensemble(c) && i < c->ensemble_scheduling->n_step; i++) {
        const char *name = c->ensemble_scheduling->step[i]->model_name;
        if (name[0]) {
            each(ctx, name);
        }
    }
}

struct remotes {
    void (*each)(void *ctx, const struct mr_remote_model *r);
    void *ctx;
};

static void remote_give(void *ctx, const Millrace__WorkflowModel *m)
{
    const struct remotes *k = ctx;
    struct mr_remote_model remote;
    char number[24];

    if (mr_remote_of(m, number, &remote)) {
        k->each(k->ctx, &remote);
    }
}

void mr_config_remotes(const Inference__ModelConfig *c,
                       void (*each)(void *ctx, const struct mr_remote_model *r), void *ctx)
{
    struct remotes k = {each, ctx};

    workflow_give(c, remote_give, &k);
}

/* ---- platform ---- */

int mr_config_graph_basics(Inference__ModelConfig *c, struct mr_err *err)
{
    const char *wanted = mr_config_is_ensemble(c)   ? MR_CONFIG_ENSEMBLE
                         : mr_config_is_workflow(c) ? MR_CONFIG_WORKFLOW
                                                    : NULL;

    if (!wanted && mr_config_is_remote(c)) {
        return c->backend[0]
                   ? MR_FAIL(err, MR_E_INVALID,
                             "model '%.128s' is that of another server and has 'backend'", c->name)
                   : MR_OK;
    }
    if (!wanted) {
        return MR_FAIL(err, MR_E_INVALID,
                       "%s scheduling must be set for %s %.128s whose platform is %s", c->platform,
                       c->platform, c->name, c->platform);
    }
    if (c->backend[0]) {
        return MR_FAIL(err, MR_E_INVALID,
                       "Ensemble model '%.128s' must have platform type '%s' and empty backend",
                       c->name, wanted);
    }
    if (!c->platform[0]) {
        mr_config_set_string(&c->platform, wanted);
    }
    if (strcmp(c->platform, wanted) != 0) {
        return MR_FAIL(err, MR_E_INVALID,
                       "%s scheduling cannot be set for model '%.128s' whose platform is not %s",
                       wanted, c->name, wanted);
    }
    return MR_OK;
}

/* ---- the graph of an ensemble ---- */

struct graph {
    const Inference__ModelConfig *c;
    struct mr_map written; /* tensors that a step writes */
    struct mr_map used;    /* tensors that a step reads or writes */
    struct mr_err *err;
};

static int step_check(struct graph *g, size_t i)
{
    const Inference__ModelEnsembling__Step *s = g->c->ensemble_scheduling->step[i];
    const char *missing = !s->model_name[0]      ? "model_name"
                          : s->n_input_map == 0  ? "input_map"
                          : s->n_output_map == 0 ? "output_map"
                                                 : NULL;

    if (missing) {
        return MR_FAIL(g->err, MR_E_INVALID, "must specify '%s' in step %zu of ensemble '%.128s'",
                       missing, i, g->c->name);
    }
    for (size_t k = 0; k < s->n_output_map; k++) {
        const char *tensor = s->output_map[k]->value;
        if (mr_map_put(&g->written, mr_str_c(tensor), g)) {
            return MR_FAIL(g->err, MR_E_INVALID,
                           "ensemble tensor '%.128s' can appear in an output map only once for "
                           "ensemble '%.128s' step %zu",
                           tensor, g->c->name, i);
        }
        mr_map_put(&g->used, mr_str_c(tensor), g);
    }
    for (size_t k = 0; k < s->n_input_map; k++) {
        mr_map_put(&g->used, mr_str_c(s->input_map[k]->value), g);
    }
    return MR_OK;
}

static int ends_check(const struct graph *g)
{
    for (size_t i = 0; i < g->c->n_input; i++) {
        if (!mr_map_find(&g->used, mr_str_c(g->c->input[i]->name))) {
            return MR_FAIL(g->err, MR_E_INVALID,
                           "ensemble input '%.128s' for ensemble %.128s' is not used",
                           g->c->input[i]->name, g->c->name);
        }
    }
    for (size_t i = 0; i < g->c->n_output; i++) {
        if (!mr_map_find(&g->used, mr_str_c(g->c->output[i]->name))) {
            return MR_FAIL(g->err, MR_E_INVALID,
                           "ensemble output '%.128s' for ensemble %.128s' is not used",
                           g->c->output[i]->name, g->c->name);
        }
    }
    return MR_OK;
}

static int ensemble_check(const Inference__ModelConfig *c, struct mr_err *err)
{
    const Inference__ModelEnsembling *e = c->ensemble_scheduling;
    struct graph g = {.c = c, .err = err};
    int rc = MR_OK;

    if (e->n_step == 0) {
        return MR_FAIL(err, MR_E_INVALID, "must specify 'step' for ensemble '%.128s'", c->name);
    }
    for (size_t i = 0; i < e->n_step && rc == MR_OK; i++) {
        rc = step_check(&g, i);
    }
    rc = rc < 0 ? rc : ends_check(&g);
    mr_map_fini(&g.written);
    mr_map_fini(&g.used);
    return rc;
}

int mr_config_graph_check(const Inference__ModelConfig *c, struct mr_err *err)
{
    const char *kind = mr_config_is_workflow(c) ? MR_CONFIG_WORKFLOW
                       : mr_config_is_remote(c) ? MR_CONFIG_REMOTE
                                                : MR_CONFIG_ENSEMBLE;

    if (!mr_config_is_graph(c)) {
        return MR_OK;
    }
    if (c->n_instance_group > 0) {
        return MR_FAIL(err, MR_E_INVALID, "instance group should not be specified for %s '%.128s'",
                       kind, c->name);
    }
    if (c->optimization) {
        return MR_FAIL(err, MR_E_INVALID, "optimization should not be specified for %s '%.128s'",
                       kind, c->name);
    }
    if (c->n_model_warmup > 0 && mr_config_is_ensemble(c)) {
        return MR_FAIL(err, MR_E_INVALID, "model_warmup can not be specified for ensemble '%.128s'",
                       c->name);
    }
    return mr_config_is_ensemble(c) ? ensemble_check(c, err) : MR_OK;
}
