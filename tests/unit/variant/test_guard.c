/* Guards: what is refused and where, what holds. */
#include "variant/guard.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "base/clock.h"

static const mr_str tags[] = {MR_STR_INIT("stable"), MR_STR_INIT("cand"), MR_STR_INIT("v2-beta")};

/* 1000 requests of which `errors` failed; the others took 1 to 1000 times ms / 1000. */
static void fill(struct mr_variant_sums *s, unsigned errors, double ms)
{
    struct mr_variant_cell cell = {0};

    for (unsigned i = 0; i < 1000; i++) {
        mr_variant_cell_add(&cell, i < errors ? MR_E_INTERNAL : MR_OK,
                            (int64_t)(ms * 1000.0 * (i + 1)));
    }
    *s = (struct mr_variant_sums){0};
    mr_variant_sums_add(s, &cell);
}

static int verdict(const char *text, const struct mr_variant_sums *sums, const char *reason)
{
    struct mr_guard g;
    struct mr_err err = {0};
    char got[MR_GUARD_REASON];

    if (mr_guard_parse(&g, mr_str_c(text), tags, 3, 1, &err) < 0) {
        fail_msg("%s: %s", text, err.msg);
    }
    int v = mr_guard_eval(&g, sums, got);
    if (reason) {
        assert_string_equal(got, reason);
    }
    return v;
}

static void conditions_are_judged(void **state)
{
    struct mr_variant_sums sums[3];
    (void)state;

    fill(&sums[0], 1, 10);
    fill(&sums[1], 5, 11);
    fill(&sums[2], 0, 30);
    assert_int_equal(verdict("err < 0.0051 && p99_ms < 1.2*stable.p99_ms", sums, ""),
                     MR_GUARD_HOLDS);
    assert_int_equal(verdict("err < 0.002 && p99_ms < 1.2*stable.p99_ms", sums,
                             "err < 0.002 does not hold: left 0.005, right 0.002"),
                     MR_GUARD_BROKEN);
    assert_int_equal(verdict("err<=0.005||0>1", sums, ""), MR_GUARD_HOLDS);
    assert_int_equal(verdict("count == 1000 && count != 999 && 1 >= 1", sums, ""), MR_GUARD_HOLDS);
    assert_int_equal(verdict("!(err > 0.1) && !(1 < 0)", sums, ""), MR_GUARD_HOLDS);
    assert_int_equal(verdict("!err<1", sums, "!err<1 does not hold"), MR_GUARD_BROKEN);
    assert_int_equal(
        verdict("!(err>1) && err<0.002", sums, "err<0.002 does not hold: left 0.005, right 0.002"),
        MR_GUARD_BROKEN);
    assert_int_equal(verdict("(err>1 || err<1) && err<0.002", sums,
                             "err<0.002 does not hold: left 0.005, right 0.002"),
                     MR_GUARD_BROKEN);
    assert_int_equal(verdict("'v2-beta'.p50_ms > 2.5*cand.p50_ms", sums, ""), MR_GUARD_HOLDS);
    assert_int_equal(verdict("1+2*3-4/2 == 5 && -(-1) == 1 && 10-3-2 == 5", sums, ""),
                     MR_GUARD_HOLDS);
    assert_int_equal(verdict("(1+2)*3 == 9 && 2-(3-4) == 3 && 1 < 2 || 1 < 0", sums, ""),
                     MR_GUARD_HOLDS);
    assert_int_equal(verdict("1 < 0 && 1 < 0 || 1 < 2", sums, ""), MR_GUARD_HOLDS);
    assert_int_equal(verdict("mean_ms/stable.mean_ms < 1.2", sums, ""), MR_GUARD_HOLDS);
}

static void quantiles_are_interpolated(void **state)
{
    struct mr_variant_sums sums[3];
    (void)state;

    fill(&sums[1], 0, 100);
    for (int i = 50; i <= 99; i += 7) {
        const double got = mr_variant_sums_quantile_ms(&sums[1], i / 100.0);
        assert_true(fabs(got - i) < 1);
    }
    assert_true(fabs(mr_variant_sums_mean_ms(&sums[1]) - 50.05) < 0.01);
    assert_int_equal(verdict("p999_ms > p99_ms && p99_ms > p50_ms", sums, ""), MR_GUARD_HOLDS);
}

static void what_is_not_defined_is_unknown(void **state)
{
    struct mr_variant_sums sums[3];
    (void)state;

    fill(&sums[0], 0, 10);
    fill(&sums[1], 0, 10);
    sums[2] = (struct mr_variant_sums){0};
    assert_int_equal(
        verdict("err/stable.err < 2", sums, "err/stable.err < 2 has a number that is not defined"),
        MR_GUARD_UNKNOWN);
    assert_int_equal(verdict("'v2-beta'.p99_ms < 1", sums, NULL), MR_GUARD_UNKNOWN);
    assert_int_equal(verdict("'v2-beta'.p99_ms < 1 && 1 < 0", sums, NULL), MR_GUARD_BROKEN);
    assert_int_equal(verdict("'v2-beta'.p99_ms < 1 || 0 < 1", sums, NULL), MR_GUARD_HOLDS);
    assert_int_equal(verdict("!('v2-beta'.err < 1)", sums, NULL), MR_GUARD_UNKNOWN);
    sums[1].errors = 1;
    assert_int_equal(verdict("err/stable.err < 2", sums, NULL), MR_GUARD_BROKEN); /* infinite */
}

static void errors_of_clients_count_apart(void **state)
{
    struct mr_variant_cell cell = {0};
    struct mr_variant_sums sums[3] = {0};
    (void)state;

    mr_variant_cell_add(&cell, MR_OK, 5);
    mr_variant_cell_add(&cell, MR_E_INVALID, 5);
    mr_variant_cell_add(&cell, MR_E_UNAVAILABLE, 5);
    mr_variant_cell_add(&cell, MR_E_CANCELLED, 5);
    mr_variant_cell_add(&cell, MR_OK, -5);
    mr_variant_sums_add(&sums[1], &cell);
    assert_int_equal(sums[1].cancelled, 1);
    assert_int_equal(verdict("count == 4 && err == 0.5 && server_err == 0.25", sums, ""),
                     MR_GUARD_HOLDS);
    mr_variant_sums_since(&sums[1], &sums[1], &sums[1]);
    assert_int_equal(sums[1].count + sums[1].errors + sums[1].latency_sum_ns, 0);
}

static void what_is_wrong_is_named_with_its_column(void **state)
{
    static const struct {
        const char *text, *error;
    } bad[] = {
        {"err",
         "guard \"err\" column 1: a number, where a condition is needed, such as err < 0.01"},
        {"err <", "guard \"err <\" column 6: a number, a metric or '(' is needed here"},
        {"error < 1", "guard \"error < 1\" column 1: no such metric: there are err, server_err, "
                      "count, mean_ms and quantiles such as p50_ms, p99_ms, p999_ms"},
        {"other.err < 1", "guard \"other.err < 1\" column 1: there is no variant of this tag"},
        {"p100_ms < 1", "guard \"p100_ms < 1\" column 1: no such metric: there are err, "
                        "server_err, count, mean_ms and quantiles such as p50_ms, p99_ms, p999_ms"},
        {"p00_ms < 1", "guard \"p00_ms < 1\" column 1: no such metric: there are err, server_err, "
                       "count, mean_ms and quantiles such as p50_ms, p99_ms, p999_ms"},
        {"stable.p9_ms < 1", "guard \"stable.p9_ms < 1\" column 8: no such metric: there are err, "
                             "server_err, count, mean_ms and quantiles such as p50_ms, p99_ms, "
                             "p999_ms"},
        {"'stable' < 1",
         "guard \"'stable' < 1\" column 9: '.' and a metric are needed after a tag"},
        {"'stable.err < 1",
         "guard \"'stable.err < 1\" column 1: a number, a metric or '(' is needed "
         "here"},
        {"(err < 1", "guard \"(err < 1\" column 9: ')' is missing"},
        {"err < 1 )", "guard \"err < 1 )\" column 9: an operator or the end is needed here"},
        {"err < 1 < 2", "guard \"err < 1 < 2\" column 1: a condition, where a number is needed"},
        {"err && err < 1",
         "guard \"err && err < 1\" column 1: a number, where a condition is needed, "
         "such as err < 0.01"},
        {"err < 1e5", "guard \"err < 1e5\" column 7: a number is up to 18 digits with a point, "
                      "without an exponent"},
        {"-(err < 1) < 1",
         "guard \"-(err < 1) < 1\" column 2: a condition, where a number is needed"},
        {"!1 < 2 && !3", "guard \"!1 < 2 && !3\" column 12: a number, where a condition is needed, "
                         "such as err < 0.01"},
        {"  ", "a guard of 0 bytes, possible are 1 to 511"},
    };
    struct mr_guard g;
    (void)state;

    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct mr_err err = {0};
        assert_int_equal(mr_guard_parse(&g, mr_str_c(bad[i].text), tags, 3, 1, &err), MR_E_INVALID);
        assert_string_equal(err.msg, bad[i].error);
    }
}

static void bombs_are_refused(void **state)
{
    char text[MR_GUARD_TEXT_MAX + 1];
    struct mr_guard g;
    struct mr_err err = {0};
    (void)state;

    memset(text, '(', sizeof text);
    assert_int_equal(mr_guard_parse(&g, mr_str_n(text, 400), tags, 3, 1, &err), MR_E_INVALID);
    assert_non_null(strstr(err.msg, "column 25: nested deeper than 24"));
    memset(text, '-', sizeof text);
    assert_int_equal(mr_guard_parse(&g, mr_str_n(text, 400), tags, 3, 1, &err), MR_E_INVALID);
    assert_non_null(strstr(err.msg, "nested deeper than 24"));
    for (size_t i = 0; i < sizeof text; i++) {
        text[i] = i & 1 ? '+' : '1';
    }
    assert_int_equal(mr_guard_parse(&g, mr_str_n(text, 401), tags, 3, 1, &err), MR_E_INVALID);
    assert_non_null(strstr(err.msg, "too long, 96 numbers"));
    assert_int_equal(mr_guard_parse(&g, mr_str_n(text, 512), tags, 3, 1, &err), MR_E_INVALID);
    assert_string_equal(err.msg, "a guard of 512 bytes, possible are 1 to 511");
    assert_int_equal(mr_guard_parse(&g, MR_STR("err\0 < 1"), tags, 3, 1, &err), MR_E_INVALID);
    assert_string_equal(err.msg, "the guard has a byte 0");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(conditions_are_judged),
        cmocka_unit_test(quantiles_are_interpolated),
        cmocka_unit_test(what_is_not_defined_is_unknown),
        cmocka_unit_test(errors_of_clients_count_apart),
        cmocka_unit_test(what_is_wrong_is_named_with_its_column),
        cmocka_unit_test(bombs_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
