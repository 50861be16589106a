/* Rows of tensors: views, parts of branches, and that parts put together give the whole, for all choices of few rows. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "tensor/rows.h"
#include "tensor/tensor.h"

static const int64_t shape_3_2[] = {3, 2};
static const int32_t numbers[] = {1, 2, 3, 4, 5, 6};
static const char words[] = "\1\0\0\0a\0\0\0\0\2\0\0\0bb\3\0\0\0ccc\1\0\0\0d\4\0\0\0eeee";

static const struct mr_tensor fixed = {.dtype = MR_DTYPE_INT32,
                                       .rank = 2,
                                       .shape = shape_3_2,
                                       .data = (void *)(uintptr_t)numbers,
                                       .bytes = sizeof numbers};
static const struct mr_tensor text = {.dtype = MR_DTYPE_BYTES,
                                      .rank = 2,
                                      .shape = shape_3_2,
                                      .data = (void *)(uintptr_t)words,
                                      .bytes = sizeof words - 1};

static void views(void **state)
{
    (void)state;
    int64_t shape[MR_MAX_RANK];
    struct mr_tensor v;

    assert_int_equal(mr_rows_view(&fixed, 1, 2, shape, &v, NULL), MR_OK);
    assert_true(v.data == numbers + 2 && v.bytes == 16 && v.shape[0] == 2 && v.shape[1] == 2);
    assert_int_equal(mr_rows_view(&text, 1, 1, shape, &v, NULL), MR_OK);
    assert_true(v.data == words + 9 && v.bytes == 13 && v.shape[0] == 1);
    assert_int_equal(mr_rows_view(&text, 3, 0, shape, &v, NULL), MR_OK);
    assert_true(v.bytes == 0 && v.shape[0] == 0);
}

static void refused_views(void **state)
{
    (void)state;
    int64_t shape[MR_MAX_RANK];
    struct mr_tensor v, bad;
    struct mr_err err = {0};

    assert_int_equal(mr_rows_view(&fixed, 2, 2, shape, &v, &err), MR_E_INVALID);
    assert_string_equal(err.msg, "rows 2 to 4 of 3");
    assert_int_equal(mr_rows_view(&fixed, UINT64_MAX, 2, shape, &v, &err), MR_E_INVALID);
    bad = fixed;
    bad.rank = 0;
    bad.bytes = 4;
    assert_int_equal(mr_rows_view(&bad, 0, 1, shape, &v, &err), MR_E_INVALID);
    assert_string_equal(err.msg, "a tensor without dimensions has no rows");
    bad = fixed;
    bad.bytes = 20;
    assert_int_equal(mr_rows_view(&bad, 0, 1, shape, &v, &err), MR_E_INVALID);
    bad = text;
    bad.bytes -= 1;
    assert_int_equal(mr_rows_view(&bad, 0, 2, shape, &v, &err), MR_OK);
    assert_int_equal(mr_rows_view(&bad, 0, 3, shape, &v, &err), MR_E_INVALID);
    assert_string_equal(err.msg, "a BYTES tensor with less elements than its shape");
}

/* Every choice of three branches for three rows: the parts, put together, are the tensor again. */
static void parts_and_merge(void **state)
{
    (void)state;
    const struct mr_tensor *const tensors[] = {&fixed, &text};

    for (int which = 0; which < 2; which++) {
        for (int code = 0; code < 27; code++) {
            const struct mr_tensor *t = tensors[which];
            uint16_t choice[] = {(uint16_t)(code % 3), (uint16_t)(code / 3 % 3),
                                 (uint16_t)(code / 9)};
            struct mr_tensor parts[3], whole;
            const struct mr_tensor *list[3];
            char data[3][64], joined[64];
            int64_t shapes[3][2], shape[MR_MAX_RANK];
            for (uint16_t b = 0; b < 3; b++) {
                struct mr_rows_part part;
                uint64_t bytes;
                mr_rows_part_of(choice, 3, b, &part);
                assert_int_equal(mr_rows_part_bytes(t, choice, b, &bytes, NULL), MR_OK);
                assert_int_equal(mr_rows_part_copy(t, choice, b, data[b], NULL), MR_OK);
                shapes[b][0] = (int64_t)part.count;
                shapes[b][1] = 2;
                parts[b] = (struct mr_tensor){.dtype = t->dtype,
                                              .rank = 2,
                                              .shape = shapes[b],
                                              .data = data[b],
                                              .bytes = bytes};
                list[b] = part.count > 0 ? &parts[b] : NULL;
                struct mr_tensor view;
                if (part.is_run && part.count > 0) {
                    assert_int_equal(mr_rows_view(t, part.first, part.count, shape, &view, NULL),
                                     MR_OK);
                    assert_int_equal(view.bytes, bytes);
                    assert_memory_equal(view.data, data[b], bytes);
                }
            }
            assert_int_equal(mr_rows_merge_shape(list, 3, choice, 3, shape, &whole, NULL), MR_OK);
            assert_true(whole.bytes == t->bytes && whole.rank == 2 && shape[0] == 3 &&
                        shape[1] == 2);
            assert_int_equal(mr_rows_merge_copy(list, 3, choice, 3, joined, NULL), MR_OK);
            assert_memory_equal(joined, t->data, t->bytes);
        }
    }
}

static void runs(void **state)
{
    (void)state;
    static const uint16_t choice[] = {1, 0, 0, MR_ROWS_NONE, 1};
    struct mr_rows_part p;

    mr_rows_part_of(choice, 5, 0, &p);
    assert_true(p.count == 2 && p.first == 1 && p.is_run);
    mr_rows_part_of(choice, 5, 1, &p);
    assert_true(p.count == 2 && p.first == 0 && !p.is_run);
    mr_rows_part_of(choice, 5, 2, &p);
    assert_true(p.count == 0 && p.is_run);
}

static void parts_that_do_not_fit(void **state)
{
    (void)state;
    static const int64_t one_2[] = {1, 2}, two_2[] = {2, 2}, one_3[] = {1, 3};
    static const uint16_t choice[] = {0, 1, 0};
    struct mr_tensor two = {
        .dtype = MR_DTYPE_INT32, .rank = 2, .shape = two_2, .data = fixed.data, .bytes = 16};
    struct mr_tensor one = {
        .dtype = MR_DTYPE_INT32, .rank = 2, .shape = one_2, .data = fixed.data, .bytes = 8};
    const struct mr_tensor *parts[] = {&two, &one};
    struct mr_err err = {0};
    struct mr_tensor whole;
    int64_t shape[MR_MAX_RANK];
    char to[64];

    assert_int_equal(mr_rows_merge_shape(parts, 2, choice, 3, shape, &whole, &err), MR_OK);
    one.dtype = MR_DTYPE_FP32;
    assert_int_equal(mr_rows_merge_shape(parts, 2, choice, 3, shape, &whole, &err), MR_E_INVALID);
    assert_string_equal(err.msg, "branch 1 gave FP32, branch 0 INT32");
    one.dtype = MR_DTYPE_INT32;
    one.shape = one_3;
    assert_int_equal(mr_rows_merge_shape(parts, 2, choice, 3, shape, &whole, &err), MR_E_INVALID);
    assert_string_equal(err.msg, "branch 1 gave rows of [3], branch 0 of [2]");
    one.shape = two_2;
    assert_int_equal(mr_rows_merge_shape(parts, 2, choice, 3, shape, &whole, &err), MR_E_INVALID);
    assert_string_equal(err.msg, "branch 1 gave 2 rows for 1");
    parts[1] = NULL;
    assert_int_equal(mr_rows_merge_shape(parts, 2, choice, 3, shape, &whole, &err), MR_E_INVALID);
    assert_string_equal(err.msg, "branch 1 gave nothing for 1 rows");
    assert_int_equal(mr_rows_merge_copy(parts, 2, choice, 3, to, &err), MR_E_INVALID);
    assert_string_equal(err.msg, "row 1 has no branch");
    parts[0] = NULL;
    assert_int_equal(mr_rows_merge_shape(parts, 2, choice, 0, shape, &whole, &err), MR_E_INVALID);
    assert_string_equal(err.msg, "no branch gave anything");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(views),
        cmocka_unit_test(refused_views),
        cmocka_unit_test(parts_and_merge),
        cmocka_unit_test(runs),
        cmocka_unit_test(parts_that_do_not_fit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
