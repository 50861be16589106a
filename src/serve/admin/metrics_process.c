/* GET /metrics, what is no version's: states and loads, network, TLS, memory, the process, what models define. */
#include "base/hist.h"
#include "metrics.h"
#include "rest_endpoints.h"
#include "serve/state/infer.h"
#include "serve/state/state.h"
#include "serve/state/tls.h"

#include <stdio.h>
#include <unistd.h>

static void put_one(struct mr_buf *b, const char *name, const char *type, const char *help,
                    uint64_t value)
{
    metrics_head(b, name, type, help);
    mr_buf_printf(b, "%s %llu\n", name, (unsigned long long)value);
}

static uint64_t read_meminfo(const char *key)
{
    char line[128];
    unsigned long long kb = 0;
    FILE *f = fopen("/proc/meminfo", "re");

    while (f && fgets(line, sizeof line, f)) {
        if (strncmp(line, key, strlen(key)) == 0 &&
            sscanf(line + strlen(key), ": %llu", &kb) == 1) {
            break;
        }
    }
    if (f) {
        fclose(f);
    }
    return (uint64_t)kb * 1024;
}

static uint64_t resident_bytes(void)
{
    unsigned long long size = 0, resident = 0;
    FILE *f = fopen("/proc/self/statm", "re");

    if (f && fscanf(f, "%llu %llu", &size, &resident) != 2) {
        resident = 0;
    }
    if (f) {
        fclose(f);
    }
    return (uint64_t)resident * (uint64_t)sysconf(_SC_PAGESIZE);
}

/* Share of the CPUs that this process used since the last time it was asked. */
static double cpu_utilization(void)
{
    static int64_t last_wall, last_cpu; /* administration thread only */
    struct timespec ts;
    int64_t wall = mr_now_ns(), cpu;
    double share = 0;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts);
    cpu = (int64_t)ts.tv_sec * MR_NS_PER_S + ts.tv_nsec;
    if (last_wall && wall > last_wall) {
        share = (double)(cpu - last_cpu) /
                ((double)(wall - last_wall) * (double)sysconf(_SC_NPROCESSORS_ONLN));
    }
    last_wall = wall;
    last_cpu = cpu;
    return share;
}

static void put_process(struct mr_server *s, struct mr_buf *b)
{
    uint64_t total = read_meminfo("MemTotal"), available = read_meminfo("MemAvailable");

    metrics_head(b, "nv_cpu_utilization", "gauge", "CPU utilization of the process [0.0 - 1.0]");
    mr_buf_printf(b, "nv_cpu_utilization %.6f\n", cpu_utilization());
    put_one(b, "nv_cpu_memory_total_bytes", "gauge", "CPU total memory (RAM), in bytes", total);
    put_one(b, "nv_cpu_memory_used_bytes", "gauge", "CPU used memory (RAM), in bytes",
            total > available ? total - available : 0);
    put_one(b, "process_resident_memory_bytes", "gauge", "Resident memory of the server",
            resident_bytes());
    metrics_head(b, "process_start_time_seconds", "gauge",
                 "Start of the server, seconds since the epoch");
    mr_buf_printf(b, "process_start_time_seconds %.3f\n", (double)s->start_wall_ns / 1e9);
}

static void put_memory(struct mr_buf *b)
{
    struct mr_block_stats st = mr_block_get_stats();

    metrics_head(b, "millrace_block_bytes", "gauge", "Bulk memory of requests and answers by use");
    mr_buf_printf(
        b,
        "millrace_block_bytes{use=\"requests\"} %llu\nmillrace_block_bytes{use=\"cache\"} %llu\n",
        (unsigned long long)st.out_bytes, (unsigned long long)st.cached_bytes);
    put_one(b, "millrace_block_budget_bytes", "gauge",
            "Most bulk memory that requests may use at once", st.budget_bytes);
    put_one(b, "millrace_block_refused_total", "counter", "Times that the budget was used up",
            st.refused);
}

static uint64_t loop_sum(struct mr_server *s, size_t offset)
{
    uint64_t sum = 0;

    for (unsigned i = 0; i < s->loop_count; i++) {
        sum += mr_count_get(
            (_Atomic uint64_t *)(void *)((char *)mr_loop_stats(s->loops[i].loop) + offset));
    }
    return sum;
}

const char *const metrics_grpc_names[MR_GRPC_STATUSES] = {
    [MR_GRPC_OK] = "OK",
    [MR_GRPC_CANCELLED] = "CANCELLED",
    [MR_GRPC_UNKNOWN] = "UNKNOWN",
    [MR_GRPC_INVALID_ARGUMENT] = "INVALID_ARGUMENT",
    [MR_GRPC_DEADLINE_EXCEEDED] = "DEADLINE_EXCEEDED",
    [MR_GRPC_NOT_FOUND] = "NOT_FOUND",
    [MR_GRPC_ALREADY_EXISTS] = "ALREADY_EXISTS",
    [MR_GRPC_PERMISSION_DENIED] = "PERMISSION_DENIED",
    [MR_GRPC_RESOURCE_EXHAUSTED] = "RESOURCE_EXHAUSTED",
    [MR_GRPC_FAILED_PRECONDITION] = "FAILED_PRECONDITION",
    [MR_GRPC_ABORTED] = "ABORTED",
    [MR_GRPC_OUT_OF_RANGE] = "OUT_OF_RANGE",
    [MR_GRPC_UNIMPLEMENTED] = "UNIMPLEMENTED",
    [MR_GRPC_INTERNAL] = "INTERNAL",
    [MR_GRPC_UNAVAILABLE] = "UNAVAILABLE",
    [MR_GRPC_DATA_LOSS] = "DATA_LOSS",
    [MR_GRPC_UNAUTHENTICATED] = "UNAUTHENTICATED",
};

/* By status, where there were any: few of the 500 possible ones ever are. */
static void put_answers(struct mr_server *s, struct mr_buf *b)
{
    uint64_t n;

    metrics_head(b, "millrace_http_responses_total", "counter", "Answers over HTTP by status");
    for (size_t i = 0; i < MR_HTTP_STATUSES; i++) {
        if ((n = loop_sum(s, offsetof(struct mr_loop_stats, http_answers[i]))) > 0) {
            mr_buf_printf(b, "millrace_http_responses_total{status=\"%zu\"} %llu\n",
                          i + MR_HTTP_STATUS_FIRST, (unsigned long long)n);
        }
    }
    metrics_head(b, "millrace_grpc_responses_total", "counter", "gRPC calls ended by status");
    for (size_t i = 0; i < MR_GRPC_STATUSES; i++) {
        if ((n = loop_sum(s, offsetof(struct mr_loop_stats, grpc_answers[i]))) > 0) {
            mr_buf_printf(b, "millrace_grpc_responses_total{status=\"%s\"} %llu\n",
                          metrics_grpc_names[i], (unsigned long long)n);
        }
    }
}

/* Inferences that no model's counters have. */
static void put_refused(struct mr_server *s, struct mr_buf *b)
{
    metrics_head(b, "millrace_inference_refused_total", "counter",
                 "Inferences refused before they came to a version of a model");
    for (int p = 0; p < MR_INFER_PROTOCOLS; p++) {
        for (int status = 1; status < SERVE_STATUSES; status++) {
            uint64_t n = 0;
            for (unsigned i = 0; i < s->loop_count; i++) {
                n += mr_count_get(&s->loops[i].refused[p][status]);
            }
            if (n) {
                mr_buf_printf(
                    b, "millrace_inference_refused_total{protocol=\"%s\",reason=\"%s\"} %llu\n",
                    infer_protocol_name((enum mr_infer_protocol)p), mr_status_name(-status),
                    (unsigned long long)n);
            }
        }
    }
}

static void put_lag(struct mr_server *s, struct mr_buf *b)
{
    struct mr_hist *all = MR_NEW(struct mr_hist);
    uint64_t total = 0;
    unsigned next = 0;

    metrics_head(b, "millrace_loop_lag_seconds", "histogram",
                 "Work of one event loop iteration: how long a request may wait before it is read");
    for (unsigned i = 0; i < s->loop_count; i++) {
        mr_hist_merge(all, &mr_loop_stats(s->loops[i].loop)->lag_ns);
    }
    for (int64_t bound = 1000; bound <= 16 * MR_NS_PER_S; bound *= 4) {
        for (; next < MR_HIST_BUCKETS && mr_hist_upper(next) <= (uint64_t)bound; next++) {
            total += mr_count_get(&all->count[next]);
        }
        mr_buf_printf(b, "millrace_loop_lag_seconds_bucket{le=\"%g\"} %llu\n", (double)bound / 1e9,
                      (unsigned long long)total);
    }
    mr_buf_printf(b, "millrace_loop_lag_seconds_bucket{le=\"+Inf\"} %llu\n",
                  (unsigned long long)mr_hist_total(all));
    mr_buf_printf(b, "millrace_loop_lag_seconds_sum %.9f\nmillrace_loop_lag_seconds_count %llu\n",
                  (double)mr_count_get(&all->sum) / 1e9, (unsigned long long)mr_hist_total(all));
    mr_free(all);
}

static void put_network(struct mr_server *s, struct mr_buf *b)
{
    static const struct {
        const char *name, *help;
        size_t offset;
    } sums[] = {
        {"millrace_connections_accepted_total", "Connections accepted",
         offsetof(struct mr_loop_stats, accepted)},
        {"millrace_connections_refused_total", "Connections over the limit",
         offsetof(struct mr_loop_stats, refused)},
        {"millrace_requests_total", "Calls of any kind", offsetof(struct mr_loop_stats, requests)},
        {"millrace_loop_turns_total", "Slices of work that was too long for one turn of its loop",
         offsetof(struct mr_loop_stats, turns)},
        {"millrace_protocol_errors_total", "Broken requests",
         offsetof(struct mr_loop_stats, protocol_errors)},
        {"millrace_timeouts_total", "Connections closed by a timeout",
         offsetof(struct mr_loop_stats, timeouts)},
        {"millrace_received_bytes_total", "Bytes read", offsetof(struct mr_loop_stats, bytes_in)},
        {"millrace_sent_bytes_total", "Bytes written", offsetof(struct mr_loop_stats, bytes_out)},
    };

    put_one(b, "millrace_connections", "gauge", "Open connections",
            (uint64_t)mr_http_server_connections(s->http));
    for (size_t i = 0; i < sizeof sums / sizeof *sums; i++) {
        put_one(b, sums[i].name, "counter", sums[i].help, loop_sum(s, sums[i].offset));
    }
    put_answers(s, b);
    put_refused(s, b);
    put_lag(s, b);
}

static void put_tls_one(struct mr_server *s, struct mr_buf *b, const char *name, const char *type,
                        const char *help, uint64_t (*value)(struct serve_tls *t))
{
    metrics_head(b, name, type, help);
    for (int i = 0; i < SERVE_TLS_KINDS; i++) {
        if (s->tls[i].tls) {
            mr_buf_printf(b, "%s{listener=\"%s\"} %llu\n", name, s->tls[i].name,
                          (unsigned long long)value(&s->tls[i]));
        }
    }
}

static uint64_t tls_expiry(struct serve_tls *t)
{
    struct mr_tls_info info;

    mr_tls_get_info(t->tls, &info);
    return (uint64_t)MR_MAX(info.expires_s, 0);
}

static uint64_t tls_reloads(struct serve_tls *t)
{
    return atomic_load_explicit(&t->reloads, memory_order_relaxed);
}

static uint64_t tls_reload_failures(struct serve_tls *t)
{
    return atomic_load_explicit(&t->reload_failures, memory_order_relaxed);
}

static void put_tls(struct mr_server *s, struct mr_buf *b)
{
    if (!serve_tls_is_on(s)) {
        return;
    }
    put_one(b, "millrace_tls_handshakes_total", "counter", "TLS handshakes done",
            loop_sum(s, offsetof(struct mr_loop_stats, tls_handshakes)));
    put_one(b, "millrace_tls_resumed_total", "counter", "TLS handshakes with an earlier session",
            loop_sum(s, offsetof(struct mr_loop_stats, tls_resumed)));
    put_one(b, "millrace_tls_handshake_failures_total", "counter",
            "TLS handshakes that came to nothing",
            loop_sum(s, offsetof(struct mr_loop_stats, tls_failures)));
    put_tls_one(s, b, "millrace_tls_certificate_expiry_seconds", "gauge",
                "End of the certificate, seconds since the epoch", tls_expiry);
    put_tls_one(s, b, "millrace_tls_reloads_total", "counter", "Changed certificates taken",
                tls_reloads);
    put_tls_one(s, b, "millrace_tls_reload_failures_total", "counter",
                "Changed certificates that could not be taken", tls_reload_failures);
}

static void put_states(const uint64_t states[MR_VERSION_STATES], struct mr_buf *b)
{
    metrics_head(b, "millrace_model_versions", "gauge", "Model versions by state");
    for (int i = 0; i < MR_VERSION_STATES; i++) {
        mr_buf_printf(b, "millrace_model_versions{state=\"%s\"} %llu\n",
                      mr_version_state_name((enum mr_version_state)i),
                      (unsigned long long)states[i]);
    }
}

static void put_loads(struct mr_server *s, struct mr_buf *b)
{
    struct mr_load_totals t;

    mr_models_totals(s->models, &t);
    metrics_head(b, "millrace_model_loads_total", "counter",
                 "Loads of versions by what became of them");
    mr_buf_printf(b,
                  "millrace_model_loads_total{outcome=\"ready\"} %llu\n"
                  "millrace_model_loads_total{outcome=\"failed\"} %llu\n"
                  "millrace_model_loads_total{outcome=\"cancelled\"} %llu\n",
                  (unsigned long long)t.ready, (unsigned long long)t.failed,
                  (unsigned long long)t.cancelled);
    metrics_head(b, "millrace_model_phase_seconds", "summary",
                 "Time that versions spent in the states that they have left");
    for (int i = 0; i < MR_VERSION_UNLOADED; i++) {
        const char *state = mr_version_state_name((enum mr_version_state)i);
        mr_buf_printf(b, "millrace_model_phase_seconds_sum{state=\"%s\"} %.9f\n", state,
                      (double)t.spent[i].ns / 1e9);
        mr_buf_printf(b, "millrace_model_phase_seconds_count{state=\"%s\"} %llu\n", state,
                      (unsigned long long)t.spent[i].count);
    }
}

void metrics_process(struct mr_server *s, const uint64_t states[MR_VERSION_STATES],
                     struct mr_buf *b)
{
    put_states(states, b);
    put_loads(s, b);
    put_network(s, b);
    put_tls(s, b);
    put_memory(b);
    put_process(s, b);
    metrics_endpoints(s, b);
    metrics_mesh(s, b);
    mr_models_metrics_print(s->models, b);
}
