/* A line on the terminal with the progress of a load. While the command waits for the answer to its load request, a
 * thread with a connection of its own queries the versions of the model a few times a second. Errors there are
 * ignored: no line is shown. */
#include <pthread.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/thread.h"
#include "cli/common/term.h"
#include "model.h"

#define POLL_NS (200 * MR_NS_PER_MS)

struct model_watch {
    const struct model_run *run;
    struct mr_remote remote;
    pthread_t thread;
    pthread_mutex_t lock; /* guards is_over */
    pthread_cond_t over;
    bool is_over;
    bool has_line;
};

static void show(struct model_watch *w, const struct model_progress *p)
{
    char text[200] = "";
    struct mr_buf clean;

    if (p->step.len) {
        model_text_progress(text, p);
    }
    mr_buf_init(&clean, 0);
    mr_text_clean(&clean, mr_str_c(text));
    fprintf(stderr, "\r%s version %.*s %.*s %s\033[K", w->run->name, MR_STR_ARG(p->version),
            MR_STR_ARG(p->state), mr_buf_cstr(&clean));
    fflush(stderr);
    mr_buf_fini(&clean);
    w->has_line = true;
}

static void check(struct model_watch *w)
{
    struct mr_remote_reply reply;
    struct model_progress p;
    struct mr_arena arena;
    struct mr_err err;
    char path[600];

    snprintf(path, sizeof path, "/v2/models/%.500s/versions", w->run->name);
    if (mr_remote_text(&w->remote, path, NULL, &reply, &err) < 0) {
        return;
    }
    mr_arena_init(&arena, 4096, (size_t)1 << 26);
    if (model_read_progress(reply.body, &arena, &p, &err) == MR_OK && p.version.len) {
        show(w, &p);
    }
    mr_arena_fini(&arena);
    mr_remote_reply_fini(&reply);
}

static void *watch_main(void *arg)
{
    struct model_watch *w = arg;

    pthread_mutex_lock(&w->lock);
    while (!w->is_over) {
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until); /* the default clock of a condition variable */
        int64_t ns = until.tv_sec * MR_NS_PER_S + until.tv_nsec + POLL_NS;
        until = (struct timespec){ns / MR_NS_PER_S, ns % MR_NS_PER_S};
        if (pthread_cond_timedwait(&w->over, &w->lock, &until) == 0) {
            continue;
        }
        pthread_mutex_unlock(&w->lock);
        check(w);
        pthread_mutex_lock(&w->lock);
    }
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

struct model_watch *model_watch_start(const struct model_run *m)
{
    struct mr_err ignored;

    if (!mr_term_of(stderr).is_terminal || m->form == MODEL_JSON) {
        return NULL;
    }
    struct model_watch *w = MR_NEW(struct model_watch);
    w->run = m;
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->over, NULL);
    int rc =
        mr_remote_open(&w->remote, m->opt.url, 8000, false, MR_NS_PER_S, &m->opt.access, &ignored);
    if (rc == MR_OK) {
        rc = mr_thread_start(&w->thread, "watch", watch_main, w, &ignored);
    }
    if (rc < 0) {
        mr_remote_close(&w->remote);
        pthread_cond_destroy(&w->over);
        pthread_mutex_destroy(&w->lock);
        mr_freep(&w);
    }
    return w;
}

void model_watch_stop(struct model_watch **watch)
{
    struct model_watch *w = *watch;

    if (!w) {
        return;
    }
    pthread_mutex_lock(&w->lock);
    w->is_over = true;
    pthread_cond_signal(&w->over);
    pthread_mutex_unlock(&w->lock);
    pthread_join(w->thread, NULL);
    if (w->has_line) {
        fprintf(stderr, "\r\033[K");
    }
    mr_remote_close(&w->remote);
    pthread_cond_destroy(&w->over);
    pthread_mutex_destroy(&w->lock);
    mr_freep(watch);
}
