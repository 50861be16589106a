/* Data types by name. The wire names are the Open Inference Protocol's ("Tensor Data Types"), the
 * config names those of Triton's model_config.proto (enum DataType), which calls BYTES a string. */
#include "tensor/tensor.h"

struct dtype {
    mr_str name;
    mr_str config_name;
    size_t bytes; /* of one element, 0 = varies */
};

static const struct dtype dtypes[MR_DTYPE_COUNT] = {
    [MR_DTYPE_INVALID] = {MR_STR_INIT("INVALID"), MR_STR_INIT("TYPE_INVALID"), 0},
    [MR_DTYPE_BOOL] = {MR_STR_INIT("BOOL"), MR_STR_INIT("TYPE_BOOL"), 1},
    [MR_DTYPE_UINT8] = {MR_STR_INIT("UINT8"), MR_STR_INIT("TYPE_UINT8"), 1},
    [MR_DTYPE_UINT16] = {MR_STR_INIT("UINT16"), MR_STR_INIT("TYPE_UINT16"), 2},
    [MR_DTYPE_UINT32] = {MR_STR_INIT("UINT32"), MR_STR_INIT("TYPE_UINT32"), 4},
    [MR_DTYPE_UINT64] = {MR_STR_INIT("UINT64"), MR_STR_INIT("TYPE_UINT64"), 8},
    [MR_DTYPE_INT8] = {MR_STR_INIT("INT8"), MR_STR_INIT("TYPE_INT8"), 1},
    [MR_DTYPE_INT16] = {MR_STR_INIT("INT16"), MR_STR_INIT("TYPE_INT16"), 2},
    [MR_DTYPE_INT32] = {MR_STR_INIT("INT32"), MR_STR_INIT("TYPE_INT32"), 4},
    [MR_DTYPE_INT64] = {MR_STR_INIT("INT64"), MR_STR_INIT("TYPE_INT64"), 8},
    [MR_DTYPE_FP16] = {MR_STR_INIT("FP16"), MR_STR_INIT("TYPE_FP16"), 2},
    [MR_DTYPE_FP32] = {MR_STR_INIT("FP32"), MR_STR_INIT("TYPE_FP32"), 4},
    [MR_DTYPE_FP64] = {MR_STR_INIT("FP64"), MR_STR_INIT("TYPE_FP64"), 8},
    [MR_DTYPE_BYTES] = {MR_STR_INIT("BYTES"), MR_STR_INIT("TYPE_STRING"), 0},
    [MR_DTYPE_BF16] = {MR_STR_INIT("BF16"), MR_STR_INIT("TYPE_BF16"), 2},
};

static const struct dtype *dtype_get(int dtype)
{
    bool is_known = dtype > MR_DTYPE_INVALID && dtype < MR_DTYPE_COUNT;

    return &dtypes[is_known ? dtype : MR_DTYPE_INVALID];
}

const char *mr_dtype_name(int dtype)
{
    return dtype_get(dtype)->name.ptr;
}

const char *mr_dtype_config_name(int dtype)
{
    return dtype_get(dtype)->config_name.ptr;
}

size_t mr_dtype_size(int dtype)
{
    return dtype_get(dtype)->bytes;
}

/* The loop begins after INVALID, which is not a valid type name. */
int mr_dtype_from_name(mr_str name)
{
    for (int i = MR_DTYPE_INVALID + 1; i < MR_DTYPE_COUNT; i++) {
        mr_str d = dtypes[i].name;
        /* Most names of one length differ in the last byte. */
        if (name.len == d.len && name.ptr[name.len - 1] == d.ptr[d.len - 1] && mr_str_eq(name, d)) {
            return i;
        }
    }
    return MR_DTYPE_INVALID;
}
