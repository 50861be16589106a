/* A plan against the models that it asks: they are there, have what is mapped, and types and shapes fit. */
#ifndef FLOW_MEMBERS_H
#define FLOW_MEMBERS_H

#include "plan.h"
#include "sched/sched.h"

/** What the checks need to know of a model; a pin holds it. */
struct plan_member {
    struct mr_version *version; /* NULL: it is not there */
    bool has_other;             /* another version of it is */
    bool is_circular; /* it is not there, and the first that asks for this ensemble itself */
    char *failure;    /* why it did not load, NULL: it is not known */
};

/** members: [p->node_count], NULL versions where the model is not ready. Marks optional inputs in `p`,. Errors: MR_E_INVALID with Triton's texts, MR_E_NOMEM. Thread: loader. */
int plan_check_members(struct plan *p, const Inference__ModelConfig *c,
                       const struct plan_member *members, struct mr_err *err);

#endif
