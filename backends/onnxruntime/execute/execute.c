/* One execution.
 *
 * Small models of known shape run a staged plan (instance.c). The general path makes a value over the
 * host's memory for each input, without a copy. Outputs whose shape is known beforehand are bound to
 * the host's memory, so that results are written to the memory from which they are sent; for others ONNX Runtime
 * allocates, and the host gets that memory (small ones are copied, which is cheaper than keeping a value until the
 * answer is sent).
 *
 * The model declares these shapes, and declarations can be wrong. So the first execution of a model binds nothing and
 * compares; outputs are bound only if the declaration was right. As an output that was given to the host cannot be given again,
 * a number of rows that only the name of a dimension promises is no reason to bind: another one is a valid answer.
 *
 * Thread: one at a time per instance; instances of a model in parallel. */
#include <time.h>

#include "onnxruntime/session/onnx.h"

#define COPY_BYTES 4096 /* outputs up to this size are copied rather than given */

/* ---- staged --------------------------------------------------------------------------------- */

static int plan_deliver(struct onnx_instance *inst, struct onnx_plan *p, struct mr_exec *exec,
                        struct mr_err *err)
{
    struct onnx_model *m = inst->model;
    int64_t rows = 1;
    for (uint32_t i = 0; i < m->input_count; i++) {
        rows = m->in[i].has_batch ? exec->inputs[i].shape[0] : rows;
    }
    for (uint32_t i = 0; i < m->output_count; i++) {
        const struct onnx_io *io = &m->out[i];
        const uint64_t bytes = io->row_bytes * (io->has_batch ? (uint64_t)rows : 1);
        int64_t shape[MR_MAX_RANK];
        void *data = NULL;
        memcpy(shape, io->desc->dims, (size_t)io->desc->rank * sizeof *shape);
        if (io->has_batch) {
            shape[0] = rows;
        }
        int rc =
            onnx_host->output(exec, i, io->desc->dtype, io->desc->rank, shape, bytes, &data, err);
        if (rc < 0) {
            return rc;
        }
        memcpy(data, p->data[m->input_count + i], bytes);
    }
    return MR_OK;
}

/* *out_ran: the model ran; if it did not, nothing has been handed over. */
static int plan_run(struct onnx_instance *inst, struct onnx_plan *p, struct mr_exec *exec,
                    int *out_ran, struct mr_err *err)
{
    for (uint32_t i = 0; i < inst->model->input_count; i++) {
        const struct mr_tensor *t = &exec->inputs[i];
        if (t->bytes > 0) {
            memcpy(p->data[i], t->data, t->bytes);
        }
    }
    exec->infer_start_ns = onnx_now_ns();
    int rc = onnx_check(
        onnx_api->RunWithBinding(inst->model->session, inst->run_options, p->binding), err);
    exec->infer_end_ns = onnx_now_ns();
    *out_ran = rc == MR_OK;
    return rc < 0 ? rc : plan_deliver(inst, p, exec, err);
}

/* ---- general: inputs ------------------------------------------------------------------------ */

static void values_release(OrtValue **values, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        if (values[i]) {
            onnx_api->ReleaseValue(values[i]);
            values[i] = NULL;
        }
    }
}

static int input_make(struct onnx_instance *inst, const struct onnx_io *io,
                      const struct mr_tensor *t, OrtValue **out, struct mr_err *err)
{
    static uint64_t nothing; /* data of an empty tensor, which ONNX Runtime wants not to be NULL */
    if (t->dtype != io->desc->dtype) {
        return mr_backend_fail(err, MR_E_INVALID, "input '%s' has not the model's data type",
                               io->desc->name);
    }
    if (io->kind == ONNX_KIND_STRING) {
        return onnx_strings_in(inst->model->backend, t, out, err);
    }
    return onnx_check_in(onnx_api->CreateTensorWithDataAsOrtValue(
                             inst->model->backend->cpu, t->bytes > 0 ? t->data : &nothing, t->bytes,
                             t->shape, (size_t)t->rank, io->type, out),
                         err, io->desc->name);
}

/* Names and values of the inputs that were sent; *io_count counts the values to release. */
static int inputs_make(struct onnx_instance *inst, const struct mr_exec *exec, uint32_t *io_count,
                       struct mr_err *err)
{
    const struct onnx_model *m = inst->model;
    for (uint32_t i = 0; i < m->input_count; i++) {
        const struct mr_tensor *t = &exec->inputs[i];
        if (t->dtype == MR_DTYPE_INVALID) {
            if (m->inputs[i].flags & MR_IO_OPTIONAL) {
                continue;
            }
            return mr_backend_fail(err, MR_E_INVALID, "input '%s' is missing", m->inputs[i].name);
        }
        inst->in_names[*io_count] = m->inputs[i].name;
        int rc = input_make(inst, &m->in[i], t, &inst->in_values[*io_count], err);
        if (rc < 0) {
            return rc;
        }
        (*io_count)++;
    }
    return MR_OK;
}

/* ---- general: outputs ----------------------------------------------------------------------- */

/* The shape of an output by the model's declaration; 0 if that leaves it open. */
static int shape_predict(const struct onnx_model *m, const struct mr_exec *exec,
                         const struct onnx_io *io, int64_t *shape)
{
    if (!io->is_fixed && !io->has_batch) {
        return 0;
    }
    memcpy(shape, io->desc->dims, (size_t)io->desc->rank * sizeof *shape);
    if (!io->has_batch) {
        return 1;
    }
    if (exec->row_count > 0) {
        shape[0] = exec->row_count;
        return 1;
    }
    if (!m->rows_agree || exec->inputs[0].rank < 1 || !m->in[0].has_batch) {
        return 0;
    }
    shape[0] = exec->inputs[0].shape[0];
    return 1;
}

/* Binds one output to the host's memory when no other shape would be valid; otherwise its value stays NULL. */
static int output_bind(struct onnx_instance *inst, struct mr_exec *exec, uint32_t k,
                       struct mr_err *err)
{
    struct onnx_model *m = inst->model;
    const uint32_t index = inst->out_index[k];
    const struct onnx_io *io = &m->out[index];
    int64_t shape[MR_MAX_RANK];
    uint64_t bytes = 0;
    void *data = NULL;
    if ((io->has_batch && exec->row_count == 0) || !shape_predict(m, exec, io, shape) ||
        !onnx_shape_bytes(shape, io->desc->rank, onnx_element_bytes(io->desc->dtype), &bytes)) {
        return MR_OK;
    }
    int rc =
        onnx_host->output(exec, index, io->desc->dtype, io->desc->rank, shape, bytes, &data, err);
    if (rc < 0) {
        return rc;
    }
    inst->out_is_bound[k] = 1;
    return onnx_check_in(onnx_api->CreateTensorWithDataAsOrtValue(m->backend->cpu, data, bytes,
                                                                  shape, (size_t)io->desc->rank,
                                                                  io->type, &inst->out_values[k]),
                         err, io->desc->name);
}

static int outputs_prepare(struct onnx_instance *inst, struct mr_exec *exec, uint32_t *io_count,
                           struct mr_err *err)
{
    const struct onnx_model *m = inst->model;
    const int bind = atomic_load_explicit(&m->bind, memory_order_relaxed) == ONNX_BIND_YES;
    for (uint32_t i = 0; i < m->output_count; i++) {
        if (!exec->output_wanted[i]) {
            continue;
        }
        const uint32_t k = (*io_count)++;
        inst->out_index[k] = i;
        inst->out_names[k] = m->outputs[i].name;
        inst->out_is_bound[k] = 0;
        int rc = bind ? output_bind(inst, exec, k, err) : MR_OK;
        if (rc < 0) {
            return rc;
        }
    }
    return MR_OK;
}

static void value_release(void *ctx, void *data)
{
    (void)data;
    onnx_api->ReleaseValue(ctx);
}

/* True if a graph output is one of its inputs, whose memory is only borrowed. */
static int is_inside_input(const struct mr_exec *exec, const void *data)
{
    for (uint32_t i = 0; i < exec->input_count; i++) {
        const uintptr_t begin = (uintptr_t)exec->inputs[i].data;
        if ((uintptr_t)data >= begin && (uintptr_t)data - begin < exec->inputs[i].bytes) {
            return 1;
        }
    }
    return 0;
}

/* Hands over a tensor that ONNX Runtime allocated. */
static int tensor_out(struct onnx_instance *inst, struct mr_exec *exec, uint32_t k,
                      const struct mr_tensor *t, struct mr_err *err)
{
    const uint32_t index = inst->out_index[k];
    void *data = NULL;
    if (t->bytes > COPY_BYTES && !is_inside_input(exec, t->data)) {
        OrtValue *value = inst->out_values[k];
        inst->out_values[k] = NULL; /* output_give releases it in any case */
        return onnx_host->output_give(exec, index, t, value_release, value, err);
    }
    int rc = onnx_host->output(exec, index, t->dtype, t->rank, t->shape, t->bytes, &data, err);
    if (rc == MR_OK && t->bytes > 0) {
        memcpy(data, t->data, t->bytes);
    }
    return rc;
}

static int value_shape(const OrtValue *value, int32_t *out_rank, int64_t *dims, struct mr_err *err)
{
    OrtTensorTypeAndShapeInfo *info = NULL;
    size_t rank = 0;
    int rc;
    ONNX_TRY(GetTensorTypeAndShape(value, &info));
    ONNX_TRY(GetDimensionsCount(info, &rank));
    if (rank > MR_MAX_RANK) {
        rc = mr_backend_fail(err, MR_E_UNSUPPORTED, "an output has %zu dimensions", rank);
        goto out;
    }
    ONNX_TRY(GetDimensions(info, dims, rank));
    *out_rank = (int32_t)rank;
out:
    if (info) {
        onnx_api->ReleaseTensorTypeAndShapeInfo(info);
    }
    return rc;
}

static int output_deliver(struct onnx_instance *inst, struct mr_exec *exec, uint32_t k,
                          int *io_as_predicted, struct mr_err *err)
{
    const struct onnx_model *m = inst->model;
    const uint32_t index = inst->out_index[k];
    const struct onnx_io *io = &m->out[index];
    int64_t dims[MR_MAX_RANK];
    int64_t predicted[MR_MAX_RANK];
    struct mr_tensor t = {.dtype = io->desc->dtype, .shape = dims};
    int rc;
    if (io->kind == ONNX_KIND_ZIPMAP) {
        return onnx_zipmap_out(inst, exec, index, inst->out_values[k], err);
    }
    if ((rc = value_shape(inst->out_values[k], &t.rank, dims, err)) < 0) {
        return rc;
    }
    if (io->kind == ONNX_KIND_STRING) {
        return onnx_strings_out(inst, exec, index, inst->out_values[k], t.rank, dims, err);
    }
    if (shape_predict(m, exec, io, predicted) &&
        (t.rank != io->desc->rank || memcmp(dims, predicted, (size_t)t.rank * sizeof *dims) != 0)) {
        *io_as_predicted = 0;
    }
    ONNX_TRY(GetTensorMutableData(inst->out_values[k], &t.data));
    if (!onnx_shape_bytes(dims, t.rank, onnx_element_bytes(t.dtype), &t.bytes)) {
        return mr_backend_fail(err, MR_E_INTERNAL, "output '%s' has an impossible shape",
                               io->desc->name);
    }
    rc = tensor_out(inst, exec, k, &t, err);
out:
    return rc;
}

static int outputs_deliver(struct onnx_instance *inst, struct mr_exec *exec, uint32_t count,
                           struct mr_err *err)
{
    struct onnx_model *m = inst->model;
    int as_predicted = 1;
    for (uint32_t k = 0; k < count; k++) {
        int rc = inst->out_is_bound[k] ? MR_OK : output_deliver(inst, exec, k, &as_predicted, err);
        if (rc < 0) {
            return rc;
        }
    }
    int unknown = ONNX_BIND_UNKNOWN;
    if (!as_predicted) {
        atomic_store_explicit(&m->bind, ONNX_BIND_NO, memory_order_relaxed);
    } else {
        atomic_compare_exchange_strong_explicit(&m->bind, &unknown, ONNX_BIND_YES,
                                                memory_order_relaxed, memory_order_relaxed);
    }
    return MR_OK;
}

/* A run with bound outputs failed. As an output may differ from the declaration, the next run compares again. */
static void bind_doubt(struct onnx_instance *inst, uint32_t out_count)
{
    for (uint32_t k = 0; k < out_count; k++) {
        if (inst->out_is_bound[k]) {
            atomic_store_explicit(&inst->model->bind, ONNX_BIND_UNKNOWN, memory_order_relaxed);
        }
    }
}

static int general_run(struct onnx_instance *inst, struct mr_exec *exec, struct mr_err *err)
{
    struct onnx_model *m = inst->model;
    uint32_t in_count = 0;
    uint32_t out_count = 0;
    int rc;
    if ((rc = inputs_make(inst, exec, &in_count, err)) < 0 ||
        (rc = outputs_prepare(inst, exec, &out_count, err)) < 0 || out_count == 0) {
        goto out;
    }
    exec->infer_start_ns = onnx_now_ns();
    rc = onnx_check(onnx_api->Run(m->session, inst->run_options, inst->in_names,
                                  (const OrtValue *const *)inst->in_values, in_count,
                                  inst->out_names, out_count, inst->out_values),
                    err);
    exec->infer_end_ns = onnx_now_ns();
    if (rc < 0) {
        bind_doubt(inst, out_count);
    } else {
        rc = outputs_deliver(inst, exec, out_count, err);
    }
out:
    values_release(inst->in_values, m->input_count);
    values_release(inst->out_values, m->output_count);
    return rc;
}

int onnx_execute(void *instance, struct mr_exec *exec, struct mr_err *err)
{
    struct onnx_instance *inst = instance;
    struct onnx_plan *plan = NULL;
    int rc = onnx_plan_find(inst, exec, &plan, err);
    if (rc < 0 || !plan) {
        return rc < 0 ? rc : general_run(inst, exec, err);
    }
    int ran = 0;
    rc = plan_run(inst, plan, exec, &ran, err);
    if (rc < 0 && !ran) {
        /* no output was handed over: run again without assumptions about shapes */
        atomic_store_explicit(&inst->model->bind, ONNX_BIND_UNKNOWN, memory_order_relaxed);
        rc = general_run(inst, exec, err);
    }
    return rc;
}
