/* The results of `millrace perf` as JSON; docs/perf.md lists the members. */
#include <errno.h>

#include "cli/common/cli.h"
#include "codec/json.h"
#include "perf_json.h"

const char *perf_protocol_name(const struct perf *p)
{
    static const char *const names[] = {"rest", "binary", "grpc", "grpc-stream"};

    return names[p->opt.protocol];
}

void perf_put_key(struct mr_buf *b, const char *key)
{
    bool is_first = b->len > 0 && b->ptr[b->len - 1] == '{';

    mr_buf_printf(b, "%s\"%s\":", is_first ? "" : ",", key);
}

void perf_put_number(struct mr_buf *b, const char *key, double v)
{
    perf_put_key(b, key);
    mr_json_put_double(b, v);
}

void perf_put_count(struct mr_buf *b, const char *key, uint64_t v)
{
    perf_put_key(b, key);
    mr_buf_u64(b, v);
}

void perf_put_string(struct mr_buf *b, const char *key, const char *v)
{
    perf_put_key(b, key);
    mr_json_put_string(b, mr_str_c(v));
}

void perf_put_bool(struct mr_buf *b, const char *key, bool v)
{
    perf_put_key(b, key);
    mr_buf_c(b, v ? "true" : "false");
}

static void put_load(struct mr_buf *b, const struct mr_perf_load *l)
{
    perf_put_key(b, "load");
    mr_buf_char(b, '{');
    if (l->concurrency) {
        perf_put_count(b, "concurrency", l->concurrency);
    } else {
        perf_put_number(b, "rate", l->rate);
        if (l->rate_to > 0) {
            perf_put_number(b, "rate_to", l->rate_to);
        }
        perf_put_bool(b, "poisson", l->poisson);
    }
    perf_put_count(b, "threads", l->threads);
    mr_buf_char(b, '}');
}

void perf_put_errors(struct mr_buf *b, const struct mr_perf_errors *e)
{
    char name[32];

    perf_put_key(b, "errors");
    mr_buf_char(b, '[');
    for (size_t i = 0; i < e->count; i++) {
        mr_perf_error_name(&e->kinds[i], name);
        mr_buf_c(b, i ? ",{" : "{");
        perf_put_string(b, "kind", name);
        perf_put_count(b, "count", e->kinds[i].count);
        perf_put_string(b, "text", e->kinds[i].text);
        mr_buf_char(b, '}');
    }
    mr_buf_char(b, ']');
}

static void put_counts(struct mr_buf *b, const struct mr_perf_result *r)
{
    perf_put_count(b, "sent", r->sent);
    perf_put_count(b, "answered", r->answered);
    perf_put_count(b, "failed", r->failed);
    perf_put_count(b, "gave_up", r->gave_up);
    perf_put_count(b, "warmup_sent", r->warmup_sent);
    perf_put_count(b, "warmup_failed", r->warmup_failed);
    perf_put_count(b, "late", r->late);
    perf_put_count(b, "waited", r->waited);
    perf_put_count(b, "connections", r->connections);
    perf_put_count(b, "connections_grown", r->grown);
}

void perf_put_latency(struct mr_buf *b, const struct mr_hdr_histogram *h)
{
    bool first = true;

    perf_put_key(b, "latency_ns");
    mr_buf_char(b, '{');
    perf_put_count(b, "count", h->total);
    perf_put_number(b, "mean", mr_hdr_mean(h));
    perf_put_count(b, "min", h->total ? h->min : 0);
    for (size_t k = 0; k < PERF_PERCENTILES; k++) {
        perf_put_count(b, perf_percentiles[k].name, mr_hdr_quantile(h, perf_percentiles[k].q));
    }
    perf_put_count(b, "max", h->max);
    MR_BUF_LIT(b, "}\n   ");
    perf_put_key(b, "histogram");
    mr_buf_char(b, '[');
    for (unsigned i = 0; i < MR_HDR_BUCKETS; i++) {
        if (h->count[i]) {
            mr_buf_printf(b, "%s[%llu,%llu]", first ? "" : ",", (unsigned long long)mr_hdr_upper(i),
                          (unsigned long long)h->count[i]);
            first = false;
        }
    }
    MR_BUF_LIT(b, "]\n   ");
}

static void put_bound(struct mr_buf *b, uint64_t v, uint64_t unknown)
{
    if (v == unknown) {
        MR_BUF_LIT(b, "null");
    } else {
        mr_buf_u64(b, v);
    }
}

void perf_put_intervals(struct mr_buf *b, const struct mr_perf_result *r)
{
    struct mr_perf_interval i;

    perf_put_key(b, "intervals_ns");
    mr_buf_char(b, '{');
    for (size_t k = 0; k < PERF_PERCENTILES; k++) {
        mr_perf_get_interval(r, perf_percentiles[k].q, &i);
        perf_put_key(b, perf_percentiles[k].name);
        mr_buf_char(b, '[');
        put_bound(b, i.low_ns, 0);
        mr_buf_char(b, ',');
        put_bound(b, i.high_ns, UINT64_MAX);
        mr_buf_char(b, ']');
    }
    MR_BUF_LIT(b, "}\n   ");
}

static void put_second(struct mr_buf *b, const struct mr_perf_second *s)
{
    MR_BUF_LIT(b, "\n    {");
    perf_put_number(b, "begin_s", s->begin_s);
    perf_put_number(b, "length_s", s->length_s);
    perf_put_number(b, "mean_ns", s->mean_ns);
    perf_put_count(b, "answered", s->answered);
    perf_put_count(b, "failed", s->failed);
    perf_put_count(b, "p50_ns", s->p50_ns);
    perf_put_count(b, "p99_ns", s->p99_ns);
    perf_put_count(b, "max_ns", s->max_ns);
    mr_buf_char(b, '}');
}

static void put_server(struct mr_buf *b, const struct perf_row *row)
{
    const struct mr_stats_row *s = &row->server;

    perf_put_key(b, "server");
    mr_buf_char(b, '{');
    perf_put_number(b, "queue_ns", perf_server_queue(s));
    perf_put_number(b, "compute_ns", perf_server_compute(s));
    perf_put_count(b, "succeeded", s->success.count);
    perf_put_count(b, "failed", s->fail.count);
    perf_put_count(b, "inferences", s->inferences);
    perf_put_count(b, "executions", s->executions);
    perf_put_count(b, "of_others", perf_foreign(row));
    mr_buf_char(b, '}');
}

static void put_row(struct mr_buf *b, const struct perf_row *row)
{
    const struct mr_perf_result *r = row->result;
    char doubt[320];

    MR_BUF_LIT(b, "\n  {");
    put_load(b, &row->load);
    perf_put_number(b, "seconds", r->seconds);
    perf_put_number(b, "rate", r->rate);
    put_counts(b, r);
    perf_put_number(b, "client_cpu", r->cpu);
    perf_put_number(b, "client_cpu_wait", r->cpu_wait);
    if (mr_perf_doubt(r, &row->load, doubt, sizeof doubt)) {
        perf_put_string(b, "warning", doubt);
    }
    if (row->has_server) {
        put_server(b, row);
    }
    perf_put_errors(b, &r->errors);
    perf_put_latency(b, &r->latency);
    perf_put_intervals(b, r);
    perf_put_key(b, "series");
    mr_buf_char(b, '[');
    for (size_t i = 0; i < r->windows.len; i++) {
        mr_buf_c(b, i ? "," : "");
        put_second(b, &r->windows.at[i]);
    }
    MR_BUF_LIT(b, "]}");
}

static void put_all(struct mr_buf *b, const struct perf *p)
{
    mr_buf_char(b, '{');
    perf_put_count(b, "format", 1);
    perf_put_string(b, "program", "millrace perf");
    perf_put_string(b, "version", mr_cli_version());
    perf_put_string(b, "model", p->opt.model);
    perf_put_string(b, "url", p->opt.url);
    perf_put_string(b, "protocol", perf_protocol_name(p));
    perf_put_bool(b, "http2", p->target.http2);
    perf_put_count(b, "seed", (uint64_t)p->opt.seed);
    perf_put_count(b, "variants", p->body_count);
    perf_put_count(b, "request_bytes", p->bodies[0].len);
    if (p->objective.q > 0) {
        perf_put_key(b, "objective");
        mr_buf_char(b, '{');
        perf_put_string(b, "percentile", p->objective.name);
        perf_put_count(b, "limit_ns", p->objective.limit_ns);
        perf_put_number(b, "best", p->best);
        mr_buf_char(b, '}');
    }
    perf_put_key(b, "runs");
    mr_buf_char(b, '[');
    for (size_t i = 0; i < p->rows.len; i++) {
        mr_buf_c(b, i ? "," : "");
        put_row(b, &p->rows.at[i]);
    }
    MR_BUF_LIT(b, "]}\n");
}

int perf_write_file(const char *path, const struct mr_buf *text, struct mr_err *err)
{
    bool to_stdout = strcmp(path, "-") == 0;
    FILE *f = to_stdout ? stdout : fopen(path, "we");

    if (!f) {
        return MR_FAIL(err, MR_E_IO, "cannot write %s: %s", path, strerror(errno));
    }
    bool failed = text->failed || fwrite(text->ptr, 1, text->len, f) != text->len;
    failed |= (to_stdout ? fflush(f) : fclose(f)) != 0;
    return failed ? MR_FAIL(err, MR_E_IO, "cannot write %s: %s", path, strerror(errno)) : MR_OK;
}

int perf_write_json(const struct perf *p, const char *path, struct mr_err *err)
{
    struct mr_buf text;

    mr_buf_init(&text, 0);
    put_all(&text, p);
    int rc = perf_write_file(path, &text, err);
    mr_buf_fini(&text);
    return rc;
}
