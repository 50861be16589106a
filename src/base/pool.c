/* Reference-counted blocks.
 *
 * Classes: four sizes per power of two from 4 KiB to 1 GiB, so that at most a fifth of a block is
 * wasted; above, sizes are exact and never cached.
 *
 * Small blocks (up to 64 KiB; request bodies, most answers) live in per-thread caches that are
 * found by slot number: taking and giving back is a list operation on the thread's own cache line,
 * without a lock or a shared write. A block freed on another thread goes into that thread's cache.
 * Caches exchange half of their content with the shared cache when they are full or empty, so that a thread that only
 * takes and one that only gives back take the lock once per few blocks. The blocks of a thread that ends go to the
 * shared cache; threads without a slot use that one alone.
 *
 * Larger blocks are cached in the shared lists under the mutex; compared with the time to fill such a block that is
 * negligible. When the shared cache exceeds its limit, the least recently used class gives up its blocks, so that a
 * change of request sizes does not leave a cache full of unused sizes.
 *
 * Counting: blocks above 64 KiB by one atomic add each. Small blocks twice: in the slot's
 * single-writer counters (or `slotless_out`) exactly, and in `small_held` (changed only under the mutex) including what
 * lies in thread caches. The budget is checked against the rough sum first, and against the exact one before a
 * refusal. A small block from a thread cache is not checked, as its memory is allocated already. So is foreign memory
 * that is counted: it may take the sum above the budget.
 *
 * Blocks that stayed in a cache from one call of mr_block_age to the next were not needed: half of them leave it,
 * from the shared cache to the system at once, from a thread's to the shared one when the thread next takes or gives
 * a block. So the memory of a peak is returned within a few calls, and that of a steady load is steady.
 *
 * A block grows in the cheaper way: little content is copied into another block, perhaps from the cache; much content
 * keeps its pages, which are remapped.
 *
 * Memory: up to 64 KiB header and data are one heap allocation; above, the data is a mapping of its own, which is
 * returned to the system whole, and the header is separate. From 2 MiB on the mapping is aligned for huge pages. From
 * 64 MiB on a short-lived thread unmaps it: without huge pages a gigabyte takes 90 ms (2026-11), and the thread that
 * drops the last reference may be a network loop.
 *
 * The mutex guards `shared` below and is a leaf: nothing is called under it. */
#include "base/pool.h"

#include <malloc.h>
#include <pthread.h>
#include <stdalign.h>
#include <stdbool.h>
#include <sys/mman.h>

#include "base/arena.h"
#include "base/hist.h"
#include "base/mailbox.h"
#include "base/mem.h"
#include "base/thread.h"
#include "base_priv.h"

#define CLASS_COUNT       73 /* 4 KiB .. 1 GiB */
#define SMALL_CLASS_COUNT 17 /* 4 KiB .. 64 KiB */
#define CLASS_EXACT       UINT32_MAX
#define CLASS_FOREIGN     (UINT32_MAX - 1)
#define CLASS_ADOPTED     (UINT32_MAX - 2) /* foreign and counted */
#define CLASS_PROVIDED    (UINT32_MAX - 3) /* counted; the block is a struct provided */
#define MIN_SHIFT         12
#define SMALL_BYTES       ((size_t)64 * 1024)
#define BIGGEST_BYTES     ((size_t)1 << 30)
#define HUGE_BYTES        ((size_t)2 * 1024 * 1024)
#define PAGE_BYTES        ((size_t)4096)
#define HEADER_BYTES      ((size_t)MR_CACHE_LINE)
#define SLOT_CACHE_MOST   8
#define TRIM_BYTES        ((uint64_t)4 * 1024 * 1024)
#define COPY_BYTES        HUGE_BYTES                 /* larger contents are remapped to grow */
#define RELEASE_BYTES     ((size_t)64 * 1024 * 1024) /* from here on another thread unmaps */
#define RELEASE_STEP      ((size_t)8 * 1024 * 1024)
#define DEFAULT_CACHE     ((uint64_t)256 * 1024 * 1024)

/* AddressSanitizer sees the ends of heap allocations only. */
#ifdef MR_WITH_ASAN
#    define HEAP_BYTES (HUGE_BYTES - 1)
#else
#    define HEAP_BYTES SMALL_BYTES
#endif

_Static_assert(COPY_BYTES > HEAP_BYTES, "what grows in place is a mapping");
_Static_assert(sizeof(struct mr_block) <= HEADER_BYTES, "the header keeps the data aligned");

/* Written by the slot's owner only; any thread reads the counters. Only their sum is meaningful, modulo 2^64: a block
 * may be taken in one slot and given back in another. */
struct slot_cache {
    alignas(MR_CACHE_LINE) struct mr_block *head[SMALL_CLASS_COUNT];
    uint8_t count[SMALL_CLASS_COUNT];
    uint8_t least[SMALL_CLASS_COUNT]; /* count at its lowest in this age */
    uint32_t age;
    _Atomic uint64_t out_bytes;
    _Atomic uint64_t cached_bytes;
};

static struct slot_cache slot_caches[MR_SLOT_MAX];

/* Calls of mr_block_age; on a cache line of its own, as every use of a small block reads it. Relaxed: a thread may
 * see it late. */
static struct {
    alignas(MR_CACHE_LINE) _Atomic uint32_t count;
} ages;

static struct {
    pthread_mutex_t lock;
    struct mr_block *head[CLASS_COUNT];
    uint32_t count[CLASS_COUNT];
    uint32_t least[CLASS_COUNT]; /* count at its lowest since mr_block_age */
    uint64_t asked[CLASS_COUNT]; /* tick of the last taking */
    uint64_t tick;
    uint64_t cached_bytes;
    uint64_t cache_limit;
    struct mr_block *released; /* to be unmapped */
    bool has_release_thread;
} shared = {.lock = PTHREAD_MUTEX_INITIALIZER, .cache_limit = DEFAULT_CACHE};

/* Relaxed: they count and order nothing. */
static struct {
    alignas(MR_CACHE_LINE) _Atomic uint64_t big_out;
    _Atomic uint64_t small_held;
    _Atomic uint64_t slotless_out; /* as slot_cache.out_bytes, of threads without a slot */
    _Atomic uint64_t budget;
    _Atomic uint64_t refused;
} counts = {.budget = UINT64_MAX};

static uint32_t class_of(size_t bytes)
{
    if (bytes <= (size_t)1 << MIN_SHIFT) {
        return 0;
    }
    unsigned top = 63u - (unsigned)__builtin_clzll(bytes - 1);
    unsigned quarter = (unsigned)((bytes - 1) >> (top - 2)) & 3;
    return (top - MIN_SHIFT) * 4 + quarter + 1;
}

static size_t class_bytes(uint32_t size_class)
{
    if (size_class == 0) {
        return (size_t)1 << MIN_SHIFT;
    }
    unsigned top = MIN_SHIFT + (size_class - 1) / 4;
    size_t quarter = (size_class - 1) % 4 + 1;
    return ((size_t)1 << top) + (quarter << (top - 2));
}

/* Blocks returned to the heap since the last mr_block_age. Relaxed: a count. */
static _Atomic uint64_t heap_freed;

/* ---- the system ----------------------------------------------------------------------------- */

static void *map(size_t bytes)
{
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    return p == MAP_FAILED ? NULL : p;
}

/* A private mapping; from 2 MiB on it begins at a multiple of that. */
static void *map_aligned(size_t bytes)
{
    size_t padded;

    if (mr_mem_must_fail() || !mr_size_add(bytes, HUGE_BYTES, &padded)) {
        return NULL;
    }
    if (bytes < HUGE_BYTES) {
        return map(bytes);
    }
    char *p = map(padded);
    if (!p) {
        return NULL;
    }
    size_t front = (size_t)(-(uintptr_t)p & (HUGE_BYTES - 1));
    if (front) {
        munmap(p, front);
    }
    if (padded - front > bytes) {
        munmap(p + front + bytes, padded - front - bytes);
    }
    /* Only advice: a kernel without huge pages refuses it, which does no harm. */
    madvise(p + front, bytes, MADV_HUGEPAGE);
    return p + front;
}

/* NULL: none left, the thread ends. */
static struct mr_block *release_next(void)
{
    pthread_mutex_lock(&shared.lock);
    struct mr_block *b = shared.released;
    shared.released = b ? b->next : NULL;
    shared.has_release_thread = b != NULL;
    pthread_mutex_unlock(&shared.lock);
    return b;
}

/* True: the caller starts the thread. */
static bool release_push(struct mr_block *b)
{
    pthread_mutex_lock(&shared.lock);
    b->next = shared.released;
    shared.released = b;
    bool is_first = !shared.has_release_thread;
    shared.has_release_thread = true;
    pthread_mutex_unlock(&shared.lock);
    return is_first;
}

/* cap is a multiple of the page size when it is above HEAP_BYTES. */
static struct mr_block *system_new(uint32_t size_class, size_t cap)
{
    struct mr_block *b;

    if (cap <= HEAP_BYTES) {
        b = mr_mem_try_aligned(MR_CACHE_LINE, HEADER_BYTES + cap);
        if (!b) {
            return NULL;
        }
        *b = (struct mr_block){.data = (uint8_t *)b + HEADER_BYTES};
    } else {
        b = mr_try_alloc(sizeof *b);
        if (!b) {
            return NULL;
        }
        *b = (struct mr_block){.data = map_aligned(cap)};
        if (!b->data) {
            mr_free(b);
            return NULL;
        }
    }
    b->size_class = size_class;
    b->cap = cap;
    return b;
}

static void unmap(struct mr_block *b)
{
    munmap(b->data, b->cap);
    mr_free(b);
}

/* Runs until the list is empty. The pages are released first, in steps: that takes the lock on the address space for
 * reading only, so that other threads can map and fault in between. */
static void *release_main(void *arg)
{
    struct mr_block *b;

    (void)arg;
    while ((b = release_next())) {
        for (size_t at = 0; at < b->cap; at += RELEASE_STEP) {
            madvise(b->data + at, MR_MIN(RELEASE_STEP, b->cap - at), MADV_DONTNEED);
        }
        unmap(b);
    }
    return NULL;
}

static void release_later(struct mr_block *b)
{
    pthread_t thread;

    if (!release_push(b)) {
        return;
    }
    if (mr_thread_start(&thread, "release", release_main, NULL, NULL) == MR_OK) {
        pthread_detach(thread);
        return;
    }
    while ((b = release_next())) {
        unmap(b);
    }
}

static void system_free(struct mr_block *b)
{
    MR_UNPOISON(b->data, b->cap);
    if (b->cap >= RELEASE_BYTES) {
        release_later(b);
        return;
    }
    if (b->cap > HEAP_BYTES) {
        munmap(b->data, b->cap);
    } else {
        atomic_fetch_add_explicit(&heap_freed, b->cap, memory_order_relaxed);
    }
    mr_free(b);
}

static void system_free_list(struct mr_block *list)
{
    while (list) {
        struct mr_block *next = list->next;
        system_free(list);
        list = next;
    }
}

/* ---- counting ------------------------------------------------------------------------------- */

static uint64_t small_out_bytes(void)
{
    uint64_t sum = atomic_load_explicit(&counts.slotless_out, memory_order_relaxed);

    for (unsigned i = 0; i < mr_slot_count(); i++) {
        sum += mr_count_get(&slot_caches[i].out_bytes);
    }
    /* As others write during the read, the sum may be slightly below zero. */
    return sum > INT64_MAX ? 0 : sum;
}

/* True if the budget allows `small` held and `big` in use, the new block included. */
static bool is_within_budget(uint64_t small, uint64_t big, size_t small_new)
{
    uint64_t budget = atomic_load_explicit(&counts.budget, memory_order_relaxed);

    if (small + big <= budget) {
        return true;
    }
    if (small_out_bytes() + small_new + big <= budget) {
        return true;
    }
    atomic_fetch_add_explicit(&counts.refused, 1, memory_order_relaxed);
    return false;
}

static bool big_charge(size_t cap, bool is_due)
{
    uint64_t big =
        atomic_fetch_add_explicit(&counts.big_out, cap, memory_order_relaxed) + (uint64_t)cap;
    uint64_t small = atomic_load_explicit(&counts.small_held, memory_order_relaxed);

    if (is_due || is_within_budget(small, big, 0)) {
        return true;
    }
    atomic_fetch_sub_explicit(&counts.big_out, cap, memory_order_relaxed);
    return false;
}

static void big_uncharge(size_t cap)
{
    atomic_fetch_sub_explicit(&counts.big_out, cap, memory_order_relaxed);
}

/* ---- the shared cache ----------------------------------------------------------------------- */

/* Under the lock; the class must not be empty. */
static struct mr_block *shared_pop(uint32_t size_class)
{
    struct mr_block *b = shared.head[size_class];

    shared.head[size_class] = b->next;
    shared.cached_bytes -= b->cap;
    shared.count[size_class]--;
    shared.least[size_class] = MR_MIN(shared.least[size_class], shared.count[size_class]);
    return b;
}

/* Under the lock. NULL: there is none. */
static struct mr_block *shared_take(uint32_t size_class)
{
    shared.asked[size_class] = ++shared.tick;
    return shared.head[size_class] ? shared_pop(size_class) : NULL;
}

/* Under the lock. The least recently used class that has blocks. */
static uint32_t shared_stalest(void)
{
    uint32_t stalest = CLASS_EXACT;

    for (uint32_t c = 0; c < CLASS_COUNT; c++) {
        if (shared.head[c] && (stalest == CLASS_EXACT || shared.asked[c] < shared.asked[stalest])) {
            stalest = c;
        }
    }
    return stalest;
}

/* Under the lock. Removes blocks until the cache is at most `limit`; returns them as a list, to be freed without the
 * lock. */
static struct mr_block *shared_shrink(uint64_t limit)
{
    struct mr_block *out = NULL;

    while (shared.cached_bytes > limit) {
        struct mr_block *b = shared_pop(shared_stalest());
        b->next = out;
        out = b;
    }
    return out;
}

/* Under the lock. */
static void shared_put(struct mr_block *b)
{
    b->next = shared.head[b->size_class];
    shared.head[b->size_class] = b;
    shared.cached_bytes += b->cap;
    shared.count[b->size_class]++;
}

/* ---- small blocks --------------------------------------------------------------------------- */

static void slot_put(struct slot_cache *s, struct mr_block *b)
{
    b->next = s->head[b->size_class];
    s->head[b->size_class] = b;
    s->count[b->size_class]++;
    mr_count_add(&s->cached_bytes, b->cap);
}

static struct mr_block *slot_take(struct slot_cache *s, uint32_t size_class)
{
    struct mr_block *b = s->head[size_class];

    if (b) {
        s->head[size_class] = b->next;
        s->count[size_class]--;
        s->least[size_class] = MR_MIN(s->least[size_class], s->count[size_class]);
        mr_count_add(&s->cached_bytes, 0 - (uint64_t)b->cap);
    }
    return b;
}

static void small_held_add(uint64_t bytes)
{
    atomic_fetch_add_explicit(&counts.small_held, bytes, memory_order_relaxed);
}

/* The thread's cache is empty: refills half of it from the shared cache, or makes one block. s NULL: the thread has
 * no cache. */
static struct mr_block *small_refill(struct slot_cache *s, uint32_t size_class, bool is_due)
{
    size_t cap = class_bytes(size_class);
    uint64_t big = atomic_load_explicit(&counts.big_out, memory_order_relaxed);
    uint64_t held = atomic_load_explicit(&counts.small_held, memory_order_relaxed);

    if (!is_due && !is_within_budget(held + cap, big, cap)) {
        return NULL;
    }
    pthread_mutex_lock(&shared.lock);
    struct mr_block *b = shared_take(size_class);
    uint64_t moved = b ? cap : 0;
    while (b && s && s->count[size_class] < SLOT_CACHE_MOST / 2) {
        struct mr_block *more = shared_take(size_class);
        if (!more) {
            break;
        }
        slot_put(s, more);
        moved += cap;
    }
    pthread_mutex_unlock(&shared.lock);
    if (!b) {
        b = system_new(size_class, cap);
        moved = b ? cap : 0;
    }
    small_held_add(moved);
    return b;
}

/* Give blocks of one class to the shared cache until `keep` are left. */
static void slot_spill(struct slot_cache *s, uint32_t size_class, unsigned keep)
{
    uint64_t moved = 0;

    pthread_mutex_lock(&shared.lock);
    while (s->count[size_class] > keep) {
        struct mr_block *b = slot_take(s, size_class);
        moved += b->cap;
        shared_put(b);
    }
    struct mr_block *over = shared_shrink(shared.cache_limit);
    pthread_mutex_unlock(&shared.lock);
    small_held_add(0 - moved);
    system_free_list(over);
}

static void slot_age(struct slot_cache *s, uint32_t age)
{
    s->age = age;
    for (uint32_t c = 0; c < SMALL_CLASS_COUNT; c++) {
        if (s->least[c] > 0) {
            slot_spill(s, c, s->count[c] - (s->least[c] + 1u) / 2);
        }
        s->least[c] = s->count[c];
    }
}

/* NULL: there are more threads than slots. */
static struct slot_cache *slot_cache_mine(void)
{
    unsigned slot = mr_slot_try();
    uint32_t age = atomic_load_explicit(&ages.count, memory_order_relaxed);

    if (slot == MR_SLOT_NONE) {
        return NULL;
    }
    struct slot_cache *s = &slot_caches[slot];
    if (s->age != age) {
        slot_age(s, age);
    }
    return s;
}

static struct mr_block *small_new(uint32_t size_class, bool is_due)
{
    struct slot_cache *s = slot_cache_mine();
    struct mr_block *b = s ? slot_take(s, size_class) : NULL;

    if (!b) {
        b = small_refill(s, size_class, is_due);
    }
    if (b && s) {
        mr_count_add(&s->out_bytes, b->cap);
    } else if (b) {
        atomic_fetch_add_explicit(&counts.slotless_out, b->cap, memory_order_relaxed);
    }
    return b;
}

void mr_pool_slot_end(unsigned slot)
{
    for (uint32_t c = 0; c < SMALL_CLASS_COUNT; c++) {
        if (slot_caches[slot].count[c] > 0) {
            slot_spill(&slot_caches[slot], c, 0);
        }
    }
}

static void small_free_shared(struct mr_block *b)
{
    atomic_fetch_sub_explicit(&counts.slotless_out, b->cap, memory_order_relaxed);
    small_held_add(0 - (uint64_t)b->cap);
    pthread_mutex_lock(&shared.lock);
    shared_put(b);
    struct mr_block *over = shared_shrink(shared.cache_limit);
    pthread_mutex_unlock(&shared.lock);
    system_free_list(over);
}

static void small_free(struct mr_block *b)
{
    struct slot_cache *s = slot_cache_mine();

    if (!s) {
        small_free_shared(b);
        return;
    }
    mr_count_add(&s->out_bytes, 0 - (uint64_t)b->cap);
    if (s->count[b->size_class] == SLOT_CACHE_MOST) {
        slot_spill(s, b->size_class, SLOT_CACHE_MOST / 2);
    }
    slot_put(s, b);
}

/* ---- large blocks --------------------------------------------------------------------------- */

/* Class and capacity of a block of that size. */
static bool big_size(size_t bytes, uint32_t *out_class, size_t *out_cap)
{
    if (bytes <= BIGGEST_BYTES) {
        *out_class = class_of(bytes);
        *out_cap = class_bytes(*out_class);
        return true;
    }
    if (!mr_size_add(bytes, PAGE_BYTES - 1, out_cap)) {
        return false;
    }
    *out_class = CLASS_EXACT;
    *out_cap &= ~(PAGE_BYTES - 1);
    return true;
}

static struct mr_block *big_new(size_t bytes, bool is_due)
{
    uint32_t size_class;
    struct mr_block *b = NULL;
    size_t cap;

    if (!big_size(bytes, &size_class, &cap) || !big_charge(cap, is_due)) {
        return NULL;
    }
    if (size_class != CLASS_EXACT) {
        pthread_mutex_lock(&shared.lock);
        b = shared_take(size_class);
        pthread_mutex_unlock(&shared.lock);
    }
    if (!b) {
        b = system_new(size_class, cap);
    }
    if (!b) {
        big_uncharge(cap);
    }
    return b;
}

/* Moves the pages of a block to where it can grow. The budget must have room for both blocks for a moment, as if the
 * block were copied: so a block that grows by doubling never takes more than two thirds of the budget. */
static bool big_grow(struct mr_block *b, size_t bytes)
{
    uint32_t size_class;
    size_t cap;

    if (!big_size(bytes, &size_class, &cap) || !big_charge(cap, false)) {
        return false;
    }
    uint8_t *to = map_aligned(cap);
    if (!to || mremap(b->data, b->cap, cap, MREMAP_MAYMOVE | MREMAP_FIXED, to) == MAP_FAILED) {
        if (to) {
            munmap(to, cap);
        }
        big_uncharge(cap);
        return false;
    }
    big_uncharge(b->cap);
    madvise(to, cap, MADV_HUGEPAGE); /* the moved pages keep their advice */
    MR_UNPOISON(to, cap);
    b->data = to;
    b->cap = cap;
    b->size_class = size_class;
    return true;
}

static void big_free(struct mr_block *b)
{
    big_uncharge(b->cap);
    if (b->size_class == CLASS_EXACT) {
        system_free(b);
        return;
    }
    pthread_mutex_lock(&shared.lock);
    shared_put(b);
    struct mr_block *over = shared_shrink(shared.cache_limit);
    pthread_mutex_unlock(&shared.lock);
    system_free_list(over);
}

/* ---- the interface -------------------------------------------------------------------------- */

static bool is_foreign(const struct mr_block *b)
{
    return b->size_class >= CLASS_PROVIDED && b->size_class != CLASS_EXACT;
}

static struct mr_block *block_new(size_t bytes, bool is_due)
{
    struct mr_block *b =
        bytes <= SMALL_BYTES ? small_new(class_of(bytes), is_due) : big_new(bytes, is_due);

    if (b) {
        MR_UNPOISON(b->data, b->cap);
        b->next = NULL;
        atomic_store_explicit(&b->refs, 1, memory_order_relaxed);
    }
    return b;
}

struct mr_block *mr_block_new(size_t bytes)
{
    return block_new(bytes, false);
}

struct mr_block *mr_block_new_due(size_t bytes)
{
    return block_new(bytes, true);
}

/* ---- memory of a provider ---- */

struct provided {
    struct mr_block block;
    const struct mr_block_provider *provider;
    struct mr_block_extent extent;
};

static struct provided *provided_of(const struct mr_block *b)
{
    return b && b->size_class == CLASS_PROVIDED
               ? MR_CONTAINER_OF((struct mr_block *)(uintptr_t)b, struct provided, block)
               : NULL;
}

/* `bytes` are counted already. */
static void provided_set(struct provided *b, size_t bytes)
{
    big_charge(b->extent.cap - bytes, true);
    b->block.data = b->extent.data;
    b->block.cap = b->extent.cap;
}

struct mr_block *mr_block_new_in(const struct mr_block_provider *p, size_t bytes)
{
    return mr_block_new_growing(p, bytes, bytes);
}

struct mr_block *mr_block_new_growing(const struct mr_block_provider *p, size_t bytes, size_t most)
{
    if (!p) {
        return mr_block_new(bytes);
    }
    if (bytes > SIZE_MAX / 2 || !big_charge(bytes, false)) {
        return NULL;
    }
    struct provided *b = mr_try_alloc(sizeof *b);
    if (!b || !p->take(p, bytes, MR_MAX(most, bytes), &b->extent)) {
        mr_free(b);
        big_uncharge(bytes);
        return NULL;
    }
    b->provider = p;
    b->block = (struct mr_block){.refs = 1, .size_class = CLASS_PROVIDED};
    provided_set(b, bytes);
    return &b->block;
}

/* As with big_grow, there must be room for both. */
static bool provided_grow(struct provided *b, size_t bytes)
{
    size_t before = b->extent.cap;

    if (!b->provider->grow || bytes > SIZE_MAX / 2 || mr_block_refs(&b->block) != 1 ||
        !big_charge(bytes, false)) {
        return false;
    }
    if (!b->provider->grow(b->provider, bytes, &b->extent)) {
        big_uncharge(bytes);
        return false;
    }
    big_uncharge(before);
    provided_set(b, bytes);
    return true;
}

static void provided_free(struct provided *b)
{
    b->provider->give(b->provider, &b->extent);
    big_uncharge(b->extent.cap);
    mr_free(b);
}

bool mr_block_in_file(const struct mr_block *b, const void *at, int *out_fd, uint64_t *out_offset)
{
    const struct provided *p = provided_of(b);

    if (!p) {
        return false;
    }
    *out_fd = p->extent.fd;
    *out_offset = p->extent.fd_offset + (uint64_t)((const uint8_t *)at - p->extent.data);
    return true;
}

bool mr_block_grow(struct mr_block **io, size_t used, size_t bytes)
{
    struct mr_block *b = *io;

    if (b && bytes <= b->cap) {
        return true;
    }
    if (b && used > COPY_BYTES && !is_foreign(b) && mr_block_refs(b) == 1) {
        return big_grow(b, bytes);
    }
    struct provided *p = provided_of(b);
    if (p && provided_grow(p, bytes)) {
        return true;
    }
    struct mr_block *grown = mr_block_new_in(p ? p->provider : NULL, bytes);
    if (!grown) {
        return false;
    }
    if (used) {
        memcpy(grown->data, b->data, used);
    }
    mr_block_unref(io);
    *io = grown;
    return true;
}

static struct mr_block *foreign_new(uint32_t size_class, void *data, size_t bytes,
                                    void (*release)(void *ctx, void *data), void *ctx)
{
    struct mr_block *b = mr_try_alloc(sizeof *b);

    if (b) {
        *b = (struct mr_block){
            .refs = 1,
            .size_class = size_class,
            .cap = bytes,
            .data = data,
            .release = release,
            .release_ctx = ctx,
        };
    }
    return b;
}

struct mr_block *mr_block_wrap(void *data, size_t bytes, void (*release)(void *ctx, void *data),
                               void *ctx)
{
    return foreign_new(CLASS_FOREIGN, data, bytes, release, ctx);
}

struct mr_block *mr_block_adopt(void *data, size_t bytes, void (*release)(void *ctx, void *data),
                                void *ctx)
{
    struct mr_block *b = foreign_new(CLASS_ADOPTED, data, bytes, release, ctx);

    if (b) {
        big_charge(bytes, true);
    }
    return b;
}

struct mr_block *mr_block_ref(struct mr_block *b)
{
    /* Relaxed: the caller holds a reference, so the block cannot be freed. */
    atomic_fetch_add_explicit(&b->refs, 1, memory_order_relaxed);
    return b;
}

static void foreign_free(struct mr_block *b)
{
    if (b->release) {
        b->release(b->release_ctx, b->data);
    }
    if (b->size_class == CLASS_ADOPTED) {
        big_uncharge(b->cap);
    }
    mr_free(b);
}

static void block_free(struct mr_block *b)
{
    if (is_foreign(b)) {
        struct provided *p = provided_of(b);
        if (p) {
            provided_free(p);
        } else {
            foreign_free(b);
        }
        return;
    }
    MR_POISON(b->data, b->cap);
    if (b->size_class < SMALL_CLASS_COUNT) {
        small_free(b);
    } else {
        big_free(b);
    }
}

void mr_block_unref(struct mr_block **b)
{
    struct mr_block *block = *b;

    *b = NULL;
    if (!block) {
        return;
    }
    /* The sole owner needs no locked instruction: no other thread can make a reference. Acquire: pairs with the
     * release below of earlier owners. */
    if (atomic_load_explicit(&block->refs, memory_order_acquire) == 1) {
        block_free(block);
        return;
    }
    /* Release: our use of the data comes before the last owner's acquire (here or above). */
    if (atomic_fetch_sub_explicit(&block->refs, 1, memory_order_acq_rel) == 1) {
        block_free(block);
    }
}

void mr_block_set_budget(uint64_t budget_bytes, uint64_t cache_bytes)
{
    atomic_store_explicit(&counts.budget, budget_bytes ? budget_bytes : UINT64_MAX,
                          memory_order_relaxed);
    pthread_mutex_lock(&shared.lock);
    shared.cache_limit = cache_bytes;
    struct mr_block *over = shared_shrink(cache_bytes);
    pthread_mutex_unlock(&shared.lock);
    system_free_list(over);
}

struct mr_block_stats mr_block_get_stats(void)
{
    struct mr_block_stats stats = {
        .out_bytes =
            small_out_bytes() + atomic_load_explicit(&counts.big_out, memory_order_relaxed),
        .budget_bytes = atomic_load_explicit(&counts.budget, memory_order_relaxed),
        .refused = atomic_load_explicit(&counts.refused, memory_order_relaxed),
    };

    for (unsigned i = 0; i < mr_slot_count(); i++) {
        stats.cached_bytes += mr_count_get(&slot_caches[i].cached_bytes);
    }
    pthread_mutex_lock(&shared.lock);
    stats.cached_bytes += shared.cached_bytes;
    pthread_mutex_unlock(&shared.lock);
    return stats;
}

/* The rough sum first, as for the budget. */
static bool is_out_past(uint64_t limit)
{
    uint64_t big = atomic_load_explicit(&counts.big_out, memory_order_relaxed);

    return atomic_load_explicit(&counts.small_held, memory_order_relaxed) + big > limit &&
           small_out_bytes() + big > limit;
}

bool mr_block_is_used(void)
{
    return is_out_past(atomic_load_explicit(&counts.budget, memory_order_relaxed) / 8);
}

bool mr_block_is_half_used(void)
{
    return is_out_past(atomic_load_explicit(&counts.budget, memory_order_relaxed) / 2);
}

bool mr_block_is_scarce(void)
{
    return is_out_past(atomic_load_explicit(&counts.budget, memory_order_relaxed) / 4 * 3);
}

bool mr_block_may_adopt(void)
{
    bool is_spent = is_out_past(atomic_load_explicit(&counts.budget, memory_order_relaxed));

    if (is_spent) {
        atomic_fetch_add_explicit(&counts.refused, 1, memory_order_relaxed);
    }
    return !is_spent;
}

uint64_t mr_block_share(void)
{
    return atomic_load_explicit(&counts.budget, memory_order_relaxed) / 8;
}

void mr_block_trim(void)
{
    unsigned slot = mr_slot_try();

    if (slot != MR_SLOT_NONE) {
        mr_pool_slot_end(slot);
    }
    pthread_mutex_lock(&shared.lock);
    struct mr_block *all = shared_shrink(0);
    pthread_mutex_unlock(&shared.lock);
    system_free_list(all);
}

/* After a peak, the heaps have holes between allocations that are still in use, and the pages of the holes are
 * resident. When nearly all of the peak's memory has been freed, they are returned to the system: once for each peak,
 * as the heaps are locked for that time. */
static void heap_trim(void)
{
    static uint64_t holes;
    uint64_t freed = atomic_exchange_explicit(&heap_freed, 0, memory_order_relaxed);

    holes += freed;
    if (holes < TRIM_BYTES || freed > TRIM_BYTES / 4) {
        return;
    }
    holes = 0;
#ifdef __GLIBC__
    malloc_trim(0);
#endif
}

void mr_block_age(void)
{
    struct mr_block *unused = NULL;

    atomic_fetch_add_explicit(&ages.count, 1, memory_order_relaxed);
    pthread_mutex_lock(&shared.lock);
    for (uint32_t c = 0; c < CLASS_COUNT; c++) {
        for (uint32_t n = (shared.least[c] + 1) / 2; n > 0; n--) {
            struct mr_block *b = shared_pop(c);
            b->next = unused;
            unused = b;
        }
        shared.least[c] = shared.count[c];
    }
    pthread_mutex_unlock(&shared.lock);
    system_free_list(unused);
    heap_trim();
}

static void block_drop(void *block)
{
    struct mr_block *b = block;
    mr_block_unref(&b);
}

bool mr_block_keep(struct mr_block *b, struct mr_arena *a)
{
    if (mr_arena_on_free(a, block_drop, b)) {
        return true;
    }
    mr_block_unref(&b);
    return false;
}
