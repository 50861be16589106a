/* What changed in the registry of late, for those who watch: the keys are kept, in a ring; what became of the models is looked up when it is
 * reported. So whoever asks seldom gets the newest only, and nothing is kept per watcher. */
#include "live.h"

#define REPORT_MAX 128 /* models and vmodels of an answer */

void live_changes_init(struct mr_mesh *m)
{
    m->changes.first = m->changes.next = 1;
}

void live_changes_add(void *ctx, mr_str key)
{
    struct mr_mesh *m = ctx;
    struct live_changes *c = &m->changes;
    enum mesh_key_kind kind = mesh_key_parse(key).kind;

    if (key.len == 0) {
        c->first = ++c->next;
    } else if (kind == MESH_KEY_MODEL || kind == MESH_KEY_COPY || kind == MESH_KEY_VMODEL) {
        mr_str *at = &c->at[c->next % CHANGES_MAX];
        mr_free((char *)(uintptr_t)at->ptr);
        *at = (mr_str){mr_strndup(key.ptr, key.len), key.len};
        c->next++;
        c->first = c->next - c->first > CHANGES_MAX ? c->next - CHANGES_MAX : c->first;
    }
}

static struct mesh_key key_at(const struct live_changes *c, uint64_t i)
{
    return mesh_key_parse(c->at[i % CHANGES_MAX]);
}

static bool is_lost(const struct live_changes *c, const struct mr_mesh_admin *a)
{
    return a->since < c->first || a->since > c->next;
}

bool live_changes_has(const struct mr_mesh *m, struct mr_mesh_admin *a)
{
    const struct live_changes *c = &m->changes;

    if (is_lost(c, a)) {
        return true;
    }
    while (a->since < c->next && !mr_str_starts(key_at(c, a->since).id, a->id)) {
        a->since++;
    }
    return a->since < c->next;
}

static bool has_model(const Millrace__MeshChanges *r, mr_str id)
{
    for (size_t i = 0; i < r->n_models; i++) {
        if (mr_str_eq_c(id, r->models[i]->id)) {
            return true;
        }
    }
    return false;
}

static bool has_vmodel(const Millrace__MeshChanges *r, mr_str id)
{
    for (size_t i = 0; i < r->n_vmodels; i++) {
        if (mr_str_eq_c(id, r->vmodels[i]->id)) {
            return true;
        }
    }
    return false;
}

static bool add(struct mr_mesh *m, Millrace__MeshChanges *r, const struct mesh_key *key,
                struct mr_arena *arena)
{
    if (key->kind == MESH_KEY_VMODEL) {
        if (!has_vmodel(r, key->id)) {
            r->vmodels[r->n_vmodels] = live_report_vmodel(m, key->id, (mr_str){0}, arena);
            return r->vmodels[r->n_vmodels++] != NULL;
        }
    } else if (!has_model(r, key->id)) {
        r->models[r->n_models] = live_report_model(m, key->id, arena);
        return r->models[r->n_models++] != NULL;
    }
    return true;
}

bool live_changes_report(struct mr_mesh *m, struct mr_mesh_admin *a)
{
    const struct live_changes *c = &m->changes;
    Millrace__MeshChanges *r = MR_ARENA_NEW(&a->arena, Millrace__MeshChanges);
    bool is_there = r != NULL;

    if (!r) {
        return false;
    }
    millrace__mesh_changes__init(r);
    r->models = MR_ARENA_ARRAY(&a->arena, Millrace__MeshModel *, REPORT_MAX);
    r->vmodels = MR_ARENA_ARRAY(&a->arena, Millrace__MeshVModel *, REPORT_MAX);
    r->next = a->since;
    if (!a->since || is_lost(c, a)) {
        r->lost = a->since != 0;
        r->next = c->next;
    }
    is_there = r->models && r->vmodels;
    for (; is_there && r->next < c->next && r->n_models + r->n_vmodels < REPORT_MAX; r->next++) {
        struct mesh_key key = key_at(c, r->next);
        is_there = !mr_str_starts(key.id, a->id) || add(m, r, &key, &a->arena);
    }
    a->message = &r->base;
    return is_there;
}

void live_changes_fini(struct mr_mesh *m)
{
    for (size_t i = 0; i < CHANGES_MAX; i++) {
        mr_free((char *)(uintptr_t)m->changes.at[i].ptr);
    }
}
