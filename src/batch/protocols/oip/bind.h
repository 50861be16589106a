/* Columns of a table as the inputs of a model. Checked once against the model's metadata and the table's schema; then
 * rows are checked one by one before they are sent, so that what is wrong with a row names the row.
 *
 * Thread: any; nothing is changed after batch_bind_new. */
#ifndef MR_BATCH_BIND_H
#define MR_BATCH_BIND_H

#include "batch/batch.h"
#include "oip/oip.h"
#include "table/rows.h"

struct batch_bind_options {
    /** Inputs not named here come from the column of the same name. */
    const struct mr_batch_map *maps;
    size_t map_count;
    /* all that the table has, for messages; NULL: those of the schema */
    const struct mr_schema *columns;
    const char *null_value; /* a number; NULL: a row with a null cannot be sent */
};

struct batch_bind;

/** The columns that the model's inputs come from, typed as the inputs are: what a source should read. *out gets the
 *  names and types (fini it). Errors: as batch_bind_new, as far as the metadata says. */
int batch_bind_wanted(const struct mr_oip_metadata *m, const struct batch_bind_options *options,
                      struct mr_schema *out, struct mr_err *err);
/** Metadata and schema are borrowed. Errors: MR_E_INVALID (a column or an input that is not there, a type that cannot
 *  become the input's; names both and what there is), MR_E_UNSUPPORTED. */
int batch_bind_new(struct batch_bind **out, const struct mr_oip_metadata *m,
                   const struct mr_schema *schema, const struct batch_bind_options *options,
                   struct mr_err *err);
void batch_bind_free(struct batch_bind **b);

/** Does a call take several rows? True if the first dimension of all inputs and outputs is -1. */
bool batch_is_batched(const struct mr_oip_metadata *m);

/** Why a row cannot be sent, into why[256]; false: it can. */
bool batch_bind_is_bad(const struct batch_bind *b, const struct mr_rows *rows, uint64_t row,
                       char *why);
/** No row of these can be bad (but for what the source says of them), so that none need be looked at. */
bool batch_bind_all_good(const struct batch_bind *b, const struct mr_rows *rows);
/** How many rows from `first` on, `most` at most, may be in one call: their shapes are equal. */
uint64_t batch_bind_together(const struct batch_bind *b, const struct mr_rows *rows, uint64_t first,
                             uint64_t most);
/** May rows of two places be in one call? */
bool batch_bind_joins(const struct batch_bind *b, const struct mr_rows *rows, uint64_t row,
                      const struct mr_rows *others, uint64_t other);

/** Rows that follow each other. */
struct batch_row_range {
    const struct mr_rows *rows;
    uint64_t first;
    uint64_t count;
};
/** The tensors of a call of good rows of equal shape, range_count >= 1; tensors has room for each input. Data lies in the
 *  rows where it can, which is with one range only, otherwise in blocks that the arena's reset drops.
 *  Errors: MR_E_EXHAUSTED. */
int batch_bind_make(const struct batch_bind *b, const struct batch_row_range *ranges,
                    size_t range_count, struct mr_arena *arena, struct mr_oip_tensor *tensors,
                    struct mr_err *err);

#endif
