/* A queue of output: copied bytes in recycled chunks, and references to blocks, in order. A
 * connection has one towards the socket, an HTTP/2 call has one for its body. Thread: loop. */
#ifndef MR_NET_OUTQ_H
#define MR_NET_OUTQ_H

#include <sys/uio.h>

#include "base/pool.h"
#include "base/str.h"

struct mr_loop;
struct mr_chunk;

struct mr_outq {
    struct mr_loop *loop;
    struct mr_chunk *first;
    struct mr_chunk *last;
    size_t bytes; /* in the queue */
    /* that the queue occupies: whole chunks, and its share of each block */
    size_t memory;
    bool failed; /* no memory: something was dropped, the stream is broken */
};

void mr_outq_init(struct mr_outq *q, struct mr_loop *loop);
/** Drops its content. */
void mr_outq_fini(struct mr_outq *q);

/** Returns room for `n` contiguous bytes (n <= MR_OUTQ_RESERVE_MAX), NULL without memory (and sets `failed`).
 *  mr_outq_commit with at most n follows. */
char *mr_outq_reserve(struct mr_outq *q, size_t n);
void mr_outq_commit(struct mr_outq *q, size_t n);
#define MR_OUTQ_RESERVE_MAX ((size_t)2048)

/** Copies. */
void mr_outq_append(struct mr_outq *q, const void *data, size_t n);
/** Takes one reference to `block` (also on failure). */
void mr_outq_append_block(struct mr_outq *q, const void *data, size_t n, struct mr_block *block);
/** Longer pieces get a block of their own instead of being cut into chunks. */
#define MR_OUTQ_LARGE_BYTES ((size_t)16 * 1024)
/** Copies into one block of its own, for data too large for chunks. If the byte budget refuses the block, the queue
 *  fails, unless the data is small enough to exceed the budget. */
void mr_outq_append_large(struct mr_outq *q, const void *data, size_t n);

/** Fills iov with the front of the queue; returns the number of entries. */
int mr_outq_iov(const struct mr_outq *q, struct iovec *iov, int max);
/** Drop n bytes from the front. */
void mr_outq_consume(struct mr_outq *q, size_t n);
/** The first piece; len 0 when empty. */
mr_bytes mr_outq_front(const struct mr_outq *q);
/** Move n bytes from the front of `from` to the end of `to`: references move, copies are copied. */
void mr_outq_move(struct mr_outq *to, struct mr_outq *from, size_t n);

#endif
