/* What the mesh says of itself to administrators: messages from what this server sees of the registry. */
#include "live.h"

#include <stdlib.h>

#include "base/clock.h"

static char *text_of(struct mr_arena *a, mr_str s)
{
    return (char *)(uintptr_t)mr_arena_str(a, s).ptr;
}

/* ---- models ---- */

/* why: of a model that may be nowhere. */
static Millrace__MeshStatus status_of(const struct mesh_core *c, mr_str id, char why[MESH_WHY_MAX])
{
    const struct view_model *m = view_find(mesh_core_view(c), id);
    unsigned count[MESH_FAILED + 1] = {0};

    why[0] = '\0';
    if (!m || m->revision == 0) {
        return MILLRACE__MESH_STATUS__NOT_FOUND;
    }
    for (size_t i = 0; i < m->copy_count; i++) {
        count[m->copies[i].state]++;
    }
    if (count[MESH_LOADED] + count[MESH_DRAINING] > 0) {
        return MILLRACE__MESH_STATUS__LOADED;
    }
    if (count[MESH_LOADING] > 0 || mesh_core_is_wanted(c, id)) { /* or is to, elsewhere */
        return MILLRACE__MESH_STATUS__LOADING;
    }
    return count[MESH_FAILED] > 0 || mesh_core_is_nowhere(c, id, why)
               ? MILLRACE__MESH_STATUS__LOADING_FAILED
               : MILLRACE__MESH_STATUS__NOT_LOADED;
}

/* What is loaded here is so before the registry shows it: who had an answer of the model asks for its state next. That of the copy is
 * the same, or a copy that is not there yet (put_copies). */
static Millrace__MeshStatus told_status(const struct mesh_core *c, mr_str id,
                                        char why[MESH_WHY_MAX])
{
    Millrace__MeshStatus s = status_of(c, id, why);
    bool is_coming = s == MILLRACE__MESH_STATUS__NOT_LOADED || s == MILLRACE__MESH_STATUS__LOADING;

    return is_coming && mesh_core_copy(c, id) == MESH_LOADED ? MILLRACE__MESH_STATUS__LOADED : s;
}

Millrace__MeshStatus live_model_status(const struct mr_mesh *m, mr_str id)
{
    char why[MESH_WHY_MAX];

    return status_of(m->core, id, why);
}

/* The newest first. */
static int by_time(const void *a, const void *b)
{
    const Millrace__MeshCopy *const *x = a, *const *y = b;

    return ((*x)->time_ms < (*y)->time_ms) - ((*x)->time_ms > (*y)->time_ms);
}

static Millrace__MeshCopy *put_copy(Millrace__MeshModel *to, mr_str instance, struct mr_arena *a)
{
    Millrace__MeshCopy *m = MR_ARENA_NEW(a, Millrace__MeshCopy);

    if (m) {
        millrace__mesh_copy__init(m);
        m->instance = text_of(a, instance);
        m->reason = text_of(a, MR_STR(""));
        to->copies[to->n_copies++] = m;
    }
    return m;
}

static bool put_copies(const struct mr_mesh *mesh, const struct view_model *from, mr_str id,
                       Millrace__MeshModel *to, struct mr_arena *a)
{
    const struct mesh_view *v = mesh_core_view(mesh->core);
    bool is_here = mesh_core_copy(mesh->core, id) == MESH_LOADED, is_shown = false;

    to->copies = MR_ARENA_ARRAY(a, Millrace__MeshCopy *, from->copy_count + 1u);
    for (size_t i = 0; to->copies && i < from->copy_count; i++) {
        const struct view_copy *c = &from->copies[i];
        bool is_own = mr_str_eq_c(v->peers[c->peer]->id, mesh->id);
        Millrace__MeshCopy *m = put_copy(to, v->peers[c->peer]->id, a);
        if (!m) {
            return false;
        }
        enum mesh_copy_state state =
            is_own && is_here && c->state == MESH_LOADING ? MESH_LOADED : c->state;
        m->state = (Millrace__MeshCopy__State)(state - MESH_LOADING); /* the same order */
        m->size_bytes = (uint64_t)c->units * MESH_UNIT;
        const bool has_failed = c->state == MESH_FAILED;
        m->time_ms = has_failed ? c->failure->time_ms : c->time_ms;
        if (has_failed) {
            m->reason = text_of(a, mr_str_c(c->failure->reason));
        }
        is_shown |= is_own;
    }
    if (to->copies && is_here && !is_shown) {
        Millrace__MeshCopy *m = put_copy(to, mr_str_c(mesh->id), a);
        if (!m) {
            return false;
        }
        m->state = (Millrace__MeshCopy__State)(MESH_LOADED - MESH_LOADING);
        m->time_ms = mr_wall_ns() / MR_NS_PER_MS;
    }
    if (to->copies) {
        qsort(to->copies, to->n_copies, sizeof *to->copies, by_time);
    }
    return to->copies != NULL;
}

Millrace__MeshModel *live_report_model(const struct mr_mesh *mesh, mr_str id, struct mr_arena *a)
{
    const struct mesh_view *v = mesh_core_view(mesh->core);
    const struct view_model *from = view_find(v, id);
    Millrace__MeshModel *m = MR_ARENA_NEW(a, Millrace__MeshModel);
    char why[MESH_WHY_MAX];

    if (!m) {
        return NULL;
    }
    millrace__mesh_model__init(m);
    m->id = text_of(a, id);
    m->status = told_status(mesh->core, id, why);
    m->reason = text_of(a, mr_str_c(why));
    m->pending = from && from->is_pending;
    if (m->status == MILLRACE__MESH_STATUS__NOT_FOUND) {
        return m;
    }
    m->type = text_of(a, view_type(from));
    m->path = text_of(a, view_path(from));
    m->key = text_of(a, view_model_key(from));
    m->size_bytes = (uint64_t)view_units(from) * MESH_UNIT;
    m->min_copies = from->min_copies;
    m->max_copies = from->max_copies;
    m->pinned = from->pinned;
    m->vmodels = from->refs;
    return put_copies(mesh, from, id, m, a) ? m : NULL;
}

/* A target that is to come is being loaded, or is about to be. */
static Millrace__MeshStatus target_status(const struct mr_mesh *mesh,
                                          const struct view_vmodel *from)
{
    Millrace__MeshStatus s = live_model_status(mesh, from->target);
    bool is_to_come = !mr_str_eq(from->active, from->target) && !from->is_pending;

    return is_to_come && s == MILLRACE__MESH_STATUS__NOT_LOADED ? MILLRACE__MESH_STATUS__LOADING
                                                                : s;
}

Millrace__MeshVModel *live_report_vmodel(const struct mr_mesh *mesh, mr_str id, mr_str owner,
                                         struct mr_arena *a)
{
    const struct view_vmodel *from = view_vmodel_find(mesh_core_view(mesh->core), id);
    Millrace__MeshVModel *m = MR_ARENA_NEW(a, Millrace__MeshVModel);
    char why[MESH_WHY_MAX];

    if (!m) {
        return NULL;
    }
    millrace__mesh_vmodel__init(m);
    m->id = text_of(a, id);
    if (!from || (owner.len && !mr_str_eq(owner, from->owner))) {
        return m;
    }
    m->active = text_of(a, from->active);
    m->target = text_of(a, from->target);
    m->owner = text_of(a, from->owner);
    m->pending = from->is_pending;
    m->active_status = told_status(mesh->core, from->active, why);
    m->target_status = target_status(mesh, from);
    m->status = mr_str_eq(from->active, from->target) ? MILLRACE__MESH_VMODEL__STATUS__DEFINED
                : from->failed ? MILLRACE__MESH_VMODEL__STATUS__TRANSITION_FAILED
                               : MILLRACE__MESH_VMODEL__STATUS__TRANSITIONING;
    return m;
}

/* ---- lists ---- */

/* The id in the key of the page's item; ptr NULL: others have put it there. */
static mr_str id_at(const struct mr_kv_result *page, size_t i)
{
    struct mesh_key key = mesh_key_parse(page->items[i].key);

    return key.kind == MESH_KEY_OTHER ? (mr_str){0} : key.id;
}

mr_str live_report_last(const struct mr_kv_result *page)
{
    mr_str id = {0};

    for (size_t i = page->count; i > 0 && !id.ptr; i--) {
        id = id_at(page, i - 1);
    }
    return id;
}

bool live_report_has(const struct mr_mesh *m, const struct mr_mesh_admin *a,
                     const struct mr_kv_result *page)
{
    for (size_t i = 0; i < page->count; i++) {
        mr_str id = id_at(page, i);
        bool is_there = a->kind == MR_MESH_MODELS
                            ? live_model_status(m, id) != MILLRACE__MESH_STATUS__NOT_FOUND
                            : view_vmodel_find(mesh_core_view(m->core), id) != NULL;
        if (id.ptr && !is_there) {
            return false;
        }
    }
    return true;
}

/* What is not there by now, or has a record that cannot be read, is left out. */
static bool report_models(struct mr_mesh *m, struct mr_mesh_admin *a,
                          const struct mr_kv_result *page)
{
    Millrace__MeshModels *list = MR_ARENA_NEW(&a->arena, Millrace__MeshModels);

    if (!list) {
        return false;
    }
    millrace__mesh_models__init(list);
    list->models = MR_ARENA_ARRAY(&a->arena, Millrace__MeshModel *, page->count + 1);
    for (size_t i = 0; list->models && i < page->count; i++) {
        mr_str id = id_at(page, i);
        if (!id.ptr) {
            continue;
        }
        Millrace__MeshModel *one = live_report_model(m, id, &a->arena);
        if (!one) {
            return false;
        }
        list->models[list->n_models] = one;
        list->n_models += one->status != MILLRACE__MESH_STATUS__NOT_FOUND;
    }
    list->next = text_of(&a->arena, page->more ? live_report_last(page) : (mr_str){0});
    a->message = &list->base;
    return list->models && list->next;
}

static bool report_vmodels(struct mr_mesh *m, struct mr_mesh_admin *a,
                           const struct mr_kv_result *page)
{
    Millrace__MeshVModels *list = MR_ARENA_NEW(&a->arena, Millrace__MeshVModels);

    if (!list) {
        return false;
    }
    millrace__mesh_vmodels__init(list);
    list->vmodels = MR_ARENA_ARRAY(&a->arena, Millrace__MeshVModel *, page->count + 1);
    for (size_t i = 0; list->vmodels && i < page->count; i++) {
        mr_str id = id_at(page, i);
        if (!id.ptr) {
            continue;
        }
        Millrace__MeshVModel *one = live_report_vmodel(m, id, (mr_str){0}, &a->arena);
        if (!one) {
            return false;
        }
        list->vmodels[list->n_vmodels] = one;
        list->n_vmodels += one->status != MILLRACE__MESH_VMODEL__STATUS__NOT_FOUND;
    }
    list->next = text_of(&a->arena, page->more ? live_report_last(page) : (mr_str){0});
    a->message = &list->base;
    return list->vmodels && list->next;
}

bool live_report_page(struct mr_mesh *m, struct mr_mesh_admin *a, const struct mr_kv_result *page)
{
    return a->kind == MR_MESH_MODELS ? report_models(m, a, page) : report_vmodels(m, a, page);
}

/* ---- servers ---- */

static Millrace__MeshPeer *peer_of(const struct view_peer *p, struct mr_arena *a)
{
    Millrace__MeshPeer *m = MR_ARENA_NEW(a, Millrace__MeshPeer);

    if (!m) {
        return NULL;
    }
    millrace__mesh_peer__init(m);
    m->id = text_of(a, p->id);
    m->address = text_of(a, p->address);
    m->zone = text_of(a, p->zone);
    m->draining = p->draining;
    m->silent = p->is_suspect;
    m->capacity_bytes = (uint64_t)p->capacity * MESH_UNIT;
    m->used_bytes = p->sums.used * MESH_UNIT;
    m->models = p->sums.copies;
    m->loading = p->sums.loading;
    m->requests = p->in_flight;
    m->queued = p->queued;
    m->age_s = p->age_s;
    m->labels = MR_ARENA_ARRAY(a, char *, p->label_count + 1);
    for (size_t i = 0; m->labels && i < p->label_count; i++) {
        m->labels[m->n_labels++] = text_of(a, p->labels[i]);
    }
    return m->labels ? m : NULL;
}

static bool report_state(struct mr_mesh *m, struct mr_mesh_admin *a)
{
    const struct mesh_view *v = mesh_core_view(m->core);
    Millrace__MeshState *s = MR_ARENA_NEW(&a->arena, Millrace__MeshState);
    struct mesh_core_report r;

    if (!s) {
        return false;
    }
    millrace__mesh_state__init(s);
    mesh_core_report(m->core, &r);
    s->id = m->id;
    s->registry = text_of(&a->arena, mr_str_c(mr_kv_name(m->kv)));
    s->joined = mr_mesh_is_joined(m);
    s->registry_ready = mr_kv_state(m->kv) == MR_KV_READY;
    s->models = v->count;
    s->vmodels = v->vmodels.len;
    s->requests = r.requests;
    s->loading = r.loading;
    s->queued = r.queued;
    s->loads = r.loads;
    s->evictions = r.evictions;
    s->pending = (uint32_t)r.intents;
    s->peers = MR_ARENA_ARRAY(&a->arena, Millrace__MeshPeer *, v->peer_count + 1);
    for (size_t i = 0; s->peers && i < v->peer_count; i++) {
        Millrace__MeshPeer *p = NULL;
        if (view_peer_is_there(v->peers[i])) {
            p = peer_of(v->peers[i], &a->arena);
            if (!p) {
                return false;
            }
            s->peers[s->n_peers++] = p;
        }
    }
    a->message = &s->base;
    return s->peers && s->registry;
}

/* It is not there any more as this server sees it, while the registry may have it still. */
static bool report_unregistered(struct mr_mesh *m, struct mr_mesh_admin *a)
{
    Millrace__MeshModel *model = live_report_model(m, a->id, &a->arena);

    if (model) {
        model->pending = true;
        a->message = &model->base;
    }
    return model != NULL;
}

static bool report_deleted(struct mr_mesh *m, struct mr_mesh_admin *a)
{
    Millrace__MeshVModel *vm = live_report_vmodel(m, a->id, a->owner, &a->arena);

    if (vm) {
        vm->pending = true;
        a->message = &vm->base;
    }
    return vm != NULL;
}

static bool report_vmodel(struct mr_mesh *m, struct mr_mesh_admin *a)
{
    Millrace__MeshVModel *vm = live_report_vmodel(m, a->id, a->owner, &a->arena);

    if (!vm) {
        return false;
    }
    a->message = &vm->base;
    if (vm->status == MILLRACE__MESH_VMODEL__STATUS__NOT_FOUND) {
        return true;
    }
    a->active_model = live_report_model(m, mr_str_c(vm->active), &a->arena);
    a->target_model = live_report_model(m, mr_str_c(vm->target), &a->arena);
    return a->active_model && a->target_model;
}

/* A model counts more than a vmodel of the same name, as for requests, unless that is asked for. */
static void report_ready(const struct mr_mesh *m, struct mr_mesh_admin *a)
{
    const struct view_vmodel *vm = view_vmodel_find(mesh_core_view(m->core), a->id);
    bool is_model =
        !a->is_vmodel && live_model_status(m, a->id) != MILLRACE__MESH_STATUS__NOT_FOUND;

    a->is_there = is_model || vm;
    a->is_ready = a->is_there && mesh_core_may_serve(m->core, is_model ? a->id : vm->active);
}

bool live_report(struct mr_mesh *m, struct mr_mesh_admin *a)
{
    switch (a->kind) {
    case MR_MESH_STATE:
    case MR_MESH_DRAIN: return report_state(m, a);
    case MR_MESH_READY: report_ready(m, a); return true;
    case MR_MESH_MODEL:
    case MR_MESH_REGISTER:
    case MR_MESH_LOAD: {
        Millrace__MeshModel *model = live_report_model(m, a->id, &a->arena);
        a->message = model ? &model->base : NULL;
        return model != NULL;
    }
    case MR_MESH_VMODEL:
    case MR_MESH_SET_VMODEL: return report_vmodel(m, a);
    case MR_MESH_UNREGISTER: return !a->is_pending || report_unregistered(m, a);
    case MR_MESH_MODELS:
    case MR_MESH_VMODELS: /* live_report_page */ break;
    case MR_MESH_DELETE_VMODEL: return !a->is_pending || report_deleted(m, a);
    case MR_MESH_CHANGES: return live_changes_report(m, a);
    }
    return true;
}
