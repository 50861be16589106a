/* Memory: zeroing, alignment, checked sizes, the failure hook; and MR_VEC and the clock, which are
 * headers only. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/vec.h"
#include "base_priv.h"

static void zeroed_and_aligned(void **state)
{
    (void)state;
    for (size_t bytes = 0; bytes < 300; bytes += 7) {
        unsigned char *p = mr_alloc_aligned(bytes);
        unsigned char *q = mr_alloc_array(bytes, 1);
        assert_int_equal((uintptr_t)p % MR_CACHE_LINE, 0);
        for (size_t i = 0; i < bytes; i++) {
            assert_int_equal(p[i] | q[i], 0);
        }
        mr_free(p);
        mr_freep(&q);
        assert_null(q);
    }
    char *s = mr_strndup("hello", 3);
    assert_string_equal(s, "hel");
    mr_free(s);
    s = mr_strndup(NULL, 0);
    assert_string_equal(s, "");
    mr_free(s);
    mr_free(NULL);
    void *p = mr_mem_try_aligned(4096, 5000);
    assert_int_equal((uintptr_t)p % 4096, 0);
    mr_free(p);
    assert_null(mr_mem_try_aligned(64, SIZE_MAX - 3));
}

static void sizes_are_checked(void **state)
{
    size_t out = 77;

    (void)state;
    assert_false(mr_size_mul(SIZE_MAX / 2, 3, &out));
    assert_false(mr_size_add(SIZE_MAX, 1, &out));
    assert_int_equal(out, 77);
    assert_true(mr_size_mul(6, 7, &out));
    assert_int_equal(out, 42);
    assert_true(mr_size_add(SIZE_MAX - 1, 1, &out));
    assert_true(out == SIZE_MAX);
}

static void the_nth_try_fails_once(void **state)
{
    (void)state;
    mr_mem_fail_after(3);
    void *a = mr_try_alloc(1);
    void *b = mr_try_realloc(NULL, 10);
    assert_non_null(a);
    assert_non_null(b);
    assert_null(mr_try_realloc(b, 20));
    void *c = mr_try_alloc(0);
    assert_non_null(c);
    mr_free(a);
    mr_free(b);
    mr_free(c);
}

static void vectors(void **state)
{
    MR_VEC(int) v = {0};

    (void)state;
    for (int i = 0; i < 1000; i++) {
        MR_VEC_PUSH(&v, i);
    }
    assert_int_equal(v.len, 1000);
    for (int i = 0; i < 1000; i++) {
        assert_int_equal(v.at[i], i);
    }
    MR_VEC_FINI(&v);
    assert_null(v.at);
    assert_int_equal(v.cap, 0);
}

static void deadlines_saturate(void **state)
{
    int64_t now = mr_now_ns();

    (void)state;
    assert_true(now > 0 && mr_now_ns() >= now);
    assert_true(mr_wall_ns() > INT64_C(1700000000) * MR_NS_PER_S);
    assert_true(mr_ns_after(5, 6) == 11);
    assert_true(mr_ns_after(5, -6) == 5);
    assert_true(mr_ns_after(5, INT64_MAX) == INT64_MAX);
}

static int64_t next_of(int64_t *io)
{
    return ++*io;
}

static void arguments_are_evaluated_once(void **state)
{
    int64_t n = 0;
    uint8_t small = 200;

    (void)state;
    assert_int_equal(MR_MIN(next_of(&n), 10), 1);
    assert_int_equal(MR_MAX(10, MR_MAX(0, next_of(&n))), 10);
    assert_int_equal(n, 2);
    assert_int_equal(MR_MAX(small, 300), 300);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(zeroed_and_aligned),     cmocka_unit_test(sizes_are_checked),
        cmocka_unit_test(the_nth_try_fails_once), cmocka_unit_test(vectors),
        cmocka_unit_test(deadlines_saturate),     cmocka_unit_test(arguments_are_evaluated_once),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
