/* REST bodies as exact text, and answers of other servers as a client reads them. */
#include "oip_test.h"

static const int64_t shape_2[] = {1, 2};

static void check_response(const struct mr_oip_response *r, const char *json, const void *binary,
                           size_t binary_len)
{
    struct bench b;
    bench_init(&b);
    struct mr_oip_encoded e;
    int rc = mr_oip_rest_encode_response(r, &b.buf, &b.arena, &e, &b.err);
    CHECK_ROW(rc == MR_OK, 0, "%s", b.err.msg);
    mr_bytes body = bench_join(&b, &e);
    size_t json_len = binary ? (size_t)e.header_length : body.len;
    CHECK_ROW((e.header_length < 0) == (binary == NULL), 0, "header length");
    mr_str text = mr_str_trim(mr_str_n((const char *)body.ptr, json_len));
    CHECK_ROW(str_is(text, json), 0, "%.*s", MR_STR_ARG(text));
    if (binary) {
        assert_int_equal(json_len % 8, 0);
        assert_int_equal(body.len - json_len, binary_len);
        assert_memory_equal(body.ptr + json_len, binary, binary_len);
    }
    bench_fini(&b);
}

static void json_response(void **state)
{
    (void)state;
    int32_t ints[] = {-5, 100};
    float floats[] = {0.1f, 2.0f};
    uint8_t bools[] = {0, 1};
    uint8_t strings[] = "\2\0\0\0a\"\3\0\0\0b\xff"
                        "c";
    struct mr_oip_param param = {.key = MR_STR("k"), .kind = MR_OIP_STRING, .s = MR_STR("v")};
    struct mr_oip_tensor outputs[] = {
        {.name = MR_STR("i"),
         .tensor = {.dtype = MR_DTYPE_INT32, .rank = 2, .shape = shape_2, .data = ints, .bytes = 8},
         .params = &param,
         .param_count = 1},
        {.name = MR_STR("f"),
         .tensor =
             {.dtype = MR_DTYPE_FP32, .rank = 2, .shape = shape_2, .data = floats, .bytes = 8}},
        {.name = MR_STR("b"),
         .tensor =
             {.dtype = MR_DTYPE_BOOL, .rank = 2, .shape = shape_2, .data = bools, .bytes = 2}},
        {.name = MR_STR("s"),
         .tensor =
             {.dtype = MR_DTYPE_BYTES, .rank = 2, .shape = shape_2, .data = strings, .bytes = 13}},
    };
    struct mr_oip_response r = {.model_name = MR_STR("m"),
                                .model_version = MR_STR("1"),
                                .outputs = outputs,
                                .output_count = 4};
    check_response(
        &r,
        "{\"model_name\":\"m\",\"model_version\":\"1\",\"outputs\":["
        "{\"name\":\"i\",\"datatype\":\"INT32\",\"shape\":[1,2],\"parameters\":{\"k\":\"v\"},"
        "\"data\":[-5,100]},"
        "{\"name\":\"f\",\"datatype\":\"FP32\",\"shape\":[1,2],\"data\":[0.1,2.0]},"
        "{\"name\":\"b\",\"datatype\":\"BOOL\",\"shape\":[1,2],\"data\":[false,true]},"
        "{\"name\":\"s\",\"datatype\":\"BYTES\",\"shape\":[1,2],\"data\":[\"a\\\"\",\"b\xef\xbf\xbd"
        "c\"]}]}",
        NULL, 0);
    struct mr_oip_param params[] = {{.key = MR_STR("final"), .kind = MR_OIP_BOOL, .b = false},
                                    {.key = MR_STR("n"), .kind = MR_OIP_INT, .i = -1}};
    r = (struct mr_oip_response){.id = MR_STR("x"),
                                 .model_name = MR_STR("m"),
                                 .model_version = MR_STR("1"),
                                 .params = params,
                                 .param_count = 2};
    check_response(&r,
                   "{\"id\":\"x\",\"model_name\":\"m\",\"model_version\":\"1\",\"parameters\":{"
                   "\"final\":false,\"n\":-1},"
                   "\"outputs\":[]}",
                   NULL, 0);
}

static void binary_response(void **state)
{
    (void)state;
    int32_t ints[] = {-5, 100};
    struct mr_oip_tensor outputs[] = {
        {.name = MR_STR("a"),
         .tensor = {.dtype = MR_DTYPE_INT32, .rank = 2, .shape = shape_2, .data = ints, .bytes = 8},
         .binary = true},
        {.name = MR_STR("j"),
         .tensor =
             {.dtype = MR_DTYPE_INT32, .rank = 2, .shape = shape_2, .data = ints, .bytes = 8}},
        {.name = MR_STR("s"),
         .tensor = {.dtype = MR_DTYPE_INT32, .rank = 2, .shape = shape_2, .data = NULL, .bytes = 0},
         .binary = true,
         .shm = {MR_STR("r"), 16, 8}},
    };
    struct mr_oip_response r = {.model_name = MR_STR("m"),
                                .model_version = MR_STR("1"),
                                .outputs = outputs,
                                .output_count = 3};
    check_response(&r,
                   "{\"model_name\":\"m\",\"model_version\":\"1\",\"outputs\":["
                   "{\"name\":\"a\",\"datatype\":\"INT32\",\"shape\":[1,2],\"parameters\":{"
                   "\"binary_data_size\":8}},"
                   "{\"name\":\"j\",\"datatype\":\"INT32\",\"shape\":[1,2],\"data\":[-5,100]},"
                   "{\"name\":\"s\",\"datatype\":\"INT32\",\"shape\":[1,2],\"parameters\":{"
                   "\"shared_memory_region\":\"r\","
                   "\"shared_memory_offset\":16,\"shared_memory_byte_size\":8}}]}",
                   ints, 8);
}

static void classified_response(void **state)
{
    (void)state;
    float scores[] = {0.25f, 0.75f};
    mr_str labels[] = {MR_STR("no"), MR_STR("yes")};
    struct mr_oip_tensor output = {
        .name = MR_STR("c"),
        .tensor = {.dtype = MR_DTYPE_FP32, .rank = 2, .shape = shape_2, .data = scores, .bytes = 8},
        .classification = 5,
        .labels = labels,
        .label_count = 2,
        .batched = true};
    struct mr_oip_response r = {.model_name = MR_STR("m"),
                                .model_version = MR_STR("1"),
                                .outputs = &output,
                                .output_count = 1};
    check_response(&r,
                   "{\"model_name\":\"m\",\"model_version\":\"1\",\"outputs\":[{\"name\":\"c\","
                   "\"datatype\":\"BYTES\","
                   "\"shape\":[1,2],\"data\":[\"0.750000:1:yes\",\"0.250000:0:no\"]}]}",
                   NULL, 0);
    output.binary = true;
    check_response(&r,
                   "{\"model_name\":\"m\",\"model_version\":\"1\",\"outputs\":[{\"name\":\"c\","
                   "\"datatype\":\"BYTES\","
                   "\"shape\":[1,2],\"parameters\":{\"binary_data_size\":35}}]}",
                   "\16\0\0\0"
                   "0.750000:1:yes"
                   "\15\0\0\0"
                   "0.250000:0:no",
                   35);
}

static void bad_outputs(void **state)
{
    (void)state;
    static const int64_t negative[] = {-1};
    int32_t ints[] = {1, 2};
    struct {
        struct mr_tensor tensor;
        const char *text;
    } rows[] = {
        {{.dtype = MR_DTYPE_INT32, .rank = 2, .shape = shape_2, .data = ints, .bytes = 4},
         "output tensor shape does not match size of output for 'o'"},
        {{.dtype = MR_DTYPE_INT32, .rank = 2, .shape = shape_2, .data = ints, .bytes = 12},
         "output tensor shape does not match size of output for 'o'"},
        {{.dtype = MR_DTYPE_INT32, .rank = 2, .shape = shape_2, .data = NULL, .bytes = 8},
         "output tensor shape does not match size of output for 'o'"},
        {{.dtype = MR_DTYPE_BYTES, .rank = 2, .shape = shape_2, .data = ints, .bytes = 8},
         "output tensor shape does not match size of output for 'o'"},
        {{.dtype = MR_DTYPE_INT32, .rank = 1, .shape = negative, .data = ints, .bytes = 8},
         "output 'o' has an invalid shape"},
        {{.dtype = 77, .rank = 2, .shape = shape_2, .data = ints, .bytes = 8},
         "Invalid data type for output tensor 'o'"},
        {{.dtype = MR_DTYPE_INVALID, .rank = 2, .shape = shape_2, .data = ints, .bytes = 8},
         "Invalid data type for output tensor 'o'"},
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        for (int pb = 0; pb < 2; pb++) {
            struct bench b;
            bench_init(&b);
            struct mr_oip_tensor output = {.name = MR_STR("o"), .tensor = rows[i].tensor};
            struct mr_oip_response r = {.outputs = &output, .output_count = 1};
            struct mr_oip_encoded e;
            int rc = pb ? mr_oip_pb_encode_response(&r, false, &b.buf, &b.arena, &e, &b.err)
                        : mr_oip_rest_encode_response(&r, &b.buf, &b.arena, &e, &b.err);
            CHECK_ROW(rc == MR_E_INTERNAL && strcmp(b.err.msg, rows[i].text) == 0, i, "%d %s", rc,
                      b.err.msg);
            bench_fini(&b);
        }
    }
}

/* A buffer that may not grow far enough gives an error and takes no reference. */
static void small_buffers(void **state)
{
    (void)state;
    static const int64_t shape[] = {4096};
    struct mr_block *block = mr_block_new(16384);
    memset(block->data, 0, 16384);
    for (int binary = 0; binary < 2; binary++) {
        for (size_t max = 1; max < 200; max += 20) {
            struct bench b;
            bench_init(&b);
            struct mr_buf buf;
            mr_buf_init(&buf, max);
            struct mr_oip_tensor output = {.name = MR_STR("o"),
                                           .binary = binary,
                                           .block = block,
                                           .tensor = {.dtype = MR_DTYPE_INT32,
                                                      .rank = 1,
                                                      .shape = shape,
                                                      .data = block->data,
                                                      .bytes = 16384}};
            struct mr_oip_response r = {
                .model_name = MR_STR("m"), .outputs = &output, .output_count = 1};
            struct mr_oip_encoded e;
            int rc = mr_oip_rest_encode_response(&r, &buf, &b.arena, &e, &b.err);
            if (rc == MR_OK) {
                bench_join(&b, &e);
            }
            CHECK_ROW(rc == (binary && max > 121 ? MR_OK : MR_E_EXHAUSTED), max, "%d", rc);
            rc = mr_oip_pb_encode_response(&r, true, &buf, &b.arena, &e, &b.err);
            if (rc == MR_OK) {
                bench_join(&b, &e);
            }
            CHECK_ROW(rc == (max > 40 ? MR_OK : MR_E_EXHAUSTED), max, "%d", rc);
            assert_int_equal(atomic_load(&block->refs), 1);
            mr_buf_fini(&buf);
            bench_fini(&b);
        }
    }
    mr_block_unref(&block);
}

/* JSON has text alone: other bytes of a request follow it, whatever the caller prefers. */
static void request_of_bytes(void **state)
{
    (void)state;
    int64_t shape[] = {1};
    struct mr_oip_tensor inputs[] = {
        {.name = MR_STR("text"),
         .tensor = {.dtype = MR_DTYPE_BYTES,
                    .rank = 1,
                    .shape = shape,
                    .data = (void *)"\4\0\0\0\xc3\xa4zz",
                    .bytes = 8}},
        {.name = MR_STR("file"),
         .tensor = {.dtype = MR_DTYPE_BYTES,
                    .rank = 1,
                    .shape = shape,
                    .data = (void *)"\4\0\0\0\x89PNG",
                    .bytes = 8}},
    };
    struct mr_oip_request r = {.inputs = inputs, .input_count = 2};
    struct mr_oip_encoded e;
    struct bench b;

    bench_init(&b);
    assert_int_equal(mr_oip_rest_encode_request(&r, &b.buf, &b.arena, &e, &b.err), MR_OK);
    mr_bytes body = bench_join(&b, &e);
    assert_int_equal(body.len, e.header_length + 8);
    assert_memory_equal(body.ptr + e.header_length, inputs[1].tensor.data, 8);
    mr_str json = {(const char *)body.ptr, (size_t)e.header_length};
    assert_true(mr_str_find_str(json, MR_STR("\"data\":[\"\xc3\xa4zz\"]")) >= 0);
    assert_true(mr_str_find_str(json, MR_STR("\"binary_data_size\":8")) >= 0);
    bench_fini(&b);
}

static void raw_request(void **state)
{
    (void)state;
    struct bench b;
    bench_init(&b);
    struct mr_oip_tensor input = {.tensor = {.data = (void *)"payload", .bytes = 7}};
    struct mr_oip_request r = {.inputs = &input, .input_count = 1, .raw_binary = true};
    struct mr_oip_encoded e;
    assert_int_equal(mr_oip_rest_encode_request(&r, &b.buf, &b.arena, &e, &b.err), MR_OK);
    assert_int_equal(e.header_length, 0);
    mr_bytes body = bench_join(&b, &e);
    assert_true(body.len == 7 && memcmp(body.ptr, "payload", 7) == 0);
    r.input_count = 0;
    assert_int_equal(mr_oip_rest_encode_request(&r, &b.buf, &b.arena, &e, &b.err), MR_E_INVALID);
    bench_fini(&b);
}

static void error_body(void **state)
{
    (void)state;
    struct mr_buf buf;
    mr_buf_init(&buf, 0);
    mr_oip_rest_error(&buf, MR_STR("input 'a\"b'\n"));
    assert_true(str_is(mr_buf_view(&buf), "{\"error\":\"input 'a\\\"b'\\n\"}"));
    mr_buf_fini(&buf);
}

struct answer_row {
    const char *json;
    const char *text; /* of the error, NULL = none */
};
static const struct answer_row answers[] = {
    {"{\"error\":\"no such model\"}", "no such model"},
    {"{}", "Unable to parse 'outputs'"},
    {"[", "failed to parse the response JSON buffer: "},
    {"{\"outputs\":[{\"name\":\"o\",\"datatype\":\"INT32\",\"shape\":[1]}]}",
     "Output must set only one of"},
    {"{\"outputs\":[{\"name\":\"o\",\"datatype\":\"INT32\",\"shape\":[1],\"data\":[1,2]}]}",
     "Unable to parse 'data'"},
    /* members that other servers print */
    {"{\"model_name\":\"m\",\"model_version\":null,\"id\":null,\"parameters\":{\"headers\":{\"a\":["
     "1]},\"x\":null},"
     "\"outputs\":[{\"name\":\"o\",\"datatype\":\"INT32\",\"shape\":[1],\"parameters\":{\"content_"
     "type\":\"np\","
     "\"l\":[]},\"data\":[7]}]}",
     NULL},
};

static void foreign_answers(void **state)
{
    (void)state;
    struct bench b;
    bench_init(&b);
    for (size_t i = 0; i < COUNT_OF(answers); i++) {
        mr_bytes body = bench_body(&b, answers[i].json, strlen(answers[i].json));
        struct mr_oip_response r;
        int rc = mr_oip_rest_decode_response(body, -1, &test_limits, &b.arena, &r, &b.err);
        if (answers[i].text) {
            CHECK_ROW(rc < 0 && strstr(b.err.msg, answers[i].text), i, "%d %s", rc, b.err.msg);
            continue;
        }
        CHECK_ROW(rc == MR_OK, i, "%s", b.err.msg);
        assert_int_equal(*(const int32_t *)r.outputs[0].tensor.data, 7);
        assert_true(r.param_count == 0 && r.outputs[0].param_count == 1);
    }
    bench_fini(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(json_response),       cmocka_unit_test(binary_response),
        cmocka_unit_test(classified_response), cmocka_unit_test(bad_outputs),
        cmocka_unit_test(small_buffers),       cmocka_unit_test(request_of_bytes),
        cmocka_unit_test(raw_request),         cmocka_unit_test(error_body),
        cmocka_unit_test(foreign_answers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
