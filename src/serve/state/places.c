/* What the mesh said is believed for PLACE_NS: then it is asked again, which spreads requests over copies and notices new ones. A
 * server that has lost the model says so, and the place is forgotten; the copy of a runtime is closed before it is unloaded. What a vmodel stands
 * for is not believed once any vmodel has changed. */
#include "places.h"

#include "mesh/mesh.h"

#define PLACE_NS   MR_NS_PER_S
#define PLACES_MAX 65536u

struct active {
    int64_t until_ns;
    uint64_t names;
    bool by_name;
    mr_str model;
    char text[];
};

const struct place *places_find(struct serve_loop *l, mr_str model)
{
    const struct place *p = mr_map_find(&l->places, model);

    return p && mr_loop_now_ns(l->loop) < p->until_ns ? p : NULL;
}

static void free_place(struct place *p)
{
    if (p) {
        mr_mesh_copy_unref(&p->copy);
        mr_free(p);
    }
}

static void forget_places(struct serve_loop *l)
{
    struct mr_map_slot *slot;

    for (size_t i = 0; (slot = mr_map_next(&l->places, &i));) {
        free_place(slot->value);
    }
    mr_map_fini(&l->places);
}

static void forget_active(struct serve_loop *l)
{
    struct mr_map_slot *slot;

    for (size_t i = 0; (slot = mr_map_next(&l->active, &i));) {
        mr_free(slot->value);
    }
    mr_map_fini(&l->active);
}

void places_put(struct serve_loop *l, mr_str model, struct mr_mesh_copy *copy, const char *address)
{
    size_t size = strlen(address) + 1;
    struct place *p = mr_alloc(sizeof *p + size);

    if (l->places.len >= PLACES_MAX) {
        forget_places(l);
    }
    p->until_ns = mr_loop_now_ns(l->loop) + PLACE_NS;
    p->copy = mr_mesh_copy_ref(copy);
    memcpy(p->address, address, size);
    free_place(mr_map_put(&l->places, model, p));
}

void places_forget(struct serve_loop *l, mr_str model)
{
    free_place(mr_map_remove(&l->places, model));
}

mr_str places_active(struct serve_loop *l, mr_str vmodel, bool by_name)
{
    const struct active *a = mr_map_find(&l->active, vmodel);

    if (!a || mr_loop_now_ns(l->loop) >= a->until_ns || (by_name && !a->by_name) ||
        a->names != mr_mesh_names(l->server->mesh)) {
        return (mr_str){0};
    }
    return a->model;
}

void places_put_active(struct serve_loop *l, mr_str vmodel, bool by_name, mr_str model,
                       uint64_t names)
{
    struct active *a = mr_alloc(sizeof *a + model.len + 1);

    if (l->active.len >= PLACES_MAX) {
        forget_active(l);
    }
    a->until_ns = mr_loop_now_ns(l->loop) + PLACE_NS;
    a->names = names;
    a->by_name = by_name;
    a->model = mr_str_n(memcpy(a->text, model.ptr, model.len), model.len);
    mr_free(mr_map_put(&l->active, vmodel, a));
}

void places_put_found(struct serve_loop *l, struct mr_version *v)
{
    if (l->found) {
        mr_version_unpin(l->found, l->epoch_slot);
    }
    l->found = v;
}

struct mr_version *places_found(const struct serve_loop *l, mr_str model, mr_str version)
{
    struct mr_version *v = l->found;

    return v && mr_str_eq(v->model_name, model) &&
                   (!version.len || mr_str_eq(v->number_text, version))
               ? v
               : NULL;
}

void places_fini(struct serve_loop *l)
{
    forget_places(l);
    forget_active(l);
}
