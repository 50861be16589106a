/* What `millrace perf update` saw, as JSON; docs/perf.md lists the members. Times of windows and phases count
 * from the begin of the first window. */
#include <math.h>

#include "cli.h"
#include "codec/json.h"
#include "perf_json.h"
#include "perf_update.h"

static void put_signed(struct mr_buf *b, const char *key, int64_t v)
{
    mr_buf_printf(b, "\"%s\":%lld", key, (long long)v);
}

static void put_bool(struct mr_buf *b, const char *key, bool v)
{
    mr_buf_printf(b, "\"%s\":%s", key, v ? "true" : "false");
}

/* ---- sums ---- */

static void put_bound(struct mr_buf *b, double v)
{
    if (isinf(v)) {
        MR_BUF_LIT(b, "null");
    } else {
        mr_json_put_double(b, v);
    }
}

/* [by how much, at least, at most] */
static void put_added(struct mr_buf *b, const struct mr_perf_result *r,
                      const struct mr_perf_result *quiet)
{
    struct mr_perf_added a;

    MR_BUF_LIT(b, "   \"added_ns\":{");
    for (size_t k = 0; k < PERF_PERCENTILES; k++) {
        mr_perf_get_added(r, quiet, perf_percentiles[k].q, &a);
        mr_buf_printf(b, "%s\"%s\":[", k ? "," : "", perf_percentiles[k].name);
        mr_json_put_double(b, a.ns);
        mr_buf_char(b, ',');
        put_bound(b, a.low_ns);
        mr_buf_char(b, ',');
        put_bound(b, a.high_ns);
        mr_buf_char(b, ']');
    }
    MR_BUF_LIT(b, "},\n");
}

static void put_sum(struct mr_buf *b, const struct perf_update *u, const struct perf_update_sum *s)
{
    const struct mr_perf_result *r = s->result;

    MR_BUF_LIT(b, "\n  {");
    perf_put_string(b, "name", s->name);
    mr_buf_char(b, ',');
    perf_put_count(b, "count", s->count);
    mr_buf_char(b, ',');
    perf_put_number(b, "seconds", r->seconds);
    mr_buf_char(b, ',');
    perf_put_count(b, "sent", r->sent);
    mr_buf_char(b, ',');
    perf_put_count(b, "answered", r->answered);
    mr_buf_char(b, ',');
    perf_put_count(b, "failed", r->failed);
    mr_buf_char(b, ',');
    perf_put_count(b, "late", r->late);
    mr_buf_char(b, ',');
    put_signed(b, "stall_ns", s->stall_ns);
    mr_buf_char(b, ',');
    perf_put_count(b, "above", s->above);
    mr_buf_char(b, ',');
    perf_put_latency(b, &r->latency);
    perf_put_intervals(b, r);
    if (s != &u->quiet) {
        put_added(b, r, u->quiet.result);
    }
    b->len -= 2; /* the comma */
    MR_BUF_LIT(b, "}");
}

static void put_sums(struct mr_buf *b, const struct perf_update *u)
{
    MR_BUF_LIT(b, "\"sums\":[");
    put_sum(b, u, &u->quiet);
    mr_buf_char(b, ',');
    put_sum(b, u, &u->updates);
    for (int k = 0; k < PERF_PHASES; k++) {
        if (u->phases[k].count) {
            mr_buf_char(b, ',');
            put_sum(b, u, &u->phases[k]);
        }
    }
    MR_BUF_LIT(b, "],\n");
}

/* ---- windows ---- */

static void put_span(struct mr_buf *b, struct mr_perf_span span, int64_t zero)
{
    mr_buf_char(b, '[');
    mr_json_put_double(b, (double)(span.begin_ns - zero) / 1e9);
    mr_buf_char(b, ',');
    mr_json_put_double(b, (double)(span.end_ns - zero) / 1e9);
    mr_buf_char(b, ']');
}

static void put_phases(struct mr_buf *b, const struct perf_window_row *w, int64_t zero)
{
    bool first = true;

    MR_BUF_LIT(b, ",\"phases_s\":{");
    for (int k = 0; k < PERF_PHASES; k++) {
        if (w->phases[k].end_ns) {
            mr_buf_printf(b, "%s\"%s\":", first ? "" : ",", perf_phase_names[k]);
            put_span(b, w->phases[k], zero);
            first = false;
        }
    }
    MR_BUF_LIT(b, "},");
    put_signed(b, "clock_shift_ns", w->shift_ns);
    if (w->rc < 0) {
        mr_buf_char(b, ',');
        perf_put_string(b, "problem", w->problem);
    }
}

static void put_threads(struct mr_buf *b, const struct perf_thread_list *list)
{
    MR_BUF_LIT(b, "\"threads\":[");
    for (size_t i = 0; i < list->len; i++) {
        const struct perf_thread *t = &list->at[i];
        mr_buf_c(b, i ? ",{" : "{");
        perf_put_string(b, "name", t->name);
        mr_buf_printf(b,
                      ",\"threads\":%u,\"minor_faults\":%llu,\"major_faults\":%llu,"
                      "\"voluntary_switches\":%llu,\"involuntary_switches\":%llu,"
                      "\"run_delay_ns\":%llu}",
                      t->threads, (unsigned long long)t->minor_faults,
                      (unsigned long long)t->major_faults, (unsigned long long)t->voluntary,
                      (unsigned long long)t->involuntary, (unsigned long long)t->delay_ns);
    }
    MR_BUF_LIT(b, "]");
}

static void put_window(struct mr_buf *b, const struct perf_window_row *w, int64_t zero)
{
    MR_BUF_LIT(b, "\n  {");
    put_bool(b, "update", w->is_update);
    MR_BUF_LIT(b, ",\"span_s\":");
    put_span(b, w->span, zero);
    if (w->is_update) {
        put_phases(b, w, zero);
    }
    mr_buf_printf(b,
                  ",\"sent\":%llu,\"failed\":%llu,\"late\":%llu,\"stall_ns\":%lld,"
                  "\"max_ns\":%llu,\"latency_ns\":{",
                  (unsigned long long)w->sent, (unsigned long long)w->failed,
                  (unsigned long long)w->late, (long long)w->stall_ns,
                  (unsigned long long)w->max_ns);
    for (size_t k = 0; k < PERF_PERCENTILES; k++) {
        mr_buf_c(b, k ? "," : "");
        perf_put_count(b, perf_percentiles[k].name, w->at[k]);
    }
    MR_BUF_LIT(b, "},");
    perf_put_number(b, "steal", w->steal);
    mr_buf_char(b, ',');
    put_bool(b, "doubtful", w->is_doubtful);
    if (w->has_facts) {
        mr_buf_printf(b, ",\"rss_before\":%llu,\"rss_after\":%llu,\"maps\":%llu,",
                      (unsigned long long)w->rss_before, (unsigned long long)w->rss_after,
                      (unsigned long long)w->maps_after);
        put_threads(b, &w->threads);
    }
    MR_BUF_LIT(b, "}");
}

static void put_windows(struct mr_buf *b, const struct perf_update *u)
{
    MR_BUF_LIT(b, "\"windows\":[");
    for (size_t i = 0; i < u->windows.len; i++) {
        mr_buf_c(b, i ? "," : "");
        put_window(b, &u->windows.at[i], u->windows.at[0].span.begin_ns);
    }
    MR_BUF_LIT(b, "]}\n");
}

/* ---- the whole ---- */

static void put_head(struct mr_buf *b, const struct perf_update *u)
{
    const struct perf_options *o = &u->p->opt;
    const struct {
        const char *key;
        const char *text;
    } texts[] = {{"program", "millrace perf update"},
                 {"version", mr_cli_version()},
                 {"model", o->model},
                 {"update", u->control.model},
                 {"url", o->url},
                 {"protocol", perf_protocol_name(u->p)},
                 {"control_protocol", u->control.grpc ? "grpc" : "rest"}};

    MR_BUF_LIT(b, "{\"format\":1");
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        mr_buf_char(b, ',');
        perf_put_string(b, texts[i].key, texts[i].text);
    }
    mr_buf_char(b, ',');
    perf_put_number(b, "rate", u->load.rate);
    mr_buf_char(b, ',');
    put_bool(b, "poisson", u->load.poisson);
    mr_buf_char(b, ',');
    perf_put_number(b, "window_s", (double)u->window_ns / 1e9);
    mr_buf_char(b, ',');
    put_bool(b, "tells_states", u->tells_states);
    mr_buf_char(b, ',');
    perf_put_count(b, "failed_updates", u->failed_updates);
    mr_buf_char(b, ',');
    perf_put_count(b, "doubtful", u->doubtful);
    mr_buf_char(b, ',');
    put_bool(b, "left_out", o->clean);
    mr_buf_char(b, ',');
}

static void put_whole_run(struct mr_buf *b, const struct perf_update *u)
{
    const struct mr_perf_result *r = u->result;
    char doubt[320];

    MR_BUF_LIT(b, "\"run\":{");
    perf_put_number(b, "seconds", r->seconds);
    mr_buf_char(b, ',');
    perf_put_count(b, "sent", r->sent);
    mr_buf_char(b, ',');
    perf_put_count(b, "answered", r->answered);
    mr_buf_char(b, ',');
    perf_put_count(b, "failed", r->failed);
    mr_buf_char(b, ',');
    perf_put_count(b, "warmup_failed", r->warmup_failed);
    mr_buf_char(b, ',');
    perf_put_count(b, "samples_lost", r->samples_lost);
    mr_buf_char(b, ',');
    perf_put_number(b, "client_cpu", r->cpu);
    mr_buf_char(b, ',');
    if (mr_perf_doubt(r, &u->load, doubt, sizeof doubt)) {
        perf_put_string(b, "warning", doubt);
        mr_buf_char(b, ',');
    }
    perf_put_errors(b, &r->errors);
    b->len--; /* the comma */
    MR_BUF_LIT(b, "},\n");
}

int perf_update_write_json(const struct perf_update *u, const char *path, struct mr_err *err)
{
    struct mr_buf b;

    mr_buf_init(&b, 0);
    put_head(&b, u);
    put_whole_run(&b, u);
    put_sums(&b, u);
    put_windows(&b, u);
    int rc = perf_write_file(path, &b, err);
    mr_buf_fini(&b);
    return rc;
}
