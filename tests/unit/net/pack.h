/* Compressed data in one buffer. */
#ifndef MR_TEST_PACK_H
#define MR_TEST_PACK_H

#include "base/buf.h"
#include "net/compress.h"

/** Appends; false without memory. */
static inline bool pack_into(enum mr_coding coding, int level, const struct mr_piece *pieces,
                             size_t count, struct mr_buf *out)
{
    struct mr_arena arena;
    struct mr_piece *packed = NULL;
    size_t n = 0;

    mr_arena_init(&arena, 1024, 1 << 20);
    bool ok = mr_compress(coding, level, pieces, count, &arena, &packed, &n, NULL) == MR_OK;
    for (size_t i = 0; i < n; i++) {
        mr_buf_append(out, packed[i].ptr, packed[i].len);
        mr_block_unref(&packed[i].block);
    }
    mr_arena_fini(&arena);
    return ok && !out->failed;
}

#endif
