/* Memory that lives as long as a request: small pieces from its arena, large ones as blocks, so that they count
 * against the memory budget instead of the arena's limit (a model of a load request may have a gigabyte). */
#include "memory.h"

#include "base/pool.h"

#define LARGE_BYTES 65536u

void *memory_try(struct mr_arena *a, size_t bytes)
{
    struct mr_block *b;

    if (bytes <= LARGE_BYTES) {
        return mr_arena_try(a, bytes, 16);
    }
    b = mr_block_new(bytes);
    return b && mr_block_keep(b, a) ? b->data : NULL;
}
