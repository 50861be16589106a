/* The backend ABI: what a shared library must offer to run models inside Millrace.
 *
 * A backend is `libmillrace_<name>.so` exporting one function, `mr_backend_entry_v2`, which gives
 * its table of callbacks. The host hands it a table of services. Both tables begin with their size;
 * they only ever grow at the end, and a side that meets a shorter table than it knows treats the
 * missing slots as NULL. A struct that one side fills is read by the other through a pointer, never
 * written into the reader's memory, so that a longer one cannot overrun it. The requests of an
 * execution are read with mr_exec_request_at, which uses the size that the host states. Other structs
 * that travel in arrays (mr_setting, mr_io_desc, mr_tensor) are frozen. A change that cannot be
 * expressed that way gets a new entry symbol.
 *
 * Objects, each a `void *` of the backend's own:
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
 * open leaves nothing behind. Output parameters are written on success only.
 *
 * Memory: everything passed in is borrowed for the call unless said otherwise.
 *
 * Changes: 2.0 (2026-11) executions that end later, several answers, sequences, kinds of memory and of
 * instances. Version 1 is not loaded any more. */
#ifndef MILLRACE_BACKEND_H
#define MILLRACE_BACKEND_H

#include <stddef.h>
#include <stdint.h>

#include "millrace/status.h"
#include "millrace/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

#define MR_BACKEND_ABI_MINOR 0
#define MR_BACKEND_ENTRY     "mr_backend_entry_v2"
#define MR_BACKEND_EXPORT    __attribute__((visibility("default")))

/* ---- what the host describes ------------------------------------------------------------------ */

/** One setting, both strings NUL-terminated UTF-8. */
struct mr_setting {
    const char *key;
    const char *value;
};

/** What a backend and the host tell each other while a model is loaded; the host's own. */
struct mr_loading;

/** A model version to open. `settings` holds the config's `parameters` map as it is, and these of
 *  the host, when the config says them: "optimization.graph.level", "instance_group.count" (the
 *  sum over groups). */
struct mr_model_desc {
    uint32_t size; /* sizeof(struct mr_model_desc) of the host */
    uint32_t setting_count;
    const char *name;        /* model name */
    int64_t version;         /* >= 1 */
    const char *model_dir;   /* <repository>/<model> */
    const char *version_dir; /* <repository>/<model>/<version> */
    const char *model_file;  /* full path of the file or folder to load; it need not exist */
    const char *config_json; /* the ModelConfig as known before completion, JSON */
    const struct mr_setting *settings;
    int32_t max_batch_size; /* from the config, -1 when it does not say */
    int32_t reserved;
    /** Nothing outside of this folder and of link_dirs is the model's, links resolved. */
    const char *repository_dir;
    uint32_t load_flags; /* MR_LOAD_* */
    uint32_t reserved2;
    /** For the services load_*; it lives until model_close. NULL: the load cannot be ended early. */
    struct mr_loading *loading;
    /** Folders that links may lead to as well, ended with NULL; NULL: none. */
    const char *const *link_dirs;
};
/** Others are served meanwhile: do not take the disk and the memory's bandwidth for yourself. */
#define MR_LOAD_IN_BACKGROUND 1u

/** What a model reads or writes, from the model itself. `dims` has the batch dimension, if there is
 *  one, first; -1 stands for any size. Strings and dims live until model_close. */
struct mr_io_desc {
    const char *name;
    const int64_t *dims;
    int32_t dtype;  /* enum mr_dtype */
    int32_t rank;   /* -1: not known, any rank goes */
    uint32_t flags; /* MR_IO_* */
    uint32_t reserved;
};
#define MR_IO_OPTIONAL 1u /* the model runs without this input */

/** The inputs and outputs of a model; their order is the order of every `execute`. A backend without
 *  an opinion (such as identity) gives io counts of 0 and `from_config` 1: the config's names, types
 *  and order rule, and `model_configure` tells them. */
struct mr_signature {
    uint32_t size; /* sizeof(struct mr_signature) of whoever fills it */
    uint32_t from_config;
    uint32_t input_count;
    uint32_t output_count;
    const struct mr_io_desc *inputs;
    const struct mr_io_desc *outputs;
    /** 1: the first dimension of every input and output is a free batch dimension, so that a batch of
     *  any size may run; 0: it is not, and a config with max_batch_size > 0 is refused; -1: unknown. */
    int32_t batchable;
    /** MR_BACKEND_NO_INLINE, MR_BACKEND_DETERMINISTIC, MR_BACKEND_NO_WARMUP and MR_BACKEND_DECOUPLED of this
     *  model, beside the backend's own. */
    uint32_t flags;
    /** Executions of one instance that may be pending at once, 0 = 1; further requests wait in the queue. */
    uint32_t max_pending;
    uint32_t reserved;
};

/** Where an opened model keeps its parameters, for reports. */
struct mr_model_memory {
    uint32_t size;           /* sizeof(struct mr_model_memory) of the backend */
    uint32_t is_apart;       /* 1: mapped from a file, packed forms in a pool; 0: on the heap */
    uint64_t mapped_bytes;   /* weights that are used from the mapped file */
    uint64_t kept_bytes;     /* of these, what requests read; the rest was given up once packed */
    uint64_t packed_bytes;   /* in the pool */
    uint64_t heap_bytes;     /* packed forms for which the pool had no room */
    const char *reason;      /* why they are on the heap, "" = nothing to say */
    uint64_t resident_bytes; /* of kept and packed, in memory when the model had been opened */
};

/* ---- one execution ---------------------------------------------------------------------------- */

/** Marks of a request that belongs to a sequence. */
#define MR_SEQUENCE_START 1u
#define MR_SEQUENCE_END   2u

/** One request inside an execution. Its rows are rows [row_begin, row_begin + row_count) of every
 *  batched tensor. `inputs` is only set for backends with MR_BACKEND_PER_REQUEST. Grows at the end. */
struct mr_exec_request {
    const char *id; /* the client's request id, "" when there is none */
    int64_t row_begin;
    int64_t row_count;
    int64_t deadline_ns;                 /* CLOCK_MONOTONIC, 0 = none */
    const struct mr_setting *parameters; /* custom request parameters as text */
    uint32_t parameter_count;
    uint32_t sequence_flags;        /* MR_SEQUENCE_* */
    const struct mr_tensor *inputs; /* [input_count] or NULL */
    uint64_t correlation_id;        /* of its sequence, 0 = none or a text */
    const char *correlation_text;   /* of its sequence when the client uses text, otherwise "" */
};

/** One call of the model: one request, or a batch of requests joined along dimension 0.
 *  Written by the host, except the two marks. */
struct mr_exec {
    uint32_t size;
    uint32_t input_count;           /* as in the signature */
    uint32_t output_count;          /* as in the signature */
    uint32_t request_count;         /* >= 1 */
    const struct mr_tensor *inputs; /* [input_count]; dtype INVALID = optional input not sent */
    const uint8_t *output_wanted;   /* [output_count], 1 = somebody asked for it */
    const struct mr_exec_request *requests;
    int64_t row_count; /* rows of dimension 0 in all; 0 for a model without batching */
    /** Optional marks of the backend, CLOCK_MONOTONIC: inputs ready for the model, model done.
     *  They split the time into compute_input, compute_infer and compute_output. */
    int64_t infer_start_ns;
    int64_t infer_end_ns;
    uint32_t request_size; /* sizeof(struct mr_exec_request) of the host */
    uint32_t flags;        /* MR_EXEC_* */
};
/** Answers go out with `respond`: the model is decoupled, and the backend has MR_BACKEND_DECOUPLED. */
#define MR_EXEC_DECOUPLED 1u

/** Request `index` of an execution. */
static inline const struct mr_exec_request *mr_exec_request_at(const struct mr_exec *exec,
                                                               uint32_t index)
{
    return (const struct mr_exec_request *)(const void *)((const char *)exec->requests +
                                                          (size_t)index * exec->request_size);
}

/** What `execute` returns when the execution ends later, with `complete`. */
#define MR_PENDING 1
/** For is_cancelled: the execution as a whole. */
#define MR_ALL_REQUESTS UINT32_MAX

/** One of several answers to a request, while it is made; the host's own. */
struct mr_response;
/** Of `respond`: no further answer to the request comes. */
#define MR_RESPONSE_FINAL 1u

/** Called by the host exactly once, from any thread, when it no longer needs `data`; at the latest
 *  before model_close of the model, possibly after instance_close. */
typedef void(mr_release_fn)(void *ctx, void *data);

/** Services of the host. The table of a backend stays where it is for as long as the process lives. */
struct mr_host {
    uint32_t size; /* sizeof(struct mr_host) of the host */
    uint32_t abi_minor;

    /** Write one line to the server's log; `host` is this table, which is each backend's own, so
     *  that the line says whose it is. level: 0 error, 1 warning, 2 info, 3 debug. Lines that come
     *  in floods are dropped and counted. Thread: any. Blocks: no. */
    void (*log)(const struct mr_host *host, int level, const char *message);

    /** Ask for the place of output `index` of an execution: row-major, `rank` dims all >= 0, batch
     *  dimension first. For a fixed-size dtype `byte_size` must be what dtype and shape say, or 0 to
     *  let the host compute it; for BYTES it is the whole encoded size. The memory is 64-byte
     *  aligned, uninitialised, and belongs to the host; the answer is sent from it.
     *  Thread: any one at a time, until the execution ends. Errors: MR_E_INTERNAL (wrong index, dtype, shape or size, or set twice:
     *  the sentence names the output), MR_E_EXHAUSTED (no memory now). Pass them on as they are. */
    int (*output)(struct mr_exec *exec, uint32_t index, int32_t dtype, int32_t rank,
                  const int64_t *shape, uint64_t byte_size, void **out_data, struct mr_err *err);

    /** Give an output that the backend made in its own memory; the host sends from there and calls
     *  `release` afterwards (also when this function fails). `release` NULL: static memory; other memory counts
     *  as memory of requests until then.
     *  The data need no more alignment than the element type. Thread, errors: as above. */
    int (*output_give)(struct mr_exec *exec, uint32_t index, const struct mr_tensor *tensor,
                       mr_release_fn *release, void *release_ctx, struct mr_err *err);

    /** Fail one request of a batch; the others are answered. Outputs still have all rows. In a decoupled
     *  execution the request is final with it. Thread: as above. Errors: MR_E_INVALID (no such request, no
     *  status of a failure). */
    int (*fail_request)(struct mr_exec *exec, uint32_t request, int status, const char *message);

    /** 1 when the client of a request, or with MR_ALL_REQUESTS the client of each of them, does not wait any
     *  more. Thread: any, until the execution ends. */
    int (*is_cancelled)(const struct mr_exec *exec, uint32_t request);

    /** 1 when the load is not wanted any more: a newer request has taken its place, or the server stops.
     *  What takes long in model_open and instance_open asks now and then, and returns MR_E_CANCELLED.
     *  Thread: any, until the call that asks returns. Cheap: two loads. `loading` may be NULL. */
    int (*load_is_unwanted)(const struct mr_loading *loading);

    /** How far model_open is: `done` of `total` bytes to go through, all steps together, and the name of the
     *  step, a string that lives as long as the library. `done` grows, but where a load begins anew.
     *  Thread: as above. Cheap: three stores. `loading` may be NULL. */
    void (*load_progress)(struct mr_loading *loading, const char *step, uint64_t done,
                          uint64_t total);

    /** End an execution for which `execute` returns or has returned MR_PENDING: exactly once, with MR_OK when
     *  all outputs are set, or with a failure of all its requests, whose sentence is in *err. `exec` is gone
     *  afterwards. Decoupled requests that are not final yet are final with it. Thread: any. */
    void (*complete)(struct mr_exec *exec, int status, const struct mr_err *err);

    /** Begin an answer to one request of a decoupled execution. Send it with `respond`, or drop it with
     *  response_drop. Thread: any, several at once. Errors: MR_E_INVALID (not decoupled, no such request),
     *  MR_E_EXHAUSTED. */
    int (*response_new)(struct mr_exec *exec, uint32_t request, struct mr_response **out,
                        struct mr_err *err);
    /** As `output` and `output_give`, for an answer of its own. Its first dimension is free. */
    int (*response_output)(struct mr_response *response, uint32_t index, int32_t dtype,
                           int32_t rank, const int64_t *shape, uint64_t byte_size, void **out_data,
                           struct mr_err *err);
    int (*response_give)(struct mr_response *response, uint32_t index,
                         const struct mr_tensor *tensor, mr_release_fn *release, void *release_ctx,
                         struct mr_err *err);
    void (*response_drop)(struct mr_response **response);
    /** Send an answer (taken and set to NULL, also on failure), or with `response` NULL and
     *  MR_RESPONSE_FINAL say that no more comes. Every wanted output must be set. Blocks while the client
     *  has too many answers to read. Answers of one request are sent in the order of the calls. Thread: any,
     *  one at a time per request. Errors: MR_E_CANCELLED (the client does not wait any more), MR_E_INVALID
     *  (the request is final), MR_E_INTERNAL (an output is missing or malformed). */
    int (*respond)(struct mr_exec *exec, uint32_t request, struct mr_response **response,
                   uint32_t flags, struct mr_err *err);
};

/* ---- what the backend offers ------------------------------------------------------------------ */

/** Instances are cheap and share the model (weights, session): the host may open as many as it likes,
 *  on its network threads too. Without it the host opens what instance_group says and no more. */
#define MR_BACKEND_CHEAP_INSTANCES 1u
/** Never run on a network thread, however fast (the backend may block, take locks or crash). */
#define MR_BACKEND_NO_INLINE 2u
/** Equal inputs give equal outputs, bit by bit. */
#define MR_BACKEND_DETERMINISTIC 4u
/** Wants each request's own tensors in mr_exec_request.inputs; `mr_exec.inputs` is then NULL for
 *  more than one request, and nothing is concatenated. */
#define MR_BACKEND_PER_REQUEST 8u
/** Do not run made-up requests to warm up: executions have effects beside their outputs, or cost what
 *  a load should not pay for. */
#define MR_BACKEND_NO_WARMUP 16u
/** Sends answers with `respond` when the model's config says that it is decoupled. Without it a decoupled
 *  model gives one answer to each request. */
#define MR_BACKEND_DECOUPLED 32u

/** What an instance runs on; the numbers are those of Triton's ModelInstanceGroup `Kind`. */
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
    const char *version; /* static, for humans: of the backend and what it wraps */

    /** (optional) Once, before anything else. settings: `--backend-config=<name>,key=value`.
     *  An unknown key is an error that names it. */
    int (*init)(const struct mr_setting *settings, uint32_t setting_count, void **out_backend,
                struct mr_err *err);
    /** (optional) Last call; all models are closed. */
    void (*fini)(void *backend);

    /** Load a model. May take long; several models may be opened at once. An unknown setting that belongs to this backend by its prefix is
     *  an error; other unknown settings are the user's own and ignored. */
    int (*model_open)(void *backend, const struct mr_model_desc *desc, void **out_model,
                      struct mr_err *err);
    void (*model_close)(void *model);
    /** Describe the opened model; what *out points to stays valid until model_close. */
    int (*model_signature)(void *model, const struct mr_signature **out, struct mr_err *err);

    /** (optional) Make an executor. */
    int (*instance_open)(void *model, const struct mr_instance_desc *desc, void **out_instance,
                         struct mr_err *err);
    void (*instance_close)(void *instance);

    /** Run one execution and set every wanted output exactly once through the host's services. Returns
     *  MR_OK, MR_PENDING (it ends with `complete`, perhaps before this returns), or a failure of every
     *  request of it. At most one call per instance at a time, and at most signature.max_pending
     *  executions pending. Without instance_open, `instance` is the model. */
    int (*execute)(void *instance, struct mr_exec *exec, struct mr_err *err);

    /** (optional) Bytes that the model keeps in memory, for statistics. */
    uint64_t (*model_bytes)(void *model);
    /** (optional) For a model whose signature is from_config: the inputs and outputs that the finished
     *  config declares, in the order of every `execute`. Called once, before any instance_open. A
     *  negative return refuses the config. */
    int (*model_configure)(void *model, const struct mr_signature *signature, struct mr_err *err);
    /** (optional) Where the parameters are; what it gives lives until model_close. */
    const struct mr_model_memory *(*model_memory)(void *model);
    /** (optional) The clients of all requests of an execution are gone: end it early, with whatever status. Called while
     *  `execute` runs or the execution is pending, at most once for each, beside other callbacks of the
     *  instance. Of clients that went before `execute` began only is_cancelled tells: who waits for `cancel` asks it once,
     *  when `cancel` can find the execution. Must not block. */
    void (*cancel)(void *instance, struct mr_exec *exec);
};

/** The one exported symbol. Keeps `host`, checks host->abi_minor if it needs a newer one, and gives
 *  its own table, which stays valid until the library is unloaded. */
typedef int(mr_backend_entry_fn)(const struct mr_host *host, const struct mr_backend **out,
                                 struct mr_err *err);

MR_BACKEND_EXPORT int mr_backend_entry_v2(const struct mr_host *host, const struct mr_backend **out,
                                          struct mr_err *err);

#ifdef __cplusplus
}
#endif
#endif
