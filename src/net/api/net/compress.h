/* gzip and deflate (zlib wrapper), with limits against bombs. Thread: any. */
#ifndef MR_NET_COMPRESS_H
#define MR_NET_COMPRESS_H

#include "base/buf.h"
#include "base/err.h"
#include "base/pool.h"

enum mr_coding {
    MR_CODING_IDENTITY = 0,
    MR_CODING_GZIP = 1,
    MR_CODING_DEFLATE = 2,
    MR_CODING_UNKNOWN = 3
};

/** "gzip", "x-gzip", "deflate", "identity", "" → coding. */
enum mr_coding mr_coding_from_name(mr_str name);
/** Best of an Accept-Encoding value (q-values honoured, q=0 excludes; ties: gzip, deflate,
 *  identity). */
enum mr_coding mr_coding_accept(mr_str accept_encoding);
/** Decompress all of `in` into a new block; *out_len its length. Raw and zlib-wrapped deflate are
 *  both understood. Errors: MR_E_INVALID (broken, trailing garbage), MR_E_TOO_LARGE (more than
 *  max). */
int mr_decompress(enum mr_coding coding, mr_bytes in, uint64_t max, struct mr_block **out,
                  size_t *out_len, struct mr_err *err);
/** Append the compressed concatenation of the pieces. level 1..9. */
int mr_compress(enum mr_coding coding, int level, const mr_bytes *pieces, size_t count,
                struct mr_buf *out, struct mr_err *err);

#endif
