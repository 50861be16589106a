/* The services that a backend calls while an execution runs: thin, over the executor's functions (exec/exec.h), which
 * check everything. Of what a backend writes into mr_exec only the two marks are read: the execution is found by its
 * address.
 *
 * Memory that a backend gives is counted in the byte budget afterwards and never refused; a model that has given a
 * lot runs only while the budget is not exceeded. So the total is bounded by the budget plus the outputs of the
 * executions that run at the same time. */
#include "plugin_priv.h"

#define GIVEN_MUCH 65536

static int no_output(const struct mr_execution *x, struct mr_err *err)
{
    return MR_FAIL(err, MR_E_INTERNAL,
                   "model '%s': an output of a decoupled execution is that of an answer "
                   "(response_output, response_give)",
                   x->outputs.executor->model);
}

int mr_plugin_exec_output(struct mr_exec *exec, uint32_t index, int32_t dtype, int32_t rank,
                          const int64_t *shape, uint64_t byte_size, void **out_data,
                          struct mr_err *err)
{
    struct mr_execution *x = mr_execution_of(exec);
    return x->exec.flags & MR_EXEC_DECOUPLED
               ? no_output(x, err)
               : mr_exec_output_place(&x->outputs, index, dtype, rank, shape, byte_size, out_data,
                                      err);
}

/* Memory of a backend on its way to a client. The model is closed only after all of it is returned. */
struct given {
    struct mr_plugin_model *model;
    mr_release_fn *release;
    void *ctx;
};

static void given_release(void *ctx, void *data)
{
    struct given *g = ctx;
    struct mr_plugin_model *m = g->model;
    g->release(g->ctx, data);
    mr_free(g);
    /* release: what the backend's function did comes before the close that waits (acquire there) */
    atomic_fetch_sub_explicit(&m->given, 1, memory_order_release);
}

static struct mr_block *given_wrap(struct mr_plugin_model *m, const struct mr_tensor *t,
                                   mr_release_fn *release, void *release_ctx)
{
    struct given *g = mr_try_alloc(sizeof *g);
    if (!g) {
        return NULL;
    }
    *g = (struct given){m, release, release_ctx};
    struct mr_block *block = mr_block_adopt(t->data, t->bytes, given_release, g);
    if (!block) {
        mr_free(g);
        return NULL;
    }
    if (t->bytes > atomic_load_explicit(&m->given_most, memory_order_relaxed)) {
        atomic_store_explicit(&m->given_most, t->bytes, memory_order_relaxed);
    }
    if (t->bytes > atomic_load_explicit(&m->given_most, memory_order_relaxed)) {
        atomic_store_explicit(&m->given_most, t->bytes, memory_order_relaxed);
    }
    atomic_fetch_add_explicit(&m->given, 1,
                              memory_order_relaxed); /* the model is open: we run in it */
    return block;
}

static int give(struct mr_exec_outputs *o, uint32_t index, const struct mr_tensor *tensor,
                mr_release_fn *release, void *release_ctx, struct mr_err *err)
{
    struct mr_plugin_model *m = mr_plugin_model_of(o->executor);
    struct mr_block *block = NULL;
    int rc;
    MR_TRY(mr_exec_output_check(o, index, tensor, err));
    if (release) {
        block = given_wrap(m, tensor, release, release_ctx);
        if (!block) {
            rc = mr_exec_output_no_memory(o, index, tensor->bytes, err);
            goto out;
        }
    }
    rc = mr_exec_output_set(o, index, tensor, block, err);
    if (rc < 0) {
        mr_block_unref(&block); /* releases */
    }
    return rc;
out:
    if (release) {
        release(release_ctx, tensor->data);
    }
    return rc;
}

int mr_plugin_exec_give(struct mr_exec *exec, uint32_t index, const struct mr_tensor *tensor,
                        mr_release_fn *release, void *release_ctx, struct mr_err *err)
{
    struct mr_execution *x = mr_execution_of(exec);
    if (!(x->exec.flags & MR_EXEC_DECOUPLED)) {
        return give(&x->outputs, index, tensor, release, release_ctx, err);
    }
    if (release) {
        release(release_ctx, tensor->data);
    }
    return no_output(x, err);
}

int mr_plugin_exec_fail_request(struct mr_exec *exec, uint32_t request, int status,
                                const char *message)
{
    struct mr_execution *x = mr_execution_of(exec);
    if (request >= x->exec.request_count || status >= 0) {
        return MR_E_INVALID;
    }
    if (x->fail_request) {
        x->fail_request(x, request, status, message && *message ? message : mr_status_text(status));
    }
    return MR_OK;
}

int mr_plugin_exec_is_cancelled(const struct mr_exec *exec, uint32_t request)
{
    const struct mr_execution *x = mr_execution_of(exec);
    return x->is_cancelled && (request == MR_ALL_REQUESTS || request < x->exec.request_count) &&
           x->is_cancelled(x, request);
}

/* Converts the error of a failed execution; not inlined, to keep the fast path short. */
static int run_failed(const struct mr_plugin *p, int rc, const struct mr_err *said,
                      struct mr_err *err)
{
    struct mr_err copy = {0};
    if (said) {
        copy.flags = said->flags & (MR_ERR_RETRYABLE | MR_ERR_APART | MR_ERR_ROWS);
        memcpy(copy.where, said->where, strnlen(said->where, sizeof copy.where - 1));
        memcpy(copy.msg, said->msg, strnlen(said->msg, sizeof copy.msg - 1));
    }
    rc = mr_plugin_result(p, "execute", rc, &copy);
    if (err) {
        *err = copy;
    }
    return rc;
}

void mr_plugin_exec_complete(struct mr_exec *exec, int status, const struct mr_err *said)
{
    struct mr_execution *x = mr_execution_of(exec);
    struct mr_err err;
    if (status != MR_OK) {
        status = run_failed(mr_plugin_model_of(x->outputs.executor)->plugin, status, said, &err);
    }
    mr_execution_complete(x, status, &err);
}

int mr_plugin_exec_response_new(struct mr_exec *exec, uint32_t request, struct mr_response **out,
                                struct mr_err *err)
{
    return mr_response_new(mr_execution_of(exec), request, out, err);
}

int mr_plugin_response_output(struct mr_response *response, uint32_t index, int32_t dtype,
                              int32_t rank, const int64_t *shape, uint64_t byte_size,
                              void **out_data, struct mr_err *err)
{
    return mr_exec_output_place(&response->outputs, index, dtype, rank, shape, byte_size, out_data,
                                err);
}

int mr_plugin_response_give(struct mr_response *response, uint32_t index,
                            const struct mr_tensor *tensor, mr_release_fn *release,
                            void *release_ctx, struct mr_err *err)
{
    return give(&response->outputs, index, tensor, release, release_ctx, err);
}

int mr_plugin_exec_respond(struct mr_exec *exec, uint32_t request, struct mr_response **response,
                           uint32_t flags, struct mr_err *err)
{
    return mr_execution_respond(mr_execution_of(exec), request, response, flags, err);
}

int mr_plugin_exec_answer_parameters(struct mr_exec *exec, uint32_t request,
                                     struct mr_response *response, const struct mr_setting *list,
                                     const uint8_t *kinds, uint32_t count, struct mr_err *err)
{
    return response
               ? mr_answer_parameters_set(&response->parameters, &response->arena, list, kinds,
                                          count, err)
               : mr_execution_parameters(mr_execution_of(exec), request, list, kinds, count, err);
}

/* The backend would use memory that cannot be refused. */
static int budget_check(const struct mr_plugin_model *m, struct mr_err *err)
{
    uint64_t most = atomic_load_explicit(&m->given_most, memory_order_relaxed);
    if (most <= GIVEN_MUCH || mr_block_may_adopt()) {
        return MR_OK;
    }
    int rc = MR_FAIL(err, MR_E_EXHAUSTED,
                     "no memory now for outputs of model '%s' (--memory-budget), try later",
                     m->base.model);
    if (err) {
        err->flags |= MR_ERR_RETRYABLE;
    }
    return rc;
}

int mr_plugin_execute(struct mr_executor *e, struct mr_execution *x, struct mr_err *err)
{
    const struct mr_plugin *p = mr_plugin_model_of(e)->plugin;
    struct mr_err said;
    int rc = budget_check(mr_plugin_model_of(e), err);
    if (rc < 0) {
        return rc;
    }
    mr_err_clear(&said);
    rc = p->table.execute(x->instance, &x->exec, &said);
    return rc == MR_OK || rc == MR_PENDING ? rc : run_failed(p, rc, &said, err);
}

void mr_plugin_cancel(struct mr_executor *e, struct mr_execution *x)
{
    mr_plugin_model_of(e)->plugin->table.cancel(x->instance, &x->exec);
}
