/* Buckets, borders, and readers beside a writer. */
#include "variant/choice.h"

#include <pthread.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static void keys_have_the_buckets_that_the_header_promises(void **state)
{
    (void)state;
    /* computed by another program from the words of the header */
    assert_int_equal(mr_variant_bucket(MR_STR(""), MR_STR("")), 2267);
    assert_int_equal(mr_variant_bucket(MR_STR("rec-2026-09"), MR_STR("user-1")), 6863);
    assert_int_equal(mr_variant_bucket(MR_STR("rec-2026-09"), MR_STR("user-2")), 9552);
    assert_int_equal(mr_variant_bucket(MR_STR("rec-2026-0"), MR_STR("9user-1")), 7637);
    assert_int_equal(mr_variant_bucket(MR_STR("s"), MR_STR("\xe6\x96\x87")), 5389);
}

static unsigned owned(const struct mr_variant_table *t, unsigned variant)
{
    unsigned n = 0;

    for (unsigned b = 0; b < MR_VARIANT_BUCKETS; b++) {
        n += mr_variant_of(t, b) == variant;
    }
    return n;
}

static void ranges_are_the_shares(void **state)
{
    struct mr_variant_table t = {0};
    (void)state;

    mr_variant_table_set(&t, (double[]){95, 5}, 2);
    assert_int_equal(owned(&t, 0), 9500);
    assert_int_equal(owned(&t, 1), 500);
    mr_variant_table_set(&t, (double[]){1, 1, 1}, 3);
    assert_int_equal(owned(&t, 0), 3333);
    assert_int_equal(owned(&t, 1), 3334);
    assert_int_equal(owned(&t, 2), 3333);
    mr_variant_table_set(&t, (double[]){0, 7, 0}, 3);
    assert_int_equal(owned(&t, 1), MR_VARIANT_BUCKETS);
    assert_false(mr_variant_is_used(&t, 0));
    assert_true(mr_variant_is_used(&t, 1));
    assert_false(mr_variant_is_used(&t, 2));
    assert_false(mr_variant_is_used(&t, 3));
}

static void a_weight_above_zero_owns_a_bucket(void **state)
{
    struct mr_variant_table t = {0};
    double weights[MR_VARIANTS_MAX];
    (void)state;

    for (unsigned i = 0; i < MR_VARIANTS_MAX; i++) {
        weights[i] = i == 7 ? 1e6 : 1e-300;
    }
    mr_variant_table_set(&t, weights, MR_VARIANTS_MAX);
    for (unsigned i = 0; i < MR_VARIANTS_MAX; i++) {
        assert_int_equal(owned(&t, i), i == 7 ? MR_VARIANT_BUCKETS - MR_VARIANTS_MAX + 1 : 1);
    }
}

static void another_weight_moves_the_border_alone(void **state)
{
    struct mr_variant_table a = {0}, b = {0};
    (void)state;

    mr_variant_table_set(&a, (double[]){95, 5}, 2);
    mr_variant_table_set(&b, (double[]){90, 10}, 2);
    for (unsigned i = 0; i < MR_VARIANT_BUCKETS; i++) {
        assert_int_equal(mr_variant_of(&a, i) != mr_variant_of(&b, i), i >= 9000 && i < 9500);
    }
}

static void what_is_spread_keeps_to_the_shares_all_along(void **state)
{
    struct mr_variant_table t = {0};
    uint64_t spread = 0;
    double seen[3] = {0};
    (void)state;

    mr_variant_table_set(&t, (double[]){90, 7, 3}, 3);
    for (unsigned n = 1; n <= 100000; n++) {
        seen[mr_variant_of(&t, mr_variant_spread(&spread))]++;
        const double most = 63 - __builtin_clzll(n) + 3;
        assert_true(seen[0] - n * 0.90 < most && n * 0.90 - seen[0] < most);
        assert_true(seen[1] - n * 0.07 < most && n * 0.07 - seen[1] < most);
        assert_true(seen[2] - n * 0.03 < most && n * 0.03 - seen[2] < most);
    }
}

static void check(const double *weights, size_t count, const char *text)
{
    const mr_str tags[] = {MR_STR("a"), MR_STR("b"), MR_STR("c")};
    struct mr_err err = {0};

    if (!text) {
        assert_int_equal(mr_variant_weights_check(weights, tags, count, &err), MR_OK);
        return;
    }
    assert_int_equal(mr_variant_weights_check(weights, tags, count, &err), MR_E_INVALID);
    assert_string_equal(err.msg, text);
}

static void bad_weights_are_refused(void **state)
{
    (void)state;
    check((double[]){1, 0, 1e6}, 3, NULL);
    check((double[]){0}, 0, "0 variants, possible are 1 to 32");
    check((double[]){0, 0}, 2, "all weights are 0: one has to be above");
    check((double[]){1, -1}, 2, "variant 2 'b' has weight -1, possible is 0 to 1000000");
    check((double[]){1e6 + 1}, 1, "variant 1 'a' has weight 1000001, possible is 0 to 1000000");
    check((double[]){1, __builtin_nan(""), 1}, 3,
          "variant 2 'b' has weight NaN, possible is 0 to 1000000");
    check((double[]){__builtin_inf()}, 1,
          "variant 1 'a' has weight Infinity, possible is 0 to 1000000");
}

/* Two tables that no mixture of equals: a reader that saw parts of both would find variant 1. */
static struct mr_variant_table shared;
static _Atomic bool is_over;

static void *write_both(void *unused)
{
    (void)unused;
    for (unsigned i = 0; i < 20000; i++) {
        const bool first = i & 1;
        mr_variant_table_set(&shared, (double[]){first, 0, !first}, 3);
    }
    is_over = true;
    return NULL;
}

static void readers_see_whole_tables(void **state)
{
    pthread_t writer;
    (void)state;

    mr_variant_table_set(&shared, (double[]){1, 0, 0}, 3);
    assert_int_equal(pthread_create(&writer, NULL, write_both, NULL), 0);
    do {
        assert_int_not_equal(mr_variant_of(&shared, 5000), 1);
        assert_false(mr_variant_is_used(&shared, 1));
    } while (!is_over);
    pthread_join(writer, NULL);
    assert_int_equal(mr_variant_of(&shared, 0), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keys_have_the_buckets_that_the_header_promises),
        cmocka_unit_test(ranges_are_the_shares),
        cmocka_unit_test(a_weight_above_zero_owns_a_bucket),
        cmocka_unit_test(another_weight_moves_the_border_alone),
        cmocka_unit_test(what_is_spread_keeps_to_the_shares_all_along),
        cmocka_unit_test(bad_weights_are_refused),
        cmocka_unit_test(readers_see_whole_tables),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
