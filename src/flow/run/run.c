/* Nodes by counters: the end of one lowers those of the nodes that wait for it, and one that reaches 0 is ready. Whatever
 * is ready is started in a loop, not by recursion, however long the chain is. */
#include "run.h"

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

int run_begin(struct run *r, const struct plan *p, const uint8_t *wanted, run_start_fn *start,
              struct mr_arena *arena, struct mr_err *err)
{
    *r = (struct run){.plan = p, .start = start};
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

static void node_end(struct run *r, uint32_t n, int rc, const struct mr_err *err)
{
    if (rc < 0) {
        run_fail(r, rc, err);
        r->nodes[n].is_ended = true;
    } else if (r->status == MR_OK) {
        node_close(r, n);
    }
}

void run_ended(struct run *r, uint32_t node, int rc, const struct mr_err *err)
{
    r->pending--;
    node_end(r, node, rc, err);
}

void run_go(struct run *r)
{
    struct mr_err err;

    while (r->ready_count > 0) {
        const uint32_t n = r->ready[--r->ready_count];
        mr_err_clear(&err);
        r->nodes[n].is_started = true;
        const int rc = r->start(r, n, &err);
        if (rc == MR_PENDING) {
            r->pending++;
        } else {
            node_end(r, n, rc, &err);
        }
    }
}

void run_fini(struct run *r)
{
    for (uint32_t i = 0; r->values && i < r->plan->tensor_count; i++) {
        mr_block_unref(&r->values[i].block);
    }
}
