/* Either the thread that leaves the loop sees work and wakes the client's thread, or the one that adds work sees that no thread
 * runs the loop and wakes it: `work` and `is_driven` are sequentially consistent for that. */
#include "driver.h"

#include <errno.h>

#include "base/clock.h"
#include "base/thread.h"

#define WAIT_MAX_MS ((int64_t)86400000)

void driver_wake(struct driver *d)
{
    if (!atomic_exchange(&d->is_wanted, true)) {
        sem_post(&d->wanted);
    }
}

static void leave(struct driver *d)
{
    atomic_store(&d->is_driven, false);
    pthread_mutex_unlock(&d->lock);
    if (atomic_load(&d->work) > 0) {
        driver_wake(d);
    }
}

static void *thread_main(void *arg)
{
    struct driver *d = arg;

    for (;;) {
        while (sem_wait(&d->wanted) < 0 && errno == EINTR) {
        }
        atomic_store(&d->is_wanted, false);
        if (atomic_load(&d->is_ending)) {
            return NULL;
        }
        pthread_mutex_lock(&d->lock);
        atomic_store(&d->is_driven, true);
        while (atomic_load(&d->work) > 0 && !atomic_load(&d->is_ending)) {
            mr_loop_step(d->loop, NULL);
        }
        leave(d);
    }
}

/* ---- life ---- */

int driver_start(struct driver *d, struct mr_err *err)
{
    int rc = mr_loop_new(&d->loop, NULL, err);

    if (rc < 0) {
        return rc;
    }
    pthread_mutex_init(&d->lock, NULL);
    pthread_mutex_init(&d->left_lock, NULL);
    sem_init(&d->wanted, 0, 0);
    rc = mr_thread_start(&d->thread, "mr_sdk", thread_main, d, err);
    if (rc < 0) {
        mr_loop_free(&d->loop);
    }
    return rc;
}

static void on_nothing(struct mr_mail *mail)
{
    (void)mail;
}

void driver_stop(struct driver *d)
{
    struct mr_mail wake = {.run = on_nothing};

    atomic_store(&d->is_ending, true);
    mr_loop_post(d->loop, &wake); /* it may sleep in the loop */
    driver_wake(d);
    pthread_join(d->thread, NULL);
    pthread_mutex_lock(&d->lock); /* until driver_close */
    mr_loop_settle(d->loop);      /* the mail is on this stack */
}

void driver_step(struct driver *d)
{
    mr_loop_step(d->loop, NULL);
}

void driver_settle(struct driver *d, bool (*is_idle)(void *ctx), void *ctx)
{
    while (!is_idle(ctx) || atomic_load(&d->users) > 0) {
        driver_step(d);
    }
}

void driver_close(struct driver *d)
{
    pthread_mutex_lock(&d->left_lock);
    d->is_closed = true;
    pthread_mutex_unlock(&d->left_lock);
    mr_loop_settle(d->loop); /* `left` may be on its way */
    mr_loop_free(&d->loop);
    pthread_mutex_unlock(&d->lock);
}

void driver_free(struct driver *d)
{
    sem_destroy(&d->wanted);
    pthread_mutex_destroy(&d->left_lock);
    pthread_mutex_destroy(&d->lock);
}

/* ---- who uses the loop ---- */

/* Ends a step of driver_settle. */
static void on_left(struct mr_mail *mail)
{
    struct driver *d = MR_CONTAINER_OF(mail, struct driver, left);

    pthread_mutex_lock(&d->left_lock);
    d->is_left_posted = false;
    pthread_mutex_unlock(&d->left_lock);
}

/* `users` and `is_ending` are sequentially consistent: either this thread sees the end, or driver_settle sees the user. */
bool driver_enter(struct driver *d)
{
    atomic_fetch_add(&d->users, 1);
    if (!atomic_load(&d->is_ending)) {
        return true;
    }
    driver_leave(d);
    return false;
}

void driver_leave(struct driver *d)
{
    if (atomic_fetch_sub(&d->users, 1) != 1 || !atomic_load(&d->is_ending)) {
        return;
    }
    pthread_mutex_lock(&d->left_lock);
    if (!d->is_closed && !d->is_left_posted) {
        d->is_left_posted = true;
        d->left.run = on_left;
        mr_loop_post(d->loop, &d->left);
    }
    pthread_mutex_unlock(&d->left_lock);
}

/* ---- work ---- */

void driver_begin(struct driver *d)
{
    atomic_fetch_add(&d->work, 1);
}

void driver_end(struct driver *d)
{
    atomic_fetch_sub(&d->work, 1);
}

void driver_post(struct driver *d, struct mr_mail *mail)
{
    mr_loop_post(d->loop, mail);
    if (!atomic_load(&d->is_driven)) {
        driver_wake(d);
    }
}

/* The timer does nothing but end a step. */
static void on_until(struct mr_timer *t)
{
    (void)t;
}

bool driver_run(struct driver *d, struct mr_mail *mail, const _Atomic bool *is_done,
                int64_t until_ns)
{
    struct mr_timer until = {0};

    if (pthread_mutex_trylock(&d->lock) != 0) {
        return false;
    }
    if (atomic_load(&d->is_ending)) {
        pthread_mutex_unlock(&d->lock);
        return false;
    }
    atomic_store(&d->is_driven, true);
    if (until_ns != INT64_MAX) {
        mr_timer_start(d->loop, &until, until_ns - mr_loop_now_ns(d->loop), 0, on_until);
    }
    while (!atomic_load(is_done) && (mail || !atomic_load(&d->is_ending))) {
        mr_loop_step(d->loop, mail);
        mail = NULL;
        if (mr_now_ns() >= until_ns) {
            break;
        }
    }
    mr_timer_stop(&until);
    leave(d);
    return true;
}

static bool is_here(struct driver *d)
{
    pthread_mutex_lock(&d->left_lock);
    const bool is = !d->is_closed && mr_loop_is_here(d->loop);
    pthread_mutex_unlock(&d->left_lock);
    return is;
}

int64_t driver_wait_end(struct driver *d, int64_t wait_ms)
{
    if (is_here(d)) {
        return 0;
    }
    return wait_ms < 0 ? INT64_MAX
                       : mr_ns_after(mr_now_ns(), MR_MIN(wait_ms, WAIT_MAX_MS) * MR_NS_PER_MS);
}
