/* gzip and deflate (zlib wrapper), with limits against bombs. Thread: any. */
#ifndef MR_NET_COMPRESS_H
#define MR_NET_COMPRESS_H

#include "base/arena.h"
#include "base/err.h"
#include "base/pool.h"
#include "base/str.h"

enum mr_coding {
    MR_CODING_IDENTITY = 0,
    MR_CODING_GZIP = 1,
    MR_CODING_DEFLATE = 2,
    MR_CODING_UNKNOWN = 3
};

/** "gzip", "x-gzip", "deflate", "identity", "" → coding. */
enum mr_coding mr_coding_from_name(mr_str name);
/** The preferred coding of an Accept-Encoding value (q-values honoured, q=0 excludes; ties: gzip, deflate, identity). */
enum mr_coding mr_coding_accept(mr_str accept_encoding);
/** Decompress all of `in` into a new block; *out_len its length. Accepts raw and zlib-wrapped deflate. Memory is
 *  counted in the budget as it is filled. May be the work of a turn (base/turn.h).
 *  Errors: MR_E_INVALID (broken, trailing garbage), MR_E_TOO_LARGE (more than max), MR_E_EXHAUSTED (budget),
 *  MR_E_CANCELLED (the turn was ended). */
int mr_decompress(enum mr_coding coding, mr_bytes in, uint64_t max, struct mr_block **out,
                  size_t *out_len, struct mr_err *err);
/** The size to which `packed` bytes may unpack: `max`, but at most `ratio` times their number (0: no limit).
 *  MR_RATIO_FREE_BYTES are always allowed, as small messages of zeros are no attack. */
uint64_t mr_decompress_max(size_t packed, uint64_t max, uint32_t ratio);
#define MR_RATIO_FREE_BYTES ((uint64_t)8 * 1024 * 1024)
/** Fails with MR_E_TOO_LARGE and a text that names the ratio. */
int mr_decompress_ratio_error(uint32_t ratio, struct mr_err *err);
/** Compress the concatenation of the pieces, which are borrowed. level 1..9. *out: pieces in `arena`, each with a
 *  block whose reference the caller drops. May be the work of a turn. Errors: MR_E_UNSUPPORTED, MR_E_EXHAUSTED,
 *  MR_E_CANCELLED. */
int mr_compress(enum mr_coding coding, int level, const struct mr_piece *pieces, size_t count,
                struct mr_arena *arena, struct mr_piece **out, size_t *out_count,
                struct mr_err *err);

#endif
