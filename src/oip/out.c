/* A message body as pieces: text and small tensors in one growing buffer, large tensors by reference.
 *
 * The buffer may move while it grows, so a piece of it is kept as a length until the end; pieces of
 * it follow each other, which is enough to find their places. References on blocks are taken last,
 * when nothing can fail any more. Long text does not stay in the buffer: part by part it goes into blocks, which
 * the memory budget counts and which are sent without another copy. Any thread. */
#include "oip_priv.h"

#define SPILL_BYTES ((size_t)256 * 1024)

void mr_oip_out_init(struct mr_oip_out *o, struct mr_buf *buf, struct mr_arena *arena,
                     size_t tensors)
{
    mr_buf_reset(buf);
    *o = (struct mr_oip_out){.buf = buf, .arena = arena, .cap = 2 * tensors + 1};
    o->pieces = MR_ARENA_ARRAY(arena, struct mr_piece, o->cap);
    o->failure = o->pieces ? 0 : MR_E_EXHAUSTED;
}

static int piece_add(struct mr_oip_out *o, struct mr_piece piece)
{
    struct mr_piece *grown = mr_oip_grow(o->arena, o->pieces, o->count, &o->cap, sizeof *grown);
    if (!grown) {
        return MR_E_EXHAUSTED;
    }
    o->pieces = grown;
    o->pieces[o->count++] = piece;
    return MR_OK;
}

/* The arena keeps the block, so that a failure later on drops it. */
static int spill(struct mr_oip_out *o)
{
    struct mr_buf *b = o->buf;
    struct mr_block *block = mr_block_new(b->len);
    if (!block || !mr_block_keep(block, o->arena)) {
        return MR_E_EXHAUSTED;
    }
    memcpy(block->data, b->ptr, b->len);
    o->spilt += b->len;
    size_t len = b->len;
    mr_buf_reset(b);
    return piece_add(o, (struct mr_piece){block->data, len, block});
}

bool mr_oip_out_spill(struct mr_oip_out *o, uint64_t units)
{
    if (!mr_turn_spend(units)) {
        o->failure = MR_E_CANCELLED;
    } else if (o->may_spill && o->failure == 0 && !o->buf->failed && o->mark == 0 &&
               o->buf->len >= SPILL_BYTES) {
        o->failure = spill(o);
    }
    return o->failure == 0;
}

/* What was appended to buf since the last piece becomes one; ptr NULL marks it as buf's. */
static void stretch_close(struct mr_oip_out *o)
{
    if (o->buf->len > o->mark) {
        o->failure = piece_add(o, (struct mr_piece){NULL, o->buf->len - o->mark, NULL});
        o->mark = o->buf->len;
    }
}

void mr_oip_out_data(struct mr_oip_out *o, const void *data, uint64_t bytes, struct mr_block *block)
{
    if (o->failure || o->buf->failed || bytes == 0) {
        return;
    }
    if (bytes <= OIP_COPY_BYTES) {
        mr_buf_append(o->buf, data, (size_t)bytes);
        return;
    }
    stretch_close(o);
    if (o->failure == 0) {
        o->failure = piece_add(o, (struct mr_piece){data, (size_t)bytes, block});
    }
}

int mr_oip_out_finish(struct mr_oip_out *o, struct mr_oip_encoded *out, struct mr_err *err)
{
    if (o->failure == 0 && !o->buf->failed) {
        stretch_close(o);
    }
    if (o->failure == MR_E_CANCELLED) {
        return mr_oip_ended(err);
    }
    if (o->failure || o->buf->failed) {
        return MR_FAIL(
            err, MR_E_EXHAUSTED,
            o->spilt ? "the message as text needs more memory than there is (--memory-budget; of a "
                       "batch job --memory)"
                     : "message is larger than its buffer may grow");
    }
    const char *at = o->buf->ptr ? o->buf->ptr + o->start : NULL;
    uint64_t bytes = 0;
    for (size_t i = 0; i < o->count; i++) {
        struct mr_piece *piece = &o->pieces[i];
        if (!piece->ptr) {
            piece->ptr = at;
            at += piece->len;
        } else if (piece->block) {
            mr_block_ref(piece->block);
        }
        bytes += piece->len;
    }
    out->pieces = o->pieces;
    out->piece_count = o->count;
    out->bytes = bytes;
    return MR_OK;
}
