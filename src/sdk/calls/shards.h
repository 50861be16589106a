/* One request as several calls, each with a part of its rows. Private. Thread: the loop's. */
#ifndef MR_SDK_SHARDS_H
#define MR_SDK_SHARDS_H

#include "call.h"

/** How many parts the call has by its rows, the client's rules and the hosts; 1: it is sent whole. */
uint32_t shards_count(const struct call *c);
/** Starts the call in that many parts, at least 2; `done` and `freed` of the call follow as of call_start. False: no memory, c->err says so,
 *  and nothing is started. */
bool shards_start(struct call *c, uint32_t count);
/** As call_cancel. */
void shards_cancel(struct call *c);

#endif
