/* The administration thread: reports that go over all models (index, statistics of everything, metrics) are
 * made here, so that they cost the network threads nothing however many models there are. */
#include "base/thread.h"
#include "serve_private.h"

static struct admin_job *next_job(struct admin *a)
{
    struct admin_job *job;

    pthread_mutex_lock(&a->mutex);
    while (!a->first && !a->is_stopping)
        pthread_cond_wait(&a->work, &a->mutex);
    job = a->first;
    if (job)
        a->first = job->next;
    if (!a->first)
        a->last = NULL;
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

int admin_start(struct admin *a, struct mr_err *err)
{
    int rc;

    pthread_mutex_init(&a->mutex, NULL);
    pthread_cond_init(&a->work, NULL);
    rc = mr_thread_start(&a->thread, "admin", admin_main, a, err);
    a->is_started = rc == MR_OK;
    return rc;
}

/* What was submitted before is still done. */
void admin_stop(struct admin *a)
{
    if (!a->is_started)
        return;
    pthread_mutex_lock(&a->mutex);
    a->is_stopping = true;
    pthread_cond_signal(&a->work);
    pthread_mutex_unlock(&a->mutex);
    pthread_join(a->thread, NULL);
    pthread_cond_destroy(&a->work);
    pthread_mutex_destroy(&a->mutex);
    a->is_started = false;
}

void admin_submit(struct mr_server *s, struct admin_job *job)
{
    struct admin *a = &s->admin;

    job->loop = serve_here();
    job->next = NULL;
    pthread_mutex_lock(&a->mutex);
    if (a->last)
        a->last->next = job;
    else
        a->first = job;
    a->last = job;
    pthread_cond_signal(&a->work);
    pthread_mutex_unlock(&a->mutex);
}
