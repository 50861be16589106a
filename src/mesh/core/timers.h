/* What is due when: a heap. A timer is not taken back; who gets it looks whether it still means something. */
#ifndef MESH_CORE_TIMERS_H
#define MESH_CORE_TIMERS_H

#include "base/vec.h"

struct timer {
    int64_t at_ns;
    uint64_t seq; /* equal times: in the order in which they were set */
    int kind;
    uint64_t arg; /* a handle */
    uint64_t check;
};

struct timers {
    MR_VEC(struct timer) heap;
    uint64_t seq;
};

void timers_add(struct timers *t, int64_t at_ns, int kind, uint64_t arg, uint64_t check);
/** The next one that is due; false: none. */
bool timers_due(struct timers *t, int64_t now, struct timer *out);
/** INT64_MAX: there is none. */
int64_t timers_next(const struct timers *t);
void timers_fini(struct timers *t);

#endif
