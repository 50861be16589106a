/* The report as one page that fetches nothing: tables and plots as SVG within it. */
#include <math.h>

#include "base/clock.h"
#include "perf.h"
#include "term.h"

#define WIDTH  860.0
#define HEIGHT 240.0
#define LEFT   80.0
#define BOTTOM 30.0
#define POINTS 600 /* of a curve at most */

struct curve {
    const char *name;
    const char *color;
    double *y;
};

struct plot {
    const char *title;
    const double *x;
    const char *x_name;
    size_t count;
    const struct curve *curves;
    size_t curve_count;
    bool is_time; /* y in ns, on a logarithmic scale; otherwise a number from 0 */
};

static void put_text(struct mr_buf *b, mr_str text)
{
    for (size_t i = 0; i < text.len; i++) {
        char c = text.ptr[i];
        switch (c) {
        case '<': MR_BUF_LIT(b, "&lt;"); break;
        case '>': MR_BUF_LIT(b, "&gt;"); break;
        case '&': MR_BUF_LIT(b, "&amp;"); break;
        case '"': MR_BUF_LIT(b, "&quot;"); break;
        default: mr_buf_char(b, c); break;
        }
    }
}

static void put_y_label(struct mr_buf *b, const struct plot *p, double y, double value)
{
    char text[32];

    if (p->is_time) {
        mr_text_duration(text, value);
    } else {
        snprintf(text, sizeof text, "%.0f", value);
    }
    mr_buf_printf(b,
                  "<line x1=\"%.0f\" x2=\"%.0f\" y1=\"%.1f\" y2=\"%.1f\" class=\"g\"/><text "
                  "x=\"%.0f\" y=\"%.1f\" class=\"y\">%s</text>\n",
                  LEFT, WIDTH, y, y, LEFT - 6, y + 4, text);
}

static double height_of(const struct plot *p, double value, double low, double high)
{
    double part = p->is_time ? (log(fmax(value, low)) - log(low)) / (log(high) - log(low))
                             : (value - low) / (high - low);

    return 10 + (1 - part) * (HEIGHT - BOTTOM - 10);
}

static void find_bounds(const struct plot *p, double *out_low, double *out_high)
{
    double low = INFINITY;
    double high = 0;

    for (size_t c = 0; c < p->curve_count; c++) {
        for (size_t i = 0; i < p->count; i++) {
            double v = p->curves[c].y[i];
            low = v > 0 ? fmin(low, v) : low;
            high = fmax(high, v);
        }
    }
    if (p->is_time) {
        *out_low = isinf(low) ? 1 : pow(10, floor(log10(low)));
        *out_high = fmax(*out_low * 10, pow(10, ceil(log10(fmax(high, 1)))));
    } else {
        *out_low = 0;
        *out_high = fmax(1, high * 1.1);
    }
}

static void put_grid(struct mr_buf *b, const struct plot *p, double low, double high)
{
    if (p->is_time) {
        for (double v = low; v <= high * 1.001; v *= 10) {
            put_y_label(b, p, height_of(p, v, low, high), v);
        }
        return;
    }
    for (int i = 0; i <= 4; i++) {
        double v = high * i / 4;
        put_y_label(b, p, height_of(p, v, low, high), v);
    }
}

static void put_curve(struct mr_buf *b, const struct plot *p, const struct curve *c, double low,
                      double high)
{
    double from = p->x[0];
    double span = fmax(p->x[p->count - 1] - from, 1e-9);

    mr_buf_printf(b, "<polyline class=\"c\" stroke=\"%s\" points=\"", c->color);
    for (size_t i = 0; i < p->count; i++) {
        mr_buf_printf(b, "%.1f,%.1f ", LEFT + (p->x[i] - from) / span * (WIDTH - LEFT),
                      height_of(p, c->y[i], low, high));
    }
    MR_BUF_LIT(b, "\"/>\n");
}

static void put_plot(struct mr_buf *b, const struct plot *p)
{
    double low;
    double high;

    if (p->count == 0) {
        return;
    }
    find_bounds(p, &low, &high);
    mr_buf_printf(b, "<h3>%s</h3><svg viewBox=\"0 0 %.0f %.0f\">\n", p->title, WIDTH, HEIGHT);
    put_grid(b, p, low, high);
    for (size_t c = 0; c < p->curve_count; c++) {
        put_curve(b, p, &p->curves[c], low, high);
        mr_buf_printf(b, "<text x=\"%.0f\" y=\"22\" class=\"k\" fill=\"%s\">%s</text>\n",
                      LEFT + 10 + 70.0 * (double)c, p->curves[c].color, p->curves[c].name);
    }
    mr_buf_printf(b, "<text x=\"%.0f\" y=\"%.0f\" class=\"x\">%s</text></svg>\n", WIDTH, HEIGHT - 8,
                  p->x_name);
}

/* ---- the plots of a run ---- */

/* Seconds, joined where there are more than points. */
static void put_seconds(struct mr_buf *b, const struct mr_perf_result *r)
{
    size_t step = (r->windows.len + POINTS - 1) / POINTS;
    size_t n = step ? (r->windows.len + step - 1) / step : 0;
    double *y = MR_NEW_ARRAY(double, 6 * (n + 1));
    double *x = y, *p50 = y + (n + 1), *p99 = y + 2 * (n + 1), *max = y + 3 * (n + 1);
    double *rate = y + 4 * (n + 1), *failed = y + 5 * (n + 1);

    for (size_t i = 0; i < r->windows.len; i++) {
        const struct mr_perf_second *s = &r->windows.at[i];
        size_t k = i / step;
        x[k] = s->begin_s;
        p50[k] = fmax(p50[k], (double)s->p50_ns);
        p99[k] = fmax(p99[k], (double)s->p99_ns);
        max[k] = fmax(max[k], (double)s->max_ns);
        /* The end of a run is no whole second. */
        double length = fmax(s->length_s, 0.1) * (double)step;
        rate[k] += (double)s->answered / length;
        failed[k] += (double)s->failed / length;
    }
    const struct curve latency[] = {
        {"max", "#c33", max}, {"p99", "#d80", p99}, {"p50", "#06c", p50}};
    const struct curve rates[] = {{"answers", "#06c", rate}, {"failed", "#c33", failed}};
    put_plot(b, &(struct plot){"Latency over time", x, "seconds", n, latency, 3, true});
    put_plot(b, &(struct plot){"Answers per second", x, "seconds", n, rates, 2, false});
    mr_free(y);
}

/* From p0 to the percentile that one sample decides; x is the number of nines. */
static void put_percentiles(struct mr_buf *b, const struct mr_fine_hist *h)
{
    double x[POINTS];
    double y[POINTS];
    double nines = h->total ? log10((double)h->total) : 0;

    for (size_t i = 0; i < POINTS; i++) {
        x[i] = nines * (double)i / (POINTS - 1);
        y[i] = (double)mr_fine_quantile(h, 1 - pow(10, -x[i]));
    }
    const struct curve curve = {"latency", "#06c", y};
    if (h->total > 1) {
        put_plot(b,
                 &(struct plot){"Latency by percentile", x,
                                "each decade to the right one more nine: 0, p90, p99, p99.9, ...",
                                POINTS, &curve, 1, true});
    }
}

/* ---- the page ---- */

static void put_table(struct mr_buf *b, const struct perf *p)
{
    char text[64];

    MR_BUF_LIT(b, "<table><tr><th>load<th>answers/s<th>failed<th>mean");
    for (size_t k = 0; k < PERF_PERCENTILES; k++) {
        mr_buf_printf(b, "<th>%s", perf_percentiles[k].name);
    }
    MR_BUF_LIT(b, "<th>max</tr>\n");
    for (size_t i = 0; i < p->rows.len; i++) {
        const struct mr_perf_result *r = p->rows.at[i].result;
        perf_load_text(&p->rows.at[i].load, text);
        mr_buf_printf(b, "<tr><td>%s<td>%.1f<td>%llu", text, r->rate,
                      (unsigned long long)r->failed);
        mr_text_duration(text, mr_fine_mean(&r->latency));
        mr_buf_printf(b, "<td>%s", text);
        for (size_t k = 0; k <= PERF_PERCENTILES; k++) {
            double q = k < PERF_PERCENTILES ? perf_percentiles[k].q : 1;
            mr_text_duration(text, (double)mr_fine_quantile(&r->latency, q));
            mr_buf_printf(b, "<td>%s", text);
        }
        MR_BUF_LIT(b, "</tr>\n");
    }
    MR_BUF_LIT(b, "</table>\n");
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
        put_text(b, mr_str_c(r->errors.kinds[i].text));
        MR_BUF_LIT(b, "</p>\n");
    }
    put_seconds(b, r);
    put_percentiles(b, &r->latency);
}

int perf_write_html(const struct perf *p, const char *path, struct mr_err *err)
{
    struct mr_buf b;

    mr_buf_init(&b, 0);
    MR_BUF_LIT(&b, "<!DOCTYPE html><html lang=\"en\"><head><meta charset=\"utf-8\"><title>");
    put_text(&b, mr_str_c(p->opt.model));
    MR_BUF_LIT(&b,
               " - millrace perf</title><style>body{font:15px sans-serif;max-width:900px;"
               "margin:2em auto;padding:0 1em}table{border-collapse:collapse}td,th{padding:.2em "
               ".7em;text-align:right;border-bottom:1px solid #ddd}svg{width:100%}.g{stroke:#ddd}"
               ".c{fill:none;stroke-width:1.5}text{font-size:12px}.y,.x{text-anchor:end;fill:#555}"
               ".w{color:#b00}</style></head><body>\n<h1>");
    put_text(&b, mr_str_c(p->opt.model));
    MR_BUF_LIT(&b, "</h1><p>");
    put_text(&b, mr_str_c(p->target.address));
    mr_buf_printf(&b, ", %s</p>\n", perf_protocol_text(p));
    put_table(&b, p);
    for (size_t i = 0; i < p->rows.len; i++) {
        put_run(&b, &p->rows.at[i]);
    }
    MR_BUF_LIT(&b, "</body></html>\n");
    int rc = perf_write_file(path, &b, err);
    mr_buf_fini(&b);
    return rc;
}
