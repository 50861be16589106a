/* One version of a key, which never changes once it is made. The keys, the history and whoever answers a read share
 * it. */
#ifndef MR_KV_STATE_RECORD_H
#define MR_KV_STATE_RECORD_H

#include "kv/kv.h"

struct kv_record {
    uint32_t refs; /* one thread */
    uint32_t key_len;
    uint32_t value_len;
    bool is_delete;
    int64_t create_revision;
    int64_t mod_revision;
    int64_t version;
    int64_t lease;
    char data[]; /* key, value */
};

/** With one reference; NULL without memory. Copies what the item points to. */
struct kv_record *kv_record_new(const struct mr_kv_item *item);
/** The end of a key. */
struct kv_record *kv_record_new_delete(mr_str key, int64_t revision);
void kv_record_unref(struct kv_record *r);
static inline struct kv_record *kv_record_ref(struct kv_record *r)
{
    r->refs++;
    return r;
}
static inline mr_str kv_record_key(const struct kv_record *r)
{
    return (mr_str){r->data, r->key_len};
}
/** Bytes that it takes. */
static inline size_t kv_record_size(const struct kv_record *r)
{
    return sizeof *r + r->key_len + r->value_len;
}
/** A view of it, valid as long as a reference is held. */
struct mr_kv_item kv_record_item(const struct kv_record *r);

#endif
