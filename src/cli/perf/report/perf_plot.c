/* Plots as SVG. Colours are CSS classes, so that the page follows the reader's dark or light scheme. */
#include "perf_plot.h"

#include <math.h>
#include <stdio.h>

#include "base/mem.h"
#include "cli/common/term.h"

#define WIDTH  860.0
#define HEIGHT 240.0
#define LEFT   80.0
#define RIGHT  850.0
#define TOP    30.0
#define BOTTOM 205.0

/* The ranges of x and y. */
struct frame {
    double x_low;
    double x_high;
    double low;
    double high;
    double step; /* of a linear y */
};

void perf_page_begin(struct mr_buf *b, const char *title)
{
    MR_BUF_LIT(
        b, "<!DOCTYPE html><html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" "
           "content=\"width=device-width\"><title>");
    mr_buf_html(b, mr_str_c(title));
    MR_BUF_LIT(
        b, "</title><style>:root{color-scheme:light dark;--line:#ddd;--dim:#555;--red:#c33;"
           "--orange:#c70;--blue:#06c;--grey:#888}@media(prefers-color-scheme:dark){:root{"
           "--line:#444;--dim:#aaa;--red:#f66;--orange:#fa4;--blue:#5af;--grey:#999}}"
           "body{font:15px sans-serif;max-width:900px;margin:2em auto;padding:0 1em}"
           "div{overflow-x:auto}table{border-collapse:collapse}td,th{padding:.2em .7em;"
           "text-align:right;white-space:nowrap;border-bottom:1px solid var(--line)}"
           "td:first-child,th:first-child{text-align:left}svg{width:100%}"
           ".g{stroke:var(--line)}.c{fill:none;stroke-width:1.5;stroke-linejoin:round}"
           "text{font-size:12px;fill:currentColor}.y,.e{text-anchor:end}.m{text-anchor:middle}"
           ".y,.e,.m{fill:var(--dim)}.s0{fill:#8888}.s1{fill:#48f4}.s2{fill:#fa04}.s3{fill:#2b24}"
           ".s4{fill:#b4f4}.s5{fill:#f444}.s6{fill:#8883}.w{color:var(--red)}");
    static const char *const colors[] = {"red", "orange", "blue", "grey"};
    for (size_t i = 0; i < sizeof colors / sizeof *colors; i++) {
        mr_buf_printf(b, ".%s{stroke:var(--%s)}text.%s{stroke:none;fill:var(--%s)}", colors[i],
                      colors[i], colors[i], colors[i]);
    }
    MR_BUF_LIT(b, "</style></head><body>\n");
}

void perf_page_end(struct mr_buf *b)
{
    MR_BUF_LIT(b, "</body></html>\n");
}

/* ---- scales ---- */

/* A round number, about a fourth of the range: 1, 2 or 5 and zeros. */
static double round_step(double range)
{
    double power = pow(10, floor(log10(fmax(range, 1e-9) / 4)));
    double n = range / 4 / power;

    return power * (n > 5 ? 10 : n > 2 ? 5 : n > 1 ? 2 : 1);
}

static struct frame make_frame(const struct perf_plot *p)
{
    struct frame f = {.x_low = p->x[0], .x_high = p->x[p->count - 1], .low = INFINITY};

    f.x_high = fmax(f.x_high, f.x_low + 1e-9);
    for (size_t c = 0; c < p->curve_count; c++) {
        for (size_t i = 0; i < p->count; i++) {
            double v = p->curves[c].y[i];
            f.low = v > 0 ? fmin(f.low, v) : f.low;
            f.high = fmax(f.high, v);
        }
    }
    if (p->is_time) {
        f.low = isinf(f.low) ? 1 : pow(10, floor(log10(f.low)));
        f.high = fmax(f.low * 10, pow(10, ceil(log10(fmax(f.high, 1)))));
    } else {
        f.step = fmax(1, round_step(fmax(f.high, 1)));
        f.low = 0;
        f.high = f.step * ceil(fmax(f.high, 1) / f.step);
    }
    return f;
}

static double y_of(const struct perf_plot *p, const struct frame *f, double v)
{
    double part = p->is_time ? (log(fmax(v, f->low)) - log(f->low)) / (log(f->high) - log(f->low))
                             : (v - f->low) / (f->high - f->low);

    return BOTTOM - part * (BOTTOM - TOP);
}

static double x_of(const struct frame *f, double v)
{
    double part = (v - f->x_low) / (f->x_high - f->x_low);

    return LEFT + fmin(fmax(part, 0), 1) * (RIGHT - LEFT);
}

static void put_y_line(struct mr_buf *b, const struct perf_plot *p, double y, double value)
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
                  LEFT, RIGHT, y, y, LEFT - 6, y + 4, text);
}

static void put_x_mark(struct mr_buf *b, double x, const char *text)
{
    mr_buf_printf(b,
                  "<line x1=\"%.1f\" x2=\"%.1f\" y1=\"%.0f\" y2=\"%.0f\" class=\"g\"/><text "
                  "x=\"%.1f\" y=\"%.0f\" class=\"%s\">%s</text>\n",
                  x, x, TOP, BOTTOM + 4, x, BOTTOM + 17, x > RIGHT - 20 ? "e" : "m", text);
}

static void put_x_marks(struct mr_buf *b, const struct perf_plot *p, const struct frame *f)
{
    char text[32];

    if (p->is_nines) {
        for (int n = 0; n <= f->x_high; n++) {
            snprintf(text, sizeof text, n == 0 ? "p0" : "p%.*f", n > 2 ? n - 2 : 0,
                     100 - 100 * pow(10, -n));
            put_x_mark(b, x_of(f, n), text);
        }
        return;
    }
    double step = round_step((f->x_high - f->x_low) / 2);
    double first = ceil(f->x_low / step - 1e-9);
    for (int i = 0; i <= 20 && (first + i) * step <= f->x_high * (1 + 1e-9); i++) {
        snprintf(text, sizeof text, "%.6g", (first + i) * step);
        put_x_mark(b, x_of(f, (first + i) * step), text);
    }
}

/* ---- content ---- */

static void put_shades(struct mr_buf *b, const struct perf_plot *p, const struct frame *f)
{
    bool seen[PERF_SHADES] = {false};
    double x = RIGHT;

    for (size_t i = 0; i < p->shade_count; i++) {
        const struct perf_shade *s = &p->shades[i];
        double from = x_of(f, s->from);
        seen[s->kind] = true;
        mr_buf_printf(
            b, "<rect x=\"%.1f\" y=\"%.0f\" width=\"%.1f\" height=\"%.0f\" class=\"s%zu\"/>\n",
            from, TOP, fmax(x_of(f, s->to) - from, 0.5), BOTTOM - TOP, s->kind);
    }
    for (size_t k = p->shade_kinds; k-- > 0;) {
        if (seen[k]) {
            x -= 74;
            mr_buf_printf(b,
                          "<rect x=\"%.0f\" y=\"10\" width=\"12\" height=\"12\" "
                          "class=\"s%zu\"/><text x=\"%.0f\" y=\"20\">%s</text>\n",
                          x, k, x + 17, p->shade_names[k]);
        }
    }
}

static void put_curve(struct mr_buf *b, const struct perf_plot *p, const struct frame *f, size_t c)
{
    const struct perf_curve *curve = &p->curves[c];

    mr_buf_printf(b, "<polyline class=\"c %s\" points=\"", curve->color);
    for (size_t i = 0; i < p->count; i++) {
        if (curve->y[i] > 0 || !p->is_time) {
            mr_buf_printf(b, "%.1f,%.1f ", x_of(f, p->x[i]), y_of(p, f, curve->y[i]));
        }
    }
    mr_buf_printf(b, "\"/><text x=\"%.0f\" y=\"20\" class=\"%s\">%s</text>\n",
                  LEFT + 80.0 * (double)c, curve->color, curve->name);
}

void perf_plot_put(struct mr_buf *b, const struct perf_plot *p)
{
    if (p->count == 0) {
        return;
    }
    struct frame f = make_frame(p);
    mr_buf_printf(b, "<h3>%s</h3><svg viewBox=\"0 0 %.0f %.0f\">\n", p->title, WIDTH, HEIGHT);
    put_shades(b, p, &f);
    if (p->is_time) {
        for (double v = f.low; v <= f.high * 1.001; v *= 10) {
            put_y_line(b, p, y_of(p, &f, v), v);
        }
    } else {
        for (double v = 0; v <= f.high * 1.001; v += f.step) {
            put_y_line(b, p, y_of(p, &f, v), v);
        }
    }
    put_x_marks(b, p, &f);
    for (size_t c = 0; c < p->curve_count; c++) {
        put_curve(b, p, &f, c);
    }
    mr_buf_printf(b, "<text x=\"%.0f\" y=\"%.0f\" class=\"e\">%s</text></svg>\n", RIGHT, HEIGHT - 4,
                  p->x_name);
}
