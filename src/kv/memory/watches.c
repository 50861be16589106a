/* Watches of the memory store, on the side of the connection. */
#include "store.h"

void memory_watch_send(struct memory_watch *w)
{
    struct memory_conn *c = (struct memory_conn *)w->base.kv;

    if (!c->is_cut) {
        struct parcel *p = memory_user_parcel(c, PARCEL_WATCH);
        p->watch = w;
        memory_send(c, &c->up, p, memory_time(c->memory));
    }
}

struct mr_kv_watch *memory_watch_start(struct mr_kv *kv, mr_str prefix, int64_t from,
                                       const struct mr_kv_watch_events *events, void *ctx)
{
    struct memory_conn *c = (struct memory_conn *)kv;
    struct memory_watch *w = MR_NEW(struct memory_watch);

    kv_watch_init(&w->base, kv, prefix, events, ctx);
    w->seen = from - 1;
    w->incarnation = c->memory->incarnation;
    TAILQ_INSERT_TAIL(&c->watches, w, link);
    memory_watch_send(w);
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

void memory_watch_stop(struct mr_kv_watch *base)
{
    struct memory_watch *w = (struct memory_watch *)base;
    struct memory_conn *c = (struct memory_conn *)base->kv;

    forget_watch(&c->up, w);
    forget_watch(&c->down, w);
    TAILQ_REMOVE(&c->watches, w, link);
    kv_watch_fini(base);
    mr_free(w);
}

void memory_watch_changes(struct memory_watch *w, const struct parcel *p)
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

void memory_watch_resync(struct memory_watch *w, const struct parcel *p)
{
    struct mr_kv_watch_events events = w->base.events;
    void *ctx = w->base.ctx;

    memory_watch_stop(&w->base);
    events.on_resync(ctx, &p->err);
}
