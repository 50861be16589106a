/* An execution that has called another model waits for all of its calls, with its instance. A call moves on if an execution
 * runs it that does, or if an instance of its model becomes free: one that does not wait at all, or waits for calls that
 * move on. What moves is found by repetition, until no further call is found; what is left waits for ever. Only a new call
 * can close such a circle, so it is enough to look for it then, and only if the model that is called has calls itself.
 * Calls of a batch of calls count as those of one of them. */
#include "deadlock.h"

void deadlock_init(struct deadlock *d)
{
    pthread_mutex_init(&d->lock, NULL);
    LIST_INIT(&d->calls);
}

void deadlock_fini(struct deadlock *d)
{
    pthread_mutex_destroy(&d->lock);
}

static bool calls_itself(const struct deadlock *d, uint64_t model)
{
    const struct deadlock_call *c;

    LIST_FOREACH (c, &d->calls, link) {
        if (c->caller == model) {
            return true;
        }
    }
    return false;
}

/* Does an earlier call in the list, one that does not move, belong to the same execution? */
static bool is_counted(const struct deadlock *d, const struct deadlock_call *of)
{
    const struct deadlock_call *c;

    LIST_FOREACH (c, &d->calls, link) {
        if (c == of) {
            return false;
        }
        if (!c->moves && c->execution == of->execution) {
            return true;
        }
    }
    return false;
}

/* All instances of the model wait for calls of which it is not known that they move. */
static bool is_stuck(const struct deadlock *d, uint64_t model)
{
    const struct deadlock_call *c;
    uint32_t waiting = 0, instances = 0;

    LIST_FOREACH (c, &d->calls, link) {
        if (c->caller == model && !c->moves && !is_counted(d, c)) {
            waiting++;
            instances = c->caller_instances;
        }
    }
    return waiting > 0 && waiting >= instances;
}

static bool can_move(const struct deadlock *d, const struct deadlock_call *of)
{
    const struct deadlock_call *c;
    bool runs = false;

    LIST_FOREACH (c, &d->calls, link) {
        if (c->runs == of->identity) {
            runs = true;
            if (!c->moves) {
                return false;
            }
        }
    }
    return runs || !is_stuck(d, of->target);
}

static void moves_find(struct deadlock *d)
{
    struct deadlock_call *c;
    bool found = true;

    LIST_FOREACH (c, &d->calls, link) {
        c->moves = false;
    }
    while (found) {
        found = false;
        LIST_FOREACH (c, &d->calls, link) {
            if (!c->moves && can_move(d, c)) {
                c->moves = found = true;
            }
        }
    }
}

bool deadlock_enter(struct deadlock *d, struct deadlock_call *c)
{
    bool is_allowed = true;

    pthread_mutex_lock(&d->lock);
    LIST_INSERT_HEAD(&d->calls, c, link);
    if (calls_itself(d, c->target)) {
        moves_find(d);
        is_allowed = c->moves;
    }
    c->is_listed = is_allowed;
    if (!is_allowed) {
        LIST_REMOVE(c, link);
    }
    pthread_mutex_unlock(&d->lock);
    return is_allowed;
}

void deadlock_leave(struct deadlock *d, struct deadlock_call *c)
{
    pthread_mutex_lock(&d->lock);
    if (c->is_listed) {
        LIST_REMOVE(c, link);
        c->is_listed = false;
    }
    pthread_mutex_unlock(&d->lock);
}
