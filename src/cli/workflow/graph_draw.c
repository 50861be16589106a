/* Pictures of graphs. Nodes of a level stand above each other; levels go from left to right in SVG, and down in a
 * terminal. */
#include <stdio.h>

#include "cli/common/term.h"
#include "graph.h"

/* ---- a terminal ---- */

static void put_clean(const char *text, struct mr_buf *out)
{
    mr_text_clean(out, mr_str_c(text));
}

static void put_tensors(const struct graph *g, uint32_t node, bool of_inputs, struct mr_buf *out)
{
    const char *before = "";

    for (size_t i = 0; i < g->edge_count; i++) {
        const struct graph_edge *e = &g->edges[i];
        bool is_again = !e->tensor || (of_inputs ? e->to : e->from) != node;
        for (size_t k = 0; k < i && !is_again; k++) {
            is_again = (of_inputs ? g->edges[k].to : g->edges[k].from) == node &&
                       g->edges[k].tensor && strcmp(g->edges[k].tensor, e->tensor) == 0;
        }
        if (!is_again) {
            mr_buf_c(out, before);
            put_clean(e->tensor, out);
            before = ", ";
        }
    }
}

static void put_line(const struct graph *g, uint32_t node, const char *branch, struct mr_buf *out)
{
    const struct graph_node *n = &g->nodes[node];

    mr_buf_printf(out, "%s ", branch);
    put_clean(n->name, out);
    if (*n->what) {
        mr_buf_c(out, " (");
        put_clean(n->what, out);
        mr_buf_char(out, ')');
    }
    if (node > 0) {
        mr_buf_c(out, "  ");
        put_tensors(g, node, true, out);
    }
    if (node + 1 < g->node_count) {
        mr_buf_c(out, node > 0 ? " → " : "  ");
        put_tensors(g, node, false, out);
    }
    if (*n->rules) {
        mr_buf_c(out, "  [");
        put_clean(n->rules, out);
        mr_buf_char(out, ']');
    }
    mr_buf_char(out, '\n');
}

void graph_text(const struct graph *g, struct mr_buf *out)
{
    put_clean(g->name, out);
    mr_buf_char(out, '\n');
    for (uint32_t level = 0; level < g->level_count; level++) {
        uint32_t count = 0, at = 0;
        for (size_t i = 0; i < g->node_count; i++) {
            count += g->nodes[i].level == level;
        }
        if (level > 0) {
            mr_buf_c(out, count > 1 ? "│\n" : "▼\n");
        }
        for (uint32_t i = 0; i < g->node_count; i++) {
            if (g->nodes[i].level == level) {
                put_line(g, i, count == 1 ? "■" : ++at < count ? "├─■" : "└─■", out);
            }
        }
    }
}

/* ---- Graphviz ---- */

static void put_quoted(const char *text, struct mr_buf *out)
{
    struct mr_buf clean;

    mr_buf_init(&clean, 0);
    put_clean(text, &clean);
    mr_buf_char(out, '"');
    for (const char *p = mr_buf_cstr(&clean); *p; p++) {
        if (*p == '"' || *p == '\\') {
            mr_buf_char(out, '\\');
        }
        mr_buf_char(out, *p);
    }
    mr_buf_char(out, '"');
    mr_buf_fini(&clean);
}

void graph_dot(const struct graph *g, struct mr_buf *out)
{
    mr_buf_c(out, "digraph ");
    put_quoted(g->name, out);
    mr_buf_c(out, " {\n  rankdir=LR;\n  node [shape=box, fontname=\"sans-serif\"];\n");
    for (size_t i = 0; i < g->node_count; i++) {
        mr_buf_printf(out, "  n%zu [label=", i);
        put_quoted(g->nodes[i].name, out);
        if (*g->nodes[i].what) {
            mr_buf_c(out, ", xlabel=");
            put_quoted(g->nodes[i].what, out);
        }
        mr_buf_c(out, "];\n");
    }
    for (size_t i = 0; i < g->edge_count; i++) {
        mr_buf_printf(out, "  n%u -> n%u", g->edges[i].from, g->edges[i].to);
        if (g->edges[i].tensor) {
            mr_buf_c(out, " [label=");
            put_quoted(g->edges[i].tensor, out);
            mr_buf_char(out, ']');
        } else {
            mr_buf_c(out, " [style=dashed]");
        }
        mr_buf_c(out, ";\n");
    }
    mr_buf_c(out, "}\n");
}

/* ---- SVG ---- */

#define BOX_WIDTH  190
#define BOX_HEIGHT 44
#define STEP_X     270
#define STEP_Y     76
#define MARGIN     20

void graph_put_escaped(mr_str text, size_t max, struct mr_buf *out)
{
    struct mr_buf clean;
    size_t n = 0, bytes = 0;

    mr_buf_init(&clean, 0);
    mr_text_clean(&clean, text);
    for (const char *p = mr_buf_cstr(&clean); p[bytes]; bytes++) {
        n += ((unsigned char)p[bytes] & 0xc0) != 0x80;
        if (n > max) {
            break;
        }
    }
    mr_buf_html(out, mr_str_n(mr_buf_cstr(&clean), bytes));
    mr_buf_fini(&clean);
}

static uint32_t left(const struct graph_node *n)
{
    return MARGIN + n->level * STEP_X;
}

static uint32_t top(const struct graph_node *n)
{
    return MARGIN + n->row * STEP_Y;
}

static void put_box(const struct graph_node *n, struct mr_buf *out)
{
    mr_buf_printf(out, "<g><title>");
    graph_put_escaped(mr_str_c(n->rules), 1000, out);
    mr_buf_printf(
        out,
        "</title><rect x=\"%u\" y=\"%u\" width=\"%d\" height=\"%d\" rx=\"6\" fill=\"#eef3fb\" "
        "stroke=\"#345\"/>\n<text x=\"%u\" y=\"%u\" font-weight=\"bold\">",
        left(n), top(n), BOX_WIDTH, BOX_HEIGHT, left(n) + 8, top(n) + 18);
    graph_put_escaped(mr_str_c(n->name), 24, out);
    mr_buf_printf(out, "</text>\n<text x=\"%u\" y=\"%u\" fill=\"#456\">", left(n) + 8, top(n) + 35);
    graph_put_escaped(mr_str_c(n->what), 28, out);
    mr_buf_c(out, "</text></g>\n");
}

static void put_arrow(const struct graph *g, const struct graph_edge *e, struct mr_buf *out)
{
    const struct graph_node *from = &g->nodes[e->from], *to = &g->nodes[e->to];
    const uint32_t x1 = left(from) + BOX_WIDTH, y1 = top(from) + BOX_HEIGHT / 2;
    const uint32_t x2 = left(to), y2 = top(to) + BOX_HEIGHT / 2;

    mr_buf_printf(out,
                  "<path d=\"M%u %u C%u %u %u %u %u %u\" fill=\"none\" stroke=\"#678\"%s "
                  "marker-end=\"url(#a)\"/>\n",
                  x1, y1, x1 + 40, y1, x2 - 40, y2, x2, y2,
                  e->tensor ? "" : " stroke-dasharray=\"4 3\"");
    if (e->tensor) {
        mr_buf_printf(out, "<text x=\"%u\" y=\"%u\" text-anchor=\"middle\" fill=\"#246\">",
                      (x1 + x2) / 2, (y1 + y2) / 2 - 4);
        graph_put_escaped(mr_str_c(e->tensor), 14, out);
        mr_buf_c(out, "</text>\n");
    }
}

void graph_svg(const struct graph *g, struct mr_buf *out)
{
    mr_buf_printf(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%u\" height=\"%u\" "
        "font-family=\"sans-serif\" font-size=\"12\">\n"
        "<defs><marker id=\"a\" viewBox=\"0 0 8 8\" refX=\"8\" refY=\"4\" markerWidth=\"7\" "
        "markerHeight=\"7\" orient=\"auto\"><path d=\"M0 0L8 4L0 8z\" "
        "fill=\"#678\"/></marker></defs>\n",
        2 * MARGIN + (g->level_count - 1) * STEP_X + BOX_WIDTH,
        2 * MARGIN + (g->row_count - 1) * STEP_Y + BOX_HEIGHT);
    for (size_t i = 0; i < g->edge_count; i++) {
        put_arrow(g, &g->edges[i], out);
    }
    for (size_t i = 0; i < g->node_count; i++) {
        put_box(&g->nodes[i], out);
    }
    mr_buf_c(out, "</svg>\n");
}
