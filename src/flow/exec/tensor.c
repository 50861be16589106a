/* Tensors between models that batch and models that do not, and those that become outputs. Nothing is copied but what
 * lives in the arena of a walk, which is small. */
#include "tensor/tensor.h"
#include "exec.h"

int flow_tensor_output(const struct flow *f, struct mr_exec_outputs *o, uint32_t index,
                       const struct run_value *v, struct mr_err *err)
{
    const struct mr_signature *s = f->signature;
    struct mr_tensor t = v->tensor;
    void *data;
    int rc;

    MR_TRY(mr_tensor_fit(&t, s->outputs[index].rank, f->plan->max_batch_size > 0, o->arena, err));
    if (v->block) {
        MR_TRY(mr_exec_output_check(o, index, &t, err));
        struct mr_block *block = mr_block_ref(v->block);
        rc = mr_exec_output_set(o, index, &t, block, err);
        if (rc < 0) {
            mr_block_unref(&block);
        }
        goto out;
    }
    MR_TRY(mr_exec_output_place(o, index, t.dtype, t.rank, t.shape, t.bytes, &data, err));
    if (t.bytes > 0) {
        memcpy(data, t.data, t.bytes);
    }
out:
    return rc;
}
