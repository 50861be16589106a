/* Listings of a bucket: objects (ListObjectsV2) and unfinished uploads, a thousand at a time. */
#include "s3_priv.h"

#define PAGES_MOST 100000

/* A page being read. */
struct page {
    struct mr_buf key;
    struct mr_buf value;
    struct mr_buf next; /* token of the next page; empty: none */
    struct mr_buf next_id;
    bool is_encoded; /* keys are percent-encoded */
    struct mr_s3_object object;
    bool has_key;
};

static void page_fini(struct page *p)
{
    mr_buf_fini(&p->key);
    mr_buf_fini(&p->value);
    mr_buf_fini(&p->next);
    mr_buf_fini(&p->next_id);
}

static void page_init(struct page *p)
{
    *p = (struct page){0};
    mr_buf_init(&p->key, 64 << 10);
    mr_buf_init(&p->value, 64 << 10);
    mr_buf_init(&p->next, 64 << 10);
    mr_buf_init(&p->next_id, 64 << 10);
}

static bool text_take(struct mr_buf *to, mr_str text, bool is_encoded)
{
    mr_buf_reset(to);
    const bool is_good = s3_xml_text(text, to) && !to->failed;
    to->len = is_good && is_encoded ? s3_decode(to->ptr, to->len) : to->len;
    return is_good;
}

static int odd(mr_str bucket, const char *what, struct mr_err *err)
{
    return MR_FAIL(err, MR_E_INVALID, "s3://%.*s: the storage's answer makes no sense: %s",
                   MR_STR_ARG(bucket), what);
}

/* A closed element within <Contents>. */
static bool content_take(struct page *p, const struct s3_xml *x)
{
    if (mr_str_eq_c(x->name, "Key")) {
        p->has_key = text_take(&p->key, x->text, p->is_encoded);
        return p->has_key && p->key.len > 0 && p->key.len <= MR_S3_KEY_MOST &&
               !memchr(p->key.ptr, '\0', p->key.len);
    }
    if (mr_str_eq_c(x->name, "Size")) {
        return mr_str_to_u64(x->text, &p->object.bytes);
    }
    if (mr_str_eq_c(x->name, "ETag")) {
        if (!text_take(&p->value, x->text, false) || p->value.len >= sizeof p->object.etag) {
            return false;
        }
        memcpy(p->object.etag, mr_buf_cstr(&p->value), p->value.len + 1);
    }
    return true;
}

typedef int(each_fn)(void *ctx, const struct mr_s3_object *o, struct mr_err *err);

/* True if keys are encoded, which the document may state before or after them. */
static bool encoding_find(mr_bytes body)
{
    struct mr_buf b;

    mr_buf_init(&b, 64 << 10);
    const bool is_url =
        s3_xml_find(body, "EncodingType", &b) && mr_str_eq_c(mr_buf_view(&b), "url");
    mr_buf_fini(&b);
    return is_url;
}

int s3_objects_read(mr_bytes body, mr_str bucket, struct mr_buf *out_next, each_fn *each, void *ctx,
                    struct mr_err *err)
{
    struct s3_xml x;
    struct page p;
    int rc = MR_OK;

    page_init(&p);
    p.is_encoded = encoding_find(body);
    mr_buf_reset(out_next);
    s3_xml_init(&x, body);
    while (rc == MR_OK && s3_xml_next(&x)) {
        const bool is_content = x.depth >= 1 && mr_str_eq_c(x.name, "Contents") && x.depth <= 2;
        if (is_content && !x.is_close) {
            p.object = (struct mr_s3_object){0};
            p.has_key = false;
        } else if (is_content) {
            p.object.key = mr_buf_view(&p.key);
            rc = p.has_key && p.object.etag[0] ? each(ctx, &p.object, err)
                                               : odd(bucket, "an object without key or ETag", err);
        } else if (x.is_close && x.depth == 2 && mr_str_eq_c(x.open[1], "Contents")) {
            rc = content_take(&p, &x) ? MR_OK : odd(bucket, "a listed object", err);
        } else if (x.is_close && x.depth == 1 && mr_str_eq_c(x.name, "NextContinuationToken")) {
            rc = text_take(out_next, x.text, false) ? MR_OK : odd(bucket, "a token", err);
        }
    }
    if (rc == MR_OK && !s3_xml_is_whole(&x)) {
        rc = odd(bucket, "a listing that is no XML, or cut off", err);
    }
    page_fini(&p);
    return rc;
}

static void parameter_put(struct mr_buf *b, const char *name, mr_str value)
{
    mr_buf_printf(b, "%s%s=", b->len ? "&" : "", name);
    s3_encode(b, value, false);
}

int mr_s3_list(struct mr_s3 *s, mr_str bucket, mr_str prefix, each_fn *each, void *ctx,
               struct mr_err *err)
{
    struct mr_buf query;
    struct mr_buf next;
    int rc = MR_OK;

    mr_buf_init(&query, 0);
    mr_buf_init(&next, 64 << 10);
    for (unsigned i = 0; rc == MR_OK && (i == 0 || next.len > 0); i++) {
        mr_buf_reset(&query);
        if (next.len > 0) {
            parameter_put(&query, "continuation-token", mr_buf_view(&next));
        }
        parameter_put(&query, "encoding-type", MR_STR("url"));
        parameter_put(&query, "list-type", MR_STR("2"));
        parameter_put(&query, "prefix", prefix);
        const struct s3_request r = {
            .method = "GET", .at = {.bucket = bucket}, .query = mr_buf_view(&query)};
        struct s3_answer a;
        struct s3_call *c = s3_call_begin(s, &r);
        rc = i < PAGES_MOST ? s3_call_wait(c, NULL, &a, err)
                            : odd(bucket, "a listing without end", err);
        rc = rc < 0 ? rc : s3_objects_read(a.body, bucket, &next, each, ctx, err);
        s3_call_free(&c);
    }
    mr_buf_fini(&query);
    mr_buf_fini(&next);
    return rc;
}

/* ---- unfinished uploads ---- */

/* A closed element of a listing of uploads, but for Upload itself. False: its text cannot be read. */
static bool upload_take(struct page *p, const struct s3_xml *x)
{
    const bool is_inside = x->depth >= 2 && mr_str_eq_c(x->open[1], "Upload");

    if (is_inside && mr_str_eq_c(x->name, "Key")) {
        return text_take(&p->key, x->text, p->is_encoded);
    }
    if (is_inside && mr_str_eq_c(x->name, "UploadId")) {
        return text_take(&p->value, x->text, false);
    }
    if (x->depth == 1 && mr_str_eq_c(x->name, "NextKeyMarker")) {
        return text_take(&p->next, x->text, p->is_encoded);
    }
    if (x->depth == 1 && mr_str_eq_c(x->name, "NextUploadIdMarker")) {
        return text_take(&p->next_id, x->text, false);
    }
    return true;
}

int s3_uploads_read(mr_bytes body, mr_str bucket, struct mr_buf *out_next, struct mr_buf *out_id,
                    int (*each)(void *ctx, mr_str key, mr_str id, struct mr_err *err), void *ctx,
                    struct mr_err *err)
{
    struct s3_xml x;
    struct page p;
    bool is_cut = false;
    int rc = MR_OK;

    page_init(&p);
    p.is_encoded = encoding_find(body);
    s3_xml_init(&x, body);
    while (rc == MR_OK && s3_xml_next(&x)) {
        if (!x.is_close) {
            continue;
        }
        if (x.depth == 1 && mr_str_eq_c(x.name, "Upload")) {
            rc = each(ctx, mr_buf_view(&p.key), mr_buf_view(&p.value), err);
        } else if (x.depth == 1 && mr_str_eq_c(x.name, "IsTruncated")) {
            is_cut = mr_str_eq_c(x.text, "true");
        } else if (!upload_take(&p, &x)) {
            rc = odd(bucket, "a listed upload", err);
        }
    }
    if (rc == MR_OK && !s3_xml_is_whole(&x)) {
        rc = odd(bucket, "a listing that is no XML, or cut off", err);
    }
    mr_buf_reset(out_next);
    mr_buf_reset(out_id);
    if (rc == MR_OK && is_cut) {
        mr_buf_str(out_next, mr_buf_view(&p.next));
        mr_buf_str(out_id, mr_buf_view(&p.next_id));
    }
    page_fini(&p);
    return rc;
}

struct abort {
    struct mr_s3 *s3;
    mr_str bucket;
    mr_str prefix;
    bool (*is_ours)(const void *ctx, mr_str key);
    const void *ctx;
};

static int upload_abort(void *ctx, mr_str key, mr_str id, struct mr_err *err)
{
    const struct abort *a = ctx;

    /* Some storages ignore the prefix. */
    if (!mr_str_starts(key, a->prefix) || !a->is_ours(a->ctx, key)) {
        return MR_OK;
    }
    return s3_upload_abort(a->s3, (struct mr_s3_place){a->bucket, key}, id, err);
}

int mr_s3_uploads_abort(struct mr_s3 *s, mr_str bucket, mr_str prefix,
                        bool (*is_ours)(const void *ctx, mr_str key), const void *ctx,
                        struct mr_err *err)
{
    struct abort abort = {s, bucket, prefix, is_ours, ctx};
    struct mr_buf query;
    struct mr_buf next;
    struct mr_buf id;
    int rc = MR_OK;

    mr_buf_init(&query, 0);
    mr_buf_init(&next, 64 << 10);
    mr_buf_init(&id, 64 << 10);
    for (unsigned i = 0; rc == MR_OK && (i == 0 || next.len > 0); i++) {
        mr_buf_reset(&query);
        parameter_put(&query, "encoding-type", MR_STR("url"));
        if (next.len > 0) {
            parameter_put(&query, "key-marker", mr_buf_view(&next));
        }
        parameter_put(&query, "prefix", prefix);
        if (next.len > 0) {
            parameter_put(&query, "upload-id-marker", mr_buf_view(&id));
        }
        parameter_put(&query, "uploads", MR_STR(""));
        const struct s3_request r = {
            .method = "GET", .at = {.bucket = bucket}, .query = mr_buf_view(&query)};
        struct s3_answer a;
        struct s3_call *c = s3_call_begin(s, &r);
        rc = i < PAGES_MOST ? s3_call_wait(c, NULL, &a, err)
                            : odd(bucket, "a listing without end", err);
        rc = rc < 0 ? rc : s3_uploads_read(a.body, bucket, &next, &id, upload_abort, &abort, err);
        s3_call_free(&c);
    }
    mr_buf_fini(&query);
    mr_buf_fini(&next);
    mr_buf_fini(&id);
    return rc;
}
