#include "record.h"

#include "base/mem.h"

struct kv_record *kv_record_new(const struct mr_kv_item *item)
{
    struct kv_record *r = mr_try_alloc(sizeof *r + item->key.len + item->value.len);

    if (!r) {
        return NULL;
    }
    *r = (struct kv_record){
        .refs = 1,
        .key_len = (uint32_t)item->key.len,
        .value_len = (uint32_t)item->value.len,
        .create_revision = item->create_revision,
        .mod_revision = item->mod_revision,
        .version = item->version,
        .lease = item->lease,
    };
    memcpy(r->data, item->key.ptr, item->key.len);
    if (item->value.len) {
        memcpy(r->data + item->key.len, item->value.ptr, item->value.len);
    }
    return r;
}

struct kv_record *kv_record_new_delete(mr_str key, int64_t revision)
{
    struct kv_record *r = mr_alloc(sizeof *r + key.len);

    r->refs = 1;
    r->key_len = (uint32_t)key.len;
    r->is_delete = true;
    r->mod_revision = revision;
    memcpy(r->data, key.ptr, key.len);
    return r;
}

void kv_record_unref(struct kv_record *r)
{
    if (r && --r->refs == 0) {
        mr_free(r);
    }
}

struct mr_kv_item kv_record_item(const struct kv_record *r)
{
    return (struct mr_kv_item){
        .key = kv_record_key(r),
        .value = {(const uint8_t *)r->data + r->key_len, r->value_len},
        .create_revision = r->create_revision,
        .mod_revision = r->mod_revision,
        .version = r->version,
        .lease = r->lease,
    };
}
