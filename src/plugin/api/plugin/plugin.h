/* The host side of the backend ABI (include/millrace/backend.h): loads backend libraries, checks what they
 * hand over, and runs executions with outputs placed in the host's memory. Nothing that a backend says is
 * used before it was checked. */
#ifndef MR_PLUGIN_PLUGIN_H
#define MR_PLUGIN_PLUGIN_H

#include <stdatomic.h>
#include <stdbool.h>

#include "base/arena.h"
#include "base/err.h"
#include "base/pool.h"
#include "millrace/backend.h"

struct mr_plugin;
struct mr_plugin_model;

/** A model that is being loaded: what its backend may ask, and what it has said of its progress (backend.h).
 *  Goes into mr_model_desc.loading; stays where it is until mr_plugin_model_close. */
struct mr_loading {
    /** Thread: any. */
    bool (*is_unwanted)(const struct mr_loading *l);
    _Atomic(const char *) step; /* NULL = it has said nothing */
    _Atomic uint64_t done;
    _Atomic uint64_t total;
};

/** Flag of an error: an output came with other rows than the batch has. Not for the wire. */
#define MR_ERR_ROWS 0x80000000u

/** Whether there is a library for mr_plugin_open. Errors: MR_E_INVALID (no such name can be), MR_E_NOT_FOUND (says
 *  where it looked). Blocks. */
int mr_plugin_find(mr_str name, const char *const *dirs, size_t dir_count, struct mr_err *err);
/** Load `<dir>/libmillrace_<name>.so` or `<dir>/<name>/libmillrace_<name>.so` of the first directory that has
 *  it, and run its init. name: [A-Za-z0-9_-]+ only. Errors: MR_E_NOT_FOUND (says where it looked),
 *  MR_E_UNSUPPORTED (entry symbol or callbacks missing, newer than this host), the backend's own. */
int mr_plugin_open(struct mr_plugin **out, mr_str name, const char *const *dirs, size_t dir_count,
                   const struct mr_setting *settings, size_t setting_count, struct mr_err *err);
/** All models must be closed. Calls fini and unloads the library. */
void mr_plugin_close(struct mr_plugin **p);
const char *mr_plugin_name(const struct mr_plugin *p);
const char *mr_plugin_version(const struct mr_plugin *p);
uint32_t mr_plugin_flags(const struct mr_plugin *p); /* MR_BACKEND_* */

/** Open a model and take a checked copy of its signature. Blocks as long as the backend does. */
int mr_plugin_model_open(struct mr_plugin_model **out, struct mr_plugin *p,
                         const struct mr_model_desc *desc, struct mr_err *err);
/** All instances must be closed. Waits for outputs in the backend's memory that a client is still
 *  reading; the connection's write timeout bounds that. Thread: none that sends. */
void mr_plugin_model_close(struct mr_plugin_model **m);
/** Names non-empty and distinct, dtypes valid, ranks 0..MR_MAX_RANK or -1, dims >= -1; `flags` has the backend's
 *  flags too. Lives with the model; empty while from_config has not been settled by set_signature. */
const struct mr_signature *mr_plugin_model_signature(const struct mr_plugin_model *m);
/** For a signature with from_config: fix the names and order (copied), and tell the backend. Before any
 *  instance. Errors: MR_E_INVALID when the model has its own signature, when `s` breaks the rules above, or
 *  what the backend says. */
int mr_plugin_model_set_signature(struct mr_plugin_model *m, const struct mr_signature *s,
                                  struct mr_err *err);
uint64_t mr_plugin_model_bytes(const struct mr_plugin_model *m);
/** Where its parameters are; all 0, the size too, and "" when the backend does not say. The reason lives with the model. */
struct mr_model_memory mr_plugin_model_memory(const struct mr_plugin_model *m);
struct mr_plugin *mr_plugin_model_plugin(const struct mr_plugin_model *m);

int mr_plugin_instance_open(void **out, struct mr_plugin_model *m, uint32_t index,
                            struct mr_err *err);
void mr_plugin_instance_close(struct mr_plugin_model *m, void **instance);

/** One output of an execution. Rows of a batch are slices of `tensor`. */
struct mr_exec_output {
    bool is_set;
    struct mr_tensor tensor; /* shape in the execution's memory */
    struct mr_block *block;  /* owner of tensor.data; NULL: the arena */
};

/** One execution, prepared by the scheduler. The caller owns the struct and, afterwards, the blocks. */
struct mr_execution {
    struct mr_exec exec;            /* filled by the caller, except host */
    struct mr_exec_output *outputs; /* [output_count], zeroed by the caller */
    /** Where shapes and outputs of up to 8 KiB go; larger ones get blocks. Lives until outputs were used. */
    struct mr_arena *arena;
    /** (may be NULL) Asks whether anybody still waits. */
    bool (*is_cancelled)(const struct mr_execution *x);
    /** (may be NULL) Tells that one request failed. */
    void (*fail_request)(struct mr_execution *x, uint32_t request, int status, const char *message);
    void *user;
};

/** Run it. On MR_OK every wanted output is set, has a sane shape, and, when exec.row_count > 0, its first
 *  dimension equals row_count. On failure no output is left set. Thread: the instance's caller.
 *  Errors: the backend's own; MR_E_INTERNAL naming the output when the backend broke the contract. */
int mr_plugin_execute(struct mr_plugin_model *m, void *instance, struct mr_execution *x,
                      struct mr_err *err);

#endif
