/* A node of an op with one BYTES input of one element, for the fuzz targets of ops. */
#ifndef MR_FUZZ_OP_H
#define MR_FUZZ_OP_H

#include "fuzz.h"

#include "op/op.h"
#include "tensor/tensor.h"

/* Each output that is set has a shape that fits its bytes, and all of it may be read. */
static inline void fuzz_check_output(const struct mr_exec_output *o)
{
    uint64_t elements, bytes;
    uint8_t sum = 0;

    REQUIRE(mr_shape_elements(o->tensor.shape, o->tensor.rank, &elements, NULL) == MR_OK);
    if (o->tensor.dtype == MR_DTYPE_BYTES) {
        REQUIRE(mr_bytes_tensor_check((mr_bytes){o->tensor.data, o->tensor.bytes}, elements,
                                      NULL) == MR_OK);
    } else {
        REQUIRE(mr_shape_bytes(o->tensor.dtype, o->tensor.shape, o->tensor.rank, &bytes, NULL) ==
                MR_OK);
        REQUIRE(bytes == o->tensor.bytes);
    }
    for (uint64_t i = 0; i < o->tensor.bytes; i++) {
        sum = (uint8_t)(sum + ((const uint8_t *)o->tensor.data)[i]);
    }
    REQUIRE(sum == sum);
}

/* Runs the op over the element `data`; the memory ends where the element does. */
static inline void fuzz_run(const struct mr_op *op, const uint8_t *data, size_t size,
                            uint32_t outputs)
{
    static const int64_t one[] = {1};
    static const uint8_t wanted[4] = {1, 1, 1, 1};
    struct mr_exec_output out[4] = {0};
    struct mr_arena arena;
    struct mr_err err = {0};
    uint32_t len = (uint32_t)size;
    uint8_t *packed = malloc(size + 4);

    REQUIRE(packed != NULL);
    memcpy(packed, &len, 4);
    if (size > 0) {
        memcpy(packed + 4, data, size);
    }
    struct mr_tensor in = {
        .dtype = MR_DTYPE_BYTES, .rank = 1, .shape = one, .data = packed, .bytes = size + 4};
    struct mr_op_call call = {.inputs = &in, .wanted = wanted, .outputs = out, .arena = &arena};
    mr_arena_init(&arena, 0, 1 << 26);
    int rc = mr_op_run(op, &call, &err);
    REQUIRE(rc == MR_OK || (rc == err.status && err.msg[0] != '\0' && rc != MR_E_INTERNAL));
    for (uint32_t i = 0; i < outputs; i++) {
        REQUIRE(out[i].is_set == (rc == MR_OK));
        if (rc == MR_OK) {
            fuzz_check_output(&out[i]);
            mr_block_unref(&out[i].block);
        }
    }
    mr_arena_fini(&arena);
    free(packed);
}

static inline struct mr_op *fuzz_create(const char *name, const char *input,
                                        const struct mr_setting *settings, uint32_t setting_count,
                                        const struct mr_op_io *outputs, uint32_t output_count)
{
    static const int64_t one[] = {1};
    struct mr_op_io in = {.name = input, .dims = one, .dtype = MR_DTYPE_BYTES, .rank = 1};
    struct mr_op_desc desc = {.parameters = settings,
                              .parameter_count = setting_count,
                              .workflow = "w",
                              .node = "n",
                              .inputs = &in,
                              .input_count = 1,
                              .outputs = outputs,
                              .output_count = output_count};
    static struct mr_ops *ops; /* used to the end of the process */
    struct mr_op *op;

    REQUIRE(ops || mr_ops_open(NULL, 0, &ops, NULL) == MR_OK);
    REQUIRE(mr_op_create(ops, mr_str_c(name), &desc, &op, NULL) == MR_OK);
    return op;
}

#endif
