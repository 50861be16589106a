/* The memory store and its connections, and the steps that bring them forward. */
#include "store.h"

/* ---- the store ---- */

struct mr_kv_memory *mr_kv_memory_new(const struct mr_kv_memory_options *options)
{
    struct mr_kv_memory *m = MR_NEW(struct mr_kv_memory);

    if (options) {
        m->now_ns = options->now_ns;
        m->options.history_events = options->history_events;
        m->options.history_bytes = options->history_bytes;
    }
    kv_state_init(&m->state, &m->options);
    mr_rng_seed(&m->rng, 1);
    TAILQ_INIT(&m->conns);
    return m;
}

void mr_kv_memory_free(struct mr_kv_memory **m)
{
    struct mr_kv_memory *old = *m;

    *m = NULL;
    if (old) {
        kv_state_fini(&old->state);
        mr_free(old);
    }
}

void mr_kv_memory_compact(struct mr_kv_memory *m, int64_t revision)
{
    kv_history_compact(&m->state.history, MR_MIN(revision, m->state.revision));
}

void mr_kv_memory_erase(struct mr_kv_memory *m)
{
    struct memory_conn *c;
    struct memory_watch *w;

    kv_state_fini(&m->state);
    kv_state_init(&m->state, &m->options);
    m->incarnation++;
    TAILQ_FOREACH (c, &m->conns, link) {
        TAILQ_FOREACH (w, &c->watches, link) {
            if (w->is_active) {
                w->is_active = false;
                memory_watch_send(w);
            }
        }
    }
}

/* ---- connections ---- */

static void free_parcels(struct parcels *queue)
{
    struct parcel *p;
    while ((p = TAILQ_FIRST(queue))) {
        TAILQ_REMOVE(queue, p, link);
        memory_parcel_free(p);
    }
}

static void conn_free(struct mr_kv *kv)
{
    struct memory_conn *c = (struct memory_conn *)kv;
    struct memory_call *call;
    struct memory_watch *w;
    struct mr_err err;
    int rc = MR_FAIL(&err, MR_E_CANCELLED, "the connection to the registry was closed");

    while ((w = TAILQ_FIRST(&c->watches))) {
        memory_watch_stop(&w->base);
    }
    while ((call = TAILQ_FIRST(&c->calls))) {
        struct mr_kv_call base = call->base;
        if (call->is_waiting) {
            memory_parcel_free(call->parcel);
        }
        TAILQ_REMOVE(&c->calls, call, link);
        mr_free(call);
        base.done(base.ctx, rc, &err, NULL);
    }
    free_parcels(&c->up);
    free_parcels(&c->down);
    free_parcels(&c->local);
    TAILQ_REMOVE(&c->memory->conns, c, link);
    kv_conn_fini(kv);
    mr_free(c);
}

static const struct kv_store store = {
    .start = memory_call_start,
    .cancel = memory_call_cancel,
    .watch = memory_watch_start,
    .watch_stop = memory_watch_stop,
    .free = conn_free,
};

static void send_state(struct memory_conn *c, enum mr_kv_state state)
{
    struct parcel *p = memory_user_parcel(c, PARCEL_STATE);
    p->state = state;
    memory_send(c, &c->local, p, memory_time(c->memory));
}

struct mr_kv *mr_kv_memory_open(struct mr_kv_memory *m, const struct mr_kv_options *options)
{
    struct memory_conn *c = MR_NEW(struct memory_conn);

    kv_conn_init(&c->base, &store, options, "memory:");
    c->memory = m;
    TAILQ_INIT(&c->calls);
    TAILQ_INIT(&c->watches);
    TAILQ_INIT(&c->up);
    TAILQ_INIT(&c->down);
    TAILQ_INIT(&c->local);
    TAILQ_INSERT_TAIL(&m->conns, c, link);
    send_state(c, MR_KV_READY);
    return &c->base;
}

void mr_kv_memory_set_delay(struct mr_kv *kv, int64_t delay_ns)
{
    ((struct memory_conn *)kv)->delay_ns = delay_ns;
}

/** What is on its way is lost: reads, and what keeps leases alive, are sent again later, changes fail. */
static void lose_parcels(struct memory_conn *c, struct parcels *queue)
{
    struct parcel *p;
    while ((p = TAILQ_FIRST(queue))) {
        struct memory_call *call = p->call;
        TAILQ_REMOVE(queue, p, link);
        if (call && kv_request_is_repeatable(&p->request)) {
            p->kind = PARCEL_REQUEST;
            p->of_step = c->memory->step;
            call->is_waiting = true;
            continue;
        }
        if (call) {
            call->is_waiting = true; /* the parcel is freed with the call's claim to it */
            memory_call_end(call, MR_E_UNAVAILABLE, "the connection to the registry broke");
            continue;
        }
        memory_parcel_free(p);
    }
}

static void cut(struct memory_conn *c)
{
    struct memory_watch *w;
    lose_parcels(c, &c->up);
    lose_parcels(c, &c->down);
    TAILQ_FOREACH (w, &c->watches, link) {
        w->is_active = false;
        w->is_over = false;
    }
    send_state(c, MR_KV_LOST);
}

static void heal(struct memory_conn *c)
{
    struct memory_call *call;
    struct memory_watch *w;
    TAILQ_FOREACH (call, &c->calls, link) {
        if (call->is_waiting) {
            memory_call_send(call);
        }
    }
    TAILQ_FOREACH (w, &c->watches, link) {
        memory_watch_send(w);
    }
    send_state(c, MR_KV_READY);
}

void mr_kv_memory_cut(struct mr_kv *kv, bool is_cut)
{
    struct memory_conn *c = (struct memory_conn *)kv;

    if (c->is_cut == is_cut) {
        return;
    }
    c->is_cut = is_cut;
    if (is_cut) {
        cut(c);
    } else {
        heal(c);
    }
}

/* ---- steps ---- */

int64_t mr_kv_memory_next_ns(const struct mr_kv_memory *m)
{
    int64_t next = MR_MIN(memory_due(m), m->state.leases.next_ns);
    const struct memory_conn *c;

    TAILQ_FOREACH (c, &m->conns, link) {
        const struct memory_call *call = memory_first_deadline(c);
        next = call ? MR_MIN(next, call->deadline_ns) : next;
    }
    return next;
}

/** A parcel is there. Returns how many callbacks that made. */
static size_t deliver(struct memory_conn *c, struct parcel *p)
{
    struct mr_err err;
    size_t called = 1;

    switch (p->kind) {
    case PARCEL_REQUEST:
    case PARCEL_WATCH: memory_arrive(c, p, p->due_ns); return 0;
    case PARCEL_ANSWER:
    case PARCEL_RESULT:
        if (p->call) {
            memory_call_answer(c, p);
        } else {
            called = 0;
        }
        break;
    case PARCEL_CHANGES:
    case PARCEL_RESYNC:
        if (!p->watch) {
            called = 0;
        } else if (p->kind == PARCEL_CHANGES) {
            memory_watch_changes(p->watch, p);
        } else {
            memory_watch_resync(p->watch, p);
        }
        break;
    case PARCEL_STATE:
        MR_FAIL(&err, MR_E_UNAVAILABLE, "the registry cannot be reached");
        kv_conn_set_state(&c->base, p->state, &err);
        break;
    }
    memory_parcel_free(p);
    return called;
}

size_t mr_kv_memory_step(struct mr_kv_memory *m, int64_t now_ns)
{
    size_t called = 0;
    struct memory_conn *c;
    struct parcel *p;

    m->now_ns = MR_MAX(m->now_ns, now_ns);
    memory_end_overdue(m);
    m->step = ++m->steps;
    for (;;) {
        /* A lease ends before what arrives at the same time: who keeps it alive is too late. */
        int64_t lease_ns = MR_MIN(m->state.leases.next_ns, m->now_ns);
        if ((p = memory_take(m, lease_ns - 1, &c))) {
            called += deliver(c, p);
        } else if (m->state.leases.next_ns <= m->now_ns) {
            memory_expire(m, m->state.leases.next_ns);
        } else if ((p = memory_take(m, m->now_ns, &c))) {
            called += deliver(c, p);
        } else {
            break;
        }
    }
    m->step = 0;
    return called;
}
