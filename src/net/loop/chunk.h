/* Chunks: the pieces of memory that output queues are made of. A loop has a slab of them for good, so that a server
 * whose clients read takes nothing from anywhere. More come in slabs that are counted against the byte budget, as
 * answers that wait for a slow reader are bulk memory, and that go back whole: no hole stays in a heap when
 * thousands of such answers have gone. Thread: loop. */
#ifndef MR_NET_CHUNK_H
#define MR_NET_CHUNK_H

#include <stddef.h>
#include <sys/queue.h>

struct mr_loop;
struct mr_slab;

#define MR_CHUNK_BYTES ((size_t)4064) /* so that a slab with its head fills a block */

/** Of a loop, zeroed at its start. */
struct mr_slabs {
    struct mr_slab *own;            /* not counted, stays; NULL until its first use */
    LIST_HEAD(, mr_slab) with_room; /* of the others: those with a free chunk */
};

/** What every chunk begins with. */
struct mr_chunk_head {
    struct mr_slab *slab;
};

/** MR_CHUNK_BYTES, of which the head is set and the rest is not; NULL without memory. The byte budget refuses none:
 *  the caller bounds how many one peer can make it take. */
void *mr_chunk_take(struct mr_slabs *slabs);
/** Of the same slabs. */
void mr_chunk_give(struct mr_slabs *slabs, void *chunk);
/** All chunks are given back. */
void mr_slabs_fini(struct mr_slabs *slabs);

#endif
