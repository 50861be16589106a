/* GET /metrics, what is the mesh's: whether the fleet has room, and what this server does in it. */
#include <stdio.h>

#include "base/clock.h"
#include "mesh/mesh.h"
#include "metrics.h"
#include "serve/plane/call_times.h"

static void put(struct mr_buf *b, const char *name, const char *type, const char *help,
                uint64_t value)
{
    metrics_head(b, name, type, help);
    mr_buf_printf(b, "%s %llu\n", name, (unsigned long long)value);
}

/* ---- by the names of a ModelMesh, for dashboards and alerts that are there ---- */

/* A histogram of milliseconds, whose values are in units of which a millisecond has so many; its head has been written. labels: a="b",… */
static void put_buckets(struct mr_buf *b, const char *name, const char *labels,
                        const struct mr_hist *h, uint64_t per_ms)
{
    static const unsigned tenths_of_ms[] = {5,      10,     20,     50,      100,    200,   500,
                                            750,    1000,   2000,   5000,    10000,  20000, 50000,
                                            100000, 200000, 600000, 1200000, 3000000};
    const char *comma = *labels ? "," : "", *open = *labels ? "{" : "", *close = *labels ? "}" : "";
    uint64_t total = 0;
    unsigned next = 0;

    for (size_t i = 0; i < sizeof tenths_of_ms / sizeof *tenths_of_ms; i++) {
        uint64_t bound = tenths_of_ms[i] * per_ms / 10;
        for (; next < MR_HIST_BUCKETS && mr_hist_upper(next) <= bound; next++) {
            total += mr_count_get(&h->count[next]);
        }
        mr_buf_printf(b, "%s_bucket{%s%sle=\"%.1f\"} %llu\n", name, labels, comma,
                      tenths_of_ms[i] / 10.0, (unsigned long long)total);
    }
    for (; next < MR_HIST_BUCKETS; next++) {
        total += mr_count_get(&h->count[next]);
    }
    mr_buf_printf(b,
                  "%s_bucket{%s%sle=\"+Inf\"} %llu\n"
                  "%s_sum%s%s%s %.6f\n"
                  "%s_count%s%s%s %llu\n",
                  name, labels, comma, (unsigned long long)total, name, open, labels, close,
                  (double)mr_count_get(&h->sum) / (double)per_ms, name, open, labels, close,
                  (unsigned long long)total);
}

static void put_times(struct mr_buf *b, const char *name, const char *help, const struct mr_hist *h,
                      uint64_t per_ms)
{
    metrics_head(b, name, "histogram", help);
    put_buckets(b, name, "", h, per_ms);
}

static void put_all_times(const struct mr_mesh *m, struct mr_buf *b)
{
    const struct mr_mesh_times t = mr_mesh_times(m);

    put_times(b, "modelmesh_loadmodel_milliseconds", "Time that loads here took", t.load_ns,
              MR_NS_PER_MS);
    put_times(b, "modelmesh_loading_queue_delay_milliseconds",
              "Time that loads here waited to begin", t.queue_ns, MR_NS_PER_MS);
    put_times(b, "modelmesh_cache_miss_milliseconds",
              "Time that requests waited for a load here, until they ran", t.miss_ns, MR_NS_PER_MS);
    put_times(b, "modelmesh_age_at_eviction_milliseconds",
              "Time since the last use of models that were evicted here", t.evicted_ms, 1);
}

static void put_call_times(struct mr_buf *b, const struct call_times *t, enum call_times_kind kind,
                           const char *name, const char *help)
{
    /* relaxed: a table of this thread's own */
    unsigned count = atomic_load_explicit(&t->count, memory_order_relaxed);
    char labels[128];

    metrics_head(b, name, "histogram", help);
    for (unsigned k = 0; k < count * MR_GRPC_STATUSES; k++) {
        const struct call_times_method *m = &t->methods[k / MR_GRPC_STATUSES];
        unsigned status = k % MR_GRPC_STATUSES;
        const struct mr_hist *h = atomic_load_explicit(&m->ns[kind][status], memory_order_relaxed);
        if (h) {
            snprintf(labels, sizeof labels, "method=\"%s\",code=\"%s\"", m->name,
                     metrics_grpc_names[status]);
            put_buckets(b, name, labels, h, MR_NS_PER_MS);
        }
    }
}

static void put_calls(const struct mr_server *s, struct mr_buf *b)
{
    struct call_times *all = MR_NEW(struct call_times);

    for (unsigned i = 0; i < s->loop_count; i++) {
        call_times_merge(all, s->loops[i].call_times);
    }
    put_call_times(b, all, CALL_TIMES_API, "modelmesh_api_request_milliseconds",
                   "Time of clients' calls for models, from their first byte to their end");
    put_call_times(b, all, CALL_TIMES_INVOKE, "modelmesh_invoke_model_milliseconds",
                   "Time that models took here for such calls, their queues included");
    call_times_fini(all);
    mr_free(all);
}

static void put_modelmesh(const struct mr_mesh *mesh, const struct mr_mesh_stats *m,
                          struct mr_buf *b)
{
    put(b, "modelmesh_instance_models_total", "gauge", "Models that are loaded here", m->loaded);
    put(b, "modelmesh_instance_capacity_bytes", "gauge", "Size that they may have together",
        m->capacity_bytes);
    put(b, "modelmesh_instance_used_bytes", "gauge", "Size that they have", m->used_bytes);
    put(b, "modelmesh_instance_used_bps", "gauge", "The same in ten-thousandths of the capacity",
        (uint64_t)((double)m->used_bytes * 10000 / (double)MR_MAX(m->capacity_bytes, 1)));
    if (m->own_lru_age_s >= 0) {
        put(b, "modelmesh_instance_lru_age_seconds", "gauge",
            "Time since the last use of what would be evicted next here",
            (uint64_t)m->own_lru_age_s);
    }
    if (m->is_first) {
        put(b, "modelmesh_models_managed_total", "gauge", "Models that are registered", m->models);
        put(b, "modelmesh_models_loaded_total", "gauge", "Models that some server has loaded",
            m->models_loaded);
        put(b, "modelmesh_models_with_failure_total", "gauge",
            "Models whose load failed at some server, which is not forgotten yet",
            m->models_failed);
    }
    put(b, "modelmesh_loadmodel_failure", "counter", "Loads that failed here", m->load_failures);
    put_all_times(mesh, b);
}

void metrics_mesh(struct mr_server *s, struct mr_buf *b)
{
    struct mr_mesh_stats m;
    uint64_t direct = 0;

    if (!s->mesh) {
        return;
    }
    mr_mesh_stats(s->mesh, &m);
    for (unsigned i = 0; i < s->loop_count; i++) {
        direct += atomic_load_explicit(&s->loops[i].direct, memory_order_relaxed);
    }
    put(b, "millrace_mesh_instances", "gauge", "Servers in the registry", m.peers);
    put(b, "millrace_mesh_models", "gauge", "Models that are registered", m.models);
    put(b, "millrace_mesh_pending", "gauge",
        "Changes of models that wait here until the registry can be reached", m.pending);
    put(b, "millrace_mesh_models_loaded", "gauge", "Models that are loaded here", m.loaded);
    put(b, "millrace_mesh_models_loading", "gauge", "Models that are being loaded here", m.loading);
    put(b, "millrace_mesh_models_queued", "gauge", "Models that wait to be loaded here", m.queued);
    put(b, "millrace_mesh_used_bytes", "gauge", "Size of the models that are loaded here",
        m.used_bytes);
    put(b, "millrace_mesh_capacity_bytes", "gauge", "Size that they may have together",
        m.capacity_bytes);
    put(b, "millrace_mesh_loads_total", "counter", "Loads that began here", m.loads);
    put(b, "millrace_mesh_load_failures_total", "counter", "Those among them that failed",
        m.load_failures);
    put(b, "millrace_mesh_evictions_total", "counter", "Models that were unloaded here for others",
        m.evictions);
    put(b, "millrace_mesh_requests_total", "counter",
        "Requests of clients for models that were not ready here", m.requests + direct);
    put(b, "millrace_mesh_direct_total", "counter",
        "Those among them that went to where their model was a moment before", direct);
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
    put_modelmesh(s->mesh, &m, b);
    put_calls(s, b);
}
