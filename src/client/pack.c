/* A body of less than 32 KiB costs more time to compress than to send; numbers that look random, as many tensors do, do not become smaller at
 * all. So a part of the largest piece is tried first, and a body that did not become smaller by a tenth is sent as it was. */
#include "pack.h"

#define LEAST_BYTES ((uint64_t)32 * 1024)
#define TRIED_BYTES ((size_t)16 * 1024)
#define LEVEL       1

static void drop(struct mr_piece *pieces, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        mr_block_unref(&pieces[i].block);
    }
}

static uint64_t bytes_of(const struct mr_piece *pieces, size_t count)
{
    uint64_t bytes = 0;

    for (size_t i = 0; i < count; i++) {
        bytes += pieces[i].len;
    }
    return bytes;
}

static bool pays(uint64_t packed, uint64_t bytes)
{
    return packed < bytes - bytes / 10;
}

static int try(enum mr_coding coding, const struct mr_oip_encoded *body, struct mr_arena *arena,
               bool *out_pays, struct mr_err *err)
{
    const struct mr_piece *largest = &body->pieces[0];
    struct mr_piece *packed;
    size_t count;

    for (size_t i = 1; i < body->piece_count; i++) {
        largest = body->pieces[i].len > largest->len ? &body->pieces[i] : largest;
    }
    const struct mr_piece part = {.ptr = largest->ptr, .len = MR_MIN(largest->len, TRIED_BYTES)};
    int rc = mr_compress(coding, LEVEL, &part, 1, arena, &packed, &count, err);
    if (rc == MR_OK) {
        *out_pays = pays(bytes_of(packed, count), part.len);
        drop(packed, count);
    }
    return rc;
}

int pack_body(enum mr_coding coding, struct mr_oip_encoded *body, struct mr_arena *arena,
              enum mr_coding *out_coding, struct mr_err *err)
{
    struct mr_piece *packed;
    bool is_worth_it = false;
    size_t count;
    int rc;

    *out_coding = MR_CODING_IDENTITY;
    if (coding == MR_CODING_IDENTITY || body->bytes < LEAST_BYTES) {
        return MR_OK;
    }
    MR_TRY(try(coding, body, arena, &is_worth_it, err));
    if (!is_worth_it) {
        return MR_OK;
    }
    MR_TRY(
        mr_compress(coding, LEVEL, body->pieces, body->piece_count, arena, &packed, &count, err));
    if (!pays(bytes_of(packed, count), body->bytes)) {
        drop(packed, count);
        return MR_OK;
    }
    drop(body->pieces, body->piece_count);
    body->pieces = packed;
    body->piece_count = count;
    body->bytes = bytes_of(packed, count);
    *out_coding = coding;
out:
    return rc;
}
