/* Admission: how many requests of a workflow are under way, and how much their tensors take. Thread: that of the walk. */
#ifndef FLOW_ADMIT_H
#define FLOW_ADMIT_H

#include <pthread.h>
#include <sys/queue.h>

#include "exec.h"

/** Of a workflow with `admission`. */
struct flow_admit {
    pthread_mutex_t lock; /* guards what follows; held for a look at the list */
    TAILQ_HEAD(, walk) waiting;
    uint32_t waiting_count;
    uint32_t open;  /* walks that are under way */
    uint64_t bytes; /* of their tensors: what they have, at least what they are expected to have */
    uint64_t expects; /* bytes that the nodes of a walk make: the most of late */
    uint64_t refused, waited;
};

/** NULL: the plan has no admission. */
struct flow_admit *flow_admit_new(const struct plan *p);
void flow_admit_free(struct flow_admit **a);
/** A new walk: MR_OK: it is admitted; MR_PENDING: it waits (w->is_parked), and a signal follows. Errors: MR_E_EXHAUSTED. */
int flow_admit_begin(struct walk *w, struct mr_err *err);
/** The nodes of the walk have made more. */
void flow_admit_grow(struct walk *w);
/** The request was cancelled: a walk that waits does so no more, unless its signal is on the way. */
void flow_admit_cancel(struct walk *w);
/** Gives the place of a walk that has ended to the next ones. */
void flow_admit_end(struct walk *w);

#endif
