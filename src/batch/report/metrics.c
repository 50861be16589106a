/* GET /metrics: a job as Prometheus text.
 *
 * Hosts have labels of their own up to HOSTS_NAMED, in the order in which they came; all further ones are one, "other",
 * so that a job whose hosts come and go for weeks does not fill the monitoring. A host never changes from one to the
 * other, as its counters would seem to go back. */
#include "metrics.h"

#include <stdio.h>

#include "base/clock.h"
#include "batch/calls/calls.h"
#include "batch/calls/reader.h"
#include "batch/common/figures.h"
#include "batch/common/waits.h"
#include "batch/results/committer.h"
#include "batch/results/results.h"
#include "view.h"

#define HOSTS_NAMED 200

/* A host, or all that have no name. */
struct host_sums {
    const char *label;
    uint64_t rows;
    uint64_t in_flight;
    uint64_t limit;
    struct host_figures f;
};

static void put_head(struct mr_buf *b, const char *name, const char *type, const char *help)
{
    mr_buf_printf(b, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static void put_u64(struct mr_buf *b, const char *name, const char *type, const char *help,
                    uint64_t value)
{
    put_head(b, name, type, help);
    mr_buf_printf(b, "%s %llu\n", name, (unsigned long long)value);
}

static void put_label(struct mr_buf *b, const char *s)
{
    for (; *s; s++) {
        if (*s == '"' || *s == '\\') {
            mr_buf_char(b, '\\');
        }
        mr_buf_char(b, *s == '\n' ? ' ' : *s);
    }
}

/* name{host="…" — the brace is open. */
static void put_host(struct mr_buf *b, const char *name, const struct host_sums *h)
{
    mr_buf_c(b, name);
    MR_BUF_LIT(b, "{host=\"");
    put_label(b, h->label);
    mr_buf_char(b, '"');
}

static struct host_sums *sums_new(const struct job_parts *parts, const struct mr_batch_view *v,
                                  size_t *out_n)
{
    struct host_sums *sums = MR_NEW_ARRAY(struct host_sums, HOSTS_NAMED + 1);

    *out_n = MR_MIN(parts->calls->hosts->list.len, (size_t)HOSTS_NAMED + 1);
    for (size_t i = 0; i < parts->calls->hosts->list.len; i++) {
        const struct host *h = parts->calls->hosts->list.at[i];
        struct host_sums *s = &sums[MR_MIN(i, (size_t)HOSTS_NAMED)];
        s->label = i < HOSTS_NAMED ? h->transport.address : "other";
        s->rows += h->rows;
        s->in_flight += v->hosts[i].in_flight;
        s->limit += v->hosts[i].limit;
        figures_add(&s->f, &h->figures);
    }
    return sums;
}

static void sums_free(struct host_sums *sums, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        figures_fini(&sums[i].f);
    }
    mr_free(sums);
}

/* ---- the job ---- */

static void put_rows(struct mr_buf *b, const struct mr_batch_view *v)
{
    put_head(b, "millrace_batch_rows_total", "counter",
             "Rows that are committed, by what became of them; of all starts");
    mr_buf_printf(b,
                  "millrace_batch_rows_total{outcome=\"result\"} %llu\n"
                  "millrace_batch_rows_total{outcome=\"dead_letter\"} %llu\n",
                  (unsigned long long)v->rows, (unsigned long long)v->dead);
    if (v->total_rows >= 0) {
        put_u64(b, "millrace_batch_input_rows", "gauge", "Rows of the input",
                (uint64_t)v->total_rows);
    }
    put_u64(b, "millrace_batch_under_way_rows", "gauge", "Rows read and not committed",
            v->under_way);
    put_u64(b, "millrace_batch_under_way_bytes", "gauge", "Memory that these and answers take",
            v->memory_bytes);
}

static void put_dead(struct mr_buf *b, const struct job_parts *parts)
{
    static const char *const kinds[] = {"row",      "rejected", "failed", "refused",
                                        "filtered", "length",   "schema"};
    const size_t count = parts->calls->model->openai ? 7 : 3;
    uint64_t counts[7] = {0};

    for (size_t i = 0; i < parts->calls->figures.dead_count; i++) {
        for (size_t k = 0; k < count; k++) {
            const struct dead_cause *d = &parts->calls->figures.dead[i];
            counts[k] += strcmp(d->kind, kinds[k]) == 0 ? d->count : 0;
        }
    }
    put_head(b, "millrace_batch_dead_letters_total", "counter",
             "Dead letters of this start by kind, committed or not; other: too many causes");
    for (size_t k = 0; k < count; k++) {
        mr_buf_printf(b, "millrace_batch_dead_letters_total{kind=\"%s\"} %llu\n", kinds[k],
                      (unsigned long long)counts[k]);
    }
    mr_buf_printf(b, "millrace_batch_dead_letters_total{kind=\"other\"} %llu\n",
                  (unsigned long long)parts->calls->figures.dead_other);
}

static void put_stages(struct mr_buf *b, const struct job_parts *parts)
{
    struct host_figures all = {0};

    for (size_t i = 0; i < parts->calls->hosts->list.len; i++) {
        all.encode_ns += parts->calls->hosts->list.at[i]->figures.encode_ns;
        all.judge_ns += parts->calls->hosts->list.at[i]->figures.judge_ns;
    }
    const struct {
        const char *stage;
        int64_t ns;
    } stages[] = {
        {"read", atomic_load_explicit(&parts->reader->read_ns, memory_order_relaxed)},
        {"reader_waits", waits_ns(&parts->reader->waits)},
        {"encode", all.encode_ns},
        {"judge", all.judge_ns},
        {"write", atomic_load_explicit(&parts->results->committer->write_ns, memory_order_relaxed)},
        {"commit",
         atomic_load_explicit(&parts->results->committer->commit_ns, memory_order_relaxed)},
        {"writer_waits", waits_ns(&parts->results->committer->waits)},
    };
    put_head(b, "millrace_batch_stage_seconds_total", "counter", "Time by stage, on its thread");
    for (size_t i = 0; i < sizeof stages / sizeof *stages; i++) {
        mr_buf_printf(b, "millrace_batch_stage_seconds_total{stage=\"%s\"} %.6f\n", stages[i].stage,
                      (double)stages[i].ns / 1e9);
    }
}

static void put_bottleneck(struct mr_buf *b, const struct mr_batch_view *v)
{
    static const char *const stages[] = {"reader", "hosts", "writer"};

    put_head(b, "millrace_batch_bottleneck", "gauge", "1 for what the job is bound by");
    for (size_t i = 0; i < 3; i++) {
        mr_buf_printf(b, "millrace_batch_bottleneck{stage=\"%s\"} %d\n", stages[i],
                      strcmp(v->bottleneck, stages[i]) == 0);
    }
    put_u64(b, "millrace_batch_paused", "gauge", "1: no calls are made", v->is_paused);
    put_u64(b, "millrace_batch_held", "gauge", "1: results cannot be written", v->held[0] != '\0');
}

/* ---- hosts ---- */

static void put_calls(struct mr_buf *b, const struct host_sums *sums, size_t n)
{
    static const char *const outcomes[MR_BALANCE_CANCELLED + 1] = {
        [MR_BALANCE_OK] = "ok",           [MR_BALANCE_THROTTLED] = "throttled",
        [MR_BALANCE_REFUSED] = "refused", [MR_BALANCE_TIMED_OUT] = "timed_out",
        [MR_BALANCE_FAILED] = "failed",   [MR_BALANCE_REJECTED] = "rejected",
        [MR_BALANCE_CANCELLED] = "late"};

    put_head(b, "millrace_batch_calls_total", "counter",
             "Calls that ended, by host and outcome; late: the other copy was first");
    for (size_t i = 0; i < n; i++) {
        for (size_t k = 0; k <= MR_BALANCE_CANCELLED; k++) {
            put_host(b, "millrace_batch_calls_total", &sums[i]);
            mr_buf_printf(b, ",outcome=\"%s\"} %llu\n", outcomes[k],
                          (unsigned long long)sums[i].f.outcomes[k]);
        }
    }
}

static void put_each(struct mr_buf *b, const struct host_sums *sums, size_t n, bool has_tokens)
{
    const struct {
        const char *name;
        const char *type;
        const char *help;
        size_t offset;
    } families[] = {
        {"millrace_batch_host_rows_total", "counter", "Rows that a host answered",
         offsetof(struct host_sums, rows)},
        {"millrace_batch_host_dead_letters_total", "counter",
         "Dead letters whose last attempt a host had", offsetof(struct host_sums, f.dead)},
        {"millrace_batch_retried_calls_total", "counter",
         "Calls to a host with rows that had failed before", offsetof(struct host_sums, f.retries)},
        {"millrace_batch_calls_in_flight", "gauge", "Calls under way",
         offsetof(struct host_sums, in_flight)},
        {"millrace_batch_calls_limit", "gauge", "Calls that a host gets at a time just now",
         offsetof(struct host_sums, limit)},
        {"millrace_batch_prompt_tokens_total", "counter",
         "Tokens of prompts, as a language model's host counts them",
         offsetof(struct host_sums, f.prompt_tokens)},
        {"millrace_batch_completion_tokens_total", "counter", "Tokens of answers, the same",
         offsetof(struct host_sums, f.completion_tokens)},
    };
    const size_t count = sizeof families / sizeof *families - (has_tokens ? 0 : 2);
    for (size_t k = 0; k < count; k++) {
        put_head(b, families[k].name, families[k].type, families[k].help);
        for (size_t i = 0; i < n; i++) {
            uint64_t value;
            memcpy(&value, (const char *)&sums[i] + families[k].offset, sizeof value);
            put_host(b, families[k].name, &sums[i]);
            mr_buf_printf(b, "} %llu\n", (unsigned long long)value);
        }
    }
}

static void put_latency(struct mr_buf *b, const struct host_sums *sums, size_t n)
{
    static const struct mr_hist none;

    put_head(b, "millrace_batch_call_seconds", "histogram", "From a request to a good answer");
    for (size_t i = 0; i < n; i++) {
        const struct mr_hist *hist = sums[i].f.answer_ns ? sums[i].f.answer_ns : &none;
        const unsigned long long total = mr_hist_total(hist);
        uint64_t below = 0;
        unsigned next = 0;
        for (int64_t bound = MR_NS_PER_MS; bound <= 300 * MR_NS_PER_S; bound *= 4) {
            for (; next < MR_HIST_BUCKETS && mr_hist_upper(next) <= (uint64_t)bound; next++) {
                below += mr_count_get(&hist->count[next]);
            }
            put_host(b, "millrace_batch_call_seconds_bucket", &sums[i]);
            mr_buf_printf(b, ",le=\"%g\"} %llu\n", (double)bound / 1e9, (unsigned long long)below);
        }
        put_host(b, "millrace_batch_call_seconds_bucket", &sums[i]);
        mr_buf_printf(b, ",le=\"+Inf\"} %llu\n", total);
        put_host(b, "millrace_batch_call_seconds_sum", &sums[i]);
        mr_buf_printf(b, "} %.9f\n", (double)mr_count_get(&hist->sum) / 1e9);
        put_host(b, "millrace_batch_call_seconds_count", &sums[i]);
        mr_buf_printf(b, "} %llu\n", total);
    }
}

/* ---- all of it ---- */

static void put_states(struct mr_buf *b, const struct mr_batch_view *v)
{
    static const char *const states[] = {"ready",     "suspect",  "ejected",
                                         "half-open", "cordoned", "quarantined",
                                         "draining",  "removed",  "no answer yet"};
    put_head(b, "millrace_batch_hosts", "gauge", "Hosts by state");
    for (size_t k = 0; k < sizeof states / sizeof *states; k++) {
        size_t count = 0;
        for (size_t i = 0; i < v->host_count; i++) {
            count += strcmp(v->hosts[i].state, states[k]) == 0;
        }
        mr_buf_printf(b, "millrace_batch_hosts{state=\"%s\"} %zu\n", states[k], count);
    }
}

void metrics_put(struct mr_buf *b, const struct job_parts *parts, const struct mr_batch_view *v)
{
    size_t n;
    struct host_sums *sums = sums_new(parts, v, &n);

    put_rows(b, v);
    put_u64(b, "millrace_batch_memory_limit_bytes", "gauge", "--memory",
            parts->calls->o->memory_bytes);
    put_u64(b, "millrace_batch_files_total", "counter", "Files of results",
            v->files +
                atomic_load_explicit(&parts->results->committer->merged, memory_order_relaxed));
    put_dead(b, parts);
    put_stages(b, parts);
    put_bottleneck(b, v);
    put_states(b, v);
    put_calls(b, sums, n);
    put_each(b, sums, n, parts->calls->model->openai != NULL);
    put_latency(b, sums, n);
    sums_free(sums, n);
}
