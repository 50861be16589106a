/* Ranges of addresses of the ONNX Runtime backend: which one a version gets, and that pages go while addresses
 * stay. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "onnxruntime/weights/parameters.h"

#define MB UINT64_C(1048576)
#define GB (1024 * MB)

static int begin(void **state)
{
    static struct onnx_pool pool;
    onnx_pool_init(&pool);
    *state = &pool;
    return 0;
}

static int end(void **state)
{
    onnx_pool_fini(*state);
    return 0;
}

static uint64_t reserved(const struct onnx_pool *p)
{
    uint64_t sum = 0;
    for (const struct onnx_range *r = p->ranges; r; r = r->next) {
        sum += r->bytes;
    }
    return sum;
}

static void memory(void **state)
{
    struct onnx_range *r = onnx_pool_take(*state, "m", 10 * MB);
    uint8_t *last = NULL;
    uint64_t count = 0;

    assert_non_null(r);
    assert_int_equal((uintptr_t)r->base % (2 * MB), 0);
    assert_true(r->bytes >= 10 * MB);
    assert_int_equal(onnx_range_resident(r), 0);
    for (uint8_t *p; (p = onnx_range_alloc(r, 100001)); last = p, count++) {
        assert_int_equal((uintptr_t)p % 64, 0);
        assert_true(!last || p >= last + 100001);
        assert_true(onnx_range_has(r, p) && onnx_range_has(r, p + 100000));
        memset(p, (int)count, 100001);
    }
    assert_true(count >= 100 && r->used <= r->bytes);
    assert_null(onnx_range_alloc(r, UINT64_MAX));
    assert_null(onnx_range_alloc(r, UINT64_MAX - 100));
    assert_false(onnx_range_has(r, r->base + r->bytes));
    assert_false(onnx_range_has(r, &count));
    assert_true(onnx_range_resident(r) >= count * 100001);
    struct onnx_range *same = r;
    onnx_pool_give(*state, &r);
    assert_null(r);
    assert_int_equal(onnx_range_resident(same), 0);
    r = onnx_pool_take(*state, "m", 10 * MB);
    assert_ptr_equal(r, same);
    assert_int_equal(r->used, 0);
    assert_int_equal(*(uint64_t *)onnx_range_alloc(r, 8), 0);
    onnx_pool_give(*state, &r);
}

/* A hundred updates go back and forth between two ranges. */
static void updates(void **state)
{
    struct onnx_range *old = onnx_pool_take(*state, "m", 20 * MB);
    struct onnx_range *other = onnx_pool_take(*state, "n", 20 * MB);
    uint64_t after_two = 0;

    for (int i = 0; i < 100; i++) {
        struct onnx_range *fresh = onnx_pool_take(*state, "m", 20 * MB);
        assert_ptr_not_equal(fresh, old);
        assert_ptr_not_equal(fresh, other);
        onnx_pool_give(*state, &old);
        old = fresh;
        after_two = i == 1 ? reserved(*state) : after_two;
    }
    assert_int_equal(reserved(*state), after_two);
    onnx_pool_give(*state, &old);
    onnx_pool_give(*state, &other);
}

/* The second range of a model that is served is kept for it; one of a model that is not serves anybody. */
static void owners(void **state)
{
    struct onnx_range *a = onnx_pool_take(*state, "m", 10 * MB);
    struct onnx_range *b = onnx_pool_take(*state, "m", 30 * MB);
    struct onnx_range *c;
    struct onnx_range *spare = b;
    struct onnx_range *first = a;

    onnx_pool_give(*state, &b);
    c = onnx_pool_take(*state, "n", 10 * MB);
    assert_ptr_not_equal(c, spare);
    onnx_pool_give(*state, &a); /* nothing of m is left */
    b = onnx_pool_take(*state, "n", 5 * MB);
    assert_ptr_equal(b, first); /* the smallest that fits */
    a = onnx_pool_take(*state, "o", 20 * MB);
    assert_ptr_equal(a, spare);
    onnx_pool_give(*state, &a);
    onnx_pool_give(*state, &b);
    onnx_pool_give(*state, &c);
}

/* Unused addresses are bounded, whatever was allocated and freed. */
static void bounded(void **state)
{
    struct onnx_range *r;

    for (uint64_t n = 1; n <= 40; n++) { /* a model that grows */
        r = onnx_pool_take(*state, "m", n * 100 * MB);
        assert_non_null(r);
        onnx_pool_give(*state, &r);
    }
    assert_true(reserved(*state) <= GB);
    r = onnx_pool_take(*state, "n", 4 * GB);
    for (int i = 0; i < 40; i++) {
        char name[8] = {'m', (char)('a' + i), 0};
        struct onnx_range *other = onnx_pool_take(*state, name, GB);
        onnx_pool_give(*state, &other);
    }
    assert_true(reserved(*state) <= 2 * r->bytes);
    onnx_pool_give(*state, &r);
    assert_null(onnx_pool_take(*state, "huge", UINT64_MAX));
    assert_null(onnx_pool_take(*state, "huge", UINT64_C(1) << 47));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(memory, begin, end),
        cmocka_unit_test_setup_teardown(updates, begin, end),
        cmocka_unit_test_setup_teardown(owners, begin, end),
        cmocka_unit_test_setup_teardown(bounded, begin, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
