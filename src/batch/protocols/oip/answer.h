/* Answers of a model as rows of the output table. Thread: any; nothing is changed after batch_outputs_new. */
#ifndef MR_BATCH_ANSWER_H
#define MR_BATCH_ANSWER_H

#include "oip/oip.h"
#include "table/rows.h"

struct batch_outputs_options {
    /** Columns of the input table that come first in the output. Two are always there, if the table has none of that
     *  name: filename, the path of the input, and file_row_number, from 0. */
    const char *const *carried;
    size_t carried_count;
    /* all that the table has, for messages; NULL: those of `table` */
    const struct mr_schema *columns;
    const char *const *outputs; /* of the model; none: all */
    size_t output_count;
    const char *error; /* a column of this name comes last: why the outputs are null; NULL: none */
    bool allows_nan;   /* NaN and infinities are answers like others */
};

/** Is it one of these two names? */
bool batch_outputs_has_place(const char *name);

struct batch_outputs;
/** Metadata and schema are borrowed. Errors: MR_E_INVALID (a column or an output that is not there, or two of one name),
 *  MR_E_UNSUPPORTED. */
int batch_outputs_new(struct batch_outputs **out, const struct mr_oip_metadata *m,
                      const struct mr_schema *table, const struct batch_outputs_options *options,
                      struct mr_err *err);
/** The same for outputs that are given as columns, whose values batch_answer_built takes; options.outputs is not
 *  used. */
int batch_outputs_of(struct batch_outputs **out, const struct mr_schema *columns,
                     const struct mr_schema *table, const struct batch_outputs_options *options,
                     struct mr_err *err);
void batch_outputs_free(struct batch_outputs **o);
/** Of the output table: carried columns, then the outputs. A scalar per row is a number or a string, all else a list for
 *  each dimension, of fixed width where the model declares it. */
const struct mr_schema *batch_outputs_schema(const struct batch_outputs *o);

/** Is it an answer to `count` rows: the outputs that were declared, of their types and shapes, with all their bytes, and
 *  finite? Errors: MR_E_INVALID, saying what is wrong. */
int batch_answer_check(const struct batch_outputs *o, const struct mr_oip_response *answer,
                       uint64_t count, struct mr_err *err);
/** A part of a checked answer: rows [first, first + count) of `of`, all that it answers. */
struct batch_answer_part {
    const struct mr_oip_response *answer;
    struct mr_block *body;
    uint64_t first;
    uint64_t count;
    uint64_t of;
};
/** Rows of the output table from rows [first, first + part->count) of the input and their part of an answer. Large tensors
 *  are used where they lie: the body is kept (a reference is taken) as long as the result. NULL body: all is copied.
 *  Errors: MR_E_EXHAUSTED. */
int batch_answer_rows(const struct batch_outputs *o, struct mr_rows *input, uint64_t first,
                      const struct batch_answer_part *part, struct mr_rows **out,
                      struct mr_err *err);
/** Rows of outputs that are given as columns, from what was built for each of them. The builders are empty afterwards, also
 *  after an error. Errors: MR_E_EXHAUSTED. */
int batch_answer_built(const struct batch_outputs *o, struct mr_rows *input, uint64_t first,
                       uint64_t count, struct mr_column_builder *const *builders,
                       size_t builder_count, struct mr_rows **out, struct mr_err *err);
/** The one row of the output table for a row of the input that has no answer. Errors: MR_E_EXHAUSTED. */
int batch_answer_none(const struct batch_outputs *o, struct mr_rows *input, uint64_t row,
                      const char *why, struct mr_rows **out, struct mr_err *err);

#endif
