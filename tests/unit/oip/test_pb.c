/* gRPC messages: requests written in protobuf's text form and packed by protobuf-c, each error with its
 * text, what only the wire form can show (unpacked, in parts, unknown, cut), answers read by protobuf-c. */
#include "oip_test.h"

#include "codec/pb.h"
#include "codec/pbtext.h"
#include "inference.pb-c.h"

static mr_bytes packed(struct bench *b, const char *text)
{
    ProtobufCMessage *m = NULL;
    int rc =
        mr_pbtext_parse(&inference__model_infer_request__descriptor, mr_str_c(text), &m, &b->err);
    CHECK_ROW(rc == MR_OK, 0, "%s: %s", text, b->err.msg);
    size_t size = protobuf_c_message_get_packed_size(m);
    uint8_t *bytes = malloc(size + 1);
    protobuf_c_message_pack(m, bytes);
    protobuf_c_message_free_unpacked(m, NULL);
    mr_bytes body = bench_body(b, bytes, size);
    free(bytes);
    return body;
}

struct content_row {
    const char *datatype;
    const char *contents;
    const char *bytes; /* as expected */
    size_t len;
};
#define ROW(datatype, contents, bytes)                                                             \
    {                                                                                              \
        datatype, contents, bytes, sizeof(bytes) - 1                                               \
    }

static const struct content_row contents_rows[] = {
    ROW("BOOL", "bool_contents:[true,false]", "\1\0"),
    ROW("INT8", "int_contents:[-128,127]", "\x80\x7f"),
    ROW("INT16", "int_contents:[-32768,32767]", "\0\x80\xff\x7f"),
    ROW("INT32", "int_contents:[-2147483648,2147483647]", "\0\0\0\x80\xff\xff\xff\x7f"),
    ROW("INT64", "int64_contents:[-9223372036854775808,1]", "\0\0\0\0\0\0\0\x80\1\0\0\0\0\0\0\0"),
    ROW("UINT8", "uint_contents:[0,255]", "\0\xff"),
    ROW("UINT16", "uint_contents:[1,65535]", "\1\0\xff\xff"),
    ROW("UINT32", "uint_contents:[1,4294967295]", "\1\0\0\0\xff\xff\xff\xff"),
    ROW("UINT64", "uint64_contents:[1,18446744073709551615]",
        "\1\0\0\0\0\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff"),
    ROW("FP32", "fp32_contents:[1,-2]", "\0\0\x80\x3f\0\0\0\xc0"),
    ROW("FP64", "fp64_contents:[1,-2]", "\0\0\0\0\0\0\xf0\x3f\0\0\0\0\0\0\0\xc0"),
    ROW("BYTES", "bytes_contents:['ab','']", "\2\0\0\0ab\0\0\0\0"),
};

static void typed_contents(void **state)
{
    (void)state;
    struct bench b;
    bench_init(&b);
    for (size_t i = 0; i < COUNT_OF(contents_rows); i++) {
        const struct content_row *row = &contents_rows[i];
        char text[300];
        snprintf(text, sizeof text,
                 "model_name:'m' inputs{name:'x' datatype:'%s' shape:[2] contents{%s}}",
                 row->datatype, row->contents);
        mr_bytes body = packed(&b, text);
        struct mr_oip_request r;
        mr_arena_reset(&b.arena);
        int rc = mr_oip_pb_decode_request(body, &test_limits, &b.arena, &r, &b.err);
        CHECK_ROW(rc == MR_OK, i, "%s", b.err.msg);
        const struct mr_tensor *t = &r.inputs[0].tensor;
        CHECK_ROW(t->bytes == row->len && memcmp(t->data, row->bytes, row->len) == 0, i, "%s",
                  row->datatype);
        CHECK_ROW(is_aligned(t), i, "alignment");
        /* The same list for a tensor of one element more. */
        snprintf(text, sizeof text,
                 "model_name:'m' inputs{name:'x' datatype:'%s' shape:[3] contents{%s}}",
                 row->datatype, row->contents);
        rc = mr_oip_pb_decode_request(packed(&b, text), &test_limits, &b.arena, &r, &b.err);
        CHECK_ROW(rc == MR_E_INVALID, i, "%d", rc);
        const char *expected =
            strcmp(row->datatype, "BYTES") == 0
                ? "expected 3 string elements for inference input 'x' for model 'm', got 2"
                : "input byte size mismatch for input 'x' for model 'm'. Expected ";
        CHECK_ROW(strstr(b.err.msg, expected), i, "%s", b.err.msg);
    }
    bench_fini(&b);
}

struct error_row {
    const char *request;
    const char *text; /* NULL = no error */
};
#define X2                "name:'x' datatype:'INT32' shape:[2] "
#define PARAM(key, value) "parameters{key:'" key "' value{" value "}}"

static const struct error_row errors[] = {
    {"", NULL},
    {"model_name:'m' inputs{" X2 "} raw_input_contents:'12345678'", NULL},
    {"model_name:'m' inputs{" X2 "}",
     "unable to find data for input tensor 'x' for model 'm' in request."},
    {"model_name:'m' raw_input_contents:'1'",
     "expected 0 raw_input_contents but got 1 for model 'm'"},
    {"model_name:'m' inputs{" X2 "} raw_input_contents:'12345678' raw_input_contents:''",
     "expected 1 raw_input_contents but got 2 for model 'm'"},
    {"model_name:'m' inputs{" X2 "contents{int_contents:[1,2]}} raw_input_contents:'12345678'",
     "contents field must not be specified when using raw_input_contents for 'x' for model 'm'"},
    {"model_name:'m' inputs{" X2 "contents{}} raw_input_contents:'12345678'", NULL},
    {"model_name:'m' inputs{" X2 "contents{}}", "Expected 8, got 0"},
    {"model_name:'m' inputs{" X2
     "contents{int_contents:[1,2]}} inputs{name:'y' datatype:'INT32' shape:[2]}",
     "unable to find data for input tensor 'y' for model 'm' in request."},
    {"model_name:'m' inputs{" X2 "contents{fp32_contents:[1,2]}}",
     "unexpected explicit tensor data for input tensor 'x' for model 'm' of type 'FP32', expected "
     "datatype 'INT32'"},
    {"model_name:'m' inputs{" X2 "contents{int_contents:[1,2] bool_contents:true}}",
     "unexpected explicit tensor data for input tensor 'x' for model 'm' of type 'BOOL'"},
    {"model_name:'m' inputs{name:'x' datatype:'FP16' shape:[1] contents{fp32_contents:[1]}}",
     "unexpected explicit tensor data for input tensor 'x' for model 'm' of type 'FP32', expected "
     "datatype 'FP16'"},
    {"model_name:'m' inputs{name:'x' datatype:'FP16' shape:[1] contents{}}",
     "unexpected explicit tensor data for input tensor 'x'"},
    {"inputs{name:'x' datatype:'INT8' shape:[1] contents{int_contents:128}}",
     "value 128 of input tensor 'x' does not fit INT8"},
    {"inputs{name:'x' datatype:'INT16' shape:[1] contents{int_contents:-32769}}",
     "value -32769 of input tensor 'x'"},
    {"inputs{name:'x' datatype:'UINT8' shape:[1] contents{uint_contents:256}}",
     "value 256 of input tensor 'x'"},
    {"inputs{name:'x' datatype:'UINT16' shape:[1] contents{uint_contents:65536}}",
     "value 65536 of input tensor 'x'"},
    {"inputs{name:'x' datatype:'INT32' shape:[0] contents{}}", NULL},
    {"inputs{name:'x' datatype:'INT31' shape:[0] contents{}}",
     "input tensor 'x' has an invalid datatype 'INT31'"},
    {"inputs{name:'x' shape:[0] contents{}}", "input tensor 'x' has an invalid datatype ''"},
    {"inputs{name:'x' datatype:'INT8' shape:[-1] contents{}}", "input tensor 'x'"},
    {"inputs{name:'x' datatype:'INT8' shape:[9223372036854775807,9223372036854775807] contents{}}",
     "input tensor 'x'"},
    {"inputs{name:'x' datatype:'INT64' shape:[1073741824] contents{int64_contents:1}}",
     "Expected 8589934592, got 8"},
    {"inputs{name:'x' datatype:'BYTES' shape:[1073741824] contents{bytes_contents:'a'}}",
     "expected 1073741824 string elements"},
    {"inputs{name:'x' datatype:'BYTES' shape:[1]} raw_input_contents:'\\004\\000\\000\\000abc'",
     "expecting string of length 4 bytes but only 3 bytes available"},
    {"inputs{name:'x' datatype:'BYTES' shape:[2]} raw_input_contents:'\\001\\000\\000\\000a'",
     "expected 2 string elements for inference input 'x'"},
    {"inputs{" X2 "} inputs{" X2 "} raw_input_contents:'' raw_input_contents:''",
     "input 'x' already exists in request"},
    {"outputs{name:'y'} outputs{name:'y'}", "output 'y' already exists in request"},
    /* shared memory */
    {"inputs{" X2 PARAM("shared_memory_region", "string_param:'r'") PARAM(
         "shared_memory_byte_size",
         "int64_param:8") "} inputs{name:'y' datatype:'INT8' shape:[1]} raw_input_contents:'1'",
     NULL},
    {"model_name:'m' inputs{" X2
     "contents{} " PARAM("shared_memory_region", "string_param:'r'") "}",
     "unexpected 'content' provided when using shared memory for input tensor 'x' for model 'm'"},
    {"inputs{" X2 PARAM("shared_memory_region", "int64_param:1") "}",
     "invalid value type for 'shared_memory_region' parameter, expected string_param."},
    {"inputs{" X2 PARAM("shared_memory_offset", "int64_param:1") "}",
     "'shared_memory_offset' can not be specified without 'shared_memory_region' parameter for "
     "tensor 'x'"},
    {"outputs{name:'y' " PARAM("shared_memory_region", "string_param:'r'")
         PARAM("classification", "int64_param:1") "}",
     "output can't set both 'shared_memory_region' and 'classification'"},
    {"outputs{name:'y' " PARAM("classification", "int64_param:0") "}",
     "invalid value for 'classification'"},
    {"outputs{name:'y' " PARAM("classification", "string_param:'3'") "}",
     "invalid value type for 'classification'"},
    /* parameters */
    {PARAM("triton_x", "bool_param:true"),
     "parameter keys starting with 'triton_' are reserved for Triton usage. Only the following "
     "keys starting "
     "with 'triton_' are allowed: triton_enable_empty_final_response"},
    {PARAM("triton_enable_empty_final_response", "int64_param:1"), "expected bool_param."},
    {PARAM("triton_enable_empty_final_response", "bool_param:true"), NULL},
    {PARAM("sequence_id", "bool_param:true"),
     "invalid value type for 'sequence_id' parameter, expected int64_param or string_param."},
    {PARAM("sequence_id", "string_param:'a'"), NULL},
    {PARAM("sequence_start", "int64_param:1"),
     "invalid value type for 'sequence_start' parameter, expected bool_param."},
    {PARAM("sequence_end", "int64_param:1"),
     "invalid value type for 'sequence_end' parameter, expected bool_param."},
    {PARAM("priority", "int64_param:-1"), "invalid value for 'priority', expected value >= 0."},
    {PARAM("priority", "string_param:'1'"),
     "invalid value type for 'priority' parameter, expected int64_param or uint64_param."},
    {PARAM("timeout", "double_param:1"), "invalid value type for 'timeout' parameter"},
    {PARAM("own", ""),
     "invalid value type for 'own' parameter, expected int64_param, bool_param, or string_param."},
    {PARAM("binary_data_output", "bool_param:true"), NULL},
};

static void errors_by_table(void **state)
{
    (void)state;
    struct bench b;
    bench_init(&b);
    for (size_t i = 0; i < COUNT_OF(errors); i++) {
        mr_bytes body = packed(&b, errors[i].request);
        struct mr_oip_request r;
        mr_arena_reset(&b.arena);
        int rc = mr_oip_pb_decode_request(body, &test_limits, &b.arena, &r, &b.err);
        if (errors[i].text) {
            CHECK_ROW(rc == MR_E_INVALID && strstr(b.err.msg, errors[i].text), i, "%s gave %d %s",
                      errors[i].request, rc, b.err.msg);
        } else {
            CHECK_ROW(rc == MR_OK, i, "%s gave %s", errors[i].request, b.err.msg);
        }
        mr_arena_reset(&b.arena);
        rc = mr_oip_pb_decode_request(body, NULL, &b.arena, &r, NULL);
        CHECK_ROW(rc == (errors[i].text ? MR_E_INVALID : MR_OK), i, "%d", rc);
    }
    bench_fini(&b);
}

static const char whole_request[] =
    "model_name:'m' model_version:'2' id:'i' " PARAM("sequence_id", "int64_param:-1") PARAM(
        "own", "double_param:0.5") "inputs{name:'x' datatype:'INT32' shape:[1,2] "
                                   "contents{int_contents:[1,2]}} "
                                   "inputs{name:'y' datatype:'FP64' shape:[1] "
                                   "contents{fp64_contents:[1]}} "
                                   "inputs{name:'z' datatype:'BYTES' shape:[1] "
                                   "contents{bytes_contents:'abc'}} "
                                   "outputs{name:'o' " PARAM("classification", "int64_param:2") "}";

/* Every prefix of a message decodes or fails, and never reads past its end. */
static void truncated(void **state)
{
    (void)state;
    struct bench b;
    bench_init(&b);
    mr_bytes body = packed(&b, whole_request);
    uint8_t *all = malloc(body.len);
    size_t len = body.len;
    memcpy(all, body.ptr, len);
    struct mr_oip_request r;
    size_t failed = 0;
    for (size_t cut = 0; cut < len; cut++) {
        mr_arena_reset(&b.arena);
        failed += mr_oip_pb_decode_request(bench_body(&b, all, cut), &test_limits, &b.arena, &r,
                                           &b.err) < 0;
        /* And one wrong bit anywhere. */
        for (int bit = 0; bit < 8; bit++) {
            all[cut] ^= (uint8_t)(1 << bit);
            mr_arena_reset(&b.arena);
            mr_oip_pb_decode_request(bench_body(&b, all, len), &test_limits, &b.arena, &r, &b.err);
            all[cut] ^= (uint8_t)(1 << bit);
        }
    }
    assert_true(failed > len - 12);
    mr_arena_reset(&b.arena);
    assert_int_equal(
        mr_oip_pb_decode_request(bench_body(&b, all, len), &test_limits, &b.arena, &r, &b.err),
        MR_OK);
    assert_true(str_is(r.model_name, "m") && str_is(r.model_version, "2") && str_is(r.id, "i"));
    assert_true(r.has_sequence_id && r.sequence_id == UINT64_MAX && r.param_count == 1);
    assert_true(r.output_count == 1 && r.outputs[0].classification == 2);
    free(all);
    bench_fini(&b);
}

/* An input of two elements whose contents come as `contents`, in one or more fields 5. */
static int decode_parts(struct bench *b, const char *datatype, const mr_bytes *parts, size_t count,
                        struct mr_oip_request *r)
{
    mr_buf_reset(&b->buf);
    size_t input = mr_pb_begin(&b->buf, 5);
    mr_pb_put_str(&b->buf, 1, MR_STR("wrong"));
    mr_pb_put_str(&b->buf, 1, MR_STR("x"));
    mr_pb_put_str(&b->buf, 2, mr_str_c(datatype));
    mr_pb_set_u64(&b->buf, 3, 1); /* dims one by one */
    mr_pb_set_u64(&b->buf, 3, 2);
    mr_pb_set_u64(&b->buf, 99, 5); /* unknown */
    mr_pb_put_len(&b->buf, 100, 3);
    mr_buf_c(&b->buf, "\xff\xff\xff");
    for (size_t i = 0; i < count; i++) {
        mr_pb_put_len(&b->buf, 5, parts[i].len);
        mr_buf_append(&b->buf, parts[i].ptr, parts[i].len);
    }
    mr_pb_end(&b->buf, input);
    mr_arena_reset(&b->arena);
    return mr_oip_pb_decode_request(bench_body(b, b->buf.ptr, b->buf.len), &test_limits, &b->arena,
                                    r, &b->err);
}
#define PART(lit)                                                                                  \
    {                                                                                              \
        (const uint8_t *)(lit), sizeof(lit) - 1                                                    \
    }

static void wire_forms(void **state)
{
    (void)state;
    struct bench b;
    bench_init(&b);
    struct mr_oip_request r;
    static const struct {
        const char *datatype;
        mr_bytes parts[3];
        const char *expected; /* NULL = error */
        size_t len;
    } rows[] = {
        /* unpacked, packed in two runs, mixed, in two messages */
        {"INT32", {PART("\x10\x05\x10\x06")}, "\5\0\0\0\6\0\0\0", 8},
        {"INT32", {PART("\x12\1\x05\x12\1\x06")}, "\5\0\0\0\6\0\0\0", 8},
        {"INT32", {PART("\x12\1\x05"), PART("\x10\x06")}, "\5\0\0\0\6\0\0\0", 8},
        {"INT32", {PART(""), PART("\x12\2\x05\x06"), PART("")}, "\5\0\0\0\6\0\0\0", 8},
        {"FP32", {PART("\x35\0\0\x80\x3f\x35\0\0\0\x40")}, "\0\0\x80\x3f\0\0\0\x40", 8},
        {"FP32", {PART("\x32\4\0\0\x80\x3f"), PART("\x35\0\0\0\x40")}, "\0\0\x80\x3f\0\0\0\x40", 8},
        {"BOOL", {PART("\x0a\3\1\x80\2")}, "\1\1", 2}, /* 256 is true */
        {"INT8", {PART("\x12\x0b\xff\xff\xff\xff\xff\xff\xff\xff\xff\1\x01")}, "\xff\1", 2},
        {"INT8", {PART("\x12\6\xff\xff\xff\xff\x0f\x01")}, "\xff\1", 2}, /* -1 in 32 bits */
        /* lying counts and lengths */
        {"INT32", {PART("\x12\2\x05\x86")}, NULL, 0},
        {"INT32", {PART("\x12\5\x05\x06")}, NULL, 0},
        {"INT32", {PART("\x12\x0c\x05\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01")}, NULL, 0},
        {"FP32", {PART("\x32\7\0\0\x80\x3f\0\0\0")}, NULL, 0},
        {"FP32", {PART("\x32\xff\xff\xff\xff\x0f")}, NULL, 0},
        {"INT32", {PART("\x0b\x0c")}, NULL, 0},
        /* a field of ours with another wire type is unknown, so elements are missing */
        {"INT32", {PART("\x15\1\0\0\0\x15\2\0\0\0")}, NULL, 0},
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        size_t count = 0;
        while (count < 3 && rows[i].parts[count].ptr) {
            count++;
        }
        int rc = decode_parts(&b, rows[i].datatype, rows[i].parts, count, &r);
        if (!rows[i].expected) {
            CHECK_ROW(rc == MR_E_INVALID, i, "%d", rc);
            continue;
        }
        CHECK_ROW(rc == MR_OK, i, "%s", b.err.msg);
        const struct mr_tensor *t = &r.inputs[0].tensor;
        assert_true(str_is(r.inputs[0].name, "x"));
        CHECK_ROW(t->rank == 2 && t->shape[0] == 1 && t->shape[1] == 2, i, "shape");
        CHECK_ROW(t->bytes == rows[i].len && memcmp(t->data, rows[i].expected, rows[i].len) == 0, i,
                  "data");
    }
    bench_fini(&b);
}

/* Aligned runs of floats and raw contents are used where they lie. */
static void by_reference(void **state)
{
    (void)state;
    struct bench b;
    bench_init(&b);
    for (size_t pad = 0; pad < 4; pad++) {
        mr_buf_reset(&b.buf);
        mr_pb_put_len(&b.buf, 99, pad);
        mr_buf_c(&b.buf, &"aaaa"[4 - pad]);
        size_t input = mr_pb_begin(&b.buf, 5);
        mr_pb_put_str(&b.buf, 2, MR_STR("FP32"));
        mr_pb_set_u64(&b.buf, 3, 2);
        size_t contents = mr_pb_begin(&b.buf, 5);
        mr_pb_put_len(&b.buf, 6, 8);
        mr_buf_append(&b.buf, "12345678", 8);
        mr_pb_end(&b.buf, contents);
        mr_pb_end(&b.buf, input);
        mr_bytes body = bench_body(&b, b.buf.ptr, b.buf.len);
        struct mr_oip_request r;
        mr_arena_reset(&b.arena);
        assert_int_equal(mr_oip_pb_decode_request(body, &test_limits, &b.arena, &r, &b.err), MR_OK);
        const uint8_t *place = body.ptr + body.len - 8;
        assert_memory_equal(r.inputs[0].tensor.data, place, 8);
        assert_int_equal(r.inputs[0].tensor.data == place, (uintptr_t)place % 4 == 0);
    }
    bench_fini(&b);
}

static void too_many(void **state)
{
    (void)state;
    struct bench b;
    bench_init(&b);
    static const struct {
        uint32_t field;
        const char *text;
    } rows[] = {{5, "message has more than 64 inputs"},
                {6, "message has more than 64 outputs"},
                {7, "message has more than 64 raw_input_contents"}};
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        mr_buf_reset(&b.buf);
        for (int n = 0; n < 65; n++) {
            if (rows[i].field == 5) {
                mr_pb_put_len(&b.buf, 5, 6);
                mr_buf_c(&b.buf, "\x12\4INT8");
            } else {
                mr_pb_put_len(&b.buf, rows[i].field, 0);
            }
        }
        struct mr_oip_request r;
        mr_arena_reset(&b.arena);
        int rc = mr_oip_pb_decode_request(bench_body(&b, b.buf.ptr, b.buf.len), &test_limits,
                                          &b.arena, &r, &b.err);
        CHECK_ROW(rc == MR_E_INVALID && strcmp(b.err.msg, rows[i].text) == 0, i, "%d %s", rc,
                  b.err.msg);
    }
    mr_buf_reset(&b.buf);
    mr_pb_put_str(&b.buf, 3, MR_STR("\xff"));
    struct mr_oip_request r;
    assert_int_equal(
        mr_oip_pb_decode_request(bench_body(&b, b.buf.ptr, b.buf.len), NULL, &b.arena, &r, &b.err),
        MR_E_INVALID);
    assert_non_null(strstr(b.err.msg, "UTF-8"));
    bench_fini(&b);
}

/* What protobuf-c reads from an encoded response, with and without the stream's frame. */
static void response_by_protobuf_c(void **state)
{
    (void)state;
    static const int64_t shape[] = {5000};
    static const int64_t small[] = {1, 2};
    float *large = calloc(5000, 4);
    large[4999] = 1.5f;
    int32_t ints[] = {-1, 300};
    struct mr_oip_param params[] = {
        {.key = MR_STR("triton_final_response"), .kind = MR_OIP_BOOL, .b = true},
        {.key = MR_STR("n"), .kind = MR_OIP_INT, .i = -3},
    };
    struct mr_oip_tensor outputs[] = {
        {.name = MR_STR("big"),
         .tensor =
             {.dtype = MR_DTYPE_FP32, .rank = 1, .shape = shape, .data = large, .bytes = 20000}},
        {.name = MR_STR("shm"),
         .tensor = {.dtype = MR_DTYPE_INT32, .rank = 2, .shape = small, .data = NULL, .bytes = 0},
         .shm = {MR_STR("r"), 4, 8}},
        {.name = MR_STR("ints"),
         .tensor = {.dtype = MR_DTYPE_INT32, .rank = 2, .shape = small, .data = ints, .bytes = 8},
         .params = params,
         .param_count = 1},
        {.name = MR_STR("top"),
         .tensor = {.dtype = MR_DTYPE_INT32, .rank = 2, .shape = small, .data = ints, .bytes = 8},
         .classification = 1},
    };
    struct mr_oip_response r = {.model_name = MR_STR("m"),
                                .model_version = MR_STR("1"),
                                .id = MR_STR("i"),
                                .params = params,
                                .param_count = 2,
                                .outputs = outputs,
                                .output_count = 4};
    for (int wrap = 0; wrap < 2; wrap++) {
        struct bench b;
        bench_init(&b);
        struct mr_oip_encoded e;
        assert_int_equal(mr_oip_pb_encode_response(&r, wrap, &b.buf, &b.arena, &e, &b.err), MR_OK);
        assert_int_equal(e.piece_count, 3);
        mr_bytes body = bench_join(&b, &e);
        Inference__ModelStreamInferResponse *frame = NULL;
        Inference__ModelInferResponse *m;
        if (wrap) {
            frame = inference__model_stream_infer_response__unpack(NULL, body.len, body.ptr);
            assert_non_null(frame);
            assert_string_equal(frame->error_message, "");
            m = frame->infer_response;
        } else {
            m = inference__model_infer_response__unpack(NULL, body.len, body.ptr);
        }
        assert_non_null(m);
        assert_string_equal(m->model_name, "m");
        assert_string_equal(m->id, "i");
        assert_int_equal(m->n_parameters, 2);
        assert_string_equal(m->parameters[0]->key, "triton_final_response");
        assert_true(m->parameters[0]->value->bool_param);
        assert_true(m->parameters[1]->value->int64_param == -3);
        assert_true(m->n_outputs == 4 && m->n_raw_output_contents == 4);
        assert_true(m->outputs[0]->n_shape == 1 && m->outputs[0]->shape[0] == 5000);
        assert_string_equal(m->outputs[0]->datatype, "FP32");
        assert_true(m->raw_output_contents[0].len == 20000 &&
                    memcmp(m->raw_output_contents[0].data, large, 20000) == 0);
        assert_int_equal(m->raw_output_contents[1].len, 0);
        assert_int_equal(m->outputs[1]->n_parameters, 3);
        assert_true(m->raw_output_contents[2].len == 8 &&
                    memcmp(m->raw_output_contents[2].data, ints, 8) == 0);
        assert_string_equal(m->outputs[3]->datatype, "BYTES");
        assert_memory_equal(m->raw_output_contents[3].data,
                            "\5\0\0\0"
                            "300:1",
                            9);
        if (frame) {
            inference__model_stream_infer_response__free_unpacked(frame, NULL);
        } else {
            inference__model_infer_response__free_unpacked(m, NULL);
        }
        bench_fini(&b);
    }
    free(large);
}

static void empty_frame_and_errors(void **state)
{
    (void)state;
    struct bench b;
    bench_init(&b);
    struct mr_oip_response r = {0};
    struct mr_oip_encoded e;
    assert_int_equal(mr_oip_pb_encode_response(&r, true, &b.buf, &b.arena, &e, &b.err), MR_OK);
    mr_bytes body = bench_join(&b, &e);
    assert_true(body.len == 2 && body.ptr[0] == 0x12 && body.ptr[1] == 0);
    assert_int_equal(mr_oip_pb_encode_response(&r, false, &b.buf, &b.arena, &e, &b.err), MR_OK);
    assert_int_equal(e.bytes, 0);
    for (int with_id = 0; with_id < 2; with_id++) {
        mr_buf_reset(&b.buf);
        const struct mr_oip_response of = {.id = with_id ? MR_STR("id7") : MR_STR("")};
        mr_oip_pb_encode_stream_error(MR_STR("no"), &of, &b.buf);
        Inference__ModelStreamInferResponse *m = inference__model_stream_infer_response__unpack(
            NULL, b.buf.len, (const uint8_t *)b.buf.ptr);
        assert_non_null(m);
        assert_string_equal(m->error_message, "no");
        assert_int_equal(m->infer_response != NULL, with_id);
        assert_true(!with_id || strcmp(m->infer_response->id, "id7") == 0);
        inference__model_stream_infer_response__free_unpacked(m, NULL);
    }
    bench_fini(&b);
}

/* Metadata of a model: as protobuf-c packs them, with a shape that is not packed, and cut anywhere. */
static void metadata(void **state)
{
    (void)state;
    struct bench b;
    struct mr_oip_metadata m = {0};
    bench_init(&b);
    int64_t shape[] = {-1, 4};
    char *versions[] = {(char *)"1", (char *)"12"};
    Inference__ModelMetadataResponse__TensorMetadata x =
        INFERENCE__MODEL_METADATA_RESPONSE__TENSOR_METADATA__INIT;
    Inference__ModelMetadataResponse__TensorMetadata y = x;
    Inference__ModelMetadataResponse__TensorMetadata *inputs[] = {&x, &y};
    Inference__ModelMetadataResponse__TensorMetadata *outputs[] = {&y};
    Inference__ModelMetadataResponse r = INFERENCE__MODEL_METADATA_RESPONSE__INIT;
    x.name = (char *)"x";
    x.datatype = (char *)"FP32";
    x.n_shape = 2;
    x.shape = shape;
    y.name = (char *)"y";
    y.datatype = (char *)"NOTHING";
    r.name = (char *)"m";
    r.versions = versions;
    r.n_versions = 2;
    r.inputs = inputs;
    r.n_inputs = 2;
    r.outputs = outputs;
    r.n_outputs = 1;
    uint8_t bytes[256];
    size_t len = inference__model_metadata_response__pack(&r, bytes);
    assert_int_equal(mr_oip_pb_decode_metadata((mr_bytes){bytes, len}, &b.arena, &m, &b.err),
                     MR_OK);
    assert_true(mr_str_eq_c(m.name, "m") && mr_str_eq_c(m.version, "12"));
    assert_int_equal(m.input_count, 2);
    assert_int_equal(m.output_count, 1);
    assert_true(mr_str_eq_c(m.inputs[0].name, "x") && m.inputs[0].dtype == MR_DTYPE_FP32);
    assert_true(m.inputs[0].rank == 2 && m.inputs[0].shape[0] == -1 && m.inputs[0].shape[1] == 4);
    assert_true(m.inputs[1].rank == 0 && m.inputs[1].dtype == MR_DTYPE_INVALID);
    for (size_t cut = 0; cut < len; cut++) {
        mr_bytes part = bench_body(&b, bytes, cut); /* memory of this size, for the sanitizer */
        m = (struct mr_oip_metadata){0};
        mr_oip_pb_decode_metadata(part, &b.arena, &m, &b.err);
    }
    static const uint8_t unpacked[] = {0x22, 7, 0x0a, 1, 'x', 0x18, 3, 0x18, 4};
    m = (struct mr_oip_metadata){0};
    assert_int_equal(
        mr_oip_pb_decode_metadata((mr_bytes){unpacked, sizeof unpacked}, &b.arena, &m, &b.err),
        MR_OK);
    assert_true(m.inputs[0].rank == 2 && m.inputs[0].shape[0] == 3 && m.inputs[0].shape[1] == 4);
    uint8_t deep[4 + MR_MAX_RANK + 1] = {0x22, 2 + MR_MAX_RANK + 1, 0x1a, MR_MAX_RANK + 1};
    m = (struct mr_oip_metadata){0};
    assert_int_equal(mr_oip_pb_decode_metadata((mr_bytes){deep, sizeof deep}, &b.arena, &m, &b.err),
                     MR_E_UNSUPPORTED);
    static const uint8_t torn[] = {0x22, 3, 0x1a, 1, 0x80};
    m = (struct mr_oip_metadata){0};
    assert_int_equal(mr_oip_pb_decode_metadata((mr_bytes){torn, sizeof torn}, &b.arena, &m, &b.err),
                     MR_E_INVALID);
    bench_fini(&b);
}

/* ModelStreamInferResponse: what is written by our encoders, and what is torn. */
static void stream_responses(void **state)
{
    static const struct mr_oip_param marks[] = {
        {.key = MR_STR_INIT("triton_final_response"), .kind = MR_OIP_BOOL, .b = true},
        {.key = MR_STR_INIT("triton_final_response"), .kind = MR_OIP_BOOL, .b = false},
        {.key = MR_STR_INIT("triton_final_response"),
         .kind = MR_OIP_STRING,
         .s = MR_STR_INIT("1")}};
    struct mr_oip_response got;
    struct mr_oip_encoded e;
    bool is_final = true;
    struct mr_buf buf;
    struct bench b;
    mr_str error;
    (void)state;
    bench_init(&b);
    mr_buf_init(&buf, 0);
    for (size_t i = 0; i <= COUNT_OF(marks); i++) {
        const struct mr_oip_response r = {.model_name = MR_STR("m"),
                                          .id = MR_STR("7"),
                                          .params = &marks[i % COUNT_OF(marks)],
                                          .param_count = i < COUNT_OF(marks)};
        assert_int_equal(mr_oip_pb_encode_response(&r, true, &buf, &b.arena, &e, &b.err), MR_OK);
        assert_int_equal(e.piece_count, 1);
        assert_int_equal(
            mr_oip_pb_decode_stream_response((mr_bytes){e.pieces[0].ptr, e.pieces[0].len}, NULL,
                                             &b.arena, &got, &error, &is_final, &b.err),
            MR_OK);
        CHECK_ROW(is_final == (i == 0) && error.len == 0 && mr_str_eq_c(got.id, "7"), (int)i, "%d",
                  is_final);
    }
    mr_buf_reset(&buf);
    mr_oip_pb_encode_stream_error(MR_STR("no such model"),
                                  &(struct mr_oip_response){.id = MR_STR("9")}, &buf);
    const mr_bytes failed = {(const uint8_t *)buf.ptr, buf.len};
    assert_int_equal(
        mr_oip_pb_decode_stream_response(failed, NULL, &b.arena, &got, &error, &is_final, &b.err),
        MR_OK);
    assert_true(is_final && mr_str_eq_c(error, "no such model") && mr_str_eq_c(got.id, "9"));
    assert_int_equal(got.output_count, 0);
    assert_int_equal(mr_oip_pb_decode_stream_response((mr_bytes){failed.ptr, failed.len - 1}, NULL,
                                                      &b.arena, &got, &error, &is_final, &b.err),
                     MR_E_INVALID);
    mr_buf_fini(&buf);
    bench_fini(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(typed_contents),
        cmocka_unit_test(errors_by_table),
        cmocka_unit_test(truncated),
        cmocka_unit_test(wire_forms),
        cmocka_unit_test(by_reference),
        cmocka_unit_test(too_many),
        cmocka_unit_test(response_by_protobuf_c),
        cmocka_unit_test(empty_frame_and_errors),
        cmocka_unit_test(metadata),
        cmocka_unit_test(stream_responses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
