/* The network threads: one event loop each, a reader of the model table each. */
#include "loops.h"

#include <stdio.h>

#include "base/thread.h"
#include "net/client.h"
#include "places.h"
#include "serve/plane/call_times.h"
#include "shm/homes.h"
#include "state.h"

#define EXIT_GRACE_NS MR_NS_PER_S
#define POLL_NS       (20 * MR_NS_PER_MS)

static _Thread_local struct serve_loop *here;

struct serve_loop *serve_here(void)
{
    return here;
}

static void post_reply(void *ctx, struct mr_mail *mail)
{
    struct serve_loop *l = ctx;

    mr_loop_post(l->loop, mail);
}

/* A thread is a reader of the model table while it works, not while it sleeps. */
static void after_wake(void *ctx)
{
    struct serve_loop *l = ctx;

    if (l->server->models) {
        mr_epoch_online(mr_models_epoch(l->server->models));
        mr_models_awake(l->server->models, l->epoch_slot);
    }
}

static void on_check(struct mr_timer *t)
{
    (void)t; /* the loop is awake, and takes what is done before it sleeps again */
}

/* A worker process that reads what others write to the loop's door, as no backend of good will does, delays answers by
 * POLL_NS, no longer. */
static size_t take_done(void *ctx)
{
    struct serve_loop *l = ctx;
    bool is_pending = false;
    const size_t count =
        l->server->models ? mr_models_take(l->server->models, l->epoch_slot, &is_pending) : 0;

    if (is_pending && !l->check_timer.active) {
        mr_timer_start(l->loop, &l->check_timer, POLL_NS, 0, on_check);
    }
    return count;
}

static void before_sleep(void *ctx)
{
    struct serve_loop *l = ctx;

    places_put_found(l, NULL);
    if (l->server->models) {
        mr_epoch_offline(mr_models_epoch(l->server->models));
    }
}

/* Connections to other servers of the mesh. */
static void close_peers(struct serve_loop *l)
{
    struct mr_map_slot *slot;

    for (size_t i = 0; (slot = mr_map_next(&l->peers, &i));) {
        struct mr_client *c = slot->value;
        mr_client_free(&c);
    }
    mr_map_fini(&l->peers);
    mr_client_free(&l->runtime);
    places_fini(l);
}

static void *loop_main(void *arg)
{
    struct serve_loop *l = arg;

    here = l;
    mr_loop_run(l->loop);
    mr_timer_stop(
        &l->exit_timer); /* or mr_loop_free, which runs the loop once more, would find it due */
    mr_timer_stop(&l->check_timer);
    close_peers(l);
    mr_turns_end(mr_loop_turns(l->loop)); /* what it holds of models goes before they do */
    before_sleep(l);
    return NULL;
}

static void on_exit_timer(struct mr_timer *t)
{
    struct serve_loop *l = MR_CONTAINER_OF(t, struct serve_loop, exit_timer);

    mr_turns_refuse(mr_loop_turns(l->loop), MR_E_CLOSED);
}

static void on_changed(struct mr_mail *mail)
{
    struct serve_loop *l = MR_CONTAINER_OF(mail, struct serve_loop, changed);

    /* Who has sent a request is answered, unless it takes long to read: that is tried again elsewhere sooner than
     * the drain can wait. */
    if (here == l && serve_is_exiting(l->server) && !l->exit_timer.active && !l->exit_timer.fn) {
        mr_timer_start(l->loop, &l->exit_timer, EXIT_GRACE_NS, 0, on_exit_timer);
    }
    /* release: the next thread to post the mail (acquire in serve_notify) sees that the mailbox is done with it */
    atomic_store_explicit(&l->is_change_posted, false, memory_order_release);
    for (struct serve_pending *p = LIST_FIRST(&l->open), *next; p; p = next) {
        next = LIST_NEXT(p, link);
        p->changed(p);
    }
}

void serve_open(struct serve_pending *p)
{
    LIST_INSERT_HEAD(&here->open, p, link);
}

void serve_closed(struct serve_pending *p)
{
    LIST_REMOVE(p, link);
}

/* Thread: any. Informs each loop that readiness may have changed. */
void serve_notify(struct mr_server *s)
{
    for (unsigned i = 0; i < s->loop_count; i++) {
        struct serve_loop *l = &s->loops[i];
        if (l->is_started &&
            !atomic_exchange_explicit(&l->is_change_posted, true, memory_order_acq_rel)) {
            mr_loop_post(l->loop, &l->changed);
        }
    }
}

struct reply_timer {
    struct mr_timer timer;
    struct mr_reply_timer *of;
};
_Static_assert(sizeof(struct reply_timer) <= sizeof((struct mr_reply_timer){0}.room), "room");

static void on_reply_timer(struct mr_timer *t)
{
    struct mr_reply_timer *of = MR_CONTAINER_OF(t, struct reply_timer, timer)->of;

    of->run(of);
}

static int64_t reply_round(void *ctx)
{
    const struct serve_loop *l = ctx;

    return mr_loop_now_ns(l->loop);
}

static void set_reply_timer(void *ctx, struct mr_reply_timer *t, int64_t at_ns)
{
    struct serve_loop *l = ctx;
    struct reply_timer *mine = (struct reply_timer *)(void *)t->room;

    mine->of = t;
    if (at_ns == 0) {
        mr_timer_stop(&mine->timer);
        return;
    }
    mr_timer_start(l->loop, &mine->timer, MR_MAX(0, at_ns - mr_now_ns()), 0, on_reply_timer);
}

static int loop_init(struct mr_server *s, unsigned i, struct mr_err *err)
{
    struct serve_loop *l = &s->loops[i];
    const struct mr_loop_hooks hooks = {before_sleep, after_wake, take_done, l};

    l->server = s;
    l->epoch_slot = i;
    l->reply_loop = (struct mr_reply_loop){.post = post_reply,
                                           .ctx = l,
                                           .set_timer = set_reply_timer,
                                           .round = reply_round,
                                           .epoch_slot = i};
    l->changed.run = on_changed;
    l->call_times = s->options.mesh.registry ? MR_NEW(struct call_times) : NULL;
    int rc = mr_loop_new(&l->loop, &hooks, err);
    if (rc == MR_OK) {
        l->reply_loop.turns = mr_loop_turns(l->loop);
        mr_loop_set_busy_poll(l->loop, s->options.busy_poll_ns);
    }
    return rc;
}

int loops_open(struct mr_server *s, struct mr_err *err)
{
    int rc = MR_OK;

    for (unsigned i = 0; rc == MR_OK && i < s->loop_count; i++) {
        rc = loop_init(s, i, err);
    }
    return rc;
}

struct mr_shm_door *loops_doors(struct mr_server *s)
{
    struct mr_shm_door *doors = MR_NEW_ARRAY(struct mr_shm_door, s->loop_count);

    for (unsigned i = 0; i < s->loop_count; i++) {
        struct mr_loop *l = s->loops[i].loop;
        doors[i] = (struct mr_shm_door){mr_loop_door(l), mr_loop_bell(l)};
        if (doors[i].workers < 0) {
            mr_freep(&doors);
            break; /* another thread takes what is done */
        }
    }
    return doors;
}

int loops_start(struct mr_server *s, struct mr_err *err)
{
    char name[32];
    int rc;

    for (unsigned i = 0; i < s->loop_count; i++) {
        snprintf(name, sizeof name, "loop-%u", i);
        rc = mr_thread_start(&s->loops[i].thread, name, loop_main, &s->loops[i], err);
        if (rc < 0) {
            return rc;
        }
        s->loops[i].is_started = true;
    }
    return MR_OK;
}

void loops_stop(struct mr_server *s)
{
    for (unsigned i = 0; i < s->loop_count; i++) {
        if (s->loops[i].is_started) {
            mr_loop_stop(s->loops[i].loop);
        }
    }
    for (unsigned i = 0; i < s->loop_count; i++) {
        if (s->loops[i].is_started) {
            pthread_join(s->loops[i].thread, NULL);
        }
        s->loops[i].is_started = false;
    }
}
