/* Runs ops. Outputs are checked as the op asks for them, against what it said when it was created: a wrong shape is refused before
 * memory is allocated for it. Small outputs are in the arena, larger ones in blocks.
 *
 * Thread: that of the run. */
#include "host.h"

#include "base/turn.h"
#include "tensor/tensor.h"

#define SMALL_BYTES 8192
#define ALIGN_BYTES 64

struct op_run {
    struct mr_op_run run; /* first: the op hands it back */
    const struct mr_op *op;
    const struct mr_op_call *call;
};

static struct op_run *run_of(struct mr_op_run *run)
{
    return (struct op_run *)(void *)run;
}

/* The error of an op that breaks the contract. */
#define BROKEN(r, err, index, ...)                                                                 \
    (MR_FAIL((err), MR_E_INTERNAL, __VA_ARGS__),                                                   \
     mr_err_wrap((err), MR_E_INTERNAL, "output '%.80s'", (r)->op->signature.outputs[index].name))

static int check_shape(struct op_run *r, uint32_t index, int32_t rank, const int64_t *shape,
                       struct mr_err *err)
{
    const struct mr_op_io *io = &r->op->signature.outputs[index];
    char text[128], declared[128];

    if (rank < 0 || rank > MR_MAX_RANK || (rank > 0 && !shape)) {
        return BROKEN(r, err, index, "came with rank %d", rank);
    }
    bool is_ok = io->rank < 0 || io->rank == rank;
    for (int i = 0; is_ok && i < io->rank; i++) {
        is_ok = io->dims[i] < 0 || io->dims[i] == shape[i];
    }
    return is_ok ? MR_OK
                 : BROKEN(r, err, index, "came as %s, declared is %s",
                          mr_shape_text(shape, rank, text, sizeof text),
                          mr_shape_text(io->dims, io->rank, declared, sizeof declared));
}

/* Index, type, shape and size of an output; *out: its bytes. */
static int check(struct op_run *r, uint32_t index, int32_t dtype, int32_t rank,
                 const int64_t *shape, uint64_t stated, uint64_t *out, struct mr_err *err)
{
    const struct mr_op_signature *s = &r->op->signature;
    uint64_t bytes = stated, elements;

    if (index >= r->op->output_count) {
        return MR_FAIL(err, MR_E_INTERNAL, "output %u of only %u", index, r->op->output_count);
    }
    if (r->call->outputs[index].is_set) {
        return BROKEN(r, err, index, "set twice");
    }
    if (dtype != s->outputs[index].dtype) {
        return BROKEN(r, err, index, "came as %s, declared is %s", mr_dtype_name(dtype),
                      mr_dtype_name(s->outputs[index].dtype));
    }
    int rc = check_shape(r, index, rank, shape, err);
    if (rc < 0) {
        return rc;
    }
    rc = mr_shape_elements(shape, rank, &elements, err);
    if (rc == MR_OK && dtype == MR_DTYPE_BYTES && stated / 4 < elements) {
        return BROKEN(r, err, index, "came with %llu bytes for %llu strings",
                      (unsigned long long)stated, (unsigned long long)elements);
    }
    if (rc == MR_OK && dtype != MR_DTYPE_BYTES) {
        rc = mr_shape_bytes(dtype, shape, rank, &bytes, err);
    }
    if (rc == MR_OK && stated != 0 && stated != bytes) {
        return BROKEN(r, err, index, "came with %llu bytes, its shape has %llu",
                      (unsigned long long)stated, (unsigned long long)bytes);
    }
    *out = bytes;
    return rc;
}

static int no_memory(struct op_run *r, uint32_t index, uint64_t bytes, struct mr_err *err)
{
    return MR_FAIL(err, MR_E_EXHAUSTED,
                   "no memory now for %llu bytes of output '%.80s' (--memory-budget), try later",
                   (unsigned long long)bytes, r->op->signature.outputs[index].name);
}

/* Takes `block` on success. */
static int set(struct op_run *r, uint32_t index, const struct mr_tensor *t, struct mr_block *block,
               struct mr_err *err)
{
    struct mr_exec_output *to = &r->call->outputs[index];
    size_t bytes = (size_t)t->rank * sizeof(int64_t);
    int64_t *shape = mr_arena_try(r->call->arena, MR_MAX(bytes, 1), _Alignof(int64_t));

    if (!shape) {
        return no_memory(r, index, bytes, err);
    }
    if (t->rank > 0) {
        memcpy(shape, t->shape, bytes);
    }
    *to = (struct mr_exec_output){.is_set = true, .tensor = *t, .block = block};
    to->tensor.shape = shape;
    return MR_OK;
}

static int place(struct op_run *r, uint32_t index, struct mr_tensor *t, struct mr_err *err)
{
    struct mr_block *block = NULL;

    /* never NULL, also for an empty output: an op may pass it to code that requires a pointer */
    if (t->bytes <= SMALL_BYTES && !r->call->provider) {
        t->data = mr_arena_try(r->call->arena, MR_MAX(t->bytes, 1), ALIGN_BYTES);
    } else {
        block = mr_block_new_in(r->call->provider, MR_MAX(t->bytes, 1));
        t->data = block ? block->data : NULL;
    }
    int rc = t->data ? set(r, index, t, block, err) : no_memory(r, index, t->bytes, err);
    if (rc < 0) {
        mr_block_unref(&block);
    }
    return rc;
}

int op_run_output(struct mr_op_run *run, uint32_t index, int32_t dtype, int32_t rank,
                  const int64_t *shape, uint64_t byte_size, void **out_data, struct mr_err *err)
{
    struct op_run *r = run_of(run);
    struct mr_tensor t = {.dtype = dtype, .rank = rank, .shape = shape};
    int rc = check(r, index, dtype, rank, shape, byte_size, &t.bytes, err);

    if (rc == MR_OK) {
        rc = place(r, index, &t, err);
    }
    if (rc == MR_OK) {
        *out_data = t.data;
    }
    return rc;
}

static struct mr_block *block_of(const struct op_run *r, uint32_t input)
{
    struct mr_block *b = r->call->blocks ? r->call->blocks[input] : NULL;

    return b ? mr_block_ref(b) : NULL;
}

/* Not if an output that has been set already refers to the input's memory. */
static bool may_write(const struct op_run *r, uint32_t input)
{
    const struct mr_block *b = r->call->blocks ? r->call->blocks[input] : NULL;

    return r->call->may_write && r->call->may_write[input] && b && mr_block_refs(b) == 1;
}

/* Sets the output to a part of the input's memory. */
static int refer(struct op_run *r, uint32_t index, uint32_t input, const struct mr_tensor *t,
                 struct mr_err *err)
{
    struct mr_block *block = block_of(r, input);
    int rc = set(r, index, t, block, err);

    if (rc < 0) {
        mr_block_unref(&block);
    }
    return rc;
}

static int copy(struct op_run *r, uint32_t index, struct mr_tensor *t, const void *from,
                struct mr_err *err)
{
    int rc = place(r, index, t, err);

    if (rc == MR_OK && t->bytes > 0 && !mr_turn_copy(t->data, from, t->bytes)) {
        return MR_FAIL(err, MR_E_CANCELLED, "cancelled");
    }
    return rc;
}

static int check_input(struct op_run *r, uint32_t input, uint64_t offset, uint64_t bytes,
                       struct mr_err *err)
{
    if (input >= r->op->input_count || r->run.inputs[input].dtype == MR_DTYPE_INVALID) {
        return MR_FAIL(err, MR_E_INTERNAL, "there is no input %u", input);
    }
    if (offset > r->run.inputs[input].bytes || bytes > r->run.inputs[input].bytes - offset) {
        return MR_FAIL(err, MR_E_INTERNAL, "bytes %llu to %llu of input %u, which has %llu",
                       (unsigned long long)offset, (unsigned long long)(offset + bytes), input,
                       (unsigned long long)r->run.inputs[input].bytes);
    }
    return MR_OK;
}

int op_run_output_view(struct mr_op_run *run, uint32_t index, uint32_t input, uint64_t offset,
                       int32_t dtype, int32_t rank, const int64_t *shape, uint64_t byte_size,
                       struct mr_err *err)
{
    struct op_run *r = run_of(run);
    struct mr_tensor t = {.dtype = dtype, .rank = rank, .shape = shape};
    int rc = check(r, index, dtype, rank, shape, byte_size, &t.bytes, err);

    if (rc == MR_OK) {
        rc = check_input(r, input, offset, t.bytes, err);
    }
    if (rc < 0) {
        return rc;
    }
    const char *from = (const char *)run->inputs[input].data + (t.bytes > 0 ? offset : 0);
    size_t align = MR_MAX(mr_dtype_size(dtype), 1);
    t.data = (void *)(uintptr_t)from;
    return (uintptr_t)from % align == 0 ? refer(r, index, input, &t, err)
                                        : copy(r, index, &t, from, err);
}

int op_run_output_in_place(struct mr_op_run *run, uint32_t index, uint32_t input, int32_t dtype,
                           int32_t rank, const int64_t *shape, void **out_data, struct mr_err *err)
{
    struct op_run *r = run_of(run);
    struct mr_tensor t = {.dtype = dtype, .rank = rank, .shape = shape};
    int rc = input < r->op->input_count
                 ? MR_OK
                 : MR_FAIL(err, MR_E_INTERNAL, "there is no input %u", input);

    if (rc == MR_OK) {
        rc = check(r, index, dtype, rank, shape, run->inputs[input].bytes, &t.bytes, err);
    }
    if (rc == MR_OK) {
        rc = check_input(r, input, 0, t.bytes, err);
    }
    if (rc < 0) {
        return rc;
    }
    void *from = run->inputs[input].data;
    t.data = from;
    rc = t.bytes > 0 && may_write(r, input) ? refer(r, index, input, &t, err)
                                            : copy(r, index, &t, from, err);
    if (rc == MR_OK) {
        *out_data = t.data;
    }
    return rc;
}

int op_run_spend(struct mr_op_run *run, uint64_t units)
{
    const struct op_run *r = run_of(run);

    return mr_turn_spend(units) && !(r->call->is_cancelled && r->call->is_cancelled(r->call->ctx));
}

/* What is left to check when the op has ended. */
static int check_outputs(const struct mr_op *op, const struct mr_op_call *call, struct mr_err *err)
{
    for (uint32_t i = 0; i < op->output_count; i++) {
        const struct mr_exec_output *o = &call->outputs[i];
        uint64_t elements;
        if (call->wanted[i] && !o->is_set) {
            return MR_FAIL(err, MR_E_INTERNAL, "did not set its output '%.80s'",
                           op->signature.outputs[i].name);
        }
        if (!o->is_set || o->tensor.dtype != MR_DTYPE_BYTES || op->entry->is_builtin) {
            continue;
        }
        int rc = mr_shape_elements(o->tensor.shape, o->tensor.rank, &elements, err);
        if (rc == MR_OK) {
            rc = mr_bytes_tensor_check((mr_bytes){o->tensor.data, o->tensor.bytes}, elements, err);
        }
        if (rc < 0) {
            return MR_WRAP(err, MR_E_INTERNAL, "output '%.80s'", op->signature.outputs[i].name);
        }
    }
    return MR_OK;
}

static bool fits(const struct mr_op_io *io, const struct mr_tensor *t)
{
    bool fits = (io->dtype == MR_DTYPE_INVALID || io->dtype == t->dtype) &&
                (io->rank < 0 || io->rank == t->rank);

    for (int32_t k = 0; fits && io->dims && k < io->rank; k++) {
        fits = io->dims[k] < 0 || io->dims[k] == t->shape[k];
    }
    return fits;
}

/* An op reads its inputs as what it was created for; the model that makes one may have been replaced since. */
static int check_inputs(const struct mr_op *op, const struct mr_op_call *call, struct mr_err *err)
{
    for (uint32_t i = 0; i < op->input_count; i++) {
        const struct mr_tensor *t = &call->inputs[i];
        const struct mr_op_io *io = &op->inputs[i];
        char is[256], was[256];

        if (t->memory_kind == MR_MEMORY_DEVICE) {
            return MR_FAIL(err, MR_E_UNSUPPORTED, "input %u is not in host memory", i);
        }
        if (t->dtype != MR_DTYPE_INVALID && !fits(io, t)) {
            return MR_FAIL(err, MR_E_INVALID,
                           "input %u is %s %s, the workflow was loaded with %s %s", i,
                           mr_dtype_name(t->dtype), mr_shape_text(t->shape, t->rank, is, sizeof is),
                           mr_dtype_name(io->dtype),
                           mr_shape_text(io->dims, MR_MAX(io->rank, 0), was, sizeof was));
        }
    }
    return MR_OK;
}

int mr_op_run(const struct mr_op *op, const struct mr_op_call *call, struct mr_err *err)
{
    struct op_run r = {.run = {.size = sizeof r.run,
                               .input_count = op->input_count,
                               .output_count = op->output_count,
                               .inputs = call->inputs,
                               .output_wanted = call->wanted},
                       .op = op,
                       .call = call};
    struct mr_err detail;
    int rc;

    mr_err_clear(&detail);
    rc = check_inputs(op, call, &detail);
    if (rc == MR_OK) {
        rc = op->entry->kind.run(op->object, &r.run, &detail);
    }
    if (rc == MR_OK) {
        rc = check_outputs(op, call, &detail);
    }
    rc = op_result(op->entry, "run", rc, &detail);
    for (uint32_t i = 0; i < op->output_count && rc < 0; i++) {
        mr_block_unref(&call->outputs[i].block);
        call->outputs[i] = (struct mr_exec_output){0};
    }
    if (rc < 0 && err) {
        *err = detail;
    }
    return rc;
}
