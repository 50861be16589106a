/* Connections to the memory store, and the steps that bring them forward.
 *
 * A call is a parcel that goes up, is carried out, and comes down as its answer. What ends a call earlier (its
 * deadline, a cancel, a cut) takes the parcel away from it, which travels on without anybody to answer, and a local
 * notice ends the call. */
#include "store.h"

#include "base/clock.h"
#include "kv/state/copy.h"

/* ---- the store ---- */

/** The time for what the user does now. */
static int64_t time_now(struct mr_kv_memory *m)
{
    if (m->clock && !m->step) {
        m->now_ns = MR_MAX(m->now_ns, m->clock(m->wake_ctx));
    }
    return m->now_ns;
}

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

static void send_watch(struct memory_watch *w);

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
                send_watch(w);
            }
        }
    }
}

/* ---- calls ---- */

/** What the user starts in a callback waits for the next step. */
static struct parcel *user_parcel(struct memory_conn *c, enum parcel_kind kind)
{
    struct parcel *p = memory_parcel_new(c, kind);
    p->of_step = c->memory->step;
    return p;
}

/** Ends the call with that error, soon; its request goes on without it. */
static void end_call(struct memory_call *call, int rc, const char *text)
{
    struct memory_conn *c = (struct memory_conn *)call->base.kv;
    struct parcel *p = call->parcel;

    if (call->is_waiting) {
        memory_parcel_free(p);
    } else {
        p->call = NULL;
    }
    call->is_waiting = false;
    call->deadline_ns = INT64_MAX;
    call->parcel = user_parcel(c, PARCEL_RESULT);
    call->parcel->call = call;
    call->parcel->rc = MR_FAIL(&call->parcel->err, rc, "%s", text);
    memory_send(c, &c->local, call->parcel, time_now(c->memory));
}

static void send_call(struct memory_call *call)
{
    struct memory_conn *c = (struct memory_conn *)call->base.kv;

    call->is_waiting = c->is_cut;
    if (!c->is_cut) {
        memory_send(c, &c->up, call->parcel, time_now(c->memory));
    } else if (c->memory->wake) {
        c->memory->wake(c->memory->wake_ctx);
    }
}

static int request_copy(const struct kv_request *request, struct parcel *p)
{
    struct mr_kv_txn all = request->txn;
    struct mr_kv_txn copy = {0};
    mr_str key = request->range.key, after = request->range.after;
    int rc = MR_OK;

    p->request = *request;
    if (request->ask == KV_ASK_PUT || request->ask == KV_ASK_DELETE) {
        all = (struct mr_kv_txn){.then = &request->op, .then_count = 1};
    }
    if (request->ask == KV_ASK_RANGE) {
        p->request.range.key = mr_arena_str(&p->arena, key);
        p->request.range.after = mr_arena_str(&p->arena, after);
    } else if ((rc = kv_txn_copy(&all, &p->arena, &copy, &p->err)) == MR_OK) {
        p->request.txn = copy;
        p->request.op = copy.then_count ? copy.then[0] : (struct mr_kv_op){0};
    }
    return rc;
}

static struct mr_kv_call *start(struct mr_kv *kv, const struct kv_request *request,
                                const struct mr_err *refused, mr_kv_done_fn *done, void *ctx)
{
    struct memory_conn *c = (struct memory_conn *)kv;
    struct memory_call *call = MR_NEW(struct memory_call);

    call->base = (struct mr_kv_call){.kv = kv, .done = done, .ctx = ctx};
    call->deadline_ns = mr_ns_after(time_now(c->memory), kv->options.timeout_ns);
    call->parcel = user_parcel(c, PARCEL_REQUEST);
    call->parcel->call = call;
    TAILQ_INSERT_TAIL(&c->calls, call, link);
    call->is_waiting = true;
    if (++c->call_count > MR_KV_CALLS_MAX) {
        end_call(call, MR_E_EXHAUSTED, "too many calls to the registry are under way");
    } else if (refused) {
        end_call(call, refused->status, refused->msg);
    } else if (request_copy(request, call->parcel) < 0) {
        end_call(call, MR_E_NOMEM, "no memory for a request to the registry");
    } else {
        send_call(call);
    }
    return &call->base;
}

static void cancel(struct mr_kv_call *base)
{
    struct memory_call *call = (struct memory_call *)base;

    if (call->parcel->kind != PARCEL_RESULT) {
        end_call(call, MR_E_CANCELLED, "the call was cancelled");
        return;
    }
    call->parcel->rc = MR_FAIL(&call->parcel->err, MR_E_CANCELLED, "the call was cancelled");
}

/** Gives the call its answer, and the call's end. */
static void answer(struct memory_conn *c, struct parcel *p)
{
    struct memory_call *call = p->call;
    struct mr_kv_call base = call->base;

    TAILQ_REMOVE(&c->calls, call, link);
    c->call_count--;
    mr_free(call);
    base.done(base.ctx, p->rc, p->rc < 0 ? &p->err : NULL, p->rc < 0 ? NULL : &p->reply);
}

/** The oldest call that may end by its deadline. The calls are in the order of their deadlines, but for those that
 *  end already. */
static struct memory_call *first_deadline(const struct memory_conn *c)
{
    struct memory_call *call;
    TAILQ_FOREACH (call, &c->calls, link) {
        if (call->deadline_ns != INT64_MAX) {
            return call;
        }
    }
    return NULL;
}

static void end_overdue(struct mr_kv_memory *m)
{
    struct memory_conn *c;
    struct memory_call *call;

    TAILQ_FOREACH (c, &m->conns, link) {
        while ((call = first_deadline(c)) && call->deadline_ns <= m->now_ns) {
            end_call(call, MR_E_DEADLINE, "the registry has not answered in time");
            call->parcel->of_step = 0;
        }
    }
}

/* ---- watches ---- */

static void send_watch(struct memory_watch *w)
{
    struct memory_conn *c = (struct memory_conn *)w->base.kv;

    if (!c->is_cut) {
        struct parcel *p = user_parcel(c, PARCEL_WATCH);
        p->watch = w;
        memory_send(c, &c->up, p, time_now(c->memory));
    }
}

static struct mr_kv_watch *watch(struct mr_kv *kv, mr_str prefix, int64_t from,
                                 const struct mr_kv_watch_events *events, void *ctx)
{
    struct memory_conn *c = (struct memory_conn *)kv;
    struct memory_watch *w = MR_NEW(struct memory_watch);

    kv_watch_init(&w->base, kv, prefix, events, ctx);
    w->seen = from - 1;
    w->incarnation = c->memory->incarnation;
    TAILQ_INSERT_TAIL(&c->watches, w, link);
    send_watch(w);
    return &w->base;
}

static void forget_watch(struct parcels *queue, const struct memory_watch *w)
{
    struct parcel *p;
    TAILQ_FOREACH (p, queue, link) {
        if (p->watch == w) {
            p->watch = NULL;
        }
    }
}

static void watch_stop(struct mr_kv_watch *base)
{
    struct memory_watch *w = (struct memory_watch *)base;
    struct memory_conn *c = (struct memory_conn *)base->kv;

    forget_watch(&c->up, w);
    forget_watch(&c->down, w);
    TAILQ_REMOVE(&c->watches, w, link);
    kv_watch_fini(base);
    mr_free(w);
}

static void give_changes(struct memory_watch *w, const struct parcel *p)
{
    struct mr_kv_change *changes = MR_NEW_ARRAY(struct mr_kv_change, p->records.len + 1);

    for (size_t i = 0; i < p->records.len; i++) {
        changes[i].is_delete = p->records.at[i]->is_delete;
        changes[i].item = kv_record_item(p->records.at[i]);
    }
    w->seen = p->revision;
    w->base.events.on_changes(w->base.ctx, p->revision, changes, p->records.len);
    mr_free(changes);
}

static void give_resync(struct memory_watch *w, const struct parcel *p)
{
    struct mr_kv_watch_events events = w->base.events;
    void *ctx = w->base.ctx;

    watch_stop(&w->base);
    events.on_resync(ctx, &p->err);
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
        watch_stop(&w->base);
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
    .start = start,
    .cancel = cancel,
    .watch = watch,
    .watch_stop = watch_stop,
    .free = conn_free,
};

static void send_state(struct memory_conn *c, enum mr_kv_state state)
{
    struct parcel *p = user_parcel(c, PARCEL_STATE);
    p->state = state;
    memory_send(c, &c->local, p, time_now(c->memory));
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
            end_call(call, MR_E_UNAVAILABLE, "the connection to the registry broke");
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
            send_call(call);
        }
    }
    TAILQ_FOREACH (w, &c->watches, link) {
        send_watch(w);
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
        const struct memory_call *call = first_deadline(c);
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
            answer(c, p);
        } else {
            called = 0;
        }
        break;
    case PARCEL_CHANGES:
    case PARCEL_RESYNC:
        if (!p->watch) {
            called = 0;
        } else if (p->kind == PARCEL_CHANGES) {
            give_changes(p->watch, p);
        } else {
            give_resync(p->watch, p);
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
    end_overdue(m);
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
