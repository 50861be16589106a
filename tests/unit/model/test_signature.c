/* Models that know their inputs and outputs: from a file without any config to a version that
 * serves. */
#include "harness.h"

static void seen(void *ctx, const struct mr_model_report *r)
{
    *(struct mr_model_report *)ctx = *r;
}

static const struct mr_version *loaded(struct fixture *f, struct mr_model_report *r)
{
    mr_models_report(f->m, seen, r);
    assert_non_null(r->v);
    return r->v;
}

static void test_without_config(void **state)
{
    struct fixture *f = *state;
    struct mr_model_report r;
    fx_write(f, 0, "m/1/model.probe", "batch");
    fx_start(f);
    fx_must_load(f, "m");
    const struct mr_version *v = loaded(f, &r);
    assert_string_equal(v->config->backend, "probe");
    assert_string_equal(v->config->name, "m");
    assert_int_equal(v->max_batch_size, 4);
    assert_int_equal(v->config->dynamic_batching->preferred_batch_size[0], 4);
    assert_int_equal(v->input_count, 1);
    assert_int_equal(v->inputs[0].rank, 1);
    assert_int_equal(v->inputs[0].dims[0], 4);
    assert_int_equal(r.model_bytes, 4096);
    assert_int_equal(r.file_bytes, 5);
    assert_true(r.load_ns > 0 && r.since_wall_ns > 0);
}

static void test_max_batch_zero_is_not_silence(void **state)
{
    struct fixture *f = *state;
    struct mr_model_report r;
    fx_write(f, 0, "m/1/model.probe", "batch");
    fx_write(f, 0, "m/config.pbtxt", "max_batch_size: 0");
    fx_start(f);
    fx_must_load(f, "m");
    assert_int_equal(loaded(f, &r)->max_batch_size, 0);
    assert_int_equal(loaded(f, &r)->inputs[0].rank, 2);
    fx_write(f, 0, "m/config.pbtxt", "# max_batch_size: 0\n");
    fx_must_load(f, "m");
    assert_int_equal(loaded(f, &r)->max_batch_size, 4);
    struct mr_err err;
    assert_int_equal(fx_load_with(f, MR_STR("m"), "{\"maxBatchSize\":0}", NULL, 0, &err), MR_OK);
    assert_int_equal(loaded(f, &r)->max_batch_size, 0);
}

static void test_what_the_backend_is_told(void **state)
{
    struct fixture *f = *state;
    struct mr_err err = {0};
    static const struct {
        const char *config;
        const char *want;
    } rows[] = {
        {"", "-,-,-1"},
        {"max_batch_size: 0", "-,-,0"},
        {"max_batch_size: 7 instance_group [ { count: 2 }, { count: 3 } ]", "5,-,7"},
        {"optimization { graph { level: -1 } }", "-,-1,-1"},
    };
    fx_write(f, 0, "m/1/model.probe", "batch");
    fx_start(f);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char text[512];
        snprintf(text, sizeof text, "%s parameters { key: 'want' value { string_value: '%s' } }",
                 rows[i].config, rows[i].want);
        fx_write(f, 0, "m/config.pbtxt", text);
        if (fx_load(f, "m", &err) < 0) {
            fail_msg("row %zu: %s", i, err.msg);
        }
    }
}

static void test_disagreement_and_damage(void **state)
{
    struct fixture *f = *state;
    struct mr_err err = {0};
    fx_write(f, 0, "fixed/1/model.probe", "fixed");
    fx_write(f, 0, "fixed/config.pbtxt", "max_batch_size: 2");
    fx_write(f, 0, "other/1/model.probe", "batch");
    fx_write(f, 0, "other/config.pbtxt",
             "max_batch_size: 2 input { name: 'X' data_type: TYPE_INT8 dims: 4 }");
    fx_write(f, 0, "broken/1/model.probe", "broken");
    fx_write(f, 0, "missing/1/x", "");
    fx_write(f, 0, "missing/config.pbtxt", "backend: 'probe'");
    fx_write(f, 0, "good/1/model.probe", "batch");
    f->o.control = MR_MODEL_CONTROL_NONE;
    fx_start(f);
    assert_int_equal(f->failed, 4);
    const char *index = fx_index(f);
    assert_non_null(strstr(index, "fixed:1 UNAVAILABLE (autofill failed for model 'fixed'"));
    assert_non_null(strstr(index,
                           "other:1 UNAVAILABLE (unable to load model 'other', configuration "
                           "expects datatype TYPE_INT8 for input 'X', model provides "
                           "TYPE_FP32)"));
    assert_non_null(strstr(index, "broken:1 UNAVAILABLE (the file is damaged)"));
    assert_non_null(strstr(index, "missing:1 UNAVAILABLE (no file"));
    assert_non_null(strstr(index, "good:1 READY"));
    assert_int_equal(fx_load(f, "good", &err), MR_E_UNAVAILABLE);
}

static void test_no_auto_complete(void **state)
{
    struct fixture *f = *state;
    struct mr_err err = {0};
    f->o.auto_complete = false;
    fx_write(f, 0, "m/1/model.probe", "batch");
    fx_start(f);
    assert_int_equal(fx_load(f, "m", &err), MR_E_INVALID);
    assert_non_null(strstr(err.msg, "model m must specify at least one 'output'"));
    fx_write(
        f, 0, "m/config.pbtxt",
        "max_batch_size: 2 input { name: 'X' data_type: TYPE_FP32 dims: 4 } output { name: 'Y' "
        "data_type: TYPE_FP32 dims: 4 }");
    fx_must_load(f, "m");
}

static void test_backend_settings(void **state)
{
    struct fixture *f = *state;
    struct mr_err err = {0};
    static const struct mr_setting fail[] = {{"fail", "because"}};
    static const struct mr_setting *const lists[] = {fail};
    static const size_t counts[] = {1};
    static const char *const names[] = {"probe"};
    f->o.backend_settings = lists;
    f->o.backend_setting_counts = counts;
    f->o.backend_setting_names = names;
    f->o.backend_setting_name_count = 1;
    fx_write(f, 0, "m/1/model.probe", "batch");
    fx_start(f);
    for (int i = 0; i < 2; i++) { /* a library that failed is tried again */
        assert_int_equal(fx_load(f, "m", &err), MR_E_INVALID);
        assert_non_null(strstr(err.msg, "setting fail=because"));
    }
}

/* Models load side by side: eight that wait for each other on eight threads. */
static void test_loads_run_side_by_side(void **state)
{
    struct fixture *f = *state;
    char path[64];
    f->o.control = MR_MODEL_CONTROL_NONE;
    f->o.load_threads = 8;
    f->o.update_threads = 8;
    for (int i = 0; i < 8; i++) {
        snprintf(path, sizeof path, "m%d/1/model.probe", i);
        fx_write(f, 0, path, "together");
    }
    fx_start(f);
    assert_int_equal(f->failed, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        fx_test(test_without_config),           fx_test(test_max_batch_zero_is_not_silence),
        fx_test(test_what_the_backend_is_told), fx_test(test_disagreement_and_damage),
        fx_test(test_no_auto_complete),         fx_test(test_backend_settings),
        fx_test(test_loads_run_side_by_side),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
