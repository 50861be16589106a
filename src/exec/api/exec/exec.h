/* The executor: what runs a model, seen from the scheduler. A plugin in this process is one; a worker process
 * and a workflow are others.
 *
 * An execution starts with mr_executor_execute. It ends at once, or later on any thread, and gives one answer for
 * all of its requests together or, if it is decoupled, any number of answers for each of them. Outputs are checked
 * here, as they are set, against the executor's signature: the code that runs the model is not trusted. */
#ifndef MR_EXEC_EXEC_H
#define MR_EXEC_EXEC_H

#include <stdatomic.h>
#include <stdbool.h>

#include "base/arena.h"
#include "base/err.h"
#include "base/mailbox.h"
#include "base/pool.h"
#include "millrace/backend.h"

struct mr_executor;
struct mr_execution;
struct mr_feed;
struct mr_infer;

/** A model that is being loaded: the questions its backend may ask and the progress it reports (backend.h). Goes
 *  into mr_model_desc.loading; does not move until the executor is closed. */
struct mr_loading {
    /** Thread: any. */
    bool (*is_unwanted)(const struct mr_loading *l);
    /** (may be NULL) Step, done or total have changed. Thread: the backend's. */
    void (*on_progress)(struct mr_loading *l);
    _Atomic(const char *) step; /* NULL = none reported */
    _Atomic uint64_t done;
    _Atomic uint64_t total;
};

/** Flag of an error: an output has another number of rows than the batch. Not sent to clients. */
#define MR_ERR_ROWS 0x80000000u

/** Flag of an error: the process that ran the execution died, possibly because of one of its requests. Not sent to
 *  clients. */
#define MR_ERR_LOST 0x40000000u

/** Flag beside MR_ERR_LOST: the execution had one request, and each process that ran it died or hung on its own. Not
 *  sent to clients. */
#define MR_ERR_POISON 0x20000000u

/** Flag of an error: the execution has not begun, as it was cancelled, came too late, or found no process. Not sent to
 *  clients. */
#define MR_ERR_NOT_RUN 0x08000000u

/* ---- executors ---- */

/** The operations of an executor. Threads and blocking: as for the callbacks of the same names in backend.h. */
struct mr_executor_ops {
    /** All instances are closed. Outputs that are still being sent stay valid: they have memory of their own, or
     *  this waits for them. Thread: none that sends outputs. */
    void (*close)(struct mr_executor *e);
    /** Sets names and order of a signature that is from_config; `s` is checked and copied. Called before any
     *  instance is opened. Errors: MR_E_INVALID (the model has a signature of its own, or `s` breaks a rule), the
     *  backend's. */
    int (*configure)(struct mr_executor *e, const struct mr_signature *s, struct mr_err *err);
    /** Bytes that the model keeps in memory. Thread: any. */
    uint64_t (*bytes)(const struct mr_executor *e);
    /** Where its parameters are; all 0, the size as well, and "" if unknown. */
    struct mr_model_memory (*memory)(const struct mr_executor *e);
    int (*instance_open)(struct mr_executor *e, const struct mr_instance_desc *desc, void **out,
                         struct mr_err *err);
    void (*instance_close)(struct mr_executor *e, void *instance);
    /** (may be NULL) All instances are open and warmed up. Called once, before any other execution than warm-ups. */
    void (*warmed)(struct mr_executor *e);
    /** MR_OK (outputs are set), a failure, or MR_PENDING: mr_execution_complete is called once, perhaps before
     *  this returns. */
    int (*execute)(struct mr_executor *e, struct mr_execution *x, struct mr_err *err);
    /** (may be NULL: always) True if it can run executions now or in a moment. Thread: any; cheap. */
    bool (*is_ready)(const struct mr_executor *e);
    /** (may be NULL) A number for what an instance keeps between executions: another one says that it is lost. 0: nothing
     *  is lost, or nothing kept. Thread: any; cheap. */
    uint64_t (*life)(const struct mr_executor *e, const void *instance);
    /** (may be NULL) As `cancel` in backend.h. */
    void (*cancel)(struct mr_executor *e, struct mr_execution *x);
    /** (may be NULL: no) Outputs of ended executions are still being sent from memory of the model's: `close` would wait
     *  for them. Thread: any; cheap. */
    bool (*is_sending)(const struct mr_executor *e);
    /** (may be NULL) There are no more executions: begins to end what takes long to. True once that has ended, for which
     *  closing waits; until then it is called again. Thread: the one that closes. */
    bool (*wind_down)(struct mr_executor *e);
    /** (may be NULL: no) Whether `execute` refers to an input that lies there, and does not copy it. Thread: any; cheap. */
    bool (*has_place)(const struct mr_executor *e, const struct mr_tensor *input);
};

/** One loaded model version. Embedded in the implementation's struct, which creates it (mr_plugin_model_open). */
struct mr_executor {
    const struct mr_executor_ops *ops;
    const char *backend; /* names, for messages */
    const char *model;
    /** Names non-empty and distinct, dtypes valid, ranks 0..MR_MAX_RANK or -1, dims >= -1; `flags` has the
     *  backend's flags too. Empty while from_config has not been settled by `configure`. */
    const struct mr_signature *signature;
    /** `execute` only passes the execution on: it neither computes nor waits, and may be called by any thread. */
    bool hands_over;
    /** An execution of several requests has no parameters and no sequence: those with any do not join others. */
    bool lone_parameters;
    /** Memory from which inputs reach the model without a copy; NULL: any. The second one is for bodies that clients
     *  send at their own pace. Lives as long as the executor; its blocks may live longer. */
    const struct mr_block_provider *inputs, *bodies;
    /** Set by the executor: batches should have no more rows, 0 = as many as the model can. Relaxed. */
    _Atomic uint32_t rows_max;
};

/** A checked copy of a signature in one block (mr_free) that follows the rules above. flags: added to its own.
 *  status: the error code of a broken rule; who: the start of its message, such as "backend 'x'". */
int mr_signature_copy(struct mr_signature **out, const struct mr_signature *s, uint32_t flags,
                      int status, const char *who, struct mr_err *err);
static inline bool mr_executor_is_ready(const struct mr_executor *e)
{
    return !e->ops->is_ready || e->ops->is_ready(e);
}
/** Closes *e and sets it to NULL. *e may be NULL. */
void mr_executor_close(struct mr_executor **e);
/** Closes an instance and sets it to NULL. It may be NULL. */
void mr_executor_instance_close(struct mr_executor *e, void **instance);

/* ---- outputs ---- */

/** One output. Rows of a batch are slices of `tensor`. */
struct mr_exec_output {
    bool is_set;
    struct mr_tensor tensor; /* its shape is in the arena */
    struct mr_block *block;  /* owner of tensor.data; NULL: the arena */
};

/** Where the outputs of an execution, or of one answer of several, are gathered. */
struct mr_exec_outputs {
    struct mr_executor *executor;
    struct mr_exec_output *list; /* [signature->output_count], zeroed at first */
    struct mr_arena *arena;      /* shapes, and outputs of up to 8 KiB */
    /* of the memory of all outputs; NULL: the arena and the heap */
    const struct mr_block_provider *provider;
    int64_t row_count; /* required first dimension of each; 0 = any */
};

/** The service `output` of backend.h: the memory of an output. */
int mr_exec_output_place(struct mr_exec_outputs *o, uint32_t index, int32_t dtype, int32_t rank,
                         const int64_t *shape, uint64_t byte_size, void **out_data,
                         struct mr_err *err);
/** MR_OK if a tensor may be output `index`; sets nothing. Errors: as `output_give` of backend.h. */
int mr_exec_output_check(const struct mr_exec_outputs *o, uint32_t index, const struct mr_tensor *t,
                         struct mr_err *err);
/** Set an output to a checked tensor; the shape is copied. Takes `block` (NULL: data live for ever) on success.
 *  Errors: MR_E_EXHAUSTED. */
int mr_exec_output_set(struct mr_exec_outputs *o, uint32_t index, const struct mr_tensor *t,
                       struct mr_block *block, struct mr_err *err);
/** The error of output `index` for which there is no memory: MR_E_EXHAUSTED, retryable. */
int mr_exec_output_no_memory(const struct mr_exec_outputs *o, uint32_t index, uint64_t bytes,
                             struct mr_err *err);
/** Releases all outputs. */
void mr_exec_outputs_drop(struct mr_exec_outputs *o);

/* ---- parameters of answers ---- */

/** Beside the outputs; checked. In an arena. */
struct mr_answer_parameters {
    const struct mr_setting *list;
    const uint8_t *kinds; /* [count] enum mr_parameter_kind; NULL: all are texts */
    uint32_t count;
};
#define MR_ANSWER_PARAMETERS_MAX  64u
#define MR_ANSWER_PARAMETER_BYTES 16384u /* names and values */
/** Sets them to a copy in the arena. kinds NULL: all are texts. Errors: MR_E_INVALID (too many, no UTF-8, a value that is not
 *  of its kind), MR_E_TOO_LARGE, MR_E_EXHAUSTED. */
int mr_answer_parameters_set(struct mr_answer_parameters *to, struct mr_arena *arena,
                             const struct mr_setting *list, const uint8_t *kinds, uint32_t count,
                             struct mr_err *err);

/* ---- executions ---- */

/** One of several answers to a request. Its holder owns it and frees it with mr_response_free. */
struct mr_response {
    struct mr_mail mail; /* its receiver's */
    struct mr_response *next;
    void *user;
    struct mr_exec_outputs outputs;
    struct mr_arena arena;
    struct mr_answer_parameters parameters;
    uint32_t request;
    bool is_final; /* the last answer; it may have no outputs: outputs.list NULL */
};
/** Thread: any. */
void mr_response_free(struct mr_response **r);

/** Models that wait for each other: each has called the next one. */
#define MR_CALL_DEPTH_MAX 16
struct mr_call_chain {
    uint32_t depth;
    uint64_t models[MR_CALL_DEPTH_MAX]; /* mr_hash of their names, the first one first */
};

/** No network loop waits for an execution. */
#define MR_NO_LOOP UINT32_MAX

/** One execution, prepared by the scheduler. Memory, outputs and callbacks are the caller's; it does not move until
 *  it ends. Zeroed at first. */
struct mr_execution {
    struct mr_exec exec;
    struct mr_exec_outputs outputs; /* list, arena; the rest is set here. Not used when decoupled */
    void *instance;
    struct mr_err *err; /* gets the error of an execution that was pending */
    /** (may be NULL) True if a request that is not over, or every such request (MR_ALL_REQUESTS), was cancelled. Thread: any. */
    bool (*is_cancelled)(const struct mr_execution *x, uint32_t request);
    /** (may be NULL) One request failed; `message` is not NULL. Thread: the executor's, one at a time. */
    void (*fail_request)(struct mr_execution *x, uint32_t request, int status, const char *message);
    /** Decoupled executions: takes an answer on success. The request may be over with its final one, as with its failure: what is
     *  in `exec` stays. Blocks while the client has too many unread answers; with
     *  on_room it returns MR_PENDING instead. Errors: MR_E_CANCELLED, MR_E_INVALID (the request is final). Thread: any, one
     *  at a time per request. */
    int (*respond)(struct mr_execution *x, struct mr_response *response, struct mr_err *err);
    /** (may be NULL) For an executor that cannot wait, set by its execute: an answer for which there was no room may be
     *  offered again. Called once for each MR_PENDING, perhaps before that is returned, also if the request was
     *  cancelled. The execution does not end before this has returned. Thread: any. Must not block. */
    void (*on_room)(struct mr_execution *x);
    /** [exec.request_count], in the arena of the outputs; NULL: no answer has any. Not used when decoupled. */
    struct mr_answer_parameters *parameters;
    /** The execution was pending and has ended with `status`. Thread: any. */
    void (*on_done)(struct mr_execution *x);
    int status;
    bool is_suspect; /* a process died with its requests: one attempt, not two */
    bool is_bound;   /* `instance` itself runs it, although others could */
    uint64_t life;   /* the only one of the instance that may run it; 0 = any */
    void *user;
    /* of the callers of its requests that are not over, NULL: clients' */
    const struct mr_call_chain *chain;
    /** The scheduler's requests, [exec.request_count], NULL for one that is over: what was asked for, for executors that ask
     *  others on their behalf. Those of a warm-up have no reply loop. */
    struct mr_infer *const *infers;
    struct mr_feed *feed;   /* (may be NULL) further messages for its only request; borrowed */
    uint32_t loop;          /* which waits for the end, and on which it is best ended; MR_NO_LOOP */
    _Atomic(void *) handle; /* the executor's, for its cancel */
    /* ---- private ---- */
    _Atomic uint32_t holders; /* execute, complete, cancels that go on; 0 = it does not run */
};

/** Runs an execution. MR_OK: every wanted output is set, has a valid shape, and, if exec.row_count > 0, its first
 *  dimension equals row_count. Failure: no output is set. MR_PENDING: x->on_done is called once, perhaps before this
 *  returns. Thread: the instance's caller. Errors: the backend's own; MR_E_INTERNAL naming the output when the
 *  backend broke the contract. */
int mr_executor_execute(struct mr_executor *e, struct mr_execution *x, struct mr_err *err);
/** For executors: ends a pending execution. err may be NULL with MR_OK. x may be freed before this returns. Thread:
 *  any. */
void mr_execution_complete(struct mr_execution *x, int status, const struct mr_err *err);
/** Keeps x from ending until mr_execution_cancel. False: it is not running, or its executor has no cancel. Thread: any; the
 *  caller ensures that x exists. */
bool mr_execution_hold(struct mr_execution *x);
/** Cancels x at the executor and ends the hold. At most once for an execution; may call x->on_done. Thread: the
 *  holder. */
void mr_execution_cancel(struct mr_execution *x);

/** The answer to a request of x, which is not decoupled, has these parameters. Thread: as for outputs. Errors: as
 *  mr_answer_parameters_set. */
int mr_execution_parameters(struct mr_execution *x, uint32_t request, const struct mr_setting *list,
                            const uint8_t *kinds, uint32_t count, struct mr_err *err);

static inline struct mr_execution *mr_execution_of(const struct mr_exec *exec)
{
    return (struct mr_execution *)(uintptr_t)exec; /* its first member */
}

/** The services of backend.h for several answers. */
int mr_response_new(struct mr_execution *x, uint32_t request, struct mr_response **out,
                    struct mr_err *err);
/** MR_PENDING (with on_room only): *response is set for the next attempt, already before on_room is called. */
int mr_execution_respond(struct mr_execution *x, uint32_t request, struct mr_response **response,
                         uint32_t flags, struct mr_err *err);

#endif
