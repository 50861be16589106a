/* Statistics as the protobuf message that both protocols print. */
#ifndef MR_SERVE_ADMIN_STATS_H
#define MR_SERVE_ADMIN_STATS_H

#include "base/arena.h"
#include "base/err.h"
#include "inference.pb-c.h"
#include "model/model.h"

struct stats_set {
    Inference__ModelStatisticsResponse response;
    struct mr_arena arena;
    size_t capacity;
    bool failed;
};
void stats_set_init(struct stats_set *set);
void stats_set_fini(struct stats_set *set);
void stats_set_add(struct stats_set *set, const struct mr_version *v);
/* All models (administration thread). */
void stats_set_add_all(struct stats_set *set, struct mr_models *models);
/* One model, all ready versions or one (network thread). */
int stats_set_add_model(struct stats_set *set, struct mr_models *models, mr_str model,
                        mr_str version, struct mr_err *err);

#endif
