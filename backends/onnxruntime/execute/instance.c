/* The reusable state of one executor.
 *
 * A small model costs ONNX Runtime one or two microseconds a run, and making four values for it costs
 * a third of that again (27 allocations instead of 12). So for models whose tensors are all small and
 * of known shape an instance keeps, for each number of rows up to ONNX_PLAN_ROWS, values over memory of
 * its own and a binding of them; an execution copies bytes in, runs the binding and copies bytes out.
 * Plans are made when first needed. Everything else takes the general path in execute.c.
 *
 * Thread: one at a time per instance. */
#include "onnxruntime/session/onnx.h"

static void plan_free(struct onnx_plan *p, uint32_t count)
{
    if (!p) {
        return;
    }
    if (p->binding) {
        onnx_api->ReleaseIoBinding(p->binding);
    }
    for (uint32_t i = 0; p->values && i < count; i++) {
        if (p->values[i]) {
            onnx_api->ReleaseValue(p->values[i]);
        }
    }
    free(p->values);
    free(p->data);
    free(p->memory);
    free(p);
}

void onnx_instance_close(void *instance)
{
    struct onnx_instance *inst = instance;
    const struct onnx_model *m = inst->model;
    for (int i = 0; i < ONNX_PLAN_ROWS; i++) {
        plan_free(inst->plans[i], m->input_count + m->output_count);
    }
    if (inst->run_options) {
        onnx_api->ReleaseRunOptions(inst->run_options);
    }
    free(inst->in_names);
    free(inst->in_values);
    free(inst->out_names);
    free(inst->out_values);
    free(inst->out_index);
    free(inst->out_is_bound);
    free(inst->offsets);
    free(inst);
}

static int scratch_make(struct onnx_instance *inst, struct mr_err *err)
{
    const size_t in = (size_t)inst->model->input_count + 1;
    const size_t out = (size_t)inst->model->output_count + 1;
    inst->in_names = calloc(in, sizeof *inst->in_names);
    inst->in_values = calloc(in, sizeof *inst->in_values);
    inst->out_names = calloc(out, sizeof *inst->out_names);
    inst->out_values = calloc(out, sizeof *inst->out_values);
    inst->out_index = calloc(out, sizeof *inst->out_index);
    inst->out_is_bound = calloc(out, sizeof *inst->out_is_bound);
    if (!inst->in_names || !inst->in_values || !inst->out_names || !inst->out_values ||
        !inst->out_index || !inst->out_is_bound) {
        return mr_backend_fail(err, MR_E_NOMEM, "out of memory");
    }
    return MR_OK;
}

int onnx_instance_open(void *model, const struct mr_instance_desc *desc, void **out_instance,
                       struct mr_err *err)
{
    struct onnx_model *m = model;
    int rc;
    (void)desc;
    struct onnx_instance *inst = calloc(1, sizeof *inst);
    if (!inst) {
        return mr_backend_fail(err, MR_E_NOMEM, "out of memory");
    }
    inst->model = m;
    if ((rc = scratch_make(inst, err)) < 0) {
        goto out;
    }
    ONNX_TRY(CreateRunOptions(&inst->run_options));
    if (m->shrink_arena) {
        ONNX_TRY(AddRunConfigEntry(inst->run_options, "memory.enable_memory_arena_shrinkage",
                                   m->shrink_arena));
    }
    *out_instance = inst;
    return MR_OK;
out:
    onnx_instance_close(inst);
    return rc;
}

/* The value of one tensor over its place in the plan's memory, bound. */
static int plan_bind(struct onnx_plan *p, struct onnx_model *m, uint32_t i, int64_t rows,
                     struct mr_err *err)
{
    const int is_input = i < m->input_count;
    const struct onnx_io *io = is_input ? &m->in[i] : &m->out[i - m->input_count];
    const uint64_t bytes = io->row_bytes * (io->has_batch ? (uint64_t)rows : 1);
    const size_t rank = (size_t)io->desc->rank;
    int64_t shape[MR_MAX_RANK];
    int rc;
    memcpy(shape, io->desc->dims, rank * sizeof *shape);
    if (io->has_batch) {
        shape[0] = rows;
    }
    ONNX_TRY(CreateTensorWithDataAsOrtValue(m->backend->cpu, p->data[i], bytes, shape, rank,
                                            io->type, &p->values[i]));
    if (is_input) {
        ONNX_TRY(BindInput(p->binding, io->desc->name, p->values[i]));
    } else {
        ONNX_TRY(BindOutput(p->binding, io->desc->name, p->values[i]));
    }
out:
    return rc;
}

/* One block for all tensors, each on a cache line of its own. */
static int plan_memory(struct onnx_plan *p, struct onnx_model *m, int64_t rows, struct mr_err *err)
{
    const uint32_t count = m->input_count + m->output_count;
    size_t used = 0;
    for (int pass = 0; pass < 2; pass++) {
        used = 0;
        for (uint32_t i = 0; i < count; i++) {
            const struct onnx_io *io = i < m->input_count ? &m->in[i] : &m->out[i - m->input_count];
            if (pass == 1) {
                p->data[i] = p->memory + used;
            }
            used += (io->row_bytes * (io->has_batch ? (uint64_t)rows : 1) + 127) / 64 * 64;
        }
        if (pass == 0 && !(p->memory = aligned_alloc(64, used))) {
            return mr_backend_fail(err, MR_E_NOMEM, "out of memory");
        }
    }
    memset(p->memory, 0, used);
    return MR_OK;
}

static int plan_make(struct onnx_model *m, int64_t rows, struct onnx_plan **out, struct mr_err *err)
{
    const uint32_t count = m->input_count + m->output_count;
    int rc;
    struct onnx_plan *p = calloc(1, sizeof *p);
    if (!p) {
        return mr_backend_fail(err, MR_E_NOMEM, "out of memory");
    }
    p->values = calloc(count, sizeof *p->values);
    p->data = calloc(count, sizeof *p->data);
    if (!p->values || !p->data) {
        rc = mr_backend_fail(err, MR_E_NOMEM, "out of memory");
        goto out;
    }
    if ((rc = plan_memory(p, m, rows, err)) < 0) {
        goto out;
    }
    ONNX_TRY(CreateIoBinding(m->session, &p->binding));
    for (uint32_t i = 0; i < count; i++) {
        if ((rc = plan_bind(p, m, i, rows, err)) < 0) {
            goto out;
        }
    }
    *out = p;
    return MR_OK;
out:
    plan_free(p, count);
    return rc;
}

/* Rows of this execution if every tensor fits a plan, otherwise 0. */
static int64_t plan_rows(const struct onnx_model *m, const struct mr_exec *exec)
{
    int64_t rows = 0;
    for (uint32_t i = 0; i < m->input_count; i++) {
        const struct mr_tensor *t = &exec->inputs[i];
        const struct onnx_io *io = &m->in[i];
        if (t->dtype != io->desc->dtype || t->rank != io->desc->rank) {
            return 0;
        }
        for (int32_t d = 0; d < t->rank; d++) {
            if (io->desc->dims[d] != -1 && t->shape[d] != io->desc->dims[d]) {
                return 0;
            }
        }
        if (io->has_batch) {
            if (t->shape[0] < 1 || (rows != 0 && t->shape[0] != rows)) {
                return 0;
            }
            rows = t->shape[0];
        }
        if (t->bytes != io->row_bytes * (io->has_batch ? (uint64_t)rows : 1)) {
            return 0;
        }
    }
    return rows == 0 ? 1 : rows;
}

int onnx_plan_find(struct onnx_instance *inst, const struct mr_exec *exec, struct onnx_plan **out,
                   struct mr_err *err)
{
    struct onnx_model *m = inst->model;
    *out = NULL;
    if (!m->can_stage || atomic_load_explicit(&m->bind, memory_order_relaxed) != ONNX_BIND_YES) {
        return MR_OK;
    }
    for (uint32_t i = 0; i < m->output_count; i++) {
        if (!exec->output_wanted[i] ||
            (m->out[i].has_batch && exec->row_count == 0 && !m->rows_agree)) {
            return MR_OK;
        }
    }
    int64_t rows = plan_rows(m, exec);
    if (rows < 1 || rows > ONNX_PLAN_ROWS) {
        return MR_OK;
    }
    if (!inst->plans[rows - 1]) {
        int rc = plan_make(m, rows, &inst->plans[rows - 1], err);
        if (rc < 0) {
            return rc;
        }
    }
    *out = inst->plans[rows - 1];
    return MR_OK;
}
