/* Data types, shapes and checks of tensors (the types are in include/millrace/tensor.h). */
#ifndef MR_TENSOR_TENSOR_H
#define MR_TENSOR_TENSOR_H

#include "base/arena.h"
#include "base/err.h"
#include "base/pool.h"
#include "base/str.h"
#include "millrace/tensor.h"

/** Wire name ("INT32", "BYTES"); "INVALID" for anything else. Static. */
const char *mr_dtype_name(int dtype);
/** From the wire name; MR_DTYPE_INVALID when there is no such type. */
int mr_dtype_from_name(mr_str name);
/** "TYPE_INT32", "TYPE_STRING". Static. */
const char *mr_dtype_config_name(int dtype);
/** Bytes of one element, 0 for BYTES and invalid types. */
size_t mr_dtype_size(int dtype);

/** Product of the dims. Empty shape = 1 element; any zero dim = 0 elements.
 *  Errors: MR_E_INVALID (rank not in 0..MR_MAX_RANK, a negative dim, overflow). */
int mr_shape_elements(const int64_t *shape, int rank, uint64_t *out, struct mr_err *err);
/** Bytes of a fixed-size tensor. Errors: as above, MR_E_INVALID for BYTES. */
int mr_shape_bytes(int dtype, const int64_t *shape, int rank, uint64_t *out, struct mr_err *err);
/** "[1,-1,16]" into buf, always NUL-terminated, cut if too long; returns buf. */
char *mr_shape_text(const int64_t *shape, int rank, char *buf, size_t buf_size);

/** Gives `t` the rank that a model with or without batching takes: a batch dimension of 1 more or less. Otherwise `t` stays
 *  as it is. The new shape is in the arena, or part of the old one. Errors: MR_E_EXHAUSTED. */
int mr_tensor_fit(struct mr_tensor *t, int32_t rank, bool is_batching, struct mr_arena *arena,
                  struct mr_err *err);

/** Walk the elements of an encoded BYTES tensor: cuts the next element off *io_rest.
 *  Returns false at the end or when the encoding is broken (then io_rest->len is not 0). */
bool mr_bytes_tensor_next(mr_bytes *io_rest, mr_str *out_element);
/** Check that `data` holds exactly `elements` length-prefixed elements. Errors: MR_E_INVALID. */
int mr_bytes_tensor_check(mr_bytes data, uint64_t elements, struct mr_err *err);
/** Whether a tensor's bytes are those of its type and shape, each element of BYTES included. */
bool mr_tensor_is_whole(const struct mr_tensor *t);

/** IEEE half and bfloat16, round to nearest even; NaN stays NaN, overflow becomes infinity. A double is rounded once, which
 *  a float on the way would not do. */
uint16_t mr_fp16_from_float(float f);
uint16_t mr_fp16_from_double(double v);
float mr_fp16_to_float(uint16_t h);
uint16_t mr_bf16_from_float(float f);
uint16_t mr_bf16_from_double(double v);
float mr_bf16_to_float(uint16_t h);

#endif
