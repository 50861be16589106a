/* A config on its way: parsing, what was given, name and backend from the folder. */
#include "harness.h"
#include "model/config/config_priv.h"

static void test_parse_text(void **state)
{
    static const struct {
        const char *text;
        int rc;
        const char *error;
    } rows[] = {
        {"", MR_OK, NULL},
        {"# nothing\n", MR_OK, NULL},
        {"name: 'a' max_batch_size: 3", MR_OK, NULL},
        {"nmae: 'a'", MR_E_INVALID, "m/config.pbtxt: line 1"},
        {"name: 'a'\n  max_batch_size: x", MR_E_INVALID, "line 2"},
        {"input [ { name: 'a' }", MR_E_INVALID, "m/config.pbtxt: line 1"},
        {"dynamic_batching { } sequence_batching { }", MR_E_INVALID, "line 1"},
        {"input { data_type: 99 }", MR_E_INVALID, "line 1"},
        {"instance_group { kind: 4 }", MR_E_INVALID, "line 1"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        Inference__ModelConfig *c = NULL;
        struct mr_err err = {0};
        int rc = mr_config_parse_text(mr_str_c(rows[i].text), "m/config.pbtxt", &c, &err);
        if (rc != rows[i].rc || (rows[i].error && !strstr(err.msg, rows[i].error))) {
            fail_msg("row %zu: %d '%s'", i, rc, err.msg);
        }
        assert_true((rc == MR_OK) == (c != NULL));
        mr_config_free(&c);
    }
}

static void test_parse_too_large(void **state)
{
    (void)state;
    char *text = mr_alloc(MR_CONFIG_MAX_BYTES + 1);
    Inference__ModelConfig *c = NULL;
    struct mr_err err = {0};
    memset(text, ' ', MR_CONFIG_MAX_BYTES + 1);
    mr_str s = mr_str_n(text, MR_CONFIG_MAX_BYTES + 1);
    assert_int_equal(mr_config_parse_text(s, "f", &c, &err), MR_E_TOO_LARGE);
    assert_int_equal(mr_config_parse_json(s, &c, &err), MR_E_TOO_LARGE);
    s.len--;
    assert_int_equal(mr_config_parse_text(s, "f", &c, &err), MR_OK);
    mr_config_free(&c);
    mr_free(text);
}

static void test_given_in_text(void **state)
{
    static const struct {
        const char *text;
        bool has;
    } rows[] = {
        {"", false},
        {"max_batch_size: 0", true},
        {"max_batch_size:0", true},
        {"max_batch_size # said\n : 0", true},
        {"name: \"x\", max_batch_size: 0;", true},
        {"# max_batch_size: 0\nname: 'x'", false},
        {"name: \"max_batch_size: 0\"", false},
        {"name: 'it\\'s max_batch_size: 0'", false},
        {"name: \"a\\\\\" max_batch_size: 0", true},
        {"name: max_batch_size", false},
        {"metric_tags { key: 'max_batch_size' value: 'x' }", false},
        {"parameters { key: 'x' value { string_value: '} max_batch_size: 3' } }", false},
        {"input [ { name: 'a' } ] max_batch_size: 0", true},
        {"input < dims: [ 1, 2 ] > max_batch_size: 0", true},
        {"xmax_batch_size: 1", false},
        {"max_batch_size_x: 1", false},
        {"name: 'open", false},
        {"name: 'open\\", false},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (mr_config_text_has(mr_str_c(rows[i].text), MR_STR("max_batch_size")) != rows[i].has) {
            fail_msg("row %zu: %s", i, rows[i].text);
        }
    }
}

static void test_given_in_json(void **state)
{
    static const struct {
        const char *text;
        bool has;
    } rows[] = {
        {"{}", false},
        {"{\"max_batch_size\":0}", true},
        {"{\"maxBatchSize\": 0}", true},
        {"{\"max\\u005fbatch_size\": 0}", true},
        {"{\"max_batch_size\":null}", false},
        {"{\"max_batch_size\":0,\"max_batch_size\":null}", false},
        {"{\"name\":\"max_batch_size\"}", false},
        {"{\"parameters\":{\"max_batch_size\":{\"string_value\":\"1\"}}}", false},
        {"{\"input\":[{\"name\":\"a\"}],\"max_batch_size\":1}", true},
        {"{\"MaxBatchSize\": 0}", false},
        {"not json", false},
        {"", false},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (mr_config_json_has(mr_str_c(rows[i].text), MR_STR("max_batch_size")) != rows[i].has) {
            fail_msg("row %zu: %s", i, rows[i].text);
        }
    }
}

static void test_copy_and_json(void **state)
{
    Inference__ModelConfig *c = NULL;
    Inference__ModelConfig *copy = NULL;
    struct mr_buf b;
    (void)state;
    assert_int_equal(mr_config_parse_text(MR_STR("name: 'a' dynamic_batching { } input { name: 'x' "
                                                 "dims: [ -1, 3 ] } parameters { key: 'k' value { "
                                                 "string_value: 'v' } }"),
                                          "f", &c, NULL),
                     MR_OK);
    assert_int_equal(mr_config_copy(c, &copy, NULL), MR_OK);
    mr_config_free(&c);
    assert_null(c);
    mr_config_free(&c);
    mr_buf_init(&b, 0);
    mr_config_json(copy, &b);
    const char *text = mr_buf_cstr(&b);
    assert_non_null(strstr(text, "\"max_batch_size\":0"));
    assert_non_null(strstr(text, "\"dims\":[-1,3]"));
    assert_non_null(strstr(text, "\"preserve_ordering\":false"));
    assert_non_null(strstr(text, "\"parameters\":{\"k\":{\"string_value\":\"v\"}}"));
    mr_buf_fini(&b);
    mr_config_free(&copy);
}

/* ---- basics ---- */

static void test_basics(void **state)
{
    struct fixture *f = *state;
    static const struct {
        const char *text;
        const char *file; /* in the version's folder, NULL = none */
        const char *model;
        const char *backend; /* NULL = fails with `platform` as part of the text */
        const char *platform;
        const char *filename;
    } rows[] = {
        {"", "model.onnx", "m", "onnxruntime", "onnxruntime_onnx", "model.onnx"},
        {"", "model.plan", "m", "tensorrt", "tensorrt_plan", "model.plan"},
        {"", "model.pt", "m", "pytorch", "pytorch_libtorch", "model.pt"},
        {"", "model.pt2", "m", "torch_aoti", "torch_aoti", "model.pt2"},
        {"", "model.xml", "m", "openvino", "", "model.xml"},
        {"", "model.py", "m", "python", "", "model.py"},
        {"", "model.savedmodel/", "m", "tensorflow", "tensorflow_savedmodel", "model.savedmodel"},
        {"", "model.graphdef", "m", "tensorflow", "tensorflow_graphdef", "model.graphdef"},
        {"", "model.json", "m", "xgboost", "", "model.json"},
        {"", "model.ubj", "m", "xgboost", "", "model.ubj"},
        {"", "model.bst", "m", "xgboost", "", "model.bst"},
        {"backend: 'xgboost'", "model.ubj", "m", "xgboost", "", "model.ubj"},
        {"backend: 'xgboost'", NULL, "m", "xgboost", "", "model.json"},
        {"", "model.txt", "m", "lightgbm", "", "model.txt"},
        {"backend: 'lightgbm'", "model.bst", "m", "lightgbm", "", "model.bst"},
        {"", "model.mine", "m", "mine", "", "model.mine"},
        {"", "model.un.clear", "m", NULL, "Could not determine backend", NULL},
        {"", NULL, "model.identity", "identity", "", "model.identity"},
        {"", NULL, "m", NULL, "Could not determine backend for model 'm'", NULL},
        {"name: 'm'", "model.onnx", "m", "onnxruntime", "onnxruntime_onnx", "model.onnx"},
        {"name: 'n'", "model.onnx", "m", NULL, "directory name must equal model name", NULL},
        {"platform: 'onnxruntime_onnx'", NULL, "m", "onnxruntime", "onnxruntime_onnx",
         "model.onnx"},
        {"platform: 'tensorflow_graphdef'", NULL, "m", "tensorflow", "tensorflow_graphdef",
         "model.graphdef"},
        {"platform: 'caffe'", NULL, "m", NULL, "unexpected platform type 'caffe'", NULL},
        {"platform: 'onnxruntime_onnx' backend: 'python'", NULL, "m", NULL,
         "unexpected 'platform' and 'backend' pair, got:onnxruntime_onnx, python", NULL},
        {"platform: 'mine' backend: 'python'", NULL, "m", "python", "mine", "model.py"},
        {"backend: 'onnxruntime'", NULL, "m", "onnxruntime", "onnxruntime_onnx", "model.onnx"},
        {"backend: 'tensorflow'", "model.graphdef", "m", "tensorflow", "tensorflow_graphdef",
         "model.graphdef"},
        {"backend: 'identity'", NULL, "m", "identity", "", "model.identity"},
        {"backend: 'onnxruntime' default_model_filename: 'x.onnx'", NULL, "m", "onnxruntime",
         "onnxruntime_onnx", "x.onnx"},
        {"default_model_filename: 'model.onnx'", NULL, "m", "onnxruntime", "onnxruntime_onnx",
         "model.onnx"},
        {"default_model_filename: 'model.mine'", NULL, "m", "mine", "", "model.mine"},
        {"default_model_filename: 'x.bin'", NULL, "m", NULL,
         "must specify 'platform' or 'backend' for 'm'", NULL},
        {"backend: 'b' default_model_filename: 'sub/x'", NULL, "m", "b", "", "sub/x"},
        {"backend: 'b' default_model_filename: '/etc/passwd'", NULL, "m", NULL, "inside", NULL},
        {"backend: 'b' default_model_filename: '../x'", NULL, "m", NULL, "inside", NULL},
        {"backend: 'b' default_model_filename: 'a/../../x'", NULL, "m", NULL, "inside", NULL},
        {"platform: 'ensemble'", NULL, "m", NULL,
         "ensemble scheduling must be set for ensemble m whose platform is ensemble", NULL},
        {"platform: 'onnxruntime_onnx' ensemble_scheduling { }", NULL, "m", NULL,
         "ensemble scheduling cannot be set for model 'm' whose platform is not ensemble", NULL},
        {"backend: 'b' ensemble_scheduling { }", NULL, "m", NULL,
         "must have platform type 'ensemble' and empty backend", NULL},
        {"ensemble_scheduling { }", NULL, "m", "", "ensemble", ""},
        {"workflow_scheduling { }", NULL, "m", "", "workflow", ""},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        Inference__ModelConfig *c = NULL;
        struct mr_err err = {0};
        char path[PATH_MAX];
        char file[256];
        snprintf(file, sizeof file, "m/1/%s", rows[i].file ? rows[i].file : "");
        fx_remove(f, 0, "m");
        fx_write(f, 0, file, "x");
        fx_path(path, f, 0, "m/1");
        assert_int_equal(mr_config_parse_text(mr_str_c(rows[i].text), "f", &c, NULL), MR_OK);
        int rc = mr_config_basics(c, mr_str_c(rows[i].model), path, &err);
        if (rows[i].backend == NULL) {
            if (rc == MR_OK || !strstr(err.msg, rows[i].platform)) {
                fail_msg("row %zu: %d '%s'", i, rc, err.msg);
            }
        } else if (rc < 0 || strcmp(c->backend, rows[i].backend) != 0 ||
                   strcmp(c->platform, rows[i].platform) != 0 ||
                   strcmp(c->default_model_filename, rows[i].filename) != 0 ||
                   strcmp(c->name, rows[i].model) != 0) {
            fail_msg("row %zu: %d '%s' %s %s %s", i, rc, err.msg, c->backend, c->platform,
                     c->default_model_filename);
        }
        mr_config_free(&c);
    }
}

static void test_basics_without_folder(void **state)
{
    Inference__ModelConfig *c = mr_config_new();
    (void)state;
    assert_int_equal(mr_config_basics(c, MR_STR("m"), NULL, NULL), MR_E_INVALID);
    assert_int_equal(mr_config_basics(c, MR_STR("m"), "/does/not/exist", NULL), MR_E_INVALID);
    mr_config_set_string(&c->backend, "identity");
    assert_int_equal(mr_config_basics(c, MR_STR("m"), NULL, NULL), MR_OK);
    mr_config_free(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parse_text),
        cmocka_unit_test(test_parse_too_large),
        cmocka_unit_test(test_given_in_text),
        cmocka_unit_test(test_given_in_json),
        cmocka_unit_test(test_copy_and_json),
        fx_test(test_basics),
        cmocka_unit_test(test_basics_without_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
