/* Text with columns in it: "Classify: {{text}}". A column may be of any type: strings stand as they are, all else as JSON
 * has it. "\{{" is "{{" itself; a "}}" that closes nothing is text. Thread: any, once it is bound. */
#ifndef MR_BATCH_TEMPLATE_H
#define MR_BATCH_TEMPLATE_H

#include "table/rows.h"

struct template;
/** The text is copied. Errors: MR_E_INVALID (a "{{" without end or name; says where). */
int template_new(struct template **out, const char *text, struct mr_err *err);
void template_free(struct template **t);
/** Adds the columns that are not there yet, without a type. */
void template_want(const struct template *t, struct mr_schema *io);
/** Finds the columns in the schema of rows, which may have fewer than their table. Errors: MR_E_INVALID (names the column,
 *  and those of the table). */
int template_bind(struct template *t, const struct mr_schema *schema, const struct mr_schema *table,
                  struct mr_err *err);
/** The name of a column that is null in this row; NULL: none is. */
const char *template_null_in(const struct template *t, const struct mr_rows *rows, uint64_t row);
/** No row of these has a null. */
bool template_has_all(const struct template *t, const struct mr_rows *rows);
/** Bytes of a row's text, about. */
uint64_t template_bytes(const struct template *t, const struct mr_rows *rows, uint64_t row);
/** Appends the text for a row; null_text stands for nulls. */
void template_put(const struct template *t, struct mr_buf *b, const struct mr_rows *rows,
                  uint64_t row, mr_str null_text);

#endif
