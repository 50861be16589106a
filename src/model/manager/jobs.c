/* The queue of loads and unloads.
 *
 * Jobs of one model run in the order in which they came, one at a time: while one is queued or
 * runs, the model is busy and later ones wait at the model. A later one that makes earlier ones
 * pointless cancels them: their callers get the error at once, and a running load ends at its next
 * step. A plain load cancels another only if the folder has changed in between (MR_JOB_CHECK); otherwise
 * it has nothing left to do.
 *
 * Loads of different models run side by side, up to a number that is lower after the start. Other
 * jobs never wait for loads: there is one thread more than loads may run. When
 * the manager stops, queued jobs are answered and not done.
 *
 * `done` runs on a loader thread after all changes of the job are reported to the hook, and
 * before the model's next job begins; that of a cancelled job as soon as it is cancelled. */
#include "jobs.h"

#include <limits.h>
#include <malloc.h>

#include "archive/archive.h"
#include "base/clock.h"
#include "base/turn.h"
#include "load.h"
#include "members.h"
#include "model/archives/archives.h"
#include "model/config/config_priv.h"
#include "model/records/job.h"
#include "model/records/records.h"
#include "placed.h"
#include "publish.h"
#include "retry.h"
#include "users.h"

#define STOP_TEXT "the server is stopping"
/* Triton's words, in every mode but explicit. */
#define CONTROL_REFUSED "explicit model load / unload is not allowed if polling is enabled"

static void job_free(struct mr_job *job)
{
    for (size_t i = 0; i < job->file_count; i++) {
        mr_free(job->files[i].path);
        mr_free(job->files[i].data);
    }
    mr_free(job->files);
    mr_free(job->config_json);
    mr_free(job->path);
    mr_free(job->type);
    mr_free(job->settled);
    mr_free(job->making);
    mr_free(job->checks_name);
    mr_free(job);
}

static bool is_load(const struct mr_job *job)
{
    return job->kind == MR_JOB_LOAD || job->kind == MR_JOB_SYNC;
}

/* Relaxed, as everywhere: what counts is decided under the lock. */
static bool is_cancelled(const struct mr_job *job)
{
    return atomic_load_explicit(&job->is_cancelled, memory_order_relaxed);
}

static void queue_push(struct mr_models *m, struct mr_job_queue *q, struct mr_job *job)
{
    job->next = NULL;
    if (q->last) {
        q->last->next = job;
    } else {
        q->first = job;
    }
    q->last = job;
    pthread_cond_signal(&m->work);
}

static struct mr_job *queue_pop(struct mr_job_queue *q)
{
    struct mr_job *job = q->first;

    q->first = job->next;
    if (!job->next) {
        q->last = NULL;
    }
    return job;
}

static void queue_remove(struct mr_job_queue *q, struct mr_job *job)
{
    struct mr_job **at = &q->first;
    struct mr_job *before = NULL;

    while (*at != job) {
        before = *at;
        at = &before->next;
    }
    *at = job->next;
    if (!job->next) {
        q->last = before;
    }
}

/* Begins the model's next job; no earlier one waits. */
static void model_begin(struct mr_models *m, struct mr_model *model, struct mr_job *job)
{
    bool has_work = is_load(job) && !is_cancelled(job);

    model->current = job;
    queue_push(m, has_work ? &m->loads : &m->quick, job);
}

static void model_wait(struct mr_models *m, struct mr_model *model, struct mr_job *job)
{
    m->jobs_waiting++;
    job->next = NULL;
    if (model->waiting_last) {
        model->waiting_last->next = job;
    } else {
        model->waiting_first = job;
    }
    model->waiting_last = job;
}

/* A job that only answers needs no model. */
static void job_refuse(struct mr_job *job, int status, const char *text)
{
    job->kind = MR_JOB_ANSWER;
    job->answer = MR_FAIL(&job->err, status, "%s", text);
}

/* Lock held. NULL: none waits. */
static struct mr_job *waiting_take(struct mr_models *m, struct mr_model *model)
{
    struct mr_job *job = model->waiting_first;

    if (job) {
        m->jobs_waiting--;
        model->waiting_first = job->next;
        if (!job->next) {
            model->waiting_last = NULL;
        }
    }
    return job;
}

/* Lock held. Loads ask for each other: those that come after a load that asks are refused, and it goes on. */
static void asking_refuse(struct mr_models *m)
{
    struct mr_map_slot *slot;
    struct mr_job *job;

    for (size_t i = 0; (slot = mr_map_next(&m->models, &i));) {
        struct mr_model *model = slot->value;
        while (model->current && model->current->asks > 0 && (job = waiting_take(m, model))) {
            job->model = NULL;
            job_refuse(job, MR_E_UNAVAILABLE,
                       "the load of the model that is under way waits for this one");
            queue_push(m, &m->quick, job);
        }
    }
}

/* Lock held. Queues loads that need not wait for others any longer, and refuses jobs that wait for a load that waits for them. */
static void deferred_queue(struct mr_models *m)
{
    struct mr_job *job;

    while ((job = mr_members_next(m))) {
        queue_push(m, is_load(job) && !is_cancelled(job) ? &m->loads : &m->quick, job);
    }
    if (m->jobs_asking > 0 && m->jobs_waiting > 0 && mr_jobs_are_stuck(m)) {
        asking_refuse(m);
    }
}

/* ---- superseding ---- */

static bool is_plain_load(const struct mr_job *job)
{
    return job->kind == MR_JOB_LOAD && !job->config_json && !job->is_rollback;
}

/* Both load what is there, at the same place. */
static bool are_alike(const struct mr_job *a, const struct mr_job *b)
{
    return is_plain_load(a) && is_plain_load(b) && !a->path == !b->path &&
           (!a->path || strcmp(a->path, b->path) == 0);
}

/* Answers its caller now; the steps done so far are undone by the job itself. Lock held. */
static void job_cancel(struct mr_models *m, struct mr_job *job)
{
    if (!is_load(job) || is_cancelled(job)) {
        return;
    }
    atomic_store_explicit(&job->is_cancelled, true, memory_order_relaxed);
    if (job->done) {
        struct mr_job *answer = mr_job_new(MR_JOB_ANSWER, job->done, job->ctx);
        answer->answer =
            MR_FAIL(&answer->err, MR_E_CANCELLED,
                    "cancelled: a newer request for model '%.128s' has come", job->model->name.ptr);
        job->done = NULL;
        m->jobs_open++;
        queue_push(m, &m->quick, answer);
    }
    if (job == job->model->current && !job->is_running) {
        if (job->is_deferred) {
            mr_members_take(m, job);
        } else {
            queue_remove(&m->loads, job);
        }
        queue_push(m, &m->quick, job); /* no need to wait for a place */
    }
    pthread_cond_broadcast(&m->idle); /* it may be waiting */
}

/* Queues a check whether the running load has read what is in the folder now. */
static void check_submit(struct mr_models *m, const struct mr_job *current)
{
    struct mr_job *check = mr_job_new(MR_JOB_CHECK, NULL, NULL);

    check->checks_id = current->id;
    check->checks_name = mr_strndup(current->model->name.ptr, current->model->name.len);
    m->jobs_open++;
    queue_push(m, &m->quick, check);
}

static void check_run(struct mr_models *m, const struct mr_job *check)
{
    uint64_t fingerprint = mr_load_folder_fingerprint(m, mr_str_c(check->checks_name));

    pthread_mutex_lock(&m->lock);
    const struct mr_model *model = mr_map_find(&m->models, mr_str_c(check->checks_name));
    struct mr_job *current = model ? model->current : NULL;
    if (current && current->id == check->checks_id && current->folder_fingerprint != 0 &&
        current->folder_fingerprint != fingerprint) {
        job_cancel(m, current);
    }
    pthread_mutex_unlock(&m->lock);
}

static const struct mr_settled_version *settled_find(const struct mr_job *job, int64_t number)
{
    for (size_t i = 0; i < job->settled_count; i++) {
        if (job->settled[i].number == number) {
            return &job->settled[i];
        }
    }
    return NULL;
}

/* Mode `poll`: what the sync under way makes is there unchanged and still wanted, only more has come. Lock held. */
static bool is_still_right(const struct mr_job *current, const struct mr_job *job)
{
    if (current->kind != MR_JOB_SYNC || job->kind != MR_JOB_SYNC || current->making_count == 0 ||
        current->settled_shared != job->settled_shared) {
        return false;
    }
    for (size_t i = 0; i < current->making_count; i++) {
        const struct mr_settled_version *it = &current->making[i];
        const struct mr_settled_version *now = settled_find(job, it->number);
        size_t newer = 0;
        for (size_t k = 0; k < job->settled_count; k++) {
            newer += job->settled[k].number > it->number;
        }
        if (!now || now->sum != it->sum || newer >= current->latest) {
            return false;
        }
    }
    return true;
}

/* Lock held: what `job` makes pointless. */
static void older_cancel(struct mr_models *m, struct mr_model *model, const struct mr_job *job)
{
    struct mr_job *retry = mr_retry_drop(m, model);

    if (retry) {
        job_free(retry);
    }
    if (!model->current) {
        return;
    }
    if (is_still_right(model->current, job)) {
        /* it goes on, and `job` adds to it what has come */
    } else if (!are_alike(job, model->current)) {
        job_cancel(m, model->current);
    } else if (model->current->is_running) {
        check_submit(m, model->current);
    }
    for (struct mr_job *it = model->waiting_first; it; it = it->next) {
        if (!are_alike(job, it)) {
            job_cancel(m, it);
        }
    }
}

void mr_job_submit(struct mr_models *m, struct mr_job *job, mr_str name)
{
    pthread_mutex_lock(&m->lock);
    job->id = ++m->jobs_made;
    if (job->kind == MR_JOB_UNLOAD && !mr_map_find(&m->models, name)) {
        job->kind = MR_JOB_ANSWER; /* nothing is loaded under that name: done */
    }
    if (job->kind != MR_JOB_ANSWER) {
        job->model = mr_model_get(m, name);
        if (!job->model) {
            job_refuse(job, MR_E_EXHAUSTED, "too many models are known to this server");
        }
    }
    m->jobs_open++;
    if (!job->model) {
        queue_push(m, &m->quick, job);
    } else {
        const struct mr_job *current = job->model->current;
        job->has_ended_load =
            job->is_for_member && current && is_load(current) && !is_cancelled(current);
        older_cancel(m, job->model, job);
        if (job->model->current) {
            model_wait(m, job->model, job);
            deferred_queue(m);
        } else {
            model_begin(m, job->model, job);
        }
    }
    pthread_mutex_unlock(&m->lock);
}

/* After a job: the model's next one, if there is one. Lock held. */
static void model_next(struct mr_models *m, struct mr_model *model)
{
    struct mr_job *next = waiting_take(m, model);

    model->current = NULL;
    if (next) {
        model_begin(m, model, next);
        return;
    }
    mr_model_forget_if_empty(m, model);
}

static int unload_run(struct mr_models *m, struct mr_job *job, struct mr_err *err)
{
    int rc;

    MR_TRY(mr_members_check_unload(m, job, err));
    if (mr_users_unload(m, job) || mr_members_await_open(m, job)) {
        return MR_PENDING;
    }
    MR_TRY(mr_unload_run(m, job->model, err));
    mr_members_unload(m, job);
    archives_put(m->archives, job->model->name, NULL);
out:
    return rc;
}

static int job_run(struct mr_models *m, struct mr_job *job, struct mr_err *err)
{
    if (job->kind == MR_JOB_ANSWER) {
        *err = job->err;
        return job->answer;
    }
    if (job->kind == MR_JOB_CHECK) {
        check_run(m, job);
        return MR_OK;
    }
    if (is_cancelled(job)) {
        return MR_FAIL(err, MR_E_CANCELLED, "cancelled");
    }
    if (atomic_load_explicit(&m->is_stopping, memory_order_relaxed)) {
        return MR_FAIL(err, MR_E_UNAVAILABLE, STOP_TEXT);
    }
    if (job->kind == MR_JOB_UNLOAD) {
        return unload_run(m, job, err);
    }
    pthread_mutex_lock(&m->lock);
    job->model->is_unload_due = false; /* the unload came before */
    pthread_mutex_unlock(&m->lock);
    return job->path ? mr_place_run(m, job, err) : mr_load_run(m, job, err);
}

/* ---- the threads ---- */

/* Lock held. The load that a model asks in; NULL: it has ended. */
static struct mr_job *asking_job(const struct mr_models *m, mr_str name)
{
    const struct mr_model *model = mr_map_find(&m->models, name);
    struct mr_job *job = model ? model->current : NULL;

    return job && job->is_running && is_load(job) ? job : NULL;
}

int mr_models_ask_begin(struct mr_models *m, mr_str name, uint64_t *out_id, struct mr_err *err)
{
    int rc = MR_OK;

    pthread_mutex_lock(&m->lock);
    struct mr_job *job = asking_job(m, name);
    *out_id = job ? job->id : 0;
    if (!m->is_started) {
        rc = MR_FAIL(err, MR_E_UNAVAILABLE,
                     "a model loads others once the server has started, not while it starts");
    } else if (job && job->asks == 0 && m->jobs_asking + 1 >= m->o.load_threads) {
        rc = MR_FAIL(err, MR_E_UNAVAILABLE,
                     "%zu models that are being loaded wait for others to be loaded, and "
                     "--model-load-thread-count=%u leaves no thread for these",
                     m->jobs_asking + 1, m->o.load_threads);
    } else {
        m->asks_beginning++;
        if (job) {
            m->jobs_asking += job->asks++ == 0;
            mr_load_place_leave(m, job);
        }
    }
    pthread_mutex_unlock(&m->lock);
    return rc;
}

void mr_models_asked(struct mr_models *m)
{
    pthread_mutex_lock(&m->lock);
    m->asks_beginning--;
    deferred_queue(m);
    pthread_mutex_unlock(&m->lock);
}

void mr_models_ask_end(struct mr_models *m, mr_str name, uint64_t id)
{
    pthread_mutex_lock(&m->lock);
    struct mr_job *job = asking_job(m, name);
    if (job && job->id == id && job->asks > 0 && --job->asks == 0) {
        m->jobs_asking--;
        /* For a while perhaps one more than may run: it has begun already. */
        m->loads_running += !job->has_place;
        job->has_place = true;
    }
    pthread_mutex_unlock(&m->lock);
}

/* Lock held. NULL: there is nothing that this thread may do now. */
static struct mr_job *job_take(struct mr_models *m, int64_t *out_next_ns)
{
    struct mr_job *retry;

    while ((retry = mr_retry_due(m, out_next_ns))) {
        m->jobs_open++;
        retry->id = ++m->jobs_made;
        model_begin(m, retry->model, retry);
    }
    if (m->quick.first) {
        return queue_pop(&m->quick);
    }
    if (m->loads.first && m->loads_running < mr_load_places(m) &&
        m->loads_held < m->o.load_threads) {
        m->loads_running++;
        m->loads_held++;
        struct mr_job *job = queue_pop(&m->loads);
        job->has_place = true;
        return job;
    }
    return NULL;
}

/* A load leaves holes in the heaps between pieces that stay. Their pages are resident until a piece of that size is
 * allocated: hours of updates look like a leak. */
#define TRIM_AFTER_NS (10 * MR_NS_PER_S)

/* Lock held, and released during the call. Returns free pages of the heaps to the system, if it is time. */
static bool heap_trim(struct mr_models *m)
{
    if (mr_now_ns() < m->trim_ns) {
        return false;
    }
    m->trim_ns = INT64_MAX;
#ifdef __GLIBC__
    pthread_mutex_unlock(&m->lock);
    malloc_trim(0);
    pthread_mutex_lock(&m->lock);
#endif
    return true;
}

/* Lock held. NULL at the end. */
static struct mr_job *job_wait(struct mr_models *m)
{
    struct mr_job *job;
    int64_t next_ns;

    while (!(job = job_take(m, &next_ns))) {
        if (m->quit && !m->loads.first) {
            return NULL;
        }
        if (heap_trim(m)) {
            continue;
        }
        next_ns = MR_MIN(next_ns, m->trim_ns);
        struct timespec ts = {next_ns / MR_NS_PER_S, next_ns % MR_NS_PER_S};
        if (next_ns == INT64_MAX) {
            pthread_cond_wait(&m->work, &m->lock);
        } else {
            pthread_cond_timedwait(&m->work, &m->lock, &ts);
        }
    }
    return job;
}

static int job_do(struct mr_models *m, struct mr_job *job)
{
    struct mr_err err = {0};
    int rc = job_run(m, job, &err);

    mr_changes_report(m);
    if (rc == MR_PENDING) {
        return rc;
    }
    pthread_mutex_lock(&m->lock);
    mr_models_done_fn *done = job->done; /* a cancelled job has none any more */
    job->done = NULL;
    pthread_mutex_unlock(&m->lock);
    if (done) {
        done(job->ctx, rc, &err);
    }
    return rc;
}

void mr_job_opened(struct mr_models *m, struct mr_job *job)
{
    pthread_mutex_lock(&m->lock);
    if (job->is_opening) {
        job->is_opening = false;
        deferred_queue(m);
    }
    pthread_mutex_unlock(&m->lock);
}

void mr_jobs_submitting(struct mr_models *m, bool is_on)
{
    pthread_mutex_lock(&m->lock);
    m->is_submitting = is_on;
    deferred_queue(m);
    pthread_mutex_unlock(&m->lock);
}

/* Lock held. */
static void job_end(struct mr_models *m, struct mr_job *job, int rc)
{
    struct mr_model *model = job->model;

    m->jobs_asking -= job->asks > 0; /* its process has died since */
    job->asks = 0;
    if (rc == MR_PENDING) {
        mr_members_defer(m, job);
        deferred_queue(m);
        pthread_cond_broadcast(&m->idle); /* others may want its place, and it may wait for them */
        return;
    }
    if (rc >= 0 && model && job->is_for_member) {
        mr_users_return_later(m, job);
    }
    if (rc >= 0 || !model || !mr_retry_keep(m, job)) {
        job_free(job);
    }
    if (model) {
        model_next(m, model);
    }
    m->jobs_open--;
    deferred_queue(m);
    pthread_cond_broadcast(&m->idle);
}

/* A loader that wakes up, from a read or a pause, does not take the CPU from a thread that serves; it gets
 * its share of the time all the same, as it takes the manager's lock, for which network threads wait in control
 * calls. What is long and takes none, a backend may do in a thread of lower priority. */
static void class_set(void)
{
    const struct sched_param priority = {0};

    pthread_setschedparam(pthread_self(), SCHED_BATCH, &priority); /* works without it, too */
}

static void *loader_main(void *arg)
{
    struct mr_models *m = arg;
    struct mr_job *job;

    class_set();

    pthread_mutex_lock(&m->lock);
    while ((job = job_wait(m))) {
        const bool is_held = job->has_place;
        job->is_running = true;
        if (!job->is_for_member) { /* that of its decision */
            job->publishes = m->publishes;
        }
        pthread_mutex_unlock(&m->lock);
        int rc = job_do(m, job);
        pthread_mutex_lock(&m->lock);
        m->loads_running -= job->has_place;
        job->has_place = false;
        m->loads_held -= is_held;
        job_end(m, job, rc);
        m->trim_ns = MR_MIN(m->trim_ns, mr_now_ns() + TRIM_AFTER_NS);
        pthread_cond_broadcast(&m->work); /* a place is free */
    }
    pthread_mutex_unlock(&m->lock);
    return NULL;
}

int mr_jobs_start(struct mr_models *m, struct mr_err *err)
{
    uint32_t count = m->o.load_threads + 1;

    m->trim_ns = INT64_MAX;
    m->loaders = MR_NEW_ARRAY(pthread_t, count);
    while (m->loader_count < count) {
        int rc = mr_thread_start(&m->loaders[m->loader_count], "mr-load", loader_main, m, err);
        if (rc < 0) {
            return rc;
        }
        m->loader_count++;
    }
    return MR_OK;
}

void mr_jobs_join(struct mr_models *m)
{
    pthread_mutex_lock(&m->lock);
    m->quit = true;
    pthread_cond_broadcast(&m->work);
    pthread_mutex_unlock(&m->lock);
    for (size_t i = 0; i < m->loader_count; i++) {
        pthread_join(m->loaders[i], NULL);
    }
    m->loader_count = 0;
    mr_freep(&m->loaders);
    while (m->retries) {
        job_free(mr_retry_drop(m, m->retries->model));
    }
}

bool mr_jobs_wait(struct mr_models *m, int64_t deadline_ns)
{
    struct timespec ts = {deadline_ns / MR_NS_PER_S, deadline_ns % MR_NS_PER_S};
    int rc = 0;

    pthread_mutex_lock(&m->lock);
    while (m->jobs_open > 0 && rc == 0) {
        rc = pthread_cond_timedwait(&m->idle, &m->lock, &ts);
    }
    bool is_idle = m->jobs_open == 0;
    pthread_mutex_unlock(&m->lock);
    return is_idle;
}

/* ---- the control calls of model.h ---- */

static bool config_copy(struct mr_job *job, mr_str config_json)
{
    if (!config_json.ptr) {
        return true;
    }
    job->config_json = mr_try_alloc(config_json.len + 1);
    if (!job->config_json) {
        return false;
    }
    memcpy(job->config_json, config_json.ptr, config_json.len);
    job->config_json[config_json.len] = '\0';
    job->config_len = config_json.len;
    return true;
}

/* Sizes are a client's: no memory is an answer, not the end. */
static bool files_copy(struct mr_job *job, const struct mr_load_file *files, size_t count)
{
    job->files = mr_try_alloc(count * sizeof *job->files + 1);
    if (!job->files) {
        return false;
    }
    for (size_t i = 0; i < count; i++) {
        struct mr_job_file f = {.len = files[i].data.len};
        f.path = mr_try_alloc(files[i].path.len + 1);
        f.data = mr_try_alloc(f.len + 1);
        if (f.path && files[i].path.len) {
            memcpy(f.path, files[i].path.ptr, files[i].path.len);
        }
        if (f.path) {
            f.path[files[i].path.len] = '\0';
        }
        bool is_whole = f.path && f.data && mr_turn_copy(f.data, files[i].data.ptr, f.len);
        job->files[job->file_count++] = f;
        if (!is_whole) {
            return false;
        }
    }
    return true;
}

static int overrides_check(const struct mr_models *m, bool has_config, bool has_files,
                           struct mr_err *err)
{
    if (has_files && m->o.overrides != MR_LOAD_OVERRIDES_ALL) {
        return MR_FAIL(err, MR_E_FORBIDDEN,
                       "load requests with 'file:' parameters are not allowed (--load-overrides)");
    }
    if (has_config && m->o.overrides == MR_LOAD_OVERRIDES_NONE) {
        return MR_FAIL(
            err, MR_E_FORBIDDEN,
            "load requests with a 'config' parameter are not allowed (--load-overrides)");
    }
    return MR_OK;
}

/* An address in the place of the repositories. */
static int url_check(const struct mr_models *m, const struct mr_load_request *q, struct mr_err *err)
{
    if (!q->url.ptr) {
        return q->sha256.ptr
                   ? MR_FAIL(err, MR_E_INVALID, "a 'sha256' parameter needs a 'url' parameter")
                   : MR_OK;
    }
    if (q->file_count > 0) {
        return MR_FAIL(err, MR_E_INVALID, "'url' and 'file:' parameters exclude each other");
    }
    if (q->sha256.ptr && q->sha256.len != MR_SHA256_TEXT - 1) {
        return MR_FAIL(err, MR_E_INVALID,
                       "the 'sha256' parameter has %zu characters, a SHA-256 has %d hexadecimal "
                       "digits",
                       q->sha256.len, MR_SHA256_TEXT - 1);
    }
    return mr_url_check(m, q->url, err);
}

#define PATH_CHECK_BYTES                                                                           \
    1024 /* more than a path may have: the rest of one that is too long is not read */

/* Everything that can be refused without looking at the disk. */
static int load_check(const struct mr_models *m, mr_str name, const struct mr_load_request *q,
                      struct mr_err *err)
{
    int rc = MR_OK;

    MR_TRY(mr_control_check(m, CONTROL_REFUSED, NULL, err));
    MR_TRY(overrides_check(m, q->config_json.ptr != NULL, q->file_count > 0, err));
    MR_TRY(mr_model_name_check(name, err));
    if (url_check(m, q, err) < 0) {
        return MR_WRAP(err, err->status, "failed to load '%.*s'", MR_STR_ARG(name));
    }
    if (q->config_json.len > MR_CONFIG_MAX_BYTES) {
        return MR_FAIL(err, MR_E_INVALID,
                       "failed to load '%.*s', the 'config' parameter has %zu bytes, at most are "
                       "allowed %zu",
                       MR_STR_ARG(name), q->config_json.len, MR_CONFIG_MAX_BYTES);
    }
    if (q->file_count > 0 && !q->config_json.ptr) {
        return MR_FAIL(err, MR_E_INVALID,
                       "failed to load '%.*s', failed to poll from model repository: 'file:' "
                       "parameters need a 'config' parameter beside them",
                       MR_STR_ARG(name));
    }
    for (size_t i = 0; i < q->file_count && rc == MR_OK; i++) {
        mr_str path = mr_str_sub(q->files[i].path, 0, PATH_CHECK_BYTES);
        bool has_nul = path.len > 0 && memchr(path.ptr, 0, path.len);
        rc = mr_model_path_check(has_nul ? MR_STR("") : path, err);
        if (rc < 0) {
            MR_WRAP(err, rc, "failed to load '%.*s', failed to poll from model repository",
                    MR_STR_ARG(name));
        }
    }
out:
    return rc;
}

static void url_copy(struct mr_job *job, const struct mr_load_request *q)
{
    struct mr_buf path;

    if (!q->url.ptr) {
        return;
    }
    mr_buf_init(&path, 0);
    mr_buf_str(&path, q->url);
    if (q->sha256.ptr) {
        mr_buf_printf(&path, "#sha256=%.*s", MR_STR_ARG(q->sha256));
    }
    job->path = mr_strndup(path.ptr, path.len);
    job->type = mr_strndup("", 0);
    mr_buf_fini(&path);
}

void mr_models_load(struct mr_models *m, mr_str name, const struct mr_load_request *q,
                    mr_models_done_fn *done, void *ctx)
{
    static const struct mr_load_request nothing;
    struct mr_job *job = mr_job_new(MR_JOB_LOAD, done, ctx);

    q = q ? q : &nothing;
    job->answer = load_check(m, name, q, &job->err);
    if (job->answer < 0) {
        job->kind = MR_JOB_ANSWER;
    } else if (!config_copy(job, q->config_json) || !files_copy(job, q->files, q->file_count)) {
        job_refuse(job, MR_E_NOMEM,
                   "no memory for the files of this load request, or the server is exiting");
    } else {
        url_copy(job, q);
    }
    mr_job_submit(m, job, name);
}

void mr_models_unload(struct mr_models *m, mr_str name, bool dependents, mr_models_done_fn *done,
                      void *ctx)
{
    struct mr_job *job = mr_job_new(MR_JOB_UNLOAD, done, ctx);

    job->dependents = dependents;
    job->answer = mr_control_check(m, CONTROL_REFUSED, NULL,
                                   &job->err); /* any name: of an unknown one nothing is loaded */
    if (job->answer < 0) {
        job->kind = MR_JOB_ANSWER;
    }
    mr_job_submit(m, job, name);
}

void mr_models_rollback(struct mr_models *m, mr_str name, mr_str version, mr_models_done_fn *done,
                        void *ctx)
{
    struct mr_job *job = mr_job_new(MR_JOB_LOAD, done, ctx);

    job->is_rollback = true;
    job->answer =
        mr_control_check(m, "no rollback by request",
                         "a version_policy in config.pbtxt that names the version", &job->err);
    if (job->answer == MR_OK) {
        job->answer = mr_model_name_check(name, &job->err);
    }
    if (job->answer == MR_OK && version.len > 0 && !mr_version_number(version, &job->back_to)) {
        job->answer = MR_FAIL(&job->err, MR_E_INVALID, "'%.*s' is no version number",
                              MR_STR_ARG(mr_str_sub(version, 0, 100)));
    }
    if (job->answer < 0) {
        job->kind = MR_JOB_ANSWER;
    }
    mr_job_submit(m, job, name);
}
