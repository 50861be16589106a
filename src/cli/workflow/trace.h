/* The trace of a request to a workflow, as its answer has it, and pictures of it. */
#ifndef CLI_WORKFLOW_TRACE_H
#define CLI_WORKFLOW_TRACE_H

#include "base/arena.h"
#include "base/buf.h"
#include "base/err.h"

struct trace_node {
    mr_str name, outcome;
    mr_str model; /* or operator; "": neither */
    mr_str variant, by, runs_for;
    int64_t start_ns, end_ns; /* from the start of the request; -1: it did not run */
    uint64_t calls;
    uint32_t level; /* of workflows within workflows */
};

/** All of it is in the arena. */
struct trace {
    mr_str name;
    int64_t ns; /* of the whole */
    struct trace_node *nodes;
    size_t node_count;
    uint64_t omitted; /* nodes that the server left out */
};

/** Reads the parameter `workflow.trace` of an answer. Errors: MR_E_INVALID, MR_E_TOO_LARGE. */
int trace_read(mr_str text, struct mr_arena *arena, struct trace *out, struct mr_err *err);

/** Bars of a timeline, in lines of `width` columns, and as a picture in SVG. */
void trace_text(const struct trace *t, unsigned width, struct mr_buf *out);
void trace_svg(const struct trace *t, struct mr_buf *out);

#endif
