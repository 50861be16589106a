/* A workflow while it is made from a foreign graph, and its text. All of it is in the arena of the import. */
#ifndef IMPORT_FLOW_H
#define IMPORT_FLOW_H

#include "base/arena.h"
#include "emit.h"
#include "millrace/backend.h"

struct flow_tensor {
    struct flow_tensor *next;
    mr_str name;
    int32_t dtype; /* MR_DTYPE_* */
    uint32_t rank;
    int64_t dims[MR_MAX_RANK]; /* as in config.pbtxt; -1 = any size */
};

/** A tensor of a model or op, and the tensor of the workflow that is its value. */
struct flow_pair {
    struct flow_pair *next;
    mr_str of;
    mr_str name;
};

struct flow_text {
    struct flow_text *next;
    mr_str text;
};

struct flow_variant {
    struct flow_variant *next;
    mr_str tag, model, remote;
    int64_t weight;
    uint32_t line; /* as of flow_node */
};

struct flow_node {
    struct flow_node *next;
    mr_str name;
    mr_str model; /* "" with variants */
    mr_str remote;
    int64_t version; /* -1: the newest */
    struct flow_pair *inputs, *outputs;
    struct flow_text *after;
    struct flow_variant *variants;
    mr_str shadow;
    int64_t shadow_percent;
    mr_str when;
    struct flow_text *foreach_over; /* tensors; NULL: once */
    int64_t foreach_max;            /* 0: no limit of its own */
    int64_t retries;
    int64_t timeout_ms;
    bool skips;    /* an error leaves its outputs out */
    uint32_t line; /* of the foreign file; 0: not known */
};

struct flow_case {
    struct flow_case *next;
    mr_str when; /* "": else */
    mr_str node;
};

struct flow {
    mr_str name;
    mr_str comment;
    const char *file;    /* where it is from; NULL: the file of the import */
    uint32_t line;       /* in it; 0: not known */
    int64_t deadline_ms; /* 0: none */
    int64_t max_batch_size;
    struct flow_tensor *inputs, *outputs;
    /** A node, and its output that keeps its name as one of the workflow: other tensors give way. */
    struct flow_pair *answers;
    struct flow_node *nodes;
    struct flow_case *cases; /* of a switch over some of the nodes; NULL: there is none */
    mr_str switch_name;
};

/** Appends to a list whose members begin with `next`. */
#define FLOW_ADD(list, item)                                                                       \
    do {                                                                                           \
        __typeof__(list) *end_ = &(list);                                                          \
        while (*end_) {                                                                            \
            end_ = &(*end_)->next;                                                                 \
        }                                                                                          \
        *end_ = (item);                                                                            \
    } while (0)

/** NULL without a tensor of that name. */
const struct flow_tensor *flow_tensor_find(const struct flow_tensor *list, mr_str name);
size_t flow_tensor_count(const struct flow_tensor *list);
/** A copy under another name at the end of *list, unless one of that name is there. False: no memory. */
bool flow_tensor_add(struct flow_tensor **list, const struct flow_tensor *t, mr_str name,
                     struct mr_arena *arena);
bool flow_pair_add(struct flow_pair **list, mr_str of, mr_str name, struct mr_arena *arena);
/** A field for each tensor: "input" or "output". */
void flow_emit_tensors(const char *field, const struct flow_tensor *list, struct emit *e);
/** Whether some node may be left out, so that outputs have a default. */
bool flow_may_skip(const struct flow *f);
/** The workflow as config.pbtxt. */
void flow_emit(const struct flow *f, struct emit *e);

#endif
