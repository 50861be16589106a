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
    size_t
        memory;  /* that they take: whole chunks, and of each block the part that is not others' */
    bool failed; /* no memory: something was dropped, the stream is broken */
};

void mr_outq_init(struct mr_outq *q, struct mr_loop *loop);
/** Drops what is in it. */
void mr_outq_fini(struct mr_outq *q);

/** Room for `n` contiguous bytes (n <= MR_OUTQ_RESERVE_MAX), NULL without memory (and failed); to
 *  be followed by mr_outq_commit with at most n. */
char *mr_outq_reserve(struct mr_outq *q, size_t n);
void mr_outq_commit(struct mr_outq *q, size_t n);
#define MR_OUTQ_RESERVE_MAX ((size_t)2048)

/** Copies. */
void mr_outq_append(struct mr_outq *q, const void *data, size_t n);
/** Takes over one reference to `block` (also on failure). */
void mr_outq_append_block(struct mr_outq *q, const void *data, size_t n, struct mr_block *block);
/** Longer pieces are better off in a block of their own than cut up over chunks. */
#define MR_OUTQ_LARGE_BYTES ((size_t)16 * 1024)
/** Copies into one block of its own, for bytes too many for chunks. The byte budget may refuse that: the queue has
 *  failed then, unless the bytes are few enough to be kept all the same. */
void mr_outq_append_large(struct mr_outq *q, const void *data, size_t n);

/** Fill iov with the front of the queue; returns how many entries. */
int mr_outq_iov(const struct mr_outq *q, struct iovec *iov, int max);
/** Drop n bytes from the front. */
void mr_outq_consume(struct mr_outq *q, size_t n);
/** The first piece; len 0 when empty. */
mr_bytes mr_outq_front(const struct mr_outq *q);
/** Move n bytes from the front of `from` to the end of `to`: references move, copies are copied. */
void mr_outq_move(struct mr_outq *to, struct mr_outq *from, size_t n);

#endif
