/* The bump allocator.
 *
 * Chunks form a list, newest first; the last one is the first one made, which resets keep. `pos` and `end` bound the
 * free room of the newest ordinary chunk. An allocation that is large compared with a chunk gets a chunk of its own,
 * so that the room left in the ordinary chunk stays in use. Every chunk, header included, is counted in `used`.
 *
 * In an ASan build free room is poisoned and each allocation is followed by a poisoned gap. */
#include "base/arena.h"

#include <stdarg.h>
#include <stdio.h>

#include "base/err.h"
#include "base_priv.h"

#define DEFAULT_FIRST_BYTES ((size_t)4096)
#define GROWN_BYTES_MAX     ((size_t)64 * 1024)
#define ALIGN_MAX           ((size_t)64)
/* What malloc promises; more is made by moving up inside the chunk. */
#define CHUNK_ALIGN _Alignof(max_align_t)

#ifdef MR_WITH_ASAN
#    define GAP_BYTES ((size_t)16)
/* Poisoning works in steps of eight bytes. */
#    define ALIGN_MIN ((size_t)8)
#else
#    define GAP_BYTES ((size_t)0)
#    define ALIGN_MIN ((size_t)1)
#endif

struct mr_arena_chunk {
    _Alignas(max_align_t) struct mr_arena_chunk *next;
    size_t bytes; /* header included */
};

struct mr_arena_cleanup {
    struct mr_arena_cleanup *next;
    void (*fn)(void *ctx);
    void *ctx;
};

static char *chunk_data(struct mr_arena_chunk *c)
{
    return (char *)(c + 1);
}

static char *chunk_end(struct mr_arena_chunk *c)
{
    return (char *)c + c->bytes;
}

void mr_arena_init(struct mr_arena *a, size_t first_bytes, size_t limit)
{
    *a = (struct mr_arena){
        .first_bytes = first_bytes ? first_bytes : DEFAULT_FIRST_BYTES,
        .limit = limit,
    };
}

static void run_cleanups(struct mr_arena *a)
{
    while (a->cleanups) {
        struct mr_arena_cleanup *c = a->cleanups;
        a->cleanups = c->next;
        c->fn(c->ctx);
    }
}

static void chunk_free(struct mr_arena *a, struct mr_arena_chunk *c)
{
    MR_UNPOISON(chunk_data(c), c->bytes - sizeof *c);
    a->used -= c->bytes;
    mr_free(c);
}

void mr_arena_fini(struct mr_arena *a)
{
    run_cleanups(a);
    while (a->chunks) {
        struct mr_arena_chunk *c = a->chunks;
        a->chunks = c->next;
        chunk_free(a, c);
    }
    a->pos = a->end = NULL;
}

static void bump_in(struct mr_arena *a, struct mr_arena_chunk *c)
{
    a->pos = chunk_data(c);
    a->end = chunk_end(c);
}

void mr_arena_reset(struct mr_arena *a)
{
    run_cleanups(a);
    if (!a->chunks) {
        return;
    }
    while (a->chunks->next) {
        struct mr_arena_chunk *c = a->chunks;
        a->chunks = c->next;
        chunk_free(a, c);
    }
    bump_in(a, a->chunks);
    MR_POISON(a->pos, (size_t)(a->end - a->pos));
}

/* A listed chunk of `bytes` in all, its data poisoned; NULL past the limit or without memory. */
static struct mr_arena_chunk *chunk_new(struct mr_arena *a, size_t bytes)
{
    if (bytes > a->limit - a->used) {
        return NULL;
    }
    struct mr_arena_chunk *c = mr_try_alloc(bytes);
    if (!c) {
        return NULL;
    }
    c->bytes = bytes;
    c->next = a->chunks;
    a->chunks = c;
    a->used += bytes;
    MR_POISON(chunk_data(c), bytes - sizeof *c);
    return c;
}

/* Take from the free room, or NULL when it does not fit. `bytes` > 0. */
static void *bump(struct mr_arena *a, size_t bytes, size_t align)
{
    size_t skip = (size_t)(-(uintptr_t)a->pos & (align - 1));
    size_t room = (size_t)(a->end - a->pos);

    if (skip > room || bytes > room - skip) {
        return NULL;
    }
    char *p = a->pos + skip;
    size_t left = room - skip - bytes;
    a->pos = p + bytes + MR_MIN(GAP_BYTES, left);
    MR_UNPOISON(p, bytes);
    return p;
}

/* Size of the next ordinary chunk: about as much as there is already, within bounds. */
static size_t next_chunk_bytes(const struct mr_arena *a)
{
    size_t bytes = MR_MIN(a->used, GROWN_BYTES_MAX);

    bytes = MR_MAX(bytes, a->first_bytes);
    bytes = MR_MAX(bytes, sizeof(struct mr_arena_chunk) * 4);
    return MR_MIN(bytes, a->limit - a->used);
}

static void *alloc_in_new_chunk(struct mr_arena *a, size_t bytes, size_t align)
{
    size_t slack = sizeof(struct mr_arena_chunk) + (align > CHUNK_ALIGN ? align - CHUNK_ALIGN : 0);
    size_t need;

    if (!mr_size_add(bytes, slack, &need)) {
        return NULL;
    }
    size_t ordinary = next_chunk_bytes(a);
    if (!a->chunks || need <= ordinary / 4) {
        if (ordinary < sizeof(struct mr_arena_chunk)) {
            return NULL;
        }
        struct mr_arena_chunk *c = chunk_new(a, ordinary);
        if (!c) {
            return NULL;
        }
        bump_in(a, c);
        void *p = bump(a, bytes, align);
        if (p) {
            return p;
        }
    }
    struct mr_arena_chunk *own = chunk_new(a, need);
    if (!own) {
        return NULL;
    }
    char *p = chunk_data(own);
    p += (size_t)(-(uintptr_t)p & (align - 1));
    MR_UNPOISON(p, bytes);
    return p;
}

void *mr_arena_try_slow(struct mr_arena *a, size_t bytes, size_t align)
{
    MR_ASSERT(align > 0 && align <= ALIGN_MAX && (align & (align - 1)) == 0);
    align = MR_MAX(align, ALIGN_MIN);
    bytes = MR_MAX(bytes, (size_t)1);
    void *p = a->pos ? bump(a, bytes, align) : NULL;
    return p ? p : alloc_in_new_chunk(a, bytes, align);
}

mr_str mr_arena_str(struct mr_arena *a, mr_str s)
{
    size_t bytes;
    char *p = mr_size_add(s.len, 1, &bytes) ? mr_arena_try(a, bytes, 1) : NULL;

    if (!p) {
        return (mr_str){NULL, 0};
    }
    if (s.len) {
        memcpy(p, s.ptr, s.len);
    }
    p[s.len] = '\0';
    return (mr_str){p, s.len};
}

mr_str mr_arena_printf(struct mr_arena *a, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    char *p = n < 0 ? NULL : mr_arena_try(a, (size_t)n + 1, 1);
    if (!p) {
        return (mr_str){NULL, 0};
    }
    va_start(ap, fmt);
    vsnprintf(p, (size_t)n + 1, fmt, ap);
    va_end(ap);
    return (mr_str){p, (size_t)n};
}

bool mr_arena_on_free(struct mr_arena *a, void (*fn)(void *ctx), void *ctx)
{
    struct mr_arena_cleanup *c = MR_ARENA_NEW(a, struct mr_arena_cleanup);

    if (!c) {
        return false;
    }
    *c = (struct mr_arena_cleanup){.next = a->cleanups, .fn = fn, .ctx = ctx};
    a->cleanups = c;
    return true;
}
