/* The queue of loads and unloads.
 *
 * Jobs of one model run in the order in which they came, one at a time: while one is queued or
 * runs, the model is busy and later ones wait at the model. Jobs of different models run side by
 * side on the loader threads. When the manager stops, what is still queued is answered and not
 * done.
 *
 * `done` runs on a loader thread after the hook has heard of all changes that the job made, and
 * before the model's next job begins. */
#include "base/clock.h"
#include "manager.h"

#define STOP_TEXT "the server is stopping"

struct mr_job *mr_job_new(enum mr_job_kind kind, mr_models_done_fn *done, void *ctx)
{
    struct mr_job *job = MR_NEW(struct mr_job);

    job->kind = kind;
    job->done = done;
    job->ctx = ctx;
    return job;
}

static void job_free(struct mr_job *job)
{
    for (size_t i = 0; i < job->file_count; i++) {
        mr_free(job->files[i].path);
        mr_free(job->files[i].data);
    }
    mr_free(job->files);
    mr_free(job->config_json);
    mr_free(job->settled);
    mr_free(job);
}

static void queue_push(struct mr_models *m, struct mr_job *job)
{
    job->next = NULL;
    if (m->jobs_last) {
        m->jobs_last->next = job;
    } else {
        m->jobs_first = job;
    }
    m->jobs_last = job;
    pthread_cond_signal(&m->work);
}

static struct mr_job *queue_pop(struct mr_models *m)
{
    struct mr_job *job = m->jobs_first;

    m->jobs_first = job->next;
    if (!job->next) {
        m->jobs_last = NULL;
    }
    return job;
}

static void model_wait(struct mr_model *model, struct mr_job *job)
{
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

void mr_job_submit(struct mr_models *m, struct mr_job *job, mr_str name)
{
    pthread_mutex_lock(&m->lock);
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
    if (job->model && job->model->is_busy) {
        model_wait(job->model, job);
    } else {
        if (job->model) {
            job->model->is_busy = true;
        }
        queue_push(m, job);
    }
    pthread_mutex_unlock(&m->lock);
}

/* After a job: the model's next one, if there is one. Lock held. */
static void model_next(struct mr_models *m, struct mr_model *model)
{
    struct mr_job *next = model->waiting_first;

    if (next) {
        model->waiting_first = next->next;
        if (!next->next) {
            model->waiting_last = NULL;
        }
        queue_push(m, next);
        return;
    }
    model->is_busy = false;
    mr_model_forget_if_empty(m, model);
}

static int job_run(struct mr_models *m, struct mr_job *job, struct mr_err *err)
{
    if (job->kind == MR_JOB_ANSWER) {
        *err = job->err;
        return job->answer;
    }
    if (atomic_load_explicit(&m->is_stopping, memory_order_relaxed)) {
        return MR_FAIL(err, MR_E_UNAVAILABLE, STOP_TEXT);
    }
    if (job->kind == MR_JOB_UNLOAD) {
        return mr_unload_run(m, job->model, err);
    }
    return mr_load_run(m, job, err);
}

static void *loader_main(void *arg)
{
    struct mr_models *m = arg;

    pthread_mutex_lock(&m->lock);
    for (;;) {
        while (!m->jobs_first && !m->quit) {
            pthread_cond_wait(&m->work, &m->lock);
        }
        if (!m->jobs_first) {
            break;
        }
        struct mr_job *job = queue_pop(m);
        struct mr_err err = {0};
        pthread_mutex_unlock(&m->lock);
        int rc = job_run(m, job, &err);
        mr_changes_tell(m);
        if (job->done) {
            job->done(job->ctx, rc, &err);
        }
        struct mr_model *model = job->model;
        job_free(job);
        pthread_mutex_lock(&m->lock);
        if (model) {
            model_next(m, model);
        }
        m->jobs_open--;
        pthread_cond_broadcast(&m->idle);
    }
    pthread_mutex_unlock(&m->lock);
    return NULL;
}

int mr_jobs_start(struct mr_models *m, struct mr_err *err)
{
    m->loaders = MR_NEW_ARRAY(pthread_t, m->o.load_threads);
    while (m->loader_count < m->o.load_threads) {
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
        if (f.data && f.len) {
            memcpy(f.data, files[i].data.ptr, f.len);
        }
        job->files[job->file_count++] = f;
        if (!f.path || !f.data) {
            return false;
        }
    }
    return true;
}

int mr_control_check(const struct mr_models *m, struct mr_err *err)
{
    return m->o.control == MR_MODEL_CONTROL_EXPLICIT
               ? MR_OK
               : MR_FAIL(err, MR_E_UNAVAILABLE,
                         "explicit model load / unload is not allowed if polling is enabled");
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

/* Everything that can be refused without looking at the disk. */
static int load_check(const struct mr_models *m, mr_str name, mr_str config_json,
                      const struct mr_load_file *files, size_t file_count, struct mr_err *err)
{
    int rc = mr_control_check(m, err);

    if (rc == MR_OK) {
        rc = overrides_check(m, config_json.ptr != NULL, file_count > 0, err);
    }
    if (rc == MR_OK) {
        rc = mr_model_name_check(name, err);
    }
    if (rc == MR_OK && file_count > 0 && !config_json.ptr) {
        rc = MR_FAIL(err, MR_E_INVALID,
                     "failed to load '%.*s', 'file:' parameters need a 'config' parameter beside "
                     "them",
                     MR_STR_ARG(name));
    }
    for (size_t i = 0; i < file_count && rc == MR_OK; i++) {
        bool has_nul = files[i].path.len > 0 && memchr(files[i].path.ptr, 0, files[i].path.len);
        rc = mr_model_path_check(has_nul ? MR_STR("") : files[i].path, err);
        if (rc < 0) {
            MR_WRAP(err, rc, "failed to load '%.*s', failed to poll from model repository",
                    MR_STR_ARG(name));
        }
    }
    return rc;
}

void mr_models_load(struct mr_models *m, mr_str name, mr_str config_json,
                    const struct mr_load_file *files, size_t file_count, mr_models_done_fn *done,
                    void *ctx)
{
    struct mr_job *job = mr_job_new(MR_JOB_LOAD, done, ctx);

    job->answer = load_check(m, name, config_json, files, file_count, &job->err);
    if (job->answer < 0) {
        job->kind = MR_JOB_ANSWER;
    } else if (!config_copy(job, config_json) || !files_copy(job, files, file_count)) {
        job_refuse(job, MR_E_NOMEM, "no memory for the files of this load request");
    }
    mr_job_submit(m, job, name);
}

void mr_models_unload(struct mr_models *m, mr_str name, bool dependents, mr_models_done_fn *done,
                      void *ctx)
{
    struct mr_job *job = mr_job_new(MR_JOB_UNLOAD, done, ctx);

    (void)dependents; /* no model uses another one yet */
    job->answer =
        mr_control_check(m, &job->err); /* any name: of an unknown one nothing is loaded */
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
    job->answer = mr_control_check(m, &job->err);
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
