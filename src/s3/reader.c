/* Ranges of an object, and an object in order.
 *
 * Each range is requested with If-Match, so that a reader sees one version or an error. A sequential reader's first
 * range is small, as some readers need only the beginning; then come pieces of 4 MiB, four at a time, so that their
 * latencies overlap. */
#include <stdio.h>

#include "s3_priv.h"

#define FETCH_MOST  ((size_t)64 << 20)
#define FIRST_BYTES ((size_t)512 << 10)
#define PIECE_BYTES ((size_t)4 << 20)
#define AHEAD       4

struct mr_s3_fetch {
    struct s3_call *call;
    size_t count;
    char place[300]; /* for texts */
};

struct mr_s3_fetch *mr_s3_fetch_begin(struct mr_s3 *s, struct mr_s3_place at, const char *etag,
                                      uint64_t first, size_t count)
{
    struct mr_s3_fetch *f = MR_NEW(struct mr_s3_fetch);
    char range[64];

    MR_ASSERT(count > 0 && count <= FETCH_MOST);
    snprintf(range, sizeof range, "bytes=%llu-%llu", (unsigned long long)first,
             (unsigned long long)(first + count - 1));
    snprintf(f->place, sizeof f->place, "s3://%.*s/%.*s", MR_STR_ARG(at.bucket),
             MR_STR_ARG(mr_str_sub(at.key, 0, 200)));
    const struct s3_request r = {
        .method = "GET",
        .at = at,
        .headers = {{MR_STR("if-match"), mr_str_c(etag)}, {MR_STR("range"), mr_str_c(range)}},
        .header_count = 2,
        .answer_bytes = count};
    f->count = count;
    f->call = s3_call_begin(s, &r);
    return f;
}

int mr_s3_fetch_end(struct mr_s3_fetch **io_f, struct mr_block **out_block, mr_bytes *out,
                    struct mr_err *err)
{
    static const int changed[] = {412, 0};
    struct mr_s3_fetch *f = *io_f;
    struct s3_answer a = {0};
    int rc = s3_call_wait(f->call, changed, &a, err);

    if (rc == MR_OK && a.status == 412) {
        rc = MR_FAIL(err, MR_E_IO, "'%s' has changed since it was opened", f->place);
    } else if (rc == MR_OK && (a.body.len != f->count || !a.block)) {
        rc = MR_FAIL(err, MR_E_IO,
                     "'%s': %zu bytes were asked for, and %zu came with HTTP status %d", f->place,
                     f->count, a.body.len, a.status);
    }
    if (rc == MR_OK) {
        *out_block = mr_block_ref(a.block);
        *out = a.body;
    }
    mr_s3_fetch_drop(io_f);
    return rc;
}

void mr_s3_fetch_drop(struct mr_s3_fetch **f)
{
    if (*f) {
        s3_call_free(&(*f)->call);
        mr_freep(f);
    }
}

/* ---- in order ---- */

struct mr_s3_reader {
    struct mr_s3 *s3;
    char *bucket;
    char *key;
    char etag[MR_S3_ETAG_ROOM];
    uint64_t bytes;
    uint64_t asked;                   /* end of the requested pieces */
    struct mr_s3_fetch *ahead[AHEAD]; /* oldest first */
    size_t ahead_count;
    struct mr_block *block; /* the current piece; NULL: none */
    mr_bytes left;          /* unread bytes of it */
};

struct mr_s3_reader *mr_s3_reader_new(struct mr_s3 *s, struct mr_s3_place at, const char *etag,
                                      uint64_t bytes)
{
    struct mr_s3_reader *r = MR_NEW(struct mr_s3_reader);

    r->s3 = s;
    r->bucket = mr_strndup(at.bucket.ptr, at.bucket.len);
    r->key = mr_strndup(at.key.ptr, at.key.len);
    snprintf(r->etag, sizeof r->etag, "%s", etag);
    r->bytes = bytes;
    return r;
}

static void fetch_more(struct mr_s3_reader *r)
{
    const size_t most = r->asked == 0 ? 1 : AHEAD;

    while (r->ahead_count < most && r->asked < r->bytes) {
        const size_t piece = r->asked == 0 ? FIRST_BYTES : PIECE_BYTES;
        const size_t count = (size_t)MR_MIN(r->bytes - r->asked, (uint64_t)piece);
        const struct mr_s3_place at = {mr_str_c(r->bucket), mr_str_c(r->key)};
        r->ahead[r->ahead_count++] = mr_s3_fetch_begin(r->s3, at, r->etag, r->asked, count);
        r->asked += count;
    }
}

static int piece_next(struct mr_s3_reader *r, struct mr_err *err)
{
    mr_block_unref(&r->block);
    fetch_more(r);
    if (r->ahead_count == 0) {
        return MR_OK;
    }
    int rc = mr_s3_fetch_end(&r->ahead[0], &r->block, &r->left, err);
    r->ahead_count--;
    memmove(r->ahead, r->ahead + 1, r->ahead_count * sizeof *r->ahead);
    return rc;
}

int mr_s3_reader_read(struct mr_s3_reader *r, void *out, size_t room, size_t *out_n,
                      struct mr_err *err)
{
    if (r->left.len == 0) {
        int rc = piece_next(r, err);
        if (rc < 0) {
            return rc;
        }
    }
    const size_t n = MR_MIN(room, r->left.len);
    if (n > 0) {
        memcpy(out, r->left.ptr, n);
        r->left.ptr += n;
        r->left.len -= n;
    }
    *out_n = n;
    return MR_OK;
}

void mr_s3_reader_free(struct mr_s3_reader **io_r)
{
    struct mr_s3_reader *r = *io_r;

    *io_r = NULL;
    if (!r) {
        return;
    }
    for (size_t i = 0; i < r->ahead_count; i++) {
        mr_s3_fetch_drop(&r->ahead[i]);
    }
    mr_block_unref(&r->block);
    mr_free(r->bucket);
    mr_free(r->key);
    mr_free(r);
}
