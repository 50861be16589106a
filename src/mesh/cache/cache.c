/* A heap of entries by value, the lowest first. A use raises an entry's value but not its key, so the heap is right but for entries
 * whose key is too low; those are put in order when they come to the top. */
#include "cache.h"

#include <math.h>

#define HALF_LIFE_PER_ENTRY 16.0 /* in uses, for each entry in the cache */
#define HALF_LIFE_MIN       256.0
#define BUSY_MAX            16 /* busy entries that are passed over */

void cache_init(struct mesh_cache *c)
{
    *c = (struct mesh_cache){0};
}

void cache_fini(struct mesh_cache *c)
{
    MR_VEC_FINI(&c->heap);
}

static void put(struct mesh_cache *c, size_t at, struct cache_entry *e)
{
    c->heap.at[at] = e;
    e->pos = at;
}

static void sift_up(struct mesh_cache *c, struct cache_entry *e, size_t at)
{
    while (at > 0 && c->heap.at[(at - 1) / 2]->key > e->key) {
        put(c, at, c->heap.at[(at - 1) / 2]);
        at = (at - 1) / 2;
    }
    put(c, at, e);
}

static void sift_down(struct mesh_cache *c, struct cache_entry *e, size_t at)
{
    for (size_t child; (child = 2 * at + 1) < c->heap.len; at = child) {
        if (child + 1 < c->heap.len && c->heap.at[child + 1]->key < c->heap.at[child]->key) {
            child++;
        }
        if (c->heap.at[child]->key >= e->key) {
            break;
        }
        put(c, at, c->heap.at[child]);
    }
    put(c, at, e);
}

void cache_touch(struct mesh_cache *c, struct cache_entry *e)
{
    double half_life = HALF_LIFE_PER_ENTRY * (double)c->heap.len;

    c->axis += 1 / MR_MAX(half_life, HALF_LIFE_MIN);
    double more = MR_MAX(e->heat, c->axis);
    double less = MR_MIN(e->heat, c->axis);
    e->heat = more + (more - less < 60 ? log2(1 + exp2(less - more)) : 0);
}

void cache_insert(struct mesh_cache *c, struct cache_entry *e, double cost, double size)
{
    e->bias = log2(MR_MAX(cost, 1e-6) / MR_MAX(size, 1e-6));
    e->key = e->heat + e->bias;
    MR_VEC_PUSH(&c->heap, e);
    sift_up(c, e, c->heap.len - 1);
}

void cache_remove(struct mesh_cache *c, struct cache_entry *e)
{
    if (e->pos >= c->heap.len || c->heap.at[e->pos] != e) {
        return;
    }
    size_t at = e->pos;
    struct cache_entry *last = c->heap.at[--c->heap.len];
    e->pos = CACHE_OUT;
    if (last == e) {
        return;
    }
    if (at > 0 && last->key < c->heap.at[(at - 1) / 2]->key) {
        sift_up(c, last, at);
    } else {
        sift_down(c, last, at);
    }
}

static struct cache_entry *lowest(struct mesh_cache *c)
{
    while (c->heap.len > 0) {
        struct cache_entry *top = c->heap.at[0];
        if (top->key >= top->heat + top->bias) {
            return top;
        }
        top->key = top->heat + top->bias;
        sift_down(c, top, 0);
    }
    return NULL;
}

struct cache_entry *cache_victim(struct mesh_cache *c, bool (*is_busy)(const struct cache_entry *))
{
    struct cache_entry *passed[BUSY_MAX];
    size_t count = 0;
    struct cache_entry *e;

    while ((e = lowest(c)) && is_busy && is_busy(e) && count < BUSY_MAX) {
        passed[count++] = e;
        cache_remove(c, e);
    }
    for (size_t i = 0; i < count; i++) {
        MR_VEC_PUSH(&c->heap, passed[i]);
        sift_up(c, passed[i], c->heap.len - 1);
    }
    return e && !(is_busy && is_busy(e)) ? e : lowest(c);
}
