/* The changes of a registry in their order, as far back as they are kept, for watches. */
#ifndef MR_KV_STATE_HISTORY_H
#define MR_KV_STATE_HISTORY_H

#include "record.h"

struct kv_history {
    struct kv_record **at; /* a ring; each one reference */
    size_t cap;            /* a power of two, or 0 */
    size_t first;          /* running numbers: of the oldest change, */
    size_t end;            /* and after the newest */
    size_t bytes;
    size_t max_events;
    size_t max_bytes;
    int64_t compacted; /* changes up to this revision are gone */
};

/** compacted: the revision at which it begins. */
void kv_history_init(struct kv_history *h, size_t max_events, size_t max_bytes, int64_t compacted);
void kv_history_fini(struct kv_history *h);
/** Adds a reference to the record, whose mod_revision is the last one or later. */
void kv_history_add(struct kv_history *h, struct kv_record *r);
/** Drops the oldest changes until it is within its limits; never a part of a revision, nor the newest one. */
void kv_history_trim(struct kv_history *h);
/** Drops the changes up to a revision. */
void kv_history_compact(struct kv_history *h, int64_t revision);
/** The number of the first change with a revision >= `from`; h->end if there is none. */
size_t kv_history_find(const struct kv_history *h, int64_t from);
static inline struct kv_record *kv_history_at(const struct kv_history *h, size_t number)
{
    return h->at[number & (h->cap - 1)];
}

#endif
