/* GET /metrics, what is the mesh's: whether the fleet has room, and what this server does in it. */
#include <stdio.h>
#include <stdlib.h>

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

/* Upper bounds of buckets, as a ModelMesh writes them; NULL at the end. */
static const char *const time_bounds[] = {"0.5",     "1.0",     "2.0",      "5.0",      "10.0",
                                          "20.0",    "50.0",    "75.0",     "100.0",    "200.0",
                                          "500.0",   "1000.0",  "2000.0",   "5000.0",   "10000.0",
                                          "20000.0", "60000.0", "120000.0", "300000.0", NULL};
static const char *const age_bounds[] = {"30000.0", "300000.0", "900000.0", "3600000.0",
                                         "1.44E7",  "4.32E7",   "8.64E7",   "6.048E8",
                                         "2.592E9", "7.776E9",  NULL};
static const char *const message_bounds[] = {
    "128.0", "512.0", "2048.0", "8192.0", "32768.0", "131072.0", "524288.0", "2097152.0", NULL};
static const char *const model_bounds[] = {"262144.0",      "1048576.0",     "4194304.0",
                                           "1.6777216E7",   "6.7108864E7",   "2.68435456E8",
                                           "1.073741824E9", "4.294967296E9", NULL};

/* A histogram whose values are in parts of the bounds' unit, and whose head has been written. labels: a="b",… */
static void put_buckets(struct mr_buf *b, const char *name, const char *labels,
                        const struct mr_hist *h, const char *const *bounds, uint64_t parts)
{
    const char *comma = *labels ? "," : "", *open = *labels ? "{" : "", *close = *labels ? "}" : "";
    uint64_t total = 0;
    unsigned next = 0;

    for (; *bounds; bounds++) {
        uint64_t bound = (uint64_t)(strtod(*bounds, NULL) * (double)parts);
        for (; next < MR_HIST_BUCKETS && mr_hist_upper(next) <= bound; next++) {
            total += mr_count_get(&h->count[next]);
        }
        mr_buf_printf(b, "%s_bucket{%s%sle=\"%s\"} %llu\n", name, labels, comma, *bounds,
                      (unsigned long long)total);
    }
    for (; next < MR_HIST_BUCKETS; next++) {
        total += mr_count_get(&h->count[next]);
    }
    mr_buf_printf(b,
                  "%s_bucket{%s%sle=\"+Inf\"} %llu\n"
                  "%s_sum%s%s%s %.6f\n"
                  "%s_count%s%s%s %llu\n",
                  name, labels, comma, (unsigned long long)total, name, open, labels, close,
                  (double)mr_count_get(&h->sum) / (double)parts, name, open, labels, close,
                  (unsigned long long)total);
}

static void put_hist(struct mr_buf *b, const char *name, const char *help, const struct mr_hist *h,
                     const char *const *bounds, uint64_t parts)
{
    metrics_head(b, name, "histogram", help);
    put_buckets(b, name, "", h, bounds, parts);
}

static void put_times(struct mr_buf *b, const char *name, const char *help, const struct mr_hist *h)
{
    put_hist(b, name, help, h, time_bounds, MR_NS_PER_MS);
}

static void put_all_times(const struct mr_mesh *m, struct mr_buf *b)
{
    const struct mr_mesh_times t = mr_mesh_times(m);

    put_times(b, "modelmesh_loadmodel_milliseconds", "Time that loads here took", t.load_ns);
    put_times(b, "modelmesh_unloadmodel_milliseconds", "Time that unloads here took", t.unload_ns);
    put_times(b, "modelmesh_model_sizing_milliseconds",
              "Time that the runtime took to say a model's size after its load", t.sizing_ns);
    put_times(b, "modelmesh_loading_queue_delay_milliseconds",
              "Time that loads here waited to begin", t.queue_ns);
    put_times(b, "modelmesh_cache_miss_milliseconds",
              "Time that requests waited for a load here, until they ran", t.miss_ns);
    put_hist(b, "modelmesh_age_at_eviction_milliseconds",
             "Time since the last use of models that were evicted here", t.evicted_ms, age_bounds,
             1);
    put_hist(b, "modelmesh_loaded_model_size_bytes", "Size of models that were loaded here",
             t.bytes, model_bounds, 1);
}

static void put_calls_of(struct mr_buf *b, const struct call_times *t, enum call_times_kind kind,
                         const char *name, const char *help)
{
    const bool is_time = kind == CALL_TIMES_API || kind == CALL_TIMES_INVOKE;
    /* relaxed: a table of this thread's own */
    unsigned count = atomic_load_explicit(&t->count, memory_order_relaxed);
    char labels[128];

    metrics_head(b, name, "histogram", help);
    for (unsigned k = 0; k < count * MR_GRPC_STATUSES; k++) {
        const struct call_times_method *m = &t->methods[k / MR_GRPC_STATUSES];
        unsigned status = k % MR_GRPC_STATUSES;
        const struct mr_hist *h = atomic_load_explicit(&m->of[kind][status], memory_order_relaxed);
        if (h) {
            snprintf(labels, sizeof labels, "method=\"%s\",code=\"%s\"", m->name,
                     metrics_grpc_names[status]);
            put_buckets(b, name, labels, h, is_time ? time_bounds : message_bounds,
                        is_time ? MR_NS_PER_MS : 1);
        }
    }
}

static void put_calls(const struct mr_server *s, struct mr_buf *b)
{
    struct call_times *all = MR_NEW(struct call_times);

    for (unsigned i = 0; i < s->loop_count; i++) {
        call_times_merge(all, s->loops[i].call_times);
    }
    mr_hist_merge(&all->queue_ns, mr_mesh_times(s->mesh).turn_ns);
    put_calls_of(b, all, CALL_TIMES_API, "modelmesh_api_request_milliseconds",
                 "Time of clients' calls for models, from their first byte to their end");
    put_calls_of(b, all, CALL_TIMES_INVOKE, "modelmesh_invoke_model_milliseconds",
                 "Time that models took here for such calls, their queues included");
    put_calls_of(b, all, CALL_TIMES_REQUEST, "modelmesh_request_size_bytes",
                 "Size of clients' calls for models");
    put_calls_of(b, all, CALL_TIMES_RESPONSE, "modelmesh_response_size_bytes",
                 "Size of the answers to those that succeeded");
    put_times(b, "modelmesh_req_queue_delay_milliseconds",
              "Time that requests waited here for an instance or for their turn", &all->queue_ns);
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
    if (m->is_joined && m->own_lru_age_s >= 0) {
        put(b, "modelmesh_instance_lru_age_seconds", "gauge",
            "Time since the last use of what would be evicted next here",
            (uint64_t)m->own_lru_age_s);
    }
    if (m->is_joined && m->is_first) {
        put(b, "modelmesh_models_managed_total", "gauge", "Models that are registered", m->models);
        put(b, "modelmesh_models_loaded_total", "gauge", "Models that some server has loaded",
            m->models_loaded);
        put(b, "modelmesh_models_with_failure_total", "gauge",
            "Models whose load failed at some server, which is not forgotten yet",
            m->models_failed);
    }
    put(b, "modelmesh_loadmodel_failure", "counter", "Loads that failed here", m->load_failures);
    put(b, "modelmesh_unloadmodel_failure", "counter", "Models that could not be unloaded here",
        m->unload_failures);
    put(b, "modelmesh_unloadmodel_attempt_failure", "counter",
        "Attempts to unload a model here that failed", m->unload_attempt_failures);
    put_all_times(mesh, b);
}

/* Only once the server has joined: before, an autoscaler would take the fleet for empty, or for full. */
static void put_fleet(const struct mr_mesh_stats *m, struct mr_buf *b)
{
    put(b, "millrace_mesh_instances", "gauge", "Servers in the registry", m->peers);
    put(b, "millrace_mesh_models", "gauge", "Models that are registered", m->models);
    put(b, "millrace_mesh_fleet_used_bytes", "gauge",
        "Size of the models that are loaded on all servers, as this one knows",
        m->fleet_used_bytes);
    put(b, "millrace_mesh_fleet_capacity_bytes", "gauge", "Size that they may have together",
        m->fleet_capacity_bytes);
    put(b, "millrace_mesh_fleet_loads_waiting", "gauge",
        "Loads that wait or run on all servers, as they last said", m->fleet_queued);
    metrics_head(b, "millrace_mesh_fleet_lru_age_seconds", "gauge",
                 "Time since the last use of what would be evicted next, the least of all servers");
    if (m->lru_age_s < 0) {
        mr_buf_c(b, "millrace_mesh_fleet_lru_age_seconds +Inf\n");
    } else {
        mr_buf_printf(b, "millrace_mesh_fleet_lru_age_seconds %lld\n", (long long)m->lru_age_s);
    }
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
    if (m.is_joined) {
        put_fleet(&m, b);
    }
    put_modelmesh(s->mesh, &m, b);
    put_calls(s, b);
}
