/* GET /status: a view as JSON. */
#include "status.h"

#include <unistd.h>

#include "batch/calls/calls.h"
#include "codec/json.h"
#include "view.h"

static void put_number(struct mr_buf *b, const char *key, uint64_t value)
{
    mr_buf_printf(b, ",\"%s\":%llu", key, (unsigned long long)value);
}

static void put_text(struct mr_buf *b, const char *key, const char *value)
{
    mr_buf_printf(b, ",\"%s\":", key);
    mr_json_put_string(b, mr_str_c(value));
}

static void put_seconds(struct mr_buf *b, const char *key, int64_t ns)
{
    mr_buf_printf(b, ",\"%s\":%.6f", key, (double)ns / 1e9);
}

static void put_host(struct mr_buf *b, const struct mr_batch_host_view *h)
{
    MR_BUF_LIT(b, "{\"address\":");
    mr_json_put_string(b, mr_str_c(h->address));
    put_text(b, "state", h->state);
    put_text(b, "reason", h->reason);
    put_number(b, "rows", h->rows);
    put_number(b, "calls", h->calls);
    put_number(b, "failures", h->failures);
    put_number(b, "in_flight", h->in_flight);
    put_number(b, "limit", h->limit);
    put_seconds(b, "p50_s", h->p50_ns);
    put_seconds(b, "p95_s", h->p95_ns);
    mr_buf_char(b, '}');
}

static void put_failure(struct mr_buf *b, const struct mr_batch_failure_view *f)
{
    MR_BUF_LIT(b, "{\"host\":");
    mr_json_put_string(b, mr_str_c(f->host));
    put_text(b, "cause", f->cause);
    put_number(b, "count", f->count);
    put_seconds(b, "ago_s", f->ago_ns);
    mr_buf_char(b, '}');
}

void status_put(struct mr_buf *b, const struct job_parts *parts, const struct mr_batch_view *v)
{
    mr_buf_printf(b, "{\"state\":\"running\",\"pid\":%ld", (long)getpid());
    put_text(b, "model", parts->calls->o->model.name);
    put_text(b, "phase", v->phase);
    mr_buf_printf(b, ",\"paused\":%s", v->is_paused ? "true" : "false");
    put_text(b, "held", v->held);
    MR_BUF_LIT(b, ",\"total_rows\":");
    if (v->total_rows >= 0) {
        mr_buf_i64(b, v->total_rows);
    } else {
        MR_BUF_LIT(b, "null");
    }
    put_number(b, "rows", v->rows);
    put_number(b, "dead", v->dead);
    put_number(b, "rows_before", v->rows_before);
    put_number(b, "under_way", v->under_way);
    put_number(b, "memory_bytes", v->memory_bytes);
    put_text(b, "reader", v->reader);
    put_number(b, "files", v->files);
    put_seconds(b, "ran_s", v->ran_ns);
    mr_buf_printf(b, ",\"rows_per_s\":%.1f", v->rows_per_s);
    if (v->has_tokens) {
        mr_buf_printf(b, ",\"tokens\":{\"prompt\":%llu,\"completion\":%llu}",
                      (unsigned long long)v->prompt_tokens,
                      (unsigned long long)v->completion_tokens);
    }
    put_text(b, "bottleneck", v->bottleneck);
    mr_buf_printf(b,
                  ",\"limits\":{\"batch_rows\":%u,\"batch_rows_taken\":%u,"
                  "\"max_in_flight_per_host\":%u,\"memory_bytes\":%llu}",
                  v->batch_rows, v->most_rows, v->max_in_flight,
                  (unsigned long long)parts->calls->o->memory_bytes);
    put_text(b, "listen", parts->listen);
    MR_BUF_LIT(b, ",\"hosts\":[");
    for (size_t i = 0; i < v->host_count; i++) {
        mr_buf_c(b, i ? "," : "");
        put_host(b, &v->hosts[i]);
    }
    MR_BUF_LIT(b, "],\"failures\":[");
    for (size_t i = 0; i < v->failure_count; i++) {
        mr_buf_c(b, i ? "," : "");
        put_failure(b, &v->failures[i]);
    }
    MR_BUF_LIT(b, "]}\n");
}
