/* Nodes whose calls are made twice: `hedge` and `shadow`. Thread: loader. */
#include "twice.h"

#include "variant/config.h"

/* ---- second calls ---- */

#define AFTER_MS_MAX  3600000u
#define EXTRA_PERCENT 3u
#define CASE_(name)   MILLRACE__WORKFLOW_SCHEDULING__HEDGE__AFTER_##name

static int hedge_bad(struct plan_build *b, const node_config *n, const char *what)
{
    return PLAN_BAD(b, "workflow '%.*s': hedge of node '%.128s' %s", MR_STR_ARG(b->p->name),
                    n->name, what);
}

int plan_hedge_read(struct plan_build *b, struct plan_node *node, const node_config *n)
{
    const Millrace__WorkflowScheduling__Hedge *h = n->hedge;

    if (h->after_case == CASE_(AFTER_MS)) {
        if (h->after_ms < 1 || h->after_ms > AFTER_MS_MAX) {
            return hedge_bad(b, n, "has an 'after_ms' that is not 1 to 3600000");
        }
        if (node->timeout_ms && h->after_ms >= node->timeout_ms) {
            return hedge_bad(b, n, "has an 'after_ms' that is not before the node's time-out");
        }
        node->hedge_ms = h->after_ms;
    } else if (h->after_case == CASE_(AFTER_QUANTILE)) {
        if (!(h->after_quantile > 0 && h->after_quantile < 1)) {
            return hedge_bad(b, n, "has an 'after_quantile' that is not between 0 and 1");
        }
        node->hedge_quantile = h->after_quantile;
        b->p->has_quantiles = true;
    } else {
        return hedge_bad(b, n, "must specify 'after_ms' or 'after_quantile'");
    }
    if (h->max_extra_percent > 100) {
        return hedge_bad(b, n, "has a 'max_extra_percent' that is not 0 to 100");
    }
    node->hedge_percent = h->max_extra_percent ? h->max_extra_percent : EXTRA_PERCENT;
    return MR_OK;
}

/* ---- shadows ---- */

#define QUEUE     64u
#define QUEUE_MAX 4096u

#define BAD(b, n, text, ...)                                                                       \
    PLAN_BAD(b, "workflow '%.*s': shadow of node '%.128s' " text, MR_STR_ARG((b)->p->name),        \
             (n)->name, __VA_ARGS__)

static int shadow_model_read(struct plan_build *b, const node_config *n,
                             struct mr_shadow_config *out)
{
    const Millrace__WorkflowModel *m = n->shadow->model;

    if (!m || !m->name[0]) {
        return BAD(b, n, "must specify '%s'", "model");
    }
    return plan_build_model(b, mr_str_c(n->name), m, &out->target.model, &out->target.version);
}

int plan_shadow_read(struct plan_build *b, struct plan_node *node, const node_config *n)
{
    const Millrace__WorkflowScheduling__Shadow *s = n->shadow;
    struct mr_shadow_config *out = MR_ARENA_NEW(&b->p->arena, struct mr_shadow_config);
    int rc;

    if (!out) {
        return plan_no_memory(b->p, b->err);
    }
    *out = (struct mr_shadow_config){.tag = mr_str_c(s->name),
                                     .percent = s->percent,
                                     .max_queue = s->max_queue ? s->max_queue : QUEUE};
    MR_TRY(shadow_model_read(b, n, out));
    rc = mr_compare_parse(mr_str_c(s->compare), &out->compare, &out->tolerance, b->err);
    if (rc < 0) {
        rc = MR_WRAP(b->err, rc, "workflow '%.*s': shadow of node '%.128s'", MR_STR_ARG(b->p->name),
                     n->name);
        goto out;
    }
    if (!(out->percent >= 0 && out->percent <= 100)) {
        rc = BAD(b, n, "has 'percent' %g, possible is 0 to 100", out->percent);
    } else if (out->max_queue > QUEUE_MAX) {
        rc = BAD(b, n, "has 'max_queue' %u, possible is 1 to %u", out->max_queue, QUEUE_MAX);
    }
    node->shadow = out;
    b->p->has_shadows = true;
out:
    return rc;
}
