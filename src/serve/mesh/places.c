/* What the mesh said is believed for PLACE_NS: then it is asked again, which spreads requests over copies and notices new ones. A
 * server that has lost the model says so, and the place is forgotten. */
#include "places.h"

#define PLACE_NS   MR_NS_PER_S
#define PLACES_MAX 65536u

struct place {
    int64_t until_ns;
    char address[];
};

const char *places_find(struct serve_loop *l, mr_str model)
{
    const struct place *p = mr_map_find(&l->places, model);

    return p && mr_loop_now_ns(l->loop) < p->until_ns ? p->address : NULL;
}

static void forget_all(struct serve_loop *l)
{
    struct mr_map_slot *slot;

    for (size_t i = 0; (slot = mr_map_next(&l->places, &i));) {
        mr_free(slot->value);
    }
    mr_map_fini(&l->places);
}

void places_put(struct serve_loop *l, mr_str model, const char *address)
{
    size_t size = strlen(address) + 1;
    struct place *p = mr_alloc(sizeof *p + size);

    if (l->places.len >= PLACES_MAX) {
        forget_all(l);
    }
    p->until_ns = mr_loop_now_ns(l->loop) + PLACE_NS;
    memcpy(p->address, address, size);
    mr_free(mr_map_put(&l->places, model, p));
}

void places_forget(struct serve_loop *l, mr_str model)
{
    mr_free(mr_map_remove(&l->places, model));
}
