/* The histogram: bucket edges, error bound, quantiles, a reader beside the writer. */
#include <math.h>

#include "base/hist.h"
#include "base/mem.h"
#include "base/thread.h"
#include "hist_check.h"

static const struct hist_buckets buckets = {mr_hist_bucket, mr_hist_upper, MR_HIST_BUCKETS,
                                            UINT64_C(1) << 40, 0.125};

static void buckets_join_without_gaps(void **state)
{
    (void)state;
    check_buckets(&buckets);
    assert_true(mr_hist_upper(MR_HIST_BUCKETS + 7) == (UINT64_C(1) << 40) - 1);
}

static void error_is_below_an_eighth(void **state)
{
    (void)state;
    check_error(&buckets);
}

static void quantiles(void **state)
{
    struct mr_hist *h = MR_NEW(struct mr_hist);

    (void)state;
    assert_int_equal(mr_hist_quantile(h, 0.5), 0);
    for (uint64_t v = 1; v <= 1000; v++) {
        mr_hist_add(h, v);
    }
    assert_int_equal(mr_hist_total(h), 1000);
    assert_int_equal(mr_count_get(&h->sum), 500500);
    static const double qs[] = {0.001, 0.01, 0.1, 0.25, 0.5, 0.9, 0.99, 0.999, 1.0};
    uint64_t before = 0;
    for (size_t i = 0; i < sizeof qs / sizeof qs[0]; i++) {
        double exact = qs[i] * 1000;
        uint64_t got = mr_hist_quantile(h, qs[i]);
        assert_true((double)got >= exact - 1e-6 && (double)got <= exact * 1.125 + 1);
        assert_true(got >= before);
        before = got;
    }
    assert_int_equal(mr_hist_quantile(h, 0), 1);
    assert_int_equal(mr_hist_quantile(h, -1), 1);
    assert_int_equal(mr_hist_quantile(h, NAN), 1);
    assert_int_equal(mr_hist_quantile(h, 2), mr_hist_quantile(h, 1));

    struct mr_hist *sum = MR_NEW(struct mr_hist);
    mr_hist_merge(sum, h);
    mr_hist_merge(sum, h);
    assert_int_equal(mr_hist_total(sum), 2000);
    assert_int_equal(mr_count_get(&sum->sum), 1001000);
    assert_int_equal(mr_hist_quantile(sum, 0.5), mr_hist_quantile(h, 0.5));
    mr_free(sum);
    mr_free(h);
}

#define ADDS 20000

static void *add_many(void *arg)
{
    for (uint64_t i = 0; i < ADDS; i++) {
        mr_hist_add(arg, i);
    }
    return NULL;
}

static void read_beside_the_writer(void **state)
{
    struct mr_hist *h = MR_NEW(struct mr_hist);
    pthread_t thread;
    uint64_t seen = 0;

    (void)state;
    assert_int_equal(mr_thread_start(&thread, "writer", add_many, h, NULL), MR_OK);
    while (seen < ADDS) {
        uint64_t total = mr_hist_total(h);
        assert_true(total >= seen);
        (void)mr_hist_quantile(h, 0.99);
        seen = total;
    }
    pthread_join(thread, NULL);
    assert_int_equal(mr_count_get(&h->sum), (uint64_t)ADDS * (ADDS - 1) / 2);
    mr_free(h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(buckets_join_without_gaps),
        cmocka_unit_test(error_is_below_an_eighth),
        cmocka_unit_test(quantiles),
        cmocka_unit_test(read_beside_the_writer),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
