/* The questions to a host of OpenAI's API. On the loop's thread. */
#ifndef MR_BATCH_OPENAI_ASK_H
#define MR_BATCH_OPENAI_ASK_H

#include "batch/common/host.h"

/** dialect.ask: is the model in the host's list, is it healthy, how long are its vectors? */
void openai_ask(struct host *h, int64_t timeout_ns);

#endif
