/* Metrics that models define: who owns them, what is refused, and the text. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "shm/metrics.h"

#define NUMBERS 16384u /* in all */

static const int owners[2];

static struct mr_metric_args gauge(const char *name)
{
    return (struct mr_metric_args){
        .size = sizeof(struct mr_metric_args), .kind = MR_METRIC_GAUGE, .name = name, .help = "h"};
}

static void print_is(struct mr_metrics *m, const char *expected)
{
    struct mr_buf b;

    mr_buf_init(&b, 0);
    mr_metrics_print(m, &b);
    assert_string_equal(mr_buf_cstr(&b), expected);
    mr_buf_fini(&b);
}

static void test_owners(void **state)
{
    struct mr_metrics *m;
    struct mr_metrics_view *v;
    struct mr_metric *one;
    struct mr_metric_args a = gauge("level");
    const struct mr_setting labels[] = {{"of", "x\n\"\\"}};
    uint64_t first, second;
    struct mr_err err;

    (void)state;
    assert_int_equal(mr_metrics_new(&m, &err), MR_OK);
    assert_int_equal(mr_metrics_view_open(&v, mr_metrics_fd(m), &err), MR_OK);
    a.labels = labels;
    a.label_count = 1;
    a.help = "a\\b\nc";
    assert_int_equal(mr_metrics_add(m, &owners[0], &a, &first, &err), MR_OK);
    assert_int_equal(mr_metrics_add(m, &owners[0], &a, &second, &err), MR_OK);
    a.help = "of an update, which does not count while the first is there";
    assert_int_equal(mr_metrics_add(m, &owners[1], &a, &second, &err), MR_OK);
    assert_int_equal(first, second);
    assert_int_equal(mr_metric_open(&one, v, &a, first, &err), MR_OK);
    mr_metric_set(one, 2);
    mr_metric_add(one, -1.9);
    mr_metrics_leave(m, &owners[0]);
    print_is(m, "# HELP level a\\\\b\\nc\n# TYPE level gauge\nlevel{of=\"x\\n\\\"\\\\\"} "
                "0.10000000000000009\n");
    mr_metrics_leave(m, &owners[1]);
    print_is(m, "");
    assert_int_equal(mr_metrics_add(m, &owners[1], &a, &second, &err), MR_OK);
    assert_true(mr_metric_value(one) == 0); /* the number is used again */
    mr_free(one);
    mr_metrics_view_close(&v);
    mr_metrics_free(&m);
}

/* Two models name the same labels in different orders: one metric, which both own. */
static void test_order_of_labels(void **state)
{
    const struct mr_setting ab[] = {{"a", "2"}, {"b", "1"}}, ba[] = {{"b", "1"}, {"a", "2"}};
    struct mr_metrics *m;
    struct mr_metric_args a = gauge("level");
    uint64_t first, second;
    struct mr_err err;

    (void)state;
    assert_int_equal(mr_metrics_new(&m, &err), MR_OK);
    a.label_count = 2;
    a.labels = ba;
    assert_int_equal(mr_metrics_add(m, &owners[0], &a, &first, &err), MR_OK);
    a.labels = ab;
    assert_int_equal(mr_metrics_add(m, &owners[1], &a, &second, &err), MR_OK);
    assert_int_equal(first, second);
    print_is(m, "# HELP level h\n# TYPE level gauge\nlevel{a=\"2\",b=\"1\"} 0\n");
    mr_metrics_free(&m);
}

static void test_histogram(void **state)
{
    struct mr_metrics *m;
    struct mr_metrics_view *v;
    struct mr_metric *one;
    const double bounds[] = {0.1, 5};
    struct mr_metric_args a = gauge("s");
    uint64_t cell;
    struct mr_err err;

    (void)state;
    a.kind = MR_METRIC_HISTOGRAM;
    a.bounds = bounds;
    a.bound_count = 2;
    assert_int_equal(mr_metrics_new(&m, &err), MR_OK);
    assert_int_equal(mr_metrics_view_open(&v, mr_metrics_fd(m), &err), MR_OK);
    assert_int_equal(mr_metrics_add(m, owners, &a, &cell, &err), MR_OK);
    assert_int_equal(mr_metric_open(&one, v, &a, NUMBERS - 3, &err), MR_E_INVALID);
    assert_int_equal(mr_metric_open(&one, v, &a, cell, &err), MR_OK);
    mr_metric_add(one, 0.1);
    mr_metric_add(one, 6);
    assert_true(mr_metric_value(one) == 2);
    print_is(m, "# HELP s h\n# TYPE s histogram\ns_bucket{le=\"0.1\"} 1\ns_bucket{le=\"5\"} 1\n"
                "s_bucket{le=\"+Inf\"} 2\ns_sum 6.1\ns_count 2\n");
    mr_free(one);
    mr_metrics_view_close(&v);
    mr_metrics_free(&m);
}

static void refused(struct mr_metrics *m, const struct mr_metric_args *a, const char *why)
{
    struct mr_err err;
    uint64_t cell;

    mr_err_clear(&err);
    assert_int_equal(mr_metrics_add(m, owners, a, &cell, &err), MR_E_INVALID);
    assert_non_null(strstr(err.msg, why));
}

static void test_refusals(void **state)
{
    static const char *const names[] = {"", "1a", "a b", "nv_x", "millrace_x", "\xc3\xa4"};
    const struct mr_setting twice[] = {{"a", "1"}, {"a", "2"}}, reserved[] = {{"__a", "1"}},
                            le[] = {{"le", "1"}}, broken[] = {{"a", "\xff"}};
    const double falling[] = {2, 1}, bound[] = {1};
    struct mr_metrics *m;
    struct mr_metric_args a;
    struct mr_err err;

    (void)state;
    assert_int_equal(mr_metrics_new(&m, &err), MR_OK);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        a = gauge(names[i]);
        refused(m, &a, "cannot be the name of a metric");
    }
    a = gauge("x");
    a.labels = twice;
    a.label_count = 2;
    refused(m, &a, "'a' cannot be the name of a label");
    a.labels = reserved;
    a.label_count = 1;
    refused(m, &a, "'__a' cannot be the name of a label");
    a.labels = broken;
    refused(m, &a, "UTF-8");
    a.labels = le;
    a.kind = MR_METRIC_HISTOGRAM;
    refused(m, &a, "'le' cannot be the name of a label");
    a.label_count = 0;
    refused(m, &a, "a histogram needs 1 to 128");
    a.bounds = falling;
    a.bound_count = 2;
    refused(m, &a, "have to ascend");
    a = gauge("x");
    a.bounds = bound;
    a.bound_count = 1;
    refused(m, &a, "which histograms have only");
    a = gauge("x");
    a.kind = 3;
    refused(m, &a, "a kind of");
    print_is(m, "");
    mr_metrics_free(&m);
}

static void test_exhausted(void **state)
{
    struct mr_metrics *m;
    struct mr_err err;
    uint64_t cell;
    char name[32];

    (void)state;
    assert_int_equal(mr_metrics_new(&m, &err), MR_OK);
    for (unsigned i = 0; i <= NUMBERS; i++) {
        snprintf(name, sizeof name, "%u", i);
        const struct mr_setting label = {"i", name};
        struct mr_metric_args a = gauge("many");
        a.labels = &label;
        a.label_count = 1;
        const int rc = mr_metrics_add(m, owners, &a, &cell, &err);
        assert_int_equal(rc, i < NUMBERS ? MR_OK : MR_E_EXHAUSTED);
    }
    struct mr_metric_args other = gauge("other");
    assert_int_equal(mr_metrics_add(m, owners, &other, &cell, &err), MR_E_EXHAUSTED);
    mr_metrics_leave(m, owners);
    print_is(m, ""); /* no family is left without a metric */
    assert_int_equal(mr_metrics_add(m, owners, &other, &cell, &err), MR_OK);
    mr_metrics_free(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_owners),    cmocka_unit_test(test_order_of_labels),
        cmocka_unit_test(test_histogram), cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_exhausted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
