/* A registry that has lost its data gets again what this server knows of it. What others write in that time stays. */
#include "core_priv.h"

#define RESTORE_NS 10000000000ll

/* value NULL: it is deleted. Another server may have been quicker. */
static void put_again(struct mesh_core *c, enum mesh_key_kind kind, mr_str id, int64_t revision,
                      const struct mr_buf *value)
{
    struct mesh_compare *compare = MR_ARENA_NEW(&c->arena, struct mesh_compare);
    struct mesh_op *op = MR_ARENA_NEW(&c->arena, struct mesh_op);
    mr_str key = core_key(c, kind, id, (mr_str){0});
    mr_str copy = value ? core_text(c, mr_buf_view(value)) : (mr_str){0};

    if (!compare || !op || !key.ptr) {
        return;
    }
    *compare = (struct mesh_compare){key, revision};
    *op = (struct mesh_op){.kind = value ? MESH_OP_PUT : MESH_OP_DELETE,
                           .key = key,
                           .value = {(const uint8_t *)(copy.ptr ? copy.ptr : ""), copy.len}};
    struct mesh_action *a = core_act(c, MESH_ACT_TXN);
    a->token = ++c->seq;
    a->compares = compare;
    a->compare_count = 1;
    a->then = op;
    a->then_count = 1;
}

static void put_model_again(struct mesh_core *c, const struct view_model *m, int64_t revision,
                            uint32_t refs)
{
    struct vmodel_model known = manage_model_of(c, view_id(m));
    struct mr_buf b;

    known.def.refs = refs;
    known.def.restored |= revision == 0;
    mr_buf_init(&b, 0);
    mesh_def_put(&b, &known.def);
    put_again(c, MESH_KEY_MODEL, view_id(m), revision,
              m->refs && !refs && m->auto_delete ? NULL : &b);
    if (revision == 0 && m->units_measured) {
        mr_buf_reset(&b);
        mesh_stat_put(&b, &(struct mesh_stat){(uint64_t)m->units_measured * MESH_UNIT, m->load_ms});
        put_again(c, MESH_KEY_STAT, view_id(m), 0, &b);
    }
    mr_buf_fini(&b);
}

static void put_vmodel_again(struct mesh_core *c, const struct view_vmodel *vm)
{
    struct mr_buf b;

    mr_buf_init(&b, 0);
    mesh_vmodel_put(&b, &(struct mesh_vmodel){.active = vm->active,
                                              .target = vm->target,
                                              .owner = vm->owner,
                                              .failed = vm->failed,
                                              .restored = true});
    put_again(c, MESH_KEY_VMODEL, vm->id, 0, &b);
    mr_buf_fini(&b);
}

static void count_ref(struct mr_map *refs, mr_str model)
{
    mr_map_put(refs, model, (void *)((uintptr_t)mr_map_find(refs, model) + 1));
}

/* A vmodel that others set or deleted before it was restored has other models than those whose references were. By the view: a
 * change of a vmodel's models changes their records, so that one with this revision has missed none. True: none was wrong. */
static bool refs_are_right(struct mesh_core *c)
{
    struct mr_map refs = {0};
    struct mr_map_slot *slot;
    bool is_right = true;

    for (size_t i = 0; (slot = mr_map_next(&c->view.vmodels, &i));) {
        const struct view_vmodel *vm = slot->value;
        count_ref(&refs, vm->target);
        if (!mr_str_eq(vm->active, vm->target)) {
            count_ref(&refs, vm->active);
        }
    }
    for (size_t i = 0; i < c->view.cap; i++) {
        const struct view_model *m = c->view.models[i];
        if (!m || m->revision <= VIEW_REVISION_PENDING || m->is_pending) {
            continue;
        }
        const uint32_t has = (uint32_t)(uintptr_t)mr_map_find(&refs, view_id(m));
        if (m->refs != has) {
            is_right = false;
            put_model_again(c, m, m->revision, has);
        }
    }
    mr_map_fini(&refs);
    return is_right;
}

static int64_t later(struct mesh_core *c)
{
    const int64_t at_ns = c->now + RESTORE_NS;

    timers_add(&c->timers, at_ns, TIMER_MANAGE, 0, 0);
    return at_ns;
}

void restore_begin(struct mesh_core *c)
{
    struct mr_map_slot *slot;

    for (size_t i = 0; i < c->view.cap; i++) {
        struct view_model *m = c->view.models[i];
        if (!m || m->revision == 0 || m->is_seen) {
            continue;
        }
        m->is_seen = m->stat_is_seen = true;
        if (core_owner(c, view_id(m), NULL) == c->me) {
            put_model_again(c, m, 0, m->refs);
        }
        m->revision = VIEW_REVISION_PENDING;
    }
    for (size_t i = 0; (slot = mr_map_next(&c->view.vmodels, &i));) {
        struct view_vmodel *vm = slot->value;
        if (vm->is_seen) {
            continue;
        }
        vm->is_seen = true;
        vm->revision = VIEW_REVISION_PENDING;
        if (core_owner(c, vm->id, NULL) == c->me) {
            put_vmodel_again(c, vm);
        }
    }
    c->restore_ns = later(c);
}

/* Again as long as there is some: a write may be lost with a registry that goes away once more. */
static void restore_rest(struct mesh_core *c)
{
    struct mr_map_slot *slot;
    bool is_over = c->registry_is_there;

    for (size_t i = 0; c->registry_is_there && i < c->view.cap; i++) {
        const struct view_model *m = c->view.models[i];
        if (m && m->revision == VIEW_REVISION_PENDING && !m->is_pending) {
            is_over = false;
            put_model_again(c, m, 0, m->refs);
        }
    }
    for (size_t i = 0; c->registry_is_there && (slot = mr_map_next(&c->view.vmodels, &i));) {
        const struct view_vmodel *vm = slot->value;
        if (vm->revision == VIEW_REVISION_PENDING && !vm->is_pending) {
            is_over = false;
            put_vmodel_again(c, vm);
        }
    }
    c->restore_ns = is_over ? 0 : later(c);
    c->refs_ns = c->now; /* again as long as there is a wrong one */
}

void restore_tick(struct mesh_core *c)
{
    if (c->restore_ns && c->restore_ns <= c->now) {
        restore_rest(c);
    }
    if (c->restore_ns == 0 && c->refs_ns && c->refs_ns <= c->now) {
        const bool is_known = c->registry_is_there && c->vmodel_intents.len == 0;
        c->refs_ns = is_known && refs_are_right(c) ? 0 : later(c);
    }
}
