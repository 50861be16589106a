/* Numbers of columns as numbers of tensors. Private. */
#ifndef MR_BATCH_NUMBER_H
#define MR_BATCH_NUMBER_H

#include "base/str.h"
#include "table/rows.h"

/** A number as it was written: whole ones of 64 bits keep all of their digits. */
struct batch_number {
    struct mr_field field; /* I64, U64 or F64 */
    union {
        int64_t i;
        uint64_t u;
        double d;
    };
};

/** False: no number. */
bool batch_number_parse(mr_str text, struct batch_number *out);

/** The column type that has the layout of a tensor's type; MR_COLUMN_NONE for BF16, which has none, and
 *  MR_COLUMN_STRING for BYTES. */
enum mr_column_type batch_type_of(int dtype);
/** May values of this column type become the tensor type at all? */
bool batch_can_cast(const struct mr_field *from, int dtype);
/** n values, cast; SIZE_MAX if all fitted, otherwise the index of the first one that did not. Floats round, integers must
 *  fit, floats become integers if they are whole. `from` and `to` are aligned for their types. */
size_t batch_cast(const struct mr_field *from, const void *values, int dtype, void *to, size_t n);

#endif
