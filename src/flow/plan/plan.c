/* Building of plans. Thread: loader. */
#include "plan.h"

#include "op/op.h"
#include "variant/split.h"

#define ARENA_FIRST 4096
#define ARENA_LIMIT ((size_t)64 << 20)

int plan_no_memory(const struct plan *p, struct mr_err *err)
{
    return MR_FAIL(err, MR_E_NOMEM, "no memory for the graph of model '%.*s'", MR_STR_ARG(p->name));
}

/* Room for one more tensor. */
static bool tensors_grow(struct plan *p)
{
    const uint32_t room = p->tensor_room ? 2 * p->tensor_room : 16;

    if (p->tensor_count < p->tensor_room) {
        return true;
    }
    struct plan_tensor *more = MR_ARENA_ARRAY(&p->arena, struct plan_tensor, room);
    if (more && p->tensor_count > 0) {
        memcpy(more, p->tensors, p->tensor_count * sizeof *more);
    }
    p->tensors = more ? more : p->tensors;
    p->tensor_room = more ? room : p->tensor_room;
    return more != NULL;
}

int plan_tensor_of(struct plan *p, const char *name, uint32_t *out, struct mr_err *err)
{
    const size_t len = strnlen(name, PLAN_NAME_MAX + 1);
    const uintptr_t known = (uintptr_t)mr_map_find(&p->names, mr_str_n(name, len));

    if (known) {
        *out = (uint32_t)(known - 1);
        return MR_OK;
    }
    if (len == 0 || len > PLAN_NAME_MAX) {
        return MR_FAIL(err, MR_E_INVALID,
                       "model '%.*s': a tensor's name has 1 to %u bytes, '%.40s' has not",
                       MR_STR_ARG(p->name), PLAN_NAME_MAX, name);
    }
    if (p->tensor_count == PLAN_TENSORS_MAX) {
        return MR_FAIL(err, MR_E_INVALID, "model '%.*s' has more than %u tensors",
                       MR_STR_ARG(p->name), PLAN_TENSORS_MAX);
    }
    if (!tensors_grow(p)) {
        return plan_no_memory(p, err);
    }
    struct plan_tensor *t = &p->tensors[p->tensor_count];

    *t = (struct plan_tensor){.name = mr_arena_str(&p->arena, mr_str_n(name, len)),
                              .writer = PLAN_NO_NODE};
    if (!t->name.ptr) {
        return plan_no_memory(p, err);
    }
    mr_map_put(&p->names, t->name, (void *)(uintptr_t)(p->tensor_count + 1));
    *out = p->tensor_count++;
    return MR_OK;
}

bool plan_is_output(const struct plan *p, uint32_t tensor)
{
    for (uint32_t i = 0; i < p->output_count; i++) {
        if (p->outputs[i] == tensor) {
            return true;
        }
    }
    return false;
}

int plan_new(struct plan **out, const Inference__ModelConfig *c, struct mr_err *err)
{
    struct plan *p = MR_NEW(struct plan);
    int rc = MR_OK;

    mr_arena_init(&p->arena, ARENA_FIRST, ARENA_LIMIT);
    p->name = mr_arena_str(&p->arena, mr_str_c(c->name));
    p->max_batch_size = c->max_batch_size;
    p->input_count = (uint32_t)c->n_input;
    p->output_count = (uint32_t)c->n_output;
    p->inputs = MR_ARENA_ARRAY(&p->arena, uint32_t, c->n_input + 1);
    p->outputs = MR_ARENA_ARRAY(&p->arena, uint32_t, c->n_output + 1);
    p->input_is_optional = MR_ARENA_ARRAY(&p->arena, bool, c->n_input + 1);
    if (!p->name.ptr || !p->inputs || !p->outputs || !p->input_is_optional) {
        rc = plan_no_memory(p, err);
    }
    for (uint32_t i = 0; i < p->input_count && rc == MR_OK; i++) {
        rc = plan_tensor_of(p, c->input[i]->name, &p->inputs[i], err);
        if (rc == MR_OK) {
            p->tensors[p->inputs[i]].writer = PLAN_CLIENT;
            p->input_is_optional[i] = c->input[i]->optional;
        }
    }
    for (uint32_t i = 0; i < p->output_count && rc == MR_OK; i++) {
        rc = plan_tensor_of(p, c->output[i]->name, &p->outputs[i], err);
    }
    if (rc < 0) {
        plan_free(&p);
        return rc;
    }
    *out = p;
    return MR_OK;
}

void plan_free(struct plan **p)
{
    if (*p) {
        for (uint32_t n = 0; (*p)->nodes && n < (*p)->node_count; n++) {
            mr_op_free(&(*p)->nodes[n].op);
            mr_split_free(&(*p)->nodes[n].split);
            mr_expr_free(&(*p)->nodes[n].when);
        }
        mr_map_fini(&(*p)->names);
        mr_arena_fini(&(*p)->arena);
        mr_freep(p);
    }
}

/* ---- who waits for whom ---- */

static void before_add(struct plan *p, uint32_t n, uint32_t writer, uint32_t *seen, uint32_t *list)
{
    if (writer < p->node_count && seen[writer] != n + 1) {
        seen[writer] = n + 1;
        list[p->nodes[n].before_count++] = writer;
        p->nodes[writer].next_count++;
    }
}

/* The node's writers, each once; `seen` has the last node that counted a writer. */
static int before_find(struct plan *p, uint32_t n, uint32_t *seen, struct mr_err *err)
{
    struct plan_node *node = &p->nodes[n];
    uint32_t *list =
        MR_ARENA_ARRAY(&p->arena, uint32_t, (size_t)node->input_count + node->after_count + 1);

    if (!list) {
        return plan_no_memory(p, err);
    }
    node->before = list;
    for (uint32_t i = 0; i < node->input_count; i++) {
        before_add(p, n, p->tensors[node->inputs[i].tensor].writer, seen, list);
    }
    for (uint32_t i = 0; i < node->after_count; i++) {
        before_add(p, n, node->after[i], seen, list);
    }
    return MR_OK;
}

static int next_fill(struct plan *p, struct mr_err *err)
{
    for (uint32_t n = 0; n < p->node_count; n++) {
        struct plan_node *node = &p->nodes[n];
        node->next = MR_ARENA_ARRAY(&p->arena, uint32_t, node->next_count + 1u);
        if (!node->next) {
            return plan_no_memory(p, err);
        }
        node->next_count = 0;
    }
    for (uint32_t n = 0; n < p->node_count; n++) {
        for (uint32_t i = 0; i < p->nodes[n].before_count; i++) {
            struct plan_node *from = &p->nodes[p->nodes[n].before[i]];
            ((uint32_t *)(uintptr_t)from->next)[from->next_count++] = n;
        }
    }
    return MR_OK;
}

/* A tensor without a writer is never there. */
static bool has_writers(const struct plan *p, const struct plan_node *node)
{
    for (uint32_t i = 0; i < node->input_count; i++) {
        if (p->tensors[node->inputs[i].tensor].writer == PLAN_NO_NODE) {
            return false;
        }
    }
    return true;
}

static void reachable_mark(struct plan *p, uint32_t *waits, uint32_t *stack)
{
    uint32_t len = 0;

    for (uint32_t n = 0; n < p->node_count; n++) {
        waits[n] = p->nodes[n].before_count + !has_writers(p, &p->nodes[n]);
        if (waits[n] == 0) {
            stack[len++] = n;
        }
    }
    while (len > 0) {
        struct plan_node *node = &p->nodes[stack[--len]];
        node->is_reachable = true;
        for (uint32_t i = 0; i < node->next_count; i++) {
            if (--waits[node->next[i]] == 0) {
                stack[len++] = node->next[i];
            }
        }
    }
}

uint32_t plan_order(const struct plan *p, uint32_t *order, uint32_t *waits)
{
    uint32_t len = 0;

    for (uint32_t n = 0; n < p->node_count; n++) {
        waits[n] = p->nodes[n].before_count;
        if (waits[n] == 0 && !p->nodes[n].is_spare) {
            order[len++] = n;
        }
    }
    for (uint32_t k = 0; k < len; k++) {
        const struct plan_node *node = &p->nodes[order[k]];
        for (uint32_t i = 0; i < node->next_count; i++) {
            if (--waits[node->next[i]] == 0 && !p->nodes[node->next[i]].is_spare) {
                order[len++] = node->next[i];
            }
        }
    }
    return len;
}

int plan_link(struct plan *p, struct mr_err *err)
{
    uint32_t *room = MR_NEW_ARRAY(uint32_t, 2 * (size_t)p->node_count + 1);
    int rc = MR_OK;

    for (uint32_t n = 0; n < p->node_count; n++) {
        p->nodes[n].before_count = p->nodes[n].next_count = 0;
        p->nodes[n].is_reachable = false;
    }
    for (uint32_t n = 0; n < p->node_count && rc == MR_OK; n++) {
        rc = before_find(p, n, room, err);
    }
    rc = rc < 0 ? rc : next_fill(p, err);
    if (rc == MR_OK) {
        reachable_mark(p, room, room + p->node_count);
    }
    mr_free(room);
    return rc;
}
