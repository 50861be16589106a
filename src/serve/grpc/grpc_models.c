/* millrace.ModelControl: the calls of rest_versions.c and the end of rest_repo.c over gRPC. */
#include <stdio.h>

#include "methods_priv.h"
#include "models.pb-c.h"
#include "serve/admin/admin.h"
#include "serve/state/grpc_reply.h"
#include "serve/state/state.h"

typedef Millrace__ModelVersionsResponse__Load load_message;
typedef Millrace__ModelVersionsResponse__Load__Phase phase_message;
typedef Millrace__ModelVersionsResponse__Load__Progress progress_message;
typedef Millrace__ModelVersionsResponse__Load__Memory memory_message;

/* ---- versions ---- */

struct versions_job {
    struct admin_job job;
    struct mr_server *server;
    struct mr_grpc_call *g;
    mr_str model; /* in the call's arena */
    struct mr_arena arena;
    Millrace__ModelVersionsResponse *message; /* in `arena`, NULL = no room */
    struct mr_err err;
    int rc;
};

static char *text_of(struct mr_arena *a, mr_str s)
{
    return (char *)(uintptr_t)mr_arena_str(a, s).ptr;
}

static char *number_of(struct mr_arena *a, int64_t n)
{
    return (char *)(uintptr_t)(n ? mr_arena_printf(a, "%lld", (long long)n) : MR_STR("")).ptr;
}

static bool add_phases(struct mr_arena *a, const struct mr_load_view *l, load_message *to)
{
    phase_message *p = MR_ARENA_ARRAY(a, phase_message, MR_VERSION_STATES);

    to->phases = MR_ARENA_ARRAY(a, phase_message *, MR_VERSION_STATES);
    for (int i = 0; p && to->phases && i < MR_VERSION_STATES; i++) {
        if (l->entered_wall_ns[i] == 0) {
            continue;
        }
        millrace__model_versions_response__load__phase__init(&p[i]);
        p[i].state = (char *)(uintptr_t)mr_version_state_name((enum mr_version_state)i);
        p[i].entered_unix_ns = l->entered_wall_ns[i];
        p[i].spent_ns = l->spent_ns[i];
        to->phases[to->n_phases++] = &p[i];
    }
    return p && to->phases;
}

static bool add_labels(struct mr_arena *a, const struct mr_model_view *view,
                       const struct mr_load_view *l, load_message *to)
{
    to->labels = MR_ARENA_ARRAY(a, char *, view->label_count + 1);
    for (size_t i = 0; to->labels && i < view->label_count; i++) {
        if (l->state != MR_VERSION_READY || view->labels[i].version != l->version) {
            continue;
        }
        char *name = text_of(a, view->labels[i].name);
        if (!name) {
            return false;
        }
        to->labels[to->n_labels++] = name;
    }
    return to->labels != NULL;
}

static bool add_progress(struct mr_arena *a, const struct mr_progress_view *p, load_message *to)
{
    to->progress = MR_ARENA_NEW(a, progress_message);
    if (!to->progress) {
        return false;
    }
    millrace__model_versions_response__load__progress__init(to->progress);
    to->progress->step = (char *)(uintptr_t)p->step;
    to->progress->done_bytes = p->done_bytes;
    to->progress->total_bytes = p->total_bytes;
    to->progress->bytes_per_second = p->bytes_per_second;
    to->progress->left_ns = p->left_ns;
    return true;
}

static bool add_memory(struct mr_arena *a, const struct mr_memory_view *m, load_message *to)
{
    to->memory = MR_ARENA_NEW(a, memory_message);
    if (!to->memory) {
        return false;
    }
    millrace__model_versions_response__load__memory__init(to->memory);
    if (m->is_known) {
        to->memory->parameters = text_of(a, mr_str_c(m->is_apart ? "pool" : "plain"));
    }
    to->memory->reason = text_of(a, m->reason);
    to->memory->mapped_bytes = m->mapped_bytes;
    to->memory->kept_bytes = m->kept_bytes;
    to->memory->pool_bytes = m->pool_bytes;
    to->memory->heap_bytes = m->heap_bytes;
    to->memory->resident_bytes = m->resident_bytes;
    if (m->grown_bytes != MR_MEMORY_UNKNOWN) {
        to->memory->grown_is_known = true;
        to->memory->grown_bytes = m->grown_bytes;
    }
    if (m->released_bytes != MR_MEMORY_UNKNOWN) {
        to->memory->released_is_known = true;
        to->memory->released_bytes = m->released_bytes;
    }
    return to->memory->parameters && to->memory->reason;
}

static load_message *load_of(struct mr_arena *a, const struct mr_model_view *view,
                             const struct mr_load_view *l)
{
    load_message *to = MR_ARENA_NEW(a, load_message);

    if (!to) {
        return NULL;
    }
    millrace__model_versions_response__load__init(to);
    to->version = number_of(a, l->version);
    to->state = (char *)(uintptr_t)mr_version_state_name(l->state);
    to->reason = text_of(a, l->reason);
    to->file_bytes = l->file_bytes;
    to->model_bytes = l->model_bytes;
    to->release_ns = l->release_ns;
    bool is_whole = add_phases(a, l, to) && add_labels(a, view, l, to) &&
                    (!l->progress.step || add_progress(a, &l->progress, to)) &&
                    (l->entered_wall_ns[MR_VERSION_READY] == 0 || add_memory(a, &l->memory, to));
    return is_whole && to->version && to->reason ? to : NULL;
}

static void see_model(void *ctx, const struct mr_model_view *view)
{
    struct versions_job *j = ctx;
    struct mr_arena *a = &j->arena;
    Millrace__ModelVersionsResponse *m = MR_ARENA_NEW(a, Millrace__ModelVersionsResponse);

    if (!m) {
        return;
    }
    millrace__model_versions_response__init(m);
    m->model_name = text_of(a, view->name);
    m->default_version = number_of(a, view->default_version);
    m->rolled_back_to = number_of(a, view->pinned);
    m->error = text_of(a, view->error);
    m->loads = MR_ARENA_ARRAY(a, load_message *, view->load_count + 1);
    for (size_t i = 0; m->loads && i < view->load_count; i++) {
        m->loads[i] = load_of(a, view, &view->loads[i]);
        if (!m->loads[i]) {
            return;
        }
        m->n_loads++;
    }
    if (m->loads && m->model_name && m->default_version && m->rolled_back_to && m->error) {
        j->message = m;
    }
}

static void versions_run(struct admin_job *job)
{
    struct versions_job *j = MR_CONTAINER_OF(job, struct versions_job, job);

    j->rc = mr_models_versions(j->server->models, j->model, see_model, j, &j->err);
}

static void versions_done(struct admin_job *job)
{
    struct versions_job *j = MR_CONTAINER_OF(job, struct versions_job, job);

    if (j->rc < 0) {
        grpc_fail_err(j->g, &j->err);
    } else if (!j->message) {
        mr_grpc_fail(j->g, MR_GRPC_RESOURCE_EXHAUSTED,
                     MR_STR("the report is larger than the server allows"));
    } else {
        grpc_reply_message(j->g, &j->message->base);
    }
    mr_arena_fini(&j->arena);
    mr_free(j);
}

void grpc_model_versions(struct mr_server *s, struct mr_grpc_call *g)
{
    Millrace__ModelVersionsRequest *q =
        grpc_request(g, &millrace__model_versions_request__descriptor);

    if (!q) {
        return;
    }
    struct versions_job *j = MR_NEW(struct versions_job);
    j->server = s;
    j->g = g;
    j->model = mr_str_c(q->model_name);
    j->job.run = versions_run;
    j->job.done = versions_done;
    mr_arena_init(&j->arena, 4096, 16u << 20);
    admin_submit(s, &j->job);
}

/* ---- labels and rollback ---- */

void grpc_model_label(struct mr_server *s, struct mr_grpc_call *g)
{
    Millrace__ModelLabelRequest *q = grpc_request(g, &millrace__model_label_request__descriptor);
    struct mr_err err = {0};

    if (!q) {
        return;
    }
    err.status = mr_models_label(s->models, mr_str_c(q->model_name), mr_str_c(q->label),
                                 mr_str_c(q->version), &err);
    if (err.status < 0) {
        grpc_fail_err(g, &err);
    } else {
        mr_grpc_reply(g, NULL, 0, MR_GRPC_IDENTITY);
    }
}

void grpc_model_rollback(struct mr_server *s, struct mr_grpc_call *g)
{
    Millrace__ModelRollbackRequest *q =
        grpc_request(g, &millrace__model_rollback_request__descriptor);
    struct grpc_control *c = q ? grpc_control_new(g, "") : NULL;

    if (c) {
        mr_models_rollback(s->models, mr_str_c(q->model_name), mr_str_c(q->version),
                           grpc_control_done, c);
    }
}
