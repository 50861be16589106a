/* Heap memory: malloc with two policies.
 *
 * mr_alloc and its like are for start-up, loading and small bookkeeping. They end the process when memory is out: one
 * exit is better than a thousand untested recoveries. The try_ forms are for sizes that a peer influences; they
 * return NULL, and tests can let any of them fail (mr_mem_fail_after) to exercise the error paths. */
#include "base/mem.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base_priv.h"

/* Allocations until one fails, 0 = off. Relaxed: it orders nothing. */
static _Atomic uint64_t fail_countdown;

void mr_mem_fail_after(uint64_t n)
{
    atomic_store_explicit(&fail_countdown, n, memory_order_relaxed);
}

bool mr_mem_must_fail(void)
{
    uint64_t left = atomic_load_explicit(&fail_countdown, memory_order_relaxed);

    while (left != 0) {
        if (atomic_compare_exchange_weak_explicit(&fail_countdown, &left, left - 1,
                                                  memory_order_relaxed, memory_order_relaxed)) {
            return left == 1;
        }
    }
    return false;
}

static _Noreturn void die_without_memory(size_t bytes)
{
    fprintf(stderr, "millrace: out of memory (%zu bytes wanted)\n", bytes);
    abort();
}

/* malloc(0) may give NULL, which callers would take for a failure. */
static size_t at_least_one(size_t bytes)
{
    return bytes ? bytes : 1;
}

void *mr_alloc(size_t bytes)
{
    void *p = calloc(1, at_least_one(bytes));

    if (!p) {
        die_without_memory(bytes);
    }
    return p;
}

void *mr_alloc_array(size_t count, size_t size)
{
    size_t bytes = 0;

    if (!mr_size_mul(count, size, &bytes)) {
        die_without_memory(SIZE_MAX);
    }
    return mr_alloc(bytes);
}

/* aligned_alloc wants a size that is a multiple of the alignment. False when that overflows. */
static bool round_up(size_t bytes, size_t align, size_t *out)
{
    size_t sum;

    if (!mr_size_add(at_least_one(bytes), align - 1, &sum)) {
        return false;
    }
    *out = sum & ~(align - 1);
    return true;
}

void *mr_alloc_aligned(size_t bytes)
{
    size_t rounded;
    void *p = NULL;

    if (round_up(bytes, MR_CACHE_LINE, &rounded)) {
        p = aligned_alloc(MR_CACHE_LINE, rounded);
    }
    if (!p) {
        die_without_memory(bytes);
    }
    return memset(p, 0, rounded);
}

void *mr_mem_try_aligned(size_t align, size_t bytes)
{
    size_t rounded;

    if (mr_mem_must_fail() || !round_up(bytes, align, &rounded)) {
        return NULL;
    }
    return aligned_alloc(align, rounded);
}

char *mr_strndup(const char *s, size_t len)
{
    size_t bytes = 0;

    if (!mr_size_add(len, 1, &bytes)) {
        die_without_memory(len);
    }
    char *p = mr_alloc(bytes);
    if (len) {
        memcpy(p, s, len);
    }
    return p;
}

void *mr_try_alloc(size_t bytes)
{
    return mr_mem_must_fail() ? NULL : malloc(at_least_one(bytes));
}

void *mr_try_realloc(void *ptr, size_t bytes)
{
    return mr_mem_must_fail() ? NULL : realloc(ptr, at_least_one(bytes));
}

void *mr_realloc_array(void *ptr, size_t count, size_t size)
{
    size_t bytes;
    void *p = NULL;

    if (mr_size_mul(count, size, &bytes)) {
        p = realloc(ptr, at_least_one(bytes));
    } else {
        bytes = SIZE_MAX;
    }
    if (!p) {
        die_without_memory(bytes);
    }
    return p;
}

void mr_free(void *ptr)
{
    free(ptr);
}
