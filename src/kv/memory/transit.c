/* Parcels travel in three queues of each connection: up to the store, down from it, and local notices, which have no
 * way to go. A queue keeps its order whatever the delay becomes, as a TCP connection does. */
#include "store.h"

#include "base/clock.h"

struct parcel *memory_parcel_new(struct memory_conn *c, enum parcel_kind kind)
{
    struct parcel *p = MR_NEW(struct parcel);

    p->kind = kind;
    p->seq = ++c->memory->seq;
    mr_arena_init(&p->arena, 0, (size_t)1 << 30);
    return p;
}

int64_t memory_time(struct mr_kv_memory *m)
{
    if (m->clock && !m->step) {
        m->now_ns = MR_MAX(m->now_ns, m->clock(m->wake_ctx));
    }
    return m->now_ns;
}

struct parcel *memory_user_parcel(struct memory_conn *c, enum parcel_kind kind)
{
    struct parcel *p = memory_parcel_new(c, kind);
    p->of_step = c->memory->step;
    return p;
}

void memory_parcel_free(struct parcel *p)
{
    for (size_t i = 0; i < p->records.len; i++) {
        kv_record_unref(p->records.at[i]);
    }
    MR_VEC_FINI(&p->records);
    mr_arena_fini(&p->arena);
    mr_free(p);
}

void memory_send(struct memory_conn *c, struct parcels *queue, struct parcel *p, int64_t at_ns)
{
    const struct parcel *last = TAILQ_LAST(queue, parcels);

    p->due_ns = queue == &c->local ? at_ns : mr_ns_after(at_ns, c->delay_ns);
    if (last) {
        p->due_ns = MR_MAX(p->due_ns, last->due_ns);
    }
    TAILQ_INSERT_TAIL(queue, p, link);
    if (c->memory->wake) {
        c->memory->wake(c->memory->wake_ctx);
    }
}

struct pick {
    struct parcel *parcel;
    struct parcels *queue;
    struct memory_conn *conn;
};

static void look(struct pick *best, struct memory_conn *c, struct parcels *queue, uint64_t step)
{
    struct parcel *p = TAILQ_FIRST(queue);
    if (!p || (step && p->of_step == step)) {
        return;
    }
    const struct parcel *b = best->parcel;
    if (!b || p->due_ns < b->due_ns || (p->due_ns == b->due_ns && p->seq < b->seq)) {
        *best = (struct pick){p, queue, c};
    }
}

static struct pick look_all(const struct mr_kv_memory *m, uint64_t step)
{
    struct pick best = {0};
    struct memory_conn *c;

    TAILQ_FOREACH (c, &m->conns, link) {
        look(&best, c, &c->local, step);
        look(&best, c, &c->down, step);
        look(&best, c, &c->up, step);
    }
    return best;
}

struct parcel *memory_take(struct mr_kv_memory *m, int64_t until, struct memory_conn **out_conn)
{
    struct pick best = look_all(m, m->step);

    if (!best.parcel || best.parcel->due_ns > until) {
        return NULL;
    }
    TAILQ_REMOVE(best.queue, best.parcel, link);
    *out_conn = best.conn;
    return best.parcel;
}

int64_t memory_due(const struct mr_kv_memory *m)
{
    struct pick best = look_all(m, 0);
    return best.parcel ? best.parcel->due_ns : INT64_MAX;
}
