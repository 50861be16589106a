/* Copies of the executions that warmed up the first workers of a model, for later workers. */
#ifndef SENTINEL_WARMUPS_H
#define SENTINEL_WARMUPS_H

#include "millrace/backend.h"
#include "shm/plane.h"

#define WARMUPS_MAX       16u
#define WARMUPS_BYTES_MAX ((uint64_t)64 << 20)

struct warmups {
    struct {
        struct mr_block *block;
        uint64_t offset, bytes; /* in the input segment */
    } at[WARMUPS_MAX];
    uint32_t count;
    uint64_t bytes; /* of all of them */
};

/* Keeps a copy, unless an equal one is kept or the limits are reached: WARMUPS_MAX of WARMUPS_BYTES_MAX in total. */
void warmups_keep(struct warmups *w, struct mr_shm *p, const struct mr_exec *exec);
void warmups_drop(struct warmups *w);

#endif
