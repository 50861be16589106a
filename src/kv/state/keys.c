/* A skip list with a quarter of the nodes of a level on the next one: a look-up among a million keys compares about
 * forty. The levels come from a generator with a fixed seed, so that a simulation repeats; keys cannot be chosen so
 * that they meet bad levels, which do not depend on them. */
#include "keys.h"

#include "base/mem.h"

void kv_keys_init(struct kv_keys *k)
{
    *k = (struct kv_keys){0};
    mr_rng_seed(&k->rng, 1);
}

static void node_free(struct kv_node *n)
{
    kv_record_unref(n->record);
    mr_free(n);
}

void kv_keys_fini(struct kv_keys *k)
{
    for (struct kv_node *n = k->first[0], *next; n; n = next) {
        next = n->next[0];
        node_free(n);
    }
    kv_keys_init(k);
}

/** The last links before `key` on each level: what points to the first node with a key >= key (is_after: > key). */
static void find_links(struct kv_keys *k, mr_str key, bool is_after,
                       struct kv_node **links[KV_KEYS_LEVELS])
{
    struct kv_node **level = k->first;
    for (unsigned i = KV_KEYS_LEVELS; i-- > 0;) {
        while (level[i]) {
            int order = mr_str_cmp(kv_record_key(level[i]->record), key);
            if (order > 0 || (order == 0 && !is_after)) {
                break;
            }
            level = level[i]->next;
        }
        links[i] = &level[i];
    }
}

struct kv_node *kv_keys_from(const struct kv_keys *k, mr_str key, bool is_after)
{
    struct kv_node *const *level = k->first;
    for (unsigned i = KV_KEYS_LEVELS; i-- > 0;) {
        while (level[i]) {
            int order = mr_str_cmp(kv_record_key(level[i]->record), key);
            if (order > 0 || (order == 0 && !is_after)) {
                break;
            }
            level = level[i]->next;
        }
    }
    return level[0];
}

struct kv_node *kv_keys_find(const struct kv_keys *k, mr_str key)
{
    struct kv_node *n = kv_keys_from(k, key, false);
    return n && mr_str_eq(kv_record_key(n->record), key) ? n : NULL;
}

static size_t node_size(const struct kv_node *n)
{
    return sizeof *n + n->levels * sizeof n->next[0];
}

struct kv_node *kv_keys_add(struct kv_keys *k, struct kv_record *record)
{
    struct kv_node **links[KV_KEYS_LEVELS];
    uint64_t bits = mr_rng_u64(&k->rng);
    unsigned levels = 1;

    while (levels < KV_KEYS_LEVELS && (bits & 3) == 0) {
        levels++;
        bits >>= 2;
    }
    struct kv_node *n = mr_alloc(sizeof *n + levels * sizeof n->next[0]);
    n->record = record;
    n->levels = levels;
    find_links(k, kv_record_key(record), false, links);
    for (unsigned i = 0; i < levels; i++) {
        n->next[i] = *links[i];
        *links[i] = n;
    }
    k->count++;
    k->bytes += node_size(n) + kv_record_size(record);
    return n;
}

void kv_keys_replace(struct kv_keys *k, struct kv_node *n, struct kv_record *record)
{
    k->bytes += kv_record_size(record) - kv_record_size(n->record);
    kv_record_unref(n->record);
    n->record = record;
}

void kv_keys_remove(struct kv_keys *k, struct kv_node *n)
{
    struct kv_node **links[KV_KEYS_LEVELS];

    find_links(k, kv_record_key(n->record), false, links);
    for (unsigned i = 0; i < n->levels; i++) {
        *links[i] = n->next[i];
    }
    k->count--;
    k->bytes -= node_size(n) + kv_record_size(n->record);
    node_free(n);
}
