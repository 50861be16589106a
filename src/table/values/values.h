/* Values of columns: reading from and writing to JSON and text. Private. */
#ifndef MR_TABLE_VALUES_H
#define MR_TABLE_VALUES_H

#include "base/arena.h"
#include "codec/json.h"
#include "table/rows.h"

/* ---- reading ---- */

/** Appends a row from a JSON value that is not null. On failure the error is in j->status and its err, and the
 *  builder may hold a part of the row. MR_E_EXHAUSTED: no memory; any other: the value does not fit. Lack of memory
 *  for the column itself is reported when its builder finishes, as for all appends. */
int mr_cell_json(struct mr_json *j, struct mr_column_builder *b);
/** Appends a row from the text of a cell: numbers with white space around them, `true` and `false` in any case, 1 and
 *  0; a list is JSON. Errors: as above, in err. */
int mr_cell_text(struct mr_column_builder *b, mr_str text, struct mr_arena *scratch,
                 struct mr_err *err);
/** Of the text of a number: it has neither a point nor an exponent. */
bool mr_number_is_whole(mr_str text);
/** It has zeros before other digits (007), as keys have. */
bool mr_number_has_zeros(mr_str text);
/** An F64 keeps its digits. */
bool mr_number_is_f64(mr_str text);
/** Appends a row to a column of numbers. False: not such a column, or the number does not fit; nothing was added. */
bool mr_cell_whole(struct mr_column_builder *b, int64_t v);
bool mr_cell_real(struct mr_column_builder *b, double v);
/** Checks that columns can have that type. Errors: MR_E_UNSUPPORTED, MR_E_INVALID (lists wider than max_cell_bytes);
 *  names the column. */
int mr_cell_check(const struct mr_field *f, uint64_t max_cell_bytes, struct mr_err *err);

/* ---- writing ---- */

/** A value that is not null and neither a list nor a string, without quotes. */
void mr_put_scalar(struct mr_buf *b, const struct mr_field *f, const struct mr_column *c,
                   uint64_t row);
/** A value of any type as JSON, except NaN and infinities, which are written as bare words. */
void mr_put_json(struct mr_buf *b, const struct mr_field *f, const struct mr_column *c,
                 uint64_t row);
/** The same as strict JSON: NaN and infinities are strings. */
void mr_put_json_strict(struct mr_buf *b, const struct mr_field *f, const struct mr_column *c,
                        uint64_t row);

#endif
