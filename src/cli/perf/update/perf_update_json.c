/* The results of `millrace perf update` as JSON; docs/perf.md lists the members. Times of windows and phases count
 * from the start of the first window. */
#include <math.h>

#include "cli/common/cli.h"
#include "cli/perf/report/perf_json.h"
#include "codec/json.h"
#include "perf_update.h"

static void put_signed(struct mr_buf *b, const char *key, int64_t v)
{
    perf_put_key(b, key);
    mr_buf_i64(b, v);
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

/* [difference, lower bound, upper bound] */
static void put_added(struct mr_buf *b, const struct mr_perf_result *r,
                      const struct mr_perf_result *quiet)
{
    struct mr_perf_added a;

    perf_put_key(b, "added_ns");
    mr_buf_char(b, '{');
    for (size_t k = 0; k < PERF_PERCENTILES; k++) {
        mr_perf_get_added(r, quiet, perf_percentiles[k].q, &a);
        perf_put_key(b, perf_percentiles[k].name);
        mr_buf_char(b, '[');
        mr_json_put_double(b, a.ns);
        mr_buf_char(b, ',');
        put_bound(b, a.low_ns);
        mr_buf_char(b, ',');
        put_bound(b, a.high_ns);
        mr_buf_char(b, ']');
    }
    mr_buf_char(b, '}');
}

static void put_sum(struct mr_buf *b, const struct perf_update *u, const struct perf_update_sum *s)
{
    const struct mr_perf_result *r = s->result;

    MR_BUF_LIT(b, "\n  {");
    perf_put_string(b, "name", s->name);
    perf_put_count(b, "count", s->count);
    perf_put_number(b, "seconds", r->seconds);
    perf_put_count(b, "sent", r->sent);
    perf_put_count(b, "answered", r->answered);
    perf_put_count(b, "failed", r->failed);
    perf_put_count(b, "late", r->late);
    put_signed(b, "stall_ns", s->stall_ns);
    perf_put_count(b, "above", s->above);
    perf_put_latency(b, &r->latency);
    perf_put_intervals(b, r);
    if (s != &u->quiet) {
        put_added(b, r, u->quiet.result);
    }
    mr_buf_char(b, '}');
}

static void put_sums(struct mr_buf *b, const struct perf_update *u)
{
    perf_put_key(b, "sums");
    mr_buf_char(b, '[');
    put_sum(b, u, &u->quiet);
    mr_buf_char(b, ',');
    put_sum(b, u, &u->updates);
    for (int k = 0; k < PERF_PHASES; k++) {
        if (u->phases[k].count) {
            mr_buf_char(b, ',');
            put_sum(b, u, &u->phases[k]);
        }
    }
    MR_BUF_LIT(b, "]\n");
}

/* ---- windows ---- */

static void put_period(struct mr_buf *b, struct mr_perf_period period, int64_t zero)
{
    mr_buf_char(b, '[');
    mr_json_put_double(b, (double)(period.begin_ns - zero) / 1e9);
    mr_buf_char(b, ',');
    mr_json_put_double(b, (double)(period.end_ns - zero) / 1e9);
    mr_buf_char(b, ']');
}

static void put_phases(struct mr_buf *b, const struct perf_window_row *w, int64_t zero)
{
    perf_put_key(b, "phases_s");
    mr_buf_char(b, '{');
    for (int k = 0; k < PERF_PHASES; k++) {
        if (w->phases[k].end_ns) {
            perf_put_key(b, perf_phase_names[k]);
            put_period(b, w->phases[k], zero);
        }
    }
    mr_buf_char(b, '}');
    put_signed(b, "clock_shift_ns", w->shift_ns);
    if (w->rc < 0) {
        perf_put_string(b, "problem", w->problem);
    }
}

static void put_threads(struct mr_buf *b, const struct perf_thread_list *list)
{
    perf_put_key(b, "threads");
    mr_buf_char(b, '[');
    for (size_t i = 0; i < list->len; i++) {
        const struct perf_thread *t = &list->at[i];
        mr_buf_c(b, i ? ",{" : "{");
        perf_put_string(b, "name", t->name);
        perf_put_count(b, "threads", t->threads);
        perf_put_count(b, "minor_faults", t->minor_faults);
        perf_put_count(b, "major_faults", t->major_faults);
        perf_put_count(b, "voluntary_switches", t->voluntary);
        perf_put_count(b, "involuntary_switches", t->involuntary);
        perf_put_count(b, "run_delay_ns", t->delay_ns);
        mr_buf_char(b, '}');
    }
    mr_buf_char(b, ']');
}

static void put_window(struct mr_buf *b, const struct perf_window_row *w, int64_t zero)
{
    MR_BUF_LIT(b, "\n  {");
    perf_put_bool(b, "update", w->is_update);
    perf_put_key(b, "span_s");
    put_period(b, w->period, zero);
    if (w->is_update) {
        put_phases(b, w, zero);
    }
    perf_put_count(b, "sent", w->sent);
    perf_put_count(b, "failed", w->failed);
    perf_put_count(b, "late", w->late);
    put_signed(b, "stall_ns", w->stall_ns);
    perf_put_count(b, "max_ns", w->max_ns);
    perf_put_key(b, "latency_ns");
    mr_buf_char(b, '{');
    for (size_t k = 0; k < PERF_PERCENTILES; k++) {
        perf_put_count(b, perf_percentiles[k].name, w->at[k]);
    }
    mr_buf_char(b, '}');
    perf_put_number(b, "steal", w->steal);
    perf_put_bool(b, "doubtful", w->is_doubtful);
    if (w->has_counters) {
        perf_put_count(b, "rss_before", w->rss_before);
        perf_put_count(b, "rss_after", w->rss_after);
        perf_put_count(b, "maps", w->maps_after);
        put_threads(b, &w->threads);
    }
    mr_buf_char(b, '}');
}

static void put_windows(struct mr_buf *b, const struct perf_update *u)
{
    perf_put_key(b, "windows");
    mr_buf_char(b, '[');
    for (size_t i = 0; i < u->windows.len; i++) {
        mr_buf_c(b, i ? "," : "");
        put_window(b, &u->windows.at[i], u->windows.at[0].period.begin_ns);
    }
    MR_BUF_LIT(b, "]}\n");
}

/* ---- the whole ---- */

static void put_head(struct mr_buf *b, const struct perf_update *u)
{
    const struct perf_options *o = &u->p->opt;

    mr_buf_char(b, '{');
    perf_put_count(b, "format", 1);
    perf_put_string(b, "program", "millrace perf update");
    perf_put_string(b, "version", mr_cli_version());
    perf_put_string(b, "model", o->model);
    perf_put_string(b, "update", u->control.model);
    perf_put_string(b, "url", o->url);
    perf_put_string(b, "protocol", perf_protocol_name(u->p));
    perf_put_string(b, "control_protocol", u->control.grpc ? "grpc" : "rest");
    perf_put_number(b, "rate", u->load.rate);
    perf_put_bool(b, "poisson", u->load.poisson);
    perf_put_number(b, "window_s", (double)u->window_ns / 1e9);
    perf_put_bool(b, "tells_states", u->tells_states);
    perf_put_count(b, "failed_updates", u->failed_updates);
    perf_put_count(b, "doubtful", u->doubtful);
    perf_put_bool(b, "left_out", o->clean);
}

static void put_whole_run(struct mr_buf *b, const struct perf_update *u)
{
    const struct mr_perf_result *r = u->result;
    char doubt[320];

    perf_put_key(b, "run");
    mr_buf_char(b, '{');
    perf_put_number(b, "seconds", r->seconds);
    perf_put_count(b, "sent", r->sent);
    perf_put_count(b, "answered", r->answered);
    perf_put_count(b, "failed", r->failed);
    perf_put_count(b, "warmup_failed", r->warmup_failed);
    perf_put_count(b, "samples_lost", r->samples_lost);
    perf_put_number(b, "client_cpu", r->cpu);
    if (mr_perf_doubt(r, &u->load, doubt, sizeof doubt)) {
        perf_put_string(b, "warning", doubt);
    }
    perf_put_errors(b, &r->errors);
    MR_BUF_LIT(b, "}\n");
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
