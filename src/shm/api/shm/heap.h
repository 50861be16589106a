/* Extents of one shared-memory segment. Only the server allocates and frees.
 *
 * A binary buddy allocator whose metadata are in the server's private memory: a process that maps the segment can write
 * into extents, but cannot reach the metadata. Extents begin at multiples of 64 KiB. Free memory beyond the limit for warm
 * memory returns to the system. The heap is a provider of blocks (base/pool.h). */
#ifndef MR_SHM_HEAP_H
#define MR_SHM_HEAP_H

#include <pthread.h>

#include "base/pool.h"

#define MR_SHM_UNIT   65536u /* smallest extent, and alignment of all */
#define MR_SHM_ORDERS 20     /* sizes: 64 KiB to 32 GiB */

/** Initialised by mr_shm_heap_init; stays where it is, with its segment, until it has drained. */
struct mr_shm_heap {
    struct mr_block_provider provider; /* first */
    int fd;                            /* of the segment, borrowed */
    uint8_t *data;                     /* its mapping */
    uint64_t offset;                   /* of the heap in the segment */
    uint64_t bytes;                    /* of the heap, a multiple of 64 KiB */
    /* ---- private, under the lock ---- */
    /** Held for a few dozen instructions, and while memory returns to the system. */
    pthread_mutex_t lock;
    uint32_t units;
    uint8_t *order; /* [units] order of the free or used extent that begins there, with its flags */
    uint32_t *next; /* [units] lists of free extents */
    uint32_t *previous;
    uint32_t first[MR_SHM_ORDERS];
    uint64_t warm_bytes; /* free, and not returned to the system */
    uint64_t used_bytes;
    uint64_t refused; /* failed allocations */
    bool is_closed;   /* allocations fail */
    void (*drained)(void *ctx);
    void *drained_ctx;
};

/** offset: multiple of 64 KiB. bytes: rounded down to one. */
void mr_shm_heap_init(struct mr_shm_heap *h, int fd, uint8_t *segment, uint64_t offset,
                      uint64_t bytes);
/** Closes the heap: remaining blocks keep their content, new ones are refused, and free memory returns to the system.
 *  Calls drained(ctx) once, when no block is left: before it returns, or on the thread that drops the last one. At most
 *  once for a heap. */
void mr_shm_heap_close(struct mr_shm_heap *h, void (*drained)(void *ctx), void *ctx);
/** The heap is drained. */
void mr_shm_heap_fini(struct mr_shm_heap *h);

/** Returns all free memory to the system. Thread: any; allocations wait for it. */
void mr_shm_heap_trim(struct mr_shm_heap *h);

struct mr_shm_heap_stats {
    uint64_t bytes;
    uint64_t used_bytes;
    uint64_t warm_bytes; /* free, and not returned to the system; about */
    uint64_t refused;
};
/** Thread: any. */
struct mr_shm_heap_stats mr_shm_heap_get_stats(struct mr_shm_heap *h);

#endif
