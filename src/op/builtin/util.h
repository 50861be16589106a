/* What the built-in ops share. They see include/millrace/op.h and this, as an op of another library would. */
#ifndef MR_OP_BUILTIN_UTIL_H
#define MR_OP_BUILTIN_UTIL_H

#include <stdbool.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "base/str.h"
#include "millrace/op.h"
#include "tensor/tensor.h"

/** The host's services; set when the library is opened. */
extern const struct mr_op_host *builtin_host;

#define OP_NUMBERS_MAX 64

/* ---- parameters ---- */

/** Refuses parameters that are not in the NULL-terminated list. */
int op_known(const struct mr_op_desc *d, const char *const *names, struct mr_err *err);
/** Value, NULL if missing. */
const char *op_text(const struct mr_op_desc *d, const char *key);
/** *out is written only if there is such a parameter. Errors: MR_E_INVALID with name, value and range. */
int op_int(const struct mr_op_desc *d, const char *key, int64_t min, int64_t max, int64_t *out,
           struct mr_err *err);
int op_bool(const struct mr_op_desc *d, const char *key, bool *out, struct mr_err *err);
int op_number(const struct mr_op_desc *d, const char *key, double *out, struct mr_err *err);
/** The same number, which op_number read as `v`, rounded down; exactly if it is written as a whole number of 64 bits. Out of
 *  range it is the nearest of 128 bits. Returns whether it is whole. */
bool op_whole(const struct mr_op_desc *d, const char *key, double v, __int128 *out);
/** A list with commas, at most OP_NUMBERS_MAX; *out_count 0 if missing. */
int op_numbers(const struct mr_op_desc *d, const char *key, double out[OP_NUMBERS_MAX],
               size_t *out_count, struct mr_err *err);
/** Index of the value in a NULL-terminated list of words. */
int op_choice(const struct mr_op_desc *d, const char *key, const char *const *words, int *out,
              struct mr_err *err);
/** A data type by its wire name ("FP32"). */
int op_dtype(const struct mr_op_desc *d, const char *key, int *out, struct mr_err *err);
/** The parameter must be there. */
int op_need(const struct mr_op_desc *d, const char *key, struct mr_err *err);

/* ---- inputs and outputs of a node ---- */

/** Index of an input or output. The node must map it; if `is_optional`, UINT32_MAX when it does not. */
int op_input(const struct mr_op_desc *d, const char *name, bool is_optional, uint32_t *out,
             struct mr_err *err);
int op_output(const struct mr_op_desc *d, const char *name, bool is_optional, uint32_t *out,
              struct mr_err *err);
/** Refuses maps of other names than those asked for: how many were found must be all. */
int op_no_more(const struct mr_op_desc *d, uint32_t inputs, uint32_t outputs, struct mr_err *err);
/** The input's type and rank must be known, as those of workflow tensors are. */
int op_known_input(const struct mr_op_desc *d, uint32_t input, int min_rank, struct mr_err *err);
/** Refuses an input of another type than those of the 0-terminated list. */
int op_input_types(const struct mr_op_desc *d, uint32_t input, const int *types,
                   struct mr_err *err);

/** What an op makes of its outputs: their descriptions with dims of their own. */
struct op_outputs {
    uint32_t count;
    struct mr_op_io *list;
    int64_t (*dims)[MR_MAX_RANK];
};
/** Room for the outputs of a node, freed with op_outputs_fini. */
void op_outputs_init(struct op_outputs *o, const struct mr_op_desc *d);
void op_outputs_fini(struct op_outputs *o);
/** Output `index`; dims may be NULL (all -1). rank is checked. */
int op_outputs_set(struct op_outputs *o, uint32_t index, int dtype, int rank, const int64_t *dims,
                   struct mr_err *err);

/* ---- in run ---- */

/** Product of shape[from, to). */
uint64_t op_product(const int64_t *shape, int from, int to);
/** The axis as an index of dimensions: negative ones count from the end of `rank`. */
int op_axis(int64_t axis, int rank, int *out, struct mr_err *err);
/** Where the elements of a BYTES tensor begin, `count` + 1 offsets; freed with mr_free. */
int op_bytes_offsets(const struct mr_tensor *t, uint64_t count, uint64_t **out, struct mr_err *err);
/** As builtin_host->spend, with a failure. */
static inline int op_spend(struct mr_op_run *run, uint64_t units, struct mr_err *err)
{
    return builtin_host->spend(run, units) ? MR_OK : MR_FAIL(err, MR_E_CANCELLED, "cancelled");
}
/** Whether someone reads output `index`; UINT32_MAX: it is not mapped. */
static inline bool op_wants(const struct mr_op_run *run, uint32_t index)
{
    return index != UINT32_MAX && run->output_wanted[index];
}
/** Element `i` of a tensor of a fixed-size type as a double, and back, rounded towards zero and saturated; NaN is 0, as a BOOL
 *  true. */
double op_load(const struct mr_tensor *t, uint64_t i);
void op_store(int dtype, void *data, uint64_t i, double v);
/** Element `i` of a tensor of integers, exactly, and back, saturated. */
__int128 op_load_int(const struct mr_tensor *t, uint64_t i);
void op_store_int(int dtype, void *data, uint64_t i, __int128 v);
/** Whether elements of this type are whole numbers of 64 bits, which a double does not hold exactly. */
static inline bool op_is_int64(int dtype)
{
    return dtype == MR_DTYPE_INT64 || dtype == MR_DTYPE_UINT64;
}

#endif
