/* Shared by the files of the ONNX Runtime backend. Private to the backend.
 *
 *   backend.c    entry, settings of the backend, the environment
 *   threads.c    threads of ONNX Runtime's pools
 *   message.c    ONNX Runtime's texts without C++
 *   versions.c   models that are newer than this build
 *   types.c      conversion of status and element types
 *   options.c    model settings -> session options
 *   signature.c  session metadata -> signature
 *   session.c    making a session, which can be cancelled
 *   low.c        loads that yield to requests
 *   model.c      open and close
 *   external.c   files that a model file refers to
 *   fields.c     reading protobuf from a file
 *   parameters.c and its own files, see parameters.h: weights outside of the heap
 *   probe.c      whether a small model gains from the thread pool
 *   instance.c   reusable state of one executor; staged bindings for small models
 *   execute.c    one execution
 *   strings.c    BYTES <-> string tensors
 *   zipmap.c     sequence of maps -> matrix */
#ifndef MR_ONNX_ONNX_H
#define MR_ONNX_ONNX_H

#include <onnxruntime_c_api.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

#include "millrace/backend_util.h"

/* The oldest ONNX Runtime whose interface is used: 1.21. */
#define ONNX_API_VERSION 21

/* ---- the backend (backend.c) ---- */

struct onnx_backend {
    OrtEnv *env;
    OrtMemoryInfo *cpu;      /* plain host memory; for tensors over borrowed bytes */
    OrtAllocator *allocator; /* ONNX Runtime's default; for names and elements of sequences */
    int64_t intra_threads;   /* of the global pool, or of each session without one */
    int64_t inter_threads;
    int use_global_pool;
    int allow_spinning;
    int can_tell_shape;       /* TensorTypeAndShape_HasShape exists (1.24) */
    int can_cancel_load;      /* SessionOptionsSetLoadCancellationFlag exists (1.22) */
    int has_read_only_memory; /* packed weights may have an allocator of their own (1.23) */
    struct onnx_parameters_host *parameters;
};

extern const struct mr_host *onnx_host;
extern const OrtApi *onnx_api;

/* ---- types.c ---- */

/* Releases the status; MR_OK for NULL. The message is the cleaned one (message.h). */
int onnx_check(OrtStatus *status, struct mr_err *err);
/* As above, with "context: " before the message. */
int onnx_check_in(OrtStatus *status, struct mr_err *err, const char *context);
/* MR_DTYPE_INVALID if the protocol has no such type. */
int onnx_dtype(ONNXTensorElementDataType type);
const char *onnx_type_name(ONNXTensorElementDataType type);
/* Bytes of an element, 0 for strings. */
size_t onnx_element_bytes(int dtype);
/* Product of the dims times `unit`; false on overflow or a negative dim. */
int onnx_shape_bytes(const int64_t *dims, int32_t rank, size_t unit, uint64_t *out);

/* Sets `rc` and jumps to `out` if ONNX Runtime returns an error. */
#define ONNX_TRY(call)                                                                             \
    do {                                                                                           \
        if ((rc = onnx_check(onnx_api->call, err)) < 0)                                            \
            goto out;                                                                              \
    } while (0)

/* ---- threads.c ---- */

/* A thread of that name with the ordinary scheduling class and CPUs, not the caller's; NULL: none could be created. */
OrtCustomThreadHandle onnx_thread_make(const char *name, OrtThreadWorkerFn work, void *param);
OrtCustomThreadHandle onnx_thread_start(void *options, OrtThreadWorkerFn work, void *param);
void onnx_thread_join(OrtCustomThreadHandle thread);
/* CPUs that the process may use, at least 1. */
int64_t onnx_cpu_count(void);

/* ---- models ---- */

enum onnx_kind {
    ONNX_KIND_TENSOR, /* numbers: bytes are passed unchanged */
    ONNX_KIND_STRING,
    ONNX_KIND_ZIPMAP, /* outputs only: sequence(map(K, float)) */
};

struct onnx_io {
    enum onnx_kind kind;
    ONNXTensorElementDataType type;
    int has_batch;           /* dimension 0 is free, the others are fixed, and kind is TENSOR */
    int is_fixed;            /* all dimensions are fixed, and kind is TENSOR */
    uint64_t row_bytes;      /* has_batch: of one row; is_fixed: of all */
    char *batch_symbol;      /* name of the free first dimension, NULL when it has none */
    struct mr_io_desc *desc; /* in onnx_model.inputs / outputs */
};

/* True if outputs may be bound to memory of a precomputed size. */
enum onnx_bind {
    ONNX_BIND_UNKNOWN, /* the first execution finds out */
    ONNX_BIND_YES,
    ONNX_BIND_NO, /* the model's output shapes differ from its declaration */
};

struct onnx_model {
    struct onnx_backend *backend;
    OrtSession *session;
    struct onnx_parameters *parameters; /* NULL: on the heap */
    char *name;
    struct mr_signature signature;
    struct mr_io_desc *inputs;
    struct mr_io_desc *outputs;
    struct onnx_io *in;
    struct onnx_io *out;
    uint32_t input_count;
    uint32_t output_count;
    char *shrink_arena; /* run option memory.enable_memory_arena_shrinkage, NULL = off */
    uint64_t bytes;
    struct mr_model_memory memory;
    char memory_reason[sizeof((struct mr_err *)0)->msg];
    int has_loop;
    int rows_agree;   /* the free first dimensions of inputs and outputs have one name */
    int can_stage;    /* every tensor is small and has_batch or is_fixed */
    _Atomic int bind; /* enum onnx_bind; relaxed: a stale value costs one slower or failed run */
};

static inline int64_t onnx_now_ns(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

/* low.c */

struct onnx_low;
/* Runs work(ctx) in a thread of low priority and waits for it; returns what it returns. *out_gave_up: it was
 * stopped, as it had waited for a CPU for longer than `patience_ns` in total, and failed. */
int onnx_low_run(int (*work)(void *ctx), void *ctx, int64_t patience_ns, int *out_gave_up);
/* The work of this thread, NULL = an ordinary thread. */
const struct onnx_low *onnx_low_here(void);
/* As onnx_thread_make, for a low-priority thread: the thread that waits for it creates the new one. */
OrtCustomThreadHandle onnx_low_thread(const char *name, OrtThreadWorkerFn work, void *param);
/* True if the model is no longer wanted, or if the work (may be NULL) should end. Thread: any. */
int onnx_give_up(const struct mr_loading *loading, const struct onnx_low *low);

/* session.c */

/* NULL: the load cannot be cancelled. */
static inline struct mr_loading *onnx_loading(const struct mr_model_desc *desc)
{
    return desc->size >= offsetof(struct mr_model_desc, loading) + sizeof desc->loading
               ? desc->loading
               : NULL;
}
/* True if other models are serving. */
static inline int onnx_in_background(const struct mr_model_desc *desc)
{
    return desc->size >= offsetof(struct mr_model_desc, load_flags) + sizeof desc->load_flags &&
           (desc->load_flags & MR_LOAD_IN_BACKGROUND);
}
/* Makes a session. `loading` not NULL: it may take long, and ends early if the model is no longer wanted. Errors:
 * MR_E_CANCELLED, ONNX Runtime's. */
struct onnx_source {
    const char *path;
    const void *model; /* its content; NULL: it is read from `path` */
    size_t bytes;
};
int onnx_session_create(struct onnx_backend *b, const struct onnx_source *source,
                        OrtSessionOptions *options, struct mr_loading *loading, OrtSession **out,
                        struct mr_err *err);

/* Defaults that depend on the size of the file (model.c). */
struct onnx_defaults {
    int is_tiny;     /* keep the session small */
    int caller_only; /* no thread pool */
    int is_ort;      /* ONNX Runtime's own format */
};

/* 0 for a file in ONNX Runtime's own format, which refers to no other, and whose operators are not read. */
struct onnx_contents {
    uint32_t external; /* references to other files */
    int has_loop;      /* the values of an input may say how long an execution lasts */
};
/* external.c: checks that the file and all files it refers to are inside the repository. */
int onnx_files_check(const struct mr_model_desc *desc, const char *file, uint64_t bytes,
                     struct onnx_contents *out, struct mr_err *err);
/* True if the file is read as ONNX Runtime's own format, which is not protobuf: by its name, as ONNX Runtime decides. */
int onnx_is_ort_name(const char *file);
/* versions.c: if the model was refused as too new, *err names its versions, the supported ones, and how to convert
 * it. */
void onnx_versions_explain(struct onnx_backend *b, const char *path, uint64_t bytes,
                           struct mr_err *err);
/* options.c */
int onnx_options_make(struct onnx_model *m, const struct mr_model_desc *desc,
                      const struct onnx_defaults *defaults, OrtSessionOptions **out,
                      struct mr_err *err);
/* True if the settings leave the choice of threads to the backend, and there is a choice. */
int onnx_options_may_choose(const struct onnx_backend *b, const struct mr_model_desc *desc);
/* probe.c: after the signature was read. */
int onnx_model_wants_pool(const struct onnx_model *m, const struct mr_model_desc *desc);
/* signature.c: fills inputs, outputs and signature from the session. */
int onnx_signature_read(struct onnx_model *m, const struct mr_model_desc *desc, struct mr_err *err);
void onnx_signature_free(struct onnx_model *m);

/* model.c: the callbacks of the table. */
int onnx_model_open(void *backend, const struct mr_model_desc *desc, void **out_model,
                    struct mr_err *err);
void onnx_model_close(void *model);
int onnx_model_signature(void *model, const struct mr_signature **out, struct mr_err *err);
uint64_t onnx_model_bytes(void *model);
const struct mr_model_memory *onnx_model_memory(void *model);

/* ---- instances ---- */

#define ONNX_PLAN_ROWS   8     /* batches up to this size get a staged plan */
#define ONNX_PLAN_TENSOR 8192  /* largest staged tensor in bytes */
#define ONNX_PLAN_BYTES  32768 /* all staged tensors of one plan */

/* Values over memory of the instance and a binding of them, for one number of rows: a run needs no
 * value to be made, only bytes to be copied in and out. */
struct onnx_plan {
    OrtIoBinding *binding;
    OrtValue **values; /* inputs, then outputs */
    uint8_t **data;    /* inputs, then outputs; into memory */
    uint8_t *memory;
};

struct onnx_instance {
    struct onnx_model *model;
    OrtRunOptions *run_options;
    struct onnx_plan *plans[ONNX_PLAN_ROWS]; /* made at first use */
    /* Scratch of the general path, each with room for all inputs or outputs. */
    const char **in_names;
    OrtValue **in_values;
    const char **out_names;
    OrtValue **out_values;
    uint32_t *out_index;
    uint8_t *out_is_bound;
    size_t *offsets; /* of string elements */
    size_t offset_cap;
};

int onnx_instance_open(void *model, const struct mr_instance_desc *desc, void **out_instance,
                       struct mr_err *err);
void onnx_instance_close(void *instance);
/* The plan for this execution; NULL without an error if it needs the general path. */
int onnx_plan_find(struct onnx_instance *inst, const struct mr_exec *exec, struct onnx_plan **out,
                   struct mr_err *err);

/* execute.c */
int onnx_execute(void *instance, struct mr_exec *exec, struct mr_err *err);

/* strings.c */
int onnx_strings_in(struct onnx_backend *b, const struct mr_tensor *t, OrtValue **out,
                    struct mr_err *err);
int onnx_strings_out(struct onnx_instance *inst, struct mr_exec *exec, uint32_t index,
                     const OrtValue *value, int32_t rank, const int64_t *dims, struct mr_err *err);

/* zipmap.c */
int onnx_zipmap_out(struct onnx_instance *inst, struct mr_exec *exec, uint32_t index,
                    const OrtValue *value, struct mr_err *err);

#endif
