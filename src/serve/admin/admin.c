/* The administration thread: reports that go over all models (index, statistics of everything, metrics) are
 * made here, so that they cost the network threads nothing however many models there are. Beside that it ages
 * the cache of bulk memory. */
#include "admin.h"

#include <errno.h>

#include "base/clock.h"
#include "base/pool.h"
#include "base/thread.h"
#include "serve/state/loops.h"
#include "serve/state/state.h"

#define AGE_NS (5 * MR_NS_PER_S)

struct admin {
    pthread_t thread;
    pthread_mutex_t mutex; /* guards first, last, is_stopping; held for list work only */
    pthread_cond_t work;
    struct admin_job *first;
    struct admin_job *last;
    int64_t age_ns; /* the thread's own: when to age the cache of bulk memory */
    bool is_stopping;
};

/* Without the mutex for a moment when the time has come. */
static void wait_for_work(struct admin *a)
{
    struct timespec until = {a->age_ns / MR_NS_PER_S, a->age_ns % MR_NS_PER_S};

    if (pthread_cond_timedwait(&a->work, &a->mutex, &until) != ETIMEDOUT) {
        return;
    }
    pthread_mutex_unlock(&a->mutex);
    mr_block_age();
    a->age_ns = mr_now_ns() + AGE_NS;
    pthread_mutex_lock(&a->mutex);
}

static struct admin_job *next_job(struct admin *a)
{
    struct admin_job *job;

    pthread_mutex_lock(&a->mutex);
    while (!a->first && !a->is_stopping) {
        wait_for_work(a);
    }
    job = a->first;
    if (job) {
        a->first = job->next;
    }
    if (!a->first) {
        a->last = NULL;
    }
    pthread_mutex_unlock(&a->mutex);
    return job;
}

static void run_done(struct mr_mail *mail)
{
    struct admin_job *job = MR_CONTAINER_OF(mail, struct admin_job, mail);
    job->done(job);
}

static void *admin_main(void *arg)
{
    struct admin *a = arg;
    struct admin_job *job;

    while ((job = next_job(a)) != NULL) {
        job->run(job);
        job->mail.run = run_done;
        mr_loop_post(job->loop->loop, &job->mail);
    }
    return NULL;
}

static void admin_free(struct admin *a)
{
    pthread_cond_destroy(&a->work);
    pthread_mutex_destroy(&a->mutex);
    mr_free(a);
}

int admin_start(struct admin **out, struct mr_err *err)
{
    struct admin *a = MR_NEW(struct admin);
    pthread_condattr_t clock;

    pthread_mutex_init(&a->mutex, NULL);
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_cond_init(&a->work, &clock);
    pthread_condattr_destroy(&clock);
    a->age_ns = mr_now_ns() + AGE_NS;
    const int rc = mr_thread_start(&a->thread, "admin", admin_main, a, err);
    if (rc < 0) {
        admin_free(a);
        return rc;
    }
    *out = a;
    return MR_OK;
}

void admin_stop(struct admin **admin)
{
    struct admin *a = *admin;

    if (!a) {
        return;
    }
    pthread_mutex_lock(&a->mutex);
    a->is_stopping = true;
    pthread_cond_signal(&a->work);
    pthread_mutex_unlock(&a->mutex);
    pthread_join(a->thread, NULL);
    admin_free(a);
    *admin = NULL;
}

void admin_submit(struct mr_server *s, struct admin_job *job)
{
    struct admin *a = s->admin;

    job->loop = serve_here();
    job->next = NULL;
    pthread_mutex_lock(&a->mutex);
    if (a->last) {
        a->last->next = job;
    } else {
        a->first = job;
    }
    a->last = job;
    pthread_cond_signal(&a->work);
    pthread_mutex_unlock(&a->mutex);
}
