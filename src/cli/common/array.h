/* Arrays from the command line: JSON literals, conversions between types, shapes that fit a model. */
#ifndef MR_CLI_ARRAY_H
#define MR_CLI_ARRAY_H

#include "npy.h"

/** A JSON value (a number, a string, a bool, or arrays of them, nested evenly) as an array of `dtype`. For
 *  BYTES, text that is not JSON counts as one string. Errors: MR_E_INVALID, also of a number beyond the type, which is no
 *  infinity unless it is written so. */
int mr_array_parse(mr_str text, int dtype, struct mr_array *out, struct mr_err *err);

/** Converts it to `dtype`, element by element: whole numbers must fit, floats are rounded, but not to an infinity, and not
 *  converted to whole numbers. Errors: MR_E_INVALID naming the first element that does not fit. */
int mr_array_cast(struct mr_array *a, int dtype, struct mr_err *err);

/** Fits its shape to the model's (-1 = any): unchanged; with an added batch dimension of 1; or, with at most one open
 *  dimension, by splitting a flat list. Errors: MR_E_INVALID naming both shapes. */
int mr_array_fit(struct mr_array *a, const int64_t *shape, int rank, struct mr_err *err);

uint64_t mr_array_count(const struct mr_array *a);

#endif
