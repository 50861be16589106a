/* Requests of OpenAI's API. On the loop's thread. */
#ifndef MR_BATCH_OPENAI_SEND_H
#define MR_BATCH_OPENAI_SEND_H

#include "openai.h"

/** dialect.send */
int openai_send(struct call *k, int64_t timeout_ns, struct mr_err *err);
/** Sends k->head to a path below the prefix. Errors: MR_E_EXHAUSTED. */
int openai_post(struct call *k, mr_str path, int64_t timeout_ns, struct mr_err *err);
/** The start of a POST's path below the prefix. */
const char *openai_path(enum mr_batch_api api);
/** Headers of each request into out[2]; how many. */
size_t openai_headers(const struct openai *a, struct mr_header *out);

#endif
