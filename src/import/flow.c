#include "flow.h"

#include "tensor/tensor.h"

const struct flow_tensor *flow_tensor_find(const struct flow_tensor *list, mr_str name)
{
    while (list && !mr_str_eq(list->name, name)) {
        list = list->next;
    }
    return list;
}

size_t flow_tensor_count(const struct flow_tensor *list)
{
    size_t n = 0;

    for (; list; list = list->next) {
        n++;
    }
    return n;
}

bool flow_tensor_add(struct flow_tensor **list, const struct flow_tensor *t, mr_str name,
                     struct mr_arena *arena)
{
    if (flow_tensor_find(*list, name)) {
        return true;
    }
    struct flow_tensor *copy = MR_ARENA_NEW(arena, struct flow_tensor);
    if (!copy) {
        return false;
    }
    *copy = *t;
    copy->next = NULL;
    copy->name = name;
    FLOW_ADD(*list, copy);
    return true;
}

bool flow_pair_add(struct flow_pair **list, mr_str of, mr_str name, struct mr_arena *arena)
{
    struct flow_pair *p = MR_ARENA_NEW(arena, struct flow_pair);

    if (!p) {
        return false;
    }
    *p = (struct flow_pair){.of = of, .name = name};
    FLOW_ADD(*list, p);
    return true;
}

/* ---- as text ---- */

void flow_emit_tensors(const char *field, const struct flow_tensor *list, struct emit *e)
{
    for (; list; list = list->next) {
        emit_open(e, field);
        emit_str(e, "name", list->name);
        emit_word(e, "data_type", mr_dtype_config_name(list->dtype));
        for (uint32_t i = 0; i < list->rank; i++) {
            emit_int(e, "dims", list->dims[i]);
        }
        emit_close(e);
    }
}

static void emit_model(mr_str name, int64_t version, mr_str remote, struct emit *e)
{
    emit_open(e, "model");
    emit_str(e, "name", name);
    if (version >= 0) {
        emit_int(e, "version", version);
    }
    if (remote.len > 0) {
        emit_str(e, "remote", remote);
    }
    emit_close(e);
}

static void emit_variants(const struct flow_node *n, struct emit *e)
{
    emit_open(e, "split");
    for (const struct flow_variant *v = n->variants; v; v = v->next) {
        emit_open(e, "variant");
        emit_str(e, "name", v->tag);
        emit_model(v->model, -1, v->remote, e);
        emit_int(e, "weight", v->weight);
        emit_close(e);
    }
    emit_close(e);
}

static void emit_node_rules(const struct flow_node *n, struct emit *e)
{
    if (n->when.len > 0) {
        emit_str(e, "when", n->when);
    }
    for (const struct flow_text *a = n->after; a; a = a->next) {
        emit_str(e, "after", a->text);
    }
    if (n->foreach_over) {
        emit_open(e, "foreach");
        for (const struct flow_text *o = n->foreach_over; o; o = o->next) {
            emit_str(e, "over", o->text);
        }
        if (n->foreach_max > 0) {
            emit_int(e, "max", n->foreach_max);
        }
        emit_close(e);
    }
    if (n->timeout_ms > 0) {
        emit_int(e, "timeout_ms", n->timeout_ms);
    }
    if (n->skips) {
        emit_word(e, "on_error", "SKIP");
    }
    if (n->retries > 0) {
        emit_open(e, "retry");
        emit_int(e, "attempts", n->retries + 1);
        emit_close(e);
    }
    if (n->shadow.len > 0) {
        emit_open(e, "shadow");
        emit_str(e, "name", n->shadow);
        emit_model(n->shadow, -1, MR_STR(""), e);
        emit_int(e, "percent", n->shadow_percent);
        emit_close(e);
    }
}

static void emit_node(const struct flow_node *n, struct emit *e)
{
    emit_open(e, "node");
    emit_str(e, "name", n->name);
    if (n->variants) {
        emit_variants(n, e);
    } else {
        emit_model(n->model, n->version, n->remote, e);
    }
    for (const struct flow_pair *p = n->inputs; p; p = p->next) {
        emit_pair(e, "input_map", p->of, p->name);
    }
    for (const struct flow_pair *p = n->outputs; p; p = p->next) {
        emit_pair(e, "output_map", p->of, p->name);
    }
    emit_node_rules(n, e);
    emit_close(e);
}

static void emit_switch(const struct flow *f, struct emit *e)
{
    emit_open(e, "switch");
    emit_str(e, "name", f->switch_name);
    emit_word(e, "per", "REQUEST");
    bool has_else = false;
    for (const struct flow_case *c = f->cases; c; c = c->next) {
        has_else |= c->when.len == 0;
        emit_open(e, c->when.len > 0 ? "case" : "else");
        if (c->when.len > 0) {
            emit_str(e, "when", c->when);
        }
        emit_str(e, "node", c->node);
        emit_close(e);
    }
    for (const struct flow_tensor *t = f->outputs; t; t = t->next) {
        emit_open(e, "merge");
        emit_str(e, "into", t->name);
        emit_close(e);
    }
    if (!has_else) {
        emit_word(e, "exhaustive", "true");
    }
    emit_close(e);
}

bool flow_may_skip(const struct flow *f)
{
    const struct flow_node *n = f->nodes;

    while (n && !n->skips && n->when.len == 0) {
        n = n->next;
    }
    return n != NULL;
}

/* A workflow is not loaded if an output may have no value. */
static void emit_defaults(const struct flow *f, struct emit *e)
{
    for (const struct flow_tensor *t = flow_may_skip(f) ? f->outputs : NULL; t; t = t->next) {
        emit_open(e, "default");
        emit_str(e, "tensor", t->name);
        if (t->dtype == MR_DTYPE_BYTES) {
            emit_str(e, "string", MR_STR(""));
        } else {
            emit_int(e, "int64", 0);
        }
        emit_close(e);
    }
}

void flow_emit(const struct flow *f, struct emit *e)
{
    if (f->comment.len > 0) {
        emit_comment(e, f->comment);
    }
    emit_str(e, "name", f->name);
    emit_str(e, "platform", MR_STR("workflow"));
    emit_int(e, "max_batch_size", f->max_batch_size);
    flow_emit_tensors("input", f->inputs, e);
    flow_emit_tensors("output", f->outputs, e);
    emit_open(e, "workflow_scheduling");
    if (f->deadline_ms > 0) {
        emit_int(e, "deadline_ms", f->deadline_ms);
    }
    for (const struct flow_node *n = f->nodes; n; n = n->next) {
        emit_node(n, e);
    }
    if (f->cases) {
        emit_switch(f, e);
    }
    emit_defaults(f, e);
    emit_close(e);
}
