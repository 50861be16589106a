/* How a load ends, and an unload.
 *
 * The versions of a load become visible together, by one store, when all of them are ready; if one
 * fails, the others of the same load are taken back and what served before goes on. Versions that
 * the policy no longer names leave the table in the same store and are ended by the reaper.
 *
 * Runs on a loader thread; takes the lock for the changes of records only. */
#include "publish.h"

#include <stdio.h>

#include "base/clock.h"
#include "base/log.h"
#include "load.h"
#include "members.h"
#include "model/records/held.h"
#include "model/records/job.h"
#include "model/records/load_history.h"
#include "model/records/records.h"
#include "model/records/table.h"
#include "model/records/version_labels.h"
#include "model/version/version.h"

#define CONFIG_KEPT ((size_t)1 << 20)

void mr_version_retire(struct mr_models *m, struct mr_model *model, struct mr_version *v)
{
    struct mr_version_private *p = mr_version_private_of(v);

    /* Relaxed: both are hints for readers who hold a pin; the table decides. */
    atomic_store_explicit(&v->retiring, true, memory_order_relaxed);
    atomic_store_explicit(&v->state, MR_VERSION_DRAINING, memory_order_relaxed);
    mr_load_entry_set(m, model, p->entry, MR_VERSION_DRAINING, "");
    p->next = m->retired_versions;
    m->retired_versions = p;
    model->draining++;
    m->draining++;
    pthread_cond_signal(&m->reap);
}

/* What came with files of its own cannot be made again. */
static void config_keep(const struct mr_load *l, struct mr_version_record *r)
{
    bool is_kept = l->config_json && l->job->file_count == 0 && l->config_len <= CONFIG_KEPT;

    mr_free(r->config_json);
    r->config_json = is_kept ? mr_strndup(l->config_json, l->config_len) : NULL;
    r->config_len = l->config_len;
}

static void fresh_publish(struct mr_load *l, struct mr_fresh *f)
{
    struct mr_version_record *r = mr_record_get(l->model, f->from->number);
    struct mr_version *v = &f->made->v;
    bool had = r->state == MR_VERSION_READY;

    if (had) {
        mr_version_retire(l->m, l->model, r->v);
        mr_held_add(l->m, l->model, r->v);
    }
    /* Relaxed: mr_table_publish releases it. */
    atomic_store_explicit(&v->state, MR_VERSION_READY, memory_order_relaxed);
    r->v = v;
    r->load_ns = v->load_ns;
    r->file_bytes = v->file_bytes;
    r->model_bytes = v->executor->ops->bytes(v->executor);
    config_keep(l, r);
    r->is_wanted = true;
    r->failed_fingerprint = 0;
    f->entry->model_bytes = r->model_bytes;
    mr_load_entry_memory(f->entry, v->executor, f->grown_bytes);
    mr_load_entry_set(l->m, l->model, f->entry, MR_VERSION_READY, "");
    mr_record_set(l->m, l->model, r, MR_VERSION_READY, "");
    f->made = NULL;
}

static bool folder_wants(const struct mr_load *l, int64_t number, bool *out_exists)
{
    for (size_t i = 0; i < l->folder.versions.len; i++) {
        if (l->folder.versions.at[i].number == number) {
            *out_exists = true;
            return l->is_wanted[i];
        }
    }
    *out_exists = false;
    return false;
}

/* A label may have been put on the version since the load was planned. */
static bool is_to_stay(const struct mr_load *l, int64_t number, bool *out_exists)
{
    return folder_wants(l, number, out_exists) ||
           (*out_exists && mr_labels_keep(l->model, l->labels_are_new ? &l->labels : NULL, number));
}

/* What the load leaves out, or of this only versions whose folders are gone: ready versions retire, records of versions
 * that are gone are dropped. */
static void others_retire(struct mr_load *l, bool only_gone)
{
    for (size_t i = l->model->records.len; i-- > 0;) {
        struct mr_version_record *r = &l->model->records.at[i];
        bool exists;
        if (is_to_stay(l, r->number, &exists) || (only_gone && exists)) {
            continue;
        }
        r->is_wanted = false;
        r->failed_fingerprint = 0; /* it is tried when it is wanted again */
        mr_labels_drop(l->model, r->number);
        if (r->state == MR_VERSION_READY) {
            mr_version_retire(l->m, l->model, r->v);
            mr_held_add(l->m, l->model, r->v);
            mr_record_set(l->m, l->model, r, MR_VERSION_DRAINING, "");
        } else if (!exists && !r->v) {
            mr_record_remove(l->model, i);
        } else if (r->state == MR_VERSION_FAILED) {
            mr_record_set(l->m, l->model, r, MR_VERSION_UNLOADED, "unloaded");
        }
    }
}

/* ---- switch policy `resource` ---- */

static enum mr_switch_policy switch_policy_of(const struct mr_load *l)
{
    const char *given = mr_config_parameter(l->config, "millrace.switch_policy");

    if (!given) {
        return l->m->o.switch_policy;
    }
    return strcmp(given, "resource") == 0 ? MR_SWITCH_RESOURCE : MR_SWITCH_AVAILABILITY;
}

static bool is_made_anew(const struct mr_load *l, int64_t number)
{
    for (size_t i = 0; i < l->fresh.len; i++) {
        if (l->fresh.at[i].from->number == number) {
            return true;
        }
    }
    return false;
}

/* Lock held. */
static void replaced_retire(struct mr_load *l)
{
    for (size_t i = 0; i < l->model->records.len; i++) {
        struct mr_version_record *r = &l->model->records.at[i];
        bool exists;
        if (r->state == MR_VERSION_READY &&
            (is_made_anew(l, r->number) || !is_to_stay(l, r->number, &exists))) {
            mr_version_retire(l->m, l->model, r->v);
            mr_record_set(l->m, l->model, r, MR_VERSION_DRAINING, "");
        }
    }
    mr_table_publish(l->m, l->model);
    mr_model_count_unready(l->m, l->model);
}

/* Lock held. False: requests still hold a version when the time is over. */
static bool drained_wait(struct mr_load *l)
{
    struct mr_models *m = l->m;
    int64_t until = mr_ns_after(mr_now_ns(), m->o.drain_wait_ns);
    struct timespec ts = {until / MR_NS_PER_S, until % MR_NS_PER_S};
    int rc = 0;

    mr_load_place_leave(m, l->job);
    while (l->model->draining > 0 && rc == 0 && !mr_job_is_unwanted(m, l->job)) {
        rc = pthread_cond_timedwait(&m->idle, &m->lock, &ts);
    }
    mr_load_place_take(m, l->job);
    return l->model->draining == 0;
}

int mr_load_retire_first(struct mr_load *l, struct mr_err *err)
{
    if (switch_policy_of(l) != MR_SWITCH_RESOURCE) {
        return MR_OK;
    }
    pthread_mutex_lock(&l->m->lock);
    replaced_retire(l);
    pthread_mutex_unlock(&l->m->lock);
    mr_changes_report(l->m);
    pthread_mutex_lock(&l->m->lock);
    bool is_drained = drained_wait(l);
    for (size_t i = 0; i < l->fresh.len && is_drained; i++) {
        struct mr_version_record *r = mr_record_get(l->model, l->fresh.at[i].from->number);
        if (r->state != MR_VERSION_LOADING) {
            mr_record_set(l->m, l->model, r, MR_VERSION_LOADING, "");
        }
    }
    mr_table_publish(l->m, l->model);
    pthread_mutex_unlock(&l->m->lock);
    mr_changes_report(l->m);
    return is_drained ? MR_OK
                      : MR_FAIL(err, MR_E_DEADLINE,
                                "requests still hold the version that was retired to make room");
}

/* ---- the end ---- */

/* Lock held. An ensemble whose model was unloaded while it was loaded. */
static bool is_without_member(const struct mr_load *l)
{
    return l->fresh.len > 0 && mr_config_is_graph(l->config) && !mr_config_is_workflow(l->config) &&
           !l->m->o.graphs_stay && !mr_members_are_ready(l->m, l->model);
}

bool mr_load_publish(struct mr_load *l)
{
    pthread_mutex_lock(&l->m->lock);
    if (atomic_load_explicit(&l->job->is_cancelled, memory_order_relaxed) || is_without_member(l)) {
        pthread_mutex_unlock(&l->m->lock);
        return false;
    }
    for (size_t i = 0; i < l->fresh.len; i++) {
        fresh_publish(l, &l->fresh.at[i]);
    }
    if (l->labels_are_new) {
        mr_labels_take(l->model, &l->labels, l->labels_given);
    }
    l->model->pinned = l->pin;
    l->model->tries = 0;
    bool stays = l->config_json && l->job->file_count == 0 && !l->job->is_rollback;
    l->model->override_fingerprint = stays ? mr_load_files_fingerprint(l) : 0;
    others_retire(l, false);
    for (size_t i = 0; i < l->model->records.len; i++) {
        struct mr_version_record *r = &l->model->records.at[i];
        mr_free(r->warning); /* whatever failed before is overcome */
        r->warning = NULL;
    }
    mr_model_set_error(l->m, l->model, NULL);
    mr_members_hasten(l->m, l->model);
    mr_table_publish(l->m, l->model);
    mr_model_count_unready(l->m, l->model);
    pthread_mutex_unlock(&l->m->lock);
    return true;
}

/* The version goes on although its reload failed: that must be seen somewhere. Lock held. */
static void reload_warn(struct mr_load *l, struct mr_version_record *r, const char *reason)
{
    mr_record_warn(l->m, l->model, r, reason);
    mr_log(MR_LOG_WARN, "model.reload_failed", "model=%s version=%lld the previous one goes on: %s",
           MR_LOG_STR(l->model->name), (long long)r->number, reason);
}

void mr_load_take_back(struct mr_load *l)
{
    const char *others = "taken back because another version of the same load failed";
    bool is_cancelled = atomic_load_explicit(&l->job->is_cancelled, memory_order_relaxed);
    enum mr_version_state end = is_cancelled ? MR_VERSION_UNLOADED : MR_VERSION_FAILED;

    for (size_t i = 0; i < l->fresh.len; i++) {
        if (l->fresh.at[i].made) {
            mr_version_close(l->m, &l->fresh.at[i].made);
        }
    }
    pthread_mutex_lock(&l->m->lock);
    for (size_t i = 0; i < l->fresh.len; i++) {
        struct mr_fresh *f = &l->fresh.at[i];
        struct mr_version_record *r = mr_record_get(l->model, f->from->number);
        const char *reason = is_cancelled ? "cancelled" : f->reason ? f->reason : others;
        r->failed_fingerprint = is_cancelled || !f->reason
                                    ? 0 /* the others are made again with the next load */
                                    : f->fingerprint + f->from->fingerprint.beside;
        mr_load_entry_set(l->m, l->model, f->entry, end, reason);
        if (r->state != MR_VERSION_READY) {
            mr_record_set(l->m, l->model, r, end, reason);
        } else if (!is_cancelled) {
            reload_warn(l, r, reason);
        }
    }
    mr_table_publish(l->m, l->model);
    mr_model_count_unready(l->m, l->model);
    pthread_mutex_unlock(&l->m->lock);
}

bool mr_load_retire_gone(struct mr_load *l)
{
    bool is_any = false;
    bool stays = false;

    pthread_mutex_lock(&l->m->lock);
    for (size_t i = 0; i < l->model->records.len; i++) {
        const struct mr_version_record *r = &l->model->records.at[i];
        bool exists = mr_folder_find(&l->folder, r->number);
        is_any |= r->state == MR_VERSION_READY && !exists;
        stays |= r->state == MR_VERSION_READY && exists;
    }
    is_any &= stays;
    if (is_any) {
        others_retire(l, true);
        mr_table_publish(l->m, l->model);
        mr_model_count_unready(l->m, l->model);
    }
    pthread_mutex_unlock(&l->m->lock);
    return is_any;
}

void mr_load_fail(struct mr_load *l, const char *reason)
{
    bool serves = false;

    pthread_mutex_lock(&l->m->lock);
    for (size_t i = 0; i < l->model->records.len; i++) {
        struct mr_version_record *r = &l->model->records.at[i];
        if (r->state == MR_VERSION_READY) {
            serves = true;
            reload_warn(l, r, reason);
        }
    }
    if (!serves) {
        l->model->is_desired = true;
        mr_model_set_error(l->m, l->model, reason);
    }
    mr_model_count_unready(l->m, l->model);
    pthread_mutex_unlock(&l->m->lock);
}

void mr_load_show(struct mr_load *l)
{
    pthread_mutex_lock(&l->m->lock);
    mr_table_publish(l->m, l->model);
    mr_table_add(l->m, l->model);
    pthread_mutex_unlock(&l->m->lock);
}

int mr_unload_run(struct mr_models *m, struct mr_model *model, struct mr_err *err)
{
    (void)err; /* nothing fails: who still uses a version keeps it until done */
    pthread_mutex_lock(&m->lock);
    model->is_desired = false;
    for (size_t i = 0; i < model->records.len; i++) {
        struct mr_version_record *r = &model->records.at[i];
        r->is_wanted = false;
        r->failed_fingerprint = 0;
        mr_freep(&r->config_json);
        if (r->state == MR_VERSION_READY) {
            mr_version_retire(m, model, r->v);
            mr_record_set(m, model, r, MR_VERSION_DRAINING, "");
        } else if (r->state != MR_VERSION_DRAINING) {
            mr_record_set(m, model, r, MR_VERSION_UNLOADED, "unloaded");
        }
    }
    mr_labels_clear(model);
    model->pinned = 0;
    model->tries = 0;
    mr_model_clear_error(m, model);
    if (model->records.len > 0) {
        mr_table_publish(m, model);
    }
    mr_model_count_unready(m, model);
    pthread_mutex_unlock(&m->lock);
    return MR_OK;
}
