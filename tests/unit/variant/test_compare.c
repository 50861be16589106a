/* Outputs of a shadow beside those of the variant that answered. */
#include "variant/compare.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "tensor/tensor.h"

static struct mr_tensor tensor(int32_t dtype, const int64_t *shape, void *data, uint64_t bytes)
{
    return (struct mr_tensor){
        .dtype = dtype, .rank = 1, .shape = shape, .data = data, .bytes = bytes};
}

static bool agree(enum mr_compare_kind kind, double tolerance, const struct mr_tensor *a,
                  const struct mr_tensor *b)
{
    const struct mr_shadow_config c = {.compare = kind, .tolerance = tolerance};

    return mr_shadow_outputs_agree(&c, a, b);
}

static void equal_is_of_bytes(void **state)
{
    static const int64_t two[] = {2}, one[] = {1};
    int32_t x[] = {1, 2}, y[] = {1, 3};
    const struct mr_tensor a = tensor(MR_DTYPE_INT32, two, x, 8);
    const struct mr_tensor b = tensor(MR_DTYPE_INT32, two, y, 8);
    const struct mr_tensor c = tensor(MR_DTYPE_UINT32, two, x, 8);
    const struct mr_tensor d = tensor(MR_DTYPE_INT32, one, x, 4);
    const struct mr_tensor empty = tensor(MR_DTYPE_INT32, one, NULL, 0);
    (void)state;

    for (int kind = MR_COMPARE_EQUAL; kind <= MR_COMPARE_TOLERANCE; kind++) {
        assert_true(agree((enum mr_compare_kind)kind, 10, &a, &a));
        assert_false(agree((enum mr_compare_kind)kind, 10, &a, &b));
        assert_false(agree((enum mr_compare_kind)kind, 10, &a, &c));
        assert_false(agree((enum mr_compare_kind)kind, 10, &a, &d));
        assert_true(agree((enum mr_compare_kind)kind, 10, &empty, &empty));
    }
}

static bool doubles(double tolerance, double a, double b)
{
    static const int64_t one[] = {1};
    const struct mr_tensor x = tensor(MR_DTYPE_FP64, one, &a, 8);
    const struct mr_tensor y = tensor(MR_DTYPE_FP64, one, &b, 8);

    return agree(MR_COMPARE_TOLERANCE, tolerance, &x, &y);
}

static void numbers_may_differ_a_little(void **state)
{
    (void)state;
    assert_true(doubles(0.01, 0.5, 0.509));
    assert_false(doubles(0.01, 0.5, 0.511));
    assert_true(doubles(0.01, 1000, 1009));
    assert_false(doubles(0.01, 1000, 1011));
    assert_true(doubles(0, -3, -3));
    assert_true(doubles(0, NAN, NAN));
    assert_false(doubles(1e9, NAN, 1));
    assert_true(doubles(0, INFINITY, INFINITY));
    assert_false(doubles(1e9, INFINITY, -INFINITY));
    assert_false(doubles(1e9, INFINITY, 1));
}

static void each_floating_type_is_read_as_such(void **state)
{
    static const int64_t one[] = {1};
    float fa = 2, fb = 2.01F;
    uint16_t ha = mr_fp16_from_float(2), hb = mr_fp16_from_float(2.01F);
    uint16_t ba = mr_bf16_from_float(2), bb = mr_bf16_from_float(2.02F);
    struct mr_tensor pairs[][2] = {
        {tensor(MR_DTYPE_FP32, one, &fa, 4), tensor(MR_DTYPE_FP32, one, &fb, 4)},
        {tensor(MR_DTYPE_FP16, one, &ha, 2), tensor(MR_DTYPE_FP16, one, &hb, 2)},
        {tensor(MR_DTYPE_BF16, one, &ba, 2), tensor(MR_DTYPE_BF16, one, &bb, 2)},
    };
    (void)state;

    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        assert_true(agree(MR_COMPARE_TOLERANCE, 0.02, &pairs[i][0], &pairs[i][1]));
        assert_false(agree(MR_COMPARE_TOLERANCE, 0.001, &pairs[i][0], &pairs[i][1]));
        assert_false(agree(MR_COMPARE_EQUAL, 1, &pairs[i][0], &pairs[i][1]));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equal_is_of_bytes),
        cmocka_unit_test(numbers_may_differ_a_little),
        cmocka_unit_test(each_floating_type_is_read_as_such),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
