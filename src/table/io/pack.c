/* Compresses text into a file: one gzip or zstd stream, with the libraries' default levels. */
#include <string.h>
#include <zlib.h>
#include <zstd.h>

#include "base/mem.h"
#include "io.h"
#include "table/rows/formats.h"

#define WRITE_BYTES ((size_t)128 << 10)
#define ZSTD_LEVEL  3

struct mr_packer {
    int fd;
    struct mr_no_room no_room;
    bool is_gzip;
    z_stream gzip;
    ZSTD_CStream *zstd;
    uint64_t written;
    uint8_t out[WRITE_BYTES];
};

int mr_packer_new(struct mr_packer **out, int fd, const struct mr_writer_options *options,
                  struct mr_err *err)
{
    const enum mr_compression how = options->compression;
    struct mr_packer *p = NULL;
    bool is_ready = false;

    *out = NULL;
    if (how == MR_COMPRESSION_NONE) {
        return MR_OK;
    }
    p = mr_try_alloc(sizeof *p);
    if (p) {
        memset(p, 0, offsetof(struct mr_packer, out));
        p->fd = fd;
        p->no_room = options->on_no_room;
        p->is_gzip = how == MR_COMPRESSION_GZIP;
        is_ready = p->is_gzip
                       ? deflateInit2(&p->gzip, Z_DEFAULT_COMPRESSION, Z_DEFLATED, 15 + 16, 8,
                                      Z_DEFAULT_STRATEGY) == Z_OK
                       : (p->zstd = ZSTD_createCStream()) != NULL &&
                             !ZSTD_isError(ZSTD_initCStream(p->zstd, ZSTD_LEVEL)) &&
                             !ZSTD_isError(ZSTD_CCtx_setParameter(p->zstd, ZSTD_c_checksumFlag, 1));
    }
    if (!is_ready) {
        mr_packer_free(&p);
        return MR_FAIL(err, MR_E_EXHAUSTED, "no memory to compress a file");
    }
    *out = p;
    return MR_OK;
}

void mr_packer_free(struct mr_packer **packer)
{
    struct mr_packer *p = *packer;

    *packer = NULL;
    if (p) {
        if (p->is_gzip) {
            deflateEnd(&p->gzip);
        }
        ZSTD_freeCStream(p->zstd);
        mr_free(p);
    }
}

/* One step; *out_is_done: all of *io is consumed and, with is_last, written. */
static int step(struct mr_packer *p, mr_bytes *io, bool is_last, size_t *out_n, bool *out_is_done,
                struct mr_err *err)
{
    if (p->is_gzip) {
        const uInt most = (uInt)MR_MIN(io->len, (size_t)1 << 30);
        p->gzip.next_in = (uint8_t *)(uintptr_t)io->ptr;
        p->gzip.avail_in = most;
        p->gzip.next_out = p->out;
        p->gzip.avail_out = WRITE_BYTES;
        const int rc = deflate(&p->gzip, is_last && most == io->len ? Z_FINISH : Z_NO_FLUSH);
        *io = (mr_bytes){io->ptr + (most - p->gzip.avail_in), io->len - (most - p->gzip.avail_in)};
        *out_n = WRITE_BYTES - p->gzip.avail_out;
        *out_is_done = is_last ? rc == Z_STREAM_END : io->len == 0 && p->gzip.avail_out > 0;
        return MR_OK;
    }
    ZSTD_inBuffer in = {io->ptr, io->len, 0};
    ZSTD_outBuffer to = {p->out, WRITE_BYTES, 0};
    const size_t rc =
        ZSTD_compressStream2(p->zstd, &to, &in, is_last ? ZSTD_e_end : ZSTD_e_continue);
    if (ZSTD_isError(rc)) {
        return MR_FAIL(err, MR_E_EXHAUSTED, "cannot compress a file: %s", ZSTD_getErrorName(rc));
    }
    *io = (mr_bytes){io->ptr + in.pos, io->len - in.pos};
    *out_n = to.pos;
    *out_is_done = is_last ? rc == 0 : io->len == 0;
    return MR_OK;
}

int mr_packer_write(struct mr_packer *p, mr_bytes data, bool is_last, struct mr_err *err)
{
    bool is_done = data.len == 0 && !is_last;
    int rc = MR_OK;

    while (rc == MR_OK && !is_done) {
        size_t n = 0;
        rc = step(p, &data, is_last, &n, &is_done, err);
        if (rc == MR_OK && n > 0) {
            rc = mr_fd_writev(p->fd, &(struct iovec){p->out, n}, 1, &p->no_room, err);
            p->written += n;
        }
    }
    return rc;
}

uint64_t mr_packer_written(const struct mr_packer *p)
{
    return p->written;
}
