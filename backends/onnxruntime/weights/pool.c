/* Ranges of addresses for the weights that ONNX Runtime packs, one for each loaded version.
 *
 * Why not the heap: to free some hundred megabytes, the C library unmaps them, and every thread that maps, unmaps or
 * grows a heap at that moment waits until the kernel has released the last page. Here the pages are released with
 * MADV_DONTNEED, which delays no other thread, and the addresses are kept: updates alternate between two ranges of a
 * model (more when more versions are served). With huge pages that takes about a millisecond.
 *
 * Ranges are larger than their content; addresses without pages cost nothing. A free range of a model that uses none
 * may serve the next model that fits. Idle ranges are bounded by those in use: beyond that the largest are unmapped,
 * which is cheap, as they are empty.
 *
 * Thread: any; loading and unloading only. */
#include <stdio.h>
#include <sys/mman.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "parameters.h"

#define HUGE_PAGE  (UINT64_C(2) << 20)
#define IDLE_LEAST (UINT64_C(1) << 30) /* idle addresses up to this size are always kept */
#define RANGE_MOST (UINT64_C(1) << 44)

static uint64_t round_up(uint64_t n, uint64_t to)
{
    return (n + to - 1) / to * to;
}

void onnx_pool_init(struct onnx_pool *p)
{
    pthread_mutex_init(&p->lock, NULL);
    p->ranges = NULL;
}

static void range_free(struct onnx_range *r)
{
    if (r->base) {
        munmap(r->base, r->bytes);
    }
    free(r->owner);
    free(r);
}

void onnx_pool_fini(struct onnx_pool *p)
{
    while (p->ranges) {
        struct onnx_range *next = p->ranges->next;
        range_free(p->ranges);
        p->ranges = next;
    }
    pthread_mutex_destroy(&p->lock);
}

/* True if the owner of this range uses one. Lock held. */
static int owner_is_live(const struct onnx_pool *p, const char *owner)
{
    for (const struct onnx_range *r = p->ranges; r; r = r->next) {
        if (r->in_use && strcmp(r->owner, owner) == 0) {
            return 1;
        }
    }
    return 0;
}

/* Unlinks it. Lock held. */
static void range_drop(struct onnx_pool *p, struct onnx_range *gone)
{
    struct onnx_range **link = &p->ranges;

    while (*link != gone) {
        link = &(*link)->next;
    }
    *link = gone->next;
    range_free(gone);
}

/* Unmaps free ranges of this owner that are too small. Lock held. */
static void small_drop(struct onnx_pool *p, const char *owner)
{
    for (struct onnx_range *r = p->ranges, *next; r; r = next) {
        next = r->next;
        if (!r->in_use && strcmp(r->owner, owner) == 0) {
            range_drop(p, r);
        }
    }
}

/* The largest idle range, and the total sizes of idle and other ranges. Lock held. */
static struct onnx_range *idle_find(const struct onnx_pool *p, uint64_t *out_idle,
                                    uint64_t *out_busy)
{
    struct onnx_range *largest = NULL;

    *out_idle = *out_busy = 0;
    for (struct onnx_range *r = p->ranges; r; r = r->next) {
        if (r->in_use || owner_is_live(p, r->owner)) {
            *out_busy += r->bytes;
            continue;
        }
        *out_idle += r->bytes;
        if (!largest || r->bytes > largest->bytes) {
            largest = r;
        }
    }
    return largest;
}

static void idle_trim(struct onnx_pool *p)
{
    uint64_t idle;
    uint64_t busy;
    struct onnx_range *largest;

    while ((largest = idle_find(p, &idle, &busy)) && idle > IDLE_LEAST && idle > busy) {
        range_drop(p, largest);
    }
}

/* The smallest range that fits, the owner's own before others. Lock held. */
static struct onnx_range *range_find(const struct onnx_pool *p, const char *owner, uint64_t bytes)
{
    struct onnx_range *best = NULL;
    int best_is_own = 0;

    for (struct onnx_range *r = p->ranges; r; r = r->next) {
        const int is_own = strcmp(r->owner, owner) == 0;
        if (r->in_use || r->bytes < bytes || (!is_own && owner_is_live(p, r->owner))) {
            continue;
        }
        if (!best || is_own > best_is_own || (is_own == best_is_own && r->bytes < best->bytes)) {
            best = r;
            best_is_own = is_own;
        }
    }
    return best;
}

/* Addresses that begin at a large page. */
static uint8_t *addresses_get(uint64_t bytes)
{
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    uint8_t *at = mmap(NULL, bytes + HUGE_PAGE, PROT_READ | PROT_WRITE, flags, -1, 0);

    if (at == MAP_FAILED) {
        return NULL;
    }
    const uint64_t before = round_up((uintptr_t)at, HUGE_PAGE) - (uintptr_t)at;
    if (before > 0) {
        munmap(at, before);
    }
    munmap(at + before + bytes, HUGE_PAGE - before);
    madvise(at + before, bytes, MADV_HUGEPAGE); /* not required */
    return at + before;
}

static struct onnx_range *range_new(const char *owner, uint64_t bytes)
{
    struct onnx_range *r = calloc(1, sizeof *r);

    if (!r) {
        return NULL;
    }
    r->bytes = round_up(bytes + bytes / 4, HUGE_PAGE);
    r->owner = strdup(owner);
    r->base = r->owner ? addresses_get(r->bytes) : NULL;
    if (!r->base) {
        range_free(r);
        return NULL;
    }
    return r;
}

struct onnx_range *onnx_pool_take(struct onnx_pool *p, const char *owner, uint64_t bytes)
{
    char *name = strdup(owner);
    struct onnx_range *r = NULL;

    if (!name || bytes > RANGE_MOST) {
        free(name);
        return NULL;
    }
    pthread_mutex_lock(&p->lock);
    r = range_find(p, owner, bytes);
    if (!r) {
        small_drop(p, owner);
        r = range_new(owner, bytes);
        if (r) {
            r->next = p->ranges;
            p->ranges = r;
        }
    }
    if (r) {
        free(r->owner);
        r->owner = name;
        r->in_use = 1;
        atomic_store_explicit(&r->used, 0, memory_order_relaxed);
    } else {
        free(name);
    }
    pthread_mutex_unlock(&p->lock);
    return r;
}

void *onnx_range_alloc(struct onnx_range *r, uint64_t bytes)
{
    /* A cache line of slack: vector code may read past the end. Relaxed: only the number matters. */
    const uint64_t need = round_up(bytes, 64) + 64;

    if (bytes > r->bytes || need > r->bytes) {
        return NULL;
    }
    uint64_t at = atomic_load_explicit(&r->used, memory_order_relaxed);
    do {
        if (need > r->bytes - at) {
            return NULL;
        }
    } while (!atomic_compare_exchange_weak_explicit(&r->used, &at, at + need, memory_order_relaxed,
                                                    memory_order_relaxed));
    return r->base + at;
}

/* From Linux 6.17 on pages are released under the lock of their own area; before that in slices, so that other
 * threads get the lock of all areas in between. */
static uint64_t slice_bytes(void)
{
    struct utsname u;
    int major = 0;
    int minor = 0;

    if (uname(&u) == 0 && sscanf(u.release, "%d.%d", &major, &minor) == 2 &&
        (major > 6 || (major == 6 && minor >= 17))) {
        return RANGE_MOST;
    }
    return HUGE_PAGE;
}

void onnx_pool_give(struct onnx_pool *p, struct onnx_range **range)
{
    struct onnx_range *r = *range;
    const uint64_t slice = slice_bytes();
    const uint64_t used = round_up(atomic_load_explicit(&r->used, memory_order_relaxed), HUGE_PAGE);

    for (uint64_t at = 0; at < used && at < r->bytes; at += slice) {
        const uint64_t n = r->bytes - at < slice ? r->bytes - at : slice;
        madvise(r->base + at, n, MADV_DONTNEED);
    }
    pthread_mutex_lock(&p->lock);
    r->in_use = 0;
    idle_trim(p);
    pthread_mutex_unlock(&p->lock);
    *range = NULL;
}

uint64_t onnx_range_resident(const struct onnx_range *r)
{
    const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    unsigned char marks[4096];
    uint64_t pages = 0;

    for (uint64_t at = 0; at < r->bytes; at += sizeof marks * page) {
        const uint64_t n =
            r->bytes - at < sizeof marks * page ? r->bytes - at : sizeof marks * page;
        if (mincore(r->base + at, n, marks) != 0) {
            return 0;
        }
        for (uint64_t i = 0; i < n / page; i++) {
            pages += marks[i] & 1;
        }
    }
    return pages * page;
}
