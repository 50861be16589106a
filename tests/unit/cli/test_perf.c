/* `millrace perf`: the values of its options, and the content of its inputs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>

#include "cli/perf/report/perf_against.h"

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
    assert_int_equal(parse("100:200", &r, &err), MR_OK); /* in ten steps */
    assert_int_equal(perf_range_count(&r), 11);
    assert_true(perf_range_at(&r, 1) == 110);
    assert_int_equal(parse("7:7", &r, &err), MR_OK);
    assert_int_equal(perf_range_count(&r), 1);
    assert_int_equal(perf_parse_range("concurrency", "1:4", 1, 9, true, &r, &err), MR_OK);
    assert_int_equal(perf_range_count(&r), 4);
}

static void bad_ranges_name_option_and_bounds(void **state)
{
    static const char *const bad[] = {"",      "x",      "0.4",      "2001",       "1:1:0", "0.1:1",
                                      "1:2:0", "1:2:-1", "1:2:1:1",  "nan",        "inf",   "1::2",
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
    assert_int_equal(parse("2:1", &r, &err), MR_E_INVALID);
    assert_non_null(strstr(err.msg, "FROM is larger than TO"));
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

static void objectives(void **state)
{
    static const char *const bad[] = {"",         "p99",      "p99=",     "p99=5",     "p0=5ms",
                                      "p101=5ms", "q99=5ms",  "p99=0ms",  "p99=61s",   "=5ms",
                                      "p=5ms",    "pnan=1ms", "p99=-1ms", "p99=nanms", NULL};
    struct perf_objective o;
    struct mr_err err;

    (void)state;
    assert_int_equal(perf_parse_objective("p99.9=2.5ms", &o, &err), MR_OK);
    assert_string_equal(o.name, "p99.9");
    assert_true(o.q > 0.998999 && o.q < 0.999001);
    assert_int_equal(o.limit_ns, 2500000);
    assert_int_equal(perf_parse_objective("max=60s", &o, &err), MR_OK);
    assert_true(o.q == 1 && o.limit_ns == UINT64_C(60000000000));
    assert_int_equal(perf_parse_objective("p50=800us", &o, &err), MR_OK);
    assert_int_equal(o.limit_ns, 800000);
    for (size_t i = 0; bad[i]; i++) {
        if (perf_parse_objective(bad[i], &o, &err) != MR_E_INVALID) {
            fail_msg("'%s' was taken", bad[i]);
        }
        assert_non_null(strstr(err.msg, "--objective"));
    }
}

/* Loads up to `best` are fine; every third answer is wrong. */
struct probed {
    int64_t best;
    bool lies;
    unsigned calls;
    size_t fails_at;
};

static int probe(void *ctx, size_t i, struct mr_err *err)
{
    struct probed *p = ctx;
    bool fine = (int64_t)i <= p->best;

    p->calls++;
    if (p->fails_at && p->calls == p->fails_at) {
        return MR_FAIL(err, MR_E_UNAVAILABLE, "gone");
    }
    return p->lies && p->calls % 3 == 0 ? !fine : fine;
}

static void search_finds_the_last_fine_load(void **state)
{
    struct mr_err err;
    int64_t found;

    (void)state;
    for (size_t count = 1; count < 40; count++) {
        for (int64_t best = -1; best < (int64_t)count; best++) {
            struct probed p = {.best = best};
            assert_int_equal(perf_search(count, 1, probe, &p, &found, &err), MR_OK);
            assert_int_equal(found, best);
            assert_true(p.calls <= 6);
            p = (struct probed){.best = best, .lies = true};
            assert_int_equal(perf_search(count, 3, probe, &p, &found, &err), MR_OK);
            assert_int_equal(found, best);
        }
    }
    struct probed p = {.best = 3, .fails_at = 4};
    assert_int_equal(perf_search(30, 3, probe, &p, &found, &err), MR_E_UNAVAILABLE);
    assert_string_equal(err.msg, "gone");
}

static void an_objective_holds_without_failures_only(void **state)
{
    struct mr_perf_result *r = MR_NEW(struct mr_perf_result);
    struct perf_objective o = {.q = 0.99, .limit_ns = 1000000};

    (void)state;
    assert_false(perf_holds(&o, r));
    mr_hdr_add_n(&r->latency, 900000, 99);
    mr_hdr_add(&r->latency, 5000000);
    r->answered = 100;
    assert_true(perf_holds(&o, r));
    mr_hdr_add(&r->latency, 5000000);
    assert_false(perf_holds(&o, r));
    mr_hdr_add_n(&r->latency, 900000, 900);
    assert_true(perf_holds(&o, r));
    r->failed = 1;
    assert_false(perf_holds(&o, r));
    mr_free(r);
}

/* ---- comparing ---- */

static const char report[] =
    "{\"format\":1,\"new member\":[{}],\"runs\":["
    "{\"load\":{\"concurrency\":4,\"threads\":1},\"rate\":99.5,"
    "\"latency_ns\":{\"p50\":1000,\"p99\":5000,\"max\":9},"
    "\"intervals_ns\":{\"p50\":[900,1100],\"p99\":[4000,null],\"p99.9\":[null,null]}},"
    "{\"load\":{\"rate\":200,\"poisson\":true,\"threads\":1},\"rate\":200.5}]}";

static void earlier_reports_are_read(void **state)
{
    struct perf_old old = {0};
    struct mr_err err;
    struct mr_perf_load load = {.concurrency = 4};

    (void)state;
    assert_int_equal(perf_old_parse(mr_str_c(report), &old, &err), MR_OK);
    assert_int_equal(old.runs.len, 2);
    const struct perf_old_run *r = perf_old_find(&old, &load);
    assert_non_null(r);
    assert_true(r->answers == 99.5);
    assert_int_equal(r->at[0].value, 1000);
    assert_int_equal(r->at[0].low, 900);
    assert_int_equal(r->at[0].high, 1100);
    assert_int_equal(r->at[3].low, 4000);
    assert_true(r->at[3].high == UINT64_MAX);
    assert_true(r->at[4].low == 0 && r->at[4].high == UINT64_MAX);
    load = (struct mr_perf_load){.rate = 200, .poisson = true};
    assert_ptr_equal(perf_old_find(&old, &load), &old.runs.at[1]);
    load.poisson = false;
    assert_null(perf_old_find(&old, &load));
    load = (struct mr_perf_load){.concurrency = 5};
    assert_null(perf_old_find(&old, &load));
    perf_old_fini(&old);
}

static void what_is_no_report_is_refused(void **state)
{
    static const char *const bad[] = {"",
                                      "[]",
                                      "{}",
                                      "{\"runs\":[]}",
                                      "{\"runs\":{}}",
                                      "{\"runs\":[1]}",
                                      "{\"runs\":[{\"latency_ns\":{\"p50\":-1}}]}",
                                      "{\"runs\":[{\"intervals_ns\":{\"p50\":[1.5]}}]}",
                                      NULL};
    struct mr_err err;

    (void)state;
    for (size_t i = 0; bad[i]; i++) {
        struct perf_old old = {0};
        if (perf_old_parse(mr_str_c(bad[i]), &old, &err) != MR_E_INVALID) {
            fail_msg("'%s' was taken", bad[i]);
        }
        perf_old_fini(&old);
    }
    /* Cut off anywhere. */
    for (size_t n = 0; n + 1 < sizeof report - 1; n++) {
        struct perf_old old = {0};
        assert_int_equal(perf_old_parse(mr_str_n(report, n), &old, &err), MR_E_INVALID);
        perf_old_fini(&old);
    }
}

static void a_difference_is_told_when_intervals_do_not_meet(void **state)
{
    const struct perf_estimate old = {1000, 900, 1100};
    const struct perf_estimate slow = {2200, 1800, 2400};
    const struct perf_estimate near = {1150, 1000, 1300};
    const struct perf_estimate open = {1500, 1200, UINT64_MAX};

    (void)state;
    struct perf_ratio r = perf_ratio_of(&slow, &old);
    assert_int_equal(r.verdict, 1);
    assert_true(fabs(r.value - 2.2) < 1e-9 && fabs(r.low - 1800.0 / 1100) < 1e-9 &&
                fabs(r.high - 2400.0 / 900) < 1e-9);
    assert_int_equal(perf_ratio_of(&old, &slow).verdict, -1);
    assert_int_equal(perf_ratio_of(&near, &old).verdict, 0);
    assert_int_equal(perf_ratio_of(&old, &near).verdict, 0);
    r = perf_ratio_of(&open, &old);
    assert_true(r.verdict == 1 && isinf(r.high));
    r = perf_ratio_of(&old, &open);
    assert_true(r.verdict == -1 && r.low == 0);
    assert_int_equal(perf_ratio_of(&slow, &open).verdict, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranges),
        cmocka_unit_test(bad_ranges_name_option_and_bounds),
        cmocka_unit_test(values_follow_from_the_seed),
        cmocka_unit_test(random_values_are_small),
        cmocka_unit_test(too_large_is_refused),
        cmocka_unit_test(objectives),
        cmocka_unit_test(search_finds_the_last_fine_load),
        cmocka_unit_test(earlier_reports_are_read),
        cmocka_unit_test(what_is_no_report_is_refused),
        cmocka_unit_test(a_difference_is_told_when_intervals_do_not_meet),
        cmocka_unit_test(an_objective_holds_without_failures_only),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
