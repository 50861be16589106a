/* GET /metrics, what is the mesh's: whether the fleet has room, and what this server does in it. */
#include "mesh/mesh.h"
#include "metrics.h"

static void put(struct mr_buf *b, const char *name, const char *type, const char *help,
                uint64_t value)
{
    metrics_head(b, name, type, help);
    mr_buf_printf(b, "%s %llu\n", name, (unsigned long long)value);
}

void metrics_mesh(struct mr_server *s, struct mr_buf *b)
{
    struct mr_mesh_stats m;

    if (!s->mesh) {
        return;
    }
    mr_mesh_stats(s->mesh, &m);
    put(b, "millrace_mesh_instances", "gauge", "Servers in the registry", m.peers);
    put(b, "millrace_mesh_models", "gauge", "Models that are registered", m.models);
    put(b, "millrace_mesh_models_loaded", "gauge", "Models that are loaded here", m.loaded);
    put(b, "millrace_mesh_models_loading", "gauge", "Models that are being loaded here", m.loading);
    put(b, "millrace_mesh_models_queued", "gauge", "Models that wait to be loaded here", m.queued);
    put(b, "millrace_mesh_used_bytes", "gauge", "Size of the models that are loaded here",
        m.used_bytes);
    put(b, "millrace_mesh_capacity_bytes", "gauge", "Size that they may have together",
        m.capacity_bytes);
    put(b, "millrace_mesh_loads_total", "counter", "Loads that began here", m.loads);
    put(b, "millrace_mesh_evictions_total", "counter", "Models that were unloaded here for others",
        m.evictions);
    put(b, "millrace_mesh_requests_total", "counter",
        "Requests of clients for models that were not ready here", m.requests);
    put(b, "millrace_mesh_misses_total", "counter", "Those among them that waited for a load",
        m.misses);
    put(b, "millrace_mesh_fleet_used_bytes", "gauge",
        "Size of the models that are loaded on all servers, as this one knows", m.fleet_used_bytes);
    put(b, "millrace_mesh_fleet_capacity_bytes", "gauge", "Size that they may have together",
        m.fleet_capacity_bytes);
    put(b, "millrace_mesh_fleet_loads_waiting", "gauge",
        "Loads that wait or run on all servers, as they last said", m.fleet_queued);
    metrics_head(b, "millrace_mesh_fleet_lru_age_seconds", "gauge",
                 "Time since the last use of what would be evicted next, the least of all servers");
    if (m.lru_age_s < 0) {
        mr_buf_c(b, "millrace_mesh_fleet_lru_age_seconds +Inf\n");
    } else {
        mr_buf_printf(b, "millrace_mesh_fleet_lru_age_seconds %lld\n", (long long)m.lru_age_s);
    }
}
