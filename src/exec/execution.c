/* The states of one execution: started, perhaps pending, cancelled, ended.
 *
 * `holders` counts those that may still access an execution: the call of execute, the expected completion, and
 * cancels in progress. The last one to release it ends it. If that is the call of execute, the execution ended early
 * and the caller gets its result as if it had never been pending; otherwise on_done is called. Executors without
 * cancel pay for it only when an execution is pending: such an execution cannot be held, as it ends without a look at who
 * holds it. */
#include "exec_priv.h"

/* In `holders`: of an executor without cancel. */
#define CANNOT_CANCEL (UINT32_C(1) << 31)

static bool let_go(struct mr_execution *x)
{
    /* acq_rel: what every holder did comes before the end */
    const uint32_t before = atomic_fetch_sub_explicit(&x->holders, 1, memory_order_acq_rel);

    return (before & ~CANNOT_CANCEL) == 1;
}

/* The last checks of an execution that reports success. */
static int settle(struct mr_execution *x, int status, struct mr_err *err)
{
    if (status == MR_OK && !(x->exec.flags & MR_EXEC_DECOUPLED)) {
        status = exec_outputs_complete(&x->outputs, x->exec.output_wanted, err);
    }
    if (status < 0) {
        mr_exec_outputs_drop(&x->outputs);
    }
    return status;
}

int mr_executor_execute(struct mr_executor *e, struct mr_execution *x, struct mr_err *err)
{
    const struct mr_signature *s = e->signature;

    if (x->exec.input_count != s->input_count || x->exec.output_count != s->output_count) {
        return MR_FAIL(err, MR_E_INTERNAL,
                       "model '%s': %u inputs and %u outputs, declared %u and %u", e->model,
                       x->exec.input_count, x->exec.output_count, s->input_count, s->output_count);
    }
    x->exec.size = sizeof x->exec;
    x->exec.request_size = sizeof(struct mr_exec_request);
    x->exec.infer_start_ns = 0;
    x->exec.infer_end_ns = 0;
    x->outputs.executor = e;
    x->outputs.row_count = x->exec.row_count;
    /* release: a cancel that finds it running finds it whole */
    atomic_store_explicit(&x->holders, e->ops->cancel ? 2 : 2 | CANNOT_CANCEL,
                          memory_order_release);
    int rc = e->ops->execute(e, x, err);
    if (rc != MR_PENDING && !e->ops->cancel) {
        atomic_store_explicit(&x->holders, 0, memory_order_relaxed); /* no other holder counts */
        return settle(x, rc, err);
    }
    if (rc != MR_PENDING) {
        x->status = settle(x, rc, err);
        if (x->status < 0 && err && err != x->err) {
            *x->err = *err;
        }
        let_go(x); /* no completion comes */
    }
    if (!let_go(x)) {
        return MR_PENDING;
    }
    if (x->status < 0 && err && err != x->err) {
        *err = *x->err;
    }
    return x->status;
}

void mr_execution_complete(struct mr_execution *x, int status, const struct mr_err *err)
{
    if (status < 0 && err) {
        *x->err = *err;
    }
    x->status = settle(x, status, x->err);
    if (let_go(x)) {
        x->on_done(x);
    }
}

bool mr_execution_hold(struct mr_execution *x)
{
    uint32_t n = atomic_load_explicit(&x->holders, memory_order_acquire);

    while (n > 0 && n < CANNOT_CANCEL) {
        if (atomic_compare_exchange_weak_explicit(&x->holders, &n, n + 1, memory_order_acq_rel,
                                                  memory_order_acquire)) {
            return true;
        }
    }
    return false;
}

void mr_execution_cancel(struct mr_execution *x)
{
    struct mr_executor *e = x->outputs.executor;

    e->ops->cancel(e, x);
    if (let_go(x)) {
        x->on_done(x);
    }
}

void mr_executor_close(struct mr_executor **e)
{
    if (*e) {
        (*e)->ops->close(*e);
        *e = NULL;
    }
}

void mr_executor_instance_close(struct mr_executor *e, void **instance)
{
    if (*instance) {
        e->ops->instance_close(e, *instance);
        *instance = NULL;
    }
}
