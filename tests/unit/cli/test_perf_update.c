/* `millrace perf update`: what is read of servers and of the kernel, and where the phases of an update lie. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <unistd.h>

#include "base/clock.h"
#include "cli/perf/update/perf_update.h"

#define MS MR_NS_PER_MS

/* ---- replies of servers ---- */

static void times(void **state)
{
    static const char *const bad[] = {"",
                                      "2026-11-21",
                                      "2026-11-21T15:26:16",
                                      "2026-11-21T15:26:16.5",
                                      "2026-11-21T15:26:16.5+01:00Z",
                                      "2026-11-21 15:26:16Z",
                                      "2026-13-21T15:26:16Z",
                                      "2x26-11-21T15:26:16Z",
                                      "2026-11-21T15:26:16.5ZZ",
                                      NULL};
    char text[32];
    int64_t ns;

    (void)state;
    assert_true(perf_wall_parse(MR_STR("1970-01-02T00:00:01Z"), &ns));
    assert_int_equal(ns, 86401 * MR_NS_PER_S);
    mr_wall_text(INT64_C(1795274776988493000), text);
    assert_true(perf_wall_parse(mr_str_c(text), &ns));
    assert_int_equal(ns, INT64_C(1795274776988493000));
    assert_true(perf_wall_parse(MR_STR("2026-11-21T15:26:16.1234567891Z"), &ns));
    assert_int_equal(ns % MR_NS_PER_S, 123456789);
    for (size_t i = 0; bad[i]; i++) {
        if (perf_wall_parse(mr_str_c(bad[i]), &ns)) {
            fail_msg("'%s' was taken", bad[i]);
        }
    }
}

static const char versions[] =
    "{\"model_name\":\"m\",\"versions\":["
    "{\"version\":\"1\",\"state\":\"UNLOADED\",\"reason\":\"x\",\"entered\":{"
    "\"START\":\"1970-01-01T00:00:01Z\",\"READY\":\"1970-01-01T00:00:02Z\","
    "\"DRAINING\":\"1970-01-01T00:00:10.5Z\",\"UNLOADED\":\"1970-01-01T00:00:11Z\"},"
    "\"release_ns\":400000000,\"file_bytes\":3},"
    "{\"version\":\"2\",\"state\":\"READY\",\"entered\":{\"START\":\"1970-01-01T00:00:09Z\","
    "\"LOADING\":\"1970-01-01T00:00:09.1Z\",\"WARMING\":\"1970-01-01T00:00:10Z\","
    "\"READY\":\"1970-01-01T00:00:10.5Z\"}},"
    "{\"version\":\"3\",\"state\":\"SOMETHING\"}],\"new\":[{}]}";

static int parse(const char *text, size_t len, struct perf_load_history *out)
{
    return perf_load_history_parse((mr_bytes){(const uint8_t *)text, len}, out, NULL);
}

static void load_history(void **state)
{
    struct perf_load_history l = {0};

    (void)state;
    assert_int_equal(parse(versions, sizeof versions - 1, &l), MR_OK);
    assert_int_equal(l.len, 3);
    assert_int_equal(l.at[0].state, PERF_UNLOADED);
    assert_int_equal(l.at[0].release_ns, 400 * MS);
    assert_int_equal(l.at[0].entered_wall_ns[PERF_DRAINING], 10500 * MS);
    assert_int_equal(l.at[0].entered_wall_ns[PERF_WARMING], 0);
    assert_int_equal(l.at[1].state, PERF_READY);
    assert_int_equal(l.at[1].entered_wall_ns[PERF_LOADING], 9100 * MS);
    assert_int_equal(l.at[2].state, -1);
    MR_VEC_FINI(&l);
    for (size_t n = 0; n + 1 < sizeof versions - 1; n++) {
        assert_true(parse(versions, n, &l) < 0);
        MR_VEC_FINI(&l);
    }
    assert_true(parse("{\"versions\":[{\"entered\":{\"READY\":\"now\"}}]}", 40, &l) < 0);
    MR_VEC_FINI(&l);
}

static void one_version_only(void **state)
{
    static const char *const bad[] = {"", "[]", "{\"a\":1", "{\"a\"}", NULL};
    struct mr_buf out;

    (void)state;
    mr_buf_init(&out, 0);
    assert_int_equal(
        perf_config_of_version(MR_STR("{\"name\":\"m\",\"version_policy\":{\"latest\":"
                                      "{\"num_versions\":1}},\"input\":[{\"a\":[1]}]}"),
                               7, &out, NULL),
        MR_OK);
    assert_string_equal(mr_buf_cstr(&out), "{\"name\":\"m\",\"input\":[{\"a\":[1]}],"
                                           "\"version_policy\":{\"specific\":{\"versions\":[7]}}}");
    mr_buf_reset(&out);
    assert_int_equal(perf_config_of_version(MR_STR("{}"), 1, &out, NULL), MR_OK);
    assert_string_equal(mr_buf_cstr(&out),
                        "{\"version_policy\":{\"specific\":{\"versions\":[1]}}}");
    for (size_t i = 0; bad[i]; i++) {
        assert_true(perf_config_of_version(mr_str_c(bad[i]), 1, &out, NULL) < 0);
    }
    mr_buf_fini(&out);
}

static void version_lists(void **state)
{
    static const char *const bad[] = {"", "0", "1,", "1,x", "-1", NULL};
    struct perf p = {.versions.len = 0};
    struct mr_err err;

    (void)state;
    assert_int_equal(perf_parse_versions("3,1,2", &p, &err), MR_OK);
    assert_int_equal(p.versions.len, 3);
    assert_int_equal(p.versions.at[0], 3);
    for (size_t i = 0; bad[i]; i++) {
        assert_int_equal(perf_parse_versions(bad[i], &p, &err), MR_E_INVALID);
        assert_non_null(strstr(err.msg, "--versions"));
    }
    MR_VEC_FINI(&p.versions);
}

/* ---- phases ---- */

/* The load of version 2 above, which replaced version 1; the call was between these times of ours. */
static struct perf_window_row call(int64_t begin_ms, int64_t end_ms)
{
    struct perf_window_row row = {.is_update = true};

    row.phases[PERF_PHASE_LOAD] = (struct mr_perf_period){begin_ms * MS, end_ms * MS};
    return row;
}

static void assert_period(struct mr_perf_period s, int64_t begin_ms, int64_t end_ms)
{
    assert_int_equal(s.begin_ns / MS, begin_ms);
    assert_int_equal(s.end_ns / MS, end_ms);
}

static void phases_lie_where_the_server_says(void **state)
{
    struct perf_load_history l = {0};
    struct perf_window_row row = call(109000, 110600);

    (void)state;
    assert_int_equal(parse(versions, sizeof versions - 1, &l), MR_OK);
    /* Our monotonic clock is 100 s ahead of the wall's. */
    perf_update_phases(&l, 8000 * MS, 100 * MR_NS_PER_S, &row);
    assert_int_equal(row.shift_ns, 0);
    assert_period(row.phases[PERF_PHASE_LOAD], 109000, 110000);
    assert_period(row.phases[PERF_PHASE_WARM], 110000, 110500);
    assert_period(row.phases[PERF_PHASE_PUBLISH], 110500, 110550);
    assert_period(row.phases[PERF_PHASE_DRAIN], 110500, 110600);
    assert_period(row.phases[PERF_PHASE_RELEASE], 110600, 111000);
    assert_period(row.phases[PERF_PHASE_UNLOAD], 0, 0);
    /* A clock that is another one: the load began when it was asked for. */
    row = call(509000, 510600);
    perf_update_phases(&l, 8000 * MS, 100 * MR_NS_PER_S, &row);
    assert_int_equal(row.shift_ns, 400 * MR_NS_PER_S);
    assert_period(row.phases[PERF_PHASE_LOAD], 509000, 510000);
    assert_period(row.phases[PERF_PHASE_RELEASE], 510600, 511000);
    /* Earlier times belong to no window, and without a load the call is the whole. */
    row = call(109000, 110600);
    perf_update_phases(&l, 11000 * MS, 100 * MR_NS_PER_S, &row);
    assert_period(row.phases[PERF_PHASE_LOAD], 109000, 110600);
    assert_period(row.phases[PERF_PHASE_DRAIN], 0, 0);
    MR_VEC_FINI(&l);
}

static void a_failed_load_ends(void **state)
{
    struct perf_load load = {.state = PERF_FAILED};
    struct perf_load_history l = {.at = &load, .len = 1};
    struct perf_window_row row = call(1000, 1900);

    (void)state;
    load.entered_wall_ns[PERF_START] = 1000 * MS;
    load.entered_wall_ns[PERF_LOADING] = 1001 * MS;
    load.entered_wall_ns[PERF_WARMING] = 1500 * MS;
    load.entered_wall_ns[PERF_FAILED] = 1800 * MS;
    perf_update_phases(&l, 0, 0, &row);
    assert_period(row.phases[PERF_PHASE_LOAD], 1000, 1500);
    assert_period(row.phases[PERF_PHASE_WARM], 1500, 1800);
    assert_period(row.phases[PERF_PHASE_PUBLISH], 0, 0);
}

/* ---- counters of the kernel ---- */

static void kernel_texts(void **state)
{
    struct perf_thread t = {.id = 1};
    uint64_t steal;
    uint64_t ticks;

    (void)state;
    assert_true(perf_stat_parse(
        MR_STR("12 (a) b (c) S 1 2 3 4 5 6 70 8 90 10 11 12 13 14 15 16 17 18 220 19\n"), &t));
    assert_string_equal(t.name, "a) b (c");
    assert_int_equal(t.minor_faults, 70);
    assert_int_equal(t.major_faults, 90);
    assert_int_equal(t.born, 220);
    assert_false(perf_stat_parse(MR_STR(""), &t));
    assert_false(perf_stat_parse(MR_STR("12 (a) S 1 2"), &t));
    assert_false(perf_stat_parse(MR_STR("12 )a( S 1 2"), &t));
    perf_status_parse(MR_STR("Name:\tx\nvoluntary_ctxt_switches:\t17\n"
                             "nonvoluntary_ctxt_switches:\t4\n"),
                      &t);
    assert_int_equal(t.voluntary, 17);
    assert_int_equal(t.involuntary, 4);
    assert_true(
        perf_steal_parse(MR_STR("cpu  10 0 20 60 0 0 0 10 5 0\ncpu0 1 2\n"), &steal, &ticks));
    assert_int_equal(steal, 10);
    assert_int_equal(ticks, 100);
    assert_false(perf_steal_parse(MR_STR("intr 5"), &steal, &ticks));
}

static void counts_of_a_process(void **state)
{
    struct perf_counters before;
    struct perf_counters after;
    struct perf_thread_list names = {0};
    struct perf_thread_list sums = {0};
    struct mr_err err;

    (void)state;
    assert_int_equal(perf_counters_read(getpid(), &before, &err), MR_OK);
    assert_true(before.rss_bytes > 4096 && before.maps > 3 && before.threads.len >= 1);
    size_t bytes = (size_t)8 << 20;
    char *touched = mr_alloc(bytes);
    memset(touched, 1, bytes);
    assert_int_equal(touched[getpid() % 4096], 1);
    assert_int_equal(perf_counters_read(getpid(), &after, &err), MR_OK);
    mr_free(touched);
    perf_counters_since(&before, &after, &names);
    assert_true(names.len >= 1);
    assert_true(names.at[0].minor_faults > 0 && names.at[0].minor_faults < 1000000);
    perf_threads_add(&sums, &names);
    perf_threads_add(&sums, &names);
    assert_int_equal(sums.at[0].minor_faults, 2 * names.at[0].minor_faults);
    assert_int_equal(sums.at[0].threads, names.at[0].threads);
    assert_true(perf_counters_steal(&before, &after) >= 0);
    perf_counters_fini(&before);
    perf_counters_fini(&after);
    MR_VEC_FINI(&names);
    MR_VEC_FINI(&sums);
    assert_int_equal(perf_counters_read(INT32_MAX, &before, &err), MR_E_NOT_FOUND);
}

/* A thread with the number of one that has gone starts from nothing, and two of a name are one row. */
static void threads_that_come_and_go(void **state)
{
    struct perf_thread old[] = {{.name = "a", .id = 1, .born = 5, .minor_faults = 100},
                                {.name = "b", .id = 2, .born = 5, .minor_faults = 9}};
    struct perf_thread new[] = {{.name = "a", .id = 1, .born = 5, .minor_faults = 103},
                                {.name = "a", .id = 2, .born = 8, .minor_faults = 4}};
    struct perf_counters before = {.threads = {old, 2, 2}};
    struct perf_counters after = {.threads = {new, 2, 2}};
    struct perf_thread_list names = {0};

    (void)state;
    perf_counters_since(&before, &after, &names);
    assert_int_equal(names.len, 1);
    assert_int_equal(names.at[0].minor_faults, 7);
    assert_int_equal(names.at[0].threads, 2);
    MR_VEC_FINI(&names);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(times),
        cmocka_unit_test(load_history),
        cmocka_unit_test(one_version_only),
        cmocka_unit_test(version_lists),
        cmocka_unit_test(phases_lie_where_the_server_says),
        cmocka_unit_test(a_failed_load_ends),
        cmocka_unit_test(kernel_texts),
        cmocka_unit_test(counts_of_a_process),
        cmocka_unit_test(threads_that_come_and_go),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
