/* The histogram for reports: three digits from a nanosecond to a minute, ranks, quantiles. */
#include "base/hdr_histogram.h"
#include "base/mem.h"
#include "hist_check.h"

static const struct hist_buckets buckets = {mr_hdr_bucket, mr_hdr_upper, MR_HDR_BUCKETS,
                                            UINT64_C(1) << 36, 0.001};

static struct mr_hdr_histogram *make(void)
{
    return MR_NEW(struct mr_hdr_histogram);
}

static void buckets_join_without_gaps(void **state)
{
    (void)state;
    check_buckets(&buckets);
    assert_true(buckets.end > UINT64_C(60000000000));
}

static void three_digits(void **state)
{
    (void)state;
    check_error(&buckets);
}

static void ranks_and_quantiles(void **state)
{
    struct mr_hdr_histogram *h = make();

    (void)state;
    assert_int_equal(mr_hdr_quantile(h, 0.5), 0);
    for (uint64_t v = 1; v <= 1000; v++) {
        mr_hdr_add(h, v);
    }
    assert_int_equal(mr_hdr_quantile(h, 0), 1);
    assert_int_equal(mr_hdr_quantile(h, 0.5), 500);
    assert_int_equal(mr_hdr_quantile(h, 0.999), 999);
    assert_int_equal(mr_hdr_quantile(h, 0.9999), 1000);
    assert_int_equal(mr_hdr_quantile(h, 1), 1000);
    assert_int_equal(mr_hdr_at_rank(h, 0), 1);
    assert_int_equal(mr_hdr_at_rank(h, 7), 7);
    assert_int_equal(mr_hdr_at_rank(h, 5000), 1000);
    mr_free(h);
}

static void never_more_than_the_largest(void **state)
{
    struct mr_hdr_histogram *h = make();

    (void)state;
    mr_hdr_add(h, 1000001);
    assert_int_equal(mr_hdr_quantile(h, 0.5), 1000001);
    mr_hdr_add(h, UINT64_C(90000000000));
    assert_true(mr_hdr_quantile(h, 1) == UINT64_C(90000000000));
    assert_int_equal(h->min, 1000001);
    mr_free(h);
}

static void merge_is_adding_all(void **state)
{
    struct mr_hdr_histogram *one = make();
    struct mr_hdr_histogram *a = make();
    struct mr_hdr_histogram *b = make();

    (void)state;
    mr_hdr_merge(a, b);
    assert_int_equal(a->total, 0);
    for (uint64_t v = 5; v < UINT64_C(3000000000); v = v * 3 / 2) {
        mr_hdr_add_n(one, v, 3);
        mr_hdr_add_n(v % 2 ? a : b, v, 3);
    }
    mr_hdr_merge(a, b);
    assert_memory_equal(one, a, sizeof *one);
    assert_true(mr_hdr_mean(one) == (double)one->sum / (double)one->total);
    mr_free(one);
    mr_free(a);
    mr_free(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(buckets_join_without_gaps), cmocka_unit_test(three_digits),
        cmocka_unit_test(ranks_and_quantiles),       cmocka_unit_test(never_more_than_the_largest),
        cmocka_unit_test(merge_is_adding_all),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
