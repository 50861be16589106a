/* Rows of tensors (dimension 0): views, the rows that go to one of several branches, and the branches' rows together again.
 *
 * A choice has one entry per row: the branch that the row goes to, or MR_ROWS_NONE. Within a branch rows keep their order. */
#ifndef MR_TENSOR_ROWS_H
#define MR_TENSOR_ROWS_H

#include "base/err.h"
#include "millrace/tensor.h"

#define MR_ROWS_NONE UINT16_MAX

/** Rows [begin, begin + count) without a copy; `shape` is the caller's room for MR_MAX_RANK dims. BYTES are walked.
 *  Errors: MR_E_INVALID (no such rows, or bytes that do not fit the shape). */
int mr_rows_view(const struct mr_tensor *t, uint64_t begin, uint64_t count, int64_t *shape,
                 struct mr_tensor *out, struct mr_err *err);

/** What a branch gets of a choice. */
struct mr_rows_part {
    uint64_t count;
    uint64_t first; /* its first row */
    bool is_run;    /* its rows are consecutive: a view serves */
};
void mr_rows_part_of(const uint16_t *choice, uint64_t rows, uint16_t branch,
                     struct mr_rows_part *out);

/** Bytes of the rows of a branch. Errors: as mr_rows_view. Long work: calls mr_turn_spend (MR_E_CANCELLED). */
int mr_rows_part_bytes(const struct mr_tensor *t, const uint16_t *choice, uint16_t branch,
                       uint64_t *out, struct mr_err *err);
/** Copies the rows of a branch to `to`, which has room for those bytes. Errors: as above. */
int mr_rows_part_copy(const struct mr_tensor *t, const uint16_t *choice, uint16_t branch, void *to,
                      struct mr_err *err);

/** Type and shape of the branches' rows together: `parts` [count], NULL entries of branches without rows; `shape` is the caller's
 *  room. *out: dtype, rank, shape and bytes; data NULL.
 *  Errors: MR_E_INVALID, naming the branch by its index: another type, or another shape per row, or not as many rows as were chosen. */
int mr_rows_merge_shape(const struct mr_tensor *const *parts, uint32_t count,
                        const uint16_t *choice, uint64_t rows, int64_t *shape,
                        struct mr_tensor *out, struct mr_err *err);
/** Copies each row of the parts to its place in `to`, which has room for the bytes of mr_rows_merge_shape; the choice has no
 *  MR_ROWS_NONE. Errors: as above, MR_E_NOMEM, MR_E_CANCELLED. */
int mr_rows_merge_copy(const struct mr_tensor *const *parts, uint32_t count, const uint16_t *choice,
                       uint64_t rows, void *to, struct mr_err *err);

#endif
