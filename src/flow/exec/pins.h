/* The models of a graph's nodes while it is checked. */
#ifndef FLOW_PINS_H
#define FLOW_PINS_H

#include "flow/plan/members.h"

/** [p->node_count], for plan_check_members; of a model that is not there, why. Reads the configuration files of ensembles that are
 *  not there. Thread: loader. */
struct plan_member *pins_take(const struct plan *p, struct mr_models *models);
void pins_release(struct plan_member *members, uint32_t count);

#endif
