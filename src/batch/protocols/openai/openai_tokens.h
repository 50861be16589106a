/* Estimates and limits of tokens. On the loop's thread. */
#ifndef MR_BATCH_OPENAI_TOKENS_H
#define MR_BATCH_OPENAI_TOKENS_H

#include "openai.h"

void openai_tokens_init(struct openai_tokens *t);
/** dialect.size: tokens of answers, and with prompts. */
uint64_t openai_size(const struct dialect_model *model, const struct work *w, uint64_t *out_weight);
/** Adds what a call took; what its latency is divided by. */
uint64_t openai_count(struct call *k, const struct openai_answer *answer);
/** No more calls: the tokens that the job may take are used up. */
bool openai_is_spent(const struct dialect_model *model);

#endif
