/* The protobuf text format: the grammar, its errors with their places, and print as the inverse of
 * parse. */
#include "pbtext_test.h"

#include <math.h>

#include "codec/pbtext_lines.h"

static struct mr_err err;

static Inference__ModelConfig *parse(const char *text)
{
    err = (struct mr_err){0};
    return parse_config(mr_pbtext_parse, text, &err);
}

static void a_full_config(void **state)
{
    (void)state;
    Inference__ModelConfig *c = parse(full_config);
    if (!c) {
        fail_msg("%s", err.msg);
    }
    assert_string_equal(c->name, "full");
    assert_string_equal(c->platform, "onnxruntime_onnx");
    assert_int_equal(c->max_batch_size, 8);
    assert_int_equal(c->version_policy->policy_choice_case,
                     INFERENCE__MODEL_VERSION_POLICY__POLICY_CHOICE_SPECIFIC);
    assert_int_equal(c->version_policy->specific->versions[1], 3);
    assert_int_equal(c->n_input, 2);
    assert_int_equal(c->input[0]->n_dims, 3);
    assert_int_equal(c->input[0]->dims[1], -1);
    assert_int_equal(c->input[0]->format, INFERENCE__MODEL_INPUT__FORMAT__FORMAT_NCHW);
    assert_int_equal(c->input[0]->reshape->n_shape, 0);
    assert_int_equal(c->input[1]->data_type, INFERENCE__DATA_TYPE__TYPE_INT32);
    assert_int_equal(c->input[1]->n_dims, 2);
    assert_true(c->input[1]->optional);
    assert_string_equal(c->output[0]->label_filename, "l\xc3\xa4"
                                                      "bels.txt");
    assert_int_equal(c->n_instance_group, 2);
    assert_true(c->instance_group[0]->rate_limiter->resources[0]->global);
    assert_int_equal(c->instance_group[1]->gpus[1], 1);
    assert_int_equal(c->scheduling_choice_case,
                     INFERENCE__MODEL_CONFIG__SCHEDULING_CHOICE_DYNAMIC_BATCHING);
    assert_true(c->dynamic_batching->max_queue_delay_microseconds == UINT64_MAX);
    assert_int_equal(c->dynamic_batching->n_priority_queue_policy, 2);
    assert_int_equal(c->dynamic_batching->priority_queue_policy[0]->value->timeout_action,
                     INFERENCE__MODEL_QUEUE_POLICY__TIMEOUT_ACTION__DELAY);
    assert_string_equal(c->parameters[1]->value->string_value, "x y\tz");
    assert_string_equal(c->metric_tags[0]->value, "v");
    assert_true(c->model_warmup[0]->inputs[0]->value->zero_data);
    const Inference__ModelMetrics__MetricControl *mc = c->model_metrics->metric_control[0];
    assert_int_equal(mc->histogram_options->n_buckets, 4);
    assert_true(mc->histogram_options->buckets[2] == 2500);
    assert_true(mc->histogram_options->buckets[3] == INFINITY);
    assert_non_null(c->response_cache);
    assert_false(c->response_cache->enable);
    config_free(c);
}

/* What is written differently but means the same. */
static void equal_spellings(void **state)
{
    (void)state;
    static const char *const rows[][2] = {
        {"", "  # nothing\n\n"},
        {"name: \"ab\"", "name: 'ab'"},
        {"name: \"ab\"", "name:'a'\n#c\n\"b\""},
        {"name: \"ab\"", "name\n:\n\"ab\""},
        {"name: \"ab\"", "name: \"ab\","},
        {"name: \"ab\"", "name: \"ab\";"},
        {"name: \"a'\\\"\"", "name: 'a\\'\"'"},
        {"name: \"\xc3\xa4\"", "name: \"\\303\\244\""},
        {"name: \"\xc3\xa4\"", "name: \"\\xc3\\XA4\""},
        {"name: \"\xc3\xa4\"", "name: \"\\u00e4\""},
        {"name: \"\xc3\xa4\"", "name: \"\\U000000E4\""},
        {"name: \"\xf0\x9f\x98\x80\"", "name: \"\\ud83d\\ude00\""},
        {"name: \"\xf0\x9f\x98\x80\"", "name: \"\\U0001F600\""},
        {"name: \"A7 1\"", "name: \"\\x417\\0401\""},
        {"name: \"\\a\\b\\f\\n\\r\\t\\v\\\\\\?\"",
         "name: \"\\007\\010\\014\\012\\015\\11\\13\\134?\""},
        {"max_batch_size: 16", "max_batch_size: 0x10"},
        {"max_batch_size: 16", "max_batch_size: 020"},
        {"max_batch_size: -16", "max_batch_size: - 16"},
        {"", "max_batch_size: 0"},
        {"", "max_batch_size: -0 name: ''"},
        {"input { dims: [1,2] }", "input: { dims: 1 dims: 2 }"},
        {"input { dims: [1,2] }", "input [{ dims: [1] dims: [], dims [2] }]"},
        {"input { dims: [1,2] }", "input < dims: [1,2] >"},
        {"input { name: '1' } input { name: '2' }", "input: [ < name: '1' >, { name: '2' } ]"},
        {"input { name: '1' } input { name: '2' }", "input { name: '1' }, input { name: '2' };"},
        {"input { data_type: TYPE_FP32 }", "input { data_type: 11 }"},
        {"input { data_type: TYPE_FP32 }", "input { data_type: 0xb }"},
        {"input { optional: true }", "input { optional: True }"},
        {"input { optional: true }", "input { optional: 1 }"},
        {"input {}", "input { optional: f is_shape_tensor: 0 allow_ragged_batch: False }"},
        {"sequence_batching { direct { minimum_slot_utilization: 0.5 } }",
         "sequence_batching { direct { minimum_slot_utilization: .5f } }"},
        {"sequence_batching { direct { minimum_slot_utilization: 1000 } }",
         "sequence_batching { direct { minimum_slot_utilization: 1e3F } }"},
        {"sequence_batching { direct { minimum_slot_utilization: -inf } }",
         "sequence_batching { direct { minimum_slot_utilization: -Infinity } }"},
        /* of equal map keys the last one wins */
        {"metric_tags { key: 'a' value: '2' } metric_tags { key: 'b' value: '1' }",
         "metric_tags { key: 'a' value: '1' } metric_tags { key: 'b' value: '1' }"
         "metric_tags { value: '2' key: 'a' }"},
        {"parameters { key: 'a' value {} }", "parameters { key: 'a' }"},
        {"parameters { key: '' value {} }", "parameters { }"},
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        Inference__ModelConfig *a = parse(rows[i][0]);
        CHECK_ROW(a != NULL, i, "%s: %s", rows[i][0], err.msg);
        Inference__ModelConfig *b = parse(rows[i][1]);
        CHECK_ROW(b != NULL, i, "%s: %s", rows[i][1], err.msg);
        assert_same_message(&a->base, &b->base);
        config_free(a);
        config_free(b);
    }
}

static void refusals(void **state)
{
    (void)state;
    static const struct {
        const char *text, *message;
    } rows[] = {
        {"naem: 'a'",
         "line 1 column 1: inference.ModelConfig has no field 'naem'; did you mean 'name'?"},
        {"\n\n  inputs { }",
         "line 3 column 3: inference.ModelConfig has no field 'inputs'; did you mean 'input'?"},
        {"zzzzzzz: 1", "line 1 column 1: inference.ModelConfig has no field 'zzzzzzz'"},
        {"input { dimz: 1 }",
         "line 1 column 9: inference.ModelInput has no field 'dimz'; did you mean 'dims'?"},
        {"name 'a'", "line 1 column 6: expected ':', found a string"},
        {"name: a", "expected a string, found 'a'"},
        {"name: 1", "expected a string, found '1'"},
        {"name:", "line 1 column 6: expected a string, found the end of the text"},
        {"name: \"a", "line 1 column 7: string without closing quote"},
        {"name: \"a\nb\"", "line 1 column 7: string without closing quote"},
        {"name: \"a\\", "string without closing quote"},
        {"name: 'a\\'", "string without closing quote"},
        {"name: \"\\q\"", "malformed escape"},
        {"name: \"\\x\"", "malformed escape"},
        {"name: \"\\400\"", "malformed escape"},
        {"name: \"\\u12\"", "malformed escape"},
        {"name: \"\\ud800\"", "malformed escape"},
        {"name: \"\\ud800\\u0041\"", "malformed escape"},
        {"name: \"\\udc00\"", "malformed escape"},
        {"name: \"\\U00110000\"", "malformed escape"},
        {"name: \"\\xff\"", "line 1 column 7: the value of 'name' is not valid UTF-8"},
        {"name: \"a\"\n  '\\000'", "line 1 column 7: the value of 'name' holds a NUL character"},
        {"name: ['a']", "'name' takes one value, not a list"},
        {"name: 'a' name: 'b'", "line 1 column 11: 'name' is given twice"},
        {"optimization {} optimization {}", "'optimization' is given twice"},
        {"max_batch_size: 0 max_batch_size: 0", "'max_batch_size' is given twice"},
        {"max_batch_size: 1.5", "line 1 column 17: '1.5' is not an integer"},
        {"max_batch_size: 1e3", "'1e3' is not an integer"},
        {"max_batch_size: 12ab", "'12ab' is not an integer"},
        {"max_batch_size: 08", "'08' is not an integer"},
        {"max_batch_size: 0x", "'0x' is not an integer"},
        {"max_batch_size: 99999999999999999999", "is not an integer of 64 bits"},
        {"max_batch_size: 2147483648",
         "'2147483648' is out of range for 'max_batch_size' (signed 32 bits)"},
        {"max_batch_size: -2147483649", "'-2147483649' is out of range"},
        {"max_batch_size: --1", "expected an integer, found '-'"},
        {"max_batch_size: +1", "expected an integer, found '+'"},
        {"max_batch_size: 'a'", "expected an integer, found a string"},
        {"max_batch_size: {}", "expected an integer, found '{'"},
        {"dynamic_batching { max_queue_delay_microseconds: -1 }", "out of range"},
        {"ensemble_scheduling { max_inflight_requests: 4294967296 }", "(unsigned 32 bits)"},
        {"sequence_batching { direct { minimum_slot_utilization: x } }",
         "expected a number, found 'x'"},
        {"sequence_batching { direct { minimum_slot_utilization: 1.2.3 } }",
         "expected a number, found '1.2.3'"},
        {"sequence_batching { direct { minimum_slot_utilization: '1' } }",
         "expected a number, found a string"},
        {"input { optional: yes }", "expected true or false, found 'yes'"},
        {"input { optional: 2 }", "expected true or false, found '2'"},
        {"input { data_type: FP32 }", "'FP32' is no value of 'data_type'"},
        {"input { data_type: TYPE_FLOAT }",
         "'TYPE_FLOAT' is no value of 'data_type'; did you mean 'TYPE_"},
        {"input { data_type: 99 }", "'99' is no value of 'data_type'"},
        {"input { data_type: -1 }", "'1' is no value of 'data_type'"},
        {"input { data_type: 'TYPE_FP32' }", "expected the name or number of an enum value"},
        {"input { dims: [1,] }", "expected an integer, found ']'"},
        {"input { dims: [1 2] }", "expected ',' or ']', found '2'"},
        {"input { dims: [1", "expected ',' or ']', found the end"},
        {"input { dims: [[1]] }", "expected an integer, found '['"},
        {"input: 1", "expected '{', found '1'"},
        {"input {", "expected a field name or '}', found the end of the text"},
        {"input <", "expected a field name or '>', found the end of the text"},
        {"input { >", "expected a field name, found '>'"},
        {"input < }", "expected a field name, found '}'"},
        {"}", "line 1 column 1: expected a field name, found '}'"},
        {"name: 'a' }", "expected a field name, found '}'"},
        {"name: 'a' ,,", "expected a field name, found ','"},
        {"[a.b]: 1", "extensions and Any are not supported"},
        {"1: 2", "expected a field name, found '1'"},
        {"\x01", "expected a field name, found byte 0x01"},
        {"\xef\xbb\xbfname: 'a'", "found byte 0xef"},
        {"dynamic_batching {}\nsequence_batching {}",
         "line 2 column 1: 'sequence_batching' cannot be given together with 'dynamic_batching'"},
        {"dynamic_batching {} dynamic_batching {}", "'dynamic_batching' is given twice"},
        {"version_policy { latest {} all {} }", "'all' cannot be given together with 'latest'"},
        {"model_warmup { inputs { key: 'a' value { zero_data: false random_data: true } } }",
         "'random_data' cannot be given together with 'zero_data'"},
        {"metric_tags { key: 'a' key: 'b' }", "'key' is given twice"},
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        Inference__ModelConfig *c = parse(rows[i].text);
        CHECK_ROW(c == NULL, i, "accepted: %s", rows[i].text);
        CHECK_ROW(err.status == MR_E_INVALID, i, "status %d", err.status);
        CHECK_ROW(strstr(err.msg, rows[i].message) != NULL, i, "%s: got \"%s\"", rows[i].text,
                  err.msg);
    }
}

/* No message type nests without end, so what is too deep is found by the descriptor; the text must
 * still be refused without a deep stack, wherever it continues. */
static void depth_bomb(void **state)
{
    (void)state;
    static const char *const pieces[] = {"input{", "input[", "input:[{", "[",
                                         "{",      "name:[", "<",        "optimization{cuda{"};
    for (size_t i = 0; i < COUNT_OF(pieces); i++) {
        struct mr_buf b;
        mr_buf_init(&b, 0);
        for (int k = 0; k < 100000; k++) {
            mr_buf_c(&b, pieces[i]);
        }
        err = (struct mr_err){0};
        assert_null(parse_config_n(mr_pbtext_parse, mr_buf_view(&b), &err));
        mr_buf_fini(&b);
    }
}

static void many_entries(void **state)
{
    (void)state;
    struct mr_buf b;
    mr_buf_init(&b, 0);
    for (int i = 0; i < 20000; i++) {
        mr_buf_printf(&b, "metric_tags { key: 'k%d' value: '%d' }\n", i % 10000, i);
    }
    Inference__ModelConfig *c = parse_config_n(mr_pbtext_parse, mr_buf_view(&b), &err);
    assert_non_null(c);
    assert_int_equal(c->n_metric_tags, 10000);
    assert_string_equal(c->metric_tags[9999]->value, "19999");
    config_free(c);
    mr_buf_fini(&b);
}

static void print_is_the_inverse(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "",
        full_config,
        "name: \"\\001\\\"\\\\\\n\xc3\xa4\\0017\"",
        "dynamic_batching {}",
        "version_policy { all {} }",
        "input {} input {}",
        "sequence_batching { control_input { name: 'c' control { fp32_false_true: [ nan, -inf, "
        "0.1, -0.0 ]"
        " bool_false_true: [true, false] int32_false_true: [-1, 0] } } oldest { "
        "max_candidate_sequences: 4 } }",
        "model_warmup { inputs { key: 'a' value { zero_data: false } } }",
        "ensemble_scheduling { step { model_name: 'm' model_version: -1 input_map { key: 'a' "
        "value: 'b' } } }",
    };
    for (size_t i = 0; i < COUNT_OF(texts); i++) {
        /* texts[1] is not a constant expression for a static table, hence the pointer. */
        Inference__ModelConfig *a = parse(texts[i]);
        CHECK_ROW(a != NULL, i, "%s", err.msg);
        struct mr_buf b;
        mr_buf_init(&b, 0);
        mr_pbtext_print(&a->base, &b);
        assert_false(b.failed);
        Inference__ModelConfig *again = parse_config_n(mr_pbtext_parse, mr_buf_view(&b), &err);
        CHECK_ROW(again != NULL, i, "%s\n%s", err.msg, mr_buf_cstr(&b));
        assert_same_message(&a->base, &again->base);
        config_free(a);
        config_free(again);
        mr_buf_fini(&b);
    }
}

static void printed_form(void **state)
{
    (void)state;
    struct mr_buf b;
    Inference__ModelConfig *c =
        parse("max_batch_size: 4 name: 'a\\tb' input { dims: [1, -1] data_type: 11 }"
              " metric_tags { key: 'k' value: 'v' }"
              " version_policy { latest { num_versions: 2 } }");
    assert_non_null(c);
    mr_buf_init(&b, 0);
    mr_pbtext_print(&c->base, &b);
    assert_string_equal(mr_buf_cstr(&b), "name: \"a\\tb\"\n"
                                         "version_policy {\n"
                                         "  latest {\n"
                                         "    num_versions: 2\n"
                                         "  }\n"
                                         "}\n"
                                         "max_batch_size: 4\n"
                                         "input {\n"
                                         "  data_type: TYPE_FP32\n"
                                         "  dims: [1, -1]\n"
                                         "}\n"
                                         "metric_tags {\n"
                                         "  key: \"k\"\n"
                                         "  value: \"v\"\n"
                                         "}\n");
    config_free(c);
    mr_buf_fini(&b);
}

/* Every try_ allocation fails once: an error, and nothing leaks (AddressSanitizer watches). */
static void out_of_memory(void **state)
{
    (void)state;
    for (uint64_t n = 1;; n++) {
        mr_mem_fail_after(n);
        Inference__ModelConfig *c = parse(full_config);
        mr_mem_fail_after(0);
        if (c) {
            assert_true(n > 50);
            config_free(c);
            break;
        }
        assert_int_equal(err.status, MR_E_NOMEM);
    }
}

struct walked {
    struct mr_buf text;
    const ProtobufCMessage *root;
};

static void note_path(void *ctx, const char *path, const ProtobufCMessage *owner)
{
    struct walked *w = ctx;
    mr_buf_c(&w->text, w->text.len ? " " : "");
    mr_buf_c(&w->text, path);
    if (!strchr(path, '.')) {
        assert_ptr_equal(owner, w->root);
    } else {
        assert_non_null(owner);
    }
}

static void set_fields(void **state)
{
    (void)state;
    Inference__ModelConfig *c = parse("name: 'a' input { dims: [1] } input { name: 'x' dims: [2] }"
                                      " parameters { key: 'p' value { string_value: 'v' } }"
                                      " metric_tags { key: 'k' value: 'v' } dynamic_batching {}");
    assert_non_null(c);
    struct walked w = {.root = &c->base};
    mr_buf_init(&w.text, 0);
    mr_pb_walk_set_fields(&c->base, note_path, &w);
    assert_string_equal(mr_buf_cstr(&w.text),
                        "name input input.dims input.name metric_tags"
                        " dynamic_batching parameters parameters.string_value");
    mr_buf_fini(&w.text);
    config_free(c);
}

static void lines(void **state)
{
    (void)state;
    const mr_str texts[] = {MR_STR("input {\n"
                                   "  name: 'a'\n"
                                   "  dims: 1 }\n"
                                   "input\n"
                                   "[ { name: 'b' } ] backend: 'x' 'y' name:\n"
                                   "'n'\n"
                                   "version_policy: { latest\n"
                                   "  { num_versions: 2 } }\n"),
                            MR_STR("metric_tags { key: 'k' value: '1' }\n"
                                   "metric_tags { key: 'k' value: '2' }\n"
                                   "metric_tags { key: 'k' value: '3' }\n"
                                   "input { name: 'c' }\n")};
    struct mr_pbtext_lines at = {0};
    Inference__ModelConfig *c[2];
    for (size_t i = 0; i < 2; i++) {
        ProtobufCMessage *m = NULL;
        assert_int_equal(
            mr_pbtext_parse_lines(&inference__model_config__descriptor, texts[i], &at, &m, &err),
            MR_OK);
        c[i] = (Inference__ModelConfig *)m;
    }
    const struct {
        const void *value;
        uint32_t line;
    } wanted[] = {{c[0], 1},
                  {c[0]->input[0], 1},
                  {c[0]->input[0]->name, 2},
                  {c[0]->input[1], 5},
                  {c[0]->input[1]->name, 5},
                  {c[0]->backend, 5},
                  {c[0]->name, 6},
                  {c[0]->version_policy, 7},
                  {c[0]->version_policy->latest, 8},
                  {c[0]->platform, 1},
                  {c[1]->metric_tags[0], 3},
                  {c[1]->metric_tags[0]->value, 3},
                  {c[1]->input[0]->name, 4},
                  {c[0]->input[0]->name, 2}};
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        if (mr_pbtext_line_of(&at, wanted[i].value) != wanted[i].line) {
            fail_msg("value %zu: line %u in place of %u", i,
                     mr_pbtext_line_of(&at, wanted[i].value), wanted[i].line);
        }
    }
    mr_pbtext_lines_fini(&at);
    config_free(c[0]);
    config_free(c[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_full_config), cmocka_unit_test(equal_spellings),
        cmocka_unit_test(refusals),      cmocka_unit_test(depth_bomb),
        cmocka_unit_test(many_entries),  cmocka_unit_test(print_is_the_inverse),
        cmocka_unit_test(printed_form),  cmocka_unit_test(out_of_memory),
        cmocka_unit_test(set_fields),    cmocka_unit_test(lines),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
