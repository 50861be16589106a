/* gzip and deflate by zlib, in steps; each step calls mr_turn_spend, as this may be the work of a turn. Decompressed
 * data grows by doubling within the caller's limit, so that memory follows the real size and not the claimed one;
 * compressed data fills block after block. All memory is blocks, so that the budget counts all of it. Thread: any. */
#include "net/compress.h"

#include <zlib.h>

#include "base/mem.h"
#include "base/turn.h"

#define FIRST_BYTES ((size_t)16 * 1024)
#define PACKED_MOST ((size_t)256 * 1024) /* of one piece */
#define IN_STEP     ((size_t)8 * 1024)
#define OUT_STEP    ((size_t)32 * 1024)
#define WINDOW_BITS 15
#define GZIP_BITS   (WINDOW_BITS + 16)
#define RAW_BITS    (-WINDOW_BITS)
#define CODINGS_MAX 64 /* of an Accept-Encoding value; further ones are ignored */

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

/* "0", "0.5", "1.000" → thousandths; anything else is 1000, as weights are only preferences.
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

/* The quality in the parameters after a coding's name ("q=…"). */
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
    /* If not named, identity is allowed, but the last choice. */
    int identity = wish[MR_CODING_IDENTITY] >= 0 ? wish[MR_CODING_IDENTITY] : 0;
    if (gzip > 0 && gzip >= deflate && gzip >= identity) {
        return MR_CODING_GZIP;
    }
    return deflate > 0 && deflate >= identity ? MR_CODING_DEFLATE : MR_CODING_IDENTITY;
}

/* ---- zlib ----------------------------------------------------------------------------------- */

/* Allocated as blocks, as many turns may run at a time and the budget has to count them. A pointer to the block
 * precedes the memory. */
#define Z_HEAD ((size_t)64)

static void *z_alloc(void *ctx, unsigned items, unsigned size)
{
    size_t bytes;

    (void)ctx;
    if (!mr_size_mul(items, size, &bytes) || !mr_size_add(bytes, Z_HEAD, &bytes)) {
        return NULL;
    }
    struct mr_block *block = mr_block_new(bytes);
    if (!block) {
        return NULL;
    }
    memcpy(block->data, &block, sizeof block);
    return block->data + Z_HEAD;
}

static void z_free(void *ctx, void *p)
{
    struct mr_block *block;

    (void)ctx;
    memcpy(&block, (char *)p - Z_HEAD, sizeof block);
    mr_block_unref(&block);
}

static int no_memory(struct mr_err *err)
{
    return MR_FAIL(err, MR_E_EXHAUSTED,
                   "no memory to compress or decompress (--memory-budget), try later");
}

static int ended(struct mr_err *err)
{
    return MR_FAIL(err, MR_E_CANCELLED, "ended");
}

/* ---- in ------------------------------------------------------------------------------------- */

/* Recognises the zlib header, with which raw deflate data practically never begins. */
static bool is_wrapped(mr_bytes in)
{
    return in.len >= 2 && (in.ptr[0] & 0x0f) == Z_DEFLATED &&
           ((unsigned)in.ptr[0] << 8 | in.ptr[1]) % 31 == 0;
}

uint64_t mr_decompress_max(size_t packed, uint64_t max, uint32_t ratio)
{
    uint64_t most = MR_MAX((uint64_t)MR_RATIO_FREE_BYTES, (uint64_t)packed * ratio);

    return ratio > 0 ? MR_MIN(max, most) : max;
}

int mr_decompress_ratio_error(uint32_t ratio, struct mr_err *err)
{
    return MR_FAIL(err, MR_E_TOO_LARGE,
                   "compressed data unpacks to more than %u times its size and %llu bytes "
                   "(--max-decompression-ratio)",
                   ratio, (unsigned long long)MR_RATIO_FREE_BYTES);
}

/* Doubles the block, up to `max`. */
static int grow(struct mr_block **io_block, size_t len, uint64_t max, struct mr_err *err)
{
    size_t want = *io_block ? (*io_block)->cap * 2 : FIRST_BYTES;

    want = (uint64_t)want > max ? (size_t)max : want;
    return mr_block_grow(io_block, len, want) ? MR_OK : no_memory(err);
}

/* One step, small enough to take some ten microseconds for any data. Both input and output are bounded, as code
 * tables can make every few bytes of input expensive. */
static int inflate_step(z_stream *z, mr_bytes *io_in, uint8_t *to, uint64_t room, size_t *io_len)
{
    unsigned in = (unsigned)MR_MIN(io_in->len, IN_STEP);
    unsigned out = (unsigned)MR_MIN(room, (uint64_t)OUT_STEP);

    z->next_in = (unsigned char *)io_in->ptr;
    z->avail_in = in;
    z->next_out = to;
    z->avail_out = out;
    int rc = inflate(z, Z_NO_FLUSH);
    if (in > z->avail_in) { /* empty input may have a NULL pointer */
        io_in->ptr += in - z->avail_in;
        io_in->len -= in - z->avail_in;
    }
    *io_len += out - z->avail_out;
    return rc;
}

/* Inflates all of `in` into a growing block. Tries one byte more than max, to distinguish "exactly max" from more. */
static int inflate_all(z_stream *z, mr_bytes *io_in, uint64_t max, struct mr_block **io_block,
                       size_t *out_len, struct mr_err *err)
{
    uint64_t limit = max + 1;
    size_t len = 0;
    int rc = Z_OK;

    while (rc != Z_STREAM_END) {
        if (!*io_block || len == (*io_block)->cap) {
            int grown = grow(io_block, len, limit, err);
            if (grown < 0) {
                return grown;
            }
        }
        uint64_t room = MR_MIN((uint64_t)(*io_block)->cap, limit) - len;
        rc = inflate_step(z, io_in, (*io_block)->data + len, room, &len);
        if (len > max) {
            return MR_FAIL(err, MR_E_TOO_LARGE, "decompressed data is larger than %llu bytes",
                           (unsigned long long)max);
        }
        if (rc == Z_MEM_ERROR) {
            return no_memory(err);
        }
        if (rc != Z_OK && rc != Z_STREAM_END) {
            return MR_FAIL(err, MR_E_INVALID, "compressed data is damaged or cut short");
        }
        if (!mr_turn_spend(MR_TURN_STEP)) {
            return ended(err);
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
        return no_memory(err);
    }
    int rc = inflate_all(&z, &in, max, &block, &len, err);
    if (rc == MR_OK && in.len > 0) {
        rc = MR_FAIL(err, MR_E_INVALID, "there are bytes after the compressed data");
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

/* ---- out ------------------------------------------------------------------------------------ */

/* The output of deflate: pieces, each a block of its own, filled one after the other. */
struct packed {
    struct mr_arena *arena;
    struct mr_piece *at;
    size_t count;
    size_t cap;
    size_t next_bytes;
};

static int packed_grow(struct packed *p)
{
    if (p->count == p->cap) {
        size_t cap = p->cap ? p->cap * 2 : 8;
        struct mr_piece *at = MR_ARENA_ARRAY(p->arena, struct mr_piece, cap);
        if (!at) {
            return MR_E_EXHAUSTED;
        }
        if (p->count) {
            memcpy(at, p->at, p->count * sizeof *at);
        }
        p->at = at;
        p->cap = cap;
    }
    struct mr_block *block = mr_block_new(p->next_bytes);
    if (!block) {
        return MR_E_EXHAUSTED;
    }
    p->next_bytes = MR_MIN(p->next_bytes * 2, PACKED_MOST);
    p->at[p->count++] = (struct mr_piece){.ptr = block->data, .block = block};
    return MR_OK;
}

/* Feed one step of input; flush is Z_NO_FLUSH, or Z_FINISH for the end. */
static int deflate_step(z_stream *z, mr_bytes in, int flush, struct packed *p)
{
    int rc = Z_OK;

    z->next_in = (unsigned char *)in.ptr;
    z->avail_in = (unsigned)in.len;
    while (rc == Z_OK) {
        struct mr_piece *last = p->count ? &p->at[p->count - 1] : NULL;
        if (!last || last->len == last->block->cap) {
            if (packed_grow(p) < 0) {
                return MR_E_EXHAUSTED;
            }
            last = &p->at[p->count - 1];
        }
        unsigned room = (unsigned)MR_MIN(last->block->cap - last->len, PACKED_MOST);
        z->next_out = last->block->data + last->len;
        z->avail_out = room;
        rc = deflate(z, flush);
        last->len += room - z->avail_out;
        if (z->avail_out > 0 && flush == Z_NO_FLUSH) {
            break;
        }
    }
    return rc == Z_OK || rc == Z_STREAM_END || rc == Z_BUF_ERROR ? MR_OK : MR_E_EXHAUSTED;
}

static int deflate_all(z_stream *z, const struct mr_piece *pieces, size_t count, struct packed *p)
{
    for (size_t i = 0; i < count; i++) {
        mr_bytes rest = {pieces[i].ptr, pieces[i].len};
        while (rest.len > 0) {
            size_t part = MR_MIN(rest.len, IN_STEP);
            int rc = deflate_step(z, (mr_bytes){rest.ptr, part}, Z_NO_FLUSH, p);
            if (rc < 0) {
                return rc;
            }
            if (!mr_turn_spend(MR_TURN_STEP)) {
                return MR_E_CANCELLED;
            }
            rest.ptr += part;
            rest.len -= part;
        }
    }
    return deflate_step(z, (mr_bytes){0}, Z_FINISH, p);
}

int mr_compress(enum mr_coding coding, int level, const struct mr_piece *pieces, size_t count,
                struct mr_arena *arena, struct mr_piece **out, size_t *out_count,
                struct mr_err *err)
{
    z_stream z = {.zalloc = z_alloc, .zfree = z_free};
    struct packed p = {.arena = arena, .next_bytes = FIRST_BYTES};

    if (coding != MR_CODING_GZIP && coding != MR_CODING_DEFLATE) {
        return MR_FAIL(err, MR_E_UNSUPPORTED, "unknown content coding");
    }
    level = MR_MIN(MR_MAX(level, 1), 9);
    if (deflateInit2(&z, level, Z_DEFLATED, coding == MR_CODING_GZIP ? GZIP_BITS : WINDOW_BITS, 8,
                     Z_DEFAULT_STRATEGY) != Z_OK) {
        return no_memory(err);
    }
    int rc = deflate_all(&z, pieces, count, &p);
    deflateEnd(&z);
    if (rc < 0) {
        for (size_t i = 0; i < p.count; i++) {
            mr_block_unref(&p.at[i].block);
        }
        return rc == MR_E_CANCELLED ? ended(err) : no_memory(err);
    }
    *out = p.at;
    *out_count = p.count;
    return MR_OK;
}
