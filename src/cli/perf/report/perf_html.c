/* The report as one page: tables and plots. */
#include <math.h>

#include "base/clock.h"
#include "cli/common/term.h"
#include "cli/perf/setup/perf.h"
#include "perf_plot.h"

#define POINTS 600 /* of a curve at most */

/* ---- the plots of a run ---- */

/* Plots seconds, joined if there are more than points. */
static void put_seconds(struct mr_buf *b, const struct mr_perf_result *r)
{
    /* Without the remainder at the end. */
    size_t all = r->windows.len;
    size_t whole = all > 1 && r->windows.at[all - 1].length_s < 0.5 ? all - 1 : all;
    size_t step = (whole + POINTS - 1) / POINTS;
    size_t n = step ? (whole + step - 1) / step : 0;
    double *y = MR_NEW_ARRAY(double, 6 * (n + 1));
    double *x = y, *p50 = y + (n + 1), *p99 = y + 2 * (n + 1), *max = y + 3 * (n + 1);
    double *rate = y + 4 * (n + 1), *failed = y + 5 * (n + 1);

    for (size_t i = 0; i < r->windows.len; i++) {
        const struct mr_perf_second *s = &r->windows.at[i];
        size_t k = MR_MIN(i / step, n - 1);
        if (i == whole) {
            /* Too short for a meaningful rate and median. */
            p99[k] = fmax(p99[k], (double)s->p99_ns);
            max[k] = fmax(max[k], (double)s->max_ns);
            continue;
        }
        x[k] = s->begin_s;
        p50[k] = fmax(p50[k], (double)s->p50_ns);
        p99[k] = fmax(p99[k], (double)s->p99_ns);
        max[k] = fmax(max[k], (double)s->max_ns);
        /* The end of a run is not a whole second. */
        double length = fmax(s->length_s, 0.1) * (double)step;
        rate[k] += (double)s->answered / length;
        failed[k] += (double)s->failed / length;
    }
    const struct perf_curve latency[] = {
        {"max", "red", max}, {"p99", "orange", p99}, {"p50", "blue", p50}};
    const struct perf_curve rates[] = {{"answers", "blue", rate}, {"failed", "red", failed}};
    perf_plot_put(b, &(struct perf_plot){.title = "Latency over time",
                                         .x = x,
                                         .x_name = "seconds",
                                         .count = n,
                                         .curves = latency,
                                         .curve_count = 3,
                                         .is_time = true});
    perf_plot_put(b, &(struct perf_plot){.title = "Answers per second",
                                         .x = x,
                                         .x_name = "seconds",
                                         .count = n,
                                         .curves = rates,
                                         .curve_count = 2});
    mr_free(y);
}

/* From p0 to the percentile that depends on one sample; x is the number of nines. */
static void put_percentiles(struct mr_buf *b, const struct mr_hdr_histogram *h)
{
    double x[POINTS];
    double y[POINTS];
    double nines = h->total ? log10((double)h->total) : 0;

    for (size_t i = 0; i < POINTS; i++) {
        x[i] = nines * (double)i / (POINTS - 1);
        y[i] = (double)mr_hdr_quantile(h, 1 - pow(10, -x[i]));
    }
    const struct perf_curve curve = {"latency", "blue", y};
    if (h->total > 1) {
        perf_plot_put(b, &(struct perf_plot){.title = "Latency by percentile",
                                             .x = x,
                                             .x_name = "percentile",
                                             .count = POINTS,
                                             .curves = &curve,
                                             .curve_count = 1,
                                             .is_time = true,
                                             .is_nines = true});
    }
}

/* ---- the page ---- */

static void put_table(struct mr_buf *b, const struct perf *p)
{
    char text[64];

    MR_BUF_LIT(b, "<div><table><tr><th>load<th>answers/s<th>failed<th>mean");
    for (size_t k = 0; k < PERF_PERCENTILES; k++) {
        mr_buf_printf(b, "<th>%s", perf_percentiles[k].name);
    }
    MR_BUF_LIT(b, "<th>max</tr>\n");
    for (size_t i = 0; i < p->rows.len; i++) {
        const struct mr_perf_result *r = p->rows.at[i].result;
        perf_load_text(&p->rows.at[i].load, text);
        mr_buf_printf(b, "<tr><td>%s<td>%.1f<td>%llu", text, r->rate,
                      (unsigned long long)r->failed);
        mr_text_duration(text, mr_hdr_mean(&r->latency));
        mr_buf_printf(b, "<td>%s", text);
        for (size_t k = 0; k <= PERF_PERCENTILES; k++) {
            double q = k < PERF_PERCENTILES ? perf_percentiles[k].q : 1;
            mr_text_duration(text, (double)mr_hdr_quantile(&r->latency, q));
            mr_buf_printf(b, "<td>%s", text);
        }
        MR_BUF_LIT(b, "</tr>\n");
    }
    MR_BUF_LIT(b, "</table></div>\n");
}

static void put_run(struct mr_buf *b, const struct perf_row *row)
{
    const struct mr_perf_result *r = row->result;
    char text[320];

    perf_load_text(&row->load, text);
    mr_buf_printf(b,
                  "<h2>%s</h2>\n<p>%llu sent, %llu answered, %llu failed in %.3f s; client %.0f %% "
                  "of a CPU.</p>\n",
                  text, (unsigned long long)r->sent, (unsigned long long)r->answered,
                  (unsigned long long)r->failed, r->seconds, 100 * r->cpu);
    if (mr_perf_doubt(r, &row->load, text, sizeof text)) {
        mr_buf_printf(b, "<p class=\"w\">Warning: %s</p>\n", text);
    }
    for (size_t i = 0; i < r->errors.count; i++) {
        mr_perf_error_name(&r->errors.kinds[i], text);
        mr_buf_printf(b, "<p class=\"w\">%llu × %s: ", (unsigned long long)r->errors.kinds[i].count,
                      text);
        mr_buf_html(b, mr_str_c(r->errors.kinds[i].text));
        MR_BUF_LIT(b, "</p>\n");
    }
    put_seconds(b, r);
    put_percentiles(b, &r->latency);
}

int perf_write_html(const struct perf *p, const char *path, struct mr_err *err)
{
    struct mr_buf b;
    char title[200];

    mr_buf_init(&b, 0);
    snprintf(title, sizeof title, "%.150s - millrace perf", p->opt.model);
    perf_page_begin(&b, title);
    MR_BUF_LIT(&b, "<h1>");
    mr_buf_html(&b, mr_str_c(p->opt.model));
    MR_BUF_LIT(&b, "</h1><p>");
    mr_buf_html(&b, mr_str_c(p->target.address));
    mr_buf_printf(&b, ", %s</p>\n", perf_protocol_text(p));
    put_table(&b, p);
    for (size_t i = 0; i < p->rows.len; i++) {
        put_run(&b, &p->rows.at[i]);
    }
    perf_page_end(&b);
    int rc = perf_write_file(path, &b, err);
    mr_buf_fini(&b);
    return rc;
}
