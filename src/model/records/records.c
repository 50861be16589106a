/* Records of models and versions: states with reasons, the readiness count, and the
 * queue of changes for hooks.changed.
 *
 * Records are guarded by the manager's lock. The hook runs without it, so that it may ask for a
 * report; changes go through a queue, and one thread at a time empties it, which keeps their order
 * although loaders and the reaper both make them. The thread that made a change waits until it is reported:
 * when a load is done, the hook has all of its changes.
 *
 * Readiness is a count of models, kept up with every change, so that a health check is one load. A
 * model with a version that serves is ready, whatever becomes of its other versions: a bad new
 * version in a repository that many servers share must not take all of them out of service. A model
 * that should serve and has no such version is not ready, loading or failed. Option strict_versions
 * asks for more: a version that failed counts until it serves or is given up, also while it is
 * tried again, so that the answer does not change with each attempt. */
#include "records.h"

#include <stdio.h>

#include "base/clock.h"
#include "load_history.h"
#include "table.h"
#include "version_labels.h"

/* One state change on its way to hooks.changed. */
struct mr_model_change {
    struct mr_model_change *next;
    char *name;
    char *reason;
    struct mr_version_change reported; /* without its texts */
};

const char *mr_version_state_name(enum mr_version_state s)
{
    static const char *const names[] = {"START",    "LOADING",  "WARMING", "READY",
                                        "DRAINING", "UNLOADED", "FAILED"};

    return (unsigned)s < sizeof names / sizeof *names ? names[s] : "UNKNOWN";
}

const char *mr_version_state_triton(enum mr_version_state s)
{
    switch (s) {
    case MR_VERSION_LOADING:
    case MR_VERSION_WARMING: return "LOADING";
    case MR_VERSION_READY: return "READY";
    case MR_VERSION_DRAINING: return "UNLOADING";
    case MR_VERSION_UNLOADED:
    case MR_VERSION_FAILED: return "UNAVAILABLE";
    case MR_VERSION_START: break;
    }
    return "UNKNOWN";
}

/* ---- models ---- */

struct mr_model *mr_model_get(struct mr_models *m, mr_str name)
{
    struct mr_model *model = mr_map_find(&m->models, name);

    if (model) {
        return model;
    }
    if (m->models.len >= MR_MODELS_MAX) {
        return NULL;
    }
    model = MR_NEW(struct mr_model);
    model->name = mr_str_n(mr_strndup(name.ptr, name.len), name.len);
    model->hash = mr_hash(name);
    mr_map_put(&m->models, name, model);
    return model;
}

static void record_fini(struct mr_version_record *r)
{
    mr_free(r->given);
    mr_free(r->reason);
    mr_free(r->warning);
    mr_free(r->config_json);
}

void mr_model_free(void *ptr)
{
    struct mr_model *model = ptr;

    for (size_t i = 0; i < model->records.len; i++) {
        record_fini(&model->records.at[i]);
    }
    MR_VEC_FINI(&model->records);
    mr_load_history_free(model);
    mr_labels_clear(model);
    mr_members_clear(model);
    mr_free((void *)(uintptr_t)atomic_load_explicit(&model->set, memory_order_relaxed));
    mr_free(model->error);
    mr_free((char *)model->name.ptr);
    mr_free(model);
}

/* A model is worth keeping while it does something, its folder is there, or a failure should be
 * seen. */
void mr_model_forget_if_empty(struct mr_models *m, struct mr_model *model)
{
    if (model->current || model->retry || model->draining > 0 || model->is_in_folder ||
        model->is_desired) {
        return;
    }
    for (size_t i = 0; i < model->records.len; i++) {
        if (model->records.at[i].state != MR_VERSION_UNLOADED) {
            return;
        }
    }
    mr_map_remove(&m->models, model->name);
    m->graph_count -= model->is_graph;
    if (model->is_in_table) {
        mr_table_remove(m, model);
        mr_retire_memory(m, model, mr_model_free);
    } else {
        mr_model_free(model);
    }
}

/* ---- records ---- */

bool mr_model_serves(const struct mr_model *model)
{
    for (size_t i = 0; i < model->records.len; i++) {
        if (model->records.at[i].state == MR_VERSION_READY) {
            return true;
        }
    }
    return false;
}

struct mr_version_record *mr_record_find(struct mr_model *model, int64_t number)
{
    for (size_t i = 0; i < model->records.len; i++) {
        if (model->records.at[i].number == number) {
            return &model->records.at[i];
        }
    }
    return NULL;
}

struct mr_version_record *mr_record_get(struct mr_model *model, int64_t number)
{
    struct mr_version_record *r = mr_record_find(model, number);
    size_t i;

    if (r) {
        return r;
    }
    MR_VEC_PUSH(&model->records, (struct mr_version_record){0});
    for (i = model->records.len - 1; i > 0 && model->records.at[i - 1].number > number; i--) {
        model->records.at[i] = model->records.at[i - 1];
    }
    model->records.at[i] =
        (struct mr_version_record){.number = number, .since_wall_ns = mr_wall_ns()};
    return &model->records.at[i];
}

void mr_record_remove(struct mr_model *model, size_t index)
{
    struct mr_version_record *at = model->records.at;

    record_fini(&at[index]);
    memmove(at + index, at + index + 1, (model->records.len - index - 1) * sizeof *at);
    model->records.len--;
}

static char *text_or_null(const char *s)
{
    return s && s[0] ? mr_strndup(s, strlen(s)) : NULL;
}

static void change_queue(struct mr_models *m, const struct mr_model *model, int64_t version,
                         enum mr_version_state state, const char *reason)
{
    struct mr_model_change *c = MR_NEW(struct mr_model_change);
    const struct mr_load_entry *entry = mr_load_entry_latest(model, version);

    c->name = mr_strndup(model->name.ptr, model->name.len);
    c->reason = text_or_null(reason);
    c->reported.version = version;
    c->reported.state = state;
    if (entry) {
        c->reported.file_bytes = entry->file_bytes;
        mr_load_entry_spent(entry, c->reported.spent_ns);
    }
    if (m->changes_last) {
        m->changes_last->next = c;
    } else {
        m->changes_first = c;
    }
    m->changes_last = c;
    m->changes_queued++;
}

static bool is_coming(enum mr_version_state state)
{
    return state == MR_VERSION_LOADING || state == MR_VERSION_WARMING;
}

void mr_record_set(struct mr_models *m, struct mr_model *model, struct mr_version_record *r,
                   enum mr_version_state state, const char *reason)
{
    mr_free(r->reason);
    mr_free(r->warning);
    r->reason = text_or_null(reason);
    r->warning = NULL;
    r->state = state;
    r->has_failed = state == MR_VERSION_FAILED || (r->has_failed && is_coming(state));
    r->since_wall_ns = mr_wall_ns();
    change_queue(m, model, r->number, state, reason);
}

void mr_record_warn(struct mr_models *m, struct mr_model *model, struct mr_version_record *r,
                    const char *warning)
{
    char text[600];

    mr_free(r->warning);
    r->warning = text_or_null(warning);
    snprintf(text, sizeof text, "reload failed, the previous one goes on: %s", warning);
    change_queue(m, model, r->number, r->state, text);
}

void mr_model_set_error(struct mr_models *m, struct mr_model *model, const char *reason)
{
    mr_free(model->error);
    model->error = text_or_null(reason);
    if (model->error) {
        model->error_wall_ns = mr_wall_ns();
        mr_table_add(m, model); /* health checks know it */
        change_queue(m, model, 0, MR_VERSION_FAILED, reason);
    }
}

void mr_model_clear_error(struct mr_models *m, struct mr_model *model)
{
    if (model->error) {
        mr_freep(&model->error);
        change_queue(m, model, 0, MR_VERSION_UNLOADED, "unloaded");
    }
}

/* ---- readiness ---- */

void mr_model_count_unready(struct mr_models *m, struct mr_model *model)
{
    bool serves = false;
    bool misses = model->error; /* something that should serve does not */
    bool has_failed = model->error;

    for (size_t i = 0; i < model->records.len; i++) {
        const struct mr_version_record *r = &model->records.at[i];
        bool is_ready = r->state == MR_VERSION_READY;
        serves |= is_ready;
        misses |= r->is_wanted && !is_ready;
        has_failed |= r->is_wanted && r->has_failed;
    }
    bool unready = model->is_desired && (serves ? m->o.strict_versions && has_failed : misses);
    if (unready != model->counts_unready) {
        model->counts_unready = unready;
        /* Relaxed: a count of its own; no other data is read by it. */
        atomic_fetch_add_explicit(&m->unready, unready ? 1 : -1, memory_order_relaxed);
    }
}

/* ---- the hook ---- */

static void change_report(struct mr_models *m, struct mr_model_change *c)
{
    if (m->hooks.changed) {
        c->reported.model = mr_str_c(c->name);
        c->reported.reason = mr_str_c(c->reason);
        m->hooks.changed(m->hooks.ctx, &c->reported);
    }
    mr_free(c->name);
    mr_free(c->reason);
    mr_free(c);
}

void mr_changes_report(struct mr_models *m)
{
    pthread_mutex_lock(&m->lock);
    uint64_t until = m->changes_queued;
    while (m->changes_reported < until) {
        struct mr_model_change *c = m->changes_first;
        if (m->is_telling) {
            pthread_cond_wait(&m->reported, &m->lock);
            continue;
        }
        m->is_telling = true;
        m->changes_first = c->next;
        if (!c->next) {
            m->changes_last = NULL;
        }
        pthread_mutex_unlock(&m->lock);
        change_report(m, c);
        pthread_mutex_lock(&m->lock);
        m->is_telling = false;
        m->changes_reported++;
        pthread_cond_broadcast(&m->reported);
    }
    pthread_mutex_unlock(&m->lock);
}

void mr_members_clear(struct mr_model *model)
{
    for (size_t i = 0; i < model->members.len; i++) {
        mr_free(model->members.at[i]);
    }
    MR_VEC_FINI(&model->members);
}
