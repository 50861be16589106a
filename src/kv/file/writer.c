/* The report of a job that has run is a mail to the loop. As a mail cannot be taken back, it is memory of its own,
 * which the mail itself frees if the writer is gone by then. */
#include "writer.h"

#include "base/mem.h"
#include "base/thread.h"
#include "net/loop.h"

struct report {
    struct mr_mail mail;
    struct kv_writer *writer; /* NULL: it is gone. Thread: loop */
    struct kv_job *job;
};

struct kv_writer {
    struct mr_loop *loop;
    pthread_t thread;
    struct report *report; /* of the job under way; NULL: none. Thread: loop */
    pthread_mutex_t mutex;
    pthread_cond_t cond;
    struct report *next; /* to be run; under the mutex */
    bool is_over;        /* under the mutex */
};

static void on_report(struct mr_mail *mail)
{
    struct report *r = MR_CONTAINER_OF(mail, struct report, mail);
    struct kv_writer *w = r->writer;
    struct kv_job *job = r->job;

    mr_free(r);
    if (w) {
        w->report = NULL;
        job->done(job);
    }
}

static void *thread_main(void *arg)
{
    struct kv_writer *w = arg;

    pthread_mutex_lock(&w->mutex);
    for (;;) {
        while (!w->next && !w->is_over) {
            pthread_cond_wait(&w->cond, &w->mutex);
        }
        struct report *r = w->next;
        if (!r) {
            break;
        }
        w->next = NULL;
        pthread_mutex_unlock(&w->mutex);
        r->job->run(r->job);
        mr_loop_post(w->loop, &r->mail);
        pthread_mutex_lock(&w->mutex);
    }
    pthread_mutex_unlock(&w->mutex);
    return NULL;
}

int kv_writer_new(struct kv_writer **out, struct mr_loop *loop, struct mr_err *err)
{
    struct kv_writer *w = MR_NEW(struct kv_writer);

    w->loop = loop;
    pthread_mutex_init(&w->mutex, NULL);
    pthread_cond_init(&w->cond, NULL);
    int rc = mr_thread_start(&w->thread, "kv-disk", thread_main, w, err);
    if (rc < 0) {
        pthread_cond_destroy(&w->cond);
        pthread_mutex_destroy(&w->mutex);
        mr_free(w);
        return rc;
    }
    *out = w;
    return MR_OK;
}

bool kv_writer_is_busy(const struct kv_writer *w)
{
    return w->report;
}

void kv_writer_start(struct kv_writer *w, struct kv_job *job)
{
    struct report *r = MR_NEW(struct report);

    MR_ASSERT(!w->report);
    r->mail.run = on_report;
    r->writer = w;
    r->job = job;
    w->report = r;
    pthread_mutex_lock(&w->mutex);
    w->next = r;
    pthread_cond_signal(&w->cond);
    pthread_mutex_unlock(&w->mutex);
}

void kv_writer_free(struct kv_writer **io_w)
{
    struct kv_writer *w = *io_w;

    *io_w = NULL;
    if (!w) {
        return;
    }
    pthread_mutex_lock(&w->mutex);
    w->is_over = true;
    pthread_cond_signal(&w->cond);
    pthread_mutex_unlock(&w->mutex);
    pthread_join(w->thread, NULL);
    if (w->report) {
        w->report->writer = NULL;
    }
    pthread_cond_destroy(&w->cond);
    pthread_mutex_destroy(&w->mutex);
    mr_free(w);
}
