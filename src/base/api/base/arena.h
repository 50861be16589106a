/* A bump allocator with a hard limit: everything small that belongs to one request lives here and
 * dies with it in one step. Not for tensor bulk data. One thread at a time.
 *
 * The first chunk is kept over resets, so that a warm request allocates nothing from the heap. */
#ifndef MR_BASE_ARENA_H
#define MR_BASE_ARENA_H

#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "base/str.h"

struct mr_arena_chunk;
struct mr_arena_cleanup;

struct mr_arena {
    char *pos;
    char *end;
    struct mr_arena_chunk *chunks; /* newest first; the last one is the kept first chunk */
    struct mr_arena_cleanup *cleanups;
    size_t used;  /* bytes in chunks taken from the heap */
    size_t limit; /* most bytes `used` may reach */
    size_t first_bytes;
};

/** Caller's memory. No allocation happens before the first use.
 *  first_bytes  size of the kept chunk, bookkeeping included, 0 = 4096. */
void mr_arena_init(struct mr_arena *a, size_t first_bytes, size_t limit);
/** Runs cleanups (newest first), frees everything. */
void mr_arena_fini(struct mr_arena *a);
/** Runs cleanups, forgets all content, keeps the first chunk. */
void mr_arena_reset(struct mr_arena *a);

/** The path of mr_arena_try if the newest chunk has no room, and always in a build with AddressSanitizer. */
void *mr_arena_try_slow(struct mr_arena *a, size_t bytes, size_t align);
/** `bytes` aligned to `align` (power of two, <= 64), not zeroed. NULL past the limit or without
 *  memory; the arena stays usable. */
static inline void *mr_arena_try(struct mr_arena *a, size_t bytes, size_t align)
{
#ifndef MR_WITH_ASAN
    size_t skip = (size_t)(-(uintptr_t)a->pos & (align - 1));
    size_t room = (size_t)(a->end - a->pos);

    if (__builtin_expect(bytes - 1 < room && skip <= room - bytes, 1)) {
        char *p = a->pos + skip;
        a->pos = p + bytes;
        return p;
    }
#endif
    return mr_arena_try_slow(a, bytes, align);
}
/** As mr_arena_try, zeroed, for n elements; checks the multiplication. */
static inline void *mr_arena_try_array(struct mr_arena *a, size_t n, size_t size, size_t align)
{
    size_t bytes;

    if (!mr_size_mul(n, size, &bytes)) {
        return NULL;
    }
    void *p = mr_arena_try(a, bytes, align);
    if (p) {
        memset(p, 0, bytes);
    }
    return p;
}
#define MR_ARENA_NEW(a, type) ((type *)mr_arena_try_array((a), 1, sizeof(type), _Alignof(type)))
#define MR_ARENA_ARRAY(a, type, n)                                                                 \
    ((type *)mr_arena_try_array((a), (n), sizeof(type), _Alignof(type)))
/** return MR_ARENA_FAIL(err); where the arena of a request has no more room. */
#define MR_ARENA_FAIL(err)                                                                         \
    MR_FAIL((err), MR_E_EXHAUSTED, "the request needs more memory than it may use")
/** A NUL-terminated copy; ptr NULL on failure. */
mr_str mr_arena_str(struct mr_arena *a, mr_str s);
/** printf into the arena; ptr NULL on failure. */
mr_str mr_arena_printf(struct mr_arena *a, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
/** Calls fn(ctx) at reset or fini. False on failure; fn is then not called. */
bool mr_arena_on_free(struct mr_arena *a, void (*fn)(void *ctx), void *ctx);

#endif
