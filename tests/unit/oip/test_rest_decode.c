/* REST requests by table: what is accepted and what it becomes, each error with its text, hostile sizes. */
#include "oip_test.h"

/* A request around one input object. */
#define INPUT(members) "{\"inputs\":[{" members "}]}"
#define NAMED          "\"name\":\"x\","
#define INT32_2        "\"datatype\":\"INT32\",\"shape\":[2]"

static int decode(struct bench *b, const char *json, const void *binary, size_t binary_len,
                  struct mr_oip_request *out)
{
    size_t json_len = strlen(json);
    char *body = malloc(json_len + binary_len + 1);
    memcpy(body, json, json_len);
    if (binary_len > 0) {
        memcpy(body + json_len, binary, binary_len);
    }
    mr_bytes bytes = bench_body(b, body, json_len + binary_len);
    free(body);
    mr_arena_reset(&b->arena);
    int64_t header_length = binary ? (int64_t)json_len : -1;
    return mr_oip_rest_decode_request(bytes, header_length, MR_STR("m"), &test_limits, &b->arena,
                                      out, &b->err);
}

struct error_row {
    const char *json;
    const char *text; /* contained in the error */
};

#define SET_ONE                                                                                    \
    "Input must set only one of the following fields: 'data', 'binary_data_size' in "              \
    "'parameters', "                                                                               \
    "'shared_memory_region' in 'parameters'. But"
#define MISMATCH "Unable to parse 'data': Shape does not match true shape of 'data' field"

static const struct error_row errors[] = {
    {"", "failed to parse the request JSON buffer: "},
    {"{", "failed to parse the request JSON buffer: "},
    {"[]", "failed to parse the request JSON buffer: expected an object, found an array"},
    {"{}", "Unable to parse 'inputs': attempt to access non-existing object member 'inputs'"},
    {"{\"inputs\":[]} x", "failed to parse the request JSON buffer: "},
    {"{\"inputs\":{}}", "Unable to parse 'inputs': expected an array"},
    {"{\"inputs\":null}", "Unable to parse 'inputs': expected an array"},
    {"{\"inputs\":[1]}", "failed to parse the request JSON buffer: expected an object"},
    {"{\"inputs\":[],\"inputs\":[]}", "Unable to parse 'inputs': the member appears twice"},
    {"{\"id\":\"a\",\"id\":\"b\",\"inputs\":[]}", "Unable to parse 'id': the member appears twice"},
    {"{\"inputs\":[],\"id\":7}", "Unable to parse 'id': expected a string"},
    {"{\"inputs\":[],\"outputs\":7}", "Unable to parse 'outputs'"},
    {"{\"inputs\":[],\"outputs\":[{}]}", "Unable to parse 'name'"},
    {"{\"inputs\":[],\"outputs\":[{\"name\":\"a\"},{\"name\":\"a\"}]}",
     "output 'a' already exists in request"},
    {"{\"inputs\":[],\"parameters\":[]}", "Unable to parse 'parameters'"},
    /* tensor members */
    {INPUT(""), "Unable to parse 'name': attempt to access non-existing object member 'name'"},
    {INPUT("\"name\":3"), "Unable to parse 'name': expected a string"},
    {INPUT(NAMED "\"shape\":[2],\"data\":[1,2]"),
     "Unable to parse 'datatype': attempt to access non-existing"},
    {INPUT(NAMED "\"datatype\":\"INT31\""),
     "Unable to parse 'datatype': 'INT31' is not a data type"},
    {INPUT(NAMED "\"datatype\":\"INT32\",\"data\":[1]"),
     "Unable to parse 'shape': attempt to access non-existing"},
    {INPUT(NAMED "\"shape\":2"), "Unable to parse 'shape': expected an array"},
    {INPUT(NAMED "\"shape\":[-1]"),
     "Unable to parse 'shape': attempt to access JSON non-unsigned-integer as unsigned-integer"},
    {INPUT(NAMED "\"shape\":[1.5]"), "Unable to parse 'shape'"},
    {INPUT(NAMED "\"shape\":[\"2\"]"), "Unable to parse 'shape'"},
    {INPUT(NAMED "\"shape\":[9223372036854775808]"), "Unable to parse 'shape'"},
    {INPUT(NAMED "\"shape\":[4294967296,4294967296]"), "Unable to parse 'shape'"},
    {INPUT(NAMED "\"shape\":[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]"),
     "Unable to parse 'shape': more than 32 dimensions"},
    {INPUT(NAMED INT32_2 ",\"shape\":[2]"), "Unable to parse 'shape': the member appears twice"},
    {INPUT(NAMED INT32_2 ",\"data\":[1,2],\"data\":[1,2]"),
     "Unable to parse 'data': the member appears twice"},
    {"{\"inputs\":[{" NAMED INT32_2 ",\"data\":[1,2]},{" NAMED INT32_2 ",\"data\":[1,2]}]}",
     "input 'x' already exists in request"},
    /* sources */
    {INPUT(NAMED INT32_2), SET_ONE " no field is set"},
    {INPUT(NAMED INT32_2 ",\"data\":null"), SET_ONE " no field is set"},
    {INPUT(NAMED INT32_2 ",\"data\":[1,2],\"parameters\":{\"binary_data_size\":8}"),
     SET_ONE " set 'data' 'binary_data_size'"},
    {INPUT(NAMED INT32_2 ",\"data\":[1,2],\"parameters\":{\"shared_memory_region\":\"r\"}"),
     SET_ONE " set 'data' 'shared_memory_region'"},
    {INPUT(NAMED INT32_2 ",\"parameters\":{\"binary_data_size\":8,\"shared_memory_region\":\"r\"}"),
     SET_ONE " set 'binary_data_size' 'shared_memory_region'"},
    {INPUT(NAMED INT32_2 ",\"data\":[1,2],\"parameters\":{\"shared_memory_offset\":8}"),
     "'shared_memory_offset' can not be specified without 'shared_memory_region'"},
    {INPUT(NAMED INT32_2 ",\"parameters\":{\"shared_memory_region\":3}"),
     "Unable to parse 'shared_memory_region': expected a string"},
    {INPUT(NAMED INT32_2
           ",\"parameters\":{\"shared_memory_region\":\"r\",\"shared_memory_byte_size\":-1}"),
     "Unable to parse 'shared_memory_byte_size': expected an unsigned integer"},
    /* data */
    {INPUT(NAMED INT32_2 ",\"data\":[1]"), MISMATCH},
    {INPUT(NAMED INT32_2 ",\"data\":[1,2,3]"), MISMATCH},
    {INPUT(NAMED INT32_2 ",\"data\":[[1,2],[3]]"), MISMATCH},
    {INPUT(NAMED "\"data\":[1,2,3]," INT32_2), MISMATCH},
    {INPUT(NAMED INT32_2 ",\"data\":7"), "Unable to parse 'data': expected an array"},
    {INPUT(NAMED INT32_2 ",\"data\":[1,2.5]"), "Unable to parse 'data': "},
    {INPUT(NAMED INT32_2 ",\"data\":[1,true]"), "Unable to parse 'data': "},
    {INPUT(NAMED INT32_2 ",\"data\":[1,null]"), "Unable to parse 'data': "},
    {INPUT(NAMED INT32_2 ",\"data\":[1,\"2\"]"), "Unable to parse 'data': "},
    {INPUT(NAMED INT32_2 ",\"data\":[1,2147483648]"),
     "Unable to parse 'data': value 2147483648 does not fit"},
    {INPUT(NAMED "\"datatype\":\"UINT8\",\"shape\":[1],\"data\":[-1]"), "Unable to parse 'data': "},
    {INPUT(NAMED "\"datatype\":\"BOOL\",\"shape\":[1],\"data\":[1]"),
     "Unable to parse 'data': expected true or false"},
    {INPUT(NAMED "\"datatype\":\"FP32\",\"shape\":[1],\"data\":[true]"),
     "Unable to parse 'data': "},
    {INPUT(NAMED "\"datatype\":\"BYTES\",\"shape\":[1],\"data\":[1]"),
     "Unable to parse 'data': expected a string"},
    {INPUT(NAMED "\"datatype\":\"BYTES\",\"shape\":[2],\"data\":[\"a\"]"), MISMATCH},
    {INPUT(NAMED "\"datatype\":\"BYTES\",\"shape\":[1],\"data\":[\"a\",\"b\"]"), MISMATCH},
    {INPUT(NAMED "\"datatype\":\"BYTES\",\"shape\":[0],\"data\":[\"a\"]"), MISMATCH},
    {INPUT(NAMED "\"datatype\":\"BYTES\",\"shape\":[1],\"data\":[\"\\ud800\"]"),
     "Unable to parse 'data': "},
    {INPUT(NAMED INT32_2 ",\"data\":[1,2"), "Unable to parse 'data': "},
    {INPUT(NAMED INT32_2 ",\"data\":[1,2]") "]", "failed to parse the request JSON buffer: "},
    /* claims that the text cannot hold: refused before memory is asked for */
    {INPUT(NAMED "\"datatype\":\"FP64\",\"shape\":[1073741824],\"data\":[]"), MISMATCH},
    {INPUT(NAMED "\"datatype\":\"INT8\",\"shape\":[9223372036854775807],\"data\":[1]"), MISMATCH},
    {INPUT(NAMED "\"datatype\":\"BYTES\",\"shape\":[1073741824],\"data\":[\"a\"]"), MISMATCH},
    {INPUT(NAMED "\"data\":[1],\"datatype\":\"INT64\",\"shape\":[4611686018427387904]"),
     "byte size overflow for input 'x': element count (4611686018427387904) * data type size (8)"},
    {INPUT(NAMED INT32_2 ",\"parameters\":{\"binary_data_size\":1073741824}"),
     "unexpected size for input 'x', expecting 1073741824 additional bytes for model 'm'"},
    {INPUT(NAMED INT32_2 ",\"parameters\":{\"binary_data_size\":-8}"),
     "Unable to parse 'binary_data_size': expected an unsigned integer"},
    {INPUT(NAMED INT32_2 ",\"parameters\":{\"binary_data_size\":\"8\"}"),
     "Unable to parse 'binary_data_size'"},
    /* parameters */
    {"{\"inputs\":[],\"parameters\":{\"a\":[]}}", "parameter 'a' has invalid type."},
    {"{\"inputs\":[],\"parameters\":{\"a\":{}}}", "parameter 'a' has invalid type."},
    {"{\"inputs\":[],\"parameters\":{\"a\":null}}", "parameter 'a' has invalid type."},
    {"{\"inputs\":[],\"parameters\":{\"a\":}}", "failed to parse the request JSON buffer: "},
    {"{\"inputs\":[],\"parameters\":{\"triton_x\":1}}",
     "parameter keys starting with 'triton_' are reserved for Triton usage and should not be "
     "specified."},
    {"{\"inputs\":[],\"parameters\":{\"sequence_id\":-1}}", "Unable to parse 'sequence_id'"},
    {"{\"inputs\":[],\"parameters\":{\"sequence_id\":true}}", "Unable to parse 'sequence_id'"},
    {"{\"inputs\":[],\"parameters\":{\"sequence_start\":1}}", "Unable to parse 'sequence_start'"},
    {"{\"inputs\":[],\"parameters\":{\"sequence_end\":\"true\"}}",
     "Unable to parse 'sequence_end'"},
    {"{\"inputs\":[],\"parameters\":{\"priority\":-1}}", "Unable to parse 'priority'"},
    {"{\"inputs\":[],\"parameters\":{\"timeout\":1.5}}", "Unable to parse 'timeout'"},
    {"{\"inputs\":[],\"parameters\":{\"binary_data_output\":0}}",
     "Unable to parse 'binary_data_output'"},
    {"{\"inputs\":[],\"outputs\":[{\"name\":\"y\",\"parameters\":{\"classification\":\"3\"}}]}",
     "Unable to parse 'classification'"},
    {"{\"inputs\":[],\"outputs\":[{\"name\":\"y\",\"parameters\":{\"binary_data\":1}}]}",
     "Unable to parse 'binary_data'"},
    {"{\"inputs\":[],\"outputs\":[{\"name\":\"y\",\"parameters\":{\"classification\":3,"
     "\"shared_memory_region\":\"r\"}}]}",
     "Output can't set both 'shared_memory_region' and 'classification'"},
    {"{\"inputs\":[],\"outputs\":[{\"name\":\"y\",\"parameters\":{\"binary_data\":true,"
     "\"shared_memory_region\":\"r\"}}]}",
     "Output can't set both 'shared_memory_region' and 'binary_data'"},
    /* text that is not UTF-8 */
    {"{\"inputs\":[],\"id\":\"\xff\"}", "Unable to parse 'id'"},
};

static void error_texts(void **state)
{
    (void)state;
    struct bench b;
    bench_init(&b);
    for (size_t i = 0; i < COUNT_OF(errors); i++) {
        struct mr_oip_request r;
        int rc = decode(&b, errors[i].json, NULL, 0, &r);
        CHECK_ROW(rc == MR_E_INVALID, i, "%s gave %d %s", errors[i].json, rc, b.err.msg);
        CHECK_ROW(strstr(b.err.msg, errors[i].text), i, "%s gave %s", errors[i].json, b.err.msg);
        /* Without an error value the status is the same. */
        mr_arena_reset(&b.arena);
        rc = mr_oip_rest_decode_request((mr_bytes){b.body, b.body_len}, -1, MR_STR("m"),
                                        &test_limits, &b.arena, &r, NULL);
        CHECK_ROW(rc == MR_E_INVALID, i, "%s gave %d", errors[i].json, rc);
    }
    assert_int_equal(mr_block_get_stats().out_bytes, 0);
    bench_fini(&b);
}

/* Every prefix of a request is an error, never a read past its end. */
static void truncated(void **state)
{
    (void)state;
    static const char json[] = "{\"id\":\"a\\u00e4\",\"parameters\":{\"p\":1.5,\"s\":\"t\"},"
                               "\"inputs\":[{\"name\":\"x\",\"datatype\":"
                               "\"BYTES\",\"shape\":[2],\"data\":[\"a\\n\",\"b\"]},{\"data\":[[1],["
                               "2]],\"name\":\"y\",\"shape\":[2,1],"
                               "\"datatype\":\"FP16\"}],\"outputs\":[{\"name\":\"z\","
                               "\"parameters\":{\"classification\":2}}]}";
    struct bench b;
    bench_init(&b);
    struct mr_oip_request r;
    for (size_t len = 0; len < sizeof json - 1; len++) {
        mr_arena_reset(&b.arena);
        int rc = mr_oip_rest_decode_request(bench_body(&b, json, len), -1, MR_STR("m"),
                                            &test_limits, &b.arena, &r, &b.err);
        CHECK_ROW(rc == MR_E_INVALID, len, "%s", b.err.msg);
    }
    mr_bytes whole = bench_body(&b, json, sizeof json - 1);
    assert_int_equal(
        mr_oip_rest_decode_request(whole, -1, MR_STR("m"), &test_limits, &b.arena, &r, &b.err),
        MR_OK);
    assert_true(str_is(r.id, "a\xc3\xa4"));
    assert_int_equal(r.input_count, 2);
    bench_fini(&b);
}

static void data_before_type(void **state)
{
    (void)state;
    struct bench b;
    bench_init(&b);
    struct mr_oip_request r;
    static const char *const rows[] = {
        "{\"inputs\":[{\"data\":[[1,2],[3,4]],\"shape\":[2,2],\"datatype\":\"INT16\",\"name\":"
        "\"x\"}]}",
        "{\"inputs\":[{\"shape\":[2,2],\"data\": [ 1 , [2,[3]] , 4 ] "
        ",\"datatype\":\"INT16\",\"name\":\"x\"}]}",
        "{\"unknown\":{\"a\":[1,{}]},\"inputs\":[{\"name\":\"x\",\"extra\":[[]],\"datatype\":"
        "\"INT16\","
        "\"shape\":[2,2],\"data\":[1,2,3,4],\"parameters\":null}],\"outputs\":null,\"id\":null}",
    };
    static const int16_t values[] = {1, 2, 3, 4};
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        CHECK_ROW(decode(&b, rows[i], NULL, 0, &r) == MR_OK, i, "%s", b.err.msg);
        assert_int_equal(r.inputs[0].tensor.bytes, 8);
        assert_memory_equal(r.inputs[0].tensor.data, values, 8);
        assert_int_equal(r.output_count, 0);
    }
    bench_fini(&b);
}

static void half_floats(void **state)
{
    (void)state;
    struct bench b;
    bench_init(&b);
    struct mr_oip_request r;
    assert_int_equal(
        decode(&b,
               INPUT(NAMED "\"datatype\":\"FP16\",\"shape\":[4],\"data\":[1,-2.5,Infinity,NaN]"),
               NULL, 0, &r),
        MR_OK);
    const uint16_t *half = r.inputs[0].tensor.data;
    assert_int_equal(r.inputs[0].tensor.bytes, 8);
    assert_true(half[0] == 0x3c00 && half[1] == 0xc100 && half[2] == 0x7c00);
    assert_true(isnan(mr_fp16_to_float(half[3])));
    assert_int_equal(
        decode(&b, INPUT(NAMED "\"datatype\":\"FP16\",\"shape\":[1],\"data\":[-1e9]"), NULL, 0, &r),
        MR_E_INVALID);
    assert_non_null(strstr(b.err.msg, "value -1e+09 does not fit FP16"));
    assert_int_equal(decode(&b,
                            INPUT(NAMED "\"datatype\":\"BF16\",\"shape\":[2],\"data\":"
                                        "[3.140625,257.0000001]"),
                            NULL, 0, &r),
                     MR_OK);
    const uint16_t *brain = r.inputs[0].tensor.data;
    assert_true(brain[0] == 0x4049 && brain[1] == 0x4381);
    /* Rounded once: a float would be at the tie, 2049. */
    assert_int_equal(
        decode(&b, INPUT(NAMED "\"datatype\":\"FP16\",\"shape\":[1],\"data\":[2049.0000001]"), NULL,
               0, &r),
        MR_OK);
    assert_int_equal(*(const uint16_t *)r.inputs[0].tensor.data, 0x6801);
    bench_fini(&b);
}

static void request_parameters(void **state)
{
    (void)state;
    struct bench b;
    bench_init(&b);
    struct mr_oip_request r;
    assert_int_equal(
        decode(&b,
               "{\"parameters\":{\"sequence_id\":\"abc\",\"binary_data_output\":true,\"n\":1,"
               "\"big\":18446744073709551615,\"f\":2e0,\"n\":2,\"priority\":18446744073709551615},"
               "\"inputs\":[],\"outputs\":[{\"name\":\"y\",\"parameters\":{\"binary_data\":false,"
               "\"classification\":99999999999,\"own\":\"x\"}},{\"name\":\"z\"}]}",
               NULL, 0, &r),
        MR_OK);
    assert_true(r.has_sequence_id && str_is(r.sequence_id_str, "abc"));
    assert_true(r.binary_data_output && r.priority == UINT64_MAX);
    assert_int_equal(r.param_count, 3);
    assert_true(str_is(r.params[0].key, "n") && r.params[0].kind == MR_OIP_INT &&
                r.params[0].i == 2);
    assert_true(r.params[1].kind == MR_OIP_UINT && r.params[1].u == UINT64_MAX);
    assert_true(r.params[2].kind == MR_OIP_DOUBLE && r.params[2].d == 2.0);
    assert_true(r.outputs[0].binary_data == 0 && r.outputs[0].classification == INT32_MAX);
    assert_true(r.outputs[0].param_count == 1 && str_is(r.outputs[0].params[0].s, "x"));
    assert_int_equal(r.outputs[1].binary_data, -1);
    assert_int_equal(r.outputs[1].classification, 0);
    bench_fini(&b);
}

struct binary_row {
    const char *json;
    const char *binary;
    size_t binary_len;
    const char *text; /* of the error, NULL = none */
};
#define BIN(type, shape, size)                                                                     \
    INPUT(NAMED "\"datatype\":\"" type "\",\"shape\":" shape                                       \
                ",\"parameters\":{\"binary_data_size\":" size "}")

static const struct binary_row binaries[] = {
    {BIN("INT32", "[2]", "8"), "12345678", 8, NULL},
    {BIN("INT32", "[2]", "8"), "1234567", 7,
     "unexpected size for input 'x', expecting 1 additional bytes for model 'm'"},
    {BIN("INT32", "[2]", "8"), "", 0,
     "unexpected size for input 'x', expecting 8 additional bytes for model 'm'"},
    {BIN("INT32", "[2]", "8"), "123456789", 9, "unexpected additional input data for model 'm'"},
    {BIN("INT32", "[2]", "18446744073709551615"), "12345678", 8,
     "unexpected size for input 'x', expecting 18446744073709551607 additional bytes for model "
     "'m'"},
    {INPUT(NAMED INT32_2 ",\"data\":[1,2]"), "1", 1,
     "unexpected additional input data for model 'm'"},
    /* size against shape is the scheduler's */
    {BIN("INT32", "[2]", "4"), "1234", 4, NULL},
    {BIN("INT32", "[0]", "0"), "", 0, NULL},
    {BIN("BYTES", "[0]", "0"), "", 0, NULL},
    {BIN("BYTES", "[2]", "9"), "\1\0\0\0a\0\0\0\0", 9, NULL},
    {BIN("BYTES", "[3]", "9"), "\1\0\0\0a\0\0\0\0", 9,
     "expected 3 string elements for inference input 'x' for model 'm', got 2"},
    {BIN("BYTES", "[1]", "9"), "\1\0\0\0a\0\0\0\0", 9,
     "unexpected number of string elements 2 for inference input 'x' for model 'm', expecting 1"},
    {BIN("BYTES", "[2]", "7"), "\1\0\0\0a\0\0", 7,
     "incomplete string length indicator for inference input 'x' for model 'm', expecting 4 bytes "
     "but only 2"},
    {BIN("BYTES", "[1]", "6"), "\3\0\0\0ab", 6,
     "incomplete string data for inference input 'x' for model 'm', expecting string of length 3 "
     "bytes but only 2"},
    {BIN("BYTES", "[1]", "6"), "\377\377\377\377ab", 6,
     "expecting string of length 4294967295 bytes but only 2"},
};

static void binary_extension(void **state)
{
    (void)state;
    struct bench b;
    bench_init(&b);
    for (size_t i = 0; i < COUNT_OF(binaries); i++) {
        const struct binary_row *row = &binaries[i];
        struct mr_oip_request r;
        int rc = decode(&b, row->json, row->binary, row->binary_len, &r);
        if (row->text) {
            CHECK_ROW(rc == MR_E_INVALID && strstr(b.err.msg, row->text), i, "%d %s", rc,
                      b.err.msg);
            continue;
        }
        CHECK_ROW(rc == MR_OK, i, "%s", b.err.msg);
        assert_int_equal(r.inputs[0].tensor.bytes, row->binary_len);
        assert_true(is_aligned(&r.inputs[0].tensor));
        if (row->binary_len > 0) {
            assert_memory_equal(r.inputs[0].tensor.data, row->binary, row->binary_len);
        }
    }
    bench_fini(&b);
}

static void header_length(void **state)
{
    (void)state;
    struct bench b;
    bench_init(&b);
    struct mr_oip_request r;
    static const char json[] = "{\"inputs\":[]}";
    mr_bytes body = bench_body(&b, json, sizeof json - 1);
    static const int64_t bad[] = {-2, 14, INT64_MAX, INT64_MIN};
    for (size_t i = 0; i < COUNT_OF(bad); i++) {
        char text[80];
        snprintf(text, sizeof text, "inference header size should be in range (0, 13), got: %lld",
                 (long long)bad[i]);
        int rc = mr_oip_rest_decode_request(body, bad[i], MR_STR("m"), &test_limits, &b.arena, &r,
                                            &b.err);
        CHECK_ROW(rc == MR_E_INVALID && strcmp(b.err.msg, text) == 0, i, "%s", b.err.msg);
    }
    /* Raw binary: the body is the one input. */
    assert_int_equal(
        mr_oip_rest_decode_request(body, 0, MR_STR("m"), &test_limits, &b.arena, &r, &b.err),
        MR_OK);
    assert_true(r.raw_binary && r.binary_data_output && r.input_count == 1);
    assert_true(r.inputs[0].tensor.dtype == MR_DTYPE_INVALID && r.inputs[0].tensor.bytes == 13);
    assert_ptr_equal(r.inputs[0].tensor.data, body.ptr);
    assert_int_equal(
        mr_oip_rest_decode_request((mr_bytes){NULL, 0}, 0, MR_STR("m"), NULL, &b.arena, &r, &b.err),
        MR_OK);
    assert_int_equal(r.inputs[0].tensor.bytes, 0);
    bench_fini(&b);
}

static void raw_alignment(void **state)
{
    (void)state;
    struct bench b;
    bench_init(&b);
    mr_bytes body = bench_body(&b, "_12345678", 9);
    for (size_t skip = 0; skip < 2; skip++) {
        struct mr_oip_request r;
        mr_bytes part = {body.ptr + skip, 8};
        int rc = mr_oip_rest_decode_request(part, 0, MR_STR("m"), NULL, &b.arena, &r, &b.err);
        assert_int_equal(rc, MR_OK);
        r.inputs[0].tensor.dtype = MR_DTYPE_FP64;
        assert_int_equal(mr_oip_tensor_align(&r.inputs[0], &b.arena, &b.err), MR_OK);
        assert_true(is_aligned(&r.inputs[0].tensor));
        assert_memory_equal(r.inputs[0].tensor.data, part.ptr, 8);
    }
    bench_fini(&b);
}

static void limits(void **state)
{
    (void)state;
    struct bench b;
    bench_init(&b);
    struct mr_oip_limits l = test_limits;
    struct mr_oip_request r;
    static const char json[] =
        "{\"inputs\":[{\"name\":\"x\",\"shape\":[10],\"datatype\":\"FP64\",\"data\":"
        "[0,0,0,0,0,0,0,0,0,0]},{\"name\":\"y\",\"shape\":[0],\"datatype\":\"FP64\",\"data\":[]}]}";
    mr_bytes body = bench_body(&b, json, sizeof json - 1);
    l.max_json_bytes = sizeof json - 2;
    assert_int_equal(mr_oip_rest_decode_request(body, -1, MR_STR("m"), &l, &b.arena, &r, &b.err),
                     MR_E_TOO_LARGE);
    assert_non_null(strstr(b.err.msg, "request JSON size of "));
    assert_non_null(strstr(b.err.msg, "exceeds the maximum allowed input size of "));
    assert_non_null(strstr(b.err.msg, "Use --http-max-input-size to increase the limit."));
    l.max_json_bytes = sizeof json;
    l.max_tensors = 1;
    assert_int_equal(mr_oip_rest_decode_request(body, -1, MR_STR("m"), &l, &b.arena, &r, &b.err),
                     MR_E_INVALID);
    assert_string_equal(b.err.msg, "more than 1 inputs");
    /* The tensor counts as well as the text. */
    static const char wide[] =
        "{\"inputs\":[{\"name\":\"x\",\"shape\":[30],\"datatype\":\"FP64\",\"data\":"
        "[0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0]}]}";
    body = bench_body(&b, wide, sizeof wide - 1);
    l.max_json_bytes = 200;
    assert_int_equal(mr_oip_rest_decode_request(body, -1, MR_STR("m"), &l, &b.arena, &r, &b.err),
                     MR_E_TOO_LARGE);
    assert_non_null(strstr(b.err.msg, "Use --http-max-input-size to increase the limit."));
    l.max_json_depth = 3;
    l.max_json_bytes = 0;
    assert_int_equal(mr_oip_rest_decode_request(body, -1, MR_STR("m"), &l, &b.arena, &r, &b.err),
                     MR_E_INVALID);
    /* Raw bodies are under the same limit, binary data is not. */
    l = test_limits;
    l.max_json_bytes = 100;
    assert_int_equal(mr_oip_rest_decode_request(body, 0, MR_STR("m"), &l, &b.arena, &r, &b.err),
                     MR_E_TOO_LARGE);
    bench_fini(&b);
}

static void many_names(void **state)
{
    (void)state;
    struct bench b;
    bench_init(&b);
    struct mr_oip_limits l = test_limits;
    l.max_tensors = 1000;
    for (int twice = 0; twice < 2; twice++) {
        mr_buf_reset(&b.buf);
        mr_buf_c(&b.buf, "{\"inputs\":[");
        for (int i = 0; i < 500; i++) {
            mr_buf_printf(&b.buf,
                          "%s{\"name\":\"x%d\",\"shape\":[0],\"datatype\":\"FP32\",\"data\":[]}",
                          i ? "," : "", twice && i == 499 ? 17 : i);
        }
        mr_buf_c(&b.buf, "]}");
        struct mr_oip_request r;
        mr_arena_reset(&b.arena);
        int rc = mr_oip_rest_decode_request(bench_body(&b, b.buf.ptr, b.buf.len), -1, MR_STR("m"),
                                            &l, &b.arena, &r, &b.err);
        assert_int_equal(rc, twice ? MR_E_INVALID : MR_OK);
        assert_true(!twice || strcmp(b.err.msg, "input 'x17' already exists in request") == 0);
    }
    mr_buf_reset(&b.buf);
    mr_buf_c(&b.buf, "{\"inputs\":[],\"parameters\":{");
    for (int i = 0; i < 1025; i++) {
        mr_buf_printf(&b.buf, "%s\"p%d\":%d", i ? "," : "", i, i);
    }
    mr_buf_c(&b.buf, "}}");
    struct mr_oip_request r;
    assert_int_equal(mr_oip_rest_decode_request(bench_body(&b, b.buf.ptr, b.buf.len), -1,
                                                MR_STR("m"), &l, &b.arena, &r, &b.err),
                     MR_E_INVALID);
    assert_string_equal(b.err.msg, "request has more than 1024 parameters");
    bench_fini(&b);
}

/* An arena that is too small ends in an error, wherever it ends. */
static void small_arenas(void **state)
{
    (void)state;
    static const char json[] = "{\"id\":\"\\u00e4\",\"parameters\":{\"p\":1},\"inputs\":[{\"name\":"
                               "\"\\u00e4\",\"datatype\":\"BYTES\",\"shape\":"
                               "[2],\"data\":[\"\\n\",\"b\"]},{\"name\":\"y\",\"shape\":[200],"
                               "\"datatype\":\"INT8\",\"parameters\":{\"k\":1,"
                               "\"binary_data_size\":0}}],\"outputs\":[{\"name\":\"z\"}]}";
    for (size_t limit = 64; limit < 8192; limit += 64) {
        struct bench b;
        bench_init(&b);
        struct mr_arena arena;
        struct mr_oip_request r;
        mr_arena_init(&arena, 64, limit);
        int rc = mr_oip_rest_decode_request(bench_body(&b, json, sizeof json - 1), -1, MR_STR("m"),
                                            &test_limits, &arena, &r, &b.err);
        CHECK_ROW(rc == MR_OK || rc == MR_E_EXHAUSTED || rc == MR_E_NOMEM, limit, "%d %s", rc,
                  b.err.msg);
        mr_arena_fini(&arena);
        bench_fini(&b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(error_texts),
        cmocka_unit_test(truncated),
        cmocka_unit_test(data_before_type),
        cmocka_unit_test(half_floats),
        cmocka_unit_test(request_parameters),
        cmocka_unit_test(binary_extension),
        cmocka_unit_test(header_length),
        cmocka_unit_test(raw_alignment),
        cmocka_unit_test(limits),
        cmocka_unit_test(many_names),
        cmocka_unit_test(small_arenas),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
