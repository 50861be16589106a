/* Handles of things that may be gone when the handle is used: index and generation. */
#ifndef MESH_CORE_SLOTS_H
#define MESH_CORE_SLOTS_H

#include "base/vec.h"

struct slot {
    void *ptr;
    uint32_t generation;
    uint32_t next_free;
};

struct slots {
    MR_VEC(struct slot) all;
    uint32_t free; /* index + 1 */
};

/** Never 0. */
uint64_t slots_add(struct slots *s, void *ptr);
/** NULL: it has been removed. */
void *slots_get(const struct slots *s, uint64_t handle);
void slots_remove(struct slots *s, uint64_t handle);
void slots_fini(struct slots *s);

#endif
