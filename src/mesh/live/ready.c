/* Whether clients should come here, and the figures that say whether the fleet has room. */
#include "live.h"

#include "base/clock.h"
#include "base/log.h"

#define STAGED_NS    (180 * MR_NS_PER_S) /* most that it waits for others that drain */
#define CLEARANCE_NS (180 * MR_NS_PER_S) /* after the start: failed loads may make it unfit */

static bool others_have(const struct mr_mesh *m, const struct view_model *model)
{
    const struct mesh_view *v = mesh_core_view(m->core);

    for (size_t i = 0; i < model->copy_count; i++) {
        const struct view_copy *copy = &model->copies[i];
        bool is_loaded = copy->state == MESH_LOADED || copy->state == MESH_DRAINING;
        if (is_loaded && !mr_str_eq_c(v->peers[copy->peer]->id, m->id)) {
            return true;
        }
    }
    return false;
}

static bool is_noted(const struct mr_mesh *m, uint64_t hash)
{
    for (size_t i = 0; i < m->unfit_count; i++) {
        if (m->unfit[i] == hash) {
            return true;
        }
    }
    return false;
}

void live_ready_failed(struct mr_mesh *m, mr_str id)
{
    const struct view_model *model = view_find(mesh_core_view(m->core), id);
    uint64_t hash = mesh_hash(id, id);

    if (!model || live_now(m) - m->started_ns > CLEARANCE_NS || m->unfit_count == UNFIT_MOST ||
        !others_have(m, model) || is_noted(m, hash)) {
        return;
    }
    m->unfit[m->unfit_count++] = hash;
    if (m->unfit_count == UNFIT_MOST) {
        mr_log(MR_LOG_ERROR, "mesh.unfit",
               "%d models that others have loaded do not load here, the last is %s: not ready",
               UNFIT_MOST, MR_LOG_STR(id));
        atomic_store(&m->is_ready, false);
    }
}

static bool others_drain(const struct mr_mesh *m)
{
    const struct mesh_view *v = mesh_core_view(m->core);

    for (size_t i = 0; i < v->peer_count; i++) {
        const struct view_peer *p = v->peers[i];
        if (view_peer_is_there(p) && p->draining && !mr_str_eq_c(p->id, m->id)) {
            return true;
        }
    }
    return false;
}

static int64_t age_of(uint32_t s)
{
    return s == UINT32_MAX ? -1 : (int64_t)s;
}

static void take_stats(struct mr_mesh *m)
{
    struct mesh_core_report r;
    struct mesh_core_fleet f;

    mesh_core_report(m->core, &r);
    mesh_core_fleet(m->core, &f);
    struct mr_mesh_stats s = {.is_joined = mr_mesh_is_joined(m),
                              .peers = f.instances,
                              .models = r.models,
                              .models_loaded = mesh_core_view(m->core)->loaded,
                              .models_failed = mesh_core_view(m->core)->failed,
                              .pending = r.intents,
                              .loaded = r.loaded,
                              .loading = r.loading,
                              .queued = r.queued,
                              .used_bytes = r.held_units * MESH_UNIT,
                              .capacity_bytes = r.capacity_units * MESH_UNIT,
                              .fleet_used_bytes = f.used_units * MESH_UNIT,
                              .fleet_capacity_bytes = f.capacity_units * MESH_UNIT,
                              .fleet_queued = f.queued,
                              .loads = r.loads,
                              .load_failures = m->load_failures,
                              .unload_failures = m->unload_failures,
                              .unload_attempt_failures = m->unload_attempt_failures,
                              .evictions = r.evictions,
                              .requests = r.asked,
                              .misses = r.missed,
                              .lru_age_s = age_of(f.age_s),
                              .own_lru_age_s = age_of(r.age_s),
                              .is_first = f.is_first};
    pthread_mutex_lock(&m->lock);
    m->stats = s;
    pthread_mutex_unlock(&m->lock);
}

/* A line for all of a sample. */
static void say_ignored(struct mr_mesh *m)
{
    const struct mesh_view *v = mesh_core_view(m->core);

    if (v->ignored > m->ignored) {
        mr_log(MR_LOG_WARN, "mesh.records",
               "records of the registry cannot be read (damaged, or of a later version), and are "
               "ignored count=%llu last=%s",
               (unsigned long long)(v->ignored - m->ignored), MR_LOG_STR(mr_str_c(v->ignored_key)));
        m->ignored = v->ignored;
    }
}

void live_ready_sample(struct mr_mesh *m)
{
    bool may_be = atomic_load(&m->is_joined) && m->unfit_count < UNFIT_MOST;

    if (may_be && !atomic_load(&m->is_ready) &&
        (!others_drain(m) || live_now(m) - m->joined_ns > STAGED_NS)) {
        atomic_store(&m->is_ready, true);
    }
    take_stats(m);
    say_ignored(m);
}

bool mr_mesh_is_ready(const struct mr_mesh *m)
{
    return atomic_load(&m->is_ready);
}

void mr_mesh_stats(struct mr_mesh *m, struct mr_mesh_stats *out)
{
    pthread_mutex_lock(&m->lock);
    *out = m->stats;
    pthread_mutex_unlock(&m->lock);
}

struct mr_mesh_times mr_mesh_times(const struct mr_mesh *m)
{
    return (struct mr_mesh_times){.load_ns = &m->load_ns,
                                  .unload_ns = &m->unload_ns,
                                  .sizing_ns = &m->sizing_ns,
                                  .queue_ns = &m->times.queue_ns,
                                  .miss_ns = &m->times.miss_ns,
                                  .turn_ns = &m->times.turn_ns,
                                  .evicted_ms = &m->times.evicted_ms,
                                  .bytes = &m->times.bytes};
}
