/* A hash map from byte strings to pointers, open addressing, keyed SipHash (keys may come from
 * peers). Keys are copied. Iteration order is arbitrary. One thread at a time; a map that does not change may be read
 * by many threads. */
#ifndef MR_BASE_MAP_H
#define MR_BASE_MAP_H

#include "base/str.h"

struct mr_map_slot {
    mr_str key; /* key.ptr NULL = empty */
    uint64_t hash;
    void *value;
};

struct mr_map {
    struct mr_map_slot *slots;
    size_t cap; /* power of two or 0 */
    size_t len;
};

/** All-zero is an empty map. */
void mr_map_fini(struct mr_map *m);
void *mr_map_find(const struct mr_map *m, mr_str key);
/** Sets or replaces a value; returns the previous one or NULL. value must not be NULL. */
void *mr_map_put(struct mr_map *m, mr_str key, void *value);
/** Removes a key; returns its value or NULL. */
void *mr_map_remove(struct mr_map *m, mr_str key);
/** for (size_t i = 0; (slot = mr_map_next(m, &i));) */
struct mr_map_slot *mr_map_next(const struct mr_map *m, size_t *io_pos);
/** SipHash-1-3 with a random key per process. Must not be stored or sent. */
uint64_t mr_hash(mr_str s);
/** For tests whose runs repeat exactly: a constant key. No effect after the first hash of the process. */
void mr_hash_fix(void);

#endif
