/* Slabs of chunks. Under AddressSanitizer a slab is one chunk, and none is kept, so that a use after free is
 * detected.
 * Thread: loop. */
#include "chunk.h"

#include <stdalign.h>

#include "base/mem.h"
#include "base/pool.h"
#include "loop_priv.h"

#define SLAB_BYTES ((size_t)128 * 1024)
#define SLAB_CHUNKS                                                                                \
    (MR_CACHE_NOTHING ? 1u : (unsigned)((SLAB_BYTES - sizeof(struct mr_slab)) / MR_CHUNK_BYTES))

struct free_chunk {
    struct mr_chunk_head head;
    struct free_chunk *next;
};

struct mr_slab {
    _Alignas(max_align_t) LIST_ENTRY(mr_slab) link;
    struct mr_block *block; /* that holds the slab; NULL: the loop's own slab */
    struct free_chunk *free;
    unsigned made; /* chunks taken so far: the memory after them was never used */
    unsigned used;
};

_Static_assert(MR_CHUNK_BYTES % _Alignof(max_align_t) == 0, "chunks are aligned");

static struct mr_slab *own_slab(struct mr_slabs *slabs)
{
    if (!slabs->own && !MR_CACHE_NOTHING) {
        slabs->own = mr_try_alloc(SLAB_BYTES);
        if (slabs->own) {
            *slabs->own = (struct mr_slab){0};
        }
    }
    return slabs->own;
}

static struct mr_slab *slab_new(struct mr_slabs *slabs)
{
    struct mr_block *block =
        mr_block_new_due(sizeof(struct mr_slab) + SLAB_CHUNKS * MR_CHUNK_BYTES);

    if (!block) {
        return NULL;
    }
    struct mr_slab *s = (struct mr_slab *)block->data;
    *s = (struct mr_slab){.block = block};
    LIST_INSERT_HEAD(&slabs->with_room, s, link);
    return s;
}

void *mr_chunk_take(struct mr_slabs *slabs)
{
    struct mr_slab *s = own_slab(slabs);

    if (!s || s->used == SLAB_CHUNKS) {
        s = LIST_FIRST(&slabs->with_room);
        s = s ? s : slab_new(slabs);
    }
    if (!s) {
        return NULL;
    }
    struct free_chunk *c = s->free;
    if (c) {
        s->free = c->next;
    } else {
        c = (struct free_chunk *)((char *)(s + 1) + s->made++ * MR_CHUNK_BYTES);
        c->head.slab = s;
    }
    if (++s->used == SLAB_CHUNKS && s->block) {
        LIST_REMOVE(s, link);
    }
    return c;
}

void mr_chunk_give(struct mr_slabs *slabs, void *chunk)
{
    struct free_chunk *c = chunk;
    struct mr_slab *s = c->head.slab;
    struct mr_block *block = s->block;

    c->next = s->free;
    s->free = c;
    if (s->used-- == SLAB_CHUNKS && block) {
        LIST_INSERT_HEAD(&slabs->with_room, s, link);
    }
    if (s->used == 0 && block) {
        LIST_REMOVE(s, link);
        mr_block_unref(&block);
    }
}

void mr_slabs_fini(struct mr_slabs *slabs)
{
    mr_freep(&slabs->own);
}
