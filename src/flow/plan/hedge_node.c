/* `hedge` of a node. Thread: loader. */
#include "hedge_node.h"

#define AFTER_MS_MAX  3600000u
#define EXTRA_PERCENT 3u
#define CASE_(name)   MILLRACE__WORKFLOW_SCHEDULING__HEDGE__AFTER_##name

static int bad(struct plan_build *b, const node_config *n, const char *what)
{
    return PLAN_BAD(b, "workflow '%.*s': hedge of node '%.128s' %s", MR_STR_ARG(b->p->name),
                    n->name, what);
}

int plan_hedge_read(struct plan_build *b, struct plan_node *node, const node_config *n)
{
    const Millrace__WorkflowScheduling__Hedge *h = n->hedge;

    if (h->after_case == CASE_(AFTER_MS)) {
        if (h->after_ms < 1 || h->after_ms > AFTER_MS_MAX) {
            return bad(b, n, "has an 'after_ms' that is not 1 to 3600000");
        }
        node->hedge_ms = h->after_ms;
    } else if (h->after_case == CASE_(AFTER_QUANTILE)) {
        if (!(h->after_quantile > 0 && h->after_quantile < 1)) {
            return bad(b, n, "has an 'after_quantile' that is not between 0 and 1");
        }
        node->hedge_quantile = h->after_quantile;
        b->p->has_quantiles = true;
    } else {
        return bad(b, n, "must specify 'after_ms' or 'after_quantile'");
    }
    if (h->max_extra_percent > 100) {
        return bad(b, n, "has a 'max_extra_percent' that is not 0 to 100");
    }
    if (n->foreach) {
        return plan_build_refuse(b, n->name, "hedge of a node with foreach");
    }
    node->hedge_percent = h->max_extra_percent ? h->max_extra_percent : EXTRA_PERCENT;
    return MR_OK;
}
