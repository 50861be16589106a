/* What is kept of each load of a version: states, times, reasons, and how much of it. */
#include "harness.h"

struct seen {
    char text[4096]; /* "1 READY; 2 FAILED (reason)" */
    char error[512];
    struct mr_load_view last;
    size_t count;
};

static void see(void *ctx, const struct mr_model_view *view)
{
    struct seen *s = ctx;
    size_t used = 0;

    snprintf(s->error, sizeof s->error, "%.*s", MR_STR_ARG(view->error));
    s->count = view->load_count;
    for (size_t i = 0; i < view->load_count; i++) {
        const struct mr_load_view *l = &view->loads[i];
        used += (size_t)snprintf(s->text + used, sizeof s->text - used, "%s%lld %s", i ? "; " : "",
                                 (long long)l->version, mr_version_state_name(l->state));
        if (l->reason.len && l->state == MR_VERSION_FAILED) {
            used += (size_t)snprintf(s->text + used, sizeof s->text - used, " (%.*s)",
                                     MR_STR_ARG(l->reason));
        }
        s->last = *l;
        s->last.reason = MR_STR("");
    }
}

static struct seen *loads(struct fixture *f, const char *name)
{
    static struct seen s;
    struct mr_err err = {0};
    s = (struct seen){0};
    if (mr_models_versions(f->m, mr_str_c(name), see, &s, &err) < 0) {
        fail_msg("%s", err.msg);
    }
    return &s;
}

static void test_one_load(void **state)
{
    struct fixture *f = *state;
    int64_t before = mr_wall_ns();
    struct mr_err err = {0};
    fx_model(f, 0, "m", IDENTITY_TEXT, 3);
    fx_start(f);
    assert_int_equal(loads(f, "m")->count, 0); /* a folder that was never loaded */
    assert_int_equal(mr_models_versions(f->m, MR_STR("nope"), see, NULL, &err), MR_E_NOT_FOUND);

    fx_must_load(f, "m");
    struct seen *s = loads(f, "m");
    assert_string_equal(s->text, "3 READY");
    assert_int_equal(s->last.file_bytes, strlen("weights"));
    for (int i = MR_VERSION_START; i <= MR_VERSION_READY; i++) {
        assert_true(s->last.entered_wall_ns[i] >= before);
        assert_true(i == MR_VERSION_START ||
                    s->last.entered_wall_ns[i] >= s->last.entered_wall_ns[i - 1]);
        assert_true(s->last.spent_ns[i] >= 0);
    }
    assert_true(s->last.spent_ns[MR_VERSION_LOADING] > 0);
    assert_int_equal(s->last.entered_wall_ns[MR_VERSION_DRAINING], 0);
    assert_int_equal(s->last.spent_ns[MR_VERSION_DRAINING], 0);

    fx_unload(f, "m");
    fx_drained(f);
    s = loads(f, "m");
    assert_string_equal(s->text, "3 UNLOADED");
    assert_true(s->last.spent_ns[MR_VERSION_READY] > 0);
    assert_true(s->last.entered_wall_ns[MR_VERSION_UNLOADED] >=
                s->last.entered_wall_ns[MR_VERSION_DRAINING]);
    int64_t served = s->last.spent_ns[MR_VERSION_READY];
    assert_int_equal(loads(f, "m")->last.spent_ns[MR_VERSION_READY], served);
}

static void test_a_reload_is_a_load_of_its_own(void **state)
{
    struct fixture *f = *state;
    struct mr_load_totals t;
    struct mr_err err = {0};
    fx_model(f, 0, "m", IDENTITY_TEXT, 1);
    fx_start(f);
    fx_must_load(f, "m");
    fx_write(f, 0, "m/1/weights.bin", "other weights");
    fx_must_load(f, "m");
    fx_drained(f);
    assert_string_equal(loads(f, "m")->text, "1 UNLOADED; 1 READY");

    fx_write(f, 0, "m/1/weights.bin", "bad weights");
    atomic_store(&f->serve_status, MR_E_INTERNAL);
    assert_true(fx_load(f, "m", &err) < 0);
    assert_string_equal(loads(f, "m")->text,
                        "1 UNLOADED; 1 READY; 1 FAILED (warm-up failed as configured)");
    assert_int_equal(fx_newest(f, "m"), 1);
    atomic_store(&f->serve_status, MR_OK);

    mr_models_totals(f->m, &t);
    assert_int_equal(t.ready, 2);
    assert_int_equal(t.failed, 1);
    assert_int_equal(t.spent[MR_VERSION_LOADING].count, 3);
    assert_int_equal(t.spent[MR_VERSION_WARMING].count, 3);
    assert_int_equal(t.spent[MR_VERSION_DRAINING].count, 1);
    assert_int_equal(t.spent[MR_VERSION_READY].count, 1);
    assert_true(t.spent[MR_VERSION_LOADING].ns > 0);
}

static void test_the_past_is_bounded(void **state)
{
    struct fixture *f = *state;
    fx_model(f, 0, "m", IDENTITY_TEXT "version_policy { all { } }", 1);
    fx_model(f, 0, "m", NULL, 2);
    fx_start(f);
    fx_must_load(f, "m");
    for (int i = 0; i < 20; i++) {
        char text[32];
        snprintf(text, sizeof text, "weights no. %d", i);
        fx_write(f, 0, "m/2/weights.bin", text);
        fx_must_load(f, "m");
    }
    fx_drained(f);
    struct seen *s = loads(f, "m");
    assert_int_equal(s->count, 18);
    assert_memory_equal(s->text, "1 READY; 2 UNLOADED; ",
                        21); /* the one that serves was never dropped */
    assert_string_equal(s->text + strlen(s->text) - 7, "2 READY");

    /* What has served longest is the last to be forgotten, as it was the last to end. */
    fx_unload(f, "m");
    fx_drained(f);
    s = loads(f, "m");
    assert_int_equal(s->count, 16);
    assert_memory_equal(s->text, "1 UNLOADED; ", 12);
}

static void test_a_model_that_came_to_no_version(void **state)
{
    struct fixture *f = *state;
    struct mr_err err = {0};
    fx_write(f, 0, "m/config.pbtxt", "nonsense");
    fx_start(f);
    assert_true(fx_load(f, "m", &err) < 0);
    struct seen *s = loads(f, "m");
    assert_int_equal(s->count, 0);
    assert_non_null(strstr(s->error, "config.pbtxt"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        fx_test(test_one_load),
        fx_test(test_a_reload_is_a_load_of_its_own),
        fx_test(test_the_past_is_bounded),
        fx_test(test_a_model_that_came_to_no_version),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
