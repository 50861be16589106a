/* Which copy an instance gives up first. What is kept is worth most per byte: how often it is used, times what it costs to load
 * again, over its size.
 *
 * How often is a sum over all uses that halves over `half_life` uses of the cache, so that what was hot goes in time, and one pass over
 * everything (a scan) displaces only what is used as rarely. It is kept as its logarithm on an axis that grows with each
 * use: the value of an entry changes with its own uses only, and entries can stand in a heap. Who keeps the heat of an entry that was
 * evicted, and inserts it with that, has a cache that remembers.
 *
 * One thread. No memory of entries: the caller's. */
#ifndef MESH_CACHE_CACHE_H
#define MESH_CACHE_CACHE_H

#include "base/vec.h"

struct cache_entry {
    double heat; /* log2 of the uses, on the axis; CACHE_COLD: never used */
    double bias; /* log2 of cost over size */
    double key;  /* heat + bias when it was last put in order; never more than they are now */
    size_t pos;  /* in the heap; CACHE_OUT: not in it */
};

#define CACHE_COLD (-1e30)
#define CACHE_OUT  ((size_t)-1)

struct mesh_cache {
    MR_VEC(struct cache_entry *) heap;
    double axis; /* grows by 1 / half-life with each use */
};

void cache_init(struct mesh_cache *c);
void cache_fini(struct mesh_cache *c);
/** A use. Cheap: the heap is put in order when a victim is looked for. */
void cache_touch(struct mesh_cache *c, struct cache_entry *e);
/** heat must be set. cost and size: any positive numbers. */
void cache_insert(struct mesh_cache *c, struct cache_entry *e, double cost, double size);
/** Without effect if it is not in the cache. */
void cache_remove(struct mesh_cache *c, struct cache_entry *e);
/** What is to go first; entries that `is_busy` (may be NULL) names only if the first few are all busy. NULL: empty. It stays in
 *  the cache. */
struct cache_entry *cache_victim(struct mesh_cache *c, bool (*is_busy)(const struct cache_entry *));

#endif
