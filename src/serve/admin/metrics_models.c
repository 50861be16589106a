/* GET /metrics, a version of a model each: Triton's names and labels, and ours beside them (millrace_*).
 *
 * Samples of one family have to stand together, versions are visited once: so each family has text of its own. A version
 * that was never asked has less than a kilobyte: counters that dashboards look for, no histogram, no reasons of failures.
 * The text is made within the slices of mr_models_visit, which the manager's lock is held for. */
#include "base/hist.h"
#include "codec/json.h"
#include "flow/flow.h"
#include "metrics.h"
#include "process/spawn.h"
#include "sentinel/sentinel.h"
#include "serve/state/state.h"

#include <stdio.h>

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
    F_WORKERS,
    F_RESTARTS,
    F_REQUEUED,
    F_QUARANTINED,
    F_HELD,
    F_REFUSED,
    F_COPIED,
    F_WORKER_BYTES,
    F_WORKER_CPU,
    F_DETECTION,
    F_REPLACEMENT,
    F_NODES,
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
    [F_WORKERS] = {"millrace_worker_ready", "gauge", "Worker processes that are ready"},
    [F_RESTARTS] = {"millrace_worker_restarts_total", "counter",
                    "Worker processes that were replaced, by reason"},
    [F_REQUEUED] = {"millrace_worker_requeued_total", "counter",
                    "Executions that were given to another worker process"},
    [F_QUARANTINED] = {"millrace_worker_quarantined_total", "counter",
                       "Executions that were given up because worker processes died with them"},
    [F_HELD] = {"millrace_worker_quarantine", "gauge",
                "Requests that are refused now because worker processes died of them"},
    [F_REFUSED] = {"millrace_worker_refused_total", "counter",
                   "Times that a request in quarantine was refused"},
    [F_COPIED] = {"millrace_worker_copied_bytes_total", "counter",
                  "Bytes of tensors that the server copied to and from worker processes"},
    [F_WORKER_BYTES] = {"millrace_worker_resident_bytes", "gauge",
                        "Memory of a worker process, what it shares included"},
    [F_WORKER_CPU] = {"millrace_worker_cpu_seconds_total", "counter",
                      "CPU time of a worker process; begins at 0 with the one that replaces it"},
    [F_DETECTION] = {"millrace_worker_detection_seconds", "histogram",
                     "Time until a worker process was known to have ended or to hang, by reason"},
    [F_REPLACEMENT] = {"millrace_worker_replacement_seconds", "histogram",
                       "Time from then until its successor was ready, by reason"},
    [F_NODES] = {"millrace_workflow_node_events_total", "counter",
                 "What nodes of workflows count, by event"},
};

struct running {
    int pid;
    size_t labels_end;
};

struct collect {
    struct mr_buf family[F_MODELS]; /* the end of each; the text before it in: */
    metrics_chunks full[F_MODELS];
    size_t bytes;
    bool is_too_long;
    uint64_t *states;
    /* worker processes, and their labels one after the other */
    MR_VEC(struct running) running;
    struct mr_buf labels;
};

/* A label value: quotes, backslashes and newlines escaped. */
static void put_label(struct mr_buf *b, mr_str s)
{
    for (size_t i = 0; i < s.len; i++) {
        if (s.ptr[i] == '\n') {
            MR_BUF_LIT(b, "\\n");
            continue;
        }
        if (s.ptr[i] == '"' || s.ptr[i] == '\\') {
            mr_buf_char(b, '\\');
        }
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

/* Of all reasons once the version was asked. Ten thousand that never were are not to be four times as many lines. */
static void put_failures(struct collect *c, const struct mr_version *v,
                         const struct mr_sched_stats *st)
{
    static const char *const reasons[MR_FAIL_REASONS] = {"REJECTED", "CANCELED", "BACKEND",
                                                         "OTHER"};
    uint64_t asked = mr_count_get(&st->success.count);

    for (int i = 0; i < MR_FAIL_REASONS; i++) {
        asked += mr_count_get(&st->failed[i]);
    }
    if (asked == 0) {
        return;
    }

    for (int i = 0; i < MR_FAIL_REASONS; i++) {
        put_sample(c, F_FAILURE, v, reasons[i], mr_count_get(&st->failed[i]));
    }
}

static void put_closes(struct collect *c, const struct mr_version *v,
                       const struct mr_sched_stats *st)
{
    for (int i = 0; i < MR_CLOSE_REASONS; i++) {
        uint64_t n = mr_count_get(&st->closed[i]);
        if (n) {
            put_sample(c, F_CLOSE, v, mr_close_reason_name((enum mr_close_reason)i), n);
        }
    }
}

/* Buckets with the upper bounds of 2^k microseconds, and one for the rest. */
static void put_histogram(struct collect *c, enum family f, const struct mr_version *v,
                          const char *labels, const uint64_t bucket[MR_LATENCY_BUCKETS],
                          uint64_t sum_ns)
{
    struct mr_buf *b = &c->family[f];
    char extra[96], text[32];
    uint64_t total = 0;

    for (int i = 0; i < MR_LATENCY_BUCKETS; i++) {
        total += bucket[i];
        if (i == MR_LATENCY_BUCKETS - 1) {
            snprintf(text, sizeof text, "+Inf");
        } else {
            text[mr_double_text((double)(UINT64_C(1) << i) / 1e6, text)] = 0;
        }
        snprintf(extra, sizeof extra, "%s,le=\"%s\"", labels, text);
        mr_buf_printf(b, "%s_bucket", families[f].name);
        put_labels(b, v, NULL, extra);
        mr_buf_printf(b, " %llu\n", (unsigned long long)total);
    }
    mr_buf_printf(b, "%s_sum", families[f].name);
    put_labels(b, v, NULL, labels);
    mr_buf_printf(b, " %.9f\n", (double)sum_ns / 1e9);
    mr_buf_printf(b, "%s_count", families[f].name);
    put_labels(b, v, NULL, labels);
    mr_buf_printf(b, " %llu\n", (unsigned long long)total);
}

static void put_stage(struct collect *c, const struct mr_version *v, const char *stage,
                      const char *protocol, const struct mr_latency *l)
{
    uint64_t bucket[MR_LATENCY_BUCKETS];
    char labels[64];

    for (int i = 0; i < MR_LATENCY_BUCKETS; i++) {
        bucket[i] = mr_count_get(&l->bucket[i]);
    }
    snprintf(labels, sizeof labels, "stage=\"%s\",protocol=\"%s\"", stage, protocol);
    put_histogram(c, F_STAGE, v, labels, bucket, mr_count_get(&l->sum_ns));
}

static bool has_samples(const struct mr_latency *l)
{
    for (int i = 0; i < MR_LATENCY_BUCKETS; i++) {
        if (mr_count_get(&l->bucket[i])) {
            return true;
        }
    }
    return false;
}

static void put_stages(struct collect *c, const struct mr_version *v,
                       const struct mr_sched_stats *st)
{
    static const char *const protocols[MR_INFER_PROTOCOLS] = {"rest", "grpc"};

    for (int p = 0; p < MR_INFER_PROTOCOLS; p++) {
        const struct {
            const char *name;
            const struct mr_latency *latency;
        } stages[] = {{"queue", &st->latency_queue[p]},
                      {"compute", &st->latency_compute[p]},
                      {"encode", &st->latency_encode[p]},
                      {"total", &st->latency_total[p]}};
        for (size_t i = 0; i < sizeof stages / sizeof *stages; i++) {
            if (has_samples(stages[i].latency)) {
                put_stage(c, v, stages[i].name, protocols[p], stages[i].latency);
            }
        }
    }
}

static void put_seconds(struct collect *c, enum family f, const struct mr_version *v, uint64_t ns)
{
    struct mr_buf *b = &c->family[f];

    mr_buf_c(b, families[f].name);
    put_labels(b, v, NULL, NULL);
    mr_buf_printf(b, " %.6f\n", (double)ns / 1e9);
}

_Static_assert(MR_WORKER_TIME_BUCKETS == MR_LATENCY_BUCKETS, "the same bounds");

static void put_worker_times(struct collect *c, enum family f, const struct mr_version *v,
                             const char *reason, const struct mr_worker_times *t)
{
    char labels[48];

    if (t->count > 0) {
        snprintf(labels, sizeof labels, "reason=\"%s\"", reason);
        put_histogram(c, f, v, labels, t->bucket, t->sum_ns);
    }
}

/* The processes of a version. What they take is read later, as the manager's lock is held now. */
static void note_running(struct collect *c, const struct mr_version *v)
{
    int pids[MR_WORKERS_MAX];
    char label[24];

    mr_sentinel_pids(v->executor, pids);
    for (uint32_t i = 0; i < MR_WORKERS_MAX; i++) {
        if (pids[i] > 0) {
            snprintf(label, sizeof label, "worker=\"%u\"", i);
            put_labels(&c->labels, v, NULL, label);
            MR_VEC_PUSH(&c->running, ((struct running){pids[i], c->labels.len}));
        }
    }
}

/* Of each process that is still there. */
static void put_usages(struct collect *c)
{
    struct mr_buf *bytes = &c->family[F_WORKER_BYTES], *cpu = &c->family[F_WORKER_CPU];
    size_t at = 0;

    for (size_t i = 0; i < c->running.len && !c->labels.failed; i++) {
        const struct running *r = &c->running.at[i];
        const struct mr_process process = {.pid = r->pid};
        const mr_str labels = mr_str_n(c->labels.ptr + at, r->labels_end - at);
        struct mr_process_usage u;
        at = r->labels_end;
        mr_process_get_usage(&process, 0, &u);
        if (u.resident_bytes > 0) {
            mr_buf_c(bytes, families[F_WORKER_BYTES].name);
            mr_buf_str(bytes, labels);
            mr_buf_printf(bytes, " %llu\n", (unsigned long long)u.resident_bytes);
            mr_buf_c(cpu, families[F_WORKER_CPU].name);
            mr_buf_str(cpu, labels);
            mr_buf_printf(cpu, " %.2f\n", (double)u.cpu_ns / 1e9);
        }
    }
}

static void put_workers(struct collect *c, const struct mr_version *v)
{
    const struct mr_quarantine_stats q = mr_sched_quarantine(v);
    struct mr_workers_report w;

    if (!mr_sentinel_is_executor(v->executor)) {
        return;
    }
    mr_sentinel_sum(v->executor, &w);
    put_sample(c, F_WORKERS, v, NULL, w.ready_count);
    for (int f = 0; f < MR_WORKER_FAULTS; f++) {
        const char *reason = mr_worker_fault_name((enum mr_worker_fault)f);
        put_sample(c, F_RESTARTS, v, reason, w.restarts[f]);
        put_worker_times(c, F_DETECTION, v, reason, &w.detection[f]);
        put_worker_times(c, F_REPLACEMENT, v, reason, &w.replacement[f]);
    }
    put_sample(c, F_REQUEUED, v, NULL, w.requeued);
    put_sample(c, F_QUARANTINED, v, NULL, w.quarantined);
    put_sample(c, F_HELD, v, NULL, q.held);
    put_sample(c, F_REFUSED, v, NULL, q.refused);
    put_sample(c, F_COPIED, v, NULL, w.copied_bytes);
    note_running(c, v);
}

/* A node of a workflow. */
struct node_of {
    struct collect *c;
    const struct mr_version *v;
};

static void put_node(void *ctx, mr_str node, const char *event, uint64_t n)
{
    const struct node_of *of = ctx;
    struct mr_buf *b = &of->c->family[F_NODES];

    mr_buf_c(b, families[F_NODES].name);
    put_labels(b, of->v, NULL, NULL);
    b->len -= b->len > 0; /* the brace: more labels follow */
    MR_BUF_LIT(b, ",node=\"");
    put_label(b, node);
    mr_buf_printf(b, "\",event=\"%s\"} %llu\n", event, (unsigned long long)n);
}

static void seal_all(struct collect *c)
{
    for (int f = 0; f < F_MODELS; f++) {
        size_t len = c->family[f].len;
        metrics_seal(&c->family[f], METRICS_CHUNK, &c->full[f]);
        c->bytes += len - c->family[f].len;
    }
    c->is_too_long |= c->bytes > METRICS_MOST;
}

static void add_version(void *ctx, const struct mr_model_report *r)
{
    struct collect *c = ctx;
    const struct mr_version *v = r->v;
    struct mr_sched_stats st;

    c->states[r->state]++;
    if (!v || c->is_too_long) {
        return;
    }
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
    if (mr_count_get(&st.inline_count)) {
        put_sample(c, F_INLINE, v, NULL, mr_count_get(&st.inline_count));
    }
    put_sample(c, F_MODEL_BYTES, v, NULL, v->executor->ops->bytes(v->executor));
    put_seconds(c, F_LOAD_SECS, v, (uint64_t)v->load_ns);
    mr_flow_counts(v->executor, put_node, &(struct node_of){c, v});
    put_workers(c, v);
    put_closes(c, v, &st);
    put_stages(c, v, &st);
    seal_all(c);
}

bool metrics_models(struct mr_server *s, metrics_chunks *out,
                    uint64_t out_states[MR_VERSION_STATES])
{
    struct collect *c = MR_NEW(struct collect);

    c->states = out_states;
    for (int f = 0; f < F_MODELS; f++) {
        mr_buf_init(&c->family[f], METRICS_MOST);
        metrics_head(&c->family[f], families[f].name, families[f].type, families[f].help);
    }
    mr_buf_init(&c->labels, METRICS_MOST);
    mr_models_visit(s->models, add_version, c);
    put_usages(c);
    MR_VEC_FINI(&c->running);
    mr_buf_fini(&c->labels);
    for (int f = 0; f < F_MODELS; f++) {
        c->is_too_long |= c->family[f].failed;
        metrics_seal(&c->family[f], 1, &c->full[f]);
        for (size_t i = 0; i < c->full[f].len; i++) {
            MR_VEC_PUSH(out, c->full[f].at[i]);
        }
        MR_VEC_FINI(&c->full[f]);
        mr_buf_fini(&c->family[f]);
    }
    bool is_whole = !c->is_too_long;
    mr_free(c);
    return is_whole;
}
