/* A table of pointers with a free list; the generation of a slot changes when it is given back. */
#include "slots.h"

uint64_t slots_add(struct slots *s, void *ptr)
{
    if (!s->free) {
        MR_VEC_PUSH(&s->all, ((struct slot){.generation = 1}));
        s->free = (uint32_t)s->all.len;
    }
    uint32_t index = s->free - 1;
    struct slot *slot = &s->all.at[index];
    s->free = slot->next_free;
    slot->ptr = ptr;
    return (uint64_t)slot->generation << 32 | index;
}

void *slots_get(const struct slots *s, uint64_t handle)
{
    uint32_t index = (uint32_t)handle;

    if (index >= s->all.len || s->all.at[index].generation != handle >> 32) {
        return NULL;
    }
    return s->all.at[index].ptr;
}

void slots_remove(struct slots *s, uint64_t handle)
{
    uint32_t index = (uint32_t)handle;
    struct slot *slot = &s->all.at[index];

    slot->ptr = NULL;
    slot->generation++;
    slot->generation += slot->generation == 0;
    slot->next_free = s->free;
    s->free = index + 1;
}

void slots_fini(struct slots *s)
{
    MR_VEC_FINI(&s->all);
    s->free = 0;
}
