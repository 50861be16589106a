/* The host side of the backend ABI (include/millrace/backend.h): loads backend libraries, checks what they
 * hand over, and offers their models as executors. Nothing from a backend is used before it is checked. */
#ifndef MR_PLUGIN_PLUGIN_H
#define MR_PLUGIN_PLUGIN_H

#include "base/err.h"
#include "exec/exec.h"
#include "millrace/backend.h"

struct mr_plugin;

/** MR_OK if mr_plugin_open would find a library. Errors: MR_E_INVALID (not a valid name), MR_E_NOT_FOUND (lists the
 *  places searched). Blocks. */
int mr_plugin_find(mr_str name, const char *const *dirs, size_t dir_count, struct mr_err *err);
/** Load `<dir>/libmillrace_<name>.so` or `<dir>/<name>/libmillrace_<name>.so` of the first directory that has
 *  it, and run its init. name: [A-Za-z0-9_-]+ only. Errors: MR_E_NOT_FOUND (lists the places searched),
 *  MR_E_UNSUPPORTED (entry symbol or callbacks missing, newer than this host), the backend's own. */
int mr_plugin_open(struct mr_plugin **out, mr_str name, const char *const *dirs, size_t dir_count,
                   const struct mr_setting *settings, size_t setting_count, struct mr_err *err);
/** All models must be closed. Calls fini and unloads the library. */
void mr_plugin_close(struct mr_plugin **p);
const char *mr_plugin_name(const struct mr_plugin *p);
const char *mr_plugin_version(const struct mr_plugin *p);
uint32_t mr_plugin_flags(const struct mr_plugin *p); /* MR_BACKEND_* */

/** Opens a model as an executor (exec/exec.h), with a checked copy of its signature. Blocks as long as the backend
 *  does. */
int mr_plugin_model_open(struct mr_executor **out, struct mr_plugin *p,
                         const struct mr_model_desc *desc, struct mr_err *err);

/** Implements the services for calls, control and metrics of backend.h, whose contracts these have. */
struct mr_plugin_calls {
    int (*begin)(struct mr_execution *x, const struct mr_call_args *args,
                 struct mr_model_call **out, struct mr_err *err);
    int (*next)(struct mr_model_call *call, int64_t timeout_ns, struct mr_call_answer **out,
                struct mr_err *err);
    int (*notify)(struct mr_model_call *call, int fd, uint64_t token, struct mr_err *err);
    void (*drop)(struct mr_call_answer **answer);
    void (*end)(struct mr_model_call **call);
    int (*control)(const struct mr_control_args *args, struct mr_model_call **out,
                   struct mr_err *err);
    int (*metric_new)(const struct mr_metric_args *args, struct mr_metric **out,
                      struct mr_err *err);
    void (*metric_add)(struct mr_metric *metric, double value);
    void (*metric_set)(struct mr_metric *metric, double value);
    double (*metric_value)(const struct mr_metric *metric);
    void (*metric_drop)(struct mr_metric **metric);
};
/** For a process that can make calls, before it opens a backend; without it they are refused. Borrowed. */
void mr_plugin_set_calls(const struct mr_plugin_calls *ops);

#endif
