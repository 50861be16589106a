/* Look-ups in a plan that is being made. Thread: loader. */
#include "build.h"

int plan_build_refuse(struct plan_build *b, const char *where, const char *what)
{
    return MR_FAIL(b->err, MR_E_UNSUPPORTED,
                   "workflow '%.*s': %.128s has '%s', a feature that this server does not have",
                   MR_STR_ARG(b->p->name), where, what);
}

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

uint32_t plan_build_tensor(const struct plan_build *b, const char *name)
{
    const uintptr_t known =
        (uintptr_t)mr_map_find(&b->p->names, mr_str_n(name, strnlen(name, PLAN_NAME_MAX)));

    return known ? (uint32_t)(known - 1) : PLAN_NOBODY;
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
