/* Look-ups in a plan that is being made, and conditions: which names they may use. Thread: loader. */
#include "build.h"
#include "split_node.h"

int plan_build_node_of(struct plan_build *b, const char *of, const char *field, const char *name,
                       uint32_t *out)
{
    const uintptr_t found =
        (uintptr_t)mr_map_find(&b->names, mr_str_n(name, strnlen(name, PLAN_NAME_MAX)));

    if (!found) {
        return PLAN_BAD(
            b, "workflow '%.*s': node '%.128s' names '%.128s' in '%s', and no node has that name",
            MR_STR_ARG(b->p->name), of, name, field);
    }
    *out = (uint32_t)(found - 1);
    return MR_OK;
}

int plan_build_name_take(struct plan_build *b, const char *kind, const char *name)
{
    const mr_str own = mr_str_n(name, strnlen(name, PLAN_NAME_MAX + 1));
    const bool is_node = mr_map_find(&b->names, own) != NULL;

    if (own.len > PLAN_NAME_MAX) {
        return PLAN_BAD(b, "workflow '%.*s': %s '%.128s' has a name of more than %u bytes",
                        MR_STR_ARG(b->p->name), kind, name, PLAN_NAME_MAX);
    }
    if (is_node || mr_map_put(&b->others, own, b)) {
        return PLAN_BAD(b, "workflow '%.*s': %s '%.128s' has the name of %s",
                        MR_STR_ARG(b->p->name), kind, name,
                        is_node ? "a node" : "another switch or gather");
    }
    return MR_OK;
}

int plan_build_model(struct plan_build *b, mr_str of, const Millrace__WorkflowModel *m,
                     mr_str *out_model, mr_str *out_version)
{
    const int rc = plan_model_name(b->p, m, out_model, out_version, b->err);

    return rc < 0 ? MR_WRAP(b->err, rc, "workflow '%.*s': node '%.*s'", MR_STR_ARG(b->p->name),
                            MR_STR_ARG(mr_str_sub(of, 0, 128)))
                  : MR_OK;
}

uint32_t plan_build_tensor(const struct plan_build *b, const char *name)
{
    const uintptr_t known =
        (uintptr_t)mr_map_find(&b->p->names, mr_str_n(name, strnlen(name, PLAN_NAME_MAX)));

    return known ? (uint32_t)(known - 1) : PLAN_NO_NODE;
}

bool plan_build_writes(const struct plan_node *node, uint32_t tensor)
{
    for (uint32_t i = 0; i < node->output_count; i++) {
        if (node->outputs[i].tensor == tensor) {
            return true;
        }
    }
    return false;
}

/* ---- conditions ---- */

static int when_resolve(void *ctx, enum mr_expr_form form, mr_str name, struct mr_expr_symbol *out,
                        struct mr_err *err)
{
    struct plan_build *b = ctx;
    const uintptr_t known = (uintptr_t)mr_map_find(&b->p->names, name);

    if (form == MR_EXPR_NAME && known) {
        const struct plan_tensor *t = &b->p->tensors[known - 1];
        if (t->writer == PLAN_NO_NODE) {
            return MR_FAIL(err, MR_E_INVALID, "nothing writes tensor '%.*s'", MR_STR_ARG(t->name));
        }
        *out = (struct mr_expr_symbol){
            .is_tensor = true, .dtype = t->dtype, .rank = -1, .id = (uint32_t)(known - 1)};
        return MR_OK;
    }
    const bool is_of_node = form == MR_EXPR_VARIANT || form == MR_EXPR_STATUS;
    const uintptr_t node = is_of_node ? (uintptr_t)mr_map_find(&b->names, name) : 0;
    const struct plan_node *n = node ? &b->p->nodes[node - 1] : NULL;
    if (n && !n->is_spare && (form == MR_EXPR_STATUS || n->split)) {
        *out = (struct mr_expr_symbol){.type = MR_EXPR_STRING, .id = (uint32_t)(node - 1)};
        return MR_OK;
    }
    if (form == MR_EXPR_STATUS) {
        return MR_FAIL(err, MR_E_INVALID,
                       "'%.*s' is no node of the workflow, or a fallback or branch of a switch",
                       MR_STR_ARG(mr_str_sub(name, 0, 128)));
    }
    if (form == MR_EXPR_VARIANT) {
        return MR_FAIL(err, MR_E_INVALID, "'%.*s' is no node with 'split' of the workflow",
                       MR_STR_ARG(mr_str_sub(name, 0, 128)));
    }
    return MR_FAIL(err, MR_E_INVALID, "'%.*s' is no tensor of the workflow",
                   MR_STR_ARG(mr_str_sub(name, 0, 128)));
}

int plan_build_condition(struct plan_build *b, uint32_t n, const char *text, bool by_row)
{
    const struct mr_expr_options options = {.want_bool = true, .by_row = by_row};
    const struct mr_expr_names names = {when_resolve, b};
    const int rc = mr_expr_compile(mr_str_c(text), &options, &names, &b->p->nodes[n].when, b->err);

    return rc < 0
               ? MR_WRAP(b->err, rc, "workflow '%.*s': node '%.*s', 'when'", MR_STR_ARG(b->p->name),
                         MR_STR_ARG(mr_str_sub(b->p->nodes[n].name, 0, 128)))
               : MR_OK;
}

uint32_t plan_build_operand(const struct plan *p, const struct mr_expr_operand *o)
{
    const bool is_of_node = o->form == MR_EXPR_VARIANT || o->form == MR_EXPR_STATUS;

    return o->is_tensor ? p->tensors[o->id].writer : is_of_node ? o->id : PLAN_NO_NODE;
}
