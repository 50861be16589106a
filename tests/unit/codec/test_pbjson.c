/* Messages as JSON: the document that the config endpoint answers, what is accepted, and what is
 * not. */
#include "pbtext_test.h"

#include "codec/json.h"
#include "inference.pb-c.h"

static struct mr_err err;

static Inference__ModelConfig *parse(const char *text)
{
    err = (struct mr_err){0};
    return parse_config(mr_pbjson_parse, text, &err);
}

static void printed_with_defaults(void **state)
{
    (void)state;
    struct mr_buf b;
    Inference__ModelConfig c = INFERENCE__MODEL_CONFIG__INIT;
    mr_buf_init(&b, 0);
    mr_pbjson_print(&c.base, true, &b);
    assert_string_equal(
        mr_buf_cstr(&b),
        "{\"name\":\"\",\"platform\":\"\",\"max_batch_size\":0,\"input\":[],\"output\":[],"
        "\"instance_group\":[],\"default_model_filename\":\"\",\"cc_model_filenames\":{},"
        "\"metric_tags\":{},\"parameters\":{},\"model_warmup\":[],\"backend\":\"\",\"batch_input\":"
        "[],"
        "\"batch_output\":[],\"runtime\":\"\"}");
    mr_buf_reset(&b);
    mr_pbjson_print(&c.base, false, &b);
    assert_string_equal(mr_buf_cstr(&b), "{}");
    mr_buf_fini(&b);
}

static void printed_values(void **state)
{
    (void)state;
    struct mr_buf b;
    ProtobufCMessage *m = NULL;
    Inference__ModelConfig *c =
        parse_config(mr_pbtext_parse,
                     "name: 'a\\n' version_policy { latest { num_versions: 1 } }"
                     "input { name: 'x' data_type: TYPE_FP32 dims: [ -1, 9007199254740993 ] }"
                     "dynamic_batching { priority_queue_policy { key: 18446744073709551615 value { "
                     "max_queue_size: 1 } } }"
                     "parameters { key: 'k\"' value { string_value: 'v' } }"
                     "model_warmup { inputs { key: 'i' value { zero_data: false } } }"
                     "model_metrics { metric_control { histogram_options { buckets: [0.1, inf, "
                     "nan, 1e300] } } }",
                     &err);
    assert_non_null(c);
    mr_buf_init(&b, 0);
    mr_pbjson_print(&c->base, false, &b);
    assert_string_equal(
        mr_buf_cstr(&b),
        "{\"name\":\"a\\n\",\"version_policy\":{\"latest\":{\"num_versions\":1}},"
        "\"input\":[{\"name\":\"x\",\"data_type\":\"TYPE_FP32\",\"dims\":[-1,9007199254740993]}],"
        "\"dynamic_batching\":{\"priority_queue_policy\":{\"18446744073709551615\":{\"max_queue_"
        "size\":1}}},"
        "\"parameters\":{\"k\\\"\":{\"string_value\":\"v\"}},"
        "\"model_warmup\":[{\"inputs\":{\"i\":{\"zero_data\":false}}}],"
        "\"model_metrics\":{\"metric_control\":[{\"histogram_options\":{\"buckets\":"
        "[0.1,\"Infinity\",\"NaN\",1e+300]}}]}}");
    /* An enum number that has no name. */
    c->input[0]->data_type = (Inference__DataType)77;
    mr_buf_reset(&b);
    mr_pbjson_print(&c->input[0]->base, true, &b);
    assert_string_equal(mr_buf_cstr(&b),
                        "{\"name\":\"x\",\"data_type\":77,\"format\":\"FORMAT_NONE\","
                        "\"dims\":[-1,9007199254740993],\"is_shape_tensor\":false,"
                        "\"allow_ragged_batch\":false,\"optional\":false,"
                        "\"is_non_linear_format_io\":false}");
    config_free(c);

    mr_buf_reset(&b);
    assert_int_equal(mr_pbjson_parse(&inference__model_repository_parameter__descriptor,
                                     MR_STR("{\"bytes_param\":\"AP/+\"}"), &m, &err),
                     MR_OK);
    assert_int_equal(((Inference__ModelRepositoryParameter *)m)->bytes_param.len, 3);
    mr_pbjson_print(m, false, &b);
    assert_string_equal(mr_buf_cstr(&b), "{\"bytes_param\":\"AP/+\"}");
    protobuf_c_message_free_unpacked(m, NULL);
    mr_buf_fini(&b);
}

/* A map entry may come over the wire without its value. */
static void entry_without_value(void **state)
{
    (void)state;
    static const uint8_t wire[] = {0x72, 0x03, 0x0a, 0x01, 'k'};
    struct mr_buf b;
    Inference__ModelConfig *c = inference__model_config__unpack(NULL, sizeof wire, wire);
    assert_non_null(c);
    mr_buf_init(&b, 0);
    mr_pbjson_print(&c->base, false, &b);
    assert_string_equal(mr_buf_cstr(&b), "{\"parameters\":{\"k\":{}}}");
    mr_buf_reset(&b);
    mr_pbtext_print(&c->base, &b);
    assert_string_equal(mr_buf_cstr(&b), "parameters {\n  key: \"k\"\n}\n");
    config_free(c);
    mr_buf_fini(&b);
}

static void equal_spellings(void **state)
{
    (void)state;
    static const char *const rows[][2] = {
        /* JSON, text format */
        {"{}", ""},
        {" { } ", ""},
        {"{\"name\":null,\"input\":null,\"optimization\":null,\"max_batch_size\":null}", ""},
        {"{\"name\":\"a\\u00e4\"}", "name: 'a\xc3\xa4'"},
        {"{\"max_batch_size\":4}", "max_batch_size: 4"},
        {"{\"maxBatchSize\":4}", "max_batch_size: 4"},
        {"{\"max_batch_size\":\"-4\"}", "max_batch_size: -4"},
        {"{\"max_batch_size\":4.0}", "max_batch_size: 4"},
        {"{\"max_batch_size\":4e1}", "max_batch_size: 40"},
        {"{\"dynamicBatching\":{\"maxQueueDelayMicroseconds\":\"18446744073709551615\"}}",
         "dynamic_batching { max_queue_delay_microseconds: 18446744073709551615 }"},
        {"{\"input\":[{\"dims\":[1,\"2\",-3],\"data_type\":\"TYPE_FP32\"},{\"dataType\":9,"
         "\"optional\":true}]}",
         "input { dims: [1,2,-3] data_type: TYPE_FP32 } input { data_type: TYPE_INT64 optional: "
         "true }"},
        {"{\"input\":[{\"data_type\":\"type_fp32\"}]}", "input { data_type: TYPE_FP32 }"},
        {"{\"dynamic_batching\":{\"priority_queue_policy\":{\"3\":{},\"4\":{\"max_queue_size\":1}}}"
         "}",
         "dynamic_batching { priority_queue_policy { key: 3 value {} }"
         " priority_queue_policy { key: 4 value { max_queue_size: 1 } } }"},
        {"{\"sequence_batching\":{\"direct\":{\"minimum_slot_utilization\":0.5}}}",
         "sequence_batching { direct { minimum_slot_utilization: 0.5 } }"},
        {"{\"sequence_batching\":{\"direct\":{\"minimum_slot_utilization\":\"Infinity\"}}}",
         "sequence_batching { direct { minimum_slot_utilization: inf } }"},
        {"{\"version_policy\":{\"all\":{}}}", "version_policy { all {} }"},
        {"{\"input\":{\"name\":\"a\",\"dims\":4},\"instance_group\":{\"count\":2}}",
         "input { name: 'a' dims: [4] } instance_group { count: 2 }"},
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        Inference__ModelConfig *a = parse(rows[i][0]);
        CHECK_ROW(a != NULL, i, "%s: %s", rows[i][0], err.msg);
        Inference__ModelConfig *b = parse_config(mr_pbtext_parse, rows[i][1], &err);
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
        {"", "expected an object, found the end of the text"},
        {"[]", "expected an object, found an array"},
        {"{} x", "expected the end of the text"},
        {"{\"naem\":1}",
         "inference.ModelConfig has no field 'naem'; did you mean 'name'? at offset"},
        {"{\"max_Batch_size\":1}", "has no field"},
        {"{\"\":1}", "has no field ''"},
        {"{\"maxBatchSiz\":1}", "has no field"},
        {"{\"name\":1}", "expected a string, found a number at offset 8"},
        {"{\"name\":\"a\\u0000b\"}", "the value of 'name' holds a NUL character"},
        {"{\"name\":\"a\",\"name\":\"b\"}", "'name' is given twice"},
        {"{\"max_batch_size\":1,\"maxBatchSize\":1}", "'max_batch_size' is given twice"},
        {"{\"max_batch_size\":1.5}",
         "'1.5' is no value of 'max_batch_size', a signed integer of 32 bits,"},
        {"{\"max_batch_size\":[1]}", "expected a valid number, found an array"},
        {"{\"max_batch_size\":2147483648}", "no value of 'max_batch_size'"},
        {"{\"max_batch_size\":\"x\"}", "'x' is no value"},
        {"{\"max_batch_size\":\"\"}", "'' is no value"},
        {"{\"max_batch_size\":1e300}", "no value"},
        {"{\"max_batch_size\":true}", "expected a valid number, found a bool"},
        {"{\"input\":1}", "expected an object, found a number"},
        {"{\"input\":[null]}", "expected an object, found null"},
        {"{\"input\":[{\"optional\":1}]}", "expected true or false"},
        {"{\"input\":[{\"data_type\":\"FP32\"}]}", "'FP32' is no value of 'data_type'"},
        {"{\"input\":[{\"data_type\":99}]}", "99 is no value of 'data_type'"},
        {"{\"input\":[{\"data_type\":1.5}]}", "expected an integer"},
        {"{\"metric_tags\":[]}", "expected an object, found an array"},
        {"{\"metric_tags\":{\"a\":1}}", "expected a string"},
        {"{\"input\":[],\"input\":[]}", "'input' is given twice"},
        {"{\"metric_tags\":{},\"metric_tags\":{}}", "'metric_tags' is given twice"},
        {"{\"metric_tags\":{\"a\":\"1\",\"b\":\"2\",\"\\u0061\":\"1\"}}",
         "'a' is given twice in 'metric_tags'"},
        {"{\"metric_tags\":{\"a\\u0000\":\"1\"}}", "the value of 'key' holds a NUL"},
        {"{\"dynamic_batching\":{\"priority_queue_policy\":{\"x\":{}}}}",
         "'x' is not a key of this map"},
        {"{\"dynamic_batching\":{\"priority_queue_policy\":{\"-1\":{}}}}",
         "'-1' is not a key of this map"},
        {"{\"dynamic_batching\":{},\"sequence_batching\":{}}",
         "'sequence_batching' cannot be given together with 'dynamic_batching'"},
        {"{\"sequence_batching\":{\"direct\":{\"minimum_slot_utilization\":\"x\"}}}",
         "is not a number"},
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        Inference__ModelConfig *c = parse(rows[i].text);
        CHECK_ROW(c == NULL, i, "accepted: %s", rows[i].text);
        CHECK_ROW(err.status == MR_E_INVALID, i, "status %d", err.status);
        CHECK_ROW(strstr(err.msg, rows[i].message) != NULL, i, "%s: got \"%s\"", rows[i].text,
                  err.msg);
    }
    ProtobufCMessage *m = NULL;
    assert_int_equal(mr_pbjson_parse(&inference__model_repository_parameter__descriptor,
                                     MR_STR("{\"bytes_param\":\"AP-_\"}"), &m, &err),
                     MR_E_INVALID);
    assert_non_null(strstr(err.msg, "the value of 'bytes_param' is not base64"));
    assert_null(m);
}

/* Every key escaped and every value escaped: the longest use of the arena. */
static void escaped_throughout(void **state)
{
    (void)state;
    struct mr_buf b;
    mr_buf_init(&b, 0);
    mr_buf_c(&b, "{\"metric_tags\":{");
    for (int i = 0; i < 30000; i++) {
        mr_buf_printf(&b, "%s\"\\u0061%d\":\"\\n\"", i ? "," : "", i);
    }
    mr_buf_c(&b, "}}");
    Inference__ModelConfig *c = parse_config_n(mr_pbjson_parse, mr_buf_view(&b), &err);
    if (!c) {
        fail_msg("%s", err.msg);
    }
    assert_int_equal(c->n_metric_tags, 30000);
    config_free(c);
    mr_buf_fini(&b);
}

/* text -> message -> JSON, with and without defaults -> message */
static void print_is_the_inverse(void **state)
{
    (void)state;
    Inference__ModelConfig *a = parse_config(mr_pbtext_parse, full_config, &err);
    assert_non_null(a);
    for (int with_defaults = 0; with_defaults < 2; with_defaults++) {
        struct mr_buf b;
        struct mr_json j;
        mr_buf_init(&b, 0);
        mr_pbjson_print(&a->base, with_defaults, &b);
        mr_json_init(&j, mr_buf_view(&b), NULL, 0, NULL);
        assert_int_equal(mr_json_skip(&j, NULL), MR_OK);
        assert_int_equal(mr_json_finish(&j), MR_OK);
        Inference__ModelConfig *again = parse_config_n(mr_pbjson_parse, mr_buf_view(&b), &err);
        if (!again) {
            fail_msg("%s\n%s", err.msg, mr_buf_cstr(&b));
        }
        assert_same_message(&a->base, &again->base);
        config_free(again);
        mr_buf_fini(&b);
    }
    config_free(a);
}

static void out_of_memory(void **state)
{
    (void)state;
    Inference__ModelConfig *a = parse_config(mr_pbtext_parse, full_config, &err);
    struct mr_buf b;
    mr_buf_init(&b, 0);
    mr_pbjson_print(&a->base, true, &b);
    for (uint64_t n = 1;; n++) {
        mr_mem_fail_after(n);
        Inference__ModelConfig *c = parse_config_n(mr_pbjson_parse, mr_buf_view(&b), &err);
        mr_mem_fail_after(0);
        if (c) {
            assert_true(n > 50);
            config_free(c);
            break;
        }
        assert_true(err.status == MR_E_NOMEM || err.status == MR_E_EXHAUSTED);
    }
    config_free(a);
    mr_buf_fini(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(printed_with_defaults),
        cmocka_unit_test(printed_values),
        cmocka_unit_test(entry_without_value),
        cmocka_unit_test(equal_spellings),
        cmocka_unit_test(refusals),
        cmocka_unit_test(escaped_throughout),
        cmocka_unit_test(print_is_the_inverse),
        cmocka_unit_test(out_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
