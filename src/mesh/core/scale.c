/* How many copies a model has. More: by the rate of requests, by how many run at once, and a second one as soon as a model is used again
 * some minutes after it was used before, whatever lies between. Fewer: only while the fleet is nearly full, only where others have it
 * loaded, and of several holders only the one that stands last by hash, so that two never go at once.
 *
 * A model that keeps state has one copy, whatever its minimum.
 *
 * Who has a copy asks the model's owner for more; the owner places one at a time. */
#include "core_priv.h"

#include <math.h>

#define BUCKETS  32
#define AGAIN_NS 5000000000ll    /* between two questions for the same model */
#define HEAVY_NS 600000000000ll  /* how long a third or further copy stays after it was needed */
#define YOUNG_NS 1800000000000ll /* and after it was loaded */

void mesh_core_fleet(const struct mesh_core *c, struct mesh_core_fleet *out)
{
    *out = (struct mesh_core_fleet){.is_first = true, .age_s = UINT32_MAX};
    for (size_t i = 0; i < c->view.peer_count; i++) {
        const struct view_peer *p = c->view.peers[i];
        bool is_me = p == c->me;
        out->instances += view_peer_is_there(p);
        if (!core_peer_is_good(c, p) || p->draining) {
            continue;
        }
        out->is_first &= mr_str_cmp(c->me->id, p->id) <= 0;
        out->used_units += is_me ? c->held : p->sums.used;
        out->capacity_units += p->capacity;
        out->queued += is_me ? c->queued + c->loading : p->queued;
        out->age_s = MR_MIN(out->age_s, is_me ? load_age_s(c) : p->age_s);
    }
}

static bool fleet_is_filled(const struct mesh_core *c, double part)
{
    struct mesh_core_fleet f;

    mesh_core_fleet(c, &f);
    return (double)f.used_units > (double)f.capacity_units * part;
}

static void want_copies(struct mesh_core *c, struct mesh_local *l, uint32_t copies)
{
    if (c->is_draining || l->keeps_state || c->now - l->scaled_ns < AGAIN_NS) {
        return;
    }
    l->scaled_ns = c->now;
    place_more(c, l, MESH_FOR_SCALE, copies);
}

/* The uses of the last second_max, as a bit for each 32nd of it. */
static void note_use(struct mesh_core *c, struct mesh_local *l)
{
    int64_t bucket = c->now / (c->o.second_max_ns / BUCKETS);

    if (l->uses_at < 0 || bucket - l->uses_at >= BUCKETS) {
        l->uses_mask = 0;
    } else {
        l->uses_mask <<= bucket - l->uses_at;
    }
    l->uses_mask |= 1;
    l->uses_at = bucket;
}

void scale_used(struct mesh_core *c, struct mesh_local *l)
{
    int64_t width = c->o.second_max_ns / BUCKETS;
    int64_t from = (c->o.second_min_ns + width - 1) / width;

    note_use(c, l);
    if (from >= BUCKETS || l->uses_mask >> from == 0 || l->model->max_copies == 1 ||
        drain_others(c, l) > 0 || fleet_is_filled(c, 0.9)) {
        return;
    }
    want_copies(c, l, 2);
}

static void rate_of(struct mesh_core *c, struct mesh_local *l)
{
    double seconds = (double)c->o.rate_ns / 1e9;

    load_busy(c, l);
    double by_rate = l->window_uses * 60 / seconds / c->o.scale_per_minute;
    double most_busy =
        l->max_running ? MR_MIN(c->o.scale_busy, 0.9 * l->max_running) : c->o.scale_busy;
    double by_busy = (double)l->busy_ns / (double)c->o.rate_ns / most_busy;
    l->window_uses = 0;
    l->busy_ns = 0;
    double load = MR_MAX(by_rate, by_busy);
    if (load > 0.75) {
        l->heavy_ns = c->now;
    }
    if (load > 1) {
        double copies = ceil(load * (1 + drain_others(c, l)));
        l->scaled_ns = INT64_MIN / 2; /* a window is long enough between two questions */
        want_copies(c, l, (uint32_t)MR_MIN(copies, MESH_COPIES_MAX));
    }
}

/* ---- fewer ---- */

static bool is_last_holder(const struct mesh_core *c, const struct mesh_local *l)
{
    mr_str id = view_id(l->model);
    uint64_t mine = mesh_hash(id, c->o.id);

    for (size_t i = 0; i < l->model->copy_count; i++) {
        const struct view_copy *copy = &l->model->copies[i];
        const struct view_peer *p = c->view.peers[copy->peer];
        if (copy->state == MESH_LOADED && p != c->me && core_peer_is_good(c, p) &&
            mesh_hash(id, p->id) < mine) {
            return false;
        }
    }
    return true;
}

static bool is_too_many(const struct mesh_core *c, const struct mesh_local *l)
{
    uint32_t others = drain_others(c, l);

    if (others == 0 || others < l->model->min_copies || l->model->pinned || l->running ||
        l->outside || !is_last_holder(c, l)) {
        return false;
    }
    if (others == 1) {
        return c->now - l->used_ns > c->o.second_max_ns;
    }
    return c->now - l->heavy_ns > HEAVY_NS && c->now - l->loaded_ns > YOUNG_NS;
}

/* Two owners may have decided at the same time, or the maximum is another now. */
static bool is_beyond_maximum(const struct mesh_core *c, const struct mesh_local *l)
{
    uint32_t most = l->model->max_copies;

    return most && drain_others(c, l) >= most && is_last_holder(c, l);
}

/* Those who are to have a number of copies whether they are used or not. One copy at a time: there is more to do as long as one
 * was placed. */
static void keep_minimum(struct mesh_core *c)
{
    c->minimum_is_due = false;
    for (size_t i = 0; c->view.with_minimum && i < c->view.cap; i++) {
        struct view_model *m = c->view.models[i];
        if (m && m->revision && m->min_copies > 0 && core_model_owner(c, m, NULL) == c->me) {
            struct mesh_local *l = core_local(c, m);
            l->holds++;
            c->minimum_is_due |= place_more(c, l, MESH_FOR_PRELOAD, m->min_copies);
            l->holds--;
            core_local_release(c, l);
        }
    }
}

void scale_rates(struct mesh_core *c)
{
    for (struct mesh_local *l = c->first_local; l; l = l->next) {
        if (l->state == LOCAL_LOADED && (l->window_uses || l->running || l->outside)) {
            l->holds++;
            rate_of(c, l);
            l->holds--;
        }
        if (l->state == LOCAL_LOADED && is_beyond_maximum(c, l)) {
            load_evict(c, l);
        }
    }
    if (!c->is_draining) {
        drain_spread(c);
    }
    if (c->minimum_is_due && c->is_read && !c->is_draining) {
        keep_minimum(c);
    }
}

#define DROP_PART 20 /* a twentieth of the copies at a time */

void scale_janitor(struct mesh_core *c)
{
    size_t most = 1 + c->local_count / DROP_PART;

    if (!c->is_read || c->is_draining) {
        return;
    }
    keep_minimum(c);
    if (!fleet_is_filled(c, 0.8)) {
        return;
    }
    for (struct mesh_local *l = c->first_local; l && most > 0; l = l->next) {
        if (l->state == LOCAL_LOADED && is_too_many(c, l)) {
            load_evict(c, l);
            most--;
        }
    }
}
