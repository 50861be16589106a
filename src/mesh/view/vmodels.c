/* Aliases in the view. There are far fewer of them than models, so they are kept plainly. */
#include "view_priv.h"

struct view_vmodel *view_vmodel_find(const struct mesh_view *v, mr_str id)
{
    return mr_map_find(&v->vmodels, id);
}

static void free_vmodel(struct view_vmodel *vm)
{
    mr_free(vm->text);
    mr_free(vm);
}

static char *take(char *at, mr_str *to, mr_str from)
{
    memcpy(at, from.len ? from.ptr : "", from.len);
    *to = (mr_str){at, from.len};
    return at + from.len;
}

void vmodels_apply(struct mesh_view *v, mr_str id, mr_bytes value, int64_t revision,
                   struct view_change *out)
{
    struct mesh_vmodel r;
    struct view_vmodel *known = view_vmodel_find(v, id);

    if (mesh_vmodel_get(&r, value, NULL) < 0) {
        v->ignored++;
        return;
    }
    if (known && known->revision >= revision && !v->is_reading) {
        return;
    }
    struct view_vmodel *vm = MR_NEW(struct view_vmodel);
    vm->text = mr_alloc(id.len + r.active.len + r.target.len + r.owner.len + 1);
    char *at = take(vm->text, &vm->id, id);
    at = take(at, &vm->active, r.active);
    at = take(at, &vm->target, r.target);
    take(at, &vm->owner, r.owner);
    vm->revision = revision;
    vm->failed = r.failed;
    vm->restored = r.restored;
    vm->is_seen = true;
    if ((known = mr_map_put(&v->vmodels, vm->id, vm))) {
        free_vmodel(known);
    }
    out->kind = VIEW_VMODEL;
}

void vmodels_delete(struct mesh_view *v, mr_str id, struct view_change *out)
{
    struct view_vmodel *vm = mr_map_remove(&v->vmodels, id);

    if (vm) {
        free_vmodel(vm);
        out->kind = VIEW_VMODEL;
    }
}

void vmodels_unsee(struct mesh_view *v)
{
    struct mr_map_slot *slot;

    for (size_t i = 0; (slot = mr_map_next(&v->vmodels, &i));) {
        ((struct view_vmodel *)slot->value)->is_seen = false;
    }
}

bool vmodels_unseen(const struct mesh_view *v, struct mr_buf *key)
{
    struct mr_map_slot *slot;

    for (size_t i = 0; (slot = mr_map_next(&v->vmodels, &i));) {
        const struct view_vmodel *vm = slot->value;
        if (!vm->is_seen) {
            mesh_key_put(key, MESH_KEY_VMODEL, vm->id, (mr_str){0});
            return true;
        }
    }
    return false;
}

void vmodels_fini(struct mesh_view *v)
{
    struct mr_map_slot *slot;

    for (size_t i = 0; (slot = mr_map_next(&v->vmodels, &i));) {
        free_vmodel(slot->value);
    }
    mr_map_fini(&v->vmodels);
}
