/* The references of a vmodel are those of the set {active, target}: a transaction compares the set before with the set after. */
#include "vmodel.h"

bool vmodel_def_is_same(const struct mesh_def *a, const struct mesh_def *b)
{
    return mr_str_eq(a->type, b->type) && mr_str_eq(a->path, b->path) && mr_str_eq(a->key, b->key);
}

static void put_vmodel(struct vmodel_plan *p, const struct vmodel_state *s,
                       const struct mesh_vmodel *v)
{
    p->write[p->count].kind = MESH_KEY_VMODEL;
    p->write[p->count].id = s->id;
    p->write[p->count].revision = s->revision;
    p->write[p->count].is_delete = !v;
    if (v) {
        p->write[p->count].v = *v;
    }
    p->count++;
}

static void put_model(struct vmodel_plan *p, const struct vmodel_model *m, int more)
{
    struct mesh_def def = m->def;

    if (more < 0 && def.refs > 0) {
        def.refs--;
    } else if (more > 0) {
        def.refs++;
    }
    p->write[p->count].kind = MESH_KEY_MODEL;
    p->write[p->count].id = m->id;
    p->write[p->count].revision = m->revision;
    p->write[p->count].is_delete = more < 0 && def.refs == 0 && def.auto_delete;
    p->write[p->count].def = def;
    p->count++;
}

static bool has(const struct mesh_vmodel *v, mr_str id)
{
    return v && (mr_str_eq(v->active, id) || mr_str_eq(v->target, id));
}

/* The models of before that are not in after lose a reference. */
static void release(struct vmodel_plan *p, const struct vmodel_state *s,
                    const struct mesh_vmodel *after)
{
    bool is_one = mr_str_eq(s->v.active, s->v.target);

    if (s->revision == 0) {
        return;
    }
    if (!has(after, s->v.active) && s->active.revision) {
        put_model(p, &s->active, -1);
    }
    if (!is_one && !has(after, s->v.target) && s->target.revision) {
        put_model(p, &s->target, -1);
    }
}

/* A target that is the wanted one already is what a call made before has left. */
static bool is_expected(const struct vmodel_set *set, const struct vmodel_state *s)
{
    mr_str now = s->revision ? s->v.target : set->target;

    return set->expected.len == 0 || mr_str_eq(set->expected, now) ||
           (s->revision && mr_str_eq(set->target, now));
}

/* The texts are those of ModelMesh, as controllers may compare them. */
static int check_set(const struct vmodel_set *set, const struct vmodel_state *s,
                     struct vmodel_plan *out, struct mr_err *err)
{
    if (s->revision == 0 && set->update_only) {
        return MR_FAIL(err, MR_E_NOT_FOUND, "vmodel %.*s not found", MR_STR_ARG(s->id));
    }
    if (s->revision && set->owner.len && !mr_str_eq(set->owner, s->v.owner)) {
        return MR_FAIL(err, MR_E_EXISTS, "vmodel %.*s already exists with different owner \"%.*s\"",
                       MR_STR_ARG(s->id), MR_STR_ARG(s->v.owner));
    }
    if (!is_expected(set, s)) {
        out->is_precondition = true;
        return s->revision ? MR_FAIL(err, MR_E_INVALID,
                                     "Existing target model %.*s does not match expected %.*s",
                                     MR_STR_ARG(s->v.target), MR_STR_ARG(set->expected))
                           : MR_FAIL(err, MR_E_INVALID, "vmodel %.*s not found", MR_STR_ARG(s->id));
    }
    if (s->wanted.revision == 0 && !set->has_def) {
        return MR_FAIL(err, MR_E_NOT_FOUND, "Target model %.*s not found", MR_STR_ARG(set->target));
    }
    if (s->wanted.revision && set->has_def && !vmodel_def_is_same(&s->wanted.def, &set->def)) {
        return MR_FAIL(err, MR_E_EXISTS,
                       "Target model %.*s already exists with different attribute values",
                       MR_STR_ARG(set->target));
    }
    return MR_OK;
}

/* Whether the target answers at once: nothing would be lost by it. */
static bool flips(const struct vmodel_set *set, const struct vmodel_state *s)
{
    return s->revision == 0 || set->force || s->active_copies == 0 ||
           (s->active_copies == 1 && s->wanted_is_loaded);
}

int vmodel_plan_set(const struct vmodel_set *set, const struct vmodel_state *s,
                    struct vmodel_plan *out, struct mr_err *err)
{
    *out = (struct vmodel_plan){0};
    int rc = check_set(set, s, out, err);
    if (rc < 0) {
        return rc;
    }
    const struct mesh_vmodel *before = s->revision ? &s->v : NULL;
    mr_str owner = set->owner.len ? set->owner : set->new_owner;
    struct mesh_vmodel after = {.active = flips(set, s) ? set->target : s->v.active,
                                .target = set->target,
                                .owner = before ? s->v.owner : owner};
    bool is_same = before && mr_str_eq(after.active, before->active) &&
                   mr_str_eq(after.target, before->target) && !before->failed;
    if (is_same) {
        return MR_OK;
    }
    put_vmodel(out, s, &after);
    if (!has(before, set->target)) {
        struct vmodel_model wanted = s->wanted;
        wanted.id = set->target;
        if (wanted.revision == 0) {
            wanted.def = set->def;
            wanted.def.refs = 0;
        }
        put_model(out, &wanted, 1);
    }
    release(out, s, &after);
    return MR_OK;
}

void vmodel_plan_delete(mr_str owner, const struct vmodel_state *s, struct vmodel_plan *out)
{
    *out = (struct vmodel_plan){0};
    if (s->revision && (owner.len == 0 || mr_str_eq(owner, s->v.owner))) {
        put_vmodel(out, s, NULL);
        release(out, s, NULL);
    }
}

void vmodel_plan_promote(const struct vmodel_state *s, struct vmodel_plan *out)
{
    struct mesh_vmodel after = s->v;

    *out = (struct vmodel_plan){0};
    after.active = after.target;
    after.failed = false;
    if (s->revision && !mr_str_eq(s->v.active, s->v.target)) {
        put_vmodel(out, s, &after);
        release(out, s, &after);
    }
}

void vmodel_plan_failed(const struct vmodel_state *s, bool failed, struct vmodel_plan *out)
{
    struct mesh_vmodel after = s->v;

    *out = (struct vmodel_plan){0};
    after.failed = failed;
    if (s->revision && s->v.failed != failed) {
        put_vmodel(out, s, &after);
    }
}
