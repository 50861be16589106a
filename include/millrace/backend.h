/* The backend ABI: the interface of a shared library that runs models inside Millrace.
 *
 * A backend is `libmillrace_<name>.so` exporting one function, `mr_backend_entry_v2`, which returns its table of
 * callbacks and receives the host's table of services. Both tables begin with their size and only grow at the end; a
 * side that receives a shorter table than it knows treats the missing slots as NULL. A struct that one side fills is
 * read by the other through a pointer, never copied into the reader's memory, so that a longer one cannot overrun it.
 * The requests of an execution are read with mr_exec_request_at, which uses the host's size. Other structs that
 * travel in arrays (mr_setting, mr_io_desc, mr_tensor) are frozen. A change that cannot be expressed that way gets a
 * new entry symbol.
 *
 * Objects, each a `void *` owned by the backend:
 *   backend    one per library            init ... fini
 *   model      one per loaded version     model_open ... model_close
 *   instance   one executor of a model    instance_open ... instance_close
 *
 * Threads: every callback may be called from any thread. The host never calls two callbacks of the
 * same object at once, except `cancel`; calls for different models, and for different instances of one
 * model (open, close and execute), run in parallel. init comes before and fini after all others.
 * Callbacks may block, except `execute` of a model that the host runs inline (MR_BACKEND_NO_INLINE
 * refuses that), which runs on a network thread and must only compute, and `cancel`.
 *
 * Answers. `execute` sets the outputs of all its requests and returns MR_OK, or returns MR_PENDING and
 * ends the execution later with `complete`, from any thread. In a decoupled execution (MR_EXEC_DECOUPLED)
 * each request gets 0 to n answers with `respond` instead, until it is final.
 *
 * Errors: callbacks return MR_OK or a negative enum mr_status and fill *err (never NULL). A failed
 * open leaks nothing. Output parameters are written on success only.
 *
 * Memory: everything passed in is borrowed for the call unless said otherwise.
 *
 * Changes: 2.0 (2026-11) executions that end later, several answers, sequences, kinds of memory and of
 * instances. Version 1 is no longer supported. 2.1 (2026-11) memory that later processes of a model find again. 2.2
 * (2026-11) calls: requests of a model to other models of the server. 2.3 (2026-11) loading and unloading other models,
 * metrics of a model's own. 2.4 (2026-11) data types of request parameters, timeouts of requests, what a
 * signature says about the scheduling of its model. 2.5 (2026-11) parameters of answers. 2.6
 * (2026-11) answers of calls that a descriptor announces, whether a configuration is completed. */
#ifndef MILLRACE_BACKEND_H
#define MILLRACE_BACKEND_H

#include <stddef.h>
#include <stdint.h>

#include "millrace/status.h"
#include "millrace/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

#define MR_BACKEND_ABI_MINOR 6
#define MR_BACKEND_ENTRY     "mr_backend_entry_v2"
#define MR_BACKEND_EXPORT    __attribute__((visibility("default")))

/* ---- descriptions by the host ------------------------------------------------------------------ */

/** One setting, both strings NUL-terminated UTF-8. */
struct mr_setting {
    const char *key;
    const char *value;
};

/** The state of a load, for the services load_*. Opaque. */
struct mr_loading;

#define MR_KEPT_MAX 4u

/** What the first process that opens a model version leaves to those that open it later, so that they map instead of
 *  reading. With `count` 0, model_open may store descriptors of files in memory (memfd_create) that are sealed against
 *  writing and any change of size (F_SEAL_WRITE, F_SEAL_SHRINK, F_SEAL_GROW, F_SEAL_SEAL); they belong to the host then,
 *  also if model_open fails. Otherwise these are the same files, in the same order, borrowed until model_open returns.
 *  The host counts their memory once for all processes. Frozen. */
struct mr_model_kept {
    uint32_t count; /* 0..MR_KEPT_MAX */
    int32_t fds[MR_KEPT_MAX];
};

/** A model version to open. `settings` holds the config's `parameters` map unchanged and, if the config has them,
 *  "optimization.graph.level" and "instance_group.count" (the sum over groups). */
struct mr_model_desc {
    uint32_t size; /* sizeof(struct mr_model_desc) of the host */
    uint32_t setting_count;
    const char *name;        /* model name */
    int64_t version;         /* >= 1 */
    const char *model_dir;   /* <repository>/<model> */
    const char *version_dir; /* <repository>/<model>/<version> */
    const char *model_file;  /* full path of the file or folder to load, which need not exist */
    const char *config_json; /* the ModelConfig before completion, with defaults; compact JSON */
    const struct mr_setting *settings;
    int32_t max_batch_size; /* from the config, -1 if not given */
    int32_t reserved;
    /** The model must not use files outside of this folder and of link_dirs, after resolving links. */
    const char *repository_dir;
    uint32_t load_flags; /* MR_LOAD_* */
    uint32_t reserved2;
    /** For the services load_*; valid until model_close. NULL: the load cannot be ended early. */
    struct mr_loading *loading;
    /** Further folders to which links may lead, terminated by NULL; NULL: none. */
    const char *const *link_dirs;
    /** NULL: the host keeps nothing (a model in a thread). */
    struct mr_model_kept *kept;
};
/** Other models are serving: the load should limit its use of disk and memory bandwidth. */
#define MR_LOAD_IN_BACKGROUND 1u
/** The configuration is not completed: what it lacks is an error, whatever the signature says. Since 2.6. */
#define MR_LOAD_AS_CONFIGURED 2u

/** An input or output, according to the model itself. `dims` has the batch dimension, if there is one, first; -1
 *  stands for any size. Strings and dims live until model_close. */
struct mr_io_desc {
    const char *name;
    const int64_t *dims;
    int32_t dtype;  /* enum mr_dtype */
    int32_t rank;   /* -1: unknown, any rank is accepted */
    uint32_t flags; /* MR_IO_* */
    uint32_t reserved;
};
/** The input need not be sent; the output is only there for a configuration that names it. */
#define MR_IO_OPTIONAL 1u

/** The inputs and outputs of a model; their order is the order of every `execute`. A backend that accepts any (such
 *  as identity) sets the counts to 0 and `from_config` to 1: names, types and order are then those of the config,
 *  passed to `model_configure`. */
struct mr_signature {
    uint32_t size; /* sizeof(struct mr_signature) of the side that fills it */
    uint32_t from_config;
    uint32_t input_count;
    uint32_t output_count;
    const struct mr_io_desc *inputs;
    const struct mr_io_desc *outputs;
    /** 1: the first dimension of every input and output is a free batch dimension, so that a batch of any size may
     *  run; 0: not so, a config with max_batch_size > 0 is refused; -1: unknown. */
    int32_t batchable;
    /** MR_BACKEND_NO_INLINE, MR_BACKEND_DETERMINISTIC, MR_BACKEND_NO_WARMUP and MR_BACKEND_DECOUPLED of this model,
     *  in addition to the backend's own; MR_BACKEND_IS_DECOUPLED and MR_BACKEND_DYNAMIC_BATCHING. */
    uint32_t flags;
    /** Executions of one instance that may be pending at once, 0 = 1; further requests wait in the queue. With more than 1 no
     *  request is quarantined after the death of its worker process: another one may be the cause. */
    uint32_t max_pending;
    /** The max_batch_size of a configuration that gives none, or 0: which of them, mr_model_desc.max_batch_size says. 0: the
     *  server's default, if `batchable` is 1 and none is given. Since 2.4. */
    uint32_t max_batch_size;
};

/** The memory of an opened model's parameters, for reports. */
struct mr_model_memory {
    uint32_t size;         /* sizeof(struct mr_model_memory) of the backend */
    uint32_t is_apart;     /* 1: mapped from a file, packed forms in a pool; 0: on the heap */
    uint64_t mapped_bytes; /* weights used from the mapped file */
    /* the part of these that requests read; the rest was released after packing */
    uint64_t kept_bytes;
    uint64_t packed_bytes;   /* in the pool */
    uint64_t heap_bytes;     /* packed forms that did not fit into the pool */
    const char *reason;      /* why they are on the heap, "" = no reason to report */
    uint64_t resident_bytes; /* part of kept and packed in memory when the model had been opened */
};

/* ---- one execution ---------------------------------------------------------------------------- */

/** Flags of a request that belongs to a sequence. */
#define MR_SEQUENCE_START 1u
#define MR_SEQUENCE_END   2u

/** What a request parameter was, whose value is passed as text: a number in decimal, "true" or "false". */
enum mr_parameter_kind {
    MR_PARAMETER_TEXT = 0,
    MR_PARAMETER_INT = 1,
    MR_PARAMETER_BOOL = 2,
    MR_PARAMETER_DOUBLE = 3
};

/** One request inside an execution. Its rows are rows [row_begin, row_begin + row_count) of every
 *  batched tensor. `inputs` is only set for backends with MR_BACKEND_PER_REQUEST. Grows at the end. */
struct mr_exec_request {
    const char *id; /* the client's request id, "" = none */
    int64_t row_begin;
    int64_t row_count;
    int64_t deadline_ns;                 /* CLOCK_MONOTONIC, 0 = none */
    const struct mr_setting *parameters; /* custom request parameters as text */
    uint32_t parameter_count;
    uint32_t sequence_flags;        /* MR_SEQUENCE_* */
    const struct mr_tensor *inputs; /* [input_count] or NULL */
    uint64_t correlation_id;        /* of its sequence, 0 = none or a text id */
    const char *correlation_text;   /* text id of its sequence, otherwise "" */
    /** [parameter_count] enum mr_parameter_kind; NULL: all are texts. Since 2.4. */
    const uint8_t *parameter_kinds;
    uint64_t timeout_us; /* that the client has set for the queue, 0 = none. Since 2.4. */
};

/** One call of the model: one request, or a batch of requests joined along dimension 0.
 *  Written by the host, except the two timestamps. */
struct mr_exec {
    uint32_t size;
    uint32_t input_count;   /* as in the signature */
    uint32_t output_count;  /* as in the signature */
    uint32_t request_count; /* >= 1 */
    /* [input_count]; dtype INVALID = an optional input that was not sent */
    const struct mr_tensor *inputs;
    const uint8_t *output_wanted; /* [output_count], 1 = requested */
    const struct mr_exec_request *requests;
    int64_t row_count; /* total rows of dimension 0; 0 for a model without batching */
    /** Optional timestamps set by the backend, CLOCK_MONOTONIC: inputs ready for the model, model done. They split
     *  the time into compute_input, compute_infer and compute_output. */
    int64_t infer_start_ns;
    int64_t infer_end_ns;
    uint32_t request_size; /* sizeof(struct mr_exec_request) of the host */
    uint32_t flags;        /* MR_EXEC_* */
};
/** Answers are sent with `respond`: the model is decoupled, and the backend has MR_BACKEND_DECOUPLED. */
#define MR_EXEC_DECOUPLED 1u

/** Request `index` of an execution. */
static inline const struct mr_exec_request *mr_exec_request_at(const struct mr_exec *exec,
                                                               uint32_t index)
{
    return (const struct mr_exec_request *)(const void *)((const char *)exec->requests +
                                                          (size_t)index * exec->request_size);
}

/** Returned by `execute` if the execution ends later, with `complete`. */
#define MR_PENDING 1
/** For is_cancelled: the execution as a whole. */
#define MR_ALL_REQUESTS UINT32_MAX

/** An answer under construction in a decoupled execution. Opaque. */
struct mr_response;
/** For `respond`: the last answer to the request. */
#define MR_RESPONSE_FINAL 1u

/* ---- calls: what a model asks other models ---- */

/** A request to a model of the server that runs. Opaque. */
struct mr_model_call;
/** A metric of the model's own. Opaque. */
struct mr_metric;

/** An input of a call. Frozen. */
struct mr_call_input {
    const char *name;
    struct mr_tensor tensor;
};

/** A request to another model; everything is borrowed until `call_begin` returns. */
struct mr_call_args {
    uint32_t size; /* sizeof(struct mr_call_args) of the backend */
    uint32_t input_count;
    const char *model;
    const char *version; /* a number, a label, or "": the newest */
    const char *id;      /* "" = none */
    const struct mr_call_input *inputs;
    const char *const *outputs; /* [output_count], those that are wanted; 0 = all */
    uint32_t output_count;
    uint32_t parameter_count;
    const struct mr_setting *parameters;
    uint64_t priority;            /* 0 = the model's default */
    uint64_t timeout_us;          /* in the model's queue, 0 = none */
    uint64_t correlation_id;      /* of its sequence, 0 = none or a text id */
    const char *correlation_text; /* text id of its sequence, otherwise "" */
    uint32_t sequence_flags;      /* MR_SEQUENCE_* */
    uint32_t reserved;
    /** [parameter_count] enum mr_parameter_kind; NULL: all are texts. Since 2.4. */
    const uint8_t *parameter_kinds;
};

/** An answer to a call. The host's, until `call_answer_drop`. */
struct mr_call_answer {
    uint32_t size;   /* sizeof(struct mr_call_answer) of the host */
    int32_t status;  /* MR_OK or a failure, after which no answer comes */
    int32_t is_last; /* 1: no answer comes after it; it may have no outputs */
    uint32_t output_count;
    const char *message;      /* of a failure, otherwise "" */
    const char *const *names; /* [output_count] */
    const struct mr_tensor *outputs;
    int64_t value; /* of MR_CONTROL_READY: 1 ready, 0 not */
    /** [parameter_count] that the model gave its answer (answer_parameters), and enum mr_parameter_kind. Since 2.5. */
    const struct mr_setting *parameters;
    const uint8_t *parameter_kinds;
    uint32_t parameter_count;
    uint32_t reserved;
};

enum mr_control_kind {
    MR_CONTROL_LOAD = 1, /* answered when the model is loaded, or why it is not */
    MR_CONTROL_UNLOAD,
    MR_CONTROL_READY /* an unknown model is not ready */
};
#define MR_CONTROL_DEPENDENTS 1u /* unload: models that only it uses, too */

/** A file of a load request: it takes the place of one in the model's folder. */
struct mr_control_file {
    const char *path; /* "1/model.onnx": <version>/<path> */
    const void *data;
    uint64_t bytes;
};

/** What a model asks of the server about another model; everything is borrowed until `control_begin` returns. */
struct mr_control_args {
    uint32_t size; /* sizeof(struct mr_control_args) of the backend */
    int32_t kind;  /* enum mr_control_kind */
    const char *model;
    const char *version; /* of MR_CONTROL_READY: a number, a label, or "": the newest */
    const char *config;  /* of a load: ModelConfig as JSON; NULL: that of the folder */
    const struct mr_control_file *files;
    uint32_t file_count; /* 0 without `config` */
    uint32_t flags;      /* MR_CONTROL_* */
};

enum mr_metric_kind { MR_METRIC_COUNTER = 0, MR_METRIC_GAUGE = 1, MR_METRIC_HISTOGRAM = 2 };

/** A time series of the server's GET /metrics. */
struct mr_metric_args {
    uint32_t size; /* sizeof(struct mr_metric_args) of the backend */
    int32_t kind;  /* enum mr_metric_kind */
    const char *name;
    const char *help;                /* that of the first metric of the name counts */
    const struct mr_setting *labels; /* [label_count] */
    const double *bounds; /* [bound_count], ascending: of a histogram's buckets, without +Inf */
    uint32_t label_count;
    uint32_t bound_count;
};

/** Called by the host exactly once, from any thread, when it no longer needs `data`; at the latest
 *  before model_close of the model, possibly after instance_close. */
typedef void(mr_release_fn)(void *ctx, void *data);

/** Services of the host. A backend's table is valid until the process ends. */
struct mr_host {
    uint32_t size; /* sizeof(struct mr_host) of the host */
    uint32_t abi_minor;

    /** Writes one line to the server's log. `host` is this table: each backend has its own, so that the line names
     *  the backend. level: 0 error, 1 warning, 2 info, 3 debug. Too frequent lines are dropped and counted. Thread:
     *  any. Blocks: no. */
    void (*log)(const struct mr_host *host, int level, const char *message);

    /** Allocates output `index` of an execution: row-major, `rank` dims all >= 0, batch dimension first. For a
     *  fixed-size dtype `byte_size` must agree with dtype and shape, or be 0, and the host computes it; for BYTES it
     *  is the whole encoded size. The memory is 64-byte aligned, uninitialised, and owned by the host, which sends
     *  the answer from it.
     *  Thread: any one at a time, until the execution ends. Errors: MR_E_INTERNAL (wrong index, dtype, dims or size, set twice, or a
     *  decoupled execution: the message names the output), MR_E_EXHAUSTED (no memory now). The backend should return them
     *  unchanged. Whether the shape is that of the signature is checked when the execution has ended. */
    int (*output)(struct mr_exec *exec, uint32_t index, int32_t dtype, int32_t rank,
                  const int64_t *shape, uint64_t byte_size, void **out_data, struct mr_err *err);

    /** Sets an output in the backend's own memory; the host sends from it and calls `release` afterwards (also if
     *  this function fails). `release` NULL: static memory; other memory counts as memory of requests until then. The
     *  data must be aligned for the element type. Thread, errors: as above. */
    int (*output_give)(struct mr_exec *exec, uint32_t index, const struct mr_tensor *tensor,
                       mr_release_fn *release, void *release_ctx, struct mr_err *err);

    /** Fails one request of a batch; the others are answered. Outputs still have all rows. In a decoupled execution
     *  it makes the request final, and does nothing to one that is; in others the last failure counts. message: may be NULL.
     *  Thread: as above. Errors: MR_E_INVALID (no such request, not a failure status). */
    int (*fail_request)(struct mr_exec *exec, uint32_t request, int status, const char *message);

    /** Returns 1 if the client of a request no longer waits; with MR_ALL_REQUESTS, if none of the clients does.
     *  Thread: any, until the execution ends. */
    int (*is_cancelled)(const struct mr_exec *exec, uint32_t request);

    /** Returns 1 if the load is no longer wanted: a newer request replaces it, or the server stops. A long model_open
     *  or instance_open should call it regularly and then return MR_E_CANCELLED. Thread: any, until that callback
     *  returns. Cheap: two loads. `loading` may be NULL. */
    int (*load_is_unwanted)(const struct mr_loading *loading);

    /** Reports the progress of model_open: `done` of `total` bytes over all steps, and the name of the step, a string
     *  that is valid as long as the library. `done` only grows, unless a load starts again.
     *  Thread: as above. Cheap: three stores. `loading` may be NULL. */
    void (*load_progress)(struct mr_loading *loading, const char *step, uint64_t done,
                          uint64_t total);

    /** Ends an execution for which `execute` returns or has returned MR_PENDING: exactly once, with MR_OK if all
     *  outputs are set, or with a failure of all its requests, whose message is in *err. `exec` is invalid
     *  afterwards. Makes all decoupled requests final. Thread: any. */
    void (*complete)(struct mr_exec *exec, int status, const struct mr_err *err);

    /** Begins an answer to one request of a decoupled execution. `respond` sends it, response_drop frees it. Thread:
     *  any, several at once. Errors: MR_E_INVALID (not decoupled, no such request), MR_E_EXHAUSTED. */
    int (*response_new)(struct mr_exec *exec, uint32_t request, struct mr_response **out,
                        struct mr_err *err);
    /** As `output` and `output_give`, for one of several answers. The first dimension is free. */
    int (*response_output)(struct mr_response *response, uint32_t index, int32_t dtype,
                           int32_t rank, const int64_t *shape, uint64_t byte_size, void **out_data,
                           struct mr_err *err);
    int (*response_give)(struct mr_response *response, uint32_t index,
                         const struct mr_tensor *tensor, mr_release_fn *release, void *release_ctx,
                         struct mr_err *err);
    void (*response_drop)(struct mr_response **response);
    /** Sends an answer (taken and set to NULL, also on failure). With `response` NULL and MR_RESPONSE_FINAL it ends
     *  the answers without another one. Every wanted output must be set. Blocks while the client has too many unread
     *  answers. Answers of one request are sent in the order of the calls. Thread: any, one at a time per request.
     *  Errors: MR_E_CANCELLED (the client no longer waits), MR_E_INVALID (the request is final), MR_E_INTERNAL (an
     *  output is missing or malformed). In a worker process a short answer is not waited for: an error of it is its
     *  request's, later. */
    int (*respond)(struct mr_exec *exec, uint32_t request, struct mr_response **response,
                   uint32_t flags, struct mr_err *err);

    /** Asks another model of the server, on behalf of an execution that has not ended and has no outputs set yet. The
     *  inputs are copied once. The other model runs like any request's: in its queue, with its batching. In worker
     *  processes only. Thread: any, several at once. Errors: MR_E_UNSUPPORTED (the model runs in a thread), MR_E_INVALID,
     *  MR_E_EXHAUSTED (too many calls, no shared memory now), MR_E_CANCELLED (the execution is cancelled). An unknown
     *  model, a refusal and a call that would wait for itself are errors of the answer. */
    int (*call_begin)(struct mr_exec *exec, const struct mr_call_args *args,
                      struct mr_model_call **out, struct mr_err *err);
    /** Waits for the next answer; timeout_ns 0: for as long as it takes. Thread: any, one at a time for a call. Errors:
     *  MR_E_DEADLINE (none in that time; the call goes on), MR_E_CLOSED (the last one has been taken). */
    int (*call_next)(struct mr_model_call *call, int64_t timeout_ns, struct mr_call_answer **out,
                     struct mr_err *err);
    /** Frees an answer and sets it to NULL. A model of many answers goes on when earlier ones are dropped. */
    void (*call_answer_drop)(struct mr_call_answer **answer);
    /** Ends a call, which is cancelled if its last answer has not come, and sets it to NULL. Answers that have been taken stay
     *  until they are dropped. */
    void (*call_end)(struct mr_model_call **call);

    /** Asks the server to load or unload another model, or whether it is ready: as a client's request for that would, with
     *  the same rules (--model-control-mode, --load-overrides). Has one answer, by call_next and call_end; with the last of
     *  these it goes on without the caller. In worker processes of models in Python only. Thread: any; from callbacks
     *  that load or close the model, their own thread only. Errors: MR_E_UNSUPPORTED (the model runs in a thread),
     *  MR_E_INVALID, MR_E_TOO_LARGE (config and files: 64 MiB together), MR_E_EXHAUSTED. */
    int (*control_begin)(const struct mr_control_args *args, struct mr_model_call **out,
                         struct mr_err *err);

    /** A metric of the model's own; one of the same name and labels is shared by all instances and all models that ask for
     *  it, and lasts until the last of these models is unloaded. Blocks until the server has answered. Thread: as
     *  control_begin. Errors: MR_E_UNSUPPORTED, MR_E_INVALID (a name or label that Prometheus does not allow, or that
     *  the server's own metrics use; another kind or buckets than the family has), MR_E_EXHAUSTED (too many). */
    int (*metric_new)(const struct mr_metric_args *args, struct mr_metric **out,
                      struct mr_err *err);
    /** Adds to a counter (>= 0) or gauge; counts a value in a histogram. Without a system call. Thread: any. */
    void (*metric_add)(struct mr_metric *metric, double value);
    /** Sets a gauge. Thread: any. */
    void (*metric_set)(struct mr_metric *metric, double value);
    /** Value of a counter or gauge, number of values in a histogram. Thread: any. */
    double (*metric_value)(const struct mr_metric *metric);
    /** Frees the reference, not the metric, and sets it to NULL. Thread: any. */
    void (*metric_drop)(struct mr_metric **metric);

    /** Parameters of the answer to one request, beside its outputs: 64 at most, with 16 KiB of names and values in UTF-8.
     *  With `response` NULL of the only answer, of an execution that is not decoupled; otherwise of that one of several, which
     *  has not been sent. kinds: [count] enum mr_parameter_kind; NULL: all are texts. They are copied, and replace earlier
     *  ones. Thread: as `output` and response_output. Errors: MR_E_INVALID, MR_E_TOO_LARGE, MR_E_EXHAUSTED. Since 2.5. */
    int (*answer_parameters)(struct mr_exec *exec, uint32_t request, struct mr_response *response,
                             const struct mr_setting *list, const uint8_t *kinds, uint32_t count,
                             struct mr_err *err);

    /** Writes `token`, 8 bytes in the host's order, to fd once: when call_next would not wait, but never after call_end has
     *  returned. Returns 1, and does not write, if call_next would not wait now. A second request before the write takes
     *  the place of the first. fd: borrowed; a pipe that does not block, with room for the tokens of all calls. Thread: any.
     *  Errors: MR_E_EXHAUSTED (no thread). Since 2.6. */
    int (*call_notify)(struct mr_model_call *call, int fd, uint64_t token, struct mr_err *err);
};

/* ---- the backend's interface ------------------------------------------------------------------ */

/** Instances are cheap and share the model (weights, session): the host may open as many as it likes,
 *  on its network threads too. Without it the host opens exactly the instances of instance_group. */
#define MR_BACKEND_CHEAP_INSTANCES 1u
/** Never run on a network thread, however fast (the backend may block, take locks or crash). */
#define MR_BACKEND_NO_INLINE 2u
/** Equal inputs give equal outputs, bit by bit: an instance keeps nothing of one execution that another depends on. */
#define MR_BACKEND_DETERMINISTIC 4u
/** Requires each request's own tensors in mr_exec_request.inputs; `mr_exec.inputs` is then NULL for more than one
 *  request, or where rows of no request come before it (the places of other sequences), and nothing is concatenated.
 *  Outputs have mr_exec.row_count rows all the same. */
#define MR_BACKEND_PER_REQUEST 8u
/** No warm-up with generated requests: executions have side effects, or are too expensive for a load. */
#define MR_BACKEND_NO_WARMUP 16u
/** Sends answers with `respond` if the model's config makes it decoupled. Without this flag a decoupled model gives
 *  one answer to each request. */
#define MR_BACKEND_DECOUPLED 32u
/** Of a signature that is not from_config: a configuration that does not say it is completed with a decoupled
 *  model_transaction_policy. Since 2.4. */
#define MR_BACKEND_IS_DECOUPLED 64u
/** Likewise: with dynamic_batching, unless it has a scheduling choice. Since 2.4. */
#define MR_BACKEND_DYNAMIC_BATCHING 128u

/** The device of an instance; the numbers are those of Triton's ModelInstanceGroup `Kind`. */
enum mr_instance_kind {
    MR_INSTANCE_AUTO = 0,
    MR_INSTANCE_GPU = 1,
    MR_INSTANCE_CPU = 2,
    MR_INSTANCE_MODEL = 3
};

/** An instance to open. */
struct mr_instance_desc {
    uint32_t size;  /* sizeof(struct mr_instance_desc) of the host */
    uint32_t index; /* from 0 within the model */
    int32_t kind;   /* enum mr_instance_kind, of its group in the config */
    int32_t device_id;
    const char *name; /* of its group */
};

struct mr_backend {
    uint32_t size; /* set by the backend: sizeof(struct mr_backend) it was built with */
    uint32_t abi_minor;
    uint32_t flags; /* MR_BACKEND_* */
    uint32_t reserved;
    const char *name;    /* static, as in libmillrace_<name>.so */
    const char *version; /* static, for reports: of the backend and the library that it wraps */

    /** (optional) Called once, before all others. settings: `--backend-config=<name>,key=value`.
     *  An unknown key is an error that names it. */
    int (*init)(const struct mr_setting *settings, uint32_t setting_count, void **out_backend,
                struct mr_err *err);
    /** (optional) Last call; all models are closed. */
    void (*fini)(void *backend);

    /** Loads a model. May take long; several models may be opened at once. An unknown setting with the backend's
     *  prefix is an error; other unknown settings belong to the user and are ignored. */
    int (*model_open)(void *backend, const struct mr_model_desc *desc, void **out_model,
                      struct mr_err *err);
    void (*model_close)(void *model);
    /** Describes the opened model; *out is valid until model_close. */
    int (*model_signature)(void *model, const struct mr_signature **out, struct mr_err *err);

    /** (optional) Opens an instance. */
    int (*instance_open)(void *model, const struct mr_instance_desc *desc, void **out_instance,
                         struct mr_err *err);
    void (*instance_close)(void *instance);

    /** Runs one execution and sets every wanted output exactly once through the host's services. Returns MR_OK,
     *  MR_PENDING (it ends with `complete`, perhaps before this returns), or a failure of every request of it. At
     *  most one call per instance at a time, and at most signature.max_pending executions pending. Without
     *  instance_open, `instance` is the model. */
    int (*execute)(void *instance, struct mr_exec *exec, struct mr_err *err);

    /** (optional) Bytes of memory that the model occupies, for statistics. */
    uint64_t (*model_bytes)(void *model);
    /** (optional) For a model whose signature is from_config: passes the inputs and outputs of the completed config,
     *  in the order of every `execute`. Called once, before any instance_open. A negative result refuses the config. */
    int (*model_configure)(void *model, const struct mr_signature *signature, struct mr_err *err);
    /** (optional) Describes the memory of the parameters; *out is valid until model_close. */
    const struct mr_model_memory *(*model_memory)(void *model);
    /** (optional) The clients of all requests of an execution are gone: the backend should end it early, with any
     *  status. Called while `execute` runs or the execution is pending, at most once for each, concurrently with
     *  other callbacks of the instance. Not called for clients that were gone before `execute` began: a backend that
     *  relies on `cancel` must check is_cancelled once, after it has made the execution visible to `cancel`. Must not
     *  block. */
    void (*cancel)(void *instance, struct mr_exec *exec);
};

/** The one exported symbol. Stores `host`, checks host->abi_minor if it needs a newer one, and returns its own table,
 *  which must be valid until the library is unloaded. */
typedef int(mr_backend_entry_fn)(const struct mr_host *host, const struct mr_backend **out,
                                 struct mr_err *err);

MR_BACKEND_EXPORT int mr_backend_entry_v2(const struct mr_host *host, const struct mr_backend **out,
                                          struct mr_err *err);

#ifdef __cplusplus
}
#endif
#endif
