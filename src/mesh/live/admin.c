/* Questions and changes of administrators, from any thread to the mesh's and back. Lists are pages of the registry, which has its keys in
 * order; everything else is what this server sees of it. */
#include "live.h"

#include "base/clock.h"
#include "runtime.h"

#define ARENA_MAX   ((size_t)64 << 20)
#define SYNC_MAX_NS (240 * MR_NS_PER_S)
#define WATCH_NS    (15 * MR_NS_PER_S)

/* Thread: the administrator's. */
static void run_done(struct mr_mail *mail)
{
    struct mr_mesh_admin *a = MR_CONTAINER_OF(mail, struct mr_mesh_admin, mail);

    a->done(a);
}

static void finish(struct mr_mesh_admin *a, int status)
{
    a->prev->next = a->next;
    a->next->prev = a->prev;
    a->status = status;
    a->mail.run = run_done;
    a->post(a->post_ctx, &a->mail);
}

static void refuse(struct mr_mesh_admin *a, int status, const char *why)
{
    finish(a, MR_FAIL(&a->err, status, "%s", why));
}

static void report(struct mr_mesh *m, struct mr_mesh_admin *a, const struct mr_kv_result *page)
{
    if (page ? live_report_page(m, a, page) : live_report(m, a)) {
        finish(a, MR_OK);
    } else {
        refuse(a, MR_E_EXHAUSTED, "the report is larger than the server allows");
    }
}

/* ---- lists ---- */

static void read_page(struct mr_mesh_admin *a, mr_str after);

static void list(struct mr_mesh_admin *a);

static void on_page(void *ctx, int rc, const struct mr_err *err, const struct mr_kv_reply *reply)
{
    struct mr_mesh_admin *a = ctx;
    struct mr_mesh *m = a->mesh;
    const struct mr_kv_result *page = rc < 0 ? NULL : &reply->results[0];

    if (rc < 0) {
        refuse(a, rc == MR_E_CANCELLED ? MR_E_UNAVAILABLE : rc, err ? err->msg : "");
    } else if (page->more && page->count > 0 && !live_report_last(page).ptr) {
        read_page(a, page->items[page->count - 1].key); /* none of its keys are ours */
    } else if (a->has_values) {
        registry_learn(m->registry, reply->revision, page);
        report(m, a, page);
    } else if (registry_is_behind(m->registry, reply->revision) && !live_report_has(m, a, page)) {
        a->has_values = true; /* of what others have made a moment ago */
        list(a);
    } else {
        report(m, a, page);
    }
}

static enum mesh_key_kind listed(const struct mr_mesh_admin *a)
{
    return a->kind == MR_MESH_MODELS ? MESH_KEY_MODEL : MESH_KEY_VMODEL;
}

static void read_page(struct mr_mesh_admin *a, mr_str after)
{
    struct mr_buf prefix;

    mr_buf_init(&prefix, 0);
    mesh_key_put(&prefix, listed(a), a->id, (mr_str){0});
    struct mr_kv_range range = {.key = mr_buf_view(&prefix),
                                .is_prefix = true,
                                .after = after,
                                .limit = a->limit ? MR_MIN(a->limit, MR_MESH_PAGE_MAX)
                                                  : MR_MESH_PAGE_MAX,
                                .keys_only = !a->has_values,
                                .read = MR_KV_LOCAL};
    mr_kv_range(a->mesh->kv, &range, on_page, a);
    mr_buf_fini(&prefix);
}

static void list(struct mr_mesh_admin *a)
{
    struct mr_buf after;

    mr_buf_init(&after, 0);
    if (a->after.len) {
        mesh_key_put(&after, listed(a), a->after, (mr_str){0});
    }
    read_page(a, mr_buf_view(&after));
    mr_buf_fini(&after);
}

/* ---- changes ---- */

static void change(struct mr_mesh *m, struct mr_mesh_admin *a)
{
    static const enum mesh_call_kind kinds[] = {[MR_MESH_REGISTER] = MESH_CALL_REGISTER,
                                                [MR_MESH_UNREGISTER] = MESH_CALL_UNREGISTER,
                                                [MR_MESH_LOAD] = MESH_CALL_ENSURE,
                                                [MR_MESH_SET_VMODEL] = MESH_CALL_SET_VMODEL,
                                                [MR_MESH_DELETE_VMODEL] = MESH_CALL_DELETE_VMODEL,
                                                [MR_MESH_MODEL] = MESH_CALL_SEE_MODEL,
                                                [MR_MESH_VMODEL] = MESH_CALL_SEE_VMODEL};
    struct mesh_call call = {.kind = kinds[a->kind],
                             .user = a,
                             .id = a->id,
                             .def = {.type = a->type,
                                     .path = a->path,
                                     .key = a->key,
                                     .size_bytes = a->size_bytes,
                                     .device_bytes = a->device_bytes,
                                     .min_copies = a->min_copies,
                                     .max_copies = a->max_copies,
                                     .pinned = a->pinned,
                                     .auto_delete = a->auto_delete},
                             .load_now = a->load_now,
                             .target = a->target,
                             .expected = a->expected,
                             .owner = a->owner,
                             .has_def = a->has_def,
                             .update_only = a->update_only,
                             .force = a->force};

    mesh_core_call(m->core, &call, live_now(m));
    live_acted(m);
}

static bool has_it_loaded(const struct mr_mesh_admin *a)
{
    return a->kind == MR_MESH_LOAD || a->load_now;
}

static bool waits_for_end(const struct mr_mesh_admin *a)
{
    return a->sync && (a->kind == MR_MESH_SET_VMODEL || has_it_loaded(a));
}

static bool load_has_ended(const struct mr_mesh *m, mr_str id)
{
    Millrace__MeshStatus s = live_model_status(m, id);

    /* here it may be loaded without the registry's knowing, which is away */
    bool is_loading =
        s == MILLRACE__MESH_STATUS__LOADING && mesh_core_copy(m->core, id) != MESH_LOADED;

    return s == MILLRACE__MESH_STATUS__LOADED || (!is_loading && !mesh_core_is_wanted(m->core, id));
}

static bool has_ended(const struct mr_mesh *m, struct mr_mesh_admin *a)
{
    if (a->kind == MR_MESH_CHANGES) {
        return live_changes_has(m, a);
    }
    if (m->is_ending) {
        return true;
    }
    if (a->kind != MR_MESH_SET_VMODEL) {
        return load_has_ended(m, a->id);
    }
    const struct view_vmodel *vm = view_vmodel_find(mesh_core_view(m->core), a->id);
    if (!vm || !mr_str_eq(vm->target, a->target) || vm->failed || vm->is_pending) {
        return true;
    }
    return mr_str_eq(vm->active, vm->target) && (!has_it_loaded(a) || load_has_ended(m, a->target));
}

void live_admin_answer(struct mr_mesh *m, const struct mesh_action *act)
{
    struct mr_mesh_admin *a = act->user;

    a->is_pending = act->status == MR_OK && act->is_pending;
    if (act->status < 0) {
        a->is_precondition = act->is_precondition;
        finish(a, MR_FAIL(&a->err, act->status, "%.*s", MR_STR_ARG(act->text)));
    } else if (waits_for_end(a) && !m->is_ending) {
        a->waits = true;
        a->until_ns = live_now(m) + SYNC_MAX_NS;
    } else {
        report(m, a, NULL);
    }
}

void live_admin_settle(struct mr_mesh *m)
{
    for (struct mr_mesh_admin *a = m->admins.next, *next; a != &m->admins; a = next) {
        next = a->next;
        if (a->waits && (has_ended(m, a) || live_now(m) >= a->until_ns)) {
            report(m, a, NULL);
        }
    }
}

void live_admin_fini(struct mr_mesh *m)
{
    while (m->admins.next != &m->admins) {
        refuse(m->admins.next, MR_E_UNAVAILABLE, "the server ends");
    }
}

static void watch(struct mr_mesh *m, struct mr_mesh_admin *a)
{
    size_t count = 0;

    for (const struct mr_mesh_admin *o = m->admins.next; o != &m->admins; o = o->next) {
        count += o->kind == MR_MESH_CHANGES;
    }
    if (count > MR_MESH_WATCHES_MAX) {
        refuse(a, MR_E_EXHAUSTED, "256 watches are under way");
    } else if (!a->since || has_ended(m, a)) {
        report(m, a, NULL);
    } else {
        a->waits = true;
        a->until_ns = live_now(m) + WATCH_NS;
    }
}

/* ---- the way in ---- */

static void refuse_early(struct mr_mesh_admin *a)
{
    const struct live_runtime *r = a->mesh->runtime;
    const char *why = r ? live_runtime_why(r) : "";

    finish(a, MR_FAIL(&a->err, MR_E_UNAVAILABLE, "the server has not joined its mesh yet%s%s",
                      why[0] ? ", as its runtime is not ready: " : "", why));
}

/* The answer would say of what is not read yet that it is not there. Calls about one model or vmodel refuse this themselves. */
static bool needs_all(const struct mr_mesh_admin *a)
{
    return a->kind == MR_MESH_MODELS || a->kind == MR_MESH_VMODELS || a->kind == MR_MESH_CHANGES ||
           a->kind == MR_MESH_READY;
}

static void run_begin(struct mr_mail *mail)
{
    struct mr_mesh_admin *a = MR_CONTAINER_OF(mail, struct mr_mesh_admin, mail);
    struct mr_mesh *m = a->mesh;

    a->next = &m->admins;
    a->prev = m->admins.prev;
    a->prev->next = a->next->prev = a;
    if (atomic_load(&m->is_stopping)) {
        refuse(a, MR_E_UNAVAILABLE, "the server ends");
        return;
    }
    if (!m->registry) {
        refuse_early(a);
        return;
    }
    if (needs_all(a) && !registry_is_read(m->registry)) {
        refuse(a, MR_E_UNAVAILABLE, "the registry is still being read");
        return;
    }
    switch (a->kind) {
    case MR_MESH_STATE:
    case MR_MESH_READY: report(m, a, NULL); break;
    case MR_MESH_MODELS:
    case MR_MESH_VMODELS: list(a); break;
    case MR_MESH_CHANGES: watch(m, a); break;
    case MR_MESH_DRAIN:
        mesh_core_drain(m->core, live_now(m));
        report(m, a, NULL);
        live_acted(m);
        break;
    default: change(m, a); break;
    }
}

void mr_mesh_admin(struct mr_mesh *m, struct mr_mesh_admin *a)
{
    a->mesh = m;
    a->waits = a->is_pending = a->has_values = false;
    a->message = NULL;
    a->active_model = a->target_model = NULL;
    mr_arena_init(&a->arena, 4096, ARENA_MAX);
    a->mail.run = run_begin;
    mr_loop_post(m->loop, &a->mail);
}
