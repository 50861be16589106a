/* GET /metrics, what is an endpoint's: counters of its variants and of its shadow. Families are texts of their own, as in
 * metrics_models.c. */
#include "engine/shadow.h"
#include "metrics.h"
#include "rest_endpoints.h"
#include "serve/endpoints/control.h"

enum family { F_REQUESTS, F_ERRORS, F_SHARE, F_SECONDS, F_CHANGES, F_SHADOW, F_COUNT };

static const struct {
    const char *name;
    const char *type;
    const char *help;
} families[F_COUNT] = {
    [F_REQUESTS] = {"millrace_endpoint_requests_total", "counter",
                    "Requests that an endpoint's variant has answered or failed"},
    [F_ERRORS] = {"millrace_endpoint_errors_total", "counter",
                  "Of these, those that failed, by whose fault"},
    [F_SHARE] = {"millrace_endpoint_share", "gauge",
                 "Share of an endpoint's requests that goes to a variant [0.0 - 1.0]"},
    [F_SECONDS] = {"millrace_endpoint_seconds", "summary",
                   "Time from a request to its answer, by variant"},
    [F_CHANGES] = {"millrace_endpoint_changes_total", "counter",
                   "Changes of an endpoint's weights, by hand or by its ramp"},
    [F_SHADOW] = {"millrace_endpoint_shadow_total", "counter",
                  "Requests that were to run on an endpoint's shadow, by outcome"},
};

struct texts {
    struct mr_buf b[F_COUNT];
};

/* Names need no escapes: variant/config.c refuses what would. Those of endpoints may have quotes and backslashes. */
static void put_name(struct mr_buf *b, mr_str name)
{
    for (size_t i = 0; i < name.len; i++) {
        if (name.ptr[i] == '"' || name.ptr[i] == '\\') {
            mr_buf_char(b, '\\');
        }
        mr_buf_char(b, name.ptr[i]);
    }
}

static struct mr_buf *put(struct texts *t, enum family f, const char *suffix,
                          const struct endpoint *e, mr_str tag, const char *more)
{
    struct mr_buf *b = &t->b[f];

    mr_buf_printf(b, "%s%s{endpoint=\"", families[f].name, suffix);
    put_name(b, e->config->name);
    mr_buf_char(b, '"');
    if (tag.ptr) {
        mr_buf_printf(b, ",variant=\"%.*s\"", MR_STR_ARG(tag));
    }
    mr_buf_printf(b, "%s} ", more);
    return b;
}

static void put_u64(struct mr_buf *b, uint64_t v)
{
    mr_buf_printf(b, "%llu\n", (unsigned long long)v);
}

static void see_variant(struct texts *t, const struct endpoint *e, size_t i, double sum,
                        const struct mr_variant_sums *s)
{
    const mr_str tag = e->config->variants[i].tag;

    put_u64(put(t, F_REQUESTS, "", e, tag, ""), s->count);
    put_u64(put(t, F_ERRORS, "", e, tag, ",fault=\"server\""), s->server_errors);
    put_u64(put(t, F_ERRORS, "", e, tag, ",fault=\"client\""), s->errors - s->server_errors);
    mr_buf_printf(put(t, F_SHARE, "", e, tag, ""), "%.6g\n", e->rollout.weights[i] / sum);
    mr_buf_printf(put(t, F_SECONDS, "_sum", e, tag, ""), "%.9f\n", (double)s->latency_sum_ns / 1e9);
    put_u64(put(t, F_SECONDS, "_count", e, tag, ""), s->count - s->errors);
}

static void see_shadow(struct texts *t, const struct endpoint *e)
{
    const struct mr_shadow_stats s = mr_shadow_stats(e->shadow);
    const mr_str tag = e->config->shadow->tag;

    put_u64(put(t, F_SHADOW, "", e, tag, ",outcome=\"dropped\""), s.dropped);
    put_u64(put(t, F_SHADOW, "", e, tag, ",outcome=\"failed\""), s.failed);
    put_u64(put(t, F_SHADOW, "", e, tag, ",outcome=\"different\""), s.different);
    put_u64(put(t, F_SHADOW, "", e, tag, ",outcome=\"equal\""), s.compared - s.different);
}

static void see(void *ctx, const struct endpoint *e, const struct mr_variant_sums *sums)
{
    struct texts *t = ctx;
    double sum = 0;

    for (size_t i = 0; i < e->rollout.count; i++) {
        sum += e->rollout.weights[i];
    }
    for (size_t i = 0; i < e->rollout.count; i++) {
        see_variant(t, e, i, sum, &sums[i]);
    }
    put_u64(put(t, F_CHANGES, "", e, (mr_str){NULL, 0}, ""), e->rollout.event_count);
    if (e->shadow) {
        see_shadow(t, e);
    }
}

static void put_file(struct mr_server *s, struct mr_buf *b)
{
    struct endpoint_metrics m;

    endpoints_count(s->endpoints, &m);
    metrics_head(b, "millrace_endpoints", "gauge", "Endpoints of the file");
    mr_buf_printf(b, "millrace_endpoints %llu\n", (unsigned long long)m.endpoints);
    metrics_head(b, "millrace_endpoints_reloads_total", "counter",
                 "Times that the changed file of endpoints was read");
    mr_buf_printf(b, "millrace_endpoints_reloads_total %llu\n", (unsigned long long)m.reloads);
    metrics_head(b, "millrace_endpoints_reload_failures_total", "counter",
                 "Times that it could not be, and what was read before stayed");
    mr_buf_printf(b, "millrace_endpoints_reload_failures_total %llu\n",
                  (unsigned long long)m.reload_failures);
}

void metrics_endpoints(struct mr_server *s, struct mr_buf *b)
{
    struct texts t;

    if (!s->endpoints) {
        return;
    }
    put_file(s, b);
    for (int f = 0; f < F_COUNT; f++) {
        mr_buf_init(&t.b[f], METRICS_MOST / F_COUNT);
    }
    endpoints_visit(s->endpoints, see, &t);
    for (int f = 0; f < F_COUNT; f++) {
        if (t.b[f].len > 0) {
            metrics_head(b, families[f].name, families[f].type, families[f].help);
            mr_buf_append(b, t.b[f].ptr, t.b[f].len);
        }
        b->failed = b->failed || t.b[f].failed;
        mr_buf_fini(&t.b[f]);
    }
}
