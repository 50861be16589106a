/* Reference-counted bulk memory: request bodies, tensors and large answers.
 *
 * Blocks come from size classes (four per power of two) and go back to a bounded cache, so that a
 * warm server neither maps nor unmaps memory for a request. All blocks are 64-byte aligned. The bytes of blocks in
 * use are counted against a budget; when it is used up, mr_block_new returns NULL, and the caller waits or answers
 * MR_E_EXHAUSTED. Thread: any. */
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

/** A block of at least `bytes`, contents undefined, one reference. NULL when the budget or memory is used up. A block
 *  of up to 64 KiB from the calling thread's cache is not checked against the budget. */
struct mr_block *mr_block_new(size_t bytes);
/** As mr_block_new, but the budget, though counted, does not refuse it: for memory without which no answer is
 *  possible, in amounts that the caller bounds. NULL when memory is out. */
struct mr_block *mr_block_new_due(size_t bytes);
/** Grows *io (NULL: a new block) to at least `bytes` and keeps the first `used` bytes. While the caller holds the
 *  only reference, the time does not depend on `used`; otherwise other holders keep their content unchanged. False,
 *  with *io unchanged: the budget or memory is used up. Takes and gives: *io. */
bool mr_block_grow(struct mr_block **io, size_t used, size_t bytes);
/** Wraps foreign memory; release(ctx, data) runs at the last unref (release NULL: no call). NULL without memory (not
 *  released). Not counted against the budget. */
struct mr_block *mr_block_wrap(void *data, size_t bytes, void (*release)(void *ctx, void *data),
                               void *ctx);
/** As mr_block_wrap, with `bytes` counted until the last unref. As the memory exists already, the budget does not
 *  refuse it: the sum may exceed the budget. */
struct mr_block *mr_block_adopt(void *data, size_t bytes, void (*release)(void *ctx, void *data),
                                void *ctx);

/** A part of a file that is mapped, as shared memory is. */
struct mr_block_extent {
    uint8_t *data; /* 64-byte aligned, as is fd_offset */
    size_t cap;
    int fd;
    uint64_t fd_offset; /* of data */
};
/** Gives blocks other memory than the heap's. Its functions run on any thread; it outlives its blocks. */
struct mr_block_provider {
    /** An extent of at least `bytes`, which `grow` will make as large as `most` (>= bytes) where it is. False: there is
     *  none. */
    bool (*take)(const struct mr_block_provider *p, size_t bytes, size_t most,
                 struct mr_block_extent *out);
    /** May be NULL. Makes an extent at least `bytes` large, at the same address or another, and keeps its content without
     *  a copy. False, with *io unchanged: not possible; the block then gets another extent, and its content is copied. */
    bool (*grow)(const struct mr_block_provider *p, size_t bytes, struct mr_block_extent *io);
    /** Takes back an extent that has no references left. */
    void (*give)(const struct mr_block_provider *p, const struct mr_block_extent *extent);
};
/** As mr_block_new, with the memory of `p` (borrowed; NULL: mr_block_new). The whole extent is counted, and the budget
 *  may refuse it. mr_block_grow keeps such a block with its provider. */
struct mr_block *mr_block_new_in(const struct mr_block_provider *p, size_t bytes);
/** The same for a block that mr_block_grow makes as large as `most` without a copy, if the budget allows. What is not
 *  there yet is not counted. */
struct mr_block *mr_block_new_growing(const struct mr_block_provider *p, size_t bytes, size_t most);
/** The file and the offset at which other processes find the byte at `at`, which lies in the block. False: the block
 *  has no file. */
bool mr_block_in_file(const struct mr_block *b, const void *at, int *out_fd, uint64_t *out_offset);
struct mr_block *mr_block_ref(struct mr_block *b);
/** Number of references: exact if 1, otherwise a snapshot. */
static inline uint32_t mr_block_refs(const struct mr_block *b)
{
    return atomic_load_explicit(&b->refs, memory_order_relaxed);
}
/** Drops a reference and nulls the pointer. Accepts NULL. */
void mr_block_unref(struct mr_block **b);

/** A piece of an answer or request body. block NULL: the bytes are borrowed for the call and copied if they cannot be
 *  sent at once. block set: sent by reference; the callee takes one reference. */
struct mr_piece {
    const void *ptr;
    size_t len;
    struct mr_block *block;
};

struct mr_arena;
/** Lets the arena drop the reference when it is reset. Always takes the reference: false when the arena is full; the
 *  reference is then dropped at once. */
bool mr_block_keep(struct mr_block *b, struct mr_arena *a);

struct mr_block_stats {
    uint64_t out_bytes;    /* in use, whole blocks */
    uint64_t cached_bytes; /* kept for reuse */
    uint64_t budget_bytes; /* UINT64_MAX = none */
    uint64_t refused;      /* allocations refused by the budget */
};
/** budget_bytes  most bytes in use, 0 = no budget (default).
 *  cache_bytes   most bytes kept for reuse, 256 MiB by default; in addition each thread keeps up to 8 small blocks of
 *                a size. */
void mr_block_set_budget(uint64_t budget_bytes, uint64_t cache_bytes);
/** Near-snapshot: the counters are read one after the other. */
struct mr_block_stats mr_block_get_stats(void);
/** Returns half of the cached memory that was not used since the last call to the system. One thread calls it every
 *  few seconds. The threads' own caches follow when their thread next uses a block. */
void mr_block_age(void);
/** True if more than an eighth of the budget is in use: memory is then not reserved for announced sizes. */
bool mr_block_is_used(void);
/** True if more than half of the budget is in use: no more answers are made for a client that does not read. */
bool mr_block_is_half_used(void);
/** True if more than three quarters of the budget are in use: work that can wait should. */
bool mr_block_is_scarce(void);
/** Called before work that ends with mr_block_adopt. False, and counted as refused, if the budget is exceeded. */
bool mr_block_may_adopt(void);
/** One client's share of the budget: an eighth. */
uint64_t mr_block_share(void);
/** Returns cached memory to the system: all except small blocks in other threads' caches. */
void mr_block_trim(void);

#endif
