/* What `millrace perf` measured, as JSON; docs/perf.md lists the members. */
#include <errno.h>

#include "cli.h"
#include "codec/json.h"
#include "perf_json.h"

const char *perf_protocol_name(const struct perf *p)
{
    static const char *const names[] = {"rest", "binary", "grpc", "grpc-stream"};

    return names[p->opt.protocol];
}

void perf_put_number(struct mr_buf *b, const char *key, double v)
{
    mr_buf_printf(b, "\"%s\":", key);
    mr_json_put_double(b, v);
}

void perf_put_count(struct mr_buf *b, const char *key, uint64_t v)
{
    mr_buf_printf(b, "\"%s\":%llu", key, (unsigned long long)v);
}

void perf_put_string(struct mr_buf *b, const char *key, const char *v)
{
    mr_buf_printf(b, "\"%s\":", key);
    mr_json_put_string(b, mr_str_c(v));
}

static void put_load(struct mr_buf *b, const struct mr_perf_load *l)
{
    MR_BUF_LIT(b, "\"load\":{");
    if (l->concurrency) {
        perf_put_count(b, "concurrency", l->concurrency);
    } else {
        perf_put_number(b, "rate", l->rate);
        mr_buf_printf(b, ",\"poisson\":%s", l->poisson ? "true" : "false");
    }
    mr_buf_printf(b, ",\"threads\":%u},", l->threads);
}

void perf_put_errors(struct mr_buf *b, const struct mr_perf_errors *e)
{
    char name[32];

    MR_BUF_LIT(b, "\"errors\":[");
    for (size_t i = 0; i < e->count; i++) {
        mr_perf_error_name(&e->kinds[i], name);
        mr_buf_c(b, i ? ",{" : "{");
        perf_put_string(b, "kind", name);
        mr_buf_char(b, ',');
        perf_put_count(b, "count", e->kinds[i].count);
        mr_buf_char(b, ',');
        perf_put_string(b, "text", e->kinds[i].text);
        mr_buf_char(b, '}');
    }
    MR_BUF_LIT(b, "],");
}

static void put_counts(struct mr_buf *b, const struct mr_perf_result *r)
{
    const struct {
        const char *key;
        uint64_t value;
    } counts[] = {
        {"sent", r->sent},
        {"answered", r->answered},
        {"failed", r->failed},
        {"gave_up", r->gave_up},
        {"warmup_sent", r->warmup_sent},
        {"warmup_failed", r->warmup_failed},
        {"late", r->late},
        {"waited", r->waited},
        {"connections", r->connections},
        {"connections_grown", r->grown},
    };

    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        perf_put_count(b, counts[i].key, counts[i].value);
        mr_buf_char(b, ',');
    }
}

void perf_put_latency(struct mr_buf *b, const struct mr_fine_hist *h)
{
    MR_BUF_LIT(b, "\"latency_ns\":{");
    perf_put_count(b, "count", h->total);
    mr_buf_char(b, ',');
    perf_put_number(b, "mean", mr_fine_mean(h));
    mr_buf_char(b, ',');
    perf_put_count(b, "min", h->total ? h->min : 0);
    for (size_t k = 0; k < PERF_PERCENTILES; k++) {
        mr_buf_char(b, ',');
        perf_put_count(b, perf_percentiles[k].name, mr_fine_quantile(h, perf_percentiles[k].q));
    }
    mr_buf_char(b, ',');
    perf_put_count(b, "max", h->max);
    MR_BUF_LIT(b, "},\n   \"histogram\":[");
    bool first = true;
    for (unsigned i = 0; i < MR_FINE_BUCKETS; i++) {
        if (h->count[i]) {
            mr_buf_printf(b, "%s[%llu,%llu]", first ? "" : ",",
                          (unsigned long long)mr_fine_upper(i), (unsigned long long)h->count[i]);
            first = false;
        }
    }
    MR_BUF_LIT(b, "],\n");
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

    MR_BUF_LIT(b, "   \"intervals_ns\":{");
    for (size_t k = 0; k < PERF_PERCENTILES; k++) {
        mr_perf_get_interval(r, perf_percentiles[k].q, &i);
        mr_buf_printf(b, "%s\"%s\":[", k ? "," : "", perf_percentiles[k].name);
        put_bound(b, i.low_ns, 0);
        mr_buf_char(b, ',');
        put_bound(b, i.high_ns, UINT64_MAX);
        mr_buf_char(b, ']');
    }
    MR_BUF_LIT(b, "},\n");
}

static void put_second(struct mr_buf *b, const struct mr_perf_second *s)
{
    MR_BUF_LIT(b, "\n    {");
    perf_put_number(b, "begin_s", s->begin_s);
    mr_buf_char(b, ',');
    perf_put_number(b, "length_s", s->length_s);
    mr_buf_char(b, ',');
    perf_put_number(b, "mean_ns", s->mean_ns);
    mr_buf_printf(b,
                  ",\"answered\":%llu,\"failed\":%llu,\"p50_ns\":%llu,\"p99_ns\":%llu,"
                  "\"max_ns\":%llu}",
                  (unsigned long long)s->answered, (unsigned long long)s->failed,
                  (unsigned long long)s->p50_ns, (unsigned long long)s->p99_ns,
                  (unsigned long long)s->max_ns);
}

static void put_server(struct mr_buf *b, const struct perf_row *row)
{
    const struct mr_stats_row *s = &row->server;

    MR_BUF_LIT(b, "\"server\":{");
    perf_put_number(b, "queue_ns", perf_server_queue(s));
    mr_buf_char(b, ',');
    perf_put_number(b, "compute_ns", perf_server_compute(s));
    mr_buf_printf(b,
                  ",\"succeeded\":%llu,\"failed\":%llu,\"inferences\":%llu,\"executions\":%llu,"
                  "\"of_others\":%llu},",
                  (unsigned long long)s->success.count, (unsigned long long)s->fail.count,
                  (unsigned long long)s->inferences, (unsigned long long)s->executions,
                  (unsigned long long)perf_foreign(row));
}

static void put_row(struct mr_buf *b, const struct perf_row *row)
{
    const struct mr_perf_result *r = row->result;
    char doubt[320];

    MR_BUF_LIT(b, "\n  {");
    put_load(b, &row->load);
    perf_put_number(b, "seconds", r->seconds);
    mr_buf_char(b, ',');
    perf_put_number(b, "rate", r->rate);
    mr_buf_char(b, ',');
    put_counts(b, r);
    perf_put_number(b, "client_cpu", r->cpu);
    mr_buf_char(b, ',');
    perf_put_number(b, "client_cpu_wait", r->cpu_wait);
    mr_buf_char(b, ',');
    if (mr_perf_doubt(r, &row->load, doubt, sizeof doubt)) {
        perf_put_string(b, "warning", doubt);
        mr_buf_char(b, ',');
    }
    if (row->has_server) {
        put_server(b, row);
    }
    perf_put_errors(b, &r->errors);
    perf_put_latency(b, &r->latency);
    perf_put_intervals(b, r);
    MR_BUF_LIT(b, "   \"series\":[");
    for (size_t i = 0; i < r->windows.len; i++) {
        mr_buf_c(b, i ? "," : "");
        put_second(b, &r->windows.at[i]);
    }
    MR_BUF_LIT(b, "]}");
}

static void put_all(struct mr_buf *b, const struct perf *p)
{
    MR_BUF_LIT(b, "{\"format\":1,");
    perf_put_string(b, "program", "millrace perf");
    mr_buf_char(b, ',');
    perf_put_string(b, "version", mr_cli_version());
    mr_buf_char(b, ',');
    perf_put_string(b, "model", p->opt.model);
    mr_buf_char(b, ',');
    perf_put_string(b, "url", p->opt.url);
    mr_buf_char(b, ',');
    perf_put_string(b, "protocol", perf_protocol_name(p));
    mr_buf_printf(b, ",\"http2\":%s,\"seed\":%llu,\"variants\":%zu,\"request_bytes\":%zu,",
                  p->target.http2 ? "true" : "false", (unsigned long long)p->opt.seed,
                  p->body_count, p->bodies[0].len);
    if (p->objective.q > 0) {
        MR_BUF_LIT(b, "\"objective\":{");
        perf_put_string(b, "percentile", p->objective.name);
        mr_buf_char(b, ',');
        perf_put_count(b, "limit_ns", p->objective.limit_ns);
        mr_buf_char(b, ',');
        perf_put_number(b, "best", p->best);
        MR_BUF_LIT(b, "},");
    }
    MR_BUF_LIT(b, "\"runs\":[");
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
