/* Reference-counted bulk memory: request bodies, tensors and large answers.
 *
 * Blocks come from size classes (four per power of two) and go back to a bounded cache, so that a
 * warm server neither maps nor unmaps memory for a request. All blocks are 64-byte aligned. The
 * bytes that are out are counted against a budget; past it mr_block_new fails with MR_E_EXHAUSTED
 * for a caller that can wait or answer "busy". Thread: any. */
#ifndef MR_BASE_POOL_H
#define MR_BASE_POOL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct mr_block {
    _Atomic uint32_t refs;
    uint32_t size_class;
    size_t cap; /* usable bytes at data */
    uint8_t *data;
    struct mr_block *next;
    void (*release)(void *ctx, void *data); /* foreign memory: called instead of caching */
    void *release_ctx;
};

/** A block of at least `bytes`, contents undefined, one reference. NULL when the budget or memory
 *  is out. A block of up to 64 KiB that lies in the calling thread's cache is given in any case. */
struct mr_block *mr_block_new(size_t bytes);
/** As mr_block_new, counted, but not refused for the budget: for what must be there to answer at all, in amounts that
 *  the caller bounds. NULL when memory is out. */
struct mr_block *mr_block_new_due(size_t bytes);
/** Room for at least `bytes` in *io (NULL: a new block), the first `used` bytes stay. The time it takes does not grow
 *  with them while the caller's is the only reference; with others, what they see stays as it is.
 *  False, with *io as it was: the budget or memory is out. Takes and gives: *io. */
bool mr_block_grow(struct mr_block **io, size_t used, size_t bytes);
/** Wrap foreign memory; release(ctx, data) runs at the last unref (release NULL: nothing does).
 *  NULL without memory (not released). Not counted against the budget. */
struct mr_block *mr_block_wrap(void *data, size_t bytes, void (*release)(void *ctx, void *data),
                               void *ctx);
/** As mr_block_wrap, for memory that nothing else counts: `bytes` are counted until the last unref. The budget does
 *  not refuse what is there already, so this may take the sum above it. */
struct mr_block *mr_block_adopt(void *data, size_t bytes, void (*release)(void *ctx, void *data),
                                void *ctx);
struct mr_block *mr_block_ref(struct mr_block *b);
/** References at this moment: exact when it is 1, else others may come and go. */
static inline uint32_t mr_block_refs(const struct mr_block *b)
{
    return atomic_load_explicit(&b->refs, memory_order_relaxed);
}
/** Drops a reference and nulls the pointer; NULL is fine. */
void mr_block_unref(struct mr_block **b);

/** A piece of an answer or request body. block NULL: the bytes are only borrowed for the call and
 *  are copied if they cannot be sent at once. block set: sent by reference; the callee takes over
 *  one reference. */
struct mr_piece {
    const void *ptr;
    size_t len;
    struct mr_block *block;
};

struct mr_arena;
/** Let the arena drop the reference when it is reset. Takes it always: false when the arena has no room for
 *  the note, the reference is dropped then. */
bool mr_block_keep(struct mr_block *b, struct mr_arena *a);

struct mr_block_stats {
    uint64_t out_bytes;    /* in use, whole blocks */
    uint64_t cached_bytes; /* kept for reuse */
    uint64_t budget_bytes; /* UINT64_MAX = none */
    uint64_t refused;      /* times that the budget said no */
};
/** budget_bytes  most that may be out, 0 = no budget (so it starts).
 *  cache_bytes   most that is kept for reuse, starts at 256 MiB; beside it each thread keeps up to
 *                8 small blocks of a size. */
void mr_block_set_budget(uint64_t budget_bytes, uint64_t cache_bytes);
/** Near-snapshot: the counters are read one after the other. */
struct mr_block_stats mr_block_get_stats(void);
/** To be called every few seconds, by one thread: gives back to the system half of what was cached and not needed
 *  since the last call. What threads keep for themselves follows when they next use a block. */
void mr_block_age(void);
/** More than an eighth of the budget is out: no room to give on a mere claim. */
bool mr_block_is_used(void);
/** More than half of the budget is out: a client that does not read its answers gets no more of them. */
bool mr_block_is_half_used(void);
/** More than three quarters of the budget are out: what can wait should. */
bool mr_block_is_scarce(void);
/** To be asked before work that ends with mr_block_adopt. False, and counted as refused: more than the budget is out. */
bool mr_block_may_adopt(void);
/** What one client may have of the budget: an eighth. */
uint64_t mr_block_share(void);
/** Give cached memory back to the system: all but the small blocks in other threads' caches. */
void mr_block_trim(void);

#endif
