/* The protobuf wire format: what is not protobuf, the limits of varints, and agreement with
 * protobuf-c. */
#include "codec_test.h"

#include "codec/pb.h"
#include "inference.pb-c.h"

static mr_bytes bytes(const void *p, size_t n)
{
    return (mr_bytes){p, n};
}
#define BYTES(lit) bytes((lit), sizeof(lit) - 1)

static void varints(void **state)
{
    (void)state;
    static const uint64_t values[] = {
        0, 1, 127, 128, 16383, 16384, UINT32_MAX, (uint64_t)UINT32_MAX + 1, INT64_MAX, UINT64_MAX,
    };
    for (size_t i = 0; i < COUNT_OF(values); i++) {
        struct mr_buf b;
        uint64_t got = 7;
        mr_buf_init(&b, 0);
        mr_pb_put_varint(&b, values[i]);
        CHECK_ROW(b.len == mr_pb_varint_size(values[i]), i, "size %zu", b.len);
        mr_bytes in = bytes(b.ptr, b.len);
        CHECK_ROW(mr_pb_varint(&in, &got) && got == values[i] && in.len == 0, i, "differs");
        for (size_t cut = 0; cut < b.len; cut++) {
            in = bytes(b.ptr, cut);
            CHECK_ROW(!mr_pb_varint(&in, &got) && in.len == cut, i, "cut to %zu", cut);
        }
        mr_buf_fini(&b);
    }
    uint64_t v;
    mr_bytes in = BYTES("\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02");
    assert_false(mr_pb_varint(&in, &v));
    in = BYTES("\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01");
    assert_false(mr_pb_varint(&in, &v));
    /* Longer than needed but within ten bytes is what some encoders write. */
    in = BYTES("\x81\x80\x00");
    assert_true(mr_pb_varint(&in, &v) && v == 1);
}

static void refusals(void **state)
{
    (void)state;
    static const mr_str texts[] = {
        MR_STR_INIT("\x80"),                             /* tag cut */
        MR_STR_INIT("\x00\x01"),                         /* field number 0 */
        MR_STR_INIT("\x08"),                             /* no value */
        MR_STR_INIT("\x08\x80"),                         /* value cut */
        MR_STR_INIT("\x09\x01\x02\x03\x04\x05\x06\x07"), /* 64 bits cut */
        MR_STR_INIT("\x0d\x01\x02\x03"),                 /* 32 bits cut */
        MR_STR_INIT("\x0a"),                             /* no length */
        MR_STR_INIT("\x0a\x05"
                    "abcd"),                                         /* payload cut */
        MR_STR_INIT("\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"), /* huge length */
        MR_STR_INIT("\x0b\x0c"),                                     /* group */
        MR_STR_INIT("\x0c"),                                         /* end of group */
        MR_STR_INIT("\x0e\x01"),                                     /* wire types 6 and 7 */
        MR_STR_INIT("\x0f\x01"),
        MR_STR_INIT("\x80\x80\x80\x80\x10\x01"), /* field number 2^29 */
    };
    for (size_t i = 0; i < COUNT_OF(texts); i++) {
        char *copy = exact_copy(texts[i]);
        mr_bytes in = bytes(copy, texts[i].len);
        struct mr_pb_field field;
        CHECK_ROW(mr_pb_next(&in, &field) == -1, i, "accepted");
        CHECK_ROW(in.len == texts[i].len, i, "moved");
        free(copy);
    }
    mr_bytes none = {0};
    struct mr_pb_field field;
    assert_int_equal(mr_pb_next(&none, &field), 0);
    mr_bytes largest = BYTES("\xf8\xff\xff\xff\x0f\x01");
    assert_int_equal(mr_pb_next(&largest, &field), 1);
    assert_int_equal(field.number, (1u << 29) - 1);
}

static void fields(void **state)
{
    (void)state;
    struct mr_buf b;
    struct mr_pb_field f;
    mr_buf_init(&b, 0);
    mr_pb_put_u64(&b, 1, 300);
    mr_pb_put_i64(&b, 2, -5);
    mr_pb_put_bool(&b, 3, true);
    mr_buf_append(&b, "\x25\x01\x02\x03\x80", 5);
    mr_pb_set_double(&b, 5, 2.25);
    mr_pb_put_str(&b, 6, MR_STR("abc"));
    mr_pb_set_u64(&b, 7, 0);
    mr_pb_set_str(&b, 8, MR_STR(""));
    mr_bytes in = bytes(b.ptr, b.len);
    assert_true(mr_pb_next(&in, &f) == 1 && f.number == 1 && f.value == 300);
    assert_true(mr_pb_next(&in, &f) == 1 && f.number == 2 && (int64_t)f.value == -5);
    assert_true(mr_pb_next(&in, &f) == 1 && f.number == 3 && f.value == 1);
    assert_true(mr_pb_next(&in, &f) == 1 && f.wire == MR_PB_I32 && f.value == 0x80030201);
    assert_true(mr_pb_next(&in, &f) == 1 && f.wire == MR_PB_I64 && mr_pb_double(f.value) == 2.25);
    assert_true(mr_pb_next(&in, &f) == 1 && f.bytes.len == 3 && memcmp(f.bytes.ptr, "abc", 3) == 0);
    assert_true(mr_pb_next(&in, &f) == 1 && f.number == 7 && f.value == 0);
    assert_true(mr_pb_next(&in, &f) == 1 && f.number == 8 && f.bytes.len == 0);
    assert_int_equal(mr_pb_next(&in, &f), 0);
    mr_buf_fini(&b);
}

static void defaults_are_left_out(void **state)
{
    (void)state;
    struct mr_buf b;
    mr_buf_init(&b, 0);
    mr_pb_put_u64(&b, 1, 0);
    mr_pb_put_i64(&b, 1, 0);
    mr_pb_put_bool(&b, 1, false);
    mr_pb_put_str(&b, 1, MR_STR(""));
    mr_pb_put_str(&b, 1, (mr_str){0});
    assert_int_equal(b.len, 0);
    mr_buf_fini(&b);
}

/* A request as oip writes it, with nesting and a long payload, read back by protobuf-c. */
static void protobuf_c_agrees(void **state)
{
    (void)state;
    struct mr_buf b;
    char raw[1000];
    memset(raw, 'r', sizeof raw);
    mr_buf_init(&b, 0);
    mr_pb_put_str(&b, 1, MR_STR("model"));
    size_t input = mr_pb_begin(&b, 5);
    mr_pb_put_str(&b, 1, MR_STR("x"));
    mr_pb_put_str(&b, 2, MR_STR("FP32"));
    size_t shape = mr_pb_begin(&b, 3);
    mr_pb_put_varint(&b, 250);
    mr_pb_end(&b, shape);
    size_t entry = mr_pb_begin(&b, 4);
    mr_pb_set_str(&b, 1, MR_STR("p"));
    size_t value = mr_pb_begin(&b, 2);
    mr_pb_set_i64(&b, 2, -3);
    mr_pb_end(&b, value);
    mr_pb_end(&b, entry);
    mr_pb_end(&b, input);
    size_t empty = mr_pb_begin(&b, 6);
    mr_pb_end(&b, empty);
    size_t before = b.len;
    mr_pb_put_len(&b, 7, sizeof raw);
    mr_buf_append(&b, raw, sizeof raw);
    assert_int_equal(b.len - before, mr_pb_len_size(7, sizeof raw));
    assert_false(b.failed);

    Inference__ModelInferRequest *m =
        inference__model_infer_request__unpack(NULL, b.len, (const uint8_t *)b.ptr);
    assert_non_null(m);
    assert_string_equal(m->model_name, "model");
    assert_int_equal(m->n_inputs, 1);
    assert_int_equal(m->inputs[0]->shape[0], 250);
    assert_string_equal(m->inputs[0]->parameters[0]->key, "p");
    assert_int_equal(m->inputs[0]->parameters[0]->value->int64_param, -3);
    assert_int_equal(m->n_outputs, 1);
    assert_int_equal(m->raw_input_contents[0].len, sizeof raw);
    assert_int_equal(inference__model_infer_request__get_packed_size(m), b.len);
    inference__model_infer_request__free_unpacked(m, NULL);
    mr_buf_fini(&b);
}

static void long_nested_message(void **state)
{
    (void)state;
    struct mr_buf b;
    struct mr_pb_field f;
    char text[20000];
    memset(text, 't', sizeof text);
    mr_buf_init(&b, 0);
    size_t mark = mr_pb_begin(&b, 1);
    mr_pb_put_str(&b, 1, mr_str_n(text, sizeof text));
    mr_pb_end(&b, mark);
    mr_bytes in = bytes(b.ptr, b.len);
    assert_int_equal(mr_pb_next(&in, &f), 1);
    assert_int_equal(in.len, 0);
    mr_bytes inner = f.bytes;
    assert_int_equal(mr_pb_next(&inner, &f), 1);
    assert_int_equal(f.bytes.len, sizeof text);
    assert_memory_equal(f.bytes.ptr, text, sizeof text);
    mr_buf_fini(&b);
}

static void full_buffer(void **state)
{
    (void)state;
    for (size_t max = 1; max < 40; max++) {
        struct mr_buf b;
        mr_buf_init(&b, max);
        size_t outer = mr_pb_begin(&b, 1);
        mr_pb_put_str(&b, 1, MR_STR("twenty bytes of text"));
        size_t inner = mr_pb_begin(&b, 2);
        mr_pb_put_u64(&b, 1, UINT64_MAX);
        mr_pb_end(&b, inner);
        mr_pb_end(&b, outer);
        assert_true(b.len <= max);
        assert_int_equal(b.failed, max < 37);
        mr_buf_fini(&b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(varints),
        cmocka_unit_test(refusals),
        cmocka_unit_test(fields),
        cmocka_unit_test(defaults_are_left_out),
        cmocka_unit_test(protobuf_c_agrees),
        cmocka_unit_test(long_nested_message),
        cmocka_unit_test(full_buffer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
