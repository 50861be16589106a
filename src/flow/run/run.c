/* Nodes by counters: the end of one lowers those of the nodes that wait for it, and one that reaches 0 is ready. Whatever
 * is ready is started in a loop, not by recursion, however long the chain is. */
#include "run.h"

#include <string.h>

#include "base/mem.h"

/* Marks the nodes on which the wanted outputs depend. `ready` serves as the stack. */
static void needed_mark(struct run *r, const uint8_t *wanted)
{
    const struct plan *p = r->plan;
    uint32_t len = 0;

    for (uint32_t i = 0; i < p->output_count; i++) {
        const uint32_t n = p->tensors[p->outputs[i]].writer;
        if ((!wanted || wanted[i]) && n < p->node_count && !r->nodes[n].is_needed) {
            r->nodes[n].is_needed = true;
            r->ready[len++] = n;
        }
    }
    while (len > 0) {
        const struct plan_node *node = &p->nodes[r->ready[--len]];
        for (uint32_t i = 0; i < node->before_count; i++) {
            const uint32_t n = node->before[i];
            if (!r->nodes[n].is_needed) {
                r->nodes[n].is_needed = true;
                r->ready[len++] = n;
            }
        }
    }
}

int run_begin(struct run *r, const struct plan *p, const uint8_t *wanted, const struct run_ops *ops,
              struct mr_arena *arena, struct mr_err *err)
{
    *r = (struct run){.plan = p, .ops = ops};
    r->values = MR_ARENA_ARRAY(arena, struct run_value, p->tensor_count + 1u);
    r->nodes = MR_ARENA_ARRAY(arena, struct run_node, p->node_count + 1u);
    r->ready = MR_ARENA_ARRAY(arena, uint32_t, p->node_count + 1u);
    if (!r->values || !r->nodes || !r->ready) {
        return MR_FAIL(err, MR_E_EXHAUSTED, "no memory for a request to '%.*s'",
                       MR_STR_ARG(p->name));
    }
    mr_err_clear(&r->err);
    needed_mark(r, wanted);
    for (uint32_t n = p->node_count; n-- > 0;) { /* the first one is on top */
        r->nodes[n].waits = p->nodes[n].before_count;
        if (r->nodes[n].is_needed && r->nodes[n].waits == 0) {
            r->ready[r->ready_count++] = n;
        }
    }
    return MR_OK;
}

void run_set(struct run *r, uint32_t tensor, const struct mr_tensor *t, struct mr_block *block)
{
    struct run_value *v = &r->values[tensor];

    if (!t) {
        v->state = RUN_NULL;
        return;
    }
    v->state = RUN_VALUE;
    r->made_bytes += block ? t->bytes : 0;
    v->tensor = *t;
    v->block = block ? mr_block_ref(block) : NULL;
}

void run_fail(struct run *r, int rc, const struct mr_err *err)
{
    if (r->status == MR_OK) {
        r->status = rc;
        r->err = *err;
    }
    r->ready_count = 0;
}

/* Outputs that the node did not set are null. */
static void node_close(struct run *r, uint32_t n)
{
    const struct plan_node *node = &r->plan->nodes[n];

    r->nodes[n].is_ended = true;
    for (uint32_t i = 0; i < node->output_count; i++) {
        struct run_value *v = &r->values[node->outputs[i].tensor];
        if (v->state == RUN_OPEN) {
            v->state = RUN_NULL;
        }
    }
    for (uint32_t i = 0; i < node->next_count; i++) {
        struct run_node *next = &r->nodes[node->next[i]];
        if (--next->waits == 0 && next->is_needed) {
            r->ready[r->ready_count++] = node->next[i];
        }
    }
}

void run_note(struct run *r, uint32_t n, enum run_outcome outcome)
{
    r->nodes[n].outcome = (uint8_t)outcome;
    r->odd_count++;
}

/* ---- what a failure means ---- */

static int defaults_set(struct run *r, const struct plan_value *list, uint32_t count,
                        struct mr_err *err)
{
    int rc = MR_OK;

    for (uint32_t i = 0; i < count && rc == MR_OK; i++) {
        if (r->values[list[i].tensor].state != RUN_VALUE) {
            rc = r->ops->value(r, &list[i], err);
        }
    }
    return rc;
}

static void node_end(struct run *r, uint32_t n, int rc, const struct mr_err *err);

/* Runs `spare` for node n. */
static void spare_start(struct run *r, uint32_t n, uint32_t spare)
{
    struct mr_err err;

    r->nodes[spare].for_node = n + 1;
    mr_err_clear(&err);
    const int rc = r->ops->start(r, spare, &err);
    if (rc == MR_PENDING) {
        r->pending++;
    } else {
        node_end(r, spare, rc, &err);
    }
}

static bool lacks_input(const struct run *r, const struct plan_node *node)
{
    for (uint32_t i = 0; i < node->input_count; i++) {
        if (!node->inputs[i].is_optional && r->values[node->inputs[i].tensor].state != RUN_VALUE) {
            return true;
        }
    }
    return false;
}

/* A fallback that lacks an input is skipped, as any node. */
static void fallback_start(struct run *r, uint32_t n, uint32_t spare)
{
    if (lacks_input(r, &r->plan->nodes[spare])) {
        r->nodes[spare].for_node = n + 1;
        run_note(r, spare, RUN_SKIPPED);
        node_close(r, n);
    } else {
        spare_start(r, n, spare);
    }
}

/* The request fails with node n, or with `by`, which ran for it. */
static void failure_end(struct run *r, uint32_t n, uint32_t by, int rc, const struct mr_err *err)
{
    r->nodes[n].is_ended = true;
    r->nodes[by].outcome = RUN_FAILED; /* for a trace */
    run_fail(r, rc, err);
}

/* A node has failed, and the request goes on if its policy says so: that of `by`, the branch or fallback that ran for it. */
static void failure_take(struct run *r, uint32_t n, uint32_t by, int rc, const struct mr_err *err)
{
    const struct plan_node *node = &r->plan->nodes[by];
    struct mr_err local = *err;

    if (r->status < 0) {
        r->nodes[n].is_ended = true;
        return;
    }
    const enum plan_error policy = run_has_no_policy(r) ? PLAN_FAIL : node->on_error;
    if (policy == PLAN_SKIP) {
        run_note(r, by, RUN_FAILED);
        node_close(r, n);
    } else if (policy == PLAN_FALLBACK) {
        run_note(r, by, RUN_FELL_BACK);
        fallback_start(r, n, node->fallback);
    } else if (policy == PLAN_DEFAULT &&
               (rc = defaults_set(r, node->defaults, node->default_count, &local)) == MR_OK) {
        run_note(r, by, RUN_DEFAULTED);
        node_close(r, n);
    } else {
        failure_end(r, n, by, rc, &local);
    }
}

static void node_end(struct run *r, uint32_t n, int rc, const struct mr_err *err)
{
    const uint32_t by = n;

    if (r->nodes[n].for_node) {
        n = r->nodes[n].for_node - 1;
    }
    if (rc < 0) {
        failure_take(r, n, by, rc, err);
    } else if (r->status == MR_OK) {
        node_close(r, n);
    }
}

/* ---- nodes of workflows that do not run ---- */

/* 1: it runs, 0: it is skipped. */
static int is_to_run(struct run *r, uint32_t n, struct mr_err *err)
{
    const struct plan_node *node = &r->plan->nodes[n];

    if (!r->plan->is_workflow) {
        return 1; /* what a missing input means, the model says */
    }
    if (lacks_input(r, node)) {
        return 0;
    }
    return node->when ? r->ops->when(r, n, err) : 1;
}

void run_ended(struct run *r, uint32_t node, int rc, const struct mr_err *err)
{
    r->pending--;
    node_end(r, node, rc, err);
}

/* The first branch whose condition holds runs for the switch; without one its outputs are null. */
static void switch_start(struct run *r, uint32_t n)
{
    const struct plan_node *node = &r->plan->nodes[n];
    uint32_t k = 0;
    int rc = 0;
    struct mr_err err;

    mr_err_clear(&err);
    for (; k < node->branch_count; k++) {
        const bool is_else = node->has_else && k + 1 == node->branch_count;
        rc = is_else ? 1 : r->ops->when(r, node->branches[k], &err);
        if (rc != 0) {
            break;
        }
    }
    if (rc == 0 && node->is_exhaustive) {
        rc = MR_FAIL(&err, MR_E_INVALID, "node '%.*s': no case holds for this request",
                     MR_STR_ARG(mr_str_sub(node->name, 0, 80)));
    }
    if (rc < 0) {
        node_end(r, n, rc, &err);
    } else if (rc == 0 || lacks_input(r, &r->plan->nodes[node->branches[k]])) {
        run_note(r, n, RUN_SKIPPED);
        node_close(r, n);
    } else {
        spare_start(r, n, node->branches[k]);
    }
}

static void node_start(struct run *r, uint32_t n)
{
    struct mr_err err;

    if (r->plan->nodes[n].branch_count && !r->plan->nodes[n].is_by_row) {
        switch_start(r, n);
        return;
    }
    mr_err_clear(&err);
    int rc = is_to_run(r, n, &err);
    if (rc < 0) { /* not the node is at fault, but its condition or the client */
        failure_end(r, n, n, rc, &err);
        return;
    }
    if (rc == 0) {
        run_note(r, n, RUN_SKIPPED);
        node_close(r, n);
        return;
    }
    rc = r->ops->start(r, n, &err);
    if (rc == MR_PENDING) {
        r->pending++;
    } else {
        node_end(r, n, rc, &err);
    }
}

/* A spare's end is that of the node for which it runs. */
static uint32_t place_of(const struct run *r, uint32_t node)
{
    return r->nodes[node].for_node ? r->nodes[node].for_node - 1 : node;
}

void run_answered(struct run *r, uint32_t node)
{
    node_close(r, place_of(r, node));
}

void run_over(struct run *r, uint32_t node, int rc, const struct mr_err *err)
{
    r->pending--;
    r->nodes[place_of(r, node)].is_ended = true;
    if (rc < 0) {
        run_fail(r, rc, err);
    }
}

static void mark(const struct plan *p, uint32_t node, uint8_t *marks)
{
    if (node < p->node_count) {
        marks[node] = 1;
    }
}

/* Fallbacks and branches of what is marked. */
static void spares_mark(const struct plan *p, uint8_t *marks)
{
    for (uint32_t n = 0; n < p->node_count; n++) {
        for (uint32_t k = 0; marks[n] && k < p->nodes[n].branch_count; k++) {
            marks[p->nodes[n].branches[k]] = 1;
        }
    }
    for (uint32_t n = 0; n < p->node_count; n++) {
        if (marks[n]) {
            mark(p, p->nodes[n].fallback, marks);
        }
    }
}

/* The stack is `ready`, which is empty. */
void run_marks(const struct run *r, uint32_t node, uint8_t *marks)
{
    uint32_t len = 0;

    memset(marks, 0, r->plan->node_count);
    r->ready[len++] = place_of(r, node);
    while (len > 0) {
        const struct plan_node *n = &r->plan->nodes[r->ready[--len]];
        for (uint32_t i = 0; i < n->next_count; i++) {
            if (!marks[n->next[i]]) {
                marks[n->next[i]] = 1;
                r->ready[len++] = n->next[i];
            }
        }
    }
    if (r->plan->is_workflow) {
        spares_mark(r->plan, marks);
    }
}

static void outputs_open(struct run *r, uint32_t node)
{
    const struct plan_node *n = &r->plan->nodes[node];

    for (uint32_t i = 0; i < n->output_count; i++) {
        struct run_value *v = &r->values[n->outputs[i].tensor];
        r->made_bytes -= v->block ? v->tensor.bytes : 0;
        mr_block_unref(&v->block);
        v->state = RUN_OPEN;
    }
}

void run_rewind(struct run *r, uint32_t node, const uint8_t *marks)
{
    const uint32_t place = place_of(r, node);

    outputs_open(r, place);
    r->odd_count = 0;
    for (uint32_t n = 0; n < r->plan->node_count; n++) {
        const struct plan_node *it = &r->plan->nodes[n];
        if (!marks[n]) {
            r->odd_count += r->nodes[n].outcome != RUN_RAN;
            continue;
        }
        outputs_open(r, n);
        r->nodes[n] = (struct run_node){.is_needed = r->nodes[n].is_needed};
        for (uint32_t i = 0; i < it->before_count; i++) {
            r->nodes[n].waits += marks[it->before[i]] || it->before[i] == place;
        }
    }
}

void run_go(struct run *r)
{
    while (r->ready_count > 0) {
        node_start(r, r->ready[--r->ready_count]);
    }
}

int run_defaults(struct run *r, struct mr_err *err)
{
    const struct plan *p = r->plan;
    int rc = MR_OK;

    for (uint32_t i = 0; i < p->default_count && rc == MR_OK; i++) {
        struct run_value *v = &r->values[p->defaults[i].tensor];
        if (v->state == RUN_NULL) {
            rc = r->ops->value(r, &p->defaults[i], err);
            v->state = rc < 0 ? RUN_NULL : RUN_FILLED;
        }
    }
    return rc;
}

void run_fini(struct run *r)
{
    for (uint32_t i = 0; r->values && i < r->plan->tensor_count; i++) {
        mr_block_unref(&r->values[i].block);
    }
}
