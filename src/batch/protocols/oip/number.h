/* Numbers of columns as numbers of tensors. Private. */
#ifndef MR_BATCH_NUMBER_H
#define MR_BATCH_NUMBER_H

#include "table/rows.h"

/** The column type that has the layout of a tensor's type; MR_COLUMN_NONE for BF16, which has none, and
 *  MR_COLUMN_STRING for BYTES. */
enum mr_column_type batch_type_of(int dtype);
/** May values of this column type become the tensor type at all? */
bool batch_can_cast(const struct mr_field *from, int dtype);
/** n values, cast; SIZE_MAX if all fitted, otherwise the index of the first one that did not. Floats round, integers must
 *  fit, floats become integers if they are whole. `from` and `to` are aligned for their types. */
size_t batch_cast(const struct mr_field *from, const void *values, int dtype, void *to, size_t n);

#endif
