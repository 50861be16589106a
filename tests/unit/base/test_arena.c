/* Arenas: alignment, the limit, large allocations, resets, cleanups, failing memory. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "base/arena.h"
#include "base_priv.h"

#define KIB ((size_t)1024)

static void allocations_are_aligned_and_apart(void **state)
{
    struct mr_arena a;
    char *before = NULL;

    (void)state;
    mr_arena_init(&a, 512, 1024 * KIB);
    for (size_t i = 0; i < 3000; i++) {
        size_t align = (size_t)1 << (i % 7);
        size_t bytes = i % 61;
        char *p = mr_arena_try(&a, bytes, align);
        assert_non_null(p);
        assert_int_equal((uintptr_t)p % align, 0);
        memset(p, (int)i, bytes);
        if (before) {
            assert_int_equal((unsigned char)*before, (unsigned char)(i - 1));
        }
        before = bytes ? p : NULL;
    }
    mr_arena_fini(&a);
    assert_int_equal(a.used, 0);
}

static void nothing_is_allocated_before_the_first_use(void **state)
{
    struct mr_arena a;

    (void)state;
    mr_arena_init(&a, 4096, 4096);
    assert_int_equal(a.used, 0);
    mr_arena_reset(&a);
    assert_int_equal(a.used, 0);
    mr_arena_fini(&a);
}

static void limit_is_hard(void **state)
{
    struct mr_arena a;
    size_t got = 0;

    (void)state;
    mr_arena_init(&a, 1024, 64 * KIB);
    while (mr_arena_try(&a, 100, 8)) {
        got += 100;
        assert_true(a.used <= 64 * KIB);
    }
    /* Nearly all of the limit was of use (an ASan build spends some on gaps). */
    assert_true(got > 64 * KIB * 3 / 4);
    assert_null(mr_arena_try(&a, SIZE_MAX, 1));
    assert_null(mr_arena_try(&a, SIZE_MAX - 8, 64));
    assert_null(mr_arena_try_array(&a, SIZE_MAX / 2, 3, 1));
    mr_arena_reset(&a);
    assert_non_null(mr_arena_try(&a, 100, 8));
    mr_arena_fini(&a);
}

static void limit_below_the_first_chunk(void **state)
{
    struct mr_arena a;

    (void)state;
    mr_arena_init(&a, 4096, 256);
    assert_non_null(mr_arena_try(&a, 100, 1));
    assert_null(mr_arena_try(&a, 400, 1));
    assert_true(a.used <= 256);
    mr_arena_fini(&a);
    mr_arena_init(&a, 4096, 0);
    assert_null(mr_arena_try(&a, 1, 1));
    mr_arena_fini(&a);
}

static void large_allocations_leave_the_chunk_in_use(void **state)
{
    struct mr_arena a;

    (void)state;
    mr_arena_init(&a, 4096, 1024 * KIB);
    char *small = mr_arena_try(&a, 16, 16);
    size_t used = a.used;
    char *large = mr_arena_try(&a, 100 * KIB, 64);
    char *next = mr_arena_try(&a, 16, 16);
    assert_int_equal((uintptr_t)large % 64, 0);
    memset(large, 1, 100 * KIB);
    assert_true(a.used >= used + 100 * KIB && a.used < used + 101 * KIB);
    assert_true(next > small && next < small + 4096);
    mr_arena_reset(&a);
    assert_int_equal(a.used, used);
    assert_ptr_equal(mr_arena_try(&a, 16, 16), small);
    mr_arena_fini(&a);
}

static void a_large_first_allocation(void **state)
{
    struct mr_arena a;

    (void)state;
    mr_arena_init(&a, 1024, 64 * KIB);
    char *p = mr_arena_try(&a, 32 * KIB, 1);
    assert_non_null(p);
    memset(p, 7, 32 * KIB);
    mr_arena_reset(&a);
    assert_int_equal(a.used, 1024);
    mr_arena_fini(&a);
}

static void reset_keeps_the_first_chunk_only(void **state)
{
    struct mr_arena a;

    (void)state;
    mr_arena_init(&a, 4096, 1024 * KIB);
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < 1000; i++) {
            assert_non_null(mr_arena_try(&a, 64, 8));
        }
        assert_true(a.used > 4096);
        mr_arena_reset(&a);
        assert_int_equal(a.used, 4096);
    }
    /* A warm arena needs the heap no more. */
    mr_mem_fail_after(1);
    assert_non_null(mr_arena_try(&a, 512, 8));
    mr_mem_fail_after(0);
    mr_arena_fini(&a);
}

static void arrays_are_zeroed_also_after_reset(void **state)
{
    struct mr_arena a;

    (void)state;
    mr_arena_init(&a, 4096, 64 * KIB);
    for (int round = 0; round < 2; round++) {
        int *n = MR_ARENA_ARRAY(&a, int, 100);
        for (int i = 0; i < 100; i++) {
            assert_int_equal(n[i], 0);
            n[i] = -1;
        }
        mr_arena_reset(&a);
    }
    mr_arena_fini(&a);
}

static void strings(void **state)
{
    struct mr_arena a;

    (void)state;
    mr_arena_init(&a, 256, 4 * KIB);
    mr_str s = mr_arena_str(&a, MR_STR("hello"));
    assert_string_equal(s.ptr, "hello");
    assert_int_equal(s.len, 5);
    s = mr_arena_str(&a, (mr_str){NULL, 0});
    assert_string_equal(s.ptr, "");
    s = mr_arena_printf(&a, "%s=%d", "x", 42);
    assert_string_equal(s.ptr, "x=42");
    assert_int_equal(s.len, 4);
    s = mr_arena_printf(&a, "%5000d", 1);
    assert_null(s.ptr);
    assert_int_equal(s.len, 0);
    mr_arena_fini(&a);
}

static void note(void *ctx)
{
    char **at = ctx;

    /* The address identifies the note. */
    *(*at)++ = 'x';
}

struct cleanup {
    char *log;
    char mark;
};

static char order[8];
static size_t order_len;

static void write_mark(void *ctx)
{
    order[order_len++] = ((struct cleanup *)ctx)->mark;
}

static void cleanups_run_newest_first_and_once(void **state)
{
    struct mr_arena a;
    struct cleanup one = {.mark = '1'};
    struct cleanup two = {.mark = '2'};
    char text[4] = {0};
    char *at = text;

    (void)state;
    order_len = 0;
    mr_arena_init(&a, 256, 4 * KIB);
    assert_true(mr_arena_on_free(&a, write_mark, &one));
    assert_true(mr_arena_on_free(&a, write_mark, &two));
    mr_arena_reset(&a);
    assert_int_equal(order_len, 2);
    assert_memory_equal(order, "21", 2);
    mr_arena_reset(&a);
    assert_int_equal(order_len, 2);
    assert_true(mr_arena_on_free(&a, note, &at));
    mr_arena_fini(&a);
    assert_string_equal(text, "x");
}

static void failing_memory(void **state)
{
    struct mr_arena a;

    (void)state;
    mr_arena_init(&a, 256, 64 * KIB);
    mr_mem_fail_after(1);
    assert_null(mr_arena_try(&a, 8, 8));
    assert_int_equal(a.used, 0);
    assert_non_null(mr_arena_try(&a, 8, 8));
    mr_mem_fail_after(1);
    assert_null(mr_arena_try(&a, 10 * KIB, 8));
    assert_non_null(mr_arena_try(&a, 10 * KIB, 8));
    mr_mem_fail_after(0);
    mr_arena_fini(&a);
}

#ifdef MR_WITH_ASAN
static void free_room_is_poisoned(void **state)
{
    struct mr_arena a;

    (void)state;
    mr_arena_init(&a, 4096, 64 * KIB);
    char *p = mr_arena_try(&a, 13, 1);
    assert_false(__asan_address_is_poisoned(p + 12));
    assert_true(__asan_address_is_poisoned(p + 13));
    char *q = mr_arena_try(&a, 8, 1);
    assert_true(__asan_address_is_poisoned(q - 1));
    mr_arena_reset(&a);
    assert_true(__asan_address_is_poisoned(p));
    mr_arena_fini(&a);
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(allocations_are_aligned_and_apart),
        cmocka_unit_test(nothing_is_allocated_before_the_first_use),
        cmocka_unit_test(limit_is_hard),
        cmocka_unit_test(limit_below_the_first_chunk),
        cmocka_unit_test(large_allocations_leave_the_chunk_in_use),
        cmocka_unit_test(a_large_first_allocation),
        cmocka_unit_test(reset_keeps_the_first_chunk_only),
        cmocka_unit_test(arrays_are_zeroed_also_after_reset),
        cmocka_unit_test(strings),
        cmocka_unit_test(cleanups_run_newest_first_and_once),
        cmocka_unit_test(failing_memory),
#ifdef MR_WITH_ASAN
        cmocka_unit_test(free_room_is_poisoned),
#endif
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
