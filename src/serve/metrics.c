/* GET /metrics: Prometheus text. Triton's names and labels, and ours beside them (millrace_*).
 *
 * Made on the administration thread from the per-thread counters. Samples of one family have to stand together,
 * models are visited once: so each family has a buffer of its own, joined at the end. */
#include <stdio.h>
#include <unistd.h>

#include "base/hist.h"
#include "codec/json.h"
#include "serve_private.h"

enum family {
    F_SUCCESS,
    F_FAILURE,
    F_COUNT,
    F_EXEC,
    F_REQUEST_US,
    F_QUEUE_US,
    F_INPUT_US,
    F_INFER_US,
    F_OUTPUT_US,
    F_PENDING,
    F_LOAD_SECS,
    F_STAGE,
    F_CLOSE,
    F_INLINE,
    F_MODEL_BYTES,
    F_MODELS
};

static const struct {
    const char *name;
    const char *type;
    const char *help;
} families[F_MODELS] = {
    [F_SUCCESS] = {"nv_inference_request_success", "counter",
                   "Number of successful inference requests"},
    [F_FAILURE] = {"nv_inference_request_failure", "counter",
                   "Number of failed inference requests"},
    [F_COUNT] = {"nv_inference_count", "counter",
                 "Number of inferences performed (a batch of n counts n)"},
    [F_EXEC] = {"nv_inference_exec_count", "counter", "Number of model executions"},
    [F_REQUEST_US] = {"nv_inference_request_duration_us", "counter",
                      "Cumulative request duration in microseconds"},
    [F_QUEUE_US] = {"nv_inference_queue_duration_us", "counter",
                    "Cumulative queue duration in microseconds"},
    [F_INPUT_US] = {"nv_inference_compute_input_duration_us", "counter",
                    "Cumulative input duration in microseconds"},
    [F_INFER_US] = {"nv_inference_compute_infer_duration_us", "counter",
                    "Cumulative model duration in microseconds"},
    [F_OUTPUT_US] = {"nv_inference_compute_output_duration_us", "counter",
                     "Cumulative output duration in microseconds"},
    [F_PENDING] = {"nv_inference_pending_request_count", "gauge", "Requests waiting in the queue"},
    [F_LOAD_SECS] = {"nv_model_load_duration_secs", "gauge",
                     "Time the version took to load, warm-up included"},
    [F_STAGE] = {"millrace_request_stage_seconds", "histogram",
                 "Time of requests by stage: queue, compute, encode, total"},
    [F_CLOSE] = {"millrace_batch_close_total", "counter",
                 "Executions by the reason that closed their batch"},
    [F_INLINE] = {"millrace_inline_exec_total", "counter", "Executions on a network thread"},
    [F_MODEL_BYTES] = {"millrace_model_bytes", "gauge",
                       "Memory that the backend reports for the version"},
};

struct collect {
    struct mr_buf family[F_MODELS];
    uint64_t states[MR_VERSION_FAILED + 1];
};

/* A label value: quotes, backslashes and newlines escaped. */
static void put_label(struct mr_buf *b, mr_str s)
{
    for (size_t i = 0; i < s.len; i++) {
        if (s.ptr[i] == '\n') {
            MR_BUF_LIT(b, "\\n");
            continue;
        }
        if (s.ptr[i] == '"' || s.ptr[i] == '\\')
            mr_buf_char(b, '\\');
        mr_buf_char(b, s.ptr[i]);
    }
}

/* Labels in Triton's order, for what reads them with patterns: `reason` stands before the version. */
static void put_labels(struct mr_buf *b, const struct mr_version *v, const char *reason,
                       const char *extra)
{
    MR_BUF_LIT(b, "{model=\"");
    put_label(b, v->model_name);
    if (reason) {
        MR_BUF_LIT(b, "\",reason=\"");
        mr_buf_c(b, reason);
    }
    MR_BUF_LIT(b, "\",version=\"");
    put_label(b, v->number_text);
    mr_buf_char(b, '"');
    for (size_t i = 0; i < v->config->n_metric_tags; i++) {
        mr_buf_char(b, ',');
        mr_buf_c(b, v->config->metric_tags[i]->key);
        MR_BUF_LIT(b, "=\"");
        put_label(b, mr_str_c(v->config->metric_tags[i]->value));
        mr_buf_char(b, '"');
    }
    if (extra) {
        mr_buf_char(b, ',');
        mr_buf_c(b, extra);
    }
    mr_buf_char(b, '}');
}

static void put_sample(struct collect *c, enum family f, const struct mr_version *v,
                       const char *reason, uint64_t value)
{
    struct mr_buf *b = &c->family[f];

    mr_buf_c(b, families[f].name);
    put_labels(b, v, reason, NULL);
    mr_buf_char(b, ' ');
    mr_buf_u64(b, value);
    mr_buf_char(b, '\n');
}

static void put_failures(struct collect *c, const struct mr_version *v,
                         const struct mr_sched_stats *st)
{
    static const char *const reasons[MR_FAIL_REASONS] = {"REJECTED", "CANCELED", "BACKEND",
                                                         "OTHER"};

    for (int i = 0; i < MR_FAIL_REASONS; i++)
        put_sample(c, F_FAILURE, v, reasons[i], mr_count_get(&st->failed[i]));
}

static void put_closes(struct collect *c, const struct mr_version *v,
                       const struct mr_sched_stats *st)
{
    for (int i = 0; i < MR_CLOSE_REASONS; i++) {
        uint64_t n = mr_count_get(&st->closed[i]);
        if (n)
            put_sample(c, F_CLOSE, v, mr_close_reason_name((enum mr_close_reason)i), n);
    }
}

static void put_stage(struct collect *c, const struct mr_version *v, const char *stage,
                      const char *protocol, const struct mr_latency *l)
{
    struct mr_buf *b = &c->family[F_STAGE];
    char extra[96], text[32];
    uint64_t total = 0;

    for (int i = 0; i < MR_LATENCY_BUCKETS; i++) {
        total += mr_count_get(&l->bucket[i]);
        if (i == MR_LATENCY_BUCKETS - 1)
            snprintf(text, sizeof text, "+Inf");
        else
            text[mr_double_text((double)(UINT64_C(1) << i) / 1e6, text)] = 0;
        snprintf(extra, sizeof extra, "stage=\"%s\",protocol=\"%s\",le=\"%s\"", stage, protocol,
                 text);
        mr_buf_c(b, "millrace_request_stage_seconds_bucket");
        put_labels(b, v, NULL, extra);
        mr_buf_printf(b, " %llu\n", (unsigned long long)total);
    }
    snprintf(extra, sizeof extra, "stage=\"%s\",protocol=\"%s\"", stage, protocol);
    mr_buf_c(b, "millrace_request_stage_seconds_sum");
    put_labels(b, v, NULL, extra);
    mr_buf_printf(b, " %.9f\n", (double)mr_count_get(&l->sum_ns) / 1e9);
    mr_buf_c(b, "millrace_request_stage_seconds_count");
    put_labels(b, v, NULL, extra);
    mr_buf_printf(b, " %llu\n", (unsigned long long)total);
}

/* Protocols that a model was never asked by have no histograms: ten thousand idle models stay readable. */
static bool has_samples(const struct mr_latency *l)
{
    for (int i = 0; i < MR_LATENCY_BUCKETS; i++)
        if (mr_count_get(&l->bucket[i]))
            return true;
    return false;
}

static void put_stages(struct collect *c, const struct mr_version *v,
                       const struct mr_sched_stats *st)
{
    static const char *const protocols[MR_INFER_PROTOCOLS] = {"rest", "grpc"};

    for (int p = 0; p < MR_INFER_PROTOCOLS; p++) {
        if (!has_samples(&st->latency_total[p]))
            continue;
        put_stage(c, v, "queue", protocols[p], &st->latency_queue[p]);
        put_stage(c, v, "compute", protocols[p], &st->latency_compute[p]);
        put_stage(c, v, "encode", protocols[p], &st->latency_encode[p]);
        put_stage(c, v, "total", protocols[p], &st->latency_total[p]);
    }
}

static void put_load_seconds(struct collect *c, const struct mr_version *v)
{
    struct mr_buf *b = &c->family[F_LOAD_SECS];

    mr_buf_c(b, families[F_LOAD_SECS].name);
    put_labels(b, v, NULL, NULL);
    mr_buf_printf(b, " %.6f\n", (double)v->load_ns / 1e9);
}

static void add_version(void *ctx, const struct mr_model_report *r)
{
    struct collect *c = ctx;
    const struct mr_version *v = r->v;
    struct mr_sched_stats st;

    if (!r->never_loaded)
        c->states[r->state]++;
    if (!v)
        return;
    mr_sched_stats_sum(v, &st);
    put_sample(c, F_SUCCESS, v, NULL, mr_count_get(&st.success.count));
    put_failures(c, v, &st);
    put_sample(c, F_COUNT, v, NULL, mr_count_get(&st.inference_count));
    put_sample(c, F_EXEC, v, NULL, mr_count_get(&st.execution_count));
    put_sample(c, F_REQUEST_US, v, NULL, mr_count_get(&st.success.ns) / 1000);
    put_sample(c, F_QUEUE_US, v, NULL, mr_count_get(&st.queue.ns) / 1000);
    put_sample(c, F_INPUT_US, v, NULL, mr_count_get(&st.compute_input.ns) / 1000);
    put_sample(c, F_INFER_US, v, NULL, mr_count_get(&st.compute_infer.ns) / 1000);
    put_sample(c, F_OUTPUT_US, v, NULL, mr_count_get(&st.compute_output.ns) / 1000);
    put_sample(c, F_PENDING, v, NULL, mr_sched_pending(v));
    put_sample(c, F_INLINE, v, NULL, mr_count_get(&st.inline_count));
    put_sample(c, F_MODEL_BYTES, v, NULL, mr_plugin_model_bytes(v->backend));
    put_load_seconds(c, v);
    put_closes(c, v, &st);
    put_stages(c, v, &st);
}

static void put_head(struct mr_buf *b, const char *name, const char *type, const char *help)
{
    mr_buf_printf(b, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static void put_one(struct mr_buf *b, const char *name, const char *type, const char *help,
                    uint64_t value)
{
    put_head(b, name, type, help);
    mr_buf_printf(b, "%s %llu\n", name, (unsigned long long)value);
}

/* ---- the process ---- */

static uint64_t read_meminfo(const char *key)
{
    char line[128];
    unsigned long long kb = 0;
    FILE *f = fopen("/proc/meminfo", "re");

    while (f && fgets(line, sizeof line, f)) {
        if (strncmp(line, key, strlen(key)) == 0 && sscanf(line + strlen(key), ": %llu", &kb) == 1)
            break;
    }
    if (f)
        fclose(f);
    return (uint64_t)kb * 1024;
}

static uint64_t resident_bytes(void)
{
    unsigned long long size = 0, resident = 0;
    FILE *f = fopen("/proc/self/statm", "re");

    if (f && fscanf(f, "%llu %llu", &size, &resident) != 2)
        resident = 0;
    if (f)
        fclose(f);
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
    if (last_wall && wall > last_wall)
        share = (double)(cpu - last_cpu) /
                ((double)(wall - last_wall) * (double)sysconf(_SC_NPROCESSORS_ONLN));
    last_wall = wall;
    last_cpu = cpu;
    return share;
}

static void put_process(struct mr_server *s, struct mr_buf *b)
{
    uint64_t total = read_meminfo("MemTotal"), available = read_meminfo("MemAvailable");

    put_head(b, "nv_cpu_utilization", "gauge", "CPU utilization of the process [0.0 - 1.0]");
    mr_buf_printf(b, "nv_cpu_utilization %.6f\n", cpu_utilization());
    put_one(b, "nv_cpu_memory_total_bytes", "gauge", "CPU total memory (RAM), in bytes", total);
    put_one(b, "nv_cpu_memory_used_bytes", "gauge", "CPU used memory (RAM), in bytes",
            total > available ? total - available : 0);
    put_one(b, "process_resident_memory_bytes", "gauge", "Resident memory of the server",
            resident_bytes());
    put_head(b, "process_start_time_seconds", "gauge",
             "Start of the server, seconds since the epoch");
    mr_buf_printf(b, "process_start_time_seconds %.3f\n", (double)s->start_wall_ns / 1e9);
}

static void put_memory(struct mr_buf *b)
{
    struct mr_block_stats st = mr_block_get_stats();

    put_head(b, "millrace_block_bytes", "gauge", "Bulk memory of requests and answers by use");
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

    for (unsigned i = 0; i < s->loop_count; i++)
        sum += mr_count_get(
            (_Atomic uint64_t *)(void *)((char *)mr_loop_stats(s->loops[i].loop) + offset));
    return sum;
}

static void put_lag(struct mr_server *s, struct mr_buf *b)
{
    struct mr_hist *all = MR_NEW(struct mr_hist);
    uint64_t total = 0;
    unsigned next = 0;

    put_head(
        b, "millrace_loop_lag_seconds", "histogram",
        "Work of one event loop iteration: how long a request may wait before it is looked at");
    for (unsigned i = 0; i < s->loop_count; i++)
        mr_hist_merge(all, &mr_loop_stats(s->loops[i].loop)->lag_ns);
    for (int64_t bound = 1000; bound <= 16 * MR_NS_PER_S; bound *= 4) {
        for (; next < MR_HIST_BUCKETS && mr_hist_upper(next) <= (uint64_t)bound; next++)
            total += mr_count_get(&all->count[next]);
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
        {"millrace_protocol_errors_total", "Broken requests",
         offsetof(struct mr_loop_stats, protocol_errors)},
        {"millrace_timeouts_total", "Connections closed by a timeout",
         offsetof(struct mr_loop_stats, timeouts)},
        {"millrace_received_bytes_total", "Bytes read", offsetof(struct mr_loop_stats, bytes_in)},
        {"millrace_sent_bytes_total", "Bytes written", offsetof(struct mr_loop_stats, bytes_out)},
    };

    put_one(b, "millrace_connections", "gauge", "Open connections",
            (uint64_t)mr_http_server_connections(s->http));
    for (size_t i = 0; i < sizeof sums / sizeof *sums; i++)
        put_one(b, sums[i].name, "counter", sums[i].help, loop_sum(s, sums[i].offset));
    put_lag(s, b);
}

static void put_tls_one(struct mr_server *s, struct mr_buf *b, const char *name, const char *type,
                        const char *help, uint64_t (*value)(struct serve_tls *t))
{
    put_head(b, name, type, help);
    for (int i = 0; i < SERVE_TLS_KINDS; i++)
        if (s->tls[i].tls)
            mr_buf_printf(b, "%s{listener=\"%s\"} %llu\n", name, s->tls[i].name,
                          (unsigned long long)value(&s->tls[i]));
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
    if (!s->tls[SERVE_TLS_HTTP].tls && !s->tls[SERVE_TLS_GRPC].tls)
        return;
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

static void put_states(const struct collect *c, struct mr_buf *b)
{
    put_head(b, "millrace_model_versions", "gauge", "Model versions by state");
    for (int i = 0; i <= MR_VERSION_FAILED; i++)
        mr_buf_printf(b, "millrace_model_versions{state=\"%s\"} %llu\n",
                      mr_version_state_name((enum mr_version_state)i),
                      (unsigned long long)c->states[i]);
}

static void put_loads(struct mr_server *s, struct mr_buf *b)
{
    struct mr_load_totals t;

    mr_models_totals(s->models, &t);
    put_head(b, "millrace_model_loads_total", "counter",
             "Loads of versions by what became of them");
    mr_buf_printf(b,
                  "millrace_model_loads_total{outcome=\"ready\"} %llu\n"
                  "millrace_model_loads_total{outcome=\"failed\"} %llu\n"
                  "millrace_model_loads_total{outcome=\"cancelled\"} %llu\n",
                  (unsigned long long)t.ready, (unsigned long long)t.failed,
                  (unsigned long long)t.cancelled);
    put_head(b, "millrace_model_phase_seconds", "summary",
             "Time that versions spent in the states that they have left");
    for (int i = 0; i < MR_VERSION_UNLOADED; i++) {
        const char *state = mr_version_state_name((enum mr_version_state)i);
        mr_buf_printf(b, "millrace_model_phase_seconds_sum{state=\"%s\"} %.9f\n", state,
                      (double)t.spent[i].ns / 1e9);
        mr_buf_printf(b, "millrace_model_phase_seconds_count{state=\"%s\"} %llu\n", state,
                      (unsigned long long)t.spent[i].count);
    }
}

void metrics_text(struct mr_server *s, struct mr_buf *out)
{
    struct collect *c = MR_NEW(struct collect);

    for (int f = 0; f < F_MODELS; f++)
        mr_buf_init(&c->family[f], out->max);
    mr_models_report(s->models, add_version, c);
    for (int f = 0; f < F_MODELS; f++) {
        put_head(out, families[f].name, families[f].type, families[f].help);
        mr_buf_str(out, mr_buf_view(&c->family[f]));
        out->failed |= c->family[f].failed;
        mr_buf_fini(&c->family[f]);
    }
    put_states(c, out);
    put_loads(s, out);
    put_network(s, out);
    put_tls(s, out);
    put_memory(out);
    put_process(s, out);
    mr_free(c);
}

/* ---- the call ---- */

struct metrics_job {
    struct admin_job job;
    struct mr_server *server;
    struct mr_call *call;
    struct mr_buf text;
};

static void metrics_run(struct admin_job *job)
{
    struct metrics_job *m = MR_CONTAINER_OF(job, struct metrics_job, job);

    metrics_text(m->server, &m->text);
}

static void metrics_done(struct admin_job *job)
{
    static const struct mr_header type[] = {
        {MR_STR_INIT("content-type"), MR_STR_INIT("text/plain; charset=utf-8")}};
    struct metrics_job *m = MR_CONTAINER_OF(job, struct metrics_job, job);
    struct mr_piece piece = {m->text.ptr, m->text.len, NULL};
    struct mr_reply reply = {
        .status = 200, .headers = type, .header_count = 1, .pieces = &piece, .piece_count = 1};

    if (m->text.failed)
        reply_error_text(m->call, MR_E_EXHAUSTED, "the metrics are larger than the server allows");
    else
        mr_call_reply(m->call, &reply);
    mr_buf_fini(&m->text);
    mr_free(m);
}

void rest_metrics(struct mr_server *s, struct mr_call *call)
{
    struct metrics_job *m;

    if (!mr_str_eq_c(call->path, "/metrics")) {
        reply_status_text(call, 404, "Not Found");
        return;
    }
    if (!mr_str_eq_c(call->method, "GET") && !call->head_only) {
        reply_status_text(call, 405, "Method Not Allowed");
        return;
    }
    m = MR_NEW(struct metrics_job);
    m->server = s;
    m->call = call;
    m->job.run = metrics_run;
    m->job.done = metrics_done;
    mr_buf_init(&m->text, 256u << 20);
    admin_submit(s, &m->job);
}
