/* The executor of ensembles and workflows. */
#ifndef FLOW_EXEC_H
#define FLOW_EXEC_H

#include <pthread.h>
#include <stdatomic.h>
#include <sys/queue.h>

#include "engine/engine.h"
#include "flow/plan/plan.h"
#include "flow/run/pace.h"
#include "flow/run/run.h"
#include "flow/run/tail.h"

struct call;
struct fan;
struct stream;

/* In walk.signals: reasons to look that are no end of a call. */
#define FLOW_NUDGE (UINT64_C(1) << 32)

/* Parameters of requests and answers; see trace.c. */
#define FLOW_TRACE  "workflow.trace"
#define FLOW_STRICT "workflow.strict"
#define FLOW_STATUS "workflow.status"

/** What a trace knows of a node. */
struct walk_trace {
    int64_t start_ns, end_ns; /* 0: it did not run */
    uint32_t calls;           /* of models, with repetitions */
    uint32_t by;              /* the node + 1 that ran for it */
    mr_str model;             /* that was asked */
    mr_str inner;             /* its own trace, if it is a workflow; in the arena of its call */
};

/** The executions of a node and their repetitions, which are at most a percentage of these. */
struct flow_retries {
    _Atomic uint64_t runs, repeats;
};

/** The calls of a node with `hedge`, and their second calls. Relaxed. */
struct flow_hedges {
    _Atomic uint64_t runs, extra, won, refused;
};

/** How often a node did not simply run, by enum run_outcome. Relaxed. */
struct flow_outcomes {
    _Atomic uint64_t of[RUN_FELL_BACK + 1];
};

/** Runs of a node's operator. Relaxed. */
struct flow_op_runs {
    _Atomic uint64_t runs, failed;
};

struct mr_shadow;
struct mr_shadow_stats;
struct flow_shadow {
    struct mr_shadow *shadow; /* NULL: the node has none */
    _Atomic uint64_t spread;  /* which calls are copied */
};

struct flow {
    struct mr_executor executor;
    struct mr_engine *engine;
    struct plan *plan;
    struct mr_signature *signature;
    char *model;                    /* its name */
    Inference__ModelConfig *config; /* to which the plan of a workflow refers */
    struct flow_retries *retries;   /* [plan->node_count] */
    struct flow_hedges *hedges;     /* the same */
    struct flow_outcomes *outcomes; /* the same */
    struct flow_op_runs *op_runs;   /* the same */
    struct flow_shadow *shadows;    /* the same; NULL: no node has one */
    struct flow_admit *admit;       /* NULL: requests are not limited */
    struct pace *paces;             /* the same: durations of calls that ended well */
    struct tails tails;             /* what follows the nodes, of late */
    _Atomic uint32_t looks;         /* requests with a deadline; relaxed */
    /** Asks the model of a call's node: flow_call_ask, and of tests their own, which sets outputs by flow_call_output. MR_OK: it has
     *  ended; MR_PENDING: flow_call_ended is called; negative: it has failed. */
    int (*ask)(struct call *c, struct mr_err *err);
    /* Guards mr_execution.handle of requests without a loop, whose cancel and end may come on two threads. Held while a
     * cancel is noted. */
    pthread_mutex_t handles;
};

/** One request. Everything is touched by one thread at a time: that of the reply loop; without one, by whoever finds
 *  `signals` at 0. */
struct walk {
    struct run run;
    struct flow *flow;
    struct mr_execution *x;
    struct mr_infer *asked;
    struct mr_arena arena;
    int64_t deadline_ns;          /* of the workflow or the client, 0 = none */
    struct call *calls;           /* all of them, until the walk ends */
    _Atomic(struct call *) ended; /* that have ended since they were last looked at */
    /* reasons to look that are not dealt with: ends of calls, and FLOW_NUDGE of others */
    _Atomic uint64_t signals;
    uint64_t seen;             /* of the ends of calls, those that were signalled and dealt with */
    uint64_t taken;            /* calls that were in `ended` */
    _Atomic bool is_cancelled; /* the request is */
    uint32_t *buckets;         /* [node_count] of splits, plus 1; 0: not drawn yet */
    uint8_t *chosen;           /* [node_count] the variant of a split, plus 1; 0: none */
    int64_t *split_ns;         /* [node_count] when it was first asked; 0: not yet, or counted */
    struct held *shadowed;     /* copies for shadows */
    struct call *gate;         /* of a walk that has waited for its admission */
    uint64_t credit_bytes;     /* of its tensors, for its admission */
    TAILQ_ENTRY(walk) in_waiting;
    bool is_waiting;          /* in that list, whose lock guards it */
    bool is_admitted;         /* and counted */
    bool is_parked;           /* no node runs yet */
    struct walk_trace *trace; /* [node_count], NULL: it was not asked for */
    int64_t begun_ns;         /* with a trace: when the walk began */
    bool has_tails;           /* a node's time ends before what usually follows it */
    bool has_paces;           /* durations of its calls are counted */
    bool has_cancelled;       /* and its calls were */
    bool is_begun;            /* execute has returned, as seen by who looks */
    /* of an execution with several answers, see stream_call.c */
    struct stream *streams; /* calls that give them, the innermost first */
    uint32_t stream_count;
    bool has_streamed;
    bool has_ended;           /* the last answer has left */
    struct mr_response *held; /* that could not leave yet */
    _Atomic bool waits_for_room;
    struct mr_mail room;
    uint8_t *marks; /* [node_count] room */
};

struct call_input {
    mr_str name; /* of the model's input */
    struct mr_tensor tensor;
};

/** A request of a walk to the model of a node. */
struct call {
    struct mr_infer infer;
    struct mr_infer_args args;
    struct mr_arena arena;
    struct mr_reply_timer timer;
    struct walk *walk;
    struct call *next;     /* of walk->calls */
    struct call *next_end; /* of walk->ended */
    uint32_t node;
    uint32_t attempt;                /* of the node, from 1 */
    const struct call_input *inputs; /* that have a value; NULL: not made yet */
    uint32_t input_count;
    struct fan *fan; /* it is for rows [row, row + rows) of that; NULL: for all of the node */
    uint64_t row, rows;
    struct call *repeats, *again; /* the attempt before, and after */
    /* of a node with `hedge`: what there is to know; NULL: there is no second call */
    struct hedge *hedge;
    struct call *first;    /* of a second call */
    struct stream *stream; /* of a model with several answers; NULL: with one */
    bool is_pending;
    bool is_late; /* its time was over while it ran, and it was cancelled */
    void (*take)(
        struct call
            *c); /* (may be NULL: a request to a model) its end, in place of that of a request */
};

/* ---- executor.c ---- */
/** A call of the walk has ended. Thread: any. */
void flow_walk_signal(struct walk *w, struct call *c);
/** Something else has happened that the walk looks for. A call of it goes on. Thread: any. */
void flow_walk_nudge(struct walk *w);
/** Sets output `index` of an answer. Errors: MR_E_INVALID (it has no value), MR_E_EXHAUSTED. */
int flow_walk_output(struct walk *w, struct mr_exec_outputs *o, uint32_t index, struct mr_err *err);

extern const struct mr_executor_ops flow_executor_ops;

/* ---- counts.c ---- */
/** A walk with nodes that did not simply run is over, or, with marks, that part of it. */
void flow_outcomes_count(const struct walk *w, const uint8_t *marks);

/* ---- shadow_call.c ---- */
void flow_shadows_open(struct flow *f);
void flow_shadows_close(struct flow *f);
/** A call of a graph with shadows has ended, and was not released: its inputs and outputs are kept, if it is chosen. */
void flow_shadow_take(struct call *c);
/** What was kept runs. The walk is over. */
void flow_shadows_run(struct walk *w);
/** All 0 of a node without a shadow. Thread: any. */
struct mr_shadow_stats flow_shadow_stats(const struct flow *f, uint32_t node);

/* ---- call.c ---- */
/** run_start_fn: asks the node's model. */
int flow_call_start(struct run *r, uint32_t node, struct mr_err *err);
/** A call, which the walk frees. */
struct call *flow_call_new(struct walk *w, uint32_t node, uint32_t attempt);
/** Makes a call that has ended, and whose outputs are used no more, a new one. */
void flow_call_reset(struct call *c);
/** As flow->ask: by requests to the engine. */
int flow_call_ask(struct call *c, struct mr_err *err);
/** An output of the node that a call is for, by its index in the node. Takes a reference to `block`, which may be NULL. Errors:
 *  those of fan_call_output. */
int flow_call_output(struct call *c, uint32_t output, const struct mr_tensor *t,
                     struct mr_block *block, struct mr_err *err);
/** Repeats an attempt that has failed with `rc`, as often as that is allowed. As flow->ask. */
int flow_call_repeat(struct call *c, int rc, struct mr_err *err);
/** Asks for a call once: MR_OK: it has ended, its outputs are set; MR_PENDING; or its failure. */
int flow_call_try(struct call *c, struct mr_err *err);
/** Passes the end of a call's request to its walk. Thread: any. */
void flow_call_signal(struct call *c);
/** A call that was pending has ended. */
void flow_call_ended(struct call *c, int rc, const struct mr_err *err);
/** The call has ended: its outputs become the walk's tensors. */
void flow_call_take(struct call *c);
/** Releases the request of a call that has ended. Its failure, or that of its outputs. */
int flow_call_finish(struct call *c, struct mr_err *err);
/** Outputs of the call's model, in the backend's order, become the walk's tensors. NULL: there are none. */
int flow_call_outputs(struct call *c, const struct mr_exec_output *list, struct mr_err *err);
/** Cancels it, if it is pending. */
void flow_call_cancel(struct call *c);
void flow_call_free(struct call *c);

/* ---- time.c ---- */
/** The deadline of a new walk. */
void flow_time_begin(struct walk *w);
/** That of a call that begins, from infer.times.received. Errors: MR_E_DEADLINE. */
int flow_time_of(struct call *c, struct mr_err *err);
/** The call is pending: it ends when its time is over. */
void flow_time_watch(struct call *c);
/** The call has ended: no timer any more. Its status; what was cancelled because its time was over has MR_E_DEADLINE. */
int flow_time_over(struct call *c);
/** When c->timer is to run; 0 = not at all. */
void flow_call_timer(struct call *c, int64_t at_ns);

/* ---- op_call.c ---- */
/** A run of the node's operator, which the walk frees. */
struct call *flow_op_new(struct walk *w, uint32_t node);
/** As flow->ask: runs it, at once or in a turn of the reply loop. */
int flow_op_ask(struct call *c, struct mr_err *err);

/* ---- foreach_call.c ---- */
/** As run_start_fn: runs a node with `foreach`. */
int flow_foreach_start(struct walk *w, uint32_t node, struct mr_err *err);
/** The shape that output `tensor` of such a node has for the rows that it was to run for; rank -1: there are none, or they
 *  are not known. Sets the
 *  shape and the rank. Errors, of a node that was not skipped: MR_E_INVALID (too many, or not as many), MR_E_EXHAUSTED. */
int flow_foreach_shape(struct walk *w, uint32_t node, uint32_t tensor, struct mr_tensor *out,
                       struct mr_err *err);
/** Makes input i, a whole tensor that such a node divides, one with all of its rows in dimension 0. *io_rows: as many as those before have,
 *  or UINT64_MAX; *out_lead: [dim + 1] the dimensions that together are the rows. Errors: MR_E_INVALID, naming node and tensor;
 *  MR_E_EXHAUSTED. */
int flow_foreach_input(struct walk *w, uint32_t node, uint32_t i, uint64_t *io_rows,
                       struct mr_tensor *io, const int64_t **out_lead, struct mr_err *err);
/** Errors: MR_E_INVALID: more rows than the node has a 'max' for. */
int flow_foreach_max(const struct walk *w, uint32_t node, uint64_t rows, struct mr_err *err);
/** Gives a tensor with rows in dimension 0 the dimensions `lead` in place of that. Errors: MR_E_INVALID, MR_E_EXHAUSTED. */
int flow_foreach_whole(struct walk *w, const int64_t *lead, uint32_t dim, struct mr_tensor *io,
                       struct mr_err *err);
/** How long dimension i of output `output` is, beyond those of the rows: as the model or the workflow has it; an open one is 1 long. */
int64_t flow_foreach_length(const struct plan *p, uint32_t node, uint32_t output, int32_t i);
/** Output `output` as the plan has it, with these first dimensions and without data. Errors: MR_E_EXHAUSTED. */
int flow_foreach_made(struct walk *w, uint32_t node, uint32_t output, const int64_t *lead,
                      struct mr_tensor *out, struct mr_err *err);

/* ---- gather_call.c ---- */
int flow_gather_start(struct walk *w, uint32_t node, struct mr_err *err);

/* ---- switch_call.c ---- */
/** The same for a switch per row. */
int flow_switch_start(struct walk *w, uint32_t node, struct mr_err *err);

/* ---- split_call.c ---- */
/** Room for what a walk notes of its splits, if there are any. */
int flow_splits_begin(struct walk *w, struct mr_err *err);
/** The node whose model the call asks: its own, or one of its variants, which is noted. */
const struct plan_node *flow_split_choose(struct call *c);
/** The node has ended with `status`: if it asked a variant of its split, it counts for that one, however many calls it made. */
void flow_split_end(struct walk *w, uint32_t node, int status);
/** Variants of the marked nodes are forgotten, for the next answer. */
void flow_splits_forget(struct walk *w, const uint8_t *marks);

/* ---- trace.c ---- */
/** Reads what the request asks of the workflow itself, after run_begin. Errors: MR_E_INVALID, MR_E_EXHAUSTED. */
int flow_asked_read(struct walk *w, struct mr_err *err);
/** For walks with a trace: the node begins; it, or a call of it, ends. */
void flow_trace_begin(struct walk *w, uint32_t node);
void flow_trace_end(struct walk *w, uint32_t node);
/** The same: what the call asked and was answered, before mr_engine_end. */
void flow_trace_call(struct call *c);
/** "ran", "skipped", …; of enum run_outcome. */
const char *flow_outcome_name(uint8_t outcome);
/** The parameters of an answer, in the arena, or of the failure if a trace was asked for. */
void flow_answer_set(const struct walk *w, struct mr_arena *arena,
                     struct mr_answer_parameters *out);
/** What a trace knows of the marked nodes is forgotten. */
void flow_trace_forget(struct walk *w, const uint8_t *marks);

/* ---- value.c ---- */
/** A header of the client's request, whatever the case of the name; ptr NULL: there is none. */
mr_str flow_header(const struct walk *w, mr_str name);
int flow_when(struct run *r, uint32_t node, struct mr_err *err);
/** Whether it holds for each of `rows`: out_mask[row]. */
int flow_when_rows(struct run *r, uint32_t node, uint64_t rows, uint8_t *out_mask,
                   struct mr_err *err);
int flow_value(struct run *r, const struct plan_value *v, struct mr_err *err);
/** Data for a tensor of which io has the type and the shape: the value for each element. *out_block: the owner. */
int flow_value_fill(struct walk *w, const struct plan_value *v, struct mr_tensor *io,
                    struct mr_block **out_block, struct mr_err *err);

/* ---- tensor.c ---- */
/** Sets output `index` of an answer of the walk's execution. */
int flow_tensor_output(const struct flow *f, struct mr_exec_outputs *o, uint32_t index,
                       const struct run_value *v, struct mr_err *err);

#endif
