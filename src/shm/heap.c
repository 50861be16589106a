/* The buddy allocator. `order` holds for the first unit of each extent its order and whether it is free; the entries in
 * between are not used. Free extents of an order form a doubly linked list by unit number, the last freed one first, as
 * its pages are resident.
 *
 * An extent's capacity is the requested size in whole pages: the rest of the power of two is address space without
 * pages. */
#include "shm/heap.h"

#include <string.h>

#include "base/mem.h"
#include "segment.h"

#define FREE       0x80u
#define NONE       UINT32_MAX
#define PAGE       4096u
#define WARM_BYTES ((uint64_t)64 << 20)

static struct mr_shm_heap *heap_of(const struct mr_block_provider *p)
{
    return (struct mr_shm_heap *)(uintptr_t)p;
}

static void list_push(struct mr_shm_heap *h, uint32_t unit, unsigned order)
{
    h->order[unit] = (uint8_t)(order | FREE);
    h->previous[unit] = NONE;
    h->next[unit] = h->first[order];
    if (h->first[order] != NONE) {
        h->previous[h->first[order]] = unit;
    }
    h->first[order] = unit;
}

static void list_remove(struct mr_shm_heap *h, uint32_t unit, unsigned order)
{
    if (h->previous[unit] == NONE) {
        h->first[order] = h->next[unit];
    } else {
        h->next[h->previous[unit]] = h->next[unit];
    }
    if (h->next[unit] != NONE) {
        h->previous[h->next[unit]] = h->previous[unit];
    }
}

static unsigned order_for(size_t bytes)
{
    unsigned order = 0;

    while (order < MR_SHM_ORDERS && ((uint64_t)MR_SHM_UNIT << order) < bytes) {
        order++;
    }
    return order;
}

/* A free extent of that order, split from a larger one if there is none. Lock held. */
static uint32_t extent_take(struct mr_shm_heap *h, unsigned order)
{
    unsigned from = order;

    while (from < MR_SHM_ORDERS && h->first[from] == NONE) {
        from++;
    }
    if (from >= MR_SHM_ORDERS) {
        return NONE;
    }
    uint32_t unit = h->first[from];
    list_remove(h, unit, from);
    while (from > order) {
        from--;
        list_push(h, unit + (1u << from), from);
    }
    h->order[unit] = (uint8_t)order;
    return unit;
}

/* Lock held. */
static void extent_give(struct mr_shm_heap *h, uint32_t unit)
{
    unsigned order = h->order[unit];

    while (order + 1 < MR_SHM_ORDERS) {
        uint32_t buddy = unit ^ (1u << order);
        if (buddy >= h->units || h->order[buddy] != (order | FREE)) {
            break;
        }
        list_remove(h, buddy, order);
        unit = MR_MIN(unit, buddy);
        order++;
    }
    list_push(h, unit, order);
}

static bool take(const struct mr_block_provider *p, size_t bytes, size_t most,
                 struct mr_block_extent *out)
{
    struct mr_shm_heap *h = heap_of(p);
    unsigned order = order_for(most);
    uint32_t unit = NONE;

    pthread_mutex_lock(&h->lock);
    if (order < MR_SHM_ORDERS && !h->is_closed) {
        unit = extent_take(h, order);
    }
    const size_t cap = (MR_MAX(bytes, 1) + PAGE - 1) / PAGE * PAGE;
    if (unit == NONE) {
        h->refused++;
    } else {
        h->used_bytes += cap;
        h->warm_bytes -= MR_MIN(h->warm_bytes, cap);
    }
    pthread_mutex_unlock(&h->lock);
    if (unit == NONE) {
        return false;
    }
    const uint64_t at = h->offset + (uint64_t)unit * MR_SHM_UNIT;
    *out = (struct mr_block_extent){h->data + at, cap, h->fd, at};
    return true;
}

/* Grows in place while the power of two has room. */
static bool grow(const struct mr_block_provider *p, size_t bytes, struct mr_block_extent *io)
{
    struct mr_shm_heap *h = heap_of(p);
    const uint32_t unit = (uint32_t)((io->fd_offset - h->offset) / MR_SHM_UNIT);
    const size_t cap = (bytes + PAGE - 1) / PAGE * PAGE;

    pthread_mutex_lock(&h->lock);
    const bool fits = cap <= (uint64_t)MR_SHM_UNIT << h->order[unit];
    if (fits) {
        h->used_bytes += cap - io->cap;
    }
    pthread_mutex_unlock(&h->lock);
    if (fits) {
        io->cap = cap;
    }
    return fits;
}

static void give(const struct mr_block_provider *p, const struct mr_block_extent *extent)
{
    struct mr_shm_heap *h = heap_of(p);
    const uint32_t unit = (uint32_t)((extent->fd_offset - h->offset) / MR_SHM_UNIT);

    pthread_mutex_lock(&h->lock);
    h->used_bytes -= extent->cap;
    if (h->is_closed || h->warm_bytes + extent->cap > WARM_BYTES) {
        shm_discard(h->fd, extent->fd_offset, extent->cap);
    } else {
        h->warm_bytes += extent->cap;
    }
    extent_give(h, unit);
    const bool has_drained = h->is_closed && h->used_bytes == 0;
    pthread_mutex_unlock(&h->lock);
    if (has_drained) {
        h->drained(h->drained_ctx);
    }
}

void mr_shm_heap_init(struct mr_shm_heap *h, int fd, uint8_t *segment, uint64_t offset,
                      uint64_t bytes)
{
    const uint64_t most = (uint64_t)MR_SHM_UNIT << (MR_SHM_ORDERS - 1);
    const uint32_t units = (uint32_t)(MR_MIN(bytes, most) / MR_SHM_UNIT);

    *h = (struct mr_shm_heap){.provider = {take, grow, give},
                              .fd = fd,
                              .data = segment,
                              .offset = offset,
                              .bytes = (uint64_t)units * MR_SHM_UNIT,
                              .units = units};
    pthread_mutex_init(&h->lock, NULL);
    h->order = mr_alloc_array((size_t)units + 1, sizeof *h->order);
    h->next = mr_alloc_array((size_t)units + 1, sizeof *h->next);
    h->previous = mr_alloc_array((size_t)units + 1, sizeof *h->previous);
    for (unsigned i = 0; i < MR_SHM_ORDERS; i++) {
        h->first[i] = NONE;
    }
    for (uint32_t unit = 0; unit < units;) {
        unsigned order = MR_SHM_ORDERS - 1;
        while ((unit & ((1u << order) - 1)) != 0 || (1u << order) > units - unit) {
            order--;
        }
        list_push(h, unit, order);
        unit += 1u << order;
    }
}

void mr_shm_heap_trim(struct mr_shm_heap *h)
{
    pthread_mutex_lock(&h->lock);
    for (unsigned order = 0; order < MR_SHM_ORDERS; order++) {
        for (uint32_t unit = h->first[order]; unit != NONE; unit = h->next[unit]) {
            shm_discard(h->fd, h->offset + (uint64_t)unit * MR_SHM_UNIT,
                        (uint64_t)MR_SHM_UNIT << order);
        }
    }
    h->warm_bytes = 0;
    pthread_mutex_unlock(&h->lock);
}

/* Extents that are freed during the walk merge with their predecessors. The walk may then read an old mark within a free
 * extent, which stays free as none is taken any more. */
static void free_discard(struct mr_shm_heap *h)
{
    for (uint32_t unit = 0; unit < h->units;) {
        pthread_mutex_lock(&h->lock);
        const uint8_t order = h->order[unit];
        pthread_mutex_unlock(&h->lock);
        const uint32_t count = 1u << (order & ~FREE);
        if (order & FREE) {
            shm_discard(h->fd, h->offset + (uint64_t)unit * MR_SHM_UNIT,
                        (uint64_t)count * MR_SHM_UNIT);
        }
        unit += count;
    }
}

void mr_shm_heap_close(struct mr_shm_heap *h, void (*drained)(void *ctx), void *ctx)
{
    pthread_mutex_lock(&h->lock);
    h->is_closed = true;
    h->drained = drained;
    h->drained_ctx = ctx;
    h->used_bytes++; /* for this call: the heap must not drain before its end */
    pthread_mutex_unlock(&h->lock);
    free_discard(h);
    pthread_mutex_lock(&h->lock);
    const bool has_drained = --h->used_bytes == 0;
    pthread_mutex_unlock(&h->lock);
    if (has_drained) {
        drained(ctx);
    }
}

void mr_shm_heap_fini(struct mr_shm_heap *h)
{
    MR_ASSERT(h->used_bytes == 0);
    pthread_mutex_destroy(&h->lock);
    mr_free(h->order);
    mr_free(h->next);
    mr_free(h->previous);
}

struct mr_shm_heap_stats mr_shm_heap_get_stats(struct mr_shm_heap *h)
{
    pthread_mutex_lock(&h->lock);
    const struct mr_shm_heap_stats s = {h->bytes, h->used_bytes, h->warm_bytes, h->refused};
    pthread_mutex_unlock(&h->lock);
    return s;
}
