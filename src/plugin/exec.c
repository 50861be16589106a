/* One execution: the services that a backend calls from inside execute, and the checks around it.
 *
 * Outputs are judged as they are asked for: index, data type, shape, size, rows. So a backend that
 * computes a wrong shape is stopped before memory is taken for it. What only the finished bytes show
 * (the length prefixes of a BYTES tensor) is checked after execute. Small outputs live in the arena of
 * the execution, larger ones in pooled blocks; both are 64-byte aligned, and neither costs a heap
 * allocation when warm. Memory that the backend gives is counted in the byte budget when it is there and never
 * refused; a model that has given much runs only while the budget is not exceeded. So no more is out than the budget and
 * what the executions that run at the same time give.
 *
 * Thread: the one that runs the instance; nothing here is shared. `exec.host` leads from the backend's
 * argument to the run. What a backend writes into `exec` beside the two marks is not read. */
#include "internal.h"
#include "tensor/tensor.h"

#define SMALL_BYTES 8192 /* largest output in the arena, as plugin.h promises */
#define ALIGN_BYTES 64
#define GIVEN_MUCH  65536

struct run {
    struct mr_plugin_model *model;
    struct mr_execution *x;
};

static struct run *run_of(const struct mr_exec *exec)
{
    return exec->host;
}

/* The failure of a backend that does not keep to the contract. */
#define BROKEN(run, err, index, ...)                                                               \
    (MR_FAIL((err), MR_E_INTERNAL, __VA_ARGS__),                                                   \
     mr_err_wrap((err), MR_E_INTERNAL, "backend '%s', model '%s', output '%s'",                    \
                 (run)->model->plugin->name, (run)->model->name,                                   \
                 (run)->model->signature->outputs[index].name))

static int output_check(struct run *run, uint32_t index, int32_t dtype, int32_t rank,
                        const int64_t *shape, struct mr_err *err)
{
    const struct mr_signature *sig = run->model->signature;
    const struct mr_exec *exec = &run->x->exec;
    if (index >= sig->output_count) {
        return MR_FAIL(err, MR_E_INTERNAL, "backend '%s', model '%s': output %u of only %u",
                       run->model->plugin->name, run->model->name, index, sig->output_count);
    }
    if (run->x->outputs[index].is_set) {
        return BROKEN(run, err, index, "set twice");
    }
    if (dtype != sig->outputs[index].dtype) {
        return BROKEN(run, err, index, "came as %s, declared is %s", mr_dtype_name(dtype),
                      mr_dtype_name(sig->outputs[index].dtype));
    }
    if (rank < 0 || rank > MR_MAX_RANK || (rank > 0 && !shape)) {
        return BROKEN(run, err, index, "came with rank %d", rank);
    }
    if (exec->row_count > 0 && (rank == 0 || shape[0] != exec->row_count)) {
        int rc = BROKEN(run, err, index, "came with %lld rows for a batch of %lld",
                        rank == 0 ? 0LL : (long long)shape[0], (long long)exec->row_count);
        if (err) {
            err->flags |= MR_ERR_ROWS;
        }
        return rc;
    }
    return MR_OK;
}

/* Bytes that the output must have; `stated` 0 = let us compute (not for BYTES). */
static int output_bytes(struct run *run, uint32_t index, int32_t dtype, int32_t rank,
                        const int64_t *shape, uint64_t stated, uint64_t *out, struct mr_err *err)
{
    struct mr_err detail;
    uint64_t elements;
    uint64_t bytes;
    mr_err_clear(&detail);
    if (mr_shape_elements(shape, rank, &elements, &detail) < 0) {
        return BROKEN(run, err, index, "%s", detail.msg);
    }
    if (dtype == MR_DTYPE_BYTES) {
        if (stated / 4 < elements) {
            return BROKEN(run, err, index, "came with %llu bytes for %llu strings",
                          (unsigned long long)stated, (unsigned long long)elements);
        }
        *out = stated;
        return MR_OK;
    }
    if (__builtin_mul_overflow(elements, mr_dtype_size(dtype), &bytes)) {
        return BROKEN(run, err, index, "came with more bytes than there can be");
    }
    if (stated != 0 && stated != bytes) {
        char text[128];
        return BROKEN(run, err, index, "came with %llu bytes, but %s%s has %llu",
                      (unsigned long long)stated, mr_dtype_name(dtype),
                      mr_shape_text(shape, rank, text, sizeof text), (unsigned long long)bytes);
    }
    *out = bytes;
    return MR_OK;
}

static int retryable(int rc, struct mr_err *err)
{
    if (err) {
        err->flags |= MR_ERR_RETRYABLE;
    }
    return rc;
}

static int out_of_memory(struct run *run, uint32_t index, uint64_t bytes, struct mr_err *err)
{
    return retryable(
        MR_FAIL(err, MR_E_EXHAUSTED,
                "no memory now for %llu bytes of output '%s' (--memory-budget), try later",
                (unsigned long long)bytes, run->model->signature->outputs[index].name),
        err);
}

/* Notes the output; shape is copied, data and block are in `o` already. */
static int output_set(struct run *run, uint32_t index, const struct mr_tensor *t,
                      struct mr_err *err)
{
    struct mr_exec_output *o = &run->x->outputs[index];
    int64_t *shape = NULL;
    if (t->rank > 0) {
        shape = mr_arena_try(run->x->arena, (size_t)t->rank * sizeof *shape, _Alignof(int64_t));
        if (!shape) {
            return out_of_memory(run, index, (uint64_t)t->rank * sizeof *shape, err);
        }
        memcpy(shape, t->shape, (size_t)t->rank * sizeof *shape);
    }
    o->tensor = *t;
    o->tensor.shape = shape;
    o->is_set = true;
    return MR_OK;
}

int mr_plugin_exec_output(struct mr_exec *exec, uint32_t index, int32_t dtype, int32_t rank,
                          const int64_t *shape, uint64_t byte_size, void **out_data,
                          struct mr_err *err)
{
    struct run *run = run_of(exec);
    struct mr_block *block = NULL;
    uint64_t bytes = 0;
    void *data;
    int rc;
    MR_TRY(output_check(run, index, dtype, rank, shape, err));
    MR_TRY(output_bytes(run, index, dtype, rank, shape, byte_size, &bytes, err));
    if (bytes <= SMALL_BYTES) {
        /* never NULL, also for an empty output: a backend may pass it on to those who mind */
        data = mr_arena_try(run->x->arena, MR_MAX(bytes, 1), ALIGN_BYTES);
    } else {
        block = mr_block_new(bytes);
        data = block ? block->data : NULL;
    }
    if (!data) {
        return out_of_memory(run, index, bytes, err);
    }
    const struct mr_tensor t = {dtype, rank, shape, data, bytes};
    MR_TRY(output_set(run, index, &t, err));
    run->x->outputs[index].block = block;
    *out_data = data;
    return MR_OK;
out:
    mr_block_unref(&block);
    return rc;
}

static int tensor_check(struct run *run, uint32_t index, const struct mr_tensor *t,
                        struct mr_err *err)
{
    uint64_t bytes = 0;
    int rc;
    MR_TRY(output_check(run, index, t->dtype, t->rank, t->shape, err));
    MR_TRY(output_bytes(run, index, t->dtype, t->rank, t->shape, t->bytes, &bytes, err));
    if (bytes != t->bytes || (bytes > 0 && !t->data)) {
        rc = BROKEN(run, err, index, "was given %llu bytes, needed are %llu",
                    (unsigned long long)(t->data ? t->bytes : 0), (unsigned long long)bytes);
    }
out:
    return rc;
}

/* Memory of a backend on its way to a client. The model is not closed before all of it is back. */
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
    atomic_fetch_add_explicit(&m->given, 1,
                              memory_order_relaxed); /* the model is open: we run in it */
    return block;
}

int mr_plugin_exec_give(struct mr_exec *exec, uint32_t index, const struct mr_tensor *tensor,
                        mr_release_fn *release, void *release_ctx, struct mr_err *err)
{
    struct run *run = run_of(exec);
    struct mr_block *block = NULL;
    int rc;
    MR_TRY(tensor_check(run, index, tensor, err));
    MR_TRY(output_set(run, index, tensor, err));
    if (release) {
        block = given_wrap(run->model, tensor, release, release_ctx);
        if (!block) {
            run->x->outputs[index].is_set = false;
            rc = out_of_memory(run, index, tensor->bytes, err);
            goto out;
        }
    }
    run->x->outputs[index].block = block;
    return MR_OK;
out:
    if (release) {
        release(release_ctx, tensor->data);
    }
    return rc;
}

int mr_plugin_exec_fail_request(struct mr_exec *exec, uint32_t request, int status,
                                const char *message)
{
    struct run *run = run_of(exec);
    if (request >= run->x->exec.request_count || status >= 0) {
        return MR_E_INVALID;
    }
    if (run->x->fail_request) {
        run->x->fail_request(run->x, request, status, message ? message : "");
    }
    return MR_OK;
}

int mr_plugin_exec_is_cancelled(const struct mr_exec *exec)
{
    const struct run *run = run_of(exec);
    return run->x->is_cancelled && run->x->is_cancelled(run->x);
}

/* What execute left behind: every wanted output there, strings well formed. */
static int outputs_check(struct run *run, struct mr_err *err)
{
    const struct mr_exec *exec = &run->x->exec;
    struct mr_err detail = {0};
    for (uint32_t i = 0; i < run->model->signature->output_count; i++) {
        const struct mr_exec_output *o = &run->x->outputs[i];
        if (!o->is_set) {
            if (!exec->output_wanted || exec->output_wanted[i]) {
                return BROKEN(run, err, i, "was not produced");
            }
            continue;
        }
        if (o->tensor.dtype == MR_DTYPE_BYTES) {
            const mr_bytes data = {o->tensor.data, o->tensor.bytes};
            uint64_t elements = 0;
            int rc = mr_shape_elements(o->tensor.shape, o->tensor.rank, &elements, &detail);
            if (rc < 0 || mr_bytes_tensor_check(data, elements, &detail) < 0) {
                return BROKEN(run, err, i, "%s", detail.msg);
            }
        }
    }
    return MR_OK;
}

static void outputs_drop(struct mr_execution *x, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        mr_block_unref(&x->outputs[i].block);
        x->outputs[i] = (struct mr_exec_output){0};
    }
}

/* A failed execute: its own sentence in the shape of ours, out of the way of the fast path. */
static int run_failed(struct run *run, int rc, const struct mr_err *said, struct mr_err *err)
{
    struct mr_err copy = {.flags = said->flags};
    memcpy(copy.where, said->where, strnlen(said->where, sizeof copy.where - 1));
    memcpy(copy.msg, said->msg, strnlen(said->msg, sizeof copy.msg - 1));
    rc = mr_plugin_result(run->model->plugin, "execute", rc, &copy);
    if (err) {
        *err = copy;
    }
    return rc;
}

/* The backend would take memory that nobody can refuse it. */
static int budget_check(const struct mr_plugin_model *m, struct mr_err *err)
{
    uint64_t most = atomic_load_explicit(&m->given_most, memory_order_relaxed);
    if (most <= GIVEN_MUCH || mr_block_may_adopt()) {
        return MR_OK;
    }
    return retryable(MR_FAIL(err, MR_E_EXHAUSTED,
                             "no memory now for outputs of model '%s' (--memory-budget), try later",
                             m->name),
                     err);
}

int mr_plugin_execute(struct mr_plugin_model *m, void *instance, struct mr_execution *x,
                      struct mr_err *err)
{
    const uint32_t output_count = m->signature->output_count;
    struct run run = {.model = m, .x = x};
    struct mr_err said;
    int rc = budget_check(m, err);
    if (rc < 0) {
        return rc;
    }
    if (x->exec.input_count != m->signature->input_count || x->exec.output_count != output_count) {
        return MR_FAIL(
            err, MR_E_INTERNAL, "model '%s': %u inputs and %u outputs, declared %u and %u", m->name,
            x->exec.input_count, x->exec.output_count, m->signature->input_count, output_count);
    }
    mr_err_clear(&said);
    x->exec.size = sizeof x->exec;
    x->exec.infer_start_ns = 0;
    x->exec.infer_end_ns = 0;
    x->exec.host = &run;
    rc = m->plugin->table.execute(instance, &x->exec, &said);
    x->exec.host = NULL;
    if (rc != MR_OK) {
        rc = run_failed(&run, rc, &said, err);
    } else {
        rc = outputs_check(&run, err);
    }
    if (rc < 0) {
        outputs_drop(x, output_count);
    }
    return rc;
}
