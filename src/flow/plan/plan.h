/* The compiled graph of an ensemble or workflow: nodes and tensors by number, and which node waits for which.
 *
 * A tensor has one writer: a node, or the client. A node waits for the writers of what it reads. Immutable once it is built;
 * any number of threads read it. */
#ifndef FLOW_PLAN_H
#define FLOW_PLAN_H

#include "base/arena.h"
#include "base/err.h"
#include "base/map.h"
#include "expr/expr.h"
#include "model/config.h"

#define PLAN_NODES_MAX   4096u
#define PLAN_TENSORS_MAX 16384u
#define PLAN_NAME_MAX    1024u
#define PLAN_STRING_MAX  65532u /* bytes of a default */

/* Who writes a tensor, if no node does. */
#define PLAN_NO_NODE UINT32_MAX
#define PLAN_CLIENT  (UINT32_MAX - 1)

/** An input or output of a node's model, and the tensor that it reads or writes. */
struct plan_port {
    mr_str name;
    uint32_t tensor;
    bool is_optional; /* of an input: the model runs without it */
};

struct mr_op;
struct mr_split;
struct mr_shadow_config;

/** Type and whole shape of a tensor; dtype MR_DTYPE_INVALID: not known yet. */
struct plan_type {
    int32_t dtype;
    int32_t rank; /* -1: not known */
    const int64_t *dims;
};

/** What a call that is for some rows has of a tensor. */
enum plan_form {
    PLAN_WHOLE, /* all of it: it is not divided */
    PLAN_ROWS,  /* its rows, in dimension 0 */
    PLAN_ROW,   /* its one row, without that dimension */
};

/** How a node runs for rows of its inputs. */
struct plan_rows {
    /* for as many calls as there are rows, or as the model needs; otherwise: of a switch */
    bool is_foreach;
    const bool *divided; /* [input_count] */
    uint32_t dim;        /* the rows are those of dimensions 0 to `dim` together */
    uint32_t max;        /* most rows */
    bool skips_empty;    /* without any row the node is skipped; otherwise its outputs have none */
    /* by plan_rows_settle */
    const uint8_t *inputs; /* [input_count] enum plan_form */
    const uint8_t *outputs;
    const int32_t *ranks;         /* [input_count] dimensions of the tensors that are divided */
    uint32_t per_call;            /* rows that a call has at most */
    const struct plan_type *made; /* [output_count] a row of each output */
};

/** What happens when a node fails. */
enum plan_error {
    PLAN_FAIL,     /* the request fails */
    PLAN_SKIP,     /* its outputs are null */
    PLAN_DEFAULT,  /* its outputs have the values of `defaults`, those without one are null */
    PLAN_FALLBACK, /* the node `fallback` runs instead */
};

/** A value that a tensor gets from the configuration: one element for each of its elements. */
struct plan_value {
    uint32_t tensor;
    const Millrace__WorkflowValue *value; /* of the configuration, which outlives the plan */
};

#define PLAN_RETRY_UNAVAILABLE 1u
#define PLAN_RETRY_TIMEOUT     2u

struct plan_node {
    mr_str name;    /* for messages */
    mr_str model;   /* "": an operator or switch */
    mr_str op_name; /* "": none */
    mr_str version; /* "": the one that the model gives by itself */
    const struct plan_port *inputs, *outputs;
    uint32_t input_count, output_count;
    const uint32_t *before; /* the nodes that it waits for, each once */
    const uint32_t *next;   /* the nodes that wait for it */
    uint32_t before_count, next_count;
    bool is_reachable;        /* all that it reads can be there */
    bool is_streaming;        /* its model gives several answers */
    struct mr_op *op;         /* an operator, not a model */
    const uint8_t *may_write; /* of an operator's inputs */
    /* ---- of a workflow ---- */
    struct mr_split
        *split;        /* its model is that of a variant; of the first, as far as `model` says */
    uint32_t variants; /* the node of variant 1, those of the others follow */
    uint32_t bucket;   /* the first split with the same key and salt */
    const uint32_t
        *branches;         /* of a switch: spares with `when`, of which the first that holds runs */
    uint32_t branch_count; /* 0: no switch */
    bool is_exhaustive;    /* a request for which none of them runs fails */
    bool has_else;         /* its last branch runs in any case */
    struct plan_rows *rows; /* it runs for rows; NULL: once */
    bool is_by_row;         /* a switch that divides the rows of its inputs among its branches */
    bool is_gather;         /* puts dimension 0 of its input at `axis` */
    uint32_t axis;
    bool is_copy;  /* has the ports of another node */
    bool is_spare; /* runs only when the node whose fallback it is fails */
    enum plan_error on_error;
    uint32_t fallback;    /* a spare node, or PLAN_NO_NODE */
    struct mr_expr *when; /* NULL = always */
    const struct plan_value *defaults;
    uint32_t default_count;
    uint32_t timeout_ms; /* 0 = none */
    uint32_t attempts;   /* at most, at least 1 */
    uint32_t retry_on;   /* PLAN_RETRY_* */
    uint32_t retry_percent;
    const struct mr_shadow_config *shadow; /* NULL: none */
    uint32_t hedge_percent;                /* second calls, of its calls; 0: none */
    uint32_t hedge_ms;                     /* after so much time, or */
    /* after the time that this share of its calls does not exceed; 0: hedge_ms */
    double hedge_quantile;
    const uint32_t *after; /* nodes that end first, besides the writers of its inputs */
    uint32_t after_count;
};

struct plan_tensor {
    mr_str name;
    uint32_t writer; /* a node, PLAN_CLIENT or PLAN_NO_NODE */
    /* by plan_check_members, as one of its users has it */
    int32_t dtype;
    int32_t rank; /* without the batch dimension */
    const int64_t *dims;
    mr_str user;           /* of whom that is: a model */
    bool has_batch;        /* of it: it has a batch dimension before `dims` */
    struct plan_type made; /* by the client or a model; what operators make is not here */
};

/** How many requests are under way; all 0: as many as there are. */
struct plan_admission {
    uint32_t max_open;  /* 0 = any number */
    uint64_t max_bytes; /* 0 = any number */
    uint32_t max_queue; /* requests that wait */
    bool rejects;       /* none waits */
};

struct plan {
    mr_str name;
    bool is_workflow;
    bool is_decoupled;
    bool has_splits;
    bool has_shadows;
    bool has_quantiles;     /* some node has a hedge_quantile */
    int32_t max_batch_size; /* 0 = its tensors have no batch dimension */
    uint32_t max_inflight;  /* requests of one node under way, 0 = any number */
    uint32_t node_count, tensor_count, input_count, output_count;
    struct plan_node *nodes;
    struct plan_tensor *tensors;
    uint32_t tensor_room;
    bool *input_is_optional;
    uint32_t *inputs;                  /* the tensors of the model's inputs, in their order */
    uint32_t *outputs;                 /* and of its outputs */
    const struct plan_value *defaults; /* of its outputs */
    uint32_t default_count;
    uint32_t deadline_ms; /* 0 = none */
    struct plan_admission admission;
    struct mr_arena arena;
    struct mr_map names; /* of tensors, to their number + 1 */
};

/** An empty plan with the inputs and outputs of `c`. Errors: MR_E_INVALID, MR_E_NOMEM. */
int plan_new(struct plan **out, const Inference__ModelConfig *c, struct mr_err *err);
void plan_free(struct plan **p);
/** The number of the tensor of that name, which is made if there is none. Errors: MR_E_INVALID (too many, too long a name),
 *  MR_E_NOMEM. */
int plan_tensor_of(struct plan *p, const char *name, uint32_t *out, struct mr_err *err);
/** Whether it is one of the outputs of the model itself. */
bool plan_is_output(const struct plan *p, uint32_t tensor);
/** Finds out which node waits for which, and marks the nodes that are reachable. Can be repeated when nodes wait for more. */
int plan_link(struct plan *p, struct mr_err *err);
/** The nodes in an order in which they can run, without spares; waits: [node_count] room. Returns their number. */
uint32_t plan_order(const struct plan *p, uint32_t *order, uint32_t *waits);
int plan_no_memory(const struct plan *p, struct mr_err *err);

/** ensemble.c: the plan of `ensemble_scheduling`, which has passed the checks of model/config.h. */
int plan_ensemble(struct plan **out, const Inference__ModelConfig *c, struct mr_err *err);

/** workflow.c: the plan of `workflow_scheduling`, linked, with what can be proved without its models: one writer for each tensor,
 *  all that is read is written, no cycle. `c` outlives the plan. Errors: MR_E_INVALID, MR_E_UNSUPPORTED, with the node and the
 *  tensor. */
int plan_workflow(struct plan **out, const Inference__ModelConfig *c, struct mr_err *err);
/** The rest of it, when the types of its tensors and the optional inputs are known (plan_check_members): operators,
 *  conditions, and proofs: no cycle by what conditions read, every output has a value or a default on every path. */
struct plan_ops_from;
int plan_workflow_finish(struct plan *p, const Inference__ModelConfig *c,
                         const struct plan_ops_from *ops, struct mr_err *err);

#endif
