/* What a storage answers: listings and errors. */
#include "fuzz.h"
#include "s3_priv.h"

static int object_look(void *ctx, const struct mr_s3_object *o, struct mr_err *err)
{
    uint64_t *sum = ctx;

    (void)err;
    REQUIRE(o->key.len > 0 && o->key.len <= MR_S3_KEY_MOST);
    REQUIRE(strlen(o->etag) < MR_S3_ETAG_ROOM);
    *sum += o->bytes;
    return MR_OK;
}

static int upload_look(void *ctx, mr_str key, mr_str id, struct mr_err *err)
{
    uint64_t *sum = ctx;

    (void)err;
    *sum += key.len + id.len;
    return MR_OK;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const mr_bytes body = {data, size};
    struct s3_refusal refusal;
    struct mr_buf next;
    struct mr_buf id;
    struct mr_err err;
    uint64_t sum = 0;

    mr_buf_init(&next, 64 << 10);
    mr_buf_init(&id, 64 << 10);
    s3_objects_read(body, MR_STR("b"), &next, object_look, &sum, &err);
    s3_uploads_read(body, MR_STR("b"), &next, &id, upload_look, &sum, &err);
    s3_refusal_read(&refusal, body);
    mr_buf_fini(&next);
    mr_buf_fini(&id);
    return 0;
}
