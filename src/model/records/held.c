/* Versions that were replaced and still hold sequences, and the visit to all that may have one.
 *
 * A version with sequence_batching that another takes the place of stays findable, by mr_version_held, until
 * hooks.holds says that nothing of its sequences goes on. Then the reaper takes it out of the model's list and waits until
 * no reader can have found it there, before it looks at pins for the last time. An unloaded model holds nothing.
 *
 * The list is changed under the manager's lock; readers follow it without, other threads with it. */
#include "held.h"

#include "table.h"

void mr_held_add(struct mr_models *m, struct mr_model *model, struct mr_version *v)
{
    struct mr_version_private *p = mr_version_private_of(v);

    if (!m->hooks.holds || !mr_config_sequences(v->config)) {
        return;
    }
    p->is_held = true;
    /* Relaxed: the store below releases it. */
    atomic_store_explicit(&p->held_next, atomic_load_explicit(&model->held, memory_order_relaxed),
                          memory_order_relaxed);
    /* Release: pairs with the acquire in mr_version_held. */
    atomic_store_explicit(&model->held, p, memory_order_release);
}

/* Readers that are at p still find the rest of the list. Lock held. */
static void held_remove(struct mr_model *model, struct mr_version_private *p)
{
    _Atomic(struct mr_version_private *) *at = &model->held;
    struct mr_version_private *it;

    while ((it = atomic_load_explicit(at, memory_order_relaxed)) != p) {
        at = &it->held_next;
    }
    atomic_store_explicit(at, atomic_load_explicit(&p->held_next, memory_order_relaxed),
                          memory_order_release);
    p->is_held = false;
}

/* It stays while it has sequences. Lock held. */
static bool is_wanted(const struct mr_models *m, const struct mr_version_private *p)
{
    return p->is_held && !atomic_load_explicit(&m->is_stopping, memory_order_relaxed) &&
           p->v.model->is_desired;
}

void mr_held_hasten(struct mr_models *m, struct mr_version_private *p)
{
    pthread_mutex_lock(&m->lock);
    if (m->hooks.hasten && !is_wanted(m, p)) {
        m->hooks.hasten(m->hooks.ctx, &p->v);
    }
    pthread_mutex_unlock(&m->lock);
}

enum mr_held mr_held_check(struct mr_models *m, struct mr_version_private *p)
{
    enum mr_held is = MR_HELD_NOT;

    pthread_mutex_lock(&m->lock);
    if (p->is_held) {
        bool stays = is_wanted(m, p) && m->hooks.holds(m->hooks.ctx, &p->v);
        is = stays ? MR_HELD_STILL : MR_HELD_UNTIL_NOW;
        if (!stays) {
            held_remove(p->v.model, p);
        }
    }
    pthread_mutex_unlock(&m->lock);
    return is;
}

struct mr_version *mr_version_held(const struct mr_version *v, const struct mr_version *after)
{
    const _Atomic(struct mr_version_private *) *at =
        after ? &((const struct mr_version_private *)after->load_private)->held_next
              : &v->model->held;
    /* Acquire: pairs with the release in mr_held_add. */
    struct mr_version_private *p = atomic_load_explicit(at, memory_order_acquire);

    return p ? &p->v : NULL;
}

bool mr_version_has_others(const struct mr_version *v)
{
    /* Relaxed: the number when v was found, or a later one. */
    return atomic_load_explicit(&v->model->ready_count, memory_order_relaxed) > 1 ||
           mr_version_held(v, NULL);
}

/* The ready ones first: one that retires between the two looks is in the list by then. */
static struct mr_version *visit(const struct mr_version *v,
                                bool (*visit_one)(void *ctx, struct mr_version *other), void *ctx)
{
    /* Acquire: pairs with the release in mr_table_publish. */
    const struct mr_version_set *set = atomic_load_explicit(&v->model->set, memory_order_acquire);
    struct mr_version *it;

    for (uint32_t i = 0; i < set->ready_count; i++) {
        if (set->ready[i] != v && visit_one(ctx, set->ready[i])) {
            return set->ready[i];
        }
    }
    for (it = mr_version_held(v, NULL); it; it = mr_version_held(v, it)) {
        if (it != v && visit_one(ctx, it)) {
            return it;
        }
    }
    return NULL;
}

struct mr_version *mr_models_visit_others(struct mr_models *m, const struct mr_version *v,
                                          unsigned epoch_slot,
                                          bool (*visit_one)(void *ctx, struct mr_version *other),
                                          void *ctx)
{
    const bool is_reader = epoch_slot != MR_EPOCH_SLOT_NONE;

    if (!mr_version_has_others(v)) {
        return NULL;
    }
    if (!is_reader) {
        /* What is found under the lock is pinned before it retires, or the reaper takes it out of the list, and looks at
         * pins after that. */
        pthread_mutex_lock(&m->lock);
    }
    struct mr_version *found = visit(v, visit_one, ctx);
    if (found) {
        mr_version_pin(found, epoch_slot);
    }
    if (!is_reader) {
        pthread_mutex_unlock(&m->lock);
    }
    return found;
}
