/* Copies move: away from an instance that ends, and to one that has less than the others. A copy is made elsewhere before the one here
 * goes, and requests are answered here as long as the process lives.
 *
 * Draining: the most recently used first, some at a time. A copy that others have, or that was not used for long, needs no move. Its record is
 * deleted then, so that peers do not come here any more; the model stays loaded for those that are on their way.
 *
 * While the registry is away, what others have loaded does not show. Then all copies are asked for at once, and some seconds are all that
 * the others get. */
#include "core_priv.h"

#include <stdlib.h>

#define ASK_AGAIN_NS 3000000000ll
#define AWAY_NS      5000000000ll
#define MOVE_NS      120000000000ll /* a copy that comes later is not the one that was asked for */

static uint32_t others(const struct mesh_core *c, const struct mesh_local *l,
                       enum mesh_copy_state state)
{
    uint32_t n = 0;

    for (size_t i = 0; i < l->model->copy_count; i++) {
        const struct view_copy *copy = &l->model->copies[i];
        const struct view_peer *p = c->view.peers[copy->peer];
        n += copy->state == state && p != c->me && core_peer_is_good(c, p) && !p->draining;
    }
    return n;
}

uint32_t drain_others(const struct mesh_core *c, const struct mesh_local *l)
{
    return others(c, l, MESH_LOADED);
}

/* An instance that could take it: not one where its load has failed lately. */
static bool has_heir(const struct mesh_core *c, const struct view_model *m)
{
    for (size_t i = 0; i < c->view.peer_count; i++) {
        const struct view_peer *p = c->view.peers[i];
        const struct view_copy *copy = view_copy_at(m, p);
        bool has_failed = copy && copy->state == MESH_FAILED;
        if (p != c->me && core_peer_is_good(c, p) && !p->draining && !has_failed &&
            place_fits(c, p, m)) {
            return true;
        }
    }
    return false;
}

static void lease_out(struct mesh_core *c, struct mesh_local *l)
{
    l->is_moving = false;
    l->is_leased_out = true;
    own_sync(c, l);
}

static int by_last_use(const void *a, const void *b)
{
    const struct mesh_local *const *x = a;
    const struct mesh_local *const *y = b;

    return (*x)->used_ns < (*y)->used_ns ? 1 : (*x)->used_ns > (*y)->used_ns ? -1 : 0;
}

static void move(struct mesh_core *c, struct mesh_local *l)
{
    bool is_full = c->registry_is_there && c->moving >= c->o.move_parallel;

    if (l->is_moving ? c->now - l->moved_ns < ASK_AGAIN_NS : is_full) {
        return;
    }
    c->moving += !l->is_moving;
    l->is_moving = true;
    l->moved_ns = c->now;
    own_sync(c, l);
    place_more(c, l, MESH_FOR_MOVE, 1);
}

static void drop_queued(struct mesh_core *c)
{
    for (int p = 0; p < MESH_PURPOSES; p++) {
        struct mesh_local *l;
        while ((l = c->queue_first[p])) {
            l->holds++;
            load_drop(c, l);
            request_not_loaded(c, l, MESH_WHY_REFUSED, MR_STR("the instance is draining"));
            l->holds--;
            core_local_release(c, l);
        }
    }
}

/* Loaded copies that are still to move, the most recently used first; the caller frees. */
static struct mesh_local **to_move(struct mesh_core *c, size_t *out_count)
{
    bool is_blind = !c->registry_is_there && c->now - MR_MAX(c->drain_ns, c->away_ns) >= AWAY_NS;
    struct mesh_local **list = MR_NEW_ARRAY(struct mesh_local *, c->local_count + 1);
    size_t count = 0;

    c->moving = 0;
    for (struct mesh_local *l = c->first_local; l; l = l->next) {
        if (l->state != LOCAL_LOADED || l->is_leased_out) {
            continue;
        }
        bool is_idle = c->now - l->used_ns > c->o.move_idle_ns && l->running == 0 &&
                       !l->model->pinned && !l->model->min_copies;
        if (is_idle || is_blind || drain_others(c, l) > 0 || !has_heir(c, l->model)) {
            lease_out(c, l);
        } else {
            list[count++] = l;
            c->moving += l->is_moving; /* also those of drain_spread */
        }
    }
    qsort(list, count, sizeof *list, by_last_use);
    *out_count = count;
    return list;
}

void drain_pump(struct mesh_core *c)
{
    size_t count;

    c->drain_is_due = false;
    drop_queued(c);
    struct mesh_local **list = to_move(c, &count);
    for (size_t i = 0; i < count; i++) {
        move(c, list[i]);
    }
    mr_free(list);
    bool is_written = !c->registry_is_there || (!c->dirty && c->writes.len == 0);
    if (!c->is_drained && count == 0 && c->loading == 0 && is_written) {
        c->is_drained = true;
        core_act(c, MESH_ACT_DRAINED);
    }
}

void drain_copied(struct mesh_core *c, struct mesh_local *l)
{
    bool is_moving = l->is_moving && c->now - l->moved_ns <= MOVE_NS;

    c->drain_is_due = c->is_draining;
    if (!c->is_draining && is_moving && l->state == LOCAL_LOADED &&
        drain_others(c, l) >= MR_MAX(l->model->min_copies, 1u)) {
        load_evict(c, l);
    }
}

/* ---- spreading ---- */

#define UNEVEN 0.1 /* of the capacity */

static double filled(const struct mesh_core *c, const struct view_peer *p)
{
    double used = (double)(p == c->me ? c->held : p->sums.used + p->reserved);
    return used / MR_MAX(p->capacity, 1);
}

/* How much this one has over the average, if another has as much less. */
static double excess(const struct mesh_core *c)
{
    double sum = 0;
    double least = 1;
    size_t count = 0;

    for (size_t i = 0; i < c->view.peer_count; i++) {
        const struct view_peer *p = c->view.peers[i];
        if (core_peer_is_good(c, p) && !p->draining) {
            sum += filled(c, p);
            least = MR_MIN(least, filled(c, p));
            count++;
        }
    }
    double average = sum / (double)MR_MAX(count, 1);
    double mine = filled(c, c->me) - average;
    return mine > UNEVEN && average - least > UNEVEN ? mine : 0;
}

/* A move goes on while the other copy is being loaded, and is forgotten when nothing has come of it. */
static void moves_see(struct mesh_core *c)
{
    for (struct mesh_local *l = c->first_local; l; l = l->next) {
        l->is_moving = l->is_moving && c->now - l->moved_ns <= MOVE_NS;
        if (l->is_moving && others(c, l, MESH_LOADING) > 0) {
            l->moved_ns = c->now;
        }
    }
}

/* Not a model that is to have several copies or is being loaded elsewhere: that copy would be taken for the one asked for here. */
static bool may_spread(const struct mesh_core *c, const struct mesh_local *l)
{
    const struct view_model *m = l->model;

    return l->state == LOCAL_LOADED && !m->pinned && m->min_copies <= 1 && m->max_copies != 1 &&
           !l->keeps_state && c->now - l->used_ns < c->o.move_idle_ns &&
           (!l->is_moving || c->now - l->moved_ns > ASK_AGAIN_NS) &&
           drain_others(c, l) + others(c, l, MESH_LOADING) == 0;
}

/* Some copies in each window of rates, until it is even. */
void drain_spread(struct mesh_core *c)
{
    moves_see(c);
    double units = excess(c) * c->me->capacity;
    uint32_t moves = 0;

    for (struct mesh_local *l = c->first_local; l && units > 0 && moves < c->o.move_parallel;
         l = l->next) {
        if (may_spread(c, l)) {
            l->is_moving = true;
            l->moved_ns = c->now;
            l->holds++;
            place_more(c, l, MESH_FOR_MOVE, 1);
            l->holds--;
            units -= l->units;
            moves++;
        }
    }
}
