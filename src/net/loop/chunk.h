/* Chunks: the pieces of memory of output queues. A loop owns one slab of them, so that a server whose clients read
 * allocates nothing. Further slabs are counted against the byte budget, as answers that wait for a slow reader are
 * bulk memory, and are returned whole: no holes stay in the heap after thousands of such answers. Thread: loop. */
#ifndef MR_NET_CHUNK_H
#define MR_NET_CHUNK_H

#include <stddef.h>
#include <sys/queue.h>

struct mr_loop;
struct mr_slab;

#define MR_CHUNK_BYTES ((size_t)4064) /* a slab with its head fills a block */

/** One per loop, zeroed at its start. */
struct mr_slabs {
    struct mr_slab *own;            /* not counted, kept; NULL until its first use */
    LIST_HEAD(, mr_slab) with_room; /* further slabs that have a free chunk */
};

/** The beginning of every chunk. */
struct mr_chunk_head {
    struct mr_slab *slab;
};

/** A chunk of MR_CHUNK_BYTES, of which only the head is set; NULL without memory. The byte budget does not refuse
 *  chunks: the caller bounds the number per peer. */
void *mr_chunk_take(struct mr_slabs *slabs);
/** The chunk must be from the same slabs. */
void mr_chunk_give(struct mr_slabs *slabs, void *chunk);
/** All chunks must have been given back. */
void mr_slabs_fini(struct mr_slabs *slabs);

#endif
