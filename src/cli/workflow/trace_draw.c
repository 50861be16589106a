/* A trace as bars over time: one line for each node. */
#include <math.h>
#include <stdlib.h>

#include "base/mem.h"
#include "cli/common/term.h"
#include "graph.h"
#include "trace.h"

/* ---- what both have ---- */

/* "name" of a deeper level is moved to the right. */
static void put_name(const struct trace_node *n, struct mr_buf *out)
{
    for (uint32_t i = 0; i < n->level; i++) {
        mr_buf_c(out, "  ");
    }
    mr_text_clean(out, n->name);
}

/* What ran, and why: "det, 2 calls", "digits, variant b", "for find". */
static void put_note(const struct trace_node *n, struct mr_buf *out)
{
    const char *before = "";

    if (n->model.len) {
        mr_text_clean(out, n->model);
        before = ", ";
    }
    if (n->variant.len) {
        mr_buf_printf(out, "%svariant ", before);
        mr_text_clean(out, n->variant);
        before = ", ";
    }
    if (n->calls > 1) {
        mr_buf_printf(out, "%s%llu calls", before, (unsigned long long)n->calls);
        before = ", ";
    }
    if (n->by.len || n->runs_for.len) {
        mr_buf_printf(out, "%s%s ", before, n->by.len ? "by" : "for");
        mr_text_clean(out, n->by.len ? n->by : n->runs_for);
    }
}

/* The end of the last bar, at least 1. */
static int64_t span_of(const struct trace *t)
{
    int64_t ns = MR_MAX(t->ns, 1);

    for (size_t i = 0; i < t->node_count; i++) {
        ns = MR_MAX(ns, t->nodes[i].end_ns);
    }
    return ns;
}

/* ---- a terminal ---- */

#define NAME_COLUMNS_MAX 40u
#define BAR_COLUMNS_MIN  20u

struct widths {
    size_t name, outcome, note;
    unsigned bar;
};

static struct widths measure(const struct trace *t, unsigned width)
{
    struct widths w = {4, 4, 0, 0};
    struct mr_buf text;

    mr_buf_init(&text, 0);
    for (size_t i = 0; i < t->node_count; i++) {
        mr_buf_reset(&text);
        put_name(&t->nodes[i], &text);
        w.name = MR_MAX(w.name, mr_text_columns(mr_buf_view(&text)));
        w.outcome = MR_MAX(w.outcome, mr_text_columns(t->nodes[i].outcome));
        mr_buf_reset(&text);
        put_note(&t->nodes[i], &text);
        w.note = MR_MAX(w.note, mr_text_columns(mr_buf_view(&text)));
    }
    mr_buf_fini(&text);
    w.name = MR_MIN(w.name, NAME_COLUMNS_MAX);
    const size_t taken = w.name + w.outcome + MR_MIN(w.note, 40u) + 14;
    w.bar = taken + BAR_COLUMNS_MIN > width ? BAR_COLUMNS_MIN : width - (unsigned)taken;
    return w;
}

static void pad(struct mr_buf *out, size_t from, size_t columns)
{
    for (size_t i = from; i < columns; i++) {
        mr_buf_char(out, ' ');
    }
}

/* At least one cell for what ran, so that it is seen. */
static void put_bar(const struct trace_node *n, int64_t span, unsigned columns, struct mr_buf *out)
{
    const double scale = (double)columns / (double)span;
    const unsigned from = MR_MIN((unsigned)((double)MR_MAX(n->start_ns, 0) * scale), columns - 1);
    const unsigned to =
        n->start_ns < 0
            ? from
            : MR_MIN(MR_MAX((unsigned)lround((double)n->end_ns * scale), from + 1), columns);

    pad(out, 0, from);
    for (unsigned i = from; i < to; i++) {
        mr_buf_c(out, "█");
    }
    pad(out, to, columns);
}

static void put_line(const struct trace_node *n, const struct widths *w, int64_t span,
                     struct mr_buf *out)
{
    char took[32] = "";
    struct mr_buf name;

    mr_buf_init(&name, 0);
    put_name(n, &name);
    mr_buf_str(out, mr_buf_view(&name));
    pad(out, mr_text_columns(mr_buf_view(&name)), w->name);
    mr_buf_fini(&name);
    mr_buf_c(out, "  ");
    mr_text_clean(out, n->outcome);
    pad(out, mr_text_columns(n->outcome), w->outcome);
    mr_buf_c(out, "  ");
    put_bar(n, span, w->bar, out);
    if (n->start_ns >= 0) {
        mr_text_duration(took, (double)(n->end_ns - n->start_ns));
    }
    mr_buf_printf(out, " %9s  ", took);
    put_note(n, out);
    while (out->len && out->ptr[out->len - 1] == ' ') {
        out->len--;
    }
    mr_buf_char(out, '\n');
}

void trace_text(const struct trace *t, unsigned width, struct mr_buf *out)
{
    const struct widths w = measure(t, width);
    char took[32];

    mr_text_duration(took, (double)t->ns);
    mr_text_clean(out, t->name);
    mr_buf_printf(out, ": %s\n", took);
    for (size_t i = 0; i < t->node_count; i++) {
        put_line(&t->nodes[i], &w, span_of(t), out);
    }
    if (t->omitted) {
        mr_buf_printf(out, "(%llu nodes more)\n", (unsigned long long)t->omitted);
    }
}

/* ---- SVG ---- */

#define LABEL_WIDTH 240u
#define CHART_WIDTH 720u
#define NOTE_WIDTH  280u
#define ROW_HEIGHT  24u
#define TOP         44u
#define TICKS       6

/* 1, 2 or 5 times a power of ten. */
static double tick_of(double span)
{
    double step = pow(10, floor(log10(span / TICKS)));

    if (step * TICKS < span) {
        step *= 2;
    }
    if (step * TICKS < span) {
        step *= 2.5;
    }
    return step * TICKS < span ? step * 2 : step;
}

static void put_axis(int64_t span, unsigned bottom, struct mr_buf *out)
{
    const double step = tick_of((double)span);
    char text[32];

    for (double at = 0; at <= (double)span; at += step) {
        const unsigned x = LABEL_WIDTH + (unsigned)(at / (double)span * CHART_WIDTH);
        mr_text_duration(text, at);
        mr_buf_printf(out,
                      "<path d=\"M%u %u V%u\" stroke=\"#ccd\"/><text x=\"%u\" y=\"%u\" "
                      "text-anchor=\"middle\" fill=\"#678\">%s</text>\n",
                      x, TOP - 6, bottom, x, TOP - 12, at > 0 ? text : "0");
    }
}

static const char *color_of(const struct trace_node *n)
{
    return mr_str_eq_c(n->outcome, "ran")      ? "#4a7fc1"
           : mr_str_eq_c(n->outcome, "failed") ? "#c0453c"
                                               : "#d79b2e";
}

static void put_row(const struct trace_node *n, unsigned y, int64_t span, struct mr_buf *out)
{
    const double scale = (double)CHART_WIDTH / (double)span;
    const unsigned x = LABEL_WIDTH + (unsigned)((double)MR_MAX(n->start_ns, 0) * scale);
    const unsigned width = (unsigned)((double)(n->end_ns - n->start_ns) * scale);
    char took[32] = "";
    struct mr_buf note;

    mr_buf_init(&note, 0);
    put_note(n, &note);
    mr_buf_printf(out, "<text x=\"%u\" y=\"%u\" font-weight=\"bold\">", 12 + 14 * n->level, y + 14);
    graph_put_escaped(n->name, 32, out);
    mr_buf_c(out, "</text>\n");
    if (n->start_ns >= 0) {
        mr_text_duration(took, (double)(n->end_ns - n->start_ns));
        mr_buf_printf(out,
                      "<rect x=\"%u\" y=\"%u\" width=\"%u\" height=\"%u\" rx=\"2\" fill=\"%s\"/>\n",
                      x, y + 3, MR_MAX(width, 2u), ROW_HEIGHT - 8, color_of(n));
    }
    mr_buf_printf(out, "<text x=\"%u\" y=\"%u\" fill=\"#456\">", LABEL_WIDTH + CHART_WIDTH + 12,
                  y + 14);
    graph_put_escaped(n->outcome, 16, out);
    mr_buf_printf(out, "%s%s%s", *took ? ", " : "", took, note.len ? ", " : "");
    graph_put_escaped(mr_buf_view(&note), 60, out);
    mr_buf_c(out, "</text>\n");
    mr_buf_fini(&note);
}

void trace_svg(const struct trace *t, struct mr_buf *out)
{
    const unsigned bottom = TOP + (unsigned)t->node_count * ROW_HEIGHT;
    const int64_t span = span_of(t);

    mr_buf_printf(out,
                  "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%u\" height=\"%u\" "
                  "font-family=\"sans-serif\" font-size=\"12\">\n<title>",
                  LABEL_WIDTH + CHART_WIDTH + NOTE_WIDTH, bottom + 12);
    graph_put_escaped(t->name, 200, out);
    mr_buf_c(out, "</title>\n");
    put_axis(span, bottom, out);
    for (size_t i = 0; i < t->node_count; i++) {
        put_row(&t->nodes[i], TOP + (unsigned)i * ROW_HEIGHT, span, out);
    }
    mr_buf_c(out, "</svg>\n");
}
