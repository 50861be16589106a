/* Data types and tensor views: the currency between codecs, scheduler, backends and clients.
 *
 * A tensor is dense, row-major, little-endian. A BYTES tensor holds its elements one after the
 * other, each a 4-byte little-endian length followed by that many bytes (the Open Inference
 * Protocol's binary form), so `bytes` of it cannot be computed from the shape.
 *
 * Plain C11 and C++11; part of the plugin ABI: append only. */
#ifndef MILLRACE_TENSOR_H
#define MILLRACE_TENSOR_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Element types; the numbers are those of Triton's ModelConfig `DataType`. BOOL is one byte, 0 or 1. */
enum mr_dtype {
    MR_DTYPE_INVALID = 0,
    MR_DTYPE_BOOL = 1,
    MR_DTYPE_UINT8 = 2,
    MR_DTYPE_UINT16 = 3,
    MR_DTYPE_UINT32 = 4,
    MR_DTYPE_UINT64 = 5,
    MR_DTYPE_INT8 = 6,
    MR_DTYPE_INT16 = 7,
    MR_DTYPE_INT32 = 8,
    MR_DTYPE_INT64 = 9,
    MR_DTYPE_FP16 = 10,
    MR_DTYPE_FP32 = 11,
    MR_DTYPE_FP64 = 12,
    MR_DTYPE_BYTES = 13,
    MR_DTYPE_BF16 = 14,
    MR_DTYPE_COUNT = 15
};

/** Where the bytes of a tensor are. */
enum mr_memory_kind {
    MR_MEMORY_HOST = 0,        /* memory of this process */
    MR_MEMORY_HOST_PINNED = 1, /* the same, page-locked for a device */
    MR_MEMORY_DEVICE = 2       /* of the device `device_id` */
};

/** Most dimensions a tensor may have anywhere in Millrace. */
#define MR_MAX_RANK 32

/** A view of a tensor; owns nothing. `shape` has `rank` entries, each >= 0; rank 0 is a scalar.
 *  `data` is aligned for the element type and may be NULL only when `bytes` is 0.
 *  In an array of inputs, dtype MR_DTYPE_INVALID marks an optional input that was not sent. */
struct mr_tensor {
    int32_t dtype; /* enum mr_dtype */
    int32_t rank;  /* 0..MR_MAX_RANK */
    const int64_t *shape;
    void *data;
    uint64_t bytes;
    uint32_t memory_kind; /* enum mr_memory_kind */
    int32_t device_id;    /* of the kinds that have one */
};

#ifdef __cplusplus
}
#endif
#endif
