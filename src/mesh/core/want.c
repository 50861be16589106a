/* Loads that an administrator asked for. No request waits for them and retries them, so this file does: a message
 * that is lost, an owner that has not heard of the model yet and an instance where the load fails are no end of it. The end is that the
 * model is loaded, that no instance is left which could load it, or that nothing has begun for ten seconds.
 *
 * The owner decides, as for requests. If nothing comes of that within a second, this instance loads the model, if it may have it. */
#include "core_priv.h"

#define GIVE_UP_NS 10000000000ll
#define ALONE_NS   1000000000ll
#define PAUSE_NS   20000000ll
#define PAUSE_MAX  (64 * PAUSE_NS)

static bool has_copy(struct mesh_core *c, const struct mesh_local *l, enum mesh_copy_state state)
{
    for (size_t i = 0; i < l->model->copy_count; i++) {
        if (l->model->copies[i].state == state &&
            core_peer_is_good(c, core_peer(c, l->model->copies[i].peer))) {
            return true;
        }
    }
    return false;
}

/* Here it may be so before the registry knows. While that is away nothing is seen of others: what was begun is taken to go on, as a second
 * time might be a second copy. */
static bool is_under_way(struct mesh_core *c, const struct mesh_local *l)
{
    return (l->state >= LOCAL_QUEUED && l->state <= LOCAL_LOADED) || has_copy(c, l, MESH_LOADING) ||
           (!c->registry_is_there && c->now > l->wanted_ns);
}

static void begin(struct mesh_core *c, struct mesh_local *l)
{
    if (c->now - l->wanted_ns >= ALONE_NS && place_may_have(c, l, c->me)) {
        load_want(c, l, MESH_FOR_PRELOAD);
    } else {
        place_more(c, l, MESH_FOR_PRELOAD, 1);
    }
}

void want_see(struct mesh_core *c, struct mesh_local *l)
{
    if (!l->wanted_until) {
        return;
    }
    bool is_loaded =
        has_copy(c, l, MESH_LOADED) || (l->state == LOCAL_LOADED && !c->registry_is_there);

    if (l->model->revision == 0 || is_loaded) {
        l->wanted_until = 0;
    } else if (is_under_way(c, l)) {
        l->wanted_until = c->now + GIVE_UP_NS;
    } else if (c->now >= l->wanted_until || place_is_hopeless(c, l)) {
        l->wanted_until = 0;
    } else {
        begin(c, l);
    }
}

static void wait(struct mesh_core *c, struct mesh_local *l)
{
    if (l->wanted_until) {
        timers_add(&c->timers, c->now + l->want_pause, TIMER_WANT, l->handle,
                   (uint64_t)l->wanted_ns);
        l->want_pause = MR_MIN(2 * l->want_pause, PAUSE_MAX);
    }
}

void want_due(struct mesh_core *c, struct mesh_local *l, uint64_t check)
{
    if ((uint64_t)l->wanted_ns == check) {
        want_see(c, l);
        wait(c, l);
    }
}

void want_load(struct mesh_core *c, mr_str id)
{
    struct view_model *m = view_find(&c->view, id);

    if (!m || m->revision == 0) {
        return;
    }
    struct mesh_local *l = core_local(c, m);
    bool is_new = l->wanted_until == 0;
    l->holds++;
    l->wanted_until = c->now + GIVE_UP_NS;
    if (is_new) {
        l->wanted_ns = c->now;
        l->want_pause = PAUSE_NS;
    }
    want_see(c, l);
    if (is_new) {
        wait(c, l);
    }
    l->holds--;
    core_local_release(c, l);
}

bool mesh_core_is_wanted(const struct mesh_core *c, mr_str id)
{
    const struct view_model *m = view_find(&c->view, id);

    return m && m->local && m->local->wanted_until;
}
