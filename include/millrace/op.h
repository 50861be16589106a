/* The op ABI: the interface of small functions over tensors that workflows run between their models, such as decoding an image.
 *
 * Ops that come with Millrace are built in. Others are in a shared library `libmillrace_op_<name>.so` in a folder that the option
 * --op-directory names. It exports one function, `mr_op_entry_v1`, which receives the host's table of services and returns the
 * library's table of ops. Both tables begin with their size and only grow at the end; a side that receives a shorter table than it
 * knows treats the missing slots as NULL. Structs that travel in arrays (mr_op_io, mr_op_kind through a pointer each) are frozen.
 *
 * An op's object belongs to one node of one loaded workflow: `create` checks the node's parameters and tensors, when the workflow is
 * loaded, and says which outputs it will make; `run` is called for each request, by several threads at once, so that the object
 * must not change after `create` (or guards what does); `destroy` comes after the last `run`.
 *
 * `run` computes; it must not block or wait. Work that may take longer than half a millisecond calls `spend` as it goes on: the host
 * may then serve others in between. It has MR_OP_STACK_BYTES of stack.
 *
 * Errors: callbacks return MR_OK or a negative enum mr_status and fill *err (never NULL). Those of `run` are the request's:
 * MR_E_INVALID for what the client sent. Output parameters are written on success only. Nothing that a client sends may crash an op:
 * it runs in the server's process.
 *
 * Memory: everything passed in is borrowed for the call. Tensors are dense and row-major (tensor.h), their bytes agree with their
 * shape, and BYTES are well-formed; the types and fixed dims of inputs are those that `create` saw. */
#ifndef MILLRACE_OP_H
#define MILLRACE_OP_H

#include "millrace/backend.h"

#ifdef __cplusplus
extern "C" {
#endif

#define MR_OP_ABI_MINOR   0
#define MR_OP_ENTRY       "mr_op_entry_v1"
#define MR_OP_STACK_BYTES 32768

/** An input or output of a node. Inputs are in the order of the node's input_map, outputs in that of its output_map. Frozen. */
struct mr_op_io {
    const char *name;    /* the op's name of it: the key in the map */
    const int64_t *dims; /* -1 = any; NULL: not known */
    int32_t dtype;       /* enum mr_dtype; INVALID: not known */
    int32_t rank;        /* -1: not known */
    uint32_t flags;      /* MR_OP_IO_* */
    uint32_t reserved;
};
/** Input: the node may change it (`read_write`): output_in_place then needs no copy if no one else refers to it. */
#define MR_OP_IO_READ_WRITE 1u
/** Input: it may be absent in a request (dtype INVALID in `run`). */
#define MR_OP_IO_NULLABLE 2u

/** A node to create an op for. */
struct mr_op_desc {
    uint32_t size; /* sizeof(struct mr_op_desc) of the host */
    uint32_t parameter_count;
    const struct mr_setting *parameters;
    const char *workflow; /* its name */
    const char *node;     /* its name */
    const struct mr_op_io *inputs;
    const struct mr_op_io *outputs; /* names only; the op says the rest */
    uint32_t input_count;
    uint32_t output_count;
    /* <repository>/<workflow>, for files such as labels; read through `read_file` */
    const char *model_dir;
    const char *version_dir; /* <repository>/<workflow>/<version> */
};

/** What the op makes, filled by `create`. */
struct mr_op_signature {
    uint32_t size;  /* sizeof(struct mr_op_signature) of the host */
    uint32_t flags; /* MR_OP_* */
    /** [output_count], in the order of the node's outputs: dtype, rank and dims. Copied when `create` returns; may point into
     *  what that was given. Names are ignored. */
    const struct mr_op_io *outputs;
};
/** `run` may take longer than half a millisecond even if its inputs are small: the host gives it a stack of its own, so that `spend`
 *  can let others run. Runs with large inputs get one anyway. */
#define MR_OP_LONG 1u

/** One run. Written by the host. */
struct mr_op_run {
    uint32_t size; /* sizeof(struct mr_op_run) of the host */
    uint32_t input_count;
    uint32_t output_count;
    uint32_t reserved;
    const struct mr_tensor *inputs; /* [input_count] */
    const uint8_t *output_wanted;   /* [output_count], 1 = someone reads it */
};

/** A number that an op reports in GET /metrics. Opaque. */
struct mr_op_metric;
/** A node of a workflow that is being loaded. Opaque; valid during `create`. */
struct mr_op_node;

/** Services of the host, valid until the process ends. */
struct mr_op_host {
    uint32_t size; /* sizeof(struct mr_op_host) of the host */
    uint32_t abi_minor;

    /** Writes one line to the server's log. level: 0 error, 1 warning, 2 info, 3 debug. Too frequent lines are dropped and
     *  counted. Thread: any. */
    void (*log)(const char *op, int level, const char *message);

    /** Reads a file of the workflow's folder (`path` relative to model_dir, no links out of the repository) of at most
     *  `max_bytes`. *out_data is NUL-terminated, the host's, and valid during `create`. Thread: that of `create`.
     *  Errors: MR_E_NOT_FOUND, MR_E_INVALID (a path that leaves the folder), MR_E_TOO_LARGE, MR_E_IO. */
    int (*read_file)(struct mr_op_node *node, const char *path, uint64_t max_bytes,
                     const char **out_data, uint64_t *out_bytes, struct mr_err *err);
    /** A counter of the node, which the host keeps; no metric of the server shows it yet. [a-z0-9_], at most 48 characters, the same name once per node,
     *  at most 16. It lives as long as the op. Thread: that of `create`. Errors: MR_E_INVALID, MR_E_EXHAUSTED. */
    int (*counter)(struct mr_op_node *node, const char *name, struct mr_op_metric **out,
                   struct mr_err *err);
    /** Adds to a counter. Thread: any. Without a system call. */
    void (*count)(struct mr_op_metric *metric, uint64_t n);

    /** The memory of output `index`, uninitialised, 64-byte aligned, the host's. For a fixed-size dtype byte_size must agree with
     *  the shape, or be 0; for BYTES it is the whole encoded size. Each wanted output is set exactly once, by one of these
     *  three. Thread: that of `run`. Errors: MR_E_INTERNAL (not what `create` said, set twice), MR_E_EXHAUSTED (no memory now),
     *  MR_E_TOO_LARGE. The op should return them unchanged. */
    int (*output)(struct mr_op_run *run, uint32_t index, int32_t dtype, int32_t rank,
                  const int64_t *shape, uint64_t byte_size, void **out_data, struct mr_err *err);
    /** Output `index` is a part of input `input`, or all of it in another shape: refers to `byte_size` bytes at `offset`, without
     *  a copy if its alignment suits the type. */
    int (*output_view)(struct mr_op_run *run, uint32_t index, uint32_t input, uint64_t offset,
                       int32_t dtype, int32_t rank, const int64_t *shape, uint64_t byte_size,
                       struct mr_err *err);
    /** Output `index` takes the memory of input `input`, which it begins with: that very memory if the input is read_write and no one
     *  else refers to it, otherwise a copy. The output has the input's size in bytes; its type may differ. */
    int (*output_in_place)(struct mr_op_run *run, uint32_t index, uint32_t input, int32_t dtype,
                           int32_t rank, const int64_t *shape, void **out_data, struct mr_err *err);

    /** Reports work done in units of about a nanosecond; may run others in between. Returns 0 if the request is cancelled or past
     *  its deadline: `run` should then return MR_E_CANCELLED. Thread: that of `run`. Cheap. */
    int (*spend)(struct mr_op_run *run, uint64_t units);
};

/** One op of a library. */
struct mr_op_kind {
    uint32_t size;    /* sizeof(struct mr_op_kind) of the library */
    uint32_t flags;   /* 0 */
    const char *name; /* static: "library.verb", [a-z0-9_.], at most 64 characters */

    int (*create)(const struct mr_op_desc *desc, struct mr_op_node *node,
                  struct mr_op_signature *out, void **out_op, struct mr_err *err);
    int (*run)(void *op, struct mr_op_run *run, struct mr_err *err);
    void (*destroy)(void *op); /* may be NULL */
};

struct mr_op_library {
    uint32_t size; /* sizeof(struct mr_op_library) of the library */
    uint32_t abi_minor;
    const char *version; /* static, for reports */
    uint32_t kind_count;
    uint32_t reserved;
    const struct mr_op_kind *const *kinds;
};

/** The one exported symbol. Stores `host` and returns the library's table, which must be valid until the process ends. */
typedef int(mr_op_entry_fn)(const struct mr_op_host *host, const struct mr_op_library **out,
                            struct mr_err *err);

MR_BACKEND_EXPORT int mr_op_entry_v1(const struct mr_op_host *host,
                                     const struct mr_op_library **out, struct mr_err *err);

#ifdef __cplusplus
}
#endif
#endif
