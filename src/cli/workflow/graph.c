#include "graph.h"

#include <ctype.h>

#include "base/map.h"
#include "base/vec.h"

#define NODES_MAX 10000u

struct making {
    const Inference__ModelConfig *config;
    const Millrace__WorkflowScheduling *flow; /* NULL: an ensemble */
    struct mr_arena *arena;
    struct graph *g;
    MR_VEC(struct graph_edge) edges;
    struct mr_map tensors; /* name -> its writer + 1 */
    struct mr_map names;   /* of nodes, likewise */
};

static int no_memory(struct mr_err *err)
{
    return MR_FAIL(err, MR_E_EXHAUSTED, "no memory");
}

static void *as_value(uint32_t node)
{
    return (void *)((uintptr_t)node + 1);
}

/* The writer of a tensor, or a node by its name; -1: there is none. */
static int64_t find(const struct mr_map *m, const char *name)
{
    const void *value = mr_map_find(m, mr_str_c(name));

    return value ? (int64_t)(uintptr_t)value - 1 : -1;
}

static void link_nodes(struct making *k, int64_t from, uint32_t to, const char *tensor)
{
    if (from >= 0 && (uint32_t)from != to) {
        const struct graph_edge e = {.from = (uint32_t)from, .to = to, .tensor = tensor};
        MR_VEC_PUSH(&k->edges, e);
    }
}

static int writes(struct making *k, const char *tensor, uint32_t node, bool is_shared,
                  struct mr_err *err)
{
    const int64_t other = find(&k->tensors, tensor);

    if (other >= 0 && !is_shared) {
        return MR_FAIL(err, MR_E_INVALID,
                       "node '%.64s': tensor '%.64s' is written by '%.64s' as well",
                       k->g->nodes[node].name, tensor, k->g->nodes[other].name);
    }
    mr_map_put(&k->tensors, mr_str_c(tensor), as_value(node));
    return MR_OK;
}

/* ---- nodes ---- */

static const char *model_label(struct making *k, const Millrace__WorkflowModel *m)
{
    const mr_str s = m->remote[0] ? mr_arena_printf(k->arena, "model %s at %s", m->name, m->remote)
                     : m->version > 0 ? mr_arena_printf(k->arena, "model %s:%lld", m->name,
                                                        (long long)m->version)
                                      : mr_arena_printf(k->arena, "model %s", m->name);

    return s.ptr ? s.ptr : "model";
}

static const char *split_label(struct making *k, const Millrace__WorkflowScheduling__Split *s)
{
    mr_str text = MR_STR("split");

    for (size_t i = 0; i < s->n_variant && text.ptr; i++) {
        text = mr_arena_printf(k->arena, "%s%s %s %.15g", text.ptr, i > 0 ? "," : "",
                               s->variant[i]->name, s->variant[i]->weight);
    }
    return text.ptr ? text.ptr : "split";
}

static const char *node_label(struct making *k, const Millrace__WorkflowScheduling__Node *n)
{
    switch (n->kind_case) {
    case MILLRACE__WORKFLOW_SCHEDULING__NODE__KIND_MODEL: return model_label(k, n->model);
    case MILLRACE__WORKFLOW_SCHEDULING__NODE__KIND_OP: {
        const mr_str s = mr_arena_printf(k->arena, "op %s", n->op);
        return s.ptr ? s.ptr : "op";
    }
    case MILLRACE__WORKFLOW_SCHEDULING__NODE__KIND_SPLIT: return split_label(k, n->split);
    default: return "?";
    }
}

static void add_rule(struct making *k, mr_str *rules, const char *what, const char *value)
{
    if (rules->ptr) {
        *rules = mr_arena_printf(k->arena, "%s%s%s%s%s", rules->ptr, rules->len > 0 ? ", " : "",
                                 what, *value ? " " : "", value);
    }
}

static const char *node_rules(struct making *k, const Millrace__WorkflowScheduling__Node *n)
{
    mr_str rules = MR_STR("");

    if (n->when[0]) {
        add_rule(k, &rules, "when", n->when);
    }
    if (n->foreach) {
        for (size_t i = 0; i < n->foreach->n_over; i++) {
            add_rule(k, &rules, i == 0 ? "for each row of" : "and", n->foreach->over[i]);
        }
    }
    if (n->retry) {
        add_rule(k, &rules, "retried", "");
    }
    if (n->hedge) {
        add_rule(k, &rules, "hedged", "");
    }
    if (n->fallback) {
        add_rule(k, &rules, "with a fallback", "");
    }
    if (n->shadow) {
        add_rule(k, &rules, "shadow", n->shadow->model ? n->shadow->model->name : "");
    }
    return rules.ptr ? rules.ptr : "";
}

static int add_node(struct making *k, uint32_t index, const char *name, const char *what,
                    const char *rules, struct mr_err *err)
{
    if (find(&k->names, name) >= 0) {
        return MR_FAIL(err, MR_E_INVALID, "two nodes are named '%.64s'", name);
    }
    mr_map_put(&k->names, mr_str_c(name), as_value(index));
    k->g->nodes[index] = (struct graph_node){.name = name, .what = what, .rules = rules};
    return MR_OK;
}

static int add_steps(struct making *k, struct mr_err *err)
{
    const Inference__ModelEnsembling *e = k->config->ensemble_scheduling;
    int rc = MR_OK;

    for (size_t i = 0; i < e->n_step && rc == MR_OK; i++) {
        const Inference__ModelEnsembling__Step *s = e->step[i];
        const mr_str name = mr_arena_printf(k->arena, "%zu", i + 1);
        const mr_str what = mr_arena_printf(k->arena, "model %s", s->model_name);
        rc = name.ptr && what.ptr ? add_node(k, (uint32_t)i + 1, name.ptr, what.ptr, "", err)
                                  : no_memory(err);
        for (size_t o = 0; o < s->n_output_map && rc == MR_OK; o++) {
            rc = writes(k, s->output_map[o]->value, (uint32_t)i + 1, false, err);
        }
    }
    for (size_t i = 0; i < e->n_step && rc == MR_OK; i++) {
        for (size_t n = 0; n < e->step[i]->n_input_map; n++) {
            const char *tensor = e->step[i]->input_map[n]->value;
            link_nodes(k, find(&k->tensors, tensor), (uint32_t)i + 1, tensor);
        }
    }
    return rc;
}

/* After the string that begins here, if one does. */
static const char *skip_string(const char *p)
{
    const char quote = *p;

    if (quote != '"' && quote != '\'') {
        return p;
    }
    for (p++; *p && *p != quote; p++) {
        p += *p == '\\' && p[1];
    }
    return *p ? p + 1 : p;
}

/* The name that begins here; empty: none does. */
static mr_str name_at(const char *p)
{
    size_t n = 0;

    while (isalnum((unsigned char)p[n]) || p[n] == '_' || p[n] == '.') {
        n++;
    }
    return mr_str_n(p, n);
}

/* The nodes that the names in an expression refer to: tensors, and in status() and variant() the nodes themselves. */
static void link_expression(struct making *k, const char *text, uint32_t node)
{
    bool is_of_node = false;

    for (const char *p = text; *p;) {
        const char *rest = skip_string(p);
        const mr_str name = name_at(rest);
        rest += name.len;
        p = rest > p ? rest : p + 1;
        if (name.len == 0) {
            continue;
        }
        if (rest[strspn(rest, " \t\r\n")] == '(') {
            is_of_node = mr_str_eq_c(name, "status") || mr_str_eq_c(name, "variant");
            continue;
        }
        const mr_str word = mr_arena_str(k->arena, name);
        if (word.ptr) {
            link_nodes(k, find(is_of_node ? &k->names : &k->tensors, word.ptr), node, word.ptr);
        }
        is_of_node = false;
    }
}

static bool is_switched(const Millrace__WorkflowScheduling *f, const char *node)
{
    for (size_t i = 0; i < f->n_switch_; i++) {
        const Millrace__WorkflowScheduling__Switch *s = f->switch_[i];
        for (size_t c = 0; c < s->n_case_; c++) {
            if (strcmp(s->case_[c]->node, node) == 0) {
                return true;
            }
        }
        if (s->else_ && strcmp(s->else_->node, node) == 0) {
            return true;
        }
    }
    return false;
}

/* The node of this workflow that runs when `n` fails; "": there is none. */
static const char *fallback_of(const Millrace__WorkflowScheduling__Node *n)
{
    return n->fallback &&
                   n->fallback->target_case == MILLRACE__WORKFLOW_SCHEDULING__FALLBACK__TARGET_NODE
               ? n->fallback->node
               : "";
}

static bool is_fallback(const Millrace__WorkflowScheduling *f, const char *node)
{
    bool is = false;

    for (size_t i = 0; i < f->n_node && !is; i++) {
        is = strcmp(fallback_of(f->node[i]), node) == 0;
    }
    return is;
}

static int add_flow_nodes(struct making *k, struct mr_err *err)
{
    const Millrace__WorkflowScheduling *f = k->flow;
    uint32_t index = 1;
    int rc = MR_OK;

    for (size_t i = 0; i < f->n_node && rc == MR_OK; i++, index++) {
        const Millrace__WorkflowScheduling__Node *n = f->node[i];
        rc = add_node(k, index, n->name, node_label(k, n), node_rules(k, n), err);
        /* What a fallback writes, it writes for the node that it stands in for. */
        const bool is_writer = rc == MR_OK && !is_fallback(f, n->name);
        for (size_t o = 0; is_writer && o < n->n_output_map && rc == MR_OK; o++) {
            rc = writes(k, n->output_map[o]->value, index, is_switched(f, n->name), err);
        }
    }
    for (size_t i = 0; i < f->n_switch_ && rc == MR_OK; i++, index++) {
        const bool by_row = f->switch_[i]->per == MILLRACE__WORKFLOW_SCHEDULING__SWITCH__PER__ROW;
        k->g->nodes[index] = (struct graph_node){.name = f->switch_[i]->name,
                                                 .what = by_row ? "switch for each row" : "switch",
                                                 .rules = ""};
    }
    for (size_t i = 0; i < f->n_gather && rc == MR_OK; i++, index++) {
        const Millrace__WorkflowScheduling__Gather *n = f->gather[i];
        k->g->nodes[index] = (struct graph_node){
            .name = n->name[0] ? n->name : n->into, .what = "gather", .rules = ""};
        rc = writes(k, n->into, index, false, err);
    }
    return rc;
}

static void link_flow_node(struct making *k, const Millrace__WorkflowScheduling__Node *n,
                           uint32_t index)
{
    for (size_t i = 0; i < n->n_input_map; i++) {
        const char *tensor = n->input_map[i]->value;
        link_nodes(k, find(&k->tensors, tensor), index, tensor);
    }
    for (size_t i = 0; i < n->n_after; i++) {
        link_nodes(k, find(&k->names, n->after[i]), index, NULL);
    }
    if (find(&k->names, fallback_of(n)) >= 0) {
        link_nodes(k, index, (uint32_t)find(&k->names, fallback_of(n)), "on error");
    }
    link_expression(k, n->when, index);
}

static void link_switch(struct making *k, const Millrace__WorkflowScheduling__Switch *s,
                        uint32_t index)
{
    for (size_t i = 0; i < s->n_input; i++) {
        link_nodes(k, find(&k->tensors, s->input[i]), index, s->input[i]);
    }
    for (size_t c = 0; c < s->n_case_; c++) {
        const int64_t to = find(&k->names, s->case_[c]->node);
        link_expression(k, s->case_[c]->when, index);
        if (to >= 0) {
            link_nodes(k, index, (uint32_t)to, s->case_[c]->when);
        }
    }
    if (s->else_ && find(&k->names, s->else_->node) >= 0) {
        link_nodes(k, index, (uint32_t)find(&k->names, s->else_->node), "else");
    }
}

static void link_flow(struct making *k)
{
    const Millrace__WorkflowScheduling *f = k->flow;
    uint32_t index = 1;

    for (size_t i = 0; i < f->n_node; i++) {
        link_flow_node(k, f->node[i], index++);
    }
    for (size_t i = 0; i < f->n_switch_; i++) {
        link_switch(k, f->switch_[i], index++);
    }
    for (size_t i = 0; i < f->n_gather; i++) {
        link_nodes(k, find(&k->tensors, f->gather[i]->from), index++, f->gather[i]->from);
    }
}

/* ---- levels ---- */

/* The level of a node is one more than that of the last node before it. */
static int find_levels(struct making *k, struct mr_err *err)
{
    struct graph *g = k->g;
    bool changes = true;

    for (size_t round = 0; changes; round++) {
        changes = false;
        if (round > g->node_count) {
            return MR_FAIL(err, MR_E_INVALID, "'%.64s': the nodes depend on each other in a circle",
                           g->name);
        }
        for (size_t i = 0; i < g->edge_count; i++) {
            const struct graph_edge *e = &g->edges[i];
            if (g->nodes[e->to].level <= g->nodes[e->from].level) {
                g->nodes[e->to].level = g->nodes[e->from].level + 1;
                changes = true;
            }
        }
    }
    for (size_t i = 0; i + 1 < g->node_count; i++) {
        g->level_count = MR_MAX(g->level_count, g->nodes[i].level + 2);
    }
    g->nodes[g->node_count - 1].level = g->level_count - 1;
    return MR_OK;
}

static int find_rows(struct making *k, struct mr_err *err)
{
    struct graph *g = k->g;
    uint32_t *rows = MR_ARENA_ARRAY(k->arena, uint32_t, g->level_count);

    if (!rows) {
        return no_memory(err);
    }
    for (size_t i = 0; i < g->node_count; i++) {
        g->nodes[i].row = rows[g->nodes[i].level]++;
        g->row_count = MR_MAX(g->row_count, g->nodes[i].row + 1);
    }
    return MR_OK;
}

static int link_ends(struct making *k, struct mr_err *err)
{
    const uint32_t last = (uint32_t)k->g->node_count - 1;

    for (size_t i = 0; i < k->config->n_output; i++) {
        const char *tensor = k->config->output[i]->name;
        link_nodes(k, find(&k->tensors, tensor), last, tensor);
    }
    k->g->edge_count = k->edges.len;
    k->g->edges = MR_ARENA_ARRAY(k->arena, struct graph_edge, MR_MAX(k->edges.len, (size_t)1));
    if (!k->g->edges) {
        return no_memory(err);
    }
    if (k->edges.len > 0) {
        memcpy(k->g->edges, k->edges.at, k->edges.len * sizeof *k->edges.at);
    }
    return MR_OK;
}

static int make(struct making *k, struct mr_err *err)
{
    const Inference__ModelEnsembling *e = k->config->ensemble_scheduling;
    const size_t count =
        k->flow ? k->flow->n_node + k->flow->n_switch_ + k->flow->n_gather : e->n_step;
    int rc = MR_OK;

    if (count > NODES_MAX) {
        return MR_FAIL(err, MR_E_TOO_LARGE, "%zu nodes, at most %u can be drawn", count, NODES_MAX);
    }
    k->g->node_count = count + 2;
    k->g->nodes = MR_ARENA_ARRAY(k->arena, struct graph_node, count + 2);
    if (!k->g->nodes) {
        return no_memory(err);
    }
    k->g->nodes[0] = (struct graph_node){.name = "request", .what = "", .rules = ""};
    k->g->nodes[count + 1] = (struct graph_node){.name = "answer", .what = "", .rules = ""};
    for (size_t i = 0; i < k->config->n_input; i++) {
        MR_TRY(writes(k, k->config->input[i]->name, 0, false, err));
    }
    MR_TRY(k->flow ? add_flow_nodes(k, err) : add_steps(k, err));
    if (k->flow) {
        link_flow(k);
    }
    MR_TRY(link_ends(k, err));
    MR_TRY(find_levels(k, err));
    MR_TRY(find_rows(k, err));
out:
    return rc;
}

int graph_make(const Inference__ModelConfig *c, struct mr_arena *arena, struct graph *out,
               struct mr_err *err)
{
    struct graph g = {.name = c->name};
    struct making k = {.config = c, .arena = arena, .g = &g};

    if (c->scheduling_choice_case ==
        INFERENCE__MODEL_CONFIG__SCHEDULING_CHOICE_WORKFLOW_SCHEDULING) {
        k.flow = c->workflow_scheduling;
    } else if (c->scheduling_choice_case !=
               INFERENCE__MODEL_CONFIG__SCHEDULING_CHOICE_ENSEMBLE_SCHEDULING) {
        return MR_FAIL(err, MR_E_INVALID,
                       "%s%.64s%s has neither workflow_scheduling nor ensemble_scheduling",
                       c->name[0] ? "'" : "", c->name[0] ? c->name : "the configuration",
                       c->name[0] ? "'" : "");
    }
    const int rc = make(&k, err);
    MR_VEC_FINI(&k.edges);
    mr_map_fini(&k.tensors);
    mr_map_fini(&k.names);
    if (rc == MR_OK) {
        *out = g;
    }
    return rc;
}
