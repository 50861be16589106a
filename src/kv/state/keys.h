/* The keys of a registry in their order: a skip list. */
#ifndef MR_KV_STATE_KEYS_H
#define MR_KV_STATE_KEYS_H

#include <sys/queue.h>

#include "base/rng.h"
#include "record.h"

#define KV_KEYS_LEVELS 20

struct kv_node {
    struct kv_record *record;        /* one reference */
    TAILQ_ENTRY(kv_node) lease_link; /* in the list of record->lease, if it has one */
    unsigned levels;
    struct kv_node *next[];
};
TAILQ_HEAD(kv_nodes, kv_node);

struct kv_keys {
    struct kv_node *first[KV_KEYS_LEVELS];
    size_t count;
    size_t bytes; /* of records and nodes */
    struct mr_rng rng;
};

void kv_keys_init(struct kv_keys *k);
/** Frees all nodes. */
void kv_keys_fini(struct kv_keys *k);
/** NULL: there is no such key. */
struct kv_node *kv_keys_find(const struct kv_keys *k, mr_str key);
/** The first node with a key >= key, or > key. */
struct kv_node *kv_keys_from(const struct kv_keys *k, mr_str key, bool is_after);
/** Takes the record, whose key must not be there. */
struct kv_node *kv_keys_add(struct kv_keys *k, struct kv_record *record);
/** Takes the record, of the node's key. */
void kv_keys_replace(struct kv_keys *k, struct kv_node *n, struct kv_record *record);
/** Frees the node. */
void kv_keys_remove(struct kv_keys *k, struct kv_node *n);
static inline struct kv_node *kv_keys_next(const struct kv_node *n)
{
    return n->next[0];
}

#endif
