/* Memory that lives as long as a request: small pieces from its arena, large ones as blocks, so that they count
 * against the memory budget instead of the arena's limit (a model of a load request may have a gigabyte). */
#include "serve_private.h"

#define LARGE_BYTES 65536u

static void unref_block(void *block)
{
    struct mr_block *b = block;
    mr_block_unref(&b);
}

bool memory_keep(struct mr_arena *a, struct mr_block *b)
{
    if (mr_arena_on_free(a, unref_block, b))
        return true;
    mr_block_unref(&b);
    return false;
}

void *memory_try(struct mr_arena *a, size_t bytes)
{
    struct mr_block *b;

    if (bytes <= LARGE_BYTES)
        return mr_arena_try(a, bytes, 16);
    b = mr_block_new(bytes);
    return b && memory_keep(a, b) ? b->data : NULL;
}
