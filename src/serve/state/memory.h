/* Memory of a request that counts against the memory budget. */
#ifndef MR_SERVE_STATE_MEMORY_H
#define MR_SERVE_STATE_MEMORY_H

#include "base/arena.h"

/* Dies with the arena; NULL: the arena or the memory budget is full. */
void *memory_try(struct mr_arena *a, size_t bytes);

#endif
