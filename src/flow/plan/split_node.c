/* Splits in plans. Each variant is a node of its own for the checks of its model, and never runs by itself. Thread: loader. */
#include "split_node.h"

#include "base/clock.h"
#include "model/remote.h"
#include "variant/split.h"

int plan_model_name(struct plan *p, const Millrace__WorkflowModel *m, mr_str *out_model,
                    mr_str *out_version, struct mr_err *err)
{
    struct mr_remote_model remote;
    char number[24];

    if (m->version < -1) {
        return MR_FAIL(err, MR_E_INVALID,
                       "model '%.128s' has version %lld, possible are those above 0, and 0 and -1 "
                       "for the model's own",
                       m->name, (long long)m->version);
    }
    *out_model = mr_str_c(m->name);
    *out_version =
        m->version > 0 ? mr_arena_printf(&p->arena, "%lld", (long long)m->version) : MR_STR("");
    if (mr_remote_of(m, number, &remote)) {
        char *name = mr_remote_name(&remote);
        *out_model = mr_arena_str(&p->arena, mr_str_c(name));
        *out_version = MR_STR(""); /* it is part of the name */
        mr_free(name);
    }
    return out_model->ptr && out_version->ptr ? MR_OK : plan_no_memory(p, err);
}

static int model_take(struct plan *p, uint32_t node, uint32_t i, const Millrace__WorkflowModel *m,
                      struct mr_err *err)
{
    struct plan_node *n = &p->nodes[node];

    if (!m || !m->name[0]) {
        return MR_FAIL(err, MR_E_INVALID, "variant %u must specify 'model' with a name", i + 1);
    }
    if (i > 0) {
        n->variants = i == 1 ? p->node_count : n->variants;
        p->nodes[p->node_count] = *n;
        n = &p->nodes[p->node_count++];
        n->split = NULL;
        n->is_spare = n->is_copy = true;
        n->shadow = NULL; /* it is the split's */
        n->on_error = PLAN_FAIL;
        n->fallback = PLAN_NO_NODE;
    }
    return plan_model_name(p, m, &n->model, &n->version, err);
}

static bool is_one_cohort(const struct mr_split *a, const struct mr_split *b)
{
    mr_str key, other;
    const enum mr_sticky_kind kind = mr_split_key(a, &key);

    return kind == mr_split_key(b, &other) && mr_str_eq(key, other) &&
           mr_str_eq(mr_split_salt(a), mr_split_salt(b)) && (key.len || mr_split_salt(a).len);
}

static void bucket_find(struct plan *p, uint32_t node)
{
    struct plan_node *n = &p->nodes[node];

    n->bucket = node;
    for (uint32_t i = 0; i < node; i++) {
        if (p->nodes[i].split && is_one_cohort(p->nodes[i].split, n->split)) {
            n->bucket = i;
            return;
        }
    }
}

static int split_open(struct plan *p, uint32_t node, const Millrace__WorkflowScheduling__Split *c,
                      struct mr_err *err)
{
    const struct mr_rollout_time now = {mr_now_ns(), mr_wall_ns()};
    struct mr_split *split = NULL;
    int rc;

    MR_TRY(mr_split_new(&split, c, now, err));
    for (uint32_t i = 0; i < c->n_variant; i++) {
        MR_TRY(model_take(p, node, i, c->variant[i]->model, err));
    }
    p->nodes[node].split = split;
    p->has_splits = true;
    bucket_find(p, node);
    return MR_OK;
out:
    mr_split_free(&split);
    return rc;
}

int plan_split_open(struct plan *p, uint32_t node, const Millrace__WorkflowScheduling__Split *c,
                    struct mr_err *err)
{
    const int rc = split_open(p, node, c, err);

    return rc < 0 ? MR_WRAP(err, rc, "workflow '%.*s': split of node '%.*s'", MR_STR_ARG(p->name),
                            MR_STR_ARG(mr_str_sub(p->nodes[node].name, 0, 128)))
                  : MR_OK;
}
