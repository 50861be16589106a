/* What a version runs before it is ready when it brings no requests of its own. */
#include "harness.h"

#include <unistd.h>

#include "sched/warmup.h"

/* ---- which sizes ---- */

static void sizes_check(int32_t max, const int32_t *preferred, size_t count, const char *expect)
{
    struct mr_version v = {.max_batch_size = max};
    struct mr_sched s = {
        .version = &v, .preferred = (int32_t *)(uintptr_t)preferred, .preferred_count = count};
    int64_t out[WARMUP_SIZES_MAX];
    char text[200] = "";
    size_t n = warmup_sizes(&s, out), len = 0;

    for (size_t i = 0; i < n; i++) {
        len += (size_t)snprintf(text + len, sizeof text - len, "%s%lld", i ? " " : "",
                                (long long)out[i]);
    }
    assert_string_equal(text, expect);
}

static void sizes(void **state)
{
    const int32_t some[] = {1, 4, 4, 8, 16}, many[] = {2, 3, 4, 5, 6, 7, 8, 9, 10};

    (void)state;
    sizes_check(0, NULL, 0, "0");
    sizes_check(1, NULL, 0, "1");
    sizes_check(8, NULL, 0, "1 8");
    sizes_check(16, some, 5, "1 16 8 4");
    sizes_check(100, many, 9, "1 100 10 9 8 7 6 5"); /* WARMUP_SIZES_MAX of them */
}

static void steady(void **state)
{
    (void)state;
    assert_true(warmup_is_steady(1000, 20000)); /* too short to be significant */
    assert_true(warmup_is_steady(10 * MR_NS_PER_MS, 12 * MR_NS_PER_MS));
    assert_true(warmup_is_steady(12 * MR_NS_PER_MS, 10 * MR_NS_PER_MS));
    assert_false(warmup_is_steady(13 * MR_NS_PER_MS, 10 * MR_NS_PER_MS));
    assert_false(warmup_is_steady(10 * MR_NS_PER_MS, 13 * MR_NS_PER_MS));
}

/* ---- values ---- */

static void fractions(void **state)
{
    enum { COUNT = 10000 }; /* longer than the pattern that is repeated */
    float *f = mr_alloc_array(COUNT, sizeof *f);
    struct mr_tensor t = {.dtype = MR_DTYPE_FP32, .data = f, .bytes = COUNT * sizeof *f};
    double sum = 0;

    (void)state;
    for (size_t i = 0; i < COUNT; i++) {
        f[i] = -1;
    }
    warmup_fill(&t, COUNT, 1);
    for (size_t i = 0; i < COUNT; i++) {
        assert_true(f[i] >= 0 && f[i] < 1);
        sum += (double)f[i];
    }
    assert_true(sum > COUNT * 0.4 && sum < COUNT * 0.6);
    mr_free(f);
}

static void whole_numbers(void **state)
{
    int64_t n[100];
    struct mr_tensor t = {.dtype = MR_DTYPE_INT64, .data = n, .bytes = sizeof n};
    int64_t most = 0;

    (void)state;
    memset(n, 0xff, sizeof n);
    warmup_fill(&t, 100, 1);
    for (size_t i = 0; i < 100; i++) {
        assert_true(n[i] == 0 || n[i] == 1);
        most = MR_MAX(most, n[i]);
    }
    assert_int_equal(most, 1);
}

/* ---- runs, as the model saw them ---- */

struct seen {
    unsigned instance;
    long long rows;
    char first[80];
};

struct traced {
    struct harness h;
    char path[64];
    const char *delay_ms; /* of each run, NULL = none */
    struct seen runs[200];
    size_t count;
    Inference__ModelConfig__ParametersEntry *entries[1];
    Inference__ModelConfig__ParametersEntry entry;
    Inference__ModelParameter value;
};

static void traced_init(struct traced *t)
{
    memset(t, 0, sizeof *t);
    snprintf(t->path, sizeof t->path, "/tmp/millrace-trace-XXXXXX");
    int fd = mkstemp(t->path);
    assert_true(fd >= 0);
    close(fd);
    harness_init(&t->h);
    t->h.options.default_warmup_ns = 60 * MR_NS_PER_S;
}

static void traced_open(struct traced *t, const char *wants, const char *status)
{
    const struct mr_setting settings[] = {{"trace", t->path},
                                          {"warmup", wants},
                                          {"fail_status", status},
                                          {"delay_ms", t->delay_ms ? t->delay_ms : "0"}};
    char line[128];

    harness_backend(&t->h, "fault", settings, 4);
    t->h.version.backend_flags = t->h.model->signature->flags;
    struct mr_err err = {0};
    if (mr_sched_open(&t->h.version, &t->h.options, &err) < 0) {
        fail_msg("%s", err.msg);
    }
    FILE *f = fopen(t->path, "r");
    assert_non_null(f);
    while (fgets(line, sizeof line, f)) {
        struct seen *s = &t->runs[t->count++];
        assert_true(t->count <= 200);
        assert_int_equal(sscanf(line, "%u %lld %79s", &s->instance, &s->rows, s->first), 3);
    }
    fclose(f);
}

static void traced_close(struct traced *t)
{
    harness_close(&t->h);
    unlink(t->path);
}

static size_t runs_of(const struct traced *t, unsigned instance, long long rows)
{
    size_t n = 0;

    for (size_t i = 0; i < t->count; i++) {
        n += t->runs[i].instance == instance && t->runs[i].rows == rows;
    }
    return n;
}

/* Zeros first, then random ones: 0 or 1. */
static void alternates_check(const struct traced *t, long long rows)
{
    size_t i = 0;

    while (t->runs[i].rows != rows) {
        i++;
    }
    assert_int_equal(strspn(t->runs[i].first, "0"), 64);
    const char *random = t->runs[i + 1].first;
    assert_int_equal(t->runs[i + 1].rows, rows);
    assert_non_null(strchr(random, '1'));
    for (size_t k = 0; k < strlen(random); k++) {
        assert_true(random[k] == '0' || (random[k] == '1' && k % 8 == 1));
    }
}

static void every_size_on_every_instance(void **state)
{
    struct mr_sched_stats stats;
    struct traced t;

    (void)state;
    traced_init(&t);
    t.h.group.count = 3;
    harness_batching(&t.h, 8, 0);
    int32_t preferred[] = {4};
    t.h.batching.n_preferred_batch_size = 1;
    t.h.batching.preferred_batch_size = preferred;
    traced_open(&t, "true", "OK");
    size_t sum = 0;
    for (unsigned i = 0; i < 3; i++) {
        for (int rows = 1; rows <= 8; rows++) {
            size_t n = runs_of(&t, i, rows);
            sum += n;
            if (rows == 1 || rows == 4 || rows == 8) {
                assert_true(n >= 2 && n <= WARMUP_RUNS_MAX);
            } else {
                assert_int_equal(n, 0);
            }
        }
    }
    assert_int_equal(sum, t.count);
    alternates_check(&t, 8);
    mr_sched_stats_sum(&t.h.version, &stats);
    assert_int_equal(stats.execution_count, 0);
    assert_int_equal(stats.success.count, 0);
    traced_close(&t);
}

static void open_dimensions_are_one_long(void **state)
{
    static const int64_t open[] = {-1};
    struct traced t;

    (void)state;
    traced_init(&t);
    t.h.inputs[0].dims = t.h.outputs[0].dims = open;
    traced_open(&t, "true", "OK");
    assert_true(t.count >= 2);
    assert_string_equal(t.runs[0].first, "00000000");
    traced_close(&t);
}

static void strings_are_digits(void **state)
{
    struct traced t;

    (void)state;
    traced_init(&t);
    t.h.inputs[0].dtype = t.h.outputs[0].dtype = MR_DTYPE_BYTES;
    traced_open(&t, "true", "OK");
    assert_true(t.count >= 2);
    assert_string_equal(t.runs[0].first, "01000000300100000030"); /* "0" "0" */
    assert_string_equal(t.runs[1].first, "01000000310100000032"); /* "1" "2" */
    traced_close(&t);
}

static void large_requests_are_left_out(void **state)
{
    static const int64_t dims[] = {2 << 20}; /* 8 MiB in and 8 MiB out for each row */
    struct traced t;

    (void)state;
    traced_init(&t);
    t.h.inputs[0].dims = t.h.outputs[0].dims = dims;
    harness_batching(&t.h, 8, 0);
    traced_open(&t, "true", "OK");
    assert_true(runs_of(&t, 0, 1) >= 2);
    assert_int_equal(runs_of(&t, 0, 8), 0);
    traced_close(&t);
}

/* Each size is tried once, and the version is ready all the same. */
static void failures_do_not_matter(void **state)
{
    struct traced t;

    (void)state;
    traced_init(&t);
    harness_batching(&t.h, 8, 0);
    traced_open(&t, "true", "INVALID");
    assert_int_equal(t.count, 2);
    assert_int_equal(runs_of(&t, 0, 1), 1);
    assert_int_equal(runs_of(&t, 0, 8), 1);
    traced_close(&t);
}

static void own_warmup(struct traced *t, const char *text)
{
    t->value = (Inference__ModelParameter)INFERENCE__MODEL_PARAMETER__INIT;
    t->entry =
        (Inference__ModelConfig__ParametersEntry)INFERENCE__MODEL_CONFIG__PARAMETERS_ENTRY__INIT;
    t->value.string_value = (char *)(uintptr_t)text;
    t->entry.key = (char *)(uintptr_t) "millrace.default_warmup";
    t->entry.value = &t->value;
    t->entries[0] = &t->entry;
    t->h.config.n_parameters = 1;
    t->h.config.parameters = t->entries;
}

static void may_be_off(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        struct traced t;
        traced_init(&t);
        if (i == 0) {
            t.h.options.default_warmup_ns = 0;
        }
        if (i == 1) {
            own_warmup(&t, "false");
        }
        if (i == 2) {
            own_warmup(&t, "true");
        }
        traced_open(&t, i == 3 ? "false" : "true", "OK");
        assert_int_equal(t.count > 0, i == 2);
        traced_close(&t);
    }
}

/* No run begins when the time is over. */
static void time_is_bounded(void **state)
{
    struct traced t;

    (void)state;
    traced_init(&t);
    t.h.options.default_warmup_ns = 1; /* over when the first run could begin */
    t.h.group.count = 2;
    traced_open(&t, "true", "OK");
    assert_int_equal(t.count, 0);
    traced_close(&t);
}

/* What versions share: each has one run, and the rest must fit. */
static void budget_is_shared(void **state)
{
    static const int64_t left[] = {0, -60 * MR_NS_PER_S, 60 * MR_NS_PER_S};

    (void)state;
    for (size_t i = 0; i < 3; i++) {
        struct mr_warmup_budget budget = {left[i]};
        struct traced t;
        traced_init(&t);
        t.h.options.warmup_budget = &budget;
        t.h.group.count = 2;
        t.delay_ms = "2"; /* not cheap */
        traced_open(&t, "true", "OK");
        if (left[i] > 0) {
            assert_true(t.count >= 4);
        } else {
            assert_int_equal(t.count, 1);
        }
        assert_true(budget.left_ns <= left[i] - (int64_t)t.count * 2 * MR_NS_PER_MS);
        traced_close(&t);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes),
        cmocka_unit_test(steady),
        cmocka_unit_test(fractions),
        cmocka_unit_test(whole_numbers),
        cmocka_unit_test(every_size_on_every_instance),
        cmocka_unit_test(open_dimensions_are_one_long),
        cmocka_unit_test(strings_are_digits),
        cmocka_unit_test(large_requests_are_left_out),
        cmocka_unit_test(failures_do_not_matter),
        cmocka_unit_test(may_be_off),
        cmocka_unit_test(time_is_bounded),
        cmocka_unit_test(budget_is_shared),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
