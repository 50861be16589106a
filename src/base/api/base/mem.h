/* Heap memory and checked sizes. Only `base` calls malloc; everything else calls these. */
#ifndef MR_BASE_MEM_H
#define MR_BASE_MEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Defined for AddressSanitizer: no allocation is cached, and arenas leave gaps. */
#if defined(__SANITIZE_ADDRESS__)
#    define MR_WITH_ASAN 1
#elif defined(__has_feature)
#    if __has_feature(address_sanitizer)
#        define MR_WITH_ASAN 1
#    endif
#endif

/** The smaller or larger of two numbers, in the type that they have in common. Each is evaluated once. */
#define MR_MIN(a, b)                MR_BASE_CHOOSE(a, <, b, __COUNTER__)
#define MR_MAX(a, b)                MR_BASE_CHOOSE(a, >, b, __COUNTER__)
#define MR_BASE_CHOOSE(a, op, b, n) MR_BASE_CHOOSE_(a, op, b, n)
#define MR_BASE_CHOOSE_(a, op, b, n)                                                               \
    __extension__({                                                                                \
        __typeof__(1 ? (a) : (b)) a_##n = (a), b_##n = (b);                                        \
        a_##n op b_##n ? a_##n : b_##n;                                                            \
    })
#define MR_CACHE_LINE 64

/** Zeroed memory; aborts the process when memory is out. For start-up, loading and small bookkeeping. Sizes that a
 *  peer chose go through the try_ forms. */
void *mr_alloc(size_t bytes);
void *mr_alloc_array(size_t count, size_t size);
/** Aligned to a cache line, zeroed; free with mr_free. */
void *mr_alloc_aligned(size_t bytes);
/** Copy of `len` bytes plus a NUL. */
char *mr_strndup(const char *s, size_t len);
/** NULL when there is no memory. Not zeroed. */
void *mr_try_alloc(size_t bytes);
void *mr_try_realloc(void *ptr, size_t bytes);
/** Grow an array (aborts without memory). */
void *mr_realloc_array(void *ptr, size_t count, size_t size);
void mr_free(void *ptr);
/** Free and null: mr_freep(&x). */
#define mr_freep(pp) (mr_free(*(pp)), *(pp) = NULL)

#define MR_NEW(type)          ((type *)mr_alloc(sizeof(type)))
#define MR_NEW_ARRAY(type, n) ((type *)mr_alloc_array((n), sizeof(type)))

/** Checked arithmetic for sizes from outside: false on overflow, *out untouched. */
static inline bool mr_size_mul(size_t a, size_t b, size_t *out)
{
    size_t r;
    if (__builtin_mul_overflow(a, b, &r)) {
        return false;
    }
    *out = r;
    return true;
}

static inline bool mr_size_add(size_t a, size_t b, size_t *out)
{
    size_t r;
    if (__builtin_add_overflow(a, b, &r)) {
        return false;
    }
    *out = r;
    return true;
}

/** Test hook: lets allocation number n (1 = next) of the try_ forms fail once; 0 = off. Arenas, buffers and blocks
 *  use these forms. */
void mr_mem_fail_after(uint64_t n);

#endif
