/* The store's side: requests are carried out when they arrive, watches get what changed. */
#include "store.h"

#include "kv/state/copy.h"

/* A watch without changes is sent its progress after this many revisions. */
#define PROGRESS_EVERY 64

static void resync(struct memory_conn *c, struct memory_watch *w, int64_t at_ns, const char *why)
{
    struct parcel *p = memory_parcel_new(c, PARCEL_RESYNC);

    w->is_active = false;
    w->is_over = true;
    p->watch = w;
    MR_FAIL(&p->err, MR_E_NOT_FOUND, "%s", why);
    memory_send(c, &c->down, p, at_ns);
}

/** The changes from w->next on. */
static void feed_watch(struct memory_conn *c, struct memory_watch *w, int64_t at_ns)
{
    struct kv_history *h = &c->memory->state.history;
    int64_t revision = c->memory->state.revision;
    struct parcel *p = NULL;

    if (w->next <= h->compacted) {
        resync(c, w, at_ns, "the registry has compacted the changes that the watch needs");
        return;
    }
    for (size_t i = kv_history_find(h, w->next); i != h->end; i++) {
        struct kv_record *r = kv_history_at(h, i);
        if (mr_str_starts(kv_record_key(r), w->base.prefix)) {
            p = p ? p : memory_parcel_new(c, PARCEL_CHANGES);
            MR_VEC_PUSH(&p->records, kv_record_ref(r));
        }
    }
    if (!p && revision - w->seen >= PROGRESS_EVERY) {
        p = memory_parcel_new(c, PARCEL_CHANGES);
    }
    w->next = revision + 1;
    if (p) {
        p->watch = w;
        p->revision = revision;
        memory_send(c, &c->down, p, at_ns);
    }
}

void memory_feed(struct mr_kv_memory *m, int64_t at_ns)
{
    struct memory_conn *c;
    struct memory_watch *w;

    TAILQ_FOREACH (c, &m->conns, link) {
        TAILQ_FOREACH (w, &c->watches, link) {
            if (w->is_active && w->next <= m->state.revision) {
                feed_watch(c, w, at_ns);
            }
        }
    }
}

static void arrive_watch(struct memory_conn *c, struct parcel *p, int64_t at_ns)
{
    struct memory_watch *w = p->watch;
    const struct mr_kv_memory *m = c->memory;

    memory_parcel_free(p);
    if (!w) {
        return;
    }
    if (w->seen < 0) { /* what changes after the start */
        w->seen = m->state.revision;
        w->incarnation = m->incarnation;
    }
    if (w->incarnation != m->incarnation) {
        resync(c, w, at_ns, "the registry has lost its data");
        return;
    }
    w->next = w->seen + 1;
    w->is_active = true;
    if (w->next <= m->state.revision) {
        feed_watch(c, w, at_ns);
    }
}

static void arrive_request(struct memory_conn *c, struct parcel *p, int64_t at_ns)
{
    struct mr_kv_memory *m = c->memory;
    struct mr_kv_reply reply;
    int64_t before = m->state.revision;

    p->rc = kv_apply(&m->state, &p->request, at_ns, &m->rng, &p->arena, &reply, &p->err);
    if (p->rc == MR_OK) {
        p->rc = kv_reply_copy(&reply, &p->arena, &p->reply, &p->err);
    }
    p->kind = PARCEL_ANSWER;
    p->seq = ++m->seq;
    p->of_step = 0;
    if (p->call) {
        memory_send(c, &c->down, p, at_ns);
    } else {
        memory_parcel_free(p);
    }
    if (m->state.revision != before) {
        memory_feed(m, at_ns);
    }
}

void memory_arrive(struct memory_conn *c, struct parcel *p, int64_t at_ns)
{
    if (p->kind == PARCEL_WATCH) {
        arrive_watch(c, p, at_ns);
    } else {
        arrive_request(c, p, at_ns);
    }
}

void memory_expire(struct mr_kv_memory *m, int64_t at_ns)
{
    int64_t before = m->state.revision;
    struct kv_lease *lease;

    while ((lease = kv_leases_ended(&m->state.leases, at_ns))) {
        kv_state_end_lease(&m->state, lease);
    }
    if (m->state.revision != before) {
        memory_feed(m, at_ns);
    }
}
