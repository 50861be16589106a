#include "exec/feed.h"

#include <pthread.h>
#include <stdatomic.h>

#include "base/mem.h"

struct mr_feed {
    _Atomic uint32_t refs;
    /* Guards what follows; held for a few stores, and while `ready` and `done` run. */
    pthread_mutex_t lock;
    struct mr_feed_item *first, **end;
    void (*ready)(void *ctx); /* NULL: no one asks */
    void *ctx;
    bool has_ended, is_closed, is_used;
};

struct mr_feed *mr_feed_new(void)
{
    struct mr_feed *f = MR_NEW(struct mr_feed);

    atomic_init(&f->refs, 1);
    pthread_mutex_init(&f->lock, NULL);
    f->end = &f->first;
    return f;
}

struct mr_feed *mr_feed_ref(struct mr_feed *f)
{
    if (f) {
        atomic_fetch_add_explicit(&f->refs, 1, memory_order_relaxed);
    }
    return f;
}

void mr_feed_unref(struct mr_feed **f)
{
    if (*f && atomic_fetch_sub_explicit(&(*f)->refs, 1, memory_order_acq_rel) == 1) {
        pthread_mutex_destroy(&(*f)->lock);
        mr_free(*f);
    }
    *f = NULL;
}

/* Lock held. */
static void call_ready(struct mr_feed *f)
{
    void (*ready)(void *ctx) = f->ready;

    f->ready = NULL;
    if (ready) {
        ready(f->ctx);
    }
}

void mr_feed_put(struct mr_feed *f, struct mr_feed_item *i)
{
    pthread_mutex_lock(&f->lock);
    if (f->is_closed || f->has_ended) {
        i->done(i);
    } else {
        i->next = NULL;
        *f->end = i;
        f->end = &i->next;
        call_ready(f);
    }
    pthread_mutex_unlock(&f->lock);
}

void mr_feed_end(struct mr_feed *f)
{
    pthread_mutex_lock(&f->lock);
    f->has_ended = true;
    call_ready(f);
    pthread_mutex_unlock(&f->lock);
}

void mr_feed_close(struct mr_feed *f)
{
    struct mr_feed_item *i;

    pthread_mutex_lock(&f->lock);
    f->is_closed = true;
    while ((i = f->first)) {
        f->first = i->next;
        i->done(i);
    }
    f->end = &f->first;
    call_ready(f);
    pthread_mutex_unlock(&f->lock);
}

void mr_feed_ask(struct mr_feed *f, void (*ready)(void *ctx), void *ctx)
{
    pthread_mutex_lock(&f->lock);
    call_ready(f);
    f->ready = ready;
    f->ctx = ctx;
    if (f->first || f->has_ended || f->is_closed) {
        call_ready(f);
    }
    pthread_mutex_unlock(&f->lock);
}

bool mr_feed_withdraw(struct mr_feed *f, const void *ctx)
{
    pthread_mutex_lock(&f->lock);
    const bool is_there = f->ready && f->ctx == ctx;
    if (is_there) {
        f->ready = NULL;
    }
    pthread_mutex_unlock(&f->lock);
    return is_there;
}

int mr_feed_take(struct mr_feed *f, struct mr_feed_item **out, struct mr_err *err)
{
    int rc = MR_OK;

    pthread_mutex_lock(&f->lock);
    struct mr_feed_item *i = f->first;
    if (i) {
        f->first = i->next;
        f->end = f->first ? f->end : &f->first;
        f->is_used = true;
    } else if (f->is_closed || !f->has_ended) {
        rc = MR_FAIL(err, MR_E_CANCELLED, "the request was cancelled");
    }
    pthread_mutex_unlock(&f->lock);
    *out = i;
    return rc;
}

bool mr_feed_is_used(struct mr_feed *f)
{
    pthread_mutex_lock(&f->lock);
    const bool is_used = f->is_used;
    pthread_mutex_unlock(&f->lock);
    return is_used;
}
