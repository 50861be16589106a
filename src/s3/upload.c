/* A new object from a file that is being written: in one request, or, if it is larger than a part, in parts sent
 * while the file grows.
 *
 * Parts have one size, as some storages require. At most PIECES_OUT are in memory. An upload left unfinished by a
 * crash takes space until mr_s3_uploads_abort. */
#include <errno.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/rng.h"
#include "s3_priv.h"

#define PIECE_LEAST ((uint64_t)8 << 20)
#define PIECE_MOST  ((uint64_t)1 << 30)
#define PIECES_MOST 10000 /* S3's own limit */
#define PIECES_OUT  3
#define WORK_NS                                                                                    \
    (540 * MR_NS_PER_S) /* according to Amazon, joining a large object may take minutes */
#define CHECKS 10

struct mr_s3_upload {
    struct mr_s3 *s3;
    char *bucket;
    char *key;
    int fd;
    size_t piece_bytes;
    char nonce[40];
    struct mr_buf id; /* of S3; empty: not started */
    uint64_t begun;   /* bytes in parts sent or being sent */
    uint32_t number;  /* of the last piece, from 1 */
    struct {
        struct s3_call *call;
        uint32_t number;
    } out[PIECES_OUT]; /* oldest first */
    size_t out_count;
    struct mr_buf etags; /* of the parts sent, as in the list that completes the upload */
    bool is_finished;
    bool is_away; /* no more requests: the storage is unavailable, or a stop was requested */
};

static struct mr_s3_place place_of(const struct mr_s3_upload *u)
{
    return (struct mr_s3_place){mr_str_c(u->bucket), mr_str_c(u->key)};
}

struct mr_s3_upload *mr_s3_upload_new(struct mr_s3 *s, struct mr_s3_place at, int fd,
                                      uint64_t expected_bytes)
{
    struct mr_s3_upload *u = MR_NEW(struct mr_s3_upload);
    /* Half of the parts for the expected size, as it may grow larger. */
    const uint64_t piece = expected_bytes / (PIECES_MOST / 2);

    u->s3 = s;
    u->bucket = mr_strndup(at.bucket.ptr, at.bucket.len);
    u->key = mr_strndup(at.key.ptr, at.key.len);
    u->fd = fd;
    u->piece_bytes = (size_t)MR_MIN(MR_MAX(piece, PIECE_LEAST), PIECE_MOST);
    s3_nonce(u->nonce);
    mr_buf_init(&u->id, 4096);
    mr_buf_init(&u->etags, 0);
    return u;
}

/* A range of the file as a block. */
static int range_read(const struct mr_s3_upload *u, uint64_t first, size_t count,
                      struct mr_block **out, struct mr_err *err)
{
    struct mr_block *b = mr_block_new(count + 1);
    size_t done = 0;

    if (!b) {
        return MR_FAIL(err, MR_E_EXHAUSTED, "no memory for %zu bytes of an object", count);
    }
    while (done < count) {
        const ssize_t n = pread(u->fd, b->data + done, count - done, (off_t)(first + done));
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n <= 0) {
            const int why = n == 0 ? EIO : errno;
            mr_block_unref(&b);
            return MR_FAIL(err, MR_E_IO, "cannot read what goes to s3://%s/%.200s: %s", u->bucket,
                           u->key, strerror(why));
        }
        done += (size_t)n;
    }
    *out = b;
    return MR_OK;
}

/* ---- pieces ---- */

static int upload_begin(struct mr_s3_upload *u, struct mr_err *err)
{
    const struct s3_request r = {.method = "POST",
                                 .at = place_of(u),
                                 .query = MR_STR("uploads="),
                                 .headers = {{MR_STR(S3_NONCE_HEADER), mr_str_c(u->nonce)}},
                                 .header_count = 1};
    struct s3_answer a;
    struct s3_call *c = s3_call_begin(u->s3, &r);
    int rc = s3_call_wait(c, NULL, &a, err);

    if (rc == MR_OK && (!s3_xml_find(a.body, "UploadId", &u->id) || u->id.failed || !u->id.len)) {
        rc = MR_FAIL(err, MR_E_INVALID, "s3://%s/%.200s: the storage began an upload without an id",
                     u->bucket, u->key);
    }
    s3_call_free(&c);
    return rc;
}

static int piece_await(struct mr_s3_upload *u, struct mr_err *err)
{
    struct s3_answer a;
    int rc = s3_call_wait(u->out[0].call, NULL, &a, err);

    if (rc == MR_OK) {
        mr_buf_printf(&u->etags, "<Part><PartNumber>%u</PartNumber><ETag>", u->out[0].number);
        for (const char *c = a.etag; *c; c++) { /* quotes may occur in text, these may not */
            if (*c != '<' && *c != '>' && *c != '&') {
                mr_buf_char(&u->etags, *c);
            }
        }
        MR_BUF_LIT(&u->etags, "</ETag></Part>");
    }
    s3_call_free(&u->out[0].call);
    u->out_count--;
    memmove(u->out, u->out + 1, u->out_count * sizeof *u->out);
    return rc;
}

static int piece_send(struct mr_s3_upload *u, size_t count, struct mr_err *err)
{
    struct mr_block *body = NULL;
    struct mr_buf query;
    int rc = MR_OK;

    mr_buf_init(&query, 0);
    if (u->number == PIECES_MOST) {
        return MR_FAIL(err, MR_E_TOO_LARGE, "s3://%s/%.200s: more than %d pieces of %zu bytes",
                       u->bucket, u->key, PIECES_MOST, u->piece_bytes);
    }
    MR_TRY(u->id.len ? MR_OK : upload_begin(u, err));
    MR_TRY(u->out_count == PIECES_OUT ? piece_await(u, err) : MR_OK);
    MR_TRY(range_read(u, u->begun, count, &body, err));
    mr_buf_printf(&query, "partNumber=%u&uploadId=", ++u->number);
    s3_encode(&query, mr_buf_view(&u->id), false);
    const struct s3_request r = {.method = "PUT",
                                 .at = place_of(u),
                                 .query = mr_buf_view(&query),
                                 .body = body,
                                 .body_bytes = count};
    u->out[u->out_count].number = u->number;
    u->out[u->out_count++].call = s3_call_begin(u->s3, &r);
    u->begun += count;
out:
    mr_block_unref(&body);
    mr_buf_fini(&query);
    return rc;
}

static int upload_note(struct mr_s3_upload *u, int rc)
{
    u->is_away |= rc == MR_E_UNAVAILABLE || rc == MR_E_CANCELLED;
    return rc;
}

int mr_s3_upload_more(struct mr_s3_upload *u, uint64_t bytes, struct mr_err *err)
{
    int rc = MR_OK;

    /* Not the last piece, as it may be the only one. */
    while (rc == MR_OK && bytes - u->begun > u->piece_bytes) {
        rc = piece_send(u, u->piece_bytes, err);
    }
    return upload_note(u, rc);
}

/* ---- the end ---- */

static int id_request(struct mr_s3 *s, struct mr_s3_place at, mr_str id, struct s3_request *r,
                      const int *allowed, int *out_status, struct mr_err *err)
{
    struct s3_answer a = {0};
    struct mr_buf query;

    mr_buf_init(&query, 0);
    MR_BUF_LIT(&query, "uploadId=");
    s3_encode(&query, id, false);
    r->at = at;
    r->query = mr_buf_view(&query);
    struct s3_call *c = s3_call_begin(s, r);
    int rc = s3_call_wait(c, allowed, &a, err);
    *out_status = a.status;
    s3_call_free(&c);
    mr_buf_fini(&query);
    return rc;
}

int s3_upload_abort(struct mr_s3 *s, struct mr_s3_place at, mr_str id, struct mr_err *err)
{
    static const int gone[] = {404, 0};
    struct s3_request r = {.method = "DELETE"};
    int status;

    return id_request(s, at, id, &r, gone, &status, err);
}

/* After the answer "no such upload" or "the object exists". In the first case a lost attempt has completed the
 * upload, perhaps only just now, or it was aborted by others. */
static int upload_probe(struct mr_s3_upload *u, int status, struct mr_err *err)
{
    const struct timespec pause = {.tv_sec = 1};
    bool is_ours = false;
    int rc = s3_is_ours(u->s3, place_of(u), u->nonce, &is_ours, err);

    for (int i = 1; i < CHECKS && status == 404 && rc == MR_OK && !is_ours; i++) {
        nanosleep(&pause, NULL);
        rc = s3_is_ours(u->s3, place_of(u), u->nonce, &is_ours, err);
    }
    if (rc < 0 || is_ours) {
        return rc;
    }
    return status == 412
               ? s3_exists(place_of(u), err)
               : MR_FAIL(err, MR_E_INVALID, "s3://%s/%.200s: the storage has lost the upload",
                         u->bucket, u->key);
}

static int upload_complete(struct mr_s3_upload *u, struct mr_err *err)
{
    static const int there[] = {404, 412, 0};
    struct mr_block *body;
    struct mr_buf text;
    int status;
    int rc;

    mr_buf_init(&text, 0);
    MR_BUF_LIT(&text, "<CompleteMultipartUpload>");
    mr_buf_str(&text, mr_buf_view(&u->etags));
    MR_BUF_LIT(&text, "</CompleteMultipartUpload>");
    body = text.failed || u->etags.failed ? NULL : mr_block_new(text.len);
    if (!body) {
        mr_buf_fini(&text);
        return MR_FAIL(err, MR_E_EXHAUSTED, "no memory to end an upload");
    }
    memcpy(body->data, text.ptr, text.len);
    struct s3_request r = {.method = "POST",
                           .headers = {{MR_STR("if-none-match"), MR_STR("*")}},
                           .header_count = 1,
                           .body = body,
                           .body_bytes = text.len,
                           .work_ns = WORK_NS};
    rc = id_request(u->s3, place_of(u), mr_buf_view(&u->id), &r, there, &status, err);
    if (rc == MR_OK && status >= 300) {
        rc = upload_probe(u, status, err);
    }
    mr_block_unref(&body);
    mr_buf_fini(&text);
    return rc;
}

static int upload_whole(struct mr_s3_upload *u, uint64_t bytes, struct mr_err *err)
{
    struct mr_block *body;
    int rc = range_read(u, 0, (size_t)bytes, &body, err);

    if (rc == MR_OK) {
        rc = s3_put_block(u->s3, place_of(u), body, (size_t)bytes, true, err);
        mr_block_unref(&body);
    }
    return rc;
}

int mr_s3_upload_finish(struct mr_s3_upload *u, uint64_t bytes, struct mr_err *err)
{
    int rc;

    MR_TRY(mr_s3_upload_more(u, bytes, err));
    if (u->number == 0) {
        MR_TRY(upload_whole(u, bytes, err));
    } else {
        MR_TRY(piece_send(u, (size_t)(bytes - u->begun), err));
        while (u->out_count > 0) {
            MR_TRY(piece_await(u, err));
        }
        MR_TRY(upload_complete(u, err));
    }
    u->is_finished = true;
out:
    return upload_note(u, rc);
}

void mr_s3_upload_free(struct mr_s3_upload **io_u)
{
    struct mr_s3_upload *u = *io_u;
    struct mr_err ignored;

    *io_u = NULL;
    if (!u) {
        return;
    }
    while (u->out_count > 0) {
        s3_call_free(&u->out[--u->out_count].call);
    }
    if (u->id.len > 0 && !u->is_finished && !u->is_away) {
        s3_upload_abort(u->s3, place_of(u), mr_buf_view(&u->id), &ignored);
    }
    mr_buf_fini(&u->id);
    mr_buf_fini(&u->etags);
    mr_free(u->bucket);
    mr_free(u->key);
    mr_free(u);
}
