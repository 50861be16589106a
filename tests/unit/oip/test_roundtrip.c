/* Every data type through every encoding, as request and as response: what one side encodes the other
 * decodes to the same tensor, whatever its size and wherever the body lies in memory. */
#include "oip_test.h"

enum encoding { AS_JSON, AS_BINARY, AS_PROTOBUF, ENCODINGS };
static const char *const encoding_names[] = {"json", "binary", "protobuf"};

struct shape_row {
    int64_t dims[4];
    int rank;
};
static const struct shape_row shapes[] = {
    {{16}, 1},      {{1, 16}, 2}, {{2, 3, 1, 4}, 4}, {{0}, 1}, {{3, 0, 2}, 3},
    {{1}, 1},       {{0}, 0},     {{3000}, 1}, /* past what is copied into the buffer, for the wider types */
    {{2, 20000}, 2}                            /* past what the arena keeps */
};

static mr_bytes request_encode(struct bench *b, const struct mr_oip_request *r, enum encoding as,
                               int64_t *header_length)
{
    struct mr_oip_encoded e;
    int rc = as == AS_PROTOBUF ? mr_oip_pb_encode_request(r, &b->buf, &b->arena, &e, &b->err)
                               : mr_oip_rest_encode_request(r, &b->buf, &b->arena, &e, &b->err);
    CHECK_ROW(rc == MR_OK, 0, "%s", b->err.msg);
    *header_length = e.header_length;
    return bench_join(b, &e);
}

static void request_check(struct bench *b, const struct mr_oip_request *sent, enum encoding as,
                          size_t offset, const char *what)
{
    int64_t header_length;
    mr_bytes body = request_encode(b, sent, as, &header_length);
    /* The body at an odd address: data has to be aligned by the decoder. */
    uint8_t *moved = malloc(body.len + offset + 1);
    memcpy(moved + offset, body.ptr, body.len);
    body.ptr = moved + offset;
    struct mr_oip_request got;
    struct mr_arena arena;
    mr_arena_init(&arena, 4096, 8u << 20);
    int rc = as == AS_PROTOBUF ? mr_oip_pb_decode_request(body, &test_limits, &arena, &got, &b->err)
                               : mr_oip_rest_decode_request(body, header_length, MR_STR("m"),
                                                            &test_limits, &arena, &got, &b->err);
    CHECK_ROW(rc == MR_OK, as, "%s: %s", what, b->err.msg);
    assert_int_equal(got.input_count, sent->input_count);
    for (size_t i = 0; i < got.input_count; i++) {
        const struct mr_tensor *t = &got.inputs[i].tensor;
        CHECK_ROW(mr_str_eq(got.inputs[i].name, sent->inputs[i].name), i, "%s name", what);
        CHECK_ROW(tensors_equal(t, &sent->inputs[i].tensor), i, "%s tensor", what);
        CHECK_ROW(is_aligned(t), i, "%s alignment", what);
    }
    mr_arena_fini(&arena);
    free(moved);
}

static void response_check(struct bench *b, const struct mr_oip_response *sent, enum encoding as,
                           const char *what)
{
    struct mr_oip_encoded e;
    int rc = as == AS_PROTOBUF
                 ? mr_oip_pb_encode_response(sent, false, &b->buf, &b->arena, &e, &b->err)
                 : mr_oip_rest_encode_response(sent, &b->buf, &b->arena, &e, &b->err);
    CHECK_ROW(rc == MR_OK, as, "%s: %s", what, b->err.msg);
    mr_bytes body = bench_join(b, &e);
    struct mr_oip_response got;
    rc = as == AS_PROTOBUF ? mr_oip_pb_decode_response(body, &test_limits, &b->arena, &got, &b->err)
                           : mr_oip_rest_decode_response(body, e.header_length, &test_limits,
                                                         &b->arena, &got, &b->err);
    CHECK_ROW(rc == MR_OK, as, "%s: %s", what, b->err.msg);
    assert_true(mr_str_eq(got.model_name, sent->model_name));
    assert_true(mr_str_eq(got.model_version, sent->model_version));
    assert_true(mr_str_eq(got.id, sent->id));
    assert_int_equal(got.output_count, sent->output_count);
    for (size_t i = 0; i < got.output_count; i++) {
        CHECK_ROW(mr_str_eq(got.outputs[i].name, sent->outputs[i].name), i, "%s name", what);
        CHECK_ROW(tensors_equal(&got.outputs[i].tensor, &sent->outputs[i].tensor), i, "%s tensor",
                  what);
        CHECK_ROW(is_aligned(&got.outputs[i].tensor), i, "%s alignment", what);
    }
}

static void one_type(int dtype, const struct shape_row *shape, enum encoding as)
{
    struct bench b;
    bench_init(&b);
    char what[64];
    snprintf(what, sizeof what, "%s %s rank %d dim0 %d", mr_dtype_name(dtype), encoding_names[as],
             shape->rank, (int)shape->dims[0]);
    struct mr_tensor t = sample_new(dtype, shape->dims, shape->rank);
    struct mr_oip_tensor tensors[2] = {
        {.name = MR_STR("A"), .tensor = t, .binary = as == AS_BINARY},
        {.name = MR_STR("B \"\\\xc3\xa4"), .tensor = t, .binary = as == AS_BINARY},
    };
    struct mr_oip_request request = {
        .model_name = MR_STR("m"), .inputs = tensors, .input_count = 2};
    for (size_t offset = 0; offset < 8; offset += 3) {
        request_check(&b, &request, as, offset, what);
        mr_arena_reset(&b.arena);
    }
    struct mr_oip_response response = {.model_name = MR_STR("m"),
                                       .model_version = MR_STR("7"),
                                       .id = MR_STR("id \"1\""),
                                       .outputs = tensors,
                                       .output_count = 2};
    response_check(&b, &response, as, what);
    bench_fini(&b);
    free(t.data);
}

static void types_shapes_encodings(void **state)
{
    (void)state;
    for (int dtype = MR_DTYPE_BOOL; dtype < MR_DTYPE_COUNT; dtype++) {
        for (size_t s = 0; s < COUNT_OF(shapes); s++) {
            for (int as = 0; as < ENCODINGS; as++) {
                one_type(dtype, &shapes[s], (enum encoding)as);
            }
        }
    }
    assert_int_equal(mr_block_get_stats().out_bytes, 0);
}

static void special_floats(void **state)
{
    (void)state;
    static const float floats[] = {0.0f,     -0.0f,     1e-45f, 3.4028235e38f,
                                   INFINITY, -INFINITY, 0.1f,   16777216.0f};
    static const double doubles[] = {0.0,      -0.0,      5e-324, 1.7976931348623157e308,
                                     INFINITY, -INFINITY, 0.1,    9007199254740993.0};
    static const int64_t shape[] = {8};
    struct mr_oip_tensor tensors[] = {
        {.name = MR_STR("f"),
         .tensor = {.dtype = MR_DTYPE_FP32,
                    .rank = 1,
                    .shape = shape,
                    .data = (void *)floats,
                    .bytes = sizeof floats}},
        {.name = MR_STR("d"),
         .tensor = {.dtype = MR_DTYPE_FP64,
                    .rank = 1,
                    .shape = shape,
                    .data = (void *)doubles,
                    .bytes = sizeof doubles}},
    };
    struct mr_oip_response response = {
        .model_name = MR_STR("m"), .outputs = tensors, .output_count = 2};
    struct bench b;
    bench_init(&b);
    response_check(&b, &response, AS_JSON, "special");
    bench_fini(&b);
}

static void nan_as_json(void **state)
{
    (void)state;
    float in = NAN;
    static const int64_t shape[] = {1};
    struct mr_oip_tensor t = {
        .name = MR_STR("f"),
        .tensor = {.dtype = MR_DTYPE_FP32, .rank = 1, .shape = shape, .data = &in, .bytes = 4}};
    struct mr_oip_response response = {.outputs = &t, .output_count = 1};
    struct bench b;
    bench_init(&b);
    struct mr_oip_encoded e;
    assert_int_equal(mr_oip_rest_encode_response(&response, &b.buf, &b.arena, &e, &b.err), MR_OK);
    mr_bytes body = bench_join(&b, &e);
    struct mr_oip_response got;
    assert_int_equal(mr_oip_rest_decode_response(body, -1, NULL, &b.arena, &got, &b.err), MR_OK);
    float out;
    memcpy(&out, got.outputs[0].tensor.data, 4);
    assert_true(isnan(out));
    bench_fini(&b);
}

/* An answer whose data does not have the bytes of its shape is refused: who reads it goes by the shape. */
static void answer_of_another_size(void **state)
{
    static const char *const shape_of_two[] = {[AS_BINARY] = "[2]", [AS_PROTOBUF] = "\x1a\1\2"};
    static const int64_t shape[] = {2};
    float values[2] = {1, 2};
    struct mr_oip_tensor t = {
        .name = MR_STR("f"),
        .tensor = {.dtype = MR_DTYPE_FP32, .rank = 1, .shape = shape, .data = values, .bytes = 8},
        .binary = true};
    const struct mr_oip_response sent = {.outputs = &t, .output_count = 1};
    (void)state;
    for (int as = AS_BINARY; as <= AS_PROTOBUF; as++) {
        for (int by = -2; by <= 1; by++) {
            struct mr_oip_encoded e;
            struct mr_oip_response got;
            struct bench b;
            bench_init(&b);
            int rc = as == AS_PROTOBUF
                         ? mr_oip_pb_encode_response(&sent, false, &b.buf, &b.arena, &e, &b.err)
                         : mr_oip_rest_encode_response(&sent, &b.buf, &b.arena, &e, &b.err);
            assert_int_equal(rc, MR_OK);
            mr_bytes body = bench_join(&b, &e);
            const ptrdiff_t at = mr_str_find_str((mr_str){(const char *)body.ptr, body.len},
                                                 mr_str_n(shape_of_two[as], 3));
            assert_true(at > 0);
            b.body[at + (as == AS_PROTOBUF ? 2 : 1)] += (uint8_t)by;
            rc = as == AS_PROTOBUF ? mr_oip_pb_decode_response(body, NULL, &b.arena, &got, &b.err)
                                   : mr_oip_rest_decode_response(body, e.header_length, NULL,
                                                                 &b.arena, &got, &b.err);
            CHECK_ROW(rc == (by == 0 ? MR_OK : MR_E_INVALID), as, "%d: %d %s", by, rc, b.err.msg);
            assert_true(by == 0 || strstr(b.err.msg, "output 'f' has 8 bytes, which are not"));
            bench_fini(&b);
        }
    }
}

/* Everything else that a request carries. */
static void request_fields(void **state)
{
    (void)state;
    static const int64_t shape[] = {1};
    int32_t value = 5;
    struct mr_oip_param params[] = {
        {.key = MR_STR("b"), .kind = MR_OIP_BOOL, .b = true},
        {.key = MR_STR("i"), .kind = MR_OIP_INT, .i = -7},
        {.key = MR_STR("u"), .kind = MR_OIP_UINT, .u = UINT64_MAX},
        {.key = MR_STR("d"), .kind = MR_OIP_DOUBLE, .d = 0.25},
        {.key = MR_STR("s"), .kind = MR_OIP_STRING, .s = MR_STR("text")},
    };
    struct mr_oip_tensor inputs[] = {
        {.name = MR_STR("x"),
         .tensor = {.dtype = MR_DTYPE_INT32, .rank = 1, .shape = shape, .data = &value, .bytes = 4},
         .params = params,
         .param_count = 5},
        {.name = MR_STR("shared"),
         .tensor = {.dtype = MR_DTYPE_INT32, .rank = 1, .shape = shape, .data = NULL, .bytes = 0},
         .binary = true,
         .shm = {MR_STR("region"), 64, 4}},
        {.name = MR_STR("y"),
         .tensor = {.dtype = MR_DTYPE_INT32, .rank = 1, .shape = shape, .data = &value, .bytes = 4},
         .binary = true},
    };
    struct mr_oip_requested_output outputs[] = {
        {.name = MR_STR("p"), .binary_data = 1, .classification = 3},
        {.name = MR_STR("q"), .binary_data = -1, .shm = {MR_STR("out"), 0, 128}},
    };
    struct mr_oip_request r = {
        .model_name = MR_STR("m"),
        .model_version = MR_STR("3"),
        .id = MR_STR("id1"),
        .inputs = inputs,
        .input_count = 3,
        .outputs = outputs,
        .output_count = 2,
        .has_sequence_id = true,
        .sequence_id = 42,
        .sequence_start = true,
        .sequence_end = true,
        .priority = 2,
        .timeout_us = 1000,
        .params = params,
        .param_count = 5,
    };
    struct bench b;
    bench_init(&b);
    for (int as = AS_BINARY; as <= AS_PROTOBUF; as++) {
        struct mr_oip_request got;
        int64_t header_length;
        mr_bytes body = request_encode(&b, &r, (enum encoding)as, &header_length);
        int rc = as == AS_PROTOBUF
                     ? mr_oip_pb_decode_request(body, &test_limits, &b.arena, &got, &b.err)
                     : mr_oip_rest_decode_request(body, header_length, MR_STR("m"), &test_limits,
                                                  &b.arena, &got, &b.err);
        CHECK_ROW(rc == MR_OK, as, "%s", b.err.msg);
        assert_true(str_is(got.id, "id1"));
        assert_true(got.has_sequence_id && got.sequence_id == 42 && !got.sequence_id_str.ptr);
        assert_true(got.sequence_start && got.sequence_end);
        assert_true(got.priority == 2 && got.timeout_us == 1000);
        assert_int_equal(got.input_count, 3);
        assert_true(str_is(got.inputs[1].shm.region, "region"));
        assert_true(got.inputs[1].shm.offset == 64 && got.inputs[1].shm.byte_size == 4);
        assert_memory_equal(got.inputs[2].tensor.data, &value, 4);
        assert_int_equal(got.output_count, 2);
        assert_int_equal(got.outputs[0].classification, 3);
        assert_int_equal(got.outputs[0].binary_data, as == AS_BINARY ? 1 : -1);
        assert_int_equal(got.outputs[1].binary_data, -1);
        assert_true(str_is(got.outputs[1].shm.region, "out") &&
                    got.outputs[1].shm.byte_size == 128);
        const struct mr_oip_param *lists[] = {got.params, got.inputs[0].params};
        assert_true(got.param_count == 5 && got.inputs[0].param_count == 5);
        for (size_t i = 0; i < 2; i++) {
            const struct mr_oip_param *p = lists[i];
            assert_true(p[0].kind == MR_OIP_BOOL && p[0].b);
            assert_true(p[1].kind == MR_OIP_INT && p[1].i == -7);
            assert_true(p[2].kind == MR_OIP_UINT && p[2].u == UINT64_MAX);
            assert_true(p[3].kind == MR_OIP_DOUBLE && p[3].d == 0.25);
            assert_true(p[4].kind == MR_OIP_STRING && str_is(p[4].s, "text"));
        }
    }
    bench_fini(&b);
}

/* Large outputs with a block go out by reference, and the block lives as long as the piece. */
static void by_reference(void **state)
{
    (void)state;
    static const int64_t shape[] = {4096};
    struct bench b;
    bench_init(&b);
    for (int pb = 0; pb < 2; pb++) {
        struct mr_block *block = mr_block_new(16384);
        memset(block->data, 7, 16384);
        struct mr_oip_tensor t = {.name = MR_STR("x"),
                                  .binary = true,
                                  .block = block,
                                  .tensor = {.dtype = MR_DTYPE_FP32,
                                             .rank = 1,
                                             .shape = shape,
                                             .data = block->data,
                                             .bytes = 16384}};
        struct mr_oip_response r = {.model_name = MR_STR("m"), .outputs = &t, .output_count = 1};
        struct mr_oip_encoded e;
        int rc = pb ? mr_oip_pb_encode_response(&r, true, &b.buf, &b.arena, &e, &b.err)
                    : mr_oip_rest_encode_response(&r, &b.buf, &b.arena, &e, &b.err);
        assert_int_equal(rc, MR_OK);
        assert_int_equal(e.piece_count, 2);
        assert_ptr_equal(e.pieces[1].ptr, block->data);
        assert_ptr_equal(e.pieces[1].block, block);
        assert_int_equal(atomic_load(&block->refs), 2);
        mr_block_unref(&block);
        bench_join(&b, &e);
        assert_int_equal(mr_block_get_stats().out_bytes, 0);
    }
    bench_fini(&b);
}

/* The arena's first chunk and the buffer are kept: a warm small request allocates nothing. */
static void no_allocation_when_warm(void **state)
{
    (void)state;
    static const int64_t shape[] = {1, 16};
    int32_t values[16];
    sample_fill(MR_DTYPE_INT32, values, 16);
    struct bench b;
    bench_init(&b);
    for (int as = 0; as < ENCODINGS; as++) {
        struct mr_oip_tensor tensors[2] = {
            {.name = MR_STR("INPUT0"),
             .tensor =
                 {.dtype = MR_DTYPE_INT32, .rank = 2, .shape = shape, .data = values, .bytes = 64},
             .binary = as == AS_BINARY},
            {.name = MR_STR("INPUT1"),
             .tensor =
                 {.dtype = MR_DTYPE_INT32, .rank = 2, .shape = shape, .data = values, .bytes = 64},
             .binary = as == AS_BINARY},
        };
        struct mr_oip_request r = {.model_name = MR_STR("m"), .inputs = tensors, .input_count = 2};
        int64_t header_length;
        mr_bytes body = request_encode(&b, &r, (enum encoding)as, &header_length);
        for (int round = 0; round < 3; round++) {
            struct mr_oip_request got;
            struct mr_oip_encoded e;
            mr_arena_reset(&b.arena);
            if (round == 2) {
                mr_mem_fail_after(1);
            }
            struct mr_oip_response response = {.model_name = MR_STR("m"),
                                               .model_version = MR_STR("1")};
            int rc = as == AS_PROTOBUF
                         ? mr_oip_pb_decode_request(body, &test_limits, &b.arena, &got, &b.err)
                         : mr_oip_rest_decode_request(body, header_length, MR_STR("m"),
                                                      &test_limits, &b.arena, &got, &b.err);
            assert_int_equal(rc, MR_OK);
            response.outputs = got.inputs;
            response.output_count = got.input_count;
            rc = as == AS_PROTOBUF
                     ? mr_oip_pb_encode_response(&response, false, &b.buf, &b.arena, &e, &b.err)
                     : mr_oip_rest_encode_response(&response, &b.buf, &b.arena, &e, &b.err);
            assert_int_equal(rc, MR_OK);
        }
        /* The failure is still armed: there was no allocation in between. */
        assert_null(mr_try_alloc(1));
    }
    bench_fini(&b);
}

/* Each allocation of a decode and an encode fails once: an error, no leak, no crash. */
static void allocation_failures(void **state)
{
    (void)state;
    static const int64_t shape[] = {30000};
    struct mr_tensor sample = sample_new(MR_DTYPE_INT64, shape, 1);
    struct mr_tensor words = sample_new(MR_DTYPE_BYTES, shape, 1);
    for (int as = 0; as < ENCODINGS; as++) {
        for (uint64_t n = 1; n < 40; n++) {
            struct mr_oip_tensor tensors[2] = {
                {.name = MR_STR("A"), .tensor = sample, .binary = as == AS_BINARY},
                {.name = MR_STR("B"), .tensor = words, .binary = as == AS_BINARY},
            };
            struct mr_oip_request r = {.inputs = tensors, .input_count = 2};
            struct bench b;
            bench_init(&b);
            int64_t header_length;
            mr_bytes body = request_encode(&b, &r, (enum encoding)as, &header_length);
            struct mr_oip_request got;
            struct mr_arena arena;
            mr_arena_init(&arena, 256, 8u << 20);
            mr_mem_fail_after(n);
            int rc = as == AS_PROTOBUF
                         ? mr_oip_pb_decode_request(body, NULL, &arena, &got, NULL)
                         : mr_oip_rest_decode_request(body, header_length, MR_STR("m"), NULL,
                                                      &arena, &got, NULL);
            mr_mem_fail_after(0);
            CHECK_ROW(rc == MR_OK || rc == MR_E_EXHAUSTED || rc == MR_E_NOMEM, n, "rc %d", rc);
            mr_arena_fini(&arena);
            bench_fini(&b);
        }
    }
    free(sample.data);
    free(words.data);
    assert_int_equal(mr_block_get_stats().out_bytes, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(types_shapes_encodings),
        cmocka_unit_test(special_floats),
        cmocka_unit_test(nan_as_json),
        cmocka_unit_test(answer_of_another_size),
        cmocka_unit_test(request_fields),
        cmocka_unit_test(by_reference),
        cmocka_unit_test(no_allocation_when_warm),
        cmocka_unit_test(allocation_failures),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
