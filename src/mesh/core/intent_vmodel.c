/* Changes of vmodels in the journal. A vmodel is known by its target: one that has another target in the registry than the change was made
 * for was changed by others since, and stays so. Transitions change its record, too, and do not count. The transaction is planned anew from
 * what the registry has. A target that has to be registered first is a change of its own, which comes before. */
#include "core_priv.h"

struct intent *intent_find_vmodel(const struct mesh_core *c, mr_str id)
{
    return mr_map_find(&c->vmodel_intents, id);
}

bool intent_refers(const struct mesh_core *c, mr_str model)
{
    struct mr_map_slot *slot;

    for (size_t n = 0; (slot = mr_map_next(&c->vmodel_intents, &n));) {
        const struct intent *i = slot->value;
        bool has = mr_str_eq(i->what.v.target, model) || mr_str_eq(i->what.v.active, model);
        if (has && !i->what.is_delete && !i->is_done) {
            return true;
        }
    }
    return false;
}

bool intent_fold_vmodel(const struct mesh_core *c, const struct mesh_call *call,
                        const struct mesh_vmodel *shown, bool was_sent, struct mesh_intent *out)
{
    const struct intent *before = intent_find_vmodel(c, call->id);
    const struct view_vmodel *vm = view_vmodel_find(&c->view, call->id);
    struct mesh_intent i = {.is_delete = call->kind == MESH_CALL_DELETE_VMODEL,
                            .was_sent = was_sent,
                            .epoch = {c->epoch, c->epoch_len},
                            .force = call->force};

    if (before) {
        bool may_be_there = !before->what.is_delete && before->is_sent;
        i.epoch = before->what.epoch;
        i.was_sent |= before->what.was_sent;
        i.was_target = before->what.was_target;
        i.may_target = may_be_there ? before->what.v.target : before->what.may_target;
    } else if (vm) {
        i.was_target = vm->target;
    }
    if (shown) {
        i.v = *shown;
    } else {
        mr_str any = i.was_target.len ? i.was_target : call->id;
        i.v = (struct mesh_vmodel){.active = any, .target = any, .owner = call->owner};
    }
    *out = i;
    return !i.is_delete || i.was_target.len || i.was_sent;
}

static void apply(struct mesh_core *c, const struct intent *i, mr_bytes value, int64_t revision)
{
    struct mr_buf key;

    mr_buf_init(&key, 0);
    mesh_key_put(&key, MESH_KEY_VMODEL, i->id, (mr_str){0});
    core_apply(c, mr_buf_view(&key), (mr_bytes){0}, 0); /* whatever is there */
    if (value.ptr) {
        core_apply(c, mr_buf_view(&key), value, revision);
    }
    mr_buf_fini(&key);
}

void intent_show_vmodel(struct mesh_core *c, const struct intent *i)
{
    struct view_vmodel *vm;
    struct mr_buf value;

    mr_buf_init(&value, 0);
    mesh_vmodel_put(&value, &i->what.v);
    apply(c, i,
          i->what.is_delete ? (mr_bytes){0} : (mr_bytes){(const uint8_t *)value.ptr, value.len},
          VIEW_REVISION_PENDING);
    mr_buf_fini(&value);
    vm = view_vmodel_find(&c->view, i->id);
    if (vm) {
        vm->is_pending = true;
    }
}

void intent_read_vmodel(struct mesh_core *c, const struct intent *i)
{
    const struct view_vmodel *vm = view_vmodel_find(&c->view, i->id);
    bool is_known = vm && vm->is_seen;

    if (is_known ? mr_str_eq(vm->target, i->what.was_target) : !i->what.is_delete) {
        intent_show_vmodel(c, i); /* which is seen */
    }
}

/* ---- the registry is back ---- */

static void make(struct mesh_core *c, struct intent *i, const struct mesh_vmodel *known,
                 mr_bytes value, int64_t revision)
{
    struct vmodel_plan p = {0};
    struct mr_err err;
    uint64_t token;

    if (!i->what.is_delete && intent_find(c, i->what.v.target)) {
        intent_again_later(c, i);
        return;
    }
    int rc = manage_plan_intent(c, i, known, revision, &p, &err);
    if (rc < 0) {
        apply(c, i, value, revision);
        intent_end(c, i, err.msg);
    } else if (p.count == 0) {
        apply(c, i, value, revision);
        intent_made(c, i);
    } else if ((token = manage_send(c, &p))) {
        i->what.was_sent = i->is_sent = i->is_writing = true;
        if (mr_str_eq(known->target, i->what.may_target)) {
            i->what.was_target = i->what.may_target; /* no longer only perhaps */
        }
        intent_runs(c, i, token);
    } else {
        intent_again_later(c, i);
    }
}

void intent_proceed_vmodel(struct mesh_core *c, struct intent *i, mr_bytes value, int64_t revision)
{
    struct mesh_vmodel known = {0};

    if (value.ptr && mesh_vmodel_get(&known, value, NULL) < 0) {
        apply(c, i, value, revision);
        intent_end(c, i, "has a record in the registry that cannot be read, which stays");
        return;
    }
    switch (mesh_intent_step_vmodel(&i->what, &known, (mr_str){c->epoch, c->epoch_len})) {
    case MESH_INTENT_WRITE: make(c, i, &known, value, value.ptr ? revision : 0); break;
    case MESH_INTENT_OUTDATED:
        apply(c, i, value, revision);
        intent_end(c, i, "has a newer target in the registry, which stays");
        break;
    case MESH_INTENT_DONE: intent_made(c, i); break;
    }
}
