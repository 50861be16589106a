/* Files compressed as a whole: gzip and zstd, also several concatenated streams.
 *
 * The first bytes decide; a name that contradicts them is an error, so that a renamed file is not read as text. An
 * empty file is an empty text, whatever its name. The libraries' windows take at most 32 KiB for gzip, 128 MiB for
 * zstd. */
#include <string.h>
#include <zlib.h>
#include <zstd.h>

#include "base/mem.h"
#include "io.h"
#include "table/rows/formats.h"

#define READ_BYTES  ((size_t)128 << 10)
#define ZSTD_HEADER ((size_t)3) /* of a block */

static const char *const names[] = {[GZIP] = "gzip", [ZSTD] = "zstd"};

struct mr_unpacker {
    const char *path; /* borrowed */
    mr_raw_read_fn *more;
    void *ctx;
    enum packing packing;
    z_stream gzip;
    ZSTD_DStream *zstd;
    size_t zstd_next; /* bytes up to the end of the block, and the next one's header */
    size_t begin;     /* read[begin, end) is not decompressed yet */
    size_t end;
    uint64_t offset;   /* of read[0] in the file */
    bool is_in_stream; /* inside a stream */
    bool is_cut;       /* the file ended within one */
    bool is_full; /* the last step filled the output: there may be more without further input */
    uint8_t read[READ_BYTES];
};

static enum packing packing_of(const uint8_t *p, size_t n)
{
    if (n >= 2 && p[0] == 0x1f && p[1] == 0x8b) {
        return GZIP;
    }
    /* A frame, or a skippable one, which some tools write first. */
    if (n >= 4 && (memcmp(p, "\x28\xb5\x2f\xfd", 4) == 0 ||
                   ((p[0] & 0xf0) == 0x50 && memcmp(p + 1, "\x2a\x4d\x18", 3) == 0))) {
        return ZSTD;
    }
    return PLAIN;
}

enum packing mr_packing_named(mr_str name)
{
    return mr_str_ends(name, MR_STR(".gz"))    ? GZIP
           : mr_str_ends(name, MR_STR(".zst")) ? ZSTD
                                               : PLAIN;
}

static int packing_find(const char *path, mr_bytes first, enum packing *out, struct mr_err *err)
{
    const enum packing named = mr_packing_named(mr_str_c(path));

    *out = packing_of(first.ptr, first.len);
    if (named != PLAIN && *out != named && first.len > 0) {
        return MR_FAIL(err, MR_E_INVALID, "'%s' is no %s file: at byte 0 there is no mark of one",
                       path, names[named]);
    }
    return MR_OK;
}

int mr_unpacker_new(struct mr_unpacker **out, const char *path, mr_bytes first,
                    mr_raw_read_fn *read, void *ctx, struct mr_err *err)
{
    enum packing packing = PLAIN;
    int rc = packing_find(path, first, &packing, err);

    *out = NULL;
    if (rc < 0 || packing == PLAIN) {
        return rc;
    }
    struct mr_unpacker *u = mr_try_alloc(sizeof *u);
    if (!u) {
        return MR_FAIL(err, MR_E_EXHAUSTED, "no memory to unpack '%s'", path);
    }
    memset(u, 0, offsetof(struct mr_unpacker, read));
    u->path = path;
    u->more = read;
    u->ctx = ctx;
    memcpy(u->read, first.ptr, first.len);
    u->end = first.len;
    u->packing = packing;
    const bool is_ready = packing == GZIP ? inflateInit2(&u->gzip, 15 + 16) == Z_OK
                                          : (u->zstd = ZSTD_createDStream()) != NULL;
    if (!is_ready) {
        mr_free(u);
        return MR_FAIL(err, MR_E_EXHAUSTED, "no memory to unpack '%s'", path);
    }
    *out = u;
    return MR_OK;
}

void mr_unpacker_free(struct mr_unpacker **unpacker)
{
    struct mr_unpacker *u = *unpacker;

    *unpacker = NULL;
    if (u) {
        if (u->packing == GZIP) {
            inflateEnd(&u->gzip);
        }
        ZSTD_freeDStream(u->zstd);
        mr_free(u);
    }
}

static int damaged(const struct mr_unpacker *u, const char *why, struct mr_err *err)
{
    return MR_FAIL(err, MR_E_INVALID, "'%s' is damaged: its %s data is wrong before byte %llu: %s",
                   u->path, names[u->packing], (unsigned long long)(u->offset + u->begin), why);
}

static int gzip_step(struct mr_unpacker *u, uint8_t *out, size_t room, size_t *out_n,
                     struct mr_err *err)
{
    if (!u->is_in_stream && u->begin < u->end) {
        inflateReset(&u->gzip);
        u->is_in_stream = true;
    }
    u->gzip.next_in = u->read + u->begin;
    u->gzip.avail_in = (uInt)(u->end - u->begin);
    u->gzip.next_out = out;
    u->gzip.avail_out = (uInt)MR_MIN(room, (size_t)1 << 30);
    const uInt most = u->gzip.avail_out;
    const int rc = inflate(&u->gzip, Z_NO_FLUSH);
    u->begin = u->end - u->gzip.avail_in;
    *out_n = most - u->gzip.avail_out;
    u->is_full = u->gzip.avail_out == 0 && rc != Z_STREAM_END;
    if (rc == Z_STREAM_END) {
        u->is_in_stream = false;
    } else if (rc == Z_MEM_ERROR) {
        return MR_FAIL(err, MR_E_EXHAUSTED, "no memory to unpack '%s'", u->path);
    } else if (rc != Z_OK && rc != Z_BUF_ERROR && *out_n > 0) {
        /* Returns the data before the damage first; the next step reports the error again. */
        u->is_full = true;
    } else if (rc != Z_OK && rc != Z_BUF_ERROR) {
        return damaged(u, u->gzip.msg ? u->gzip.msg : "it asks for a dictionary", err);
    }
    return MR_OK;
}

static int zstd_step(struct mr_unpacker *u, uint8_t *out, size_t room, size_t *out_n,
                     struct mr_err *err)
{
    /* Without the next block's header: a step that fails returns none of its data. */
    const size_t next = MR_MAX(u->zstd_next, 2 * ZSTD_HEADER) - ZSTD_HEADER;
    const size_t n = u->is_full ? 0 : MR_MIN(next, u->end - u->begin);
    ZSTD_inBuffer in = {u->read, u->begin + n, u->begin};
    ZSTD_outBuffer to = {out, room, 0};
    const size_t rc = ZSTD_decompressStream(u->zstd, &to, &in);

    u->begin = in.pos;
    *out_n = to.pos;
    u->is_full = to.pos == room && rc != 0;
    if (ZSTD_isError(rc)) {
        return damaged(u, ZSTD_getErrorName(rc), err);
    }
    u->is_in_stream = rc != 0;
    u->zstd_next = rc;
    return MR_OK;
}

static int more_read(struct mr_unpacker *u, struct mr_err *err)
{
    u->offset += u->end;
    u->begin = u->end = 0;
    return u->more(u->ctx, u->read, READ_BYTES, &u->end, err);
}

int mr_unpacker_read(struct mr_unpacker *u, void *out, size_t room, size_t *out_n,
                     struct mr_err *err)
{
    size_t n = 0;
    int rc = MR_OK;

    while (rc == MR_OK && n == 0) {
        if (u->begin == u->end && !u->is_full) {
            rc = more_read(u, err);
            if (rc < 0) {
                return rc;
            }
            if (u->end == 0 && u->is_in_stream) {
                u->is_cut = true;
                return MR_FAIL(err, MR_E_INVALID,
                               "'%s' is cut off: it ends at byte %llu within its %s data", u->path,
                               (unsigned long long)u->offset, names[u->packing]);
            }
            if (u->end == 0) {
                break;
            }
        }
        rc = u->packing == GZIP ? gzip_step(u, out, room, &n, err)
                                : zstd_step(u, out, room, &n, err);
    }
    if (rc == MR_OK) {
        *out_n = n;
    }
    return rc;
}

bool mr_unpacker_is_cut(const struct mr_unpacker *u)
{
    return u->is_cut;
}
