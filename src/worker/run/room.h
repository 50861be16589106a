/* Memory for the outputs of one execution: the slot's room after the reply, then extents that the server has given or
 * gives on request. Nothing is reused before the next execution. */
#ifndef MR_WORKER_ROOM_H
#define MR_WORKER_ROOM_H

#include "base/pool.h"
#include "shm/worker.h"

struct worker_room {
    struct mr_block_provider provider; /* first */
    struct mr_shm_view *view;
    struct mr_shm_task *task;
    struct mr_shm_range range; /* the rest of the newest one */
    uint32_t next;             /* extent to use after it */
    uint64_t given;            /* bytes of outputs so far */
};

/* Memory for one letter of the task, which gets no extents; `at` is the task with the letter as its room. */
void worker_room_letter(struct worker_room *r, struct mr_shm_task *at,
                        const struct mr_shm_range *letter);
/* Thread: the executing thread, until the execution is complete. A pending execution must not allocate on two threads at
 * once. */
void worker_room_begin(struct worker_room *r, struct mr_shm_view *v, struct mr_shm_task *t);

#endif
