/* Output queues: a list of 4 KiB chunks (chunk.h). A chunk holds copied bytes at its end and a table of segments in
 * order: a segment is a run of those bytes or a part of a block. Neighbouring copies share a segment, so a typical
 * answer is one chunk with one segment, and the chunk is free again, still in the CPU's cache, when the answer has
 * been written.
 *
 * A queue counts the memory that it occupies: its chunks, and for each block its size divided by its references, as a
 * part of a batch's output keeps the whole block in use. A part of a segment that moves to another queue takes its
 * proportion along.
 *
 * Without memory the queue is marked as failed and takes no more; its owner closes the stream. */
#include "outq.h"

#include <string.h>

#include "loop_priv.h"

#define CHUNK_SEGS 32
/* A block segment shorter than this is cheaper to copy than to reference. */
#define COPY_BYTES 256
/* Up to this size data is copied even if the budget is used up. */
#define DUE_BYTES ((size_t)64 * 1024)

struct seg {
    const uint8_t *ptr;
    size_t len;
    struct mr_block *block; /* NULL: bytes of the chunk */
    size_t memory;          /* counted for it, in addition to the chunk */
};

struct mr_chunk {
    struct mr_chunk_head head;
    struct mr_chunk *next;
    uint16_t first; /* segments before it are consumed */
    uint16_t count;
    uint32_t used; /* of bytes[] */
    struct seg segs[CHUNK_SEGS];
    uint8_t bytes[MR_CHUNK_BYTES - CHUNK_SEGS * sizeof(struct seg) - 24];
};

_Static_assert(sizeof(struct mr_chunk) == MR_CHUNK_BYTES, "chunks are of one size");
_Static_assert(MR_OUTQ_RESERVE_MAX <= sizeof(((struct mr_chunk *)0)->bytes), "fits a fresh chunk");

void mr_outq_init(struct mr_outq *q, struct mr_loop *loop)
{
    *q = (struct mr_outq){.loop = loop};
}

void mr_outq_fini(struct mr_outq *q)
{
    while (q->first) {
        struct mr_chunk *c = q->first;
        q->first = c->next;
        for (unsigned i = c->first; i < c->count; i++) {
            mr_block_unref(&c->segs[i].block);
        }
        mr_chunk_give(&q->loop->slabs, c);
    }
    q->last = NULL;
    q->bytes = q->memory = 0;
}

static struct mr_chunk *chunk_add(struct mr_outq *q)
{
    struct mr_chunk *c = q->failed ? NULL : mr_chunk_take(&q->loop->slabs);

    if (!c) {
        q->failed = true;
        return NULL;
    }
    q->memory += MR_CHUNK_BYTES;
    c->next = NULL;
    c->first = c->count = 0;
    c->used = 0;
    if (q->last) {
        q->last->next = c;
    } else {
        q->first = c;
    }
    q->last = c;
    return c;
}

/* True if copied bytes can join the last segment. */
static bool can_extend(const struct mr_chunk *c)
{
    if (c->count == c->first) {
        return false;
    }
    const struct seg *s = &c->segs[c->count - 1];
    return !s->block && s->ptr + s->len == c->bytes + c->used;
}

/* The last chunk if it can take `n` copied bytes, else a new one. */
static struct mr_chunk *chunk_for(struct mr_outq *q, size_t n)
{
    struct mr_chunk *c = q->failed ? NULL : q->last;

    if (c && sizeof c->bytes - c->used >= n && (c->count < CHUNK_SEGS || can_extend(c))) {
        return c;
    }
    return chunk_add(q);
}

char *mr_outq_reserve(struct mr_outq *q, size_t n)
{
    struct mr_chunk *c = chunk_for(q, n);

    return c ? (char *)c->bytes + c->used : NULL;
}

void mr_outq_commit(struct mr_outq *q, size_t n)
{
    struct mr_chunk *c = q->last;

    if (n == 0) {
        return;
    }
    if (can_extend(c)) {
        c->segs[c->count - 1].len += n;
    } else {
        c->segs[c->count++] = (struct seg){.ptr = c->bytes + c->used, .len = n};
    }
    c->used += (uint32_t)n;
    q->bytes += n;
}

void mr_outq_append(struct mr_outq *q, const void *data, size_t n)
{
    const uint8_t *p = data;

    while (n > 0) {
        struct mr_chunk *c = chunk_for(q, 1);
        if (!c) {
            return;
        }
        size_t part = MR_MIN(n, sizeof c->bytes - c->used);
        memcpy(c->bytes + c->used, p, part);
        mr_outq_commit(q, part);
        p += part;
        n -= part;
    }
}

static void append_ref(struct mr_outq *q, const void *data, size_t n, struct mr_block *block,
                       size_t memory)
{
    struct mr_chunk *c = q->failed ? NULL : q->last;

    if (n < COPY_BYTES) {
        mr_outq_append(q, data, n);
        mr_block_unref(&block);
        return;
    }
    if (!c || c->count == CHUNK_SEGS) {
        c = chunk_add(q);
    }
    if (!c) {
        mr_block_unref(&block);
        return;
    }
    c->segs[c->count++] = (struct seg){.ptr = data, .len = n, .block = block, .memory = memory};
    q->bytes += n;
    q->memory += memory;
}

void mr_outq_append_block(struct mr_outq *q, const void *data, size_t n, struct mr_block *block)
{
    append_ref(q, data, n, block, MR_MAX(n, block->cap / mr_block_refs(block)));
}

void mr_outq_append_large(struct mr_outq *q, const void *data, size_t n)
{
    struct mr_block *block = mr_block_new(n);

    if (!block && n > DUE_BYTES) {
        q->failed = true;
        return;
    }
    if (!block) {
        mr_outq_append(q, data, n);
        return;
    }
    memcpy(block->data, data, n);
    mr_outq_append_block(q, block->data, n, block);
}

int mr_outq_iov(const struct mr_outq *q, struct iovec *iov, int max)
{
    int n = 0;

    for (const struct mr_chunk *c = q->first; c && n < max; c = c->next) {
        for (unsigned i = c->first; i < c->count && n < max; i++) {
            iov[n++] = (struct iovec){(void *)c->segs[i].ptr, c->segs[i].len};
        }
    }
    return n;
}

mr_bytes mr_outq_front(const struct mr_outq *q)
{
    struct iovec iov = {0};

    mr_outq_iov(q, &iov, 1);
    return (mr_bytes){iov.iov_base, iov.iov_len};
}

static void pop_chunk(struct mr_outq *q)
{
    struct mr_chunk *c = q->first;

    q->first = c->next;
    if (!q->first) {
        q->last = NULL;
    }
    q->memory -= MR_CHUNK_BYTES;
    mr_chunk_give(&q->loop->slabs, c);
}

void mr_outq_consume(struct mr_outq *q, size_t n)
{
    q->bytes -= n;
    while (n > 0) {
        struct mr_chunk *c = q->first;
        struct seg *s = &c->segs[c->first];
        if (n < s->len) {
            s->ptr += n;
            s->len -= n;
            return;
        }
        n -= s->len;
        q->memory -= s->memory;
        mr_block_unref(&s->block);
        if (++c->first == c->count) {
            pop_chunk(q);
        }
    }
}

void mr_outq_move(struct mr_outq *to, struct mr_outq *from, size_t n)
{
    while (n > 0 && from->first) {
        struct seg *s = &from->first->segs[from->first->first];
        size_t part = MR_MIN(n, s->len);
        if (s->block) {
            size_t memory = part == s->len ? s->memory : MR_MIN(part, s->memory);
            s->memory -= memory;
            from->memory -= memory;
            append_ref(to, s->ptr, part, mr_block_ref(s->block), memory);
        } else {
            mr_outq_append(to, s->ptr, part);
        }
        mr_outq_consume(from, part);
        n -= part;
    }
}
