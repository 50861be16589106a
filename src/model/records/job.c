/* Jobs, apart from their queue. */
#include "job.h"

struct mr_job *mr_job_new(enum mr_job_kind kind, mr_models_done_fn *done, void *ctx)
{
    struct mr_job *job = MR_NEW(struct mr_job);

    job->kind = kind;
    job->done = done;
    job->ctx = ctx;
    return job;
}

bool mr_job_is_unwanted(const struct mr_models *m, const struct mr_job *job)
{
    return atomic_load_explicit(&job->is_cancelled, memory_order_relaxed) ||
           atomic_load_explicit(&m->is_stopping, memory_order_relaxed);
}

bool mr_jobs_are_stuck(const struct mr_models *m)
{
    return !m->is_submitting && m->asks_beginning == 0 &&
           m->jobs_open == m->deferred_count + m->jobs_waiting + m->jobs_asking;
}

size_t mr_load_places(const struct mr_models *m)
{
    return m->is_started ? MR_MIN(m->o.update_threads, m->o.load_threads) : m->o.load_threads;
}

void mr_load_place_leave(struct mr_models *m, struct mr_job *job)
{
    m->loads_running -= job->has_place;
    job->has_place = false;
    pthread_cond_broadcast(&m->work);
    pthread_cond_broadcast(&m->idle); /* others that want a place again */
}

void mr_load_place_take(struct mr_models *m, struct mr_job *job)
{
    /* One that is only going to end needs no place, and others may be waiting for its end. */
    while (!job->has_place && m->loads_running >= mr_load_places(m) &&
           !mr_job_is_unwanted(m, job)) {
        pthread_cond_wait(&m->idle, &m->lock);
    }
    m->loads_running += !job->has_place;
    job->has_place = true;
}

int mr_control_check(const struct mr_models *m, const char *what, const char *instead,
                     struct mr_err *err)
{
    static const char *const modes[] = {"none", "poll", "explicit"};
    const bool has_other = instead && m->o.control == MR_MODEL_CONTROL_POLL;

    return m->o.control == MR_MODEL_CONTROL_EXPLICIT
               ? MR_OK
               : MR_FAIL(
                     err, MR_E_UNAVAILABLE,
                     "%s: the server runs with --model-control-mode=%s, this needs explicit%s%s",
                     what, modes[m->o.control], has_other ? ", or " : "", has_other ? instead : "");
}
