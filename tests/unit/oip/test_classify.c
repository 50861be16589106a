/* The classification extension: order, texts, labels, batches, limits. */
#include "oip_test.h"

/* Elements of a BYTES tensor joined by blanks. */
static const char *joined(const struct mr_tensor *t)
{
    static char text[1024];
    mr_bytes rest = {t->data, (size_t)t->bytes};
    mr_str s;
    size_t n = 0;
    text[0] = 0;
    while (mr_bytes_tensor_next(&rest, &s)) {
        n += (size_t)snprintf(text + n, sizeof text - n, "%s%.*s", n ? " " : "", MR_STR_ARG(s));
    }
    assert_int_equal(rest.len, 0);
    return text;
}

struct class_row {
    int dtype;
    const void *data;
    int64_t shape[2];
    int rank;
    bool batched;
    int32_t k;
    const char *text;
    int64_t out_shape[2];
};

static const float f32[] = {1.0f, 3.3f, -2.0f, 3.3f, 0.0f, 1e20f};
static const float specials[] = {NAN, 1.0f, -INFINITY, INFINITY, -NAN, -0.0f};
static const double f64[] = {0.5, -0.25, 1.7976931348623157e308};
static const int8_t i8[] = {-128, 127, 0, -1};
static const int64_t i64[] = {INT64_MIN, INT64_MAX, INT64_MAX - 1};
static const uint64_t u64[] = {0, UINT64_MAX, UINT64_MAX - 1};
static const uint8_t u8[] = {7, 255, 0, 9};
static const int16_t i16[] = {-3, 300};
static const uint16_t u16[] = {3, 65535};
static const int32_t i32[] = {-3, 70000};
static const uint32_t u32[] = {3, 4294967295u};

static const struct class_row rows[] = {
    {MR_DTYPE_FP32, f32, {5}, 1, false, 2, "3.300000:1 3.300000:3", {2}},
    {MR_DTYPE_FP32,
     f32,
     {5},
     1,
     false,
     99,
     "3.300000:1 3.300000:3 1.000000:0 0.000000:4 -2.000000:2",
     {5}},
    {MR_DTYPE_FP32, f32, {2, 3}, 2, true, 1, "3.300000:1 100000002004087734272.000000:2", {2, 1}},
    {MR_DTYPE_FP32, f32, {2, 3}, 2, false, 2, "100000002004087734272.000000:5 3.300000:1", {2}},
    {MR_DTYPE_FP32, specials, {6}, 1, false, 4, "inf:3 1.000000:1 -0.000000:5 -inf:2", {4}},
    {MR_DTYPE_FP64, f64, {2}, 1, false, 1, "0.500000:0", {1}},
    {MR_DTYPE_INT8, i8, {4}, 1, false, 4, "127:1 0:2 -1:3 -128:0", {4}},
    {MR_DTYPE_INT64,
     i64,
     {3},
     1,
     false,
     3,
     "9223372036854775807:1 9223372036854775806:2 -9223372036854775808:0",
     {3}},
    {MR_DTYPE_UINT64, u64, {3}, 1, false, 2, "18446744073709551615:1 18446744073709551614:2", {2}},
    {MR_DTYPE_UINT8, u8, {2, 2}, 2, true, 1, "255:1 9:1", {2, 1}},
    {MR_DTYPE_INT16, i16, {2}, 1, false, 1, "300:1", {1}},
    {MR_DTYPE_UINT16, u16, {2}, 1, false, 1, "65535:1", {1}},
    {MR_DTYPE_INT32, i32, {2}, 1, false, 2, "70000:1 -3:0", {2}},
    {MR_DTYPE_UINT32, u32, {2}, 1, false, 1, "4294967295:1", {1}},
    {MR_DTYPE_UINT8, u8, {0, 3}, 2, true, 2, "", {0, 2}},
    {MR_DTYPE_UINT8, u8, {2, 0}, 2, true, 2, "", {2, 0}},
    {MR_DTYPE_UINT8, u8, {0}, 1, false, 2, "", {0}},
};

static void answers(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        const struct class_row *row = &rows[i];
        struct bench b;
        bench_init(&b);
        struct mr_oip_tensor in = {.classification = row->k, .batched = row->batched};
        in.tensor = (struct mr_tensor){.dtype = row->dtype,
                                       .rank = row->rank,
                                       .shape = row->shape,
                                       .data = (void *)row->data,
                                       .bytes = 0};
        assert_int_equal(mr_shape_bytes(row->dtype, row->shape, row->rank, &in.tensor.bytes, NULL),
                         MR_OK);
        struct mr_tensor out;
        CHECK_ROW(mr_oip_classify(&in, &b.arena, &out, &b.err) == MR_OK, i, "%s", b.err.msg);
        CHECK_ROW(strcmp(joined(&out), row->text) == 0, i, "%s", joined(&out));
        CHECK_ROW(out.dtype == MR_DTYPE_BYTES && out.rank == (row->batched ? 2 : 1), i, "rank %d",
                  out.rank);
        CHECK_ROW(memcmp(out.shape, row->out_shape, (size_t)out.rank * 8) == 0, i, "shape %d",
                  (int)out.shape[0]);
        bench_fini(&b);
    }
}

static void huge_values_and_labels(void **state)
{
    (void)state;
    struct bench b;
    bench_init(&b);
    static const int64_t shape[] = {3};
    mr_str labels[] = {MR_STR("zero"), MR_STR("")};
    struct mr_oip_tensor in = {.tensor = {.dtype = MR_DTYPE_FP64,
                                          .rank = 1,
                                          .shape = shape,
                                          .data = (void *)f64,
                                          .bytes = 24},
                               .classification = 3,
                               .labels = labels,
                               .label_count = 2};
    struct mr_tensor out;
    assert_int_equal(mr_oip_classify(&in, &b.arena, &out, &b.err), MR_OK);
    char expected[400];
    snprintf(expected, sizeof expected, "%f:2 0.500000:0:zero -0.250000:1", f64[2]);
    assert_string_equal(joined(&out), expected);
    bench_fini(&b);
}

static void refusals(void **state)
{
    (void)state;
    static const int64_t large[] = {1000001};
    static const int64_t one[] = {1};
    static const int types[] = {MR_DTYPE_BOOL, MR_DTYPE_FP16, MR_DTYPE_BF16, MR_DTYPE_BYTES};
    struct bench b;
    bench_init(&b);
    struct mr_tensor out;
    for (size_t i = 0; i < COUNT_OF(types); i++) {
        char text[100];
        snprintf(text, sizeof text,
                 "class result not available for output due to unsupported type '%s'",
                 mr_dtype_name(types[i]));
        struct mr_oip_tensor in = {.tensor = {.dtype = types[i],
                                              .rank = 1,
                                              .shape = one,
                                              .data = (void *)"\0\0\0\0",
                                              .bytes = 4},
                                   .classification = 1};
        assert_int_equal(mr_oip_classify(&in, &b.arena, &out, &b.err), MR_E_INVALID);
        assert_string_equal(b.err.msg, text);
    }
    void *data = calloc(1000001, 1);
    struct mr_oip_tensor in = {.tensor = {.dtype = MR_DTYPE_UINT8,
                                          .rank = 1,
                                          .shape = large,
                                          .data = data,
                                          .bytes = 1000001},
                               .classification = 1};
    assert_int_equal(mr_oip_classify(&in, &b.arena, &out, &b.err), MR_E_INVALID);
    assert_string_equal(b.err.msg, "classification output tensor too large");
    in.tensor.shape = one;
    assert_int_equal(mr_oip_classify(&in, &b.arena, &out, &b.err), MR_E_INTERNAL);
    free(data);
    bench_fini(&b);
}

/* Against sorting, on many sizes. */
static int by_value(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a;
    uint32_t y = *(const uint32_t *)b;
    return x < y ? 1 : x > y ? -1 : 0;
}

static void like_sorting(void **state)
{
    (void)state;
    uint32_t seed = 1;
    for (int64_t n = 1; n < 300; n = n * 2 + 1) {
        for (int32_t k = 1; k <= n; k = k * 3 + 1) {
            struct bench b;
            bench_init(&b);
            uint32_t *values = malloc((size_t)n * 4);
            for (int64_t i = 0; i < n; i++) {
                seed = seed * 1664525u + 1013904223u;
                values[i] = seed >> 4;
            }
            struct mr_oip_tensor in = {.tensor = {.dtype = MR_DTYPE_UINT32,
                                                  .rank = 1,
                                                  .shape = &n,
                                                  .data = values,
                                                  .bytes = (uint64_t)n * 4},
                                       .classification = k};
            struct mr_tensor out;
            assert_int_equal(mr_oip_classify(&in, &b.arena, &out, &b.err), MR_OK);
            qsort(values, (size_t)n, 4, by_value);
            mr_bytes rest = {out.data, (size_t)out.bytes};
            mr_str s;
            for (int32_t i = 0; i < k; i++) {
                assert_true(mr_bytes_tensor_next(&rest, &s));
                char text[24];
                int len = snprintf(text, sizeof text, "%u:", values[i]);
                assert_true(mr_str_starts(s, mr_str_n(text, (size_t)len)));
            }
            free(values);
            bench_fini(&b);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(answers),
        cmocka_unit_test(huge_values_and_labels),
        cmocka_unit_test(refusals),
        cmocka_unit_test(like_sorting),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
