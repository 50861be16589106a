/* What the files of this module share. */
#ifndef MR_PLUGIN_PRIV_H
#define MR_PLUGIN_PRIV_H

#include <stdatomic.h>

#include "base/log.h"
#include "plugin/plugin.h"

/* A loaded library. */
struct mr_plugin {
    struct mr_backend table; /* checked copy; slots that the backend does not know are NULL */
    void *library;           /* dlopen */
    void *backend;           /* the backend's own */
    char *name;
    _Atomic uint32_t models; /* open ones; relaxed, only a check against misuse */
};

/* A loaded model: an executor. */
struct mr_plugin_model {
    struct mr_executor base; /* first; base.model is ours, base.signature a block of ours */
    struct mr_plugin *plugin;
    void *model;                 /* the backend's own */
    _Atomic int64_t given;       /* outputs of the backend's own memory that are still being sent */
    _Atomic uint64_t given_most; /* bytes of the largest; relaxed, only an estimate */
};

static inline struct mr_plugin_model *mr_plugin_model_of(const struct mr_executor *e)
{
    return (struct mr_plugin_model *)(uintptr_t)e;
}

/* exec.c: the executor's operations, and the services of backend.h that belong to executions. */
int mr_plugin_execute(struct mr_executor *e, struct mr_execution *x, struct mr_err *err);
void mr_plugin_cancel(struct mr_executor *e, struct mr_execution *x);
int mr_plugin_exec_output(struct mr_exec *exec, uint32_t index, int32_t dtype, int32_t rank,
                          const int64_t *shape, uint64_t byte_size, void **out_data,
                          struct mr_err *err);
int mr_plugin_exec_give(struct mr_exec *exec, uint32_t index, const struct mr_tensor *tensor,
                        mr_release_fn *release, void *release_ctx, struct mr_err *err);
int mr_plugin_exec_answer_parameters(struct mr_exec *exec, uint32_t request,
                                     struct mr_response *response, const struct mr_setting *list,
                                     const uint8_t *kinds, uint32_t count, struct mr_err *err);
int mr_plugin_exec_fail_request(struct mr_exec *exec, uint32_t request, int status,
                                const char *message);
int mr_plugin_exec_is_cancelled(const struct mr_exec *exec, uint32_t request);
void mr_plugin_exec_complete(struct mr_exec *exec, int status, const struct mr_err *said);
int mr_plugin_exec_response_new(struct mr_exec *exec, uint32_t request, struct mr_response **out,
                                struct mr_err *err);
int mr_plugin_response_output(struct mr_response *response, uint32_t index, int32_t dtype,
                              int32_t rank, const int64_t *shape, uint64_t byte_size,
                              void **out_data, struct mr_err *err);
int mr_plugin_response_give(struct mr_response *response, uint32_t index,
                            const struct mr_tensor *tensor, mr_release_fn *release,
                            void *release_ctx, struct mr_err *err);
int mr_plugin_exec_respond(struct mr_exec *exec, uint32_t request, struct mr_response **response,
                           uint32_t flags, struct mr_err *err);

/* calls.c: the services for calls, control and metrics. */
int mr_plugin_call_begin(struct mr_exec *exec, const struct mr_call_args *args,
                         struct mr_model_call **out, struct mr_err *err);
int mr_plugin_call_next(struct mr_model_call *call, int64_t timeout_ns, struct mr_call_answer **out,
                        struct mr_err *err);
int mr_plugin_call_notify(struct mr_model_call *call, int fd, uint64_t token, struct mr_err *err);
void mr_plugin_call_answer_drop(struct mr_call_answer **answer);
void mr_plugin_call_end(struct mr_model_call **call);
int mr_plugin_control_begin(const struct mr_control_args *args, struct mr_model_call **out,
                            struct mr_err *err);
int mr_plugin_metric_new(const struct mr_metric_args *args, struct mr_metric **out,
                         struct mr_err *err);
void mr_plugin_metric_add(struct mr_metric *metric, double value);
void mr_plugin_metric_set(struct mr_metric *metric, double value);
double mr_plugin_metric_value(const struct mr_metric *metric);
void mr_plugin_metric_drop(struct mr_metric **metric);

/* After a callback returned `rc`: makes *err fit it (status set, text present, terminated and UTF-8) and
 * gives the code to return; a code that no callback may return becomes MR_E_INTERNAL. */
int mr_plugin_result(const struct mr_plugin *p, const char *what, int rc, struct mr_err *err);

#endif
