/* A message body as pieces: text and small tensors in one growing buffer, large tensors by reference.
 *
 * The buffer may move while it grows, so a piece of it is kept as a length until the end; pieces of
 * it follow each other, which is enough to find their places. References on blocks are taken last,
 * when nothing can fail any more. Any thread. */
#include "internal.h"

void mr_oip_out_init(struct mr_oip_out *o, struct mr_buf *buf, struct mr_arena *arena,
                     size_t tensors)
{
    mr_buf_reset(buf);
    *o = (struct mr_oip_out){.buf = buf, .arena = arena, .cap = 2 * tensors + 1};
    o->pieces = MR_ARENA_ARRAY(arena, struct mr_piece, o->cap);
    o->failed = o->pieces == NULL;
}

/* What was appended to buf since the last piece becomes one; ptr NULL marks it as buf's. */
static void stretch_close(struct mr_oip_out *o)
{
    if (o->buf->len > o->mark) {
        o->pieces[o->count++] = (struct mr_piece){NULL, o->buf->len - o->mark, NULL};
        o->mark = o->buf->len;
    }
}

void mr_oip_out_data(struct mr_oip_out *o, const void *data, uint64_t bytes, struct mr_block *block)
{
    if (o->failed || o->buf->failed || bytes == 0) {
        return;
    }
    if (bytes <= OIP_COPY_BYTES) {
        mr_buf_append(o->buf, data, (size_t)bytes);
        return;
    }
    stretch_close(o);
    o->pieces[o->count++] = (struct mr_piece){data, (size_t)bytes, block};
}

int mr_oip_out_finish(struct mr_oip_out *o, struct mr_oip_encoded *out, struct mr_err *err)
{
    if (o->failed || o->buf->failed) {
        return MR_FAIL(err, MR_E_EXHAUSTED, "message is larger than its buffer may grow");
    }
    stretch_close(o);
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
