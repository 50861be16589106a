/* Maps: many keys against a plain array, removal in every order, keys that are odd. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "base/map.h"
#include "base/mem.h"
#include "base/rng.h"
#include "base/thread.h"

#define KEYS 5000

static mr_str key_of(char buf[32], unsigned i)
{
    int n = snprintf(buf, 32, "model-%u", i * 7919u);

    return mr_str_n(buf, (size_t)n);
}

static void an_empty_map(void **state)
{
    struct mr_map m = {0};
    size_t pos = 0;

    (void)state;
    assert_null(mr_map_find(&m, MR_STR("x")));
    assert_null(mr_map_remove(&m, MR_STR("x")));
    assert_null(mr_map_next(&m, &pos));
    mr_map_fini(&m);
}

static void puts_finds_replaces_removes(void **state)
{
    struct mr_map m = {0};
    int a;
    int b;
    char key[] = "key";

    (void)state;
    assert_null(mr_map_put(&m, mr_str_c(key), &a));
    key[0] = 'x'; /* the map has its own copy */
    assert_ptr_equal(mr_map_find(&m, MR_STR("key")), &a);
    assert_null(mr_map_find(&m, MR_STR("xey")));
    assert_null(mr_map_find(&m, MR_STR("ke")));
    assert_ptr_equal(mr_map_put(&m, MR_STR("key"), &b), &a);
    assert_int_equal(m.len, 1);
    assert_null(mr_map_put(&m, MR_STR(""), &a));
    assert_null(mr_map_put(&m, mr_str_n("\0\0", 2), &a));
    assert_null(mr_map_put(&m, mr_str_n("\0", 1), &b));
    assert_ptr_equal(mr_map_find(&m, (mr_str){NULL, 0}), &a);
    assert_ptr_equal(mr_map_find(&m, mr_str_n("\0", 1)), &b);
    assert_int_equal(m.len, 4);
    assert_ptr_equal(mr_map_remove(&m, MR_STR("key")), &b);
    assert_null(mr_map_remove(&m, MR_STR("key")));
    assert_int_equal(m.len, 3);
    mr_map_fini(&m);
    assert_null(m.slots);
}

static void check_all(const struct mr_map *m, const int *values, const bool *is_in, size_t count)
{
    char buf[32];
    size_t len = 0;

    for (unsigned i = 0; i < count; i++) {
        const int *want = is_in[i] ? &values[i] : NULL;
        assert_ptr_equal(mr_map_find(m, key_of(buf, i)), want);
        len += is_in[i];
    }
    assert_int_equal(m->len, len);
}

static void many_keys_in_random_order(void **state)
{
    static int values[KEYS];
    static bool is_in[KEYS];
    struct mr_map m = {0};
    struct mr_rng rng;
    char buf[32];

    (void)state;
    mr_rng_seed(&rng, 1);
    for (unsigned step = 0; step < KEYS * 8; step++) {
        unsigned i = (unsigned)(mr_rng_u64(&rng) % KEYS);
        /* Fill in the first half, empty in the second. */
        bool puts = mr_rng_u64(&rng) % 8 < (step < KEYS * 4 ? 6u : 2u);
        void *old =
            puts ? mr_map_put(&m, key_of(buf, i), &values[i]) : mr_map_remove(&m, key_of(buf, i));
        assert_ptr_equal(old, is_in[i] ? &values[i] : NULL);
        is_in[i] = puts;
        if (step % (KEYS * 2) == 0) {
            check_all(&m, values, is_in, KEYS);
        }
    }
    check_all(&m, values, is_in, KEYS);

    size_t pos = 0;
    size_t count = 0;
    struct mr_map_slot *slot;
    while ((slot = mr_map_next(&m, &pos))) {
        size_t i = (size_t)((int *)slot->value - values);
        assert_true(i < KEYS && is_in[i]);
        assert_int_equal(slot->key.ptr[slot->key.len], 0);
        count++;
    }
    assert_int_equal(count, m.len);
    mr_map_fini(&m);
}

/* In a table that is nearly all one run, each removal shifts across the end of the array. */
static void removal_closes_every_hole(void **state)
{
    enum { COUNT = 10 };
    char buf[32];
    int values[COUNT];
    bool is_in[COUNT];

    (void)state;
    for (unsigned seed = 0; seed < 500; seed++) {
        struct mr_map m = {0};
        struct mr_rng rng;
        mr_rng_seed(&rng, seed);
        for (unsigned i = 0; i < COUNT; i++) {
            mr_map_put(&m, key_of(buf, i), &values[i]);
            is_in[i] = true;
        }
        for (unsigned n = 0; n < COUNT; n++) {
            unsigned i = (unsigned)(mr_rng_u64(&rng) % COUNT);
            mr_map_remove(&m, key_of(buf, i));
            is_in[i] = false;
            check_all(&m, values, is_in, COUNT);
        }
        mr_map_fini(&m);
    }
}

static void hashes_spread(void **state)
{
    static unsigned buckets[256];
    char buf[32];

    (void)state;
    assert_true(mr_hash(MR_STR("a")) == mr_hash(MR_STR("a")));
    assert_true(mr_hash(MR_STR("a")) != mr_hash(MR_STR("b")));
    assert_true(mr_hash(MR_STR("")) != mr_hash(mr_str_n("\0", 1)));
    assert_true(mr_hash(MR_STR("12345678")) != mr_hash(MR_STR("123456789")));
    for (unsigned i = 0; i < 256 * 100; i++) {
        buckets[mr_hash(key_of(buf, i)) & 255]++;
    }
    for (unsigned i = 0; i < 256; i++) {
        assert_true(buckets[i] > 40 && buckets[i] < 180);
    }
}

static void *find_all(void *arg)
{
    const struct mr_map *m = arg;
    char buf[32];
    size_t found = 0;

    for (unsigned i = 0; i < 1000; i++) {
        found += mr_map_find(m, key_of(buf, i)) != NULL;
    }
    return (void *)found;
}

static void many_may_read(void **state)
{
    struct mr_map m = {0};
    pthread_t threads[3];
    char buf[32];

    (void)state;
    for (unsigned i = 0; i < 1000; i++) {
        mr_map_put(&m, key_of(buf, i), &m);
    }
    for (int i = 0; i < 3; i++) {
        assert_int_equal(mr_thread_start(&threads[i], "finder", find_all, &m, NULL), MR_OK);
    }
    for (int i = 0; i < 3; i++) {
        void *found;
        pthread_join(threads[i], &found);
        assert_int_equal((size_t)found, 1000);
    }
    mr_map_fini(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_empty_map),
        cmocka_unit_test(puts_finds_replaces_removes),
        cmocka_unit_test(many_keys_in_random_order),
        cmocka_unit_test(removal_closes_every_hole),
        cmocka_unit_test(hashes_spread),
        cmocka_unit_test(many_may_read),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
