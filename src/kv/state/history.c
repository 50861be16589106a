#include "history.h"

#include "base/mem.h"

void kv_history_init(struct kv_history *h, size_t max_events, size_t max_bytes, int64_t compacted)
{
    *h = (struct kv_history){
        .max_events = max_events, .max_bytes = max_bytes, .compacted = compacted};
}

void kv_history_fini(struct kv_history *h)
{
    for (size_t i = h->first; i != h->end; i++) {
        kv_record_unref(kv_history_at(h, i));
    }
    mr_free(h->at);
    *h = (struct kv_history){0};
}

static void history_grow(struct kv_history *h)
{
    size_t cap = h->cap ? h->cap * 2 : 64;
    struct kv_record **at = MR_NEW_ARRAY(struct kv_record *, cap);

    for (size_t i = h->first; i != h->end; i++) {
        at[i & (cap - 1)] = kv_history_at(h, i);
    }
    mr_free(h->at);
    h->at = at;
    h->cap = cap;
}

void kv_history_add(struct kv_history *h, struct kv_record *r)
{
    if (h->end - h->first == h->cap) {
        history_grow(h);
    }
    h->at[h->end++ & (h->cap - 1)] = kv_record_ref(r);
    h->bytes += kv_record_size(r);
}

void kv_history_compact(struct kv_history *h, int64_t revision)
{
    while (h->first != h->end && kv_history_at(h, h->first)->mod_revision <= revision) {
        struct kv_record *r = kv_history_at(h, h->first++);
        h->bytes -= kv_record_size(r);
        kv_record_unref(r);
    }
    h->compacted = MR_MAX(h->compacted, revision);
}

void kv_history_trim(struct kv_history *h)
{
    while (h->end - h->first > h->max_events || h->bytes > h->max_bytes) {
        int64_t oldest = kv_history_at(h, h->first)->mod_revision;
        if (oldest == kv_history_at(h, h->end - 1)->mod_revision) {
            return;
        }
        kv_history_compact(h, oldest);
    }
}

size_t kv_history_find(const struct kv_history *h, int64_t from)
{
    size_t low = h->first, high = h->end;
    while (low != high) {
        size_t middle = low + (high - low) / 2;
        if (kv_history_at(h, middle)->mod_revision < from) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}
