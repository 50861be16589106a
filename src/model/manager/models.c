/* The manager's start and end.
 *
 * Start: threads, then a job for every model that the control mode names, then wait for all of
 * them. Models load side by side; each failure stays with its model. Stop: no job begins, all
 * versions are retired, and the caller waits for the reaper up to its timeout. Versions still in use
 * then are left as they are, memory included, because they are still read. */
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/log.h"
#include "jobs.h"
#include "model/archives/url.h"
#include "model/place.h"
#include "model/records/job.h"
#include "model/records/names.h"
#include "model/records/records.h"
#include "model/records/table.h"
#include "model/version/backends.h"
#include "publish.h"
#include "reap.h"
#include "watch.h"

#define OPTIONS_MAX_BYTES ((size_t)64 << 20)
#define LOAD_THREADS_MAX  64
#define READERS_MAX       4096

void mr_models_options_init(struct mr_models_options *o)
{
    *o = (struct mr_models_options){.control = MR_MODEL_CONTROL_NONE,
                                    .poll_ns = 15 * MR_NS_PER_S,
                                    .settle_ns = MR_NS_PER_S,
                                    .drain_wait_ns = 60 * MR_NS_PER_S,
                                    .auto_complete = true,
                                    .memory_check = true,
                                    .strict_readiness = true,
                                    .load_threads = 4,
                                    .update_threads = 1,
                                    .retry_pause_ns = 5 * MR_NS_PER_S,
                                    .archive_cache_bytes = UINT64_C(64) << 30,
                                    .default_max_batch = 4,
                                    .reader_count = 1};
}

/* ---- options ---- */

static const char *text_copy(struct mr_arena *a, const char *s)
{
    return s ? mr_arena_str(a, mr_str_c(s)).ptr : NULL;
}

static const char *const *texts_copy(struct mr_arena *a, const char *const *list, size_t n)
{
    const char **copy = MR_ARENA_ARRAY(a, const char *, n + 1);

    for (size_t i = 0; copy && i < n; i++) {
        copy[i] = text_copy(a, list[i]);
    }
    return copy;
}

/* By name, or by what it is where that can be found out. */
static bool is_same_folder(const char *a, const char *b)
{
    struct stat x;
    struct stat y;

    return strcmp(a, b) == 0 ||
           (stat(a, &x) == 0 && stat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino);
}

/* The folder that is meant; NULL: the text is the address of an archive. */
static const char *folder_of(const char *text)
{
    const bool is_path = mr_str_starts(mr_str_c(text), MR_STR("file:"));
    struct stat st;

    if (!archive_url_is(text)) {
        return text;
    }
    return is_path && stat(text + 5, &st) == 0 && S_ISDIR(st.st_mode) ? text + 5 : NULL;
}

/* A folder that is given twice is one repository, as in Triton, not two with the same models. */
static const char *const *repositories_copy(struct mr_arena *a, const char *const *list, size_t n,
                                            size_t *out_count)
{
    const char **copy = MR_ARENA_ARRAY(a, const char *, n + 1);
    size_t count = 0;

    for (size_t i = 0; copy && i < n; i++) {
        const char *folder = folder_of(list[i]);
        size_t k = 0;
        while (folder && k < count && !is_same_folder(copy[k], folder)) {
            k++;
        }
        if (folder && k == count && (copy[count++] = text_copy(a, folder)) == NULL) {
            return NULL;
        }
    }
    *out_count = count;
    return copy;
}

static int urls_copy(struct mr_models *m, const struct mr_models_options *o, struct mr_err *err)
{
    const char **copy = MR_ARENA_ARRAY(&m->memory, const char *, o->repository_count + 1);
    struct archive_url *url = MR_NEW(struct archive_url);
    int rc = copy ? MR_OK : MR_FAIL(err, MR_E_NOMEM, "no memory for the model options");

    for (size_t i = 0; rc == MR_OK && i < o->repository_count; i++) {
        if (folder_of(o->repositories[i])) {
            continue;
        }
        copy[m->url_count] = text_copy(&m->memory, o->repositories[i]);
        if (!copy[m->url_count]) {
            rc = MR_FAIL(err, MR_E_NOMEM, "no memory for the model options");
            break;
        }
        rc = archive_url_parse(copy[m->url_count++], url, err);
    }
    m->urls = copy;
    mr_free(url);
    return rc;
}

/* With all links resolved, and ended with NULL. */
static int links_copy(struct mr_models *m, const struct mr_models_options *o, struct mr_err *err)
{
    char real[PATH_MAX];
    const char **copy = MR_ARENA_ARRAY(&m->memory, const char *, o->link_dir_count + 1);

    for (size_t i = 0; copy && i < o->link_dir_count; i++) {
        struct mr_err why;
        struct stat st;
        if (!realpath(o->link_dirs[i], real) || stat(real, &st) != 0) {
            mr_path_errno(o->link_dirs[i], errno, &why);
            return MR_FAIL(err, MR_E_INVALID, "--allow-links-to=%s", why.msg);
        }
        if (!S_ISDIR(st.st_mode)) {
            return MR_FAIL(err, MR_E_INVALID, "--allow-links-to=%.300s: not a folder",
                           o->link_dirs[i]);
        }
        copy[i] = text_copy(&m->memory, real);
        copy = copy[i] ? copy : NULL;
    }
    m->o.link_dirs = copy;
    return copy ? MR_OK : MR_FAIL(err, MR_E_NOMEM, "no memory for the model options");
}

static const struct mr_setting *settings_copy(struct mr_arena *a, const struct mr_setting *list,
                                              size_t n)
{
    struct mr_setting *copy = MR_ARENA_ARRAY(a, struct mr_setting, n + 1);

    for (size_t i = 0; copy && i < n; i++) {
        copy[i] = (struct mr_setting){text_copy(a, list[i].key), text_copy(a, list[i].value)};
    }
    return copy;
}

/* The arena's limit is far above what a command line holds: past it something is wrong. */
static int options_copy(struct mr_models *m, const struct mr_models_options *o, struct mr_err *err)
{
    struct mr_arena *a = &m->memory;
    size_t names = o->backend_setting_name_count;
    const struct mr_setting **lists = MR_ARENA_ARRAY(a, const struct mr_setting *, names + 1);
    size_t *counts = MR_ARENA_ARRAY(a, size_t, names + 1);

    m->o = *o;
    m->o.repositories =
        repositories_copy(a, o->repositories, o->repository_count, &m->o.repository_count);
    m->o.load_models = texts_copy(a, o->load_models, o->load_model_count);
    m->o.config_name = text_copy(a, o->config_name);
    m->o.placed = text_copy(a, o->placed);
    m->o.allowed_urls = texts_copy(a, o->allowed_urls, o->allowed_url_count);
    m->o.backend_dirs = texts_copy(a, o->backend_dirs, o->backend_dir_count);
    m->o.backend_setting_names = texts_copy(a, o->backend_setting_names, names);
    m->o.allowed_backends = texts_copy(a, o->allowed_backends, o->allowed_backend_count);
    m->o.backend_placements = texts_copy(a, o->backend_placements, o->backend_placement_count);
    m->o.worker_program = text_copy(a, o->worker_program);
    m->o.python = text_copy(a, o->python);
    m->o.archive_cache = text_copy(a, o->archive_cache);
    m->o.worker_dirs = texts_copy(a, o->worker_dirs, o->worker_dir_count);
    for (size_t i = 0; lists && counts && i < names; i++) {
        lists[i] = settings_copy(a, o->backend_settings[i], o->backend_setting_counts[i]);
        counts[i] = o->backend_setting_counts[i];
    }
    m->o.backend_settings = lists;
    m->o.backend_setting_counts = counts;
    if (!lists || !counts || !m->o.repositories || !m->o.load_models || !m->o.backend_dirs ||
        !m->o.backend_setting_names || !m->o.allowed_backends || !m->o.backend_placements ||
        !m->o.worker_dirs || !m->o.allowed_urls || (o->config_name && !m->o.config_name) ||
        (o->placed && !m->o.placed)) {
        return MR_FAIL(err, MR_E_NOMEM, "no memory for the model options");
    }
    return MR_OK;
}

static int options_check(const struct mr_models_options *o, struct mr_err *err)
{
    if (o->load_threads < 1 || o->load_threads > LOAD_THREADS_MAX) {
        return MR_FAIL(err, MR_E_INVALID, "model load threads: %u, allowed are 1..%d",
                       o->load_threads, LOAD_THREADS_MAX);
    }
    if (o->update_threads < 1 || o->update_threads > LOAD_THREADS_MAX) {
        return MR_FAIL(err, MR_E_INVALID, "models that load at once: %u, allowed are 1..%d",
                       o->update_threads, LOAD_THREADS_MAX);
    }
    if (o->reader_count < 1 || o->reader_count > READERS_MAX) {
        return MR_FAIL(err, MR_E_INVALID, "readers of the model table: %u, allowed are 1..%d",
                       o->reader_count, READERS_MAX);
    }
    if (o->poll_ns <= 0 || o->settle_ns < 0) {
        return MR_FAIL(err, MR_E_INVALID, "repository poll interval must be above 0");
    }
    if (o->config_name) {
        struct mr_err why;
        if (mr_model_name_check(mr_str_c(o->config_name), &why) < 0) {
            return MR_FAIL(err, MR_E_INVALID,
                           "model config name '%.64s': it must be a file name without '/' and '..'",
                           o->config_name);
        }
    }
    return MR_OK;
}

static int repository_missing(struct mr_models *m, size_t i, int error, struct mr_err *err)
{
    char text[128];
    const char *why = strerror_r(error, text, sizeof text);

    if (!m->o.may_miss_repositories) {
        return MR_FAIL(err, MR_E_INVALID, "model repository '%.300s': %s", m->o.repositories[i],
                       why);
    }
    mr_log(MR_LOG_ERROR, "model.repository_missing",
           "repository=%s %s; the server is not ready without it (--exit-on-error=false)",
           MR_LOG_STR(mr_str_c(m->o.repositories[i])), why);
    atomic_store_explicit(&m->is_missing[i], true, memory_order_relaxed);
    atomic_fetch_add_explicit(&m->missing_count, 1, memory_order_relaxed);
    return MR_OK;
}

/* Its name is a number, and the model's configuration lies beside it or the model's file in it. */
static bool is_version_folder(const char *path, DIR *d)
{
    char real[PATH_MAX];
    struct stat st;
    int64_t number;
    const char *name = realpath(path, real) ? strrchr(real, '/') : NULL;

    return name && mr_version_number(mr_str_c(name + 1), &number) &&
           (fstatat(dirfd(d), "../config.pbtxt", &st, 0) == 0 ||
            fstatat(dirfd(d), "model.onnx", &st, 0) == 0);
}

/* The folder of one model has its configuration in it, or versions with their file. In a repository neither can be right. */
static void repository_warn(const char *path, DIR *d)
{
    struct dirent *e;
    struct stat st;
    int64_t number;

    if (is_version_folder(path, d)) {
        mr_log(MR_LOG_WARN, "model.not_a_repository",
               "repository=%s this looks like a version of one model; --model-repository takes "
               "the folder two above it",
               MR_LOG_STR(mr_str_c(path)));
        return;
    }
    bool is_model = fstatat(dirfd(d), "config.pbtxt", &st, 0) == 0 && S_ISREG(st.st_mode);

    while (!is_model && (e = readdir(d))) {
        char file[NAME_MAX + 16];
        snprintf(file, sizeof file, "%s/model.onnx", e->d_name);
        is_model =
            mr_version_number(mr_str_c(e->d_name), &number) && fstatat(dirfd(d), file, &st, 0) == 0;
    }
    if (is_model) {
        mr_log(MR_LOG_WARN, "model.not_a_repository",
               "repository=%s this looks like the folder of one model; --model-repository takes "
               "the folder above it",
               MR_LOG_STR(mr_str_c(path)));
    }
}

static int repositories_check(struct mr_models *m, struct mr_err *err)
{
    int rc = MR_OK;

    m->is_missing = MR_NEW_ARRAY(_Atomic bool, m->o.repository_count + 1);
    for (size_t i = 0; i < m->o.repository_count && rc == MR_OK; i++) {
        DIR *d = opendir(m->o.repositories[i]);
        if (d) {
            repository_warn(m->o.repositories[i], d);
            closedir(d);
        } else {
            rc = repository_missing(m, i, errno, err);
        }
    }
    return rc;
}

/* ---- new and free ---- */

/* Conditions that wait until a point of the monotonic clock. */
static void cond_init(pthread_cond_t *c)
{
    pthread_condattr_t attr;

    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(c, &attr);
    pthread_condattr_destroy(&attr);
}

static void locks_init(struct mr_models *m)
{
    pthread_mutex_init(&m->lock, NULL);
    pthread_mutex_init(&m->backends_lock, NULL);
    cond_init(&m->backend_opened);
    cond_init(&m->work);
    cond_init(&m->idle);
    cond_init(&m->reap);
    cond_init(&m->reported);
}

static void locks_fini(struct mr_models *m)
{
    pthread_mutex_destroy(&m->lock);
    pthread_mutex_destroy(&m->backends_lock);
    pthread_cond_destroy(&m->backend_opened);
    pthread_cond_destroy(&m->work);
    pthread_cond_destroy(&m->idle);
    pthread_cond_destroy(&m->reap);
    pthread_cond_destroy(&m->reported);
}

/* No thread is left, nothing is in use. */
static void memory_free(struct mr_models *m)
{
    struct mr_map_slot *slot;

    for (size_t i = 0; (slot = mr_map_next(&m->models, &i));) {
        mr_model_free(slot->value);
    }
    mr_map_fini(&m->models);
    mr_retired_free(m->retired); /* the reaper has left none, but it may never have run */
    mr_table_fini(m);
    mr_names_fini(&m->names);
    mr_backends_close(m);
    archives_free(&m->archives);
    mr_cache_free(&m->cache);
    mr_free((void *)m->is_missing);
    mr_arena_fini(&m->memory);
    locks_fini(m);
    mr_free(m);
}

static void archives_make(struct mr_models *m)
{
    m->cache = mr_cache_new(m->o.archive_cache, m->o.archive_cache_bytes);
    const struct archives_options o = {.cache = m->cache,
                                       .repositories = m->o.repositories,
                                       .repository_count = m->o.repository_count,
                                       .urls = m->urls,
                                       .url_count = m->url_count,
                                       .max_bytes = m->o.archive_cache_bytes,
                                       .links = m->o.link_dirs,
                                       .placed = m->o.placed,
                                       .place = mr_model_place,
                                       .is_stopping = &m->is_stopping};
    m->archives = archives_new(&o);
}

int mr_models_new(struct mr_models **out, const struct mr_models_options *options,
                  const struct mr_model_hooks *hooks, struct mr_err *err)
{
    struct mr_models *m = mr_alloc_aligned(sizeof *m);
    int rc;

    locks_init(m);
    mr_epoch_init(&m->epoch);
    mr_table_init(m);
    mr_arena_init(&m->memory, 4096, OPTIONS_MAX_BYTES);
    m->hooks = *hooks;
    MR_TRY(options_check(options, err));
    MR_TRY(options_copy(m, options, err));
    MR_TRY(urls_copy(m, options, err));
    MR_TRY(links_copy(m, options, err));
    MR_TRY(repositories_check(m, err));
    MR_TRY(mr_backends_check(&m->o, err));
    archives_make(m);
    *out = m;
    return MR_OK;
out:
    memory_free(m);
    return rc;
}

void mr_models_free(struct mr_models **m)
{
    struct mr_models *it = *m;

    *m = NULL;
    if (!it) {
        return;
    }
    /* Stops what was not stopped, with a short wait for a caller that is in a hurry. */
    if (mr_models_stop(it, 100 * MR_NS_PER_MS) > 0) {
        mr_log(MR_LOG_WARN, "model.left", "versions are still in use; their memory is left alone");
        return;
    }
    mr_jobs_join(it);
    mr_reaper_join(it);
    memory_free(it);
}

/* ---- start ---- */

struct first_loads {
    pthread_mutex_t lock; /* loaders are several */
    size_t failed;
    struct mr_err err; /* of the first of them */
};

/* Thread: loader. */
static void first_done(void *ctx, int rc, const struct mr_err *err)
{
    struct first_loads *f = ctx;

    if (rc < 0) {
        pthread_mutex_lock(&f->lock);
        if (f->failed++ == 0) {
            f->err = *err;
        }
        pthread_mutex_unlock(&f->lock);
    }
}

static void first_submit(struct mr_models *m, mr_str name, struct first_loads *f)
{
    struct mr_job *job = mr_job_new(MR_JOB_LOAD, first_done, f);

    job->is_first = true;
    job->answer = mr_model_name_check(name, &job->err);
    if (job->answer < 0) {
        /* Such a name has no place in the index. */
        mr_log(MR_LOG_WARN, "model.load_failed", "%s", job->err.msg);
        job->kind = MR_JOB_ANSWER;
    }
    mr_job_submit(m, job, name);
}

static bool loads_all(const struct mr_models_options *o)
{
    bool all = o->control == MR_MODEL_CONTROL_NONE;

    for (size_t i = 0; i < o->load_model_count; i++) {
        all |= o->control == MR_MODEL_CONTROL_EXPLICIT && strcmp(o->load_models[i], "*") == 0;
    }
    return all;
}

/* A copy of the names, as loads take the lock that guards them. */
static void all_submit(struct mr_models *m, struct first_loads *f)
{
    MR_VEC(char *) names = {0};

    pthread_mutex_lock(&m->lock);
    for (size_t i = 0; i < m->names.len; i++) {
        MR_VEC_PUSH(&names, mr_strndup(m->names.at[i].name, strlen(m->names.at[i].name)));
    }
    pthread_mutex_unlock(&m->lock);
    for (size_t i = 0; i < names.len; i++) {
        first_submit(m, mr_str_c(names.at[i]), f);
        mr_free(names.at[i]);
    }
    MR_VEC_FINI(&names);
}

static int first_loads_submit(struct mr_models *m, struct first_loads *f, struct mr_err *err)
{
    if (m->o.control == MR_MODEL_CONTROL_POLL) {
        return mr_watch_first(m, first_done, f, err);
    }
    if (loads_all(&m->o)) {
        all_submit(m, f);
    } else if (m->o.control == MR_MODEL_CONTROL_EXPLICIT) {
        for (size_t i = 0; i < m->o.load_model_count; i++) {
            first_submit(m, mr_str_c(m->o.load_models[i]), f);
        }
    }
    return MR_OK;
}

int mr_models_start(struct mr_models *m, size_t *out_failed, struct mr_err *err)
{
    struct first_loads first = {.lock = PTHREAD_MUTEX_INITIALIZER};
    int rc;

    if (m->o.control != MR_MODEL_CONTROL_POLL) { /* the watch looks for them itself */
        archives_refresh(m->archives, 0, NULL);
    }
    MR_TRY(mr_names_refresh(m, 0, err));
    MR_TRY(mr_reaper_start(m, err));
    MR_TRY(mr_jobs_start(m, err));
    mr_jobs_submitting(m, true);
    rc = first_loads_submit(m, &first, err);
    mr_jobs_submitting(m, false);
    if (rc < 0) {
        goto out;
    }
    mr_jobs_wait(m, INT64_MAX);
    pthread_mutex_lock(&m->lock);
    m->is_started = true;
    pthread_mutex_unlock(&m->lock);
    if (m->o.control == MR_MODEL_CONTROL_POLL) {
        MR_TRY(mr_watch_start(m, err));
    }
    *out_failed = first.failed; /* the jobs have ended */
    if (first.failed > 0) {
        *err = first.err;
    }
    rc = MR_OK;
out:
    return rc;
}

/* ---- stop ---- */

static void all_retire(struct mr_models *m)
{
    struct mr_map_slot *slot;

    pthread_mutex_lock(&m->lock);
    for (size_t i = 0; (slot = mr_map_next(&m->models, &i));) {
        struct mr_model *model = slot->value;
        bool any = false;
        model->is_desired = false;
        for (size_t k = 0; k < model->records.len; k++) {
            struct mr_version_record *r = &model->records.at[k];
            if (r->state == MR_VERSION_READY) {
                mr_version_retire(m, model, r->v);
                mr_record_set(m, model, r, MR_VERSION_DRAINING, "");
                any = true;
            }
        }
        if (any) {
            mr_table_publish(m, model);
        }
    }
    pthread_mutex_unlock(&m->lock);
    mr_changes_report(m);
}

/* Lock held. */
static void all_hasten(struct mr_models *m)
{
    struct mr_map_slot *slot;

    for (size_t i = 0; m->hooks.hasten && (slot = mr_map_next(&m->models, &i));) {
        struct mr_model *model = slot->value;
        for (size_t k = 0; k < model->records.len; k++) {
            struct mr_version_record *r = &model->records.at[k];
            if (r->state == MR_VERSION_READY) {
                m->hooks.hasten(m->hooks.ctx, r->v);
            }
        }
    }
}

void mr_models_loads_end(struct mr_models *m)
{
    pthread_mutex_lock(&m->lock);
    /* Relaxed: only asked between steps; those who wait are woken. */
    atomic_store_explicit(&m->is_stopping, true, memory_order_relaxed);
    all_hasten(m);
    pthread_cond_broadcast(&m->idle);
    pthread_mutex_unlock(&m->lock);
    mr_jobs_submitting(m, false); /* what waits for other loads goes on, and ends */
}

size_t mr_models_stop(struct mr_models *m, int64_t timeout_ns)
{
    int64_t deadline_ns = mr_ns_after(mr_now_ns(), timeout_ns);
    struct timespec ts = {deadline_ns / MR_NS_PER_S, deadline_ns % MR_NS_PER_S};
    int rc = 0;

    mr_models_loads_end(m);
    mr_watch_stop(m);
    mr_jobs_wait(m, deadline_ns);
    all_retire(m);

    pthread_mutex_lock(&m->lock);
    while (m->draining > 0 && rc == 0) {
        rc = pthread_cond_timedwait(&m->idle, &m->lock, &ts);
    }
    /* A load that never ends holds a version, too. */
    size_t left = m->draining + m->jobs_open;
    pthread_mutex_unlock(&m->lock);
    return left;
}
