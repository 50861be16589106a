/* Setting outputs, and the checks around it.
 *
 * Outputs are checked when the backend requests them: index, data type, shape, size, rows. So a wrong shape is
 * refused before memory is allocated for it. Properties of the finished bytes (the length prefixes of a BYTES
 * tensor) are checked at the end. Small outputs live in the arena, larger ones in pooled blocks; both are 64-byte
 * aligned, and neither costs a heap allocation when warm.
 *
 * Thread: one at a time for the same outputs. */
#include "exec_priv.h"
#include "tensor/tensor.h"

#define SMALL_BYTES 8192 /* largest output in the arena, as exec.h promises */
#define ALIGN_BYTES 64

/* The error of an executor that breaks the contract. */
#define BROKEN(o, err, index, ...)                                                                 \
    (MR_FAIL((err), MR_E_INTERNAL, __VA_ARGS__),                                                   \
     mr_err_wrap((err), MR_E_INTERNAL, "backend '%s', model '%s', output '%s'",                    \
                 (o)->executor->backend, (o)->executor->model,                                     \
                 (o)->executor->signature->outputs[index].name))

static int check(const struct mr_exec_outputs *o, uint32_t index, int32_t dtype, int32_t rank,
                 const int64_t *shape, struct mr_err *err)
{
    const struct mr_signature *sig = o->executor->signature;
    if (index >= sig->output_count) {
        return MR_FAIL(err, MR_E_INTERNAL, "backend '%s', model '%s': output %u of only %u",
                       o->executor->backend, o->executor->model, index, sig->output_count);
    }
    if (o->list[index].is_set) {
        return BROKEN(o, err, index, "set twice");
    }
    if (dtype != sig->outputs[index].dtype) {
        return BROKEN(o, err, index, "came as %s, declared is %s", mr_dtype_name(dtype),
                      mr_dtype_name(sig->outputs[index].dtype));
    }
    if (rank < 0 || rank > MR_MAX_RANK || (rank > 0 && !shape)) {
        return BROKEN(o, err, index, "came with rank %d", rank);
    }
    if (o->row_count > 0 && (rank == 0 || shape[0] != o->row_count)) {
        int rc = BROKEN(o, err, index, "came with %lld rows for a batch of %lld",
                        rank == 0 ? 0LL : (long long)shape[0], (long long)o->row_count);
        if (err) {
            err->flags |= MR_ERR_ROWS;
        }
        return rc;
    }
    return MR_OK;
}

/* Bytes that the output must have; `stated` 0 = computed here (not for BYTES). */
static int byte_count(const struct mr_exec_outputs *o, uint32_t index, int32_t dtype, int32_t rank,
                      const int64_t *shape, uint64_t stated, uint64_t *out, struct mr_err *err)
{
    struct mr_err detail;
    uint64_t elements;
    uint64_t bytes;
    mr_err_clear(&detail);
    if (mr_shape_elements(shape, rank, &elements, &detail) < 0) {
        return BROKEN(o, err, index, "%s", detail.msg);
    }
    if (dtype == MR_DTYPE_BYTES) {
        if (stated / 4 < elements) {
            return BROKEN(o, err, index, "came with %llu bytes for %llu strings",
                          (unsigned long long)stated, (unsigned long long)elements);
        }
        *out = stated;
        return MR_OK;
    }
    if (__builtin_mul_overflow(elements, mr_dtype_size(dtype), &bytes)) {
        return BROKEN(o, err, index, "came with more bytes than there can be");
    }
    if (stated != 0 && stated != bytes) {
        char text[128];
        return BROKEN(o, err, index, "came with %llu bytes, but %s%s has %llu",
                      (unsigned long long)stated, mr_dtype_name(dtype),
                      mr_shape_text(shape, rank, text, sizeof text), (unsigned long long)bytes);
    }
    *out = bytes;
    return MR_OK;
}

int mr_exec_output_no_memory(const struct mr_exec_outputs *o, uint32_t index, uint64_t bytes,
                             struct mr_err *err)
{
    int rc = MR_FAIL(err, MR_E_EXHAUSTED,
                     "no memory now for %llu bytes of output '%s' (--memory-budget), try later",
                     (unsigned long long)bytes, o->executor->signature->outputs[index].name);
    if (err) {
        err->flags |= MR_ERR_RETRYABLE;
    }
    return rc;
}

int mr_exec_output_set(struct mr_exec_outputs *o, uint32_t index, const struct mr_tensor *t,
                       struct mr_block *block, struct mr_err *err)
{
    struct mr_exec_output *to = &o->list[index];
    int64_t *shape = NULL;
    if (t->rank > 0) {
        shape = mr_arena_try(o->arena, (size_t)t->rank * sizeof *shape, _Alignof(int64_t));
        if (!shape) {
            return mr_exec_output_no_memory(o, index, (uint64_t)t->rank * sizeof *shape, err);
        }
        memcpy(shape, t->shape, (size_t)t->rank * sizeof *shape);
    }
    to->tensor = *t;
    to->tensor.shape = shape;
    to->block = block;
    to->is_set = true;
    return MR_OK;
}

int mr_exec_output_place(struct mr_exec_outputs *o, uint32_t index, int32_t dtype, int32_t rank,
                         const int64_t *shape, uint64_t byte_size, void **out_data,
                         struct mr_err *err)
{
    struct mr_block *block = NULL;
    uint64_t bytes = 0;
    void *data;
    int rc;
    MR_TRY(check(o, index, dtype, rank, shape, err));
    MR_TRY(byte_count(o, index, dtype, rank, shape, byte_size, &bytes, err));
    /* never NULL, also for an empty output: a backend may pass it to code that requires a pointer */
    if (bytes <= SMALL_BYTES && !o->provider) {
        data = mr_arena_try(o->arena, MR_MAX(bytes, 1), ALIGN_BYTES);
    } else {
        block = mr_block_new_in(o->provider, MR_MAX(bytes, 1));
        data = block ? block->data : NULL;
    }
    if (!data) {
        return mr_exec_output_no_memory(o, index, bytes, err);
    }
    const struct mr_tensor t = {
        .dtype = dtype, .rank = rank, .shape = shape, .data = data, .bytes = bytes};
    MR_TRY(mr_exec_output_set(o, index, &t, block, err));
    *out_data = data;
    return MR_OK;
out:
    mr_block_unref(&block);
    return rc;
}

int mr_exec_output_check(const struct mr_exec_outputs *o, uint32_t index, const struct mr_tensor *t,
                         struct mr_err *err)
{
    uint64_t bytes = 0;
    int rc;
    MR_TRY(check(o, index, t->dtype, t->rank, t->shape, err));
    MR_TRY(byte_count(o, index, t->dtype, t->rank, t->shape, t->bytes, &bytes, err));
    if (t->memory_kind == MR_MEMORY_DEVICE) {
        rc = BROKEN(o, err, index, "was given memory of device %d, which this server cannot read",
                    t->device_id);
    } else if (t->memory_kind != MR_MEMORY_HOST && t->memory_kind != MR_MEMORY_HOST_PINNED) {
        rc = BROKEN(o, err, index, "was given memory of an unknown kind (%u)", t->memory_kind);
    } else if (bytes != t->bytes) {
        rc = BROKEN(o, err, index, "was given %llu bytes, needed are %llu",
                    (unsigned long long)t->bytes, (unsigned long long)bytes);
    } else if (bytes > 0 && !t->data) {
        rc = BROKEN(o, err, index, "was given no data");
    }
out:
    return rc;
}

int exec_outputs_complete(const struct mr_exec_outputs *o, const uint8_t *wanted,
                          struct mr_err *err)
{
    struct mr_err detail;
    mr_err_clear(&detail);
    for (uint32_t i = 0; i < o->executor->signature->output_count; i++) {
        const struct mr_exec_output *it = &o->list[i];
        if (!it->is_set) {
            if (!wanted || wanted[i]) {
                return BROKEN(o, err, i, "was not produced");
            }
            continue;
        }
        if (it->tensor.dtype == MR_DTYPE_BYTES) {
            const mr_bytes data = {it->tensor.data, it->tensor.bytes};
            uint64_t elements = 0;
            int rc = mr_shape_elements(it->tensor.shape, it->tensor.rank, &elements, &detail);
            if (rc < 0 || mr_bytes_tensor_check(data, elements, &detail) < 0) {
                return BROKEN(o, err, i, "%s", detail.msg);
            }
        }
    }
    return MR_OK;
}

void mr_exec_outputs_drop(struct mr_exec_outputs *o)
{
    for (uint32_t i = 0; o->list && i < o->executor->signature->output_count; i++) {
        mr_block_unref(&o->list[i].block);
        o->list[i] = (struct mr_exec_output){0};
    }
}
