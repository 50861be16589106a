/* Loads that failed and are tried again later, with pauses that double; those of ensembles that wait for what they ask
 * (users.c) have no time.
 *
 * Only loads without a caller: those of poll mode, of the server's start, and such returns. A load that a client requested
 * is answered and not repeated.
 * A newer job for the model - its folder has changed, a client loads or unloads it -
 * replaces the retry at once. If that job finds that the version which failed has not changed, the job waits in the retry's place, so
 * how many tries there were and when the next one is due belong to the model. No thread sleeps for a retry: the loaders look at the list
 * when they look for work. Everything here needs the manager's lock. */
#include "retry.h"

#include "base/clock.h"
#include "base/log.h"
#include "members.h"
#include "model/records/job.h"

#define PAUSE_MOST_NS (300 * MR_NS_PER_S)

static int64_t pause_of(const struct mr_models *m, uint32_t tries)
{
    int64_t pause_ns = m->o.retry_pause_ns;

    for (uint32_t i = 0; i < tries && pause_ns < PAUSE_MOST_NS; i++) {
        pause_ns *= 2;
    }
    return MR_MIN(pause_ns, MR_MAX(PAUSE_MOST_NS, m->o.retry_pause_ns));
}

static bool is_worth_it(const struct mr_models *m, const struct mr_job *job)
{
    const bool is_timed = (job->kind == MR_JOB_SYNC || job->is_first) && m->o.retry_pause_ns > 0 &&
                          job->model->tries < MR_RETRIES_MAX;

    return (is_timed || job->is_return) && !job->is_hopeless;
}

/* After a failure. False: it is not tried again. */
static bool retry_plan(const struct mr_models *m, const struct mr_job *job)
{
    struct mr_model *model = job->model;

    if (!job->is_retry) {
        model->tries = 0; /* something else has failed, or has changed */
    }
    if (!is_worth_it(m, job)) {
        model->tries = 0;
        return false;
    }
    if (!job->is_return) {
        const int64_t pause_ns = pause_of(m, model->tries++);
        model->retry_ns = mr_ns_after(mr_now_ns(), pause_ns);
        mr_log(MR_LOG_INFO, "model.retry", "model=%s in_s=%.1f try=%u of %u",
               MR_LOG_STR(model->name), (double)pause_ns / 1e9, model->tries, MR_RETRIES_MAX);
    }
    return true;
}

/* It waits for mr_members_hasten, unless what it asks has become ready since it began. */
static int64_t return_time(struct mr_models *m, const struct mr_job *job)
{
    const bool is_due = job->has_ended_load ||
                        (m->publishes != job->publishes && mr_members_are_ready(m, job->model));

    return is_due ? 0 : INT64_MAX;
}

bool mr_retry_keep(struct mr_models *m, struct mr_job *job)
{
    struct mr_job **at = &m->retries;

    if (mr_job_is_unwanted(m, job) || (!job->is_early && !retry_plan(m, job)) ||
        job->model->waiting_first) {
        return false; /* the one that waits takes its place */
    }
    job->due_ns = job->is_return ? return_time(m, job) : job->model->retry_ns;
    job->has_ended_load = false;
    job->done = NULL;
    job->is_running = false;
    job->has_place = false;
    job->asked = job->is_return ? UINT_MAX : 0; /* it waits for others, and asks for none */
    job->waits_no_more = job->waits_for_users = job->is_opening = false;
    job->is_early = job->is_retry = false;
    job->folder_fingerprint = 0;
    while (*at && (*at)->due_ns <= job->due_ns) {
        at = &(*at)->next;
    }
    job->next = *at;
    *at = job;
    job->model->retry = job;
    pthread_cond_broadcast(&m->work); /* those who wait must know until when */
    return true;
}

struct mr_job *mr_retry_due(struct mr_models *m, int64_t *out_next_ns)
{
    struct mr_job *job = m->retries;

    if (!job || job->due_ns > mr_now_ns()) {
        *out_next_ns = job ? job->due_ns : INT64_MAX;
        return NULL;
    }
    m->retries = job->next;
    job->model->retry = NULL;
    job->is_retry = true;
    return job;
}

struct mr_job *mr_retry_drop(struct mr_models *m, struct mr_model *model)
{
    struct mr_job *job = model->retry;
    struct mr_job **at = &m->retries;

    if (!job) {
        return NULL;
    }
    while (*at != job) {
        at = &(*at)->next;
    }
    *at = job->next;
    model->retry = NULL;
    return job;
}

void mr_retry_now(struct mr_models *m, struct mr_model *model)
{
    struct mr_job *job = mr_retry_drop(m, model);

    job->due_ns = 0;
    job->next = m->retries;
    m->retries = job;
    model->retry = job;
    pthread_cond_broadcast(&m->work);
}
