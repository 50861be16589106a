#include "pins.h"

/* Configuration files that are read for one graph in search of a cycle, however many nodes it has. */
#define READS_MAX 256

/* The last load of a model, in Triton's words. */
static void failure_see(void *ctx, const struct mr_model_view *view)
{
    const struct mr_load_view *last = view->load_count ? &view->loads[view->load_count - 1] : NULL;
    char **out = ctx;
    struct mr_buf text;

    if (!last || last->state != MR_VERSION_FAILED) {
        return;
    }
    mr_buf_init(&text, 512);
    mr_buf_printf(&text, "load failed for model '%.*s': version %lld is at %s state: %.*s;",
                  MR_STR_ARG(view->name), (long long)last->version,
                  mr_version_state_triton(last->state), MR_STR_ARG(last->reason));
    *out = mr_strndup(mr_buf_cstr(&text), text.len);
    mr_buf_fini(&text);
}

/* A search for the way back from models that are not there to the one whose graph is checked. */
struct cycle {
    mr_str start;
    mr_str asked
        [READS_MAX]; /* by it, or by those before; configurations of the first `read` have been read */
    uint32_t count, read;
    bool is_found;
};

static bool is_asked(const struct cycle *c, mr_str model)
{
    for (uint32_t i = 0; i < c->count; i++) {
        if (mr_str_eq(c->asked[i], model)) {
            return true;
        }
    }
    return false;
}

static void cycle_ask(struct cycle *c, mr_str model)
{
    if (mr_str_eq(model, c->start)) {
        c->is_found = true;
    } else if (c->count < READS_MAX && !is_asked(c, model)) {
        c->asked[c->count++] = mr_str_n(mr_strndup(model.ptr, model.len), model.len);
    }
}

static void cycle_fini(struct cycle *c)
{
    for (uint32_t i = 0; i < c->count; i++) {
        mr_free((char *)c->asked[i].ptr);
    }
}

/* Returns true for the first model that asks for `start`, itself or by others. */
static bool leads_back(struct cycle *c, struct mr_models *models, mr_str model)
{
    if (c->is_found) {
        return false;
    }
    cycle_ask(c, model);
    while (!c->is_found && c->read < c->count) {
        Inference__ModelConfig *config = NULL;

        if (mr_models_folder_config(models, c->asked[c->read++], &config, NULL) == MR_OK) {
            const Inference__ModelEnsembling *e = config->ensemble_scheduling;
            for (size_t i = 0; e && i < e->n_step; i++) {
                cycle_ask(c, mr_str_c(e->step[i]->model_name));
            }
            mr_config_free(&config);
        }
    }
    return c->is_found;
}

static void member_pin(struct plan_member *m, struct mr_models *models, struct cycle *cycle,
                       const struct plan_node *node)
{
    struct mr_version *other;
    struct mr_err ignored;

    if (mr_models_acquire(models, node->model, node->version, &m->version, &ignored) == MR_OK) {
        const bool may_ask = mr_config_is_graph(m->version->config) ||
                             (!node->version.len && mr_str_eq(node->model, cycle->start));
        /* it asks the one that serves now, whose update would close a circle */
        if (may_ask && mr_models_is_asked_by(models, cycle->start, node->model)) {
            mr_version_unpin(m->version, MR_EPOCH_SLOT_NONE);
            m->version = NULL;
            m->is_circular = cycle->is_found = true;
        }
        return;
    }
    if (mr_models_acquire(models, node->model, MR_STR(""), &other, &ignored) == MR_OK) {
        m->has_other = true;
        mr_version_unpin(other, MR_EPOCH_SLOT_NONE);
        return;
    }
    m->is_circular = leads_back(cycle, models, node->model);
    mr_models_versions(models, node->model, failure_see, &m->failure, &ignored);
}

struct plan_member *pins_take(const struct plan *p, struct mr_models *models)
{
    struct plan_member *members = MR_NEW_ARRAY(struct plan_member, (size_t)p->node_count + 1);
    struct cycle cycle = {.start = p->name};

    for (uint32_t n = 0; n < p->node_count; n++) {
        if (p->nodes[n].model.len) {
            member_pin(&members[n], models, &cycle, &p->nodes[n]);
        }
    }
    cycle_fini(&cycle);
    return members;
}

void pins_release(struct plan_member *members, uint32_t count)
{
    for (uint32_t n = 0; n < count; n++) {
        if (members[n].version) {
            mr_version_unpin(members[n].version, MR_EPOCH_SLOT_NONE);
        }
        mr_free(members[n].failure);
    }
    mr_free(members);
}
