/* Programs that run for each row: which part of a tensor a row sees, what all rows share, null, bounds. */
#include "expr_test.h"

#include <stdlib.h>

static const int64_t shape_4[] = {4};
static const int64_t shape_4_1[] = {4, 1};
static const int64_t shape_4_2[] = {4, 2};
static const int64_t shape_4_1_2[] = {4, 1, 2};
static const int64_t shape_1[] = {1};
static const int64_t shape_1_3[] = {1, 3};
static const int64_t shape_3[] = {3};
static const int64_t lang[] = {1, 2, 0, 1};
static const float score[] = {0.5f, 1.5f, -1, 3, 9, 8, 0, 0};
static const int32_t limit[] = {1};
static const int32_t triple[] = {7, 8, 9};

static const struct test_tensor tensors[] = {
    TENSOR("LANG", INT64, 1, shape_4, lang),
    TENSOR("COLUMN", INT64, 2, shape_4_1, lang),
    TENSOR("SCORE", FP32, 2, shape_4_2, score),
    TENSOR("DEEP", FP32, 3, shape_4_1_2, score),
    TENSOR("LIMIT", INT32, 1, shape_1, limit),
    TENSOR("SCALAR", INT32, 0, NULL, limit),
    TENSOR("SHARED", INT32, 2, shape_1_3, triple),
    TENSOR("OTHER", INT32, 1, shape_3, triple),
    BYTES_TENSOR("WORD", 1, shape_4, "\1\0\0\0a\2\0\0\0bb\0\0\0\0\1\0\0\0a"),
    {.name = "NONE", .is_null = true, .t = {.dtype = MR_DTYPE_INT64, .rank = 1}},
};
static struct test_world world = {.tensors = tensors, .count = COUNT_OF(tensors)};
static const struct mr_expr_source source = {
    .tensor = test_tensor, .value = test_value, .ctx = &world};
static const struct mr_expr_options by_row = {.want_bool = true, .by_row = true};

static void masks(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        const char *mask;
    } rows[] = {
        {"LANG == 1", "1001"},
        {"COLUMN == 1", "1001"},
        {"LANG in [0, 2]", "0110"},
        {"SCORE[0] > SCORE[1]", "0010"},
        {"SCORE[1] > 1", "1110"},
        {"max(SCORE) > 2", "0110"},
        {"size(SCORE) == 2 and rows(SCORE) == 4", "1111"},
        {"DEEP[0,1] > 1", "1110"},
        {"LANG > LIMIT", "0100"},
        {"LANG > SCALAR", "0100"},
        {"sum(SHARED) == 24 and SHARED[2] == 9 and SHARED[LANG] == 8", "1001"},
        {"WORD == 'a'", "1001"},
        {"WORD == 'a' or WORD == 'bb'", "1101"},
        {"prefix(WORD, 'b')", "0100"},
        {"NONE == 1", "0000"},
        {"not (NONE == 1)", "0000"},
        {"present(NONE) or LANG == 2", "0100"},
        {"parameter('top', 0) == 5", "1111"},
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct mr_err err = {0};
        struct mr_expr *x = NULL;
        uint8_t mask[4];
        int rc = test_compile(&world, rows[i].text, &by_row, &x, &err);
        CHECK_ROW(rc == MR_OK, i, "%s: %s", rows[i].text, err.msg);
        world.fetches = 0;
        rc = mr_expr_run_rows(x, &source, 4, mask, &err);
        CHECK_ROW(rc == MR_OK, i, "%s: %s", rows[i].text, err.msg);
        for (int r = 0; r < 4; r++) {
            CHECK_ROW(mask[r] == rows[i].mask[r] - '0', i, "%s: row %d", rows[i].text, r);
        }
        assert_true(world.fetches <= 2);
        mr_expr_free(&x);
    }
}

static void refusals_at_compile_time(void **state)
{
    (void)state;
    struct mr_expr *x = NULL;
    struct mr_err err = {0};

    assert_int_equal(test_compile(&world, "SCORE > 1", &by_row, &x, &err), MR_E_INVALID);
    assert_non_null(strstr(err.msg, "column 1: tensor 'SCORE' has 2 elements per row"));
    assert_int_equal(test_compile(&world, "DEEP[0,0,1] > 1", &by_row, &x, &err), MR_E_INVALID);
    assert_non_null(strstr(err.msg, "3 indices of tensor 'DEEP', which has 2 dimensions per row"));
}

static void refusals_at_run_time(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        const char *message;
    } rows[] = {
        {"OTHER == 7", "row 0: column 1: tensor 'OTHER' has 3 rows, there are 4"},
        {"SCORE[LANG] > 0", "row 1: column 1: index 2 of tensor 'SCORE', which has 2 there"},
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct mr_err err = {0};
        struct mr_expr *x = NULL;
        uint8_t mask[4];
        assert_int_equal(test_compile(&world, rows[i].text, &by_row, &x, &err), MR_OK);
        assert_int_equal(mr_expr_run_rows(x, &source, 4, mask, &err), MR_E_INVALID);
        CHECK_ROW(strstr(err.msg, rows[i].message), i, "%s: %s", rows[i].text, err.msg);
        mr_expr_free(&x);
    }
}

static void no_rows_read_nothing(void **state)
{
    (void)state;
    struct mr_err err = {0};
    struct mr_expr *x = NULL;

    assert_int_equal(test_compile(&world, "LANG == 1", &by_row, &x, &err), MR_OK);
    world.fetches = 0;
    assert_int_equal(mr_expr_run_rows(x, &source, 0, NULL, &err), MR_OK);
    assert_int_equal(world.fetches, 0);
    mr_expr_free(&x);
}

/* A large tensor that all rows share is not read once per row without an end. */
static void work_is_bounded(void **state)
{
    (void)state;
    enum { ROWS = 100000 };
    static uint8_t shared[65536], own[ROWS], mask[ROWS];
    static const int64_t shared_shape[] = {1, 65536};
    static const int64_t own_shape[] = {ROWS};
    const struct test_tensor big[] = {TENSOR("SHARED", UINT8, 2, shared_shape, shared),
                                      TENSOR("OWN", UINT8, 1, own_shape, own)};
    struct test_world w = {.tensors = big, .count = 2};
    struct mr_expr_source from = {.tensor = test_tensor, .value = test_value, .ctx = &w};
    struct mr_err err = {0};
    struct mr_expr *x = NULL;

    assert_int_equal(test_compile(&w, "OWN == 0 and sum(SHARED) == 0", &by_row, &x, &err), MR_OK);
    assert_int_equal(mr_expr_run_rows(x, &from, ROWS, mask, &err), MR_E_INVALID);
    assert_non_null(
        strstr(err.msg, "the expression reads more than 134217728 bytes over all rows"));
    mr_expr_free(&x);
    assert_int_equal(test_compile(&w, "OWN == 0", &by_row, &x, &err), MR_OK);
    assert_int_equal(mr_expr_run_rows(x, &from, ROWS, mask, &err), MR_OK);
    assert_true(mask[0] && mask[ROWS - 1]);
    mr_expr_free(&x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(masks),
        cmocka_unit_test(refusals_at_compile_time),
        cmocka_unit_test(refusals_at_run_time),
        cmocka_unit_test(no_rows_read_nothing),
        cmocka_unit_test(work_is_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
