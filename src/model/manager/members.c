/* Models that are a graph of others: their loads wait for those of the others, which they may ask for, and what a workflow
 * that serves asks is not unloaded; ensembles go with it (users.c).
 *
 * A load that waits takes no thread: it ends with MR_PENDING, is kept in a list, and is queued again when no load of its
 * members is open. If all open loads wait, they wait for each other, and all of them go on as they are.
 *
 * Thread: loaders; the list and the names of members are guarded by the manager's lock. */
#include "members.h"

#include <stdio.h>

#include "base/map.h"
#include "codec/json.h"
#include "jobs.h"
#include "load.h"
#include "model/records/job.h"
#include "model/records/records.h"
#include "model/remote.h"
#include "retry.h"
#include "users.h"

/* ---- the members of a model ---- */

static bool has_member(const struct mr_model *model, mr_str name)
{
    for (size_t i = 0; i < model->members.len; i++) {
        if (mr_str_eq_c(name, model->members.at[i])) {
            return true;
        }
    }
    return false;
}

struct collect {
    struct mr_model *model;
    struct mr_map seen;
};

/* mr_config_members.each */
static void member_add(void *ctx, const char *name)
{
    struct collect *k = ctx;

    if (!mr_str_eq_c(k->model->name, name) && !mr_map_put(&k->seen, mr_str_c(name), k)) {
        MR_VEC_PUSH(&k->model->members, mr_strndup(name, strlen(name)));
    }
}

/* What is asked by the versions that serve: a load whose configuration is refused has changed the list of members only.
 * Lock held. */
static void serving_give(const struct mr_model *model, void (*each)(void *ctx, const char *name),
                         void *ctx)
{
    for (size_t i = 0; i < model->records.len; i++) {
        const struct mr_version_record *r = &model->records.at[i];
        if (r->state == MR_VERSION_READY) {
            mr_config_members(mr_version_private_of(r->v)->config, each, ctx);
        }
    }
}

/* NULL: of the versions that serve. Lock held. */
static void members_set(struct mr_model *model, const Inference__ModelConfig *c)
{
    struct collect k = {.model = model};

    mr_members_clear(model);
    if (c) {
        mr_config_members(c, member_add, &k);
    } else {
        serving_give(model, member_add, &k);
    }
    mr_map_fini(&k.seen);
}

/* ---- loads that wait ---- */

#define ASKED_MAX 16

/* Lock held. */
static bool is_open(struct mr_models *m, const struct mr_model *model)
{
    for (size_t i = 0; i < model->members.len; i++) {
        const struct mr_model *member = mr_map_find(&m->models, mr_str_c(model->members.at[i]));
        if (member && member->current) {
            return true;
        }
    }
    return m->is_submitting && model->members.len > 0;
}

/* Lock held. A graph that asks the model is opened now. */
static bool is_awaited(struct mr_models *m, const struct mr_model *model)
{
    struct mr_map_slot *slot;

    for (size_t i = 0; m->graph_count > 0 && (slot = mr_map_next(&m->models, &i));) {
        const struct mr_model *graph = slot->value;
        if (graph->current && graph->current->is_opening && has_member(graph, model->name)) {
            return true;
        }
    }
    return false;
}

/* Lock held. One that was cancelled has nothing to wait for. */
static bool waits(struct mr_models *m, const struct mr_job *job)
{
    /* Relaxed: it is set under the lock. */
    if (atomic_load_explicit(&job->is_cancelled, memory_order_relaxed)) {
        return false;
    }
    return job->waits_for_users    ? mr_users_serve(m, job->model)
           : job->waits_for_graphs ? is_awaited(m, job->model)
                                   : is_open(m, job->model);
}

/* A client's load of a graph loads what is in it, too; so do names of the command line. Once, but where models are evicted: one that was
 * ready may be gone before the others are. */
static bool asks(const struct mr_models *m, const struct mr_job *job)
{
    return m->o.control == MR_MODEL_CONTROL_EXPLICIT && job->kind == MR_JOB_LOAD &&
           job->asked < (m->o.graphs_stay ? ASKED_MAX : 1);
}

/* Lock held. It serves or is about to, whatever comes before its last job. */
static bool is_coming(const struct mr_model *model)
{
    const struct mr_job *last = model->waiting_last ? model->waiting_last : model->current;

    return last ? last->kind != MR_JOB_UNLOAD : mr_model_serves(model);
}

/* Lock held. It was ready, and has been unloaded since. */
static bool has_gone(const struct mr_model *model)
{
    bool has_failed = false;
    bool was_there = false;

    for (size_t i = 0; i < model->records.len; i++) {
        has_failed |= model->records.at[i].has_failed;
        was_there |= model->records.at[i].state == MR_VERSION_DRAINING ||
                     model->records.at[i].state == MR_VERSION_UNLOADED;
    }
    return was_there && !has_failed && !model->error;
}

/* Asks for the members that are not coming; again only for those that have gone. True: some were asked for. */
static bool members_load(struct mr_load *l)
{
    MR_VEC(char *) names = {0};
    struct mr_models *m = l->m;

    pthread_mutex_lock(&m->lock);
    for (size_t i = 0; i < l->model->members.len; i++) {
        const char *name = l->model->members.at[i];
        const struct mr_model *member = mr_map_find(&m->models, mr_str_c(name));
        const bool is_due = l->job->asked == 0 || (member && has_gone(member));
        if (is_due && (!member || !is_coming(member))) {
            MR_VEC_PUSH(&names, mr_strndup(name, strlen(name)));
        }
    }
    pthread_mutex_unlock(&m->lock);
    for (size_t i = 0; i < names.len; i++) {
        struct mr_err ignored;
        if (mr_model_name_check(mr_str_c(names.at[i]), &ignored) == MR_OK) {
            mr_job_submit(m, mr_job_new(MR_JOB_LOAD, NULL, NULL), mr_str_c(names.at[i]));
        }
        mr_free(names.at[i]);
    }
    const bool any = names.len > 0;
    MR_VEC_FINI(&names);
    return any;
}

/* ---- models of other servers ---- */

static void put_parameter(struct mr_buf *b, const char *key, mr_str value)
{
    mr_buf_printf(b, "%s\"%s\":{\"string_value\":", b->ptr[b->len - 1] == '{' ? "" : ",", key);
    mr_json_put_string(b, value);
    MR_BUF_LIT(b, "}");
}

static struct mr_job *remote_job(const struct mr_remote_model *r)
{
    struct mr_job *job = mr_job_new(MR_JOB_LOAD, NULL, NULL);
    struct mr_buf b;

    mr_buf_init(&b, 0);
    MR_BUF_LIT(&b, "{\"platform\":\"" MR_CONFIG_REMOTE "\",\"parameters\":{");
    put_parameter(&b, "remote", r->hosts);
    put_parameter(&b, "model", r->model);
    put_parameter(&b, "version", r->version);
    MR_BUF_LIT(&b, "}}");
    job->config_json = mr_strndup(b.ptr, b.len);
    job->config_len = b.len;
    job->files = MR_NEW_ARRAY(struct mr_job_file, 1);
    job->files[0] = (struct mr_job_file){mr_strndup("1/remote", 8), mr_alloc(1), 0};
    job->file_count = 1;
    job->is_remote = true;
    mr_buf_fini(&b);
    return job;
}

static bool is_there(struct mr_models *m, const char *name)
{
    pthread_mutex_lock(&m->lock);
    const struct mr_model *model = mr_map_find(&m->models, mr_str_c(name));
    const bool is_there = model && is_coming(model);
    pthread_mutex_unlock(&m->lock);
    return is_there;
}

void mr_models_remote(struct mr_models *m, const struct mr_remote_model *r)
{
    char *name = mr_remote_name(r);
    struct mr_err ignored;

    if (mr_model_name_check(mr_str_c(name), &ignored) == MR_OK && !is_there(m, name)) {
        mr_job_submit(m, remote_job(r), mr_str_c(name));
    }
    mr_free(name);
}

static void remote_ask(void *ctx, const struct mr_remote_model *r)
{
    mr_models_remote(ctx, r);
}

bool mr_members_wait(struct mr_load *l)
{
    struct mr_models *m = l->m;
    struct mr_job *job = l->job;

    if (job->asked == 0 && !mr_load_is_requested(l)) { /* it is refused when it is opened */
        mr_config_remotes(l->config, remote_ask, m);
    }
    pthread_mutex_lock(&m->lock);
    m->graph_count += !l->model->is_graph;
    l->model->is_graph = true;
    members_set(l->model, l->config);
    const bool is_open_now = is_open(m, l->model);
    job->is_opening = m->o.graphs_stay && !is_open_now && mr_members_are_ready(m, l->model);
    pthread_mutex_unlock(&m->lock);
    if (job->waits_no_more) {
        return false;
    }
    const bool has_asked = asks(m, job) && members_load(l);
    job->asked += job->asked < UINT_MAX;
    if (has_asked) {
        pthread_mutex_lock(&m->lock);
        job->is_opening = false;
        pthread_mutex_unlock(&m->lock);
    }
    return has_asked || is_open_now;
}

void mr_members_defer(struct mr_models *m, struct mr_job *job)
{
    job->is_running = false;
    job->has_place = false;
    job->is_deferred = true;
    job->next = m->deferred;
    m->deferred = job;
    m->deferred_count++;
}

void mr_members_take(struct mr_models *m, struct mr_job *job)
{
    struct mr_job **at = &m->deferred;

    while (*at != job) {
        at = &(*at)->next;
    }
    *at = job->next;
    job->is_deferred = job->waits_for_users = job->waits_for_graphs = false;
    m->deferred_count--;
}

struct mr_job *mr_members_next(struct mr_models *m)
{
    /* All open loads wait for each other. Relaxed: what counts is decided under the lock. */
    const bool is_last =
        mr_jobs_are_stuck(m) || atomic_load_explicit(&m->is_stopping, memory_order_relaxed);

    struct mr_job *job = m->deferred;

    while (job && waits(m, job)) {
        job = job->next;
    }
    if (!job && is_last) {
        job = m->deferred;
    }
    if (job) {
        job->waits_no_more |= is_last && waits(m, job);
        mr_members_take(m, job);
    }
    return job;
}

bool mr_members_are_ready(struct mr_models *m, const struct mr_model *graph)
{
    for (size_t i = 0; i < graph->members.len; i++) {
        const struct mr_model *member = mr_map_find(&m->models, mr_str_c(graph->members.at[i]));
        if (!member || !mr_model_serves(member)) {
            return false;
        }
    }
    return true;
}

void mr_members_hasten(struct mr_models *m, const struct mr_model *ready)
{
    struct mr_job *job = m->retries;

    m->publishes++;
    while (job) {
        if (job->due_ns > 0 && has_member(job->model, ready->name) &&
            (!job->is_return || mr_members_are_ready(m, job->model))) {
            mr_retry_now(m, job->model);
            job = m->retries; /* the list has changed */
        } else {
            job = job->next;
        }
    }
}

/* ---- unloading ---- */

struct search {
    mr_str name;
    bool is_found;
};

/* mr_config_members.each */
static void name_compare(void *ctx, const char *name)
{
    struct search *s = ctx;

    s->is_found |= mr_str_eq_c(s->name, name);
}

bool mr_members_ask(const struct mr_model *graph, const struct mr_model *model)
{
    struct search s = {.name = model->name};

    if (graph->is_graph && graph != model) {
        serving_give(graph, name_compare, &s);
    }
    return s.is_found;
}

/* Lock held. A graph that serves and asks this model. */
static bool is_used(struct mr_models *m, const struct mr_model *model)
{
    struct mr_map_slot *slot;

    for (size_t i = 0; m->graph_count > 0 && (slot = mr_map_next(&m->models, &i));) {
        if (mr_members_ask(slot->value, model)) {
            return true;
        }
    }
    return false;
}

/* Models that are to go. */
struct reach {
    struct mr_map names;
    bool is_found;
};

/* mr_config_members.each */
static void name_find(void *ctx, const char *name)
{
    struct reach *r = ctx;

    r->is_found |= mr_map_find(&r->names, mr_str_c(name)) != NULL;
}

/* Lock held. Adds a graph that asks one of them and goes with it. True: it is new. *out_stays: it does not go. */
static bool reach_add(struct mr_models *m, struct reach *r, struct mr_model *graph, bool *out_stays)
{
    if (!graph->is_graph || mr_map_find(&r->names, graph->name)) {
        return false;
    }
    r->is_found = false;
    serving_give(graph, name_find, r);
    *out_stays |= r->is_found && !mr_user_goes_along(m, graph);
    return r->is_found && !mr_map_put(&r->names, graph->name, graph);
}

/* Lock held. A graph that serves and stays asks the model, or one that would go with it. */
static bool is_needed(struct mr_models *m, struct mr_model *model)
{
    struct reach r = {0};
    bool is_new = m->graph_count > 0;
    bool stays = false;
    struct mr_map_slot *slot;

    mr_map_put(&r.names, model->name, model);
    while (is_new && !stays) {
        is_new = false;
        for (size_t i = 0; !stays && (slot = mr_map_next(&m->models, &i));) {
            is_new |= reach_add(m, &r, slot->value, &stays);
        }
    }
    mr_map_fini(&r.names);
    return stays;
}

bool mr_models_is_asked_by(struct mr_models *m, mr_str name, mr_str by)
{
    struct reach r = {0};
    struct mr_map_slot *slot;
    bool ignored = false;

    pthread_mutex_lock(&m->lock);
    bool is_new = m->graph_count > 0;
    mr_map_put(&r.names, name, m);
    while (is_new) {
        is_new = false;
        for (size_t i = 0; (slot = mr_map_next(&m->models, &i));) {
            is_new |= reach_add(m, &r, slot->value, &ignored);
        }
    }
    const bool is = mr_map_find(&r.names, by) != NULL;
    pthread_mutex_unlock(&m->lock);
    mr_map_fini(&r.names);
    return is;
}

int mr_members_check_unload(struct mr_models *m, const struct mr_job *job, struct mr_err *err)
{
    struct mr_model *model = job->model;
    char numbers[200] = "";
    size_t len = 0;

    pthread_mutex_lock(&m->lock);
    const bool is_held =
        !job->is_for_member && !m->o.graphs_stay && mr_model_serves(model) && is_needed(m, model);
    model->is_unload_due = is_held;
    if (model->is_graph && !is_held && mr_model_serves(model)) {
        members_set(model, NULL); /* for mr_members_unload */
    }
    for (size_t i = 0; is_held && i < model->records.len && len < sizeof numbers - 24; i++) {
        if (model->records.at[i].state == MR_VERSION_READY) {
            len += (size_t)snprintf(numbers + len, sizeof numbers - len, "%s%lld", len ? "," : "",
                                    (long long)model->records.at[i].number);
        }
    }
    pthread_mutex_unlock(&m->lock);
    return is_held ? MR_FAIL(err, MR_E_INTERNAL,
                             "failed to unload '%.128s', versions that are still available: %s",
                             model->name.ptr, numbers)
                   : MR_OK;
}

bool mr_members_await_open(struct mr_models *m, struct mr_job *job)
{
    pthread_mutex_lock(&m->lock);
    job->waits_for_graphs =
        !job->waits_no_more && mr_model_serves(job->model) && is_awaited(m, job->model);
    const bool waits = job->waits_for_graphs;
    pthread_mutex_unlock(&m->lock);
    return waits;
}

/* The caller of an unload waits for those of the members as well. */
struct chain {
    _Atomic size_t left;
    mr_models_done_fn *done;
    void *ctx;
};

static void chain_done(void *ctx, int rc, const struct mr_err *err)
{
    struct chain *k = ctx;
    const struct mr_err none = {0};

    (void)rc; /* a member that stays is asked by another graph by now */
    (void)err;
    if (atomic_fetch_sub_explicit(&k->left, 1, memory_order_acq_rel) > 1) {
        return;
    }
    if (k->done) {
        k->done(k->ctx, MR_OK, &none);
    }
    mr_free(k);
}

void mr_members_unload(struct mr_models *m, struct mr_job *job)
{
    MR_VEC(char *) names = {0};

    pthread_mutex_lock(&m->lock);
    for (size_t i = 0; i < job->model->members.len; i++) {
        const char *name = job->model->members.at[i];
        const struct mr_model *member = mr_map_find(&m->models, mr_str_c(name));
        if (member && mr_model_serves(member) && (job->dependents || member->is_unload_due) &&
            !is_used(m, member)) {
            MR_VEC_PUSH(&names, mr_strndup(name, strlen(name)));
        }
    }
    struct chain *k = names.len > 0 ? MR_NEW(struct chain) : NULL;
    if (k) {
        atomic_init(&k->left, names.len);
        k->done = job->done;
        k->ctx = job->ctx;
        job->done = NULL;
    }
    pthread_mutex_unlock(&m->lock);
    for (size_t i = 0; i < names.len; i++) {
        struct mr_job *one = mr_job_new(MR_JOB_UNLOAD, chain_done, k);
        one->dependents = job->dependents;
        mr_job_submit(m, one, mr_str_c(names.at[i]));
        mr_free(names.at[i]);
    }
    MR_VEC_FINI(&names);
}
