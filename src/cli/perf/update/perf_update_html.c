/* The results of `millrace perf update` as a page: latency over the whole run and, superimposed, over the updates and
 * the quiet windows, with the phases in the background. */
#include <math.h>

#include "base/clock.h"
#include "base/hist.h"
#include "cli/common/term.h"
#include "cli/perf/report/perf_plot.h"
#include "perf_update.h"

#define WHOLE_BINS   600
#define ALIGNED_BINS 150

/* Latency in bins of equal time. */
struct bins {
    size_t count;
    double from_s;
    double length_s; /* of a bin */
    struct mr_hist *hists;
    double *x;
    double *p50;
    double *p99;
    double *max;
};

static void bins_init(struct bins *b, size_t count, double from_s, double to_s)
{
    double *y = MR_NEW_ARRAY(double, 4 * count);

    *b = (struct bins){.count = count,
                       .from_s = from_s,
                       .length_s = fmax(to_s - from_s, 1e-9) / (double)count,
                       .hists = MR_NEW_ARRAY(struct mr_hist, count),
                       .x = y,
                       .p50 = y + count,
                       .p99 = y + 2 * count,
                       .max = y + 3 * count};
    for (size_t i = 0; i < count; i++) {
        b->x[i] = from_s + (double)i * b->length_s;
    }
}

static void bins_fini(struct bins *b)
{
    mr_free(b->hists);
    mr_free(b->x);
}

/* Adds requests due in a window, by the time since `zero_ns`. */
static void bins_add(struct bins *b, const struct mr_perf_result *r, struct mr_perf_period period,
                     int64_t zero_ns)
{
    for (size_t i = 0; i < r->samples.len; i++) {
        const struct mr_perf_sample *s = &r->samples.at[i];
        double at = ((double)(s->due_ns - zero_ns) / 1e9 - b->from_s) / b->length_s;
        if (s->is_latency && s->due_ns >= period.begin_ns && s->due_ns < period.end_ns && at >= 0 &&
            at < (double)b->count) {
            size_t k = (size_t)at;
            mr_hist_add(&b->hists[k], s->took_ns);
            b->max[k] = fmax(b->max[k], (double)s->took_ns);
        }
    }
}

static void bins_end(struct bins *b)
{
    for (size_t i = 0; i < b->count; i++) {
        b->p50[i] = (double)mr_hist_quantile(&b->hists[i], 0.5);
        /* The upper edge of a bucket may lie above the largest of all. */
        b->p99[i] = fmin((double)mr_hist_quantile(&b->hists[i], 0.99), b->max[i]);
    }
}

static double seconds(int64_t ns, int64_t zero_ns)
{
    return (double)(ns - zero_ns) / 1e9;
}

/* ---- plots ---- */

static void put_plot(struct mr_buf *b, const char *title, const char *x_name,
                     const struct bins *bins, const double *quiet, const struct perf_shade *shades,
                     size_t shade_count)
{
    const struct perf_curve curves[] = {{"max", "red", bins->max},
                                        {"p99", "orange", bins->p99},
                                        {"p50", "blue", bins->p50},
                                        {"quiet p99", "grey", quiet}};

    perf_plot_put(b, &(struct perf_plot){.title = title,
                                         .x = bins->x,
                                         .x_name = x_name,
                                         .count = bins->count,
                                         .curves = curves,
                                         .curve_count = quiet ? 4 : 3,
                                         .is_time = true,
                                         .shades = shades,
                                         .shade_count = shade_count,
                                         .shade_names = perf_phase_names,
                                         .shade_kinds = PERF_PHASES});
}

static void put_whole(struct mr_buf *b, const struct perf_update *u)
{
    const struct perf_window_row *rows = u->windows.at;
    size_t n = u->windows.len;
    int64_t zero = rows[0].period.begin_ns;
    struct perf_shade *shades = MR_NEW_ARRAY(struct perf_shade, n * PERF_PHASES);
    size_t shade_count = 0;
    struct bins bins;

    bins_init(&bins, WHOLE_BINS, 0, seconds(rows[n - 1].period.end_ns, zero));
    bins_add(&bins, u->result, (struct mr_perf_period){zero, rows[n - 1].period.end_ns}, zero);
    bins_end(&bins);
    for (size_t i = 0; i < n; i++) {
        for (size_t k = 0; k < PERF_PHASES; k++) {
            const struct mr_perf_period *s = &rows[i].phases[k];
            if (s->end_ns) {
                shades[shade_count++] =
                    (struct perf_shade){seconds(s->begin_ns, zero), seconds(s->end_ns, zero), k};
            }
        }
    }
    put_plot(b, "Latency over time", "seconds", &bins, NULL, shades, shade_count);
    mr_free(shades);
    bins_fini(&bins);
}

/* The mean period of a phase, over the updates that had it. */
static size_t mean_shades(const struct perf_update *u, struct perf_shade out[PERF_PHASES])
{
    size_t count = 0;

    for (size_t k = 0; k < PERF_PHASES; k++) {
        struct perf_shade s = {.kind = k};
        double n = 0;
        for (size_t i = 0; i < u->windows.len; i++) {
            const struct perf_window_row *w = &u->windows.at[i];
            if (w->phases[k].end_ns) {
                s.from += seconds(w->phases[k].begin_ns, w->period.begin_ns);
                s.to += seconds(w->phases[k].end_ns, w->period.begin_ns);
                n++;
            }
        }
        if (n > 0) {
            out[count++] = (struct perf_shade){s.from / n, s.to / n, k};
        }
    }
    return count;
}

static void put_aligned(struct mr_buf *b, const struct perf_update *u)
{
    double length = (double)u->window_ns / 1e9;
    struct perf_shade shades[PERF_PHASES];
    struct bins updates;
    struct bins quiet;

    bins_init(&updates, ALIGNED_BINS, 0, length);
    bins_init(&quiet, ALIGNED_BINS, 0, length);
    for (size_t i = 0; i < u->windows.len; i++) {
        const struct perf_window_row *w = &u->windows.at[i];
        if (!w->is_doubtful || !u->p->opt.clean) {
            bins_add(w->is_update ? &updates : &quiet, u->result, w->period, w->period.begin_ns);
        }
    }
    bins_end(&updates);
    bins_end(&quiet);
    put_plot(b, "All updates laid over each other", "seconds since the update began", &updates,
             quiet.p99, shades, mean_shades(u, shades));
    bins_fini(&updates);
    bins_fini(&quiet);
}

/* ---- tables ---- */

static void put_time(struct mr_buf *b, bool is_known, double ns)
{
    char text[32];

    mr_text_duration(text, fabs(ns));
    mr_buf_printf(b, "<td>%s%s", ns < 0 ? "-" : "", is_known ? text : "?");
}

static void put_sum(struct mr_buf *b, const struct perf_update *u, const struct perf_update_sum *s)
{
    static const double shown[] = {0.5, 0.99, 0.999, 1};
    const struct mr_perf_result *r = s->result;
    bool has = r->latency.total > 0;
    struct mr_perf_added a = {NAN, -INFINITY, INFINITY};

    mr_buf_printf(b, "<tr><td>%s", s->name);
    put_time(b, s->count > 0, s->count ? r->seconds * 1e9 / s->count : 0);
    mr_buf_printf(b, "<td>%llu<td>%llu", (unsigned long long)r->sent,
                  (unsigned long long)r->failed);
    for (size_t i = 0; i < sizeof shown / sizeof *shown; i++) {
        put_time(b, has, (double)mr_hdr_quantile(&r->latency, shown[i]));
    }
    put_time(b, has, (double)s->stall_ns);
    if (s == &u->quiet || !has) {
        MR_BUF_LIT(b, "<td><td><td></tr>\n");
        return;
    }
    mr_perf_get_added(r, u->quiet.result, 0.99, &a);
    put_time(b, true, a.ns);
    put_time(b, !isinf(a.low_ns), isinf(a.low_ns) ? 0 : a.low_ns);
    put_time(b, !isinf(a.high_ns), isinf(a.high_ns) ? 0 : a.high_ns);
    MR_BUF_LIT(b, "</tr>\n");
}

static void put_sums(struct mr_buf *b, const struct perf_update *u)
{
    MR_BUF_LIT(b,
               "<div><table><tr><th>window<th>length<th>requests<th>failed<th>p50<th>p99<th>p99.9"
               "<th>max<th>stall<th>added p99<th>at least<th>at most</tr>\n");
    put_sum(b, u, &u->quiet);
    put_sum(b, u, &u->updates);
    for (int k = 0; k < PERF_PHASES; k++) {
        if (u->phases[k].count) {
            put_sum(b, u, &u->phases[k]);
        }
    }
    MR_BUF_LIT(b, "</table></div><p>at least, at most: the range at 95 %; ?: the samples do not "
                  "say.</p>\n");
}

static void put_pair(struct mr_buf *b, uint64_t quiet, uint64_t update)
{
    mr_buf_printf(b, "<td>%llu | %llu", (unsigned long long)quiet, (unsigned long long)update);
}

static void put_threads(struct mr_buf *b, const struct perf_update *u)
{
    if (u->update_threads.len == 0) {
        return;
    }
    MR_BUF_LIT(b,
               "<h2>Threads of the server</h2><p>In quiet windows | in those with an update.</p>"
               "<div><table><tr><th>threads<th>minor faults<th>major faults<th>waits<th>preempted"
               "</tr>\n");
    for (size_t i = 0; i < u->update_threads.len; i++) {
        const struct perf_thread *t = &u->update_threads.at[i];
        const struct perf_thread *q = perf_threads_find(&u->quiet_threads, t->name);
        mr_buf_printf(b, "<tr><td>%u × ", t->threads);
        mr_buf_html(b, mr_str_c(t->name));
        put_pair(b, q->minor_faults, t->minor_faults);
        put_pair(b, q->major_faults, t->major_faults);
        put_pair(b, q->voluntary, t->voluntary);
        put_pair(b, q->involuntary, t->involuntary);
        MR_BUF_LIT(b, "</tr>\n");
    }
    MR_BUF_LIT(b, "</table></div>\n");
}

static void put_warnings(struct mr_buf *b, const struct perf_update *u)
{
    char doubt[320];

    if (u->doubtful) {
        mr_buf_printf(b,
                      "<p class=\"w\">Warning: in %u of %zu windows the client was late or others "
                      "had its CPU%s.</p>\n",
                      u->doubtful, u->windows.len,
                      u->p->opt.clean ? "; they are left out of the sums" : "");
    }
    if (mr_perf_doubt(u->result, &u->load, doubt, sizeof doubt)) {
        mr_buf_printf(b, "<p class=\"w\">Warning: %s.</p>\n", doubt);
    }
    for (size_t i = 0; i < u->windows.len; i++) {
        if (u->windows.at[i].rc < 0) {
            MR_BUF_LIT(b, "<p class=\"w\">Update failed: ");
            mr_buf_html(b, mr_str_c(u->windows.at[i].problem));
            MR_BUF_LIT(b, "</p>\n");
        }
    }
}

int perf_update_write_html(const struct perf_update *u, const char *path, struct mr_err *err)
{
    struct mr_buf b;
    char text[200];

    mr_buf_init(&b, 0);
    snprintf(text, sizeof text, "%.150s - millrace perf update", u->p->opt.model);
    perf_page_begin(&b, text);
    MR_BUF_LIT(&b, "<h1>");
    mr_buf_html(&b, mr_str_c(u->p->opt.model));
    MR_BUF_LIT(&b, ", updates of ");
    mr_buf_html(&b, mr_str_c(u->control.model));
    MR_BUF_LIT(&b, "</h1><p>");
    mr_buf_html(&b, mr_str_c(u->p->target.address));
    perf_load_text(&u->load, text);
    mr_buf_printf(&b, ", %s, %s; updates over %s.</p>\n", perf_protocol_text(u->p), text,
                  u->control.grpc ? "gRPC" : "REST");
    put_sums(&b, u);
    put_warnings(&b, u);
    if (u->windows.len) {
        put_aligned(&b, u);
        put_whole(&b, u);
    }
    put_threads(&b, u);
    perf_page_end(&b);
    int rc = perf_write_file(path, &b, err);
    mr_buf_fini(&b);
    return rc;
}
