/* Switches in plans. Thread: loader. */
#include "switch_node.h"

#include "rows_node.h"

static bool is_by_row(const switch_config *s)
{
    return s->per == MILLRACE__WORKFLOW_SCHEDULING__SWITCH__PER__ROW;
}

static int branch_take(struct plan_build *b, const switch_config *s, const char *name,
                       uint32_t *list, uint32_t k)
{
    struct plan *p = b->p;
    const char *of = s->name;
    int rc = plan_build_node_of(b, of, "switch", name, &list[k]);

    if (rc < 0) {
        return rc;
    }
    struct plan_node *n = &p->nodes[list[k]];
    const struct plan_node *first = &p->nodes[list[0]];
    bool is_equal = n->output_count == first->output_count;
    for (uint32_t i = 0; is_equal && i < n->output_count; i++) {
        is_equal = plan_build_writes(first, n->outputs[i].tensor);
    }
    if (n->is_spare || !is_equal) {
        return PLAN_BAD(b, "workflow '%.*s': node '%.128s' of switch '%.128s' %s",
                        MR_STR_ARG(p->name), name, of,
                        n->is_spare ? "is another branch or a fallback"
                                    : "has to write the same tensors as the first one");
    }
    n->is_spare = true;
    return is_by_row(s) ? plan_rows_branch(b, s, list[k]) : MR_OK;
}

static int merges_check(struct plan_build *b, const switch_config *s, const struct plan_node *node)
{
    for (size_t i = 0; i < s->n_merge; i++) {
        const char *into = s->merge[i]->into;
        const uintptr_t known =
            (uintptr_t)mr_map_find(&b->p->names, mr_str_n(into, strnlen(into, PLAN_NAME_MAX)));
        if (!known || !plan_build_writes(node, (uint32_t)(known - 1))) {
            return PLAN_BAD(
                b,
                "workflow '%.*s': switch '%.128s' merges into '%.128s', which its nodes "
                "do not write",
                MR_STR_ARG(b->p->name), s->name, into);
        }
    }
    return MR_OK;
}

static int switch_check(struct plan_build *b, const switch_config *s)
{
    const struct plan *p = b->p;

    if (s->n_case_ == 0 || !s->name[0]) {
        return PLAN_BAD(b, "workflow '%.*s': switch '%.128s' must specify 'name' and 'case'",
                        MR_STR_ARG(p->name), s->name);
    }
    if (s->n_input > 0 && !is_by_row(s)) {
        return PLAN_BAD(b,
                        "workflow '%.*s': switch '%.128s' has 'input', which belongs to per: ROW",
                        MR_STR_ARG(p->name), s->name);
    }
    if (s->n_input == 0 && is_by_row(s)) {
        return PLAN_BAD(b,
                        "workflow '%.*s': switch '%.128s' is per: ROW and must specify 'input', "
                        "the tensors whose rows it divides",
                        MR_STR_ARG(p->name), s->name);
    }
    if (s->exhaustive && (s->else_ || is_by_row(s))) {
        return PLAN_BAD(b,
                        "workflow '%.*s': switch '%.128s' is 'exhaustive', which is for switches "
                        "per request without 'else'",
                        MR_STR_ARG(p->name), s->name);
    }
    return MR_OK;
}

static int switch_make(struct plan_build *b, const switch_config *s)
{
    struct plan *p = b->p;
    struct plan_node *node = &p->nodes[p->node_count];
    uint32_t *list = MR_ARENA_ARRAY(&p->arena, uint32_t, s->n_case_ + 1);
    uint32_t count = 0;
    int rc = list ? MR_OK : plan_no_memory(p, b->err);

    rc = rc < 0 ? rc : switch_check(b, s);
    rc = rc < 0 ? rc : plan_build_name_take(b, "switch", s->name);
    for (; count < s->n_case_ && rc == MR_OK; count++) {
        rc = branch_take(b, s, s->case_[count]->node, list, count);
    }
    if (rc == MR_OK && s->else_) {
        rc = branch_take(b, s, s->else_->node, list, count++);
    }
    if (rc < 0) {
        return rc;
    }
    *node = (struct plan_node){.name = mr_str_c(s->name),
                               .version = MR_STR(""),
                               .outputs = p->nodes[list[0]].outputs,
                               .output_count = p->nodes[list[0]].output_count,
                               .branches = list,
                               .branch_count = count,
                               .has_else = s->else_ != NULL,
                               .is_exhaustive = s->exhaustive,
                               .fallback = PLAN_NO_NODE,
                               .attempts = 1};
    p->node_count++;
    rc = is_by_row(s) ? plan_rows_switch(b, s, node) : MR_OK;
    return rc < 0 ? rc : merges_check(b, s, node);
}

int plan_switches_make(struct plan_build *b)
{
    int rc = MR_OK;

    for (size_t i = 0; i < b->w->n_switch_ && rc == MR_OK; i++) {
        rc = switch_make(b, b->w->switch_[i]);
    }
    return rc;
}

/* A branch's fallback. */
static const struct plan_node *spare_of(const struct plan *p, const struct plan_node *branch)
{
    static const struct plan_node none;

    return branch->fallback < p->node_count ? &p->nodes[branch->fallback] : &none;
}

static uint32_t writers_add(const struct plan *p, const struct plan_node *n, uint32_t *list,
                            uint32_t count)
{
    for (uint32_t i = 0; i < n->input_count; i++) {
        list[count++] = p->tensors[n->inputs[i].tensor].writer;
    }
    return count;
}

static int branches_wait(struct plan_build *b, struct plan_node *node)
{
    struct plan *p = b->p;
    size_t count = 0, operands;

    for (uint32_t k = 0; k < node->branch_count; k++) {
        const struct plan_node *n = &p->nodes[node->branches[k]];
        operands = 0;
        if (n->when) {
            mr_expr_operands(n->when, &operands);
        }
        count += n->input_count + operands + spare_of(p, n)->input_count;
    }
    uint32_t *list = MR_ARENA_ARRAY(&p->arena, uint32_t, count + 1);
    if (!list) {
        return plan_no_memory(p, b->err);
    }
    node->after = list;
    node->after_count = 0;
    for (uint32_t k = 0; k < node->branch_count; k++) {
        const struct plan_node *n = &p->nodes[node->branches[k]];
        operands = 0;
        const struct mr_expr_operand *o = n->when ? mr_expr_operands(n->when, &operands) : NULL;
        for (size_t i = 0; i < operands; i++) {
            list[node->after_count++] = plan_build_operand(p, &o[i]);
        }
        node->after_count = writers_add(p, n, list, node->after_count);
        node->after_count = writers_add(p, spare_of(p, n), list, node->after_count);
    }
    return MR_OK;
}

int plan_switches_link(struct plan_build *b)
{
    size_t s = 0;
    int rc = MR_OK;

    for (uint32_t n = 0; n < b->p->node_count && rc == MR_OK; n++) {
        struct plan_node *node = &b->p->nodes[n];
        if (node->branch_count) {
            const switch_config *c = b->w->switch_[s++];
            for (size_t i = 0; i < c->n_case_ && rc == MR_OK; i++) {
                rc = plan_build_condition(b, node->branches[i], c->case_[i]->when, node->is_by_row);
            }
            rc = rc < 0 ? rc : branches_wait(b, node);
        }
    }
    return rc;
}

int plan_switches_order(struct plan_build *b)
{
    int rc = MR_OK;

    for (uint32_t n = 0; n < b->p->node_count && rc == MR_OK; n++) {
        rc = b->p->nodes[n].branch_count ? branches_wait(b, &b->p->nodes[n]) : MR_OK;
    }
    return rc;
}
