/* gzip and deflate by zlib. Output grows by doubling within the caller's limit, so a small body
 * that claims to be large costs what it really holds. Thread: any. */
#include "net/compress.h"

#include <zlib.h>

#include "base/mem.h"

#define FIRST_BYTES ((size_t)16 * 1024)
#define WINDOW_BITS 15
#define GZIP_BITS   (WINDOW_BITS + 16)
#define RAW_BITS    (-WINDOW_BITS)
#define CODINGS_MAX 64 /* of an Accept-Encoding value; what stands behind is not read */

/* ---- names ---------------------------------------------------------------------------------- */

enum mr_coding mr_coding_from_name(mr_str name)
{
    name = mr_str_trim(name);
    if (name.len == 0 || mr_str_ieq(name, MR_STR("identity"))) {
        return MR_CODING_IDENTITY;
    }
    if (mr_str_ieq(name, MR_STR("gzip")) || mr_str_ieq(name, MR_STR("x-gzip"))) {
        return MR_CODING_GZIP;
    }
    return mr_str_ieq(name, MR_STR("deflate")) ? MR_CODING_DEFLATE : MR_CODING_UNKNOWN;
}

/* "0", "0.5", "1.000" → thousandths; anything else is 1000 (the weight is a wish, not a command).
 */
static int quality(mr_str s)
{
    int q = 0;
    int unit = 100;

    if (s.len == 0 || s.len > 5 || (s.ptr[0] != '0' && s.ptr[0] != '1') ||
        (s.len > 1 && s.ptr[1] != '.')) {
        return 1000;
    }
    q = (s.ptr[0] - '0') * 1000;
    for (size_t i = 2; i < s.len; i++) {
        if (s.ptr[i] < '0' || s.ptr[i] > '9') {
            return 1000;
        }
        q += (s.ptr[i] - '0') * unit;
        unit /= 10;
    }
    return MR_MIN(q, 1000);
}

/* The parameters behind a coding's name: "q=…" if it is there. */
static int item_quality(mr_str params)
{
    mr_str param;

    while (mr_str_split(&params, ';', &param)) {
        param = mr_str_trim(param);
        if (param.len >= 2 && (param.ptr[0] | 0x20) == 'q' && param.ptr[1] == '=') {
            return quality(mr_str_trim(mr_str_sub(param, 2, param.len)));
        }
    }
    return 1000;
}

enum mr_coding mr_coding_accept(mr_str accept_encoding)
{
    int wish[3] = {-1, -1, -1}; /* by mr_coding; -1 = not named */
    int others = -1;            /* "*" */
    mr_str rest = accept_encoding;
    mr_str item;

    for (int i = 0; i < CODINGS_MAX && mr_str_split(&rest, ',', &item); i++) {
        mr_str name = {NULL, 0};
        mr_str params = item;
        mr_str_split(&params, ';', &name);
        name = mr_str_trim(name);
        int q = item_quality(params.ptr ? params : MR_STR(""));
        if (mr_str_eq(name, MR_STR("*"))) {
            others = q;
        } else if (name.len > 0 && mr_coding_from_name(name) != MR_CODING_UNKNOWN) {
            wish[mr_coding_from_name(name)] = q;
        }
    }
    int gzip = wish[MR_CODING_GZIP] >= 0 ? wish[MR_CODING_GZIP] : others;
    int deflate = wish[MR_CODING_DEFLATE] >= 0 ? wish[MR_CODING_DEFLATE] : others;
    /* Not named, identity is always good, but it is the last choice then. */
    int identity = wish[MR_CODING_IDENTITY] >= 0 ? wish[MR_CODING_IDENTITY] : 0;
    if (gzip > 0 && gzip >= deflate && gzip >= identity) {
        return MR_CODING_GZIP;
    }
    return deflate > 0 && deflate >= identity ? MR_CODING_DEFLATE : MR_CODING_IDENTITY;
}

/* ---- zlib ----------------------------------------------------------------------------------- */

static void *z_alloc(void *ctx, unsigned items, unsigned size)
{
    size_t bytes;

    (void)ctx;
    return mr_size_mul(items, size, &bytes) ? mr_try_alloc(bytes) : NULL;
}

static void z_free(void *ctx, void *p)
{
    (void)ctx;
    mr_free(p);
}

/* zlib-wrapped data begins with a header that raw deflate data practically never begins with. */
static bool is_wrapped(mr_bytes in)
{
    return in.len >= 2 && (in.ptr[0] & 0x0f) == Z_DEFLATED &&
           ((unsigned)in.ptr[0] << 8 | in.ptr[1]) % 31 == 0;
}

/* Twice the room, up to `max`; the old content moves along. */
static int grow(struct mr_block **io_block, size_t len, uint64_t max)
{
    size_t want = *io_block ? (*io_block)->cap * 2 : FIRST_BYTES;

    want = (uint64_t)want > max ? (size_t)max : want;
    struct mr_block *block = mr_block_new(want);
    if (!block) {
        return MR_E_EXHAUSTED;
    }
    if (len > 0) {
        memcpy(block->data, (*io_block)->data, len);
    }
    mr_block_unref(io_block);
    *io_block = block;
    return MR_OK;
}

/* Run inflate over all of z's input into a growing block. One byte above max is tried for, to tell
 * "exactly max" from more. */
static int inflate_all(z_stream *z, uint64_t max, struct mr_block **io_block, size_t *out_len,
                       struct mr_err *err)
{
    uint64_t limit = max + 1;
    size_t len = 0;
    int rc = Z_OK;

    while (rc != Z_STREAM_END) {
        if (!*io_block || len == (*io_block)->cap) {
            int grown = grow(io_block, len, limit);
            if (grown < 0) {
                return MR_FAIL(err, grown, "no memory for decompressed data");
            }
        }
        uint64_t room = MR_MIN((uint64_t)(*io_block)->cap, limit) - len;
        unsigned step = (unsigned)MR_MIN(room, (uint64_t)1 << 30);
        z->next_out = (*io_block)->data + len;
        z->avail_out = step;
        rc = inflate(z, Z_NO_FLUSH);
        len += step - z->avail_out;
        if (len > max) {
            return MR_FAIL(err, MR_E_TOO_LARGE, "decompressed data is larger than %llu bytes",
                           (unsigned long long)max);
        }
        if (rc == Z_MEM_ERROR) {
            return MR_FAIL(err, MR_E_NOMEM, "no memory to decompress");
        }
        if (rc != Z_OK && rc != Z_STREAM_END) {
            return MR_FAIL(err, MR_E_INVALID, "compressed data is damaged or cut short");
        }
    }
    *out_len = len;
    return MR_OK;
}

int mr_decompress(enum mr_coding coding, mr_bytes in, uint64_t max, struct mr_block **out,
                  size_t *out_len, struct mr_err *err)
{
    z_stream z = {.zalloc = z_alloc, .zfree = z_free};
    struct mr_block *block = NULL;
    size_t len = 0;
    int bits = coding == MR_CODING_GZIP ? GZIP_BITS : is_wrapped(in) ? WINDOW_BITS : RAW_BITS;

    if (coding != MR_CODING_GZIP && coding != MR_CODING_DEFLATE) {
        return MR_FAIL(err, MR_E_UNSUPPORTED, "unknown content coding");
    }
    if (in.len > UINT32_MAX || max >= UINT64_MAX / 2) {
        return MR_FAIL(err, MR_E_TOO_LARGE, "compressed data is too large");
    }
    if (inflateInit2(&z, bits) != Z_OK) {
        return MR_FAIL(err, MR_E_NOMEM, "no memory to decompress");
    }
    z.next_in = (unsigned char *)in.ptr;
    z.avail_in = (unsigned)in.len;
    int rc = inflate_all(&z, max, &block, &len, err);
    if (rc == MR_OK && z.avail_in > 0) {
        rc = MR_FAIL(err, MR_E_INVALID, "there are bytes behind the compressed data");
    }
    inflateEnd(&z);
    if (rc < 0) {
        mr_block_unref(&block);
        return rc;
    }
    *out = block;
    *out_len = len;
    return MR_OK;
}

/* Feed one run of input; flush is Z_NO_FLUSH, or Z_FINISH for the last. */
static bool deflate_run(z_stream *z, mr_bytes in, int flush, struct mr_buf *out)
{
    int rc = Z_OK;

    z->next_in = (unsigned char *)in.ptr;
    z->avail_in = (unsigned)in.len;
    do {
        char *room = mr_buf_reserve(out, FIRST_BYTES);
        if (!room) {
            return false;
        }
        z->next_out = (unsigned char *)room;
        z->avail_out = FIRST_BYTES;
        rc = deflate(z, flush);
        out->len += FIRST_BYTES - z->avail_out;
    } while (rc == Z_OK && (z->avail_out == 0 || flush == Z_FINISH));
    return rc == Z_OK || rc == Z_STREAM_END || rc == Z_BUF_ERROR;
}

int mr_compress(enum mr_coding coding, int level, const mr_bytes *pieces, size_t count,
                struct mr_buf *out, struct mr_err *err)
{
    z_stream z = {.zalloc = z_alloc, .zfree = z_free};
    bool ok = true;

    if (coding != MR_CODING_GZIP && coding != MR_CODING_DEFLATE) {
        return MR_FAIL(err, MR_E_UNSUPPORTED, "unknown content coding");
    }
    level = MR_MIN(MR_MAX(level, 1), 9);
    if (deflateInit2(&z, level, Z_DEFLATED, coding == MR_CODING_GZIP ? GZIP_BITS : WINDOW_BITS, 8,
                     Z_DEFAULT_STRATEGY) != Z_OK) {
        return MR_FAIL(err, MR_E_NOMEM, "no memory to compress");
    }
    for (size_t i = 0; i < count && ok; i++) {
        mr_bytes rest = pieces[i];
        while (rest.len > 0 && ok) {
            size_t part = MR_MIN(rest.len, (size_t)1 << 30);
            ok = deflate_run(&z, (mr_bytes){rest.ptr, part}, Z_NO_FLUSH, out);
            rest.ptr += part;
            rest.len -= part;
        }
    }
    ok = ok && deflate_run(&z, (mr_bytes){0}, Z_FINISH, out);
    deflateEnd(&z);
    return ok ? MR_OK : MR_FAIL(err, MR_E_NOMEM, "no memory for compressed data");
}
