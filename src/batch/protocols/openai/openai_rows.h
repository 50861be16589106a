/* Answers of OpenAI's API as rows. On the loop's thread. */
#ifndef MR_BATCH_OPENAI_ROWS_H
#define MR_BATCH_OPENAI_ROWS_H

#include "batch/common/call.h"

/** dialect.judge and dialect.rows */
void openai_judge(struct call *k, const struct transport_reply *reply, struct transport_answer *a);
int openai_rows(struct call *k, const struct transport_answer *a, uint64_t first,
                const struct row_range *of, struct mr_rows **out, struct mr_err *err);

#endif
