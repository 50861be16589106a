/* Reading and writing NumPy's .npy files, versions 1.0, 2.0 and 3.0.
 *
 * Read: bool, integers, floats (half to double) in either byte order, C or Fortran order; S (bytes) and
 * U (text) become BYTES. Not read: objects, complex, dates, structures.
 * Written: the same types, little-endian, C order; BYTES as U when all of it is UTF-8, else as S; BF16,
 * which NumPy does not have, as float32. Source: numpy.lib.format. */
#ifndef MR_CLI_NPY_H
#define MR_CLI_NPY_H

#include <stdio.h>

#include "base/buf.h"
#include "base/err.h"
#include "tensor/tensor.h"

/** An array in memory: little-endian, row-major, BYTES length-prefixed, as in struct mr_tensor. */
struct mr_array {
    int dtype;
    int rank;
    int64_t shape[MR_MAX_RANK];
    struct mr_buf data;
};

void mr_array_init(struct mr_array *a);
void mr_array_fini(struct mr_array *a);
/** Appends one element to a BYTES array. */
void mr_array_add_bytes(struct mr_array *a, const void *data, size_t len);

/** Errors: MR_E_INVALID (not such a file, damaged), MR_E_UNSUPPORTED (type). */
int mr_npy_parse(mr_bytes file, struct mr_array *out, struct mr_err *err);
/** Writes a whole file. Errors: MR_E_INVALID (a malformed BYTES tensor). */
int mr_npy_write(const struct mr_tensor *t, struct mr_buf *out, struct mr_err *err);

#endif
