/* The graph of an ensemble or workflow, from its configuration alone, for pictures. */
#ifndef CLI_WORKFLOW_GRAPH_H
#define CLI_WORKFLOW_GRAPH_H

#include "base/arena.h"
#include "base/buf.h"
#include "base/err.h"
#include "model_config.pb-c.h"

struct graph_node {
    const char *name;
    const char *what;  /* "model digits", "op image.decode", "switch" */
    const char *rules; /* "when …, retry 2"; "" */
    uint32_t level;    /* 0: what the request brings */
    uint32_t row;      /* among the nodes of its level */
};

struct graph_edge {
    uint32_t from, to;  /* nodes */
    const char *tensor; /* NULL: order, or a choice */
};

/** Node 0 is the request, the last one the answer. All of it is in the arena. */
struct graph {
    const char *name;
    struct graph_node *nodes;
    size_t node_count;
    struct graph_edge *edges;
    size_t edge_count;
    uint32_t level_count;
    uint32_t row_count; /* of the largest level */
};

/** Errors: MR_E_INVALID (no ensemble or workflow, a tensor with two writers, a cycle), MR_E_TOO_LARGE (more than 10,000 nodes),
 *  MR_E_EXHAUSTED. */
int graph_make(const Inference__ModelConfig *c, struct mr_arena *arena, struct graph *out,
               struct mr_err *err);

/** The graph as lines for a terminal, as a picture in SVG, and as text for Graphviz. */
void graph_text(const struct graph *g, struct mr_buf *out);
void graph_svg(const struct graph *g, struct mr_buf *out);
void graph_dot(const struct graph *g, struct mr_buf *out);
/** The first `max` characters of a text, for SVG. */
void graph_put_escaped(mr_str text, size_t max, struct mr_buf *out);

#endif
