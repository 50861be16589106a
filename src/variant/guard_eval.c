/* Judges a guard. The tree's depth is bounded by the parser. */
#include <math.h>
#include <stdio.h>

#include "base/mem.h"
#include "codec/json.h"
#include "guard_ops.h"
#include "variant/guard.h"

struct judged {
    const struct mr_guard *g;
    const struct mr_variant_sums *sums;
    char *reason; /* of the first comparison that failed */
};

static double metric(const struct mr_guard_node *n, const struct mr_variant_sums *s)
{
    switch (n->op) {
    case GUARD_ERR: return (double)s->errors / (double)s->count; /* NaN without requests */
    case GUARD_SERVER_ERR: return (double)s->server_errors / (double)s->count;
    case GUARD_COUNT: return (double)s->count;
    case GUARD_MEAN_MS: return mr_variant_sums_mean_ms(s);
    default: return mr_variant_sums_quantile_ms(s, n->number);
    }
}

static double number(const struct judged *j, unsigned node)
{
    const struct mr_guard_node *n = &j->g->nodes[node];

    switch (n->op) {
    case GUARD_NUMBER: return n->number;
    case GUARD_NEG: return -number(j, n->left);
    case GUARD_ADD: return number(j, n->left) + number(j, n->right);
    case GUARD_SUB: return number(j, n->left) - number(j, n->right);
    case GUARD_MUL: return number(j, n->left) * number(j, n->right);
    case GUARD_DIV: return number(j, n->left) / number(j, n->right);
    default: return metric(n, &j->sums[n->variant]);
    }
}

static bool compare(unsigned op, double a, double b)
{
    switch (op) {
    case GUARD_LT: return a < b;
    case GUARD_LE: return a <= b;
    case GUARD_GT: return a > b;
    case GUARD_GE: return a >= b;
    case GUARD_EQ: return a >= b && a <= b;
    default: return a < b || a > b;
    }
}

static enum mr_guard_verdict comparison(const struct judged *j, const struct mr_guard_node *n)
{
    const double a = number(j, n->left), b = number(j, n->right);

    if (isnan(a) || isnan(b)) {
        return MR_GUARD_UNKNOWN;
    }
    if (compare(n->op, a, b)) {
        return MR_GUARD_HOLDS;
    }
    if (!j->reason[0]) {
        char left[32], right[32];
        snprintf(j->reason, MR_GUARD_REASON, "%.*s does not hold: left %.*s, right %.*s",
                 (int)MR_MIN(n->to - n->from, 120), j->g->text + n->from,
                 (int)mr_double_text(a, left), left, (int)mr_double_text(b, right), right);
    }
    return MR_GUARD_BROKEN;
}

static enum mr_guard_verdict judge(const struct judged *j, unsigned node);

static enum mr_guard_verdict operation(const struct judged *j, const struct mr_guard_node *n)
{
    enum mr_guard_verdict a, b;

    a = judge(j, n->left);
    if (n->op == GUARD_NOT) {
        return a == MR_GUARD_UNKNOWN ? a : a == MR_GUARD_HOLDS ? MR_GUARD_BROKEN : MR_GUARD_HOLDS;
    }
    b = judge(j, n->right);
    const enum mr_guard_verdict decides = n->op == GUARD_AND ? MR_GUARD_BROKEN : MR_GUARD_HOLDS;
    if (a == decides || b == decides) {
        return decides;
    }
    return a == MR_GUARD_UNKNOWN || b == MR_GUARD_UNKNOWN ? MR_GUARD_UNKNOWN : a;
}

/* A comparison that fails within what holds is no reason. */
static enum mr_guard_verdict judge(const struct judged *j, unsigned node)
{
    const struct mr_guard_node *n = &j->g->nodes[node];
    const bool had_reason = j->reason[0];
    const enum mr_guard_verdict v = n->op < GUARD_NOT ? comparison(j, n) : operation(j, n);

    if (v == MR_GUARD_HOLDS && !had_reason) {
        j->reason[0] = '\0';
    }
    return v;
}

enum mr_guard_verdict mr_guard_eval(const struct mr_guard *g, const struct mr_variant_sums *sums,
                                    char reason[MR_GUARD_REASON])
{
    const struct judged j = {g, sums, reason};

    reason[0] = '\0';
    const enum mr_guard_verdict v = judge(&j, g->root);
    if (v != MR_GUARD_HOLDS && !reason[0]) {
        snprintf(reason, MR_GUARD_REASON, "%.150s %s", g->text,
                 v == MR_GUARD_UNKNOWN ? "has a number that is not defined" : "does not hold");
    }
    return v;
}
