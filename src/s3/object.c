/* Requests for one object.
 *
 * An object that must be new is written with If-None-Match. If an attempt was lost and the next one finds an existing
 * object, it may be of the first attempt: its metadata then have the same random nonce. */
#include <stdio.h>

#include "base/rng.h"
#include "s3_priv.h"

void s3_nonce(char out[40])
{
    uint64_t r[2];

    mr_rng_system(r, sizeof r);
    snprintf(out, 40, "%016llx%016llx", (unsigned long long)r[0], (unsigned long long)r[1]);
}

/* The answer to HEAD has no body, so after an error the first byte is requested to get its text. */
static int head(struct mr_s3 *s, struct mr_s3_place at, struct s3_answer *out, struct mr_err *err)
{
    static const int all[] = {301, 307, 400, 401, 403, 404, 0};
    static const int empty[] = {416, 0};
    const struct s3_request r = {.method = "HEAD", .at = at};
    const struct s3_request why = {.method = "GET",
                                   .at = at,
                                   .headers = {{MR_STR("range"), MR_STR("bytes=0-0")}},
                                   .header_count = 1};
    struct s3_call *c = s3_call_begin(s, &r);
    int rc = s3_call_wait(c, all, out, err);

    if (rc == MR_OK && out->status >= 300) {
        s3_call_free(&c);
        c = s3_call_begin(s, &why);
        rc = s3_call_wait(c, empty, out, err);
        out->all_bytes = out->status == 416 ? 0 : out->all_bytes;
    }
    s3_call_free(&c);
    out->block = NULL;
    out->body = (mr_bytes){NULL, 0};
    return rc;
}

int mr_s3_head(struct mr_s3 *s, struct mr_s3_place at, struct mr_s3_object *out, struct mr_err *err)
{
    struct s3_answer a = {0};
    int rc = head(s, at, &a, err);

    if (rc == MR_OK && !a.etag[0]) {
        rc = MR_FAIL(err, MR_E_INVALID, "s3://%.*s/%.*s: the storage gives no ETag for it",
                     MR_STR_ARG(at.bucket), MR_STR_ARG(at.key));
    }
    if (rc == MR_OK) {
        *out = (struct mr_s3_object){.bytes = a.all_bytes};
        memcpy(out->etag, a.etag, sizeof out->etag);
    }
    return rc;
}

int mr_s3_delete(struct mr_s3 *s, struct mr_s3_place at, struct mr_err *err)
{
    static const int gone[] = {404, 0};
    const struct s3_request r = {.method = "DELETE", .at = at};
    struct s3_answer a;
    struct s3_call *c = s3_call_begin(s, &r);
    int rc = s3_call_wait(c, gone, &a, err);

    s3_call_free(&c);
    return rc;
}

int s3_is_ours(struct mr_s3 *s, struct mr_s3_place at, const char *nonce, bool *out,
               struct mr_err *err)
{
    struct s3_answer a = {0};
    int rc = head(s, at, &a, err);

    if (rc == MR_E_NOT_FOUND) {
        *out = false;
        return MR_OK;
    }
    if (rc == MR_OK) {
        *out = strcmp(a.nonce, nonce) == 0;
    }
    return rc;
}

int s3_exists(struct mr_s3_place at, struct mr_err *err)
{
    return MR_FAIL(err, MR_E_EXISTS, "s3://%.*s/%.*s is there already, and not of this upload",
                   MR_STR_ARG(at.bucket), MR_STR_ARG(at.key));
}

int s3_put_block(struct mr_s3 *s, struct mr_s3_place at, struct mr_block *body, size_t bytes,
                 bool is_new, struct mr_err *err)
{
    static const int there[] = {412, 0};
    char nonce[40];
    struct s3_request r = {.method = "PUT", .at = at, .body = body, .body_bytes = bytes};
    struct s3_answer a = {0};

    s3_nonce(nonce);
    if (is_new) {
        r.headers[r.header_count++] = (struct mr_header){MR_STR("if-none-match"), MR_STR("*")};
        r.headers[r.header_count++] = (struct mr_header){MR_STR(S3_NONCE_HEADER), mr_str_c(nonce)};
    }
    struct s3_call *c = s3_call_begin(s, &r);
    int rc = s3_call_wait(c, is_new ? there : NULL, &a, err);
    if (rc == MR_OK && a.status == 412) {
        bool is_ours = false;
        rc = a.was_tried_more ? s3_is_ours(s, at, nonce, &is_ours, err) : MR_OK;
        rc = rc == MR_OK && !is_ours ? s3_exists(at, err) : rc;
    }
    s3_call_free(&c);
    return rc;
}

int mr_s3_put(struct mr_s3 *s, struct mr_s3_place at, mr_bytes content, bool is_new,
              struct mr_err *err)
{
    struct mr_block *b = mr_block_new(content.len + 1);

    if (!b) {
        return MR_FAIL(err, MR_E_EXHAUSTED, "no memory for an object of %zu bytes", content.len);
    }
    memcpy(b->data, content.ptr ? (const void *)content.ptr : "", content.len);
    int rc = s3_put_block(s, at, b, content.len, is_new, err);
    mr_block_unref(&b);
    return rc;
}
