/* `millrace perf`: the values that its options stand for, and what it fills inputs with. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "perf.h"

static int parse(const char *text, struct perf_range *r, struct mr_err *err)
{
    return perf_parse_range("rate", text, 0.5, 2000, false, r, err);
}

static void ranges(void **state)
{
    struct perf_range r;
    struct mr_err err;

    (void)state;
    assert_int_equal(parse("12.5", &r, &err), MR_OK);
    assert_int_equal(perf_range_count(&r), 1);
    assert_true(perf_range_at(&r, 0) == 12.5);
    assert_int_equal(parse("1:2:0.1", &r, &err), MR_OK);
    assert_int_equal(perf_range_count(&r), 11);
    assert_int_equal(parse("100:1000:400", &r, &err), MR_OK);
    assert_int_equal(perf_range_count(&r), 3);
    assert_true(perf_range_at(&r, 2) == 900);
    assert_int_equal(parse("1:2000:2", &r, &err), MR_OK);
    assert_int_equal(perf_range_count(&r), 1000);
}

static void bad_ranges_name_option_and_bounds(void **state)
{
    static const char *const bad[] = {"",      "x",      "0.4",      "2001",       "1:2", "2:1:1",
                                      "1:2:0", "1:2:-1", "1:2:1:1",  "nan",        "inf", "1::2",
                                      " 1",    "1e999",  "1:2000:1", "1:2001:500", NULL};
    struct perf_range r;
    struct mr_err err;

    (void)state;
    for (size_t i = 0; bad[i]; i++) {
        if (parse(bad[i], &r, &err) != MR_E_INVALID) {
            fail_msg("'%s' was taken", bad[i]);
        }
        assert_non_null(strstr(err.msg, "--rate"));
        assert_non_null(strstr(err.msg, "0.5 to 2000"));
    }
    assert_int_equal(perf_parse_range("concurrency", "1.5", 1, 9, true, &r, &err), MR_E_INVALID);
    assert_non_null(strstr(err.msg, "whole"));
}

static void values_follow_from_the_seed(void **state)
{
    static const int64_t shape[] = {3, 50};

    (void)state;
    for (int dtype = MR_DTYPE_BOOL; dtype < MR_DTYPE_COUNT; dtype++) {
        struct mr_array a;
        struct mr_array b;
        struct mr_rng rng;
        mr_array_init(&a);
        mr_array_init(&b);
        a.dtype = b.dtype = dtype;
        a.rank = b.rank = 2;
        memcpy(a.shape, shape, sizeof shape);
        memcpy(b.shape, shape, sizeof shape);
        mr_rng_seed(&rng, 5);
        assert_int_equal(perf_fill(&a, PERF_RANDOM, &rng, NULL), MR_OK);
        mr_rng_seed(&rng, 5);
        assert_int_equal(perf_fill(&b, PERF_RANDOM, &rng, NULL), MR_OK);
        size_t bytes = dtype == MR_DTYPE_BYTES ? 150 * 12 : 150 * mr_dtype_size(dtype);
        assert_int_equal(a.data.len, bytes);
        assert_int_equal(b.data.len, bytes);
        assert_memory_equal(a.data.ptr, b.data.ptr, bytes);
        assert_int_equal(perf_fill(&b, PERF_RANDOM, &rng, NULL), MR_OK);
        assert_true(memcmp(a.data.ptr, b.data.ptr, bytes) != 0);
        assert_int_equal(perf_fill(&b, PERF_ZEROS, &rng, NULL), MR_OK);
        for (size_t i = 0; i < b.data.len; i++) {
            assert_int_equal(b.data.ptr[i], 0);
        }
        mr_array_fini(&a);
        mr_array_fini(&b);
    }
}

/* Whatever the type: from 0 up, and below 1 where there are fractions. */
static void random_values_are_small(void **state)
{
    struct mr_array a;
    struct mr_rng rng;
    double sum = 0;

    (void)state;
    mr_array_init(&a);
    mr_rng_seed(&rng, 1);
    a.dtype = MR_DTYPE_INT64;
    a.rank = 1;
    a.shape[0] = 10000;
    assert_int_equal(perf_fill(&a, PERF_RANDOM, &rng, NULL), MR_OK);
    for (int i = 0; i < 10000; i++) {
        int64_t v;
        memcpy(&v, a.data.ptr + i * 8, sizeof v);
        assert_in_range(v, 0, 127);
        sum += (double)v;
    }
    assert_true(sum > 60 * 10000 && sum < 67 * 10000);
    a.dtype = MR_DTYPE_FP32;
    assert_int_equal(perf_fill(&a, PERF_RANDOM, &rng, NULL), MR_OK);
    for (int i = 0; i < 10000; i++) {
        float v;
        memcpy(&v, a.data.ptr + i * 4, sizeof v);
        assert_true(v >= 0 && v < 1);
    }
    mr_array_fini(&a);
}

static void too_large_is_refused(void **state)
{
    struct mr_array a;
    struct mr_rng rng;

    (void)state;
    mr_array_init(&a);
    mr_rng_seed(&rng, 1);
    a.dtype = MR_DTYPE_FP32;
    a.rank = 2;
    a.shape[0] = a.shape[1] = INT64_C(1) << 20;
    assert_int_equal(perf_fill(&a, PERF_RANDOM, &rng, NULL), MR_E_TOO_LARGE);
    a.shape[0] = a.shape[1] = INT64_C(1) << 40;
    assert_true(perf_fill(&a, PERF_RANDOM, &rng, NULL) < 0);
    mr_array_fini(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranges),
        cmocka_unit_test(bad_ranges_name_option_and_bounds),
        cmocka_unit_test(values_follow_from_the_seed),
        cmocka_unit_test(random_values_are_small),
        cmocka_unit_test(too_large_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
