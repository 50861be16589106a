/* The services for calls, control and metrics, which only a worker process has. */
#include "plugin_priv.h"

static const struct mr_plugin_calls *calls;

void mr_plugin_set_calls(const struct mr_plugin_calls *ops)
{
    calls = ops;
}

static bool has_outputs(const struct mr_execution *x)
{
    for (uint32_t i = 0; !(x->exec.flags & MR_EXEC_DECOUPLED) && i < x->exec.output_count; i++) {
        if (x->outputs.list[i].is_set) {
            return true;
        }
    }
    return false;
}

static int args_check(const struct mr_call_args *a, struct mr_err *err)
{
    if (a->size < sizeof *a || !a->model || !a->model[0]) {
        return MR_FAIL(err, MR_E_INVALID, "a call needs the name of a model");
    }
    for (uint32_t i = 0; i < a->input_count; i++) {
        const struct mr_tensor *t = &a->inputs[i].tensor;
        if (!a->inputs[i].name || t->rank < 0 || t->rank > MR_MAX_RANK) {
            return MR_FAIL(err, MR_E_INVALID, "input %u of a call: rank %d, allowed are 0 to %d", i,
                           t->rank, MR_MAX_RANK);
        }
    }
    return MR_OK;
}

static int absent(const char *what, struct mr_err *err)
{
    return MR_FAIL(err, MR_E_UNSUPPORTED,
                   "%s from a worker process only: execution_placement \"process\"", what);
}

int mr_plugin_call_begin(struct mr_exec *exec, const struct mr_call_args *args,
                         struct mr_model_call **out, struct mr_err *err)
{
    struct mr_execution *x = mr_execution_of(exec);
    int rc;

    if (!calls) {
        return absent("a model calls others", err);
    }
    if (has_outputs(x)) {
        return MR_FAIL(err, MR_E_INVALID, "a call has to begin before an output is set");
    }
    rc = args_check(args, err);
    return rc < 0 ? rc : calls->begin(x, args, out, err);
}

int mr_plugin_call_next(struct mr_model_call *call, int64_t timeout_ns, struct mr_call_answer **out,
                        struct mr_err *err)
{
    return calls->next(call, timeout_ns, out, err);
}

int mr_plugin_call_notify(struct mr_model_call *call, int fd, uint64_t token, struct mr_err *err)
{
    return calls->notify(call, fd, token, err);
}

void mr_plugin_call_answer_drop(struct mr_call_answer **answer)
{
    if (*answer) {
        calls->drop(answer);
    }
}

void mr_plugin_call_end(struct mr_model_call **call)
{
    if (*call) {
        calls->end(call);
    }
}

int mr_plugin_control_begin(const struct mr_control_args *args, struct mr_model_call **out,
                            struct mr_err *err)
{
    if (!calls) {
        return absent("a model loads others", err);
    }
    if (args->size < sizeof *args || !args->model || !args->model[0] ||
        args->kind < MR_CONTROL_LOAD || args->kind > MR_CONTROL_READY) {
        return MR_FAIL(err, MR_E_INVALID,
                       "a control request needs a kind, and the name of a model");
    }
    return calls->control(args, out, err);
}

int mr_plugin_metric_new(const struct mr_metric_args *args, struct mr_metric **out,
                         struct mr_err *err)
{
    if (!calls) {
        return absent("a model has metrics of its own", err);
    }
    if (args->size < sizeof *args || !args->name || !args->help) {
        return MR_FAIL(err, MR_E_INVALID, "a metric needs a name and a help text");
    }
    return calls->metric_new(args, out, err);
}

void mr_plugin_metric_add(struct mr_metric *metric, double value)
{
    calls->metric_add(metric, value);
}

void mr_plugin_metric_set(struct mr_metric *metric, double value)
{
    calls->metric_set(metric, value);
}

double mr_plugin_metric_value(const struct mr_metric *metric)
{
    return calls->metric_value(metric);
}

void mr_plugin_metric_drop(struct mr_metric **metric)
{
    if (*metric) {
        calls->metric_drop(metric);
    }
}
