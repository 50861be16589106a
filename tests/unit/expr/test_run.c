/* Values: each operator and function, null, conversions of the request's values, errors at run time. */
#include "expr_test.h"

#include <math.h>

static const int64_t shape_1[] = {1};
static const int64_t shape_0[] = {0, 4};
static const int64_t shape_3[] = {3};
static const int64_t shape_2_3[] = {2, 3};
static const int64_t shape_big[] = {16385};
static const int32_t x_data[] = {5};
static const float v_data[] = {0.5f, -2, 4};
static const int64_t m_data[] = {1, 2, 3, 4, 5, 6};
static const uint64_t u_data[] = {1, UINT64_MAX, 7};
static const uint8_t flags[] = {0, 1, 0};
static const int8_t i8[] = {-1, 2, 3};
static const uint16_t u16[] = {65535, 2, 3};
static const uint16_t half[] = {0x3c00, 0xc000, 0x7e00}; /* 1, -2, NaN */
static const uint16_t bf[] = {0x3f80};                   /* 1 */
static const double f64[] = {1e300};
static const int64_t edge[] = {INT64_MIN, INT64_MAX, -7};
static float big[16385];

static const struct test_tensor tensors[] = {
    TENSOR("X", INT32, 1, shape_1, x_data),
    TENSOR("V", FP32, 1, shape_3, v_data),
    TENSOR("M", INT64, 2, shape_2_3, m_data),
    TENSOR("U", UINT64, 1, shape_3, u_data),
    TENSOR("FLAGS", BOOL, 1, shape_3, flags),
    TENSOR("I8", INT8, 1, shape_3, i8),
    TENSOR("U16", UINT16, 1, shape_3, u16),
    TENSOR("HALF", FP16, 1, shape_3, half),
    TENSOR("BF", BF16, 0, NULL, bf),
    TENSOR("F64", FP64, 0, NULL, f64),
    TENSOR("EDGE", INT64, 1, shape_3, edge),
    TENSOR("BIG", FP32, 1, shape_big, big),
    BYTES_TENSOR("S", 1, shape_3, "\2\0\0\0en\0\0\0\0\5\0\0\0hello"),
    BYTES_TENSOR("CUT", 1, shape_3, "\2\0\0\0en\377\0\0\0"),
    {.name = "NULL_INT", .is_null = true, .t = {.dtype = MR_DTYPE_INT32, .rank = 1}},
    {.name = "NULL_STR", .is_null = true, .t = {.dtype = MR_DTYPE_BYTES, .rank = 1}},
    {.name = "EMPTY", .t = {.dtype = MR_DTYPE_FP32, .rank = 2, .shape = shape_0}},
    {.name = "DEVICE",
     .t = {.dtype = MR_DTYPE_INT32,
           .rank = 1,
           .shape = shape_1,
           .bytes = 4,
           .memory_kind = MR_MEMORY_DEVICE}},
    {.name = "LIES",
     .t = {.dtype = MR_DTYPE_INT32, .rank = 1, .shape = shape_3, .data = big, .bytes = 8}},
};
static struct test_world world = {
    .tensors = tensors, .count = COUNT_OF(tensors), .hides_shape = true};

static int evaluate(const char *text, struct mr_expr_value *out, struct mr_err *err)
{
    struct mr_expr_options options = {0};
    struct mr_expr_source source = {.tensor = test_tensor, .value = test_value, .ctx = &world};
    struct mr_expr *x = NULL;
    int rc = test_compile(&world, text, &options, &x, err);

    if (rc < 0) {
        fail_msg("%s: %s", text, err->msg);
    }
    rc = mr_expr_run(x, &source, out, err);
    mr_expr_free(&x);
    return rc;
}

static void conditions(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        char result; /* t, f, n = null */
    } rows[] = {
        {"true", 't'},
        {"X == 5", 't'},
        {"X != 5", 'f'},
        {"X < 5", 'f'},
        {"X <= 5", 't'},
        {"X > 4.5", 't'},
        {"4.5 < X", 't'},
        {"X >= 6", 'f'},
        {"X + 2 * 3 == 11", 't'},
        {"(X + 2) * 3 == 21", 't'},
        {"X - 2 - 1 == 2", 't'},
        {"X / 2 == 2.5", 't'},
        {"X % 3 == 2 and -X % 3 == 1 and X % -3 == -1", 't'},
        {"EDGE[0] % -1 == 0", 't'},
        {"EDGE[0] == -9223372036854775808 and - 9223372036854775808 == EDGE[0]", 't'},
        {"EDGE[0] in [1, -9223372036854775808] and - -3 == 3 and 2 - -3 * -2 == -4", 't'},
        {"-X == -5 and - -X == 5", 't'},
        {"abs(EDGE[2]) == 7 and abs(-1.5) == 1.5 and abs(2) == 2", 't'},
        {"1 / 0 > 1e308", 't'},
        {"0.0 / 0 == 0.0 / 0", 'f'},
        {"0.0 / 0 != 0", 't'},
        {"M[0] == 1 and M[5] == 6 and M[-1] == 6 and M[-6] == 1", 't'},
        {"M[1,0] == 4 and M[-1,-1] == 6 and M[X - 5, 2] == 3", 't'},
        {"V[1] == -2 and I8[0] == -1 and U16[0] == 65535 and U[0] == 1", 't'},
        {"HALF[1] == -2 and BF == 1 and F64 == 1e300 and FLAGS[1]", 't'},
        {"rows(M) == 2 and size(M) == 6 and rows(EMPTY) == 0 and size(EMPTY) == 0", 't'},
        {"max(V) == 4 and min(V) == -2 and sum(V) == 2.5", 't'},
        {"max(M) == 6 and min(M) == 1 and sum(M) == 21 and sum(FLAGS) == 1", 't'},
        {"max(HALF) == max(HALF)", 'f'},
        {"any(FLAGS) and not all(FLAGS) and all(V) and any(M)", 't'},
        {"all(EMPTY) and not any(EMPTY) and sum(EMPTY) == 0", 't'},
        {"max(EMPTY) > 0", 'n'},
        {"rows(BIG) == 16385", 't'},
        {"S[0] == 'en' and S[1] == '' and S[2] == \"hello\" and S[1] == ''", 't'},
        {"S[0] < S[2] and S[1] < S[0]", 't'},
        {"S[2] in ['a', 'hello'] and S[2] not in ['hell']", 't'},
        {"prefix(S[2], 'he') and suffix(S[2], 'lo') and not prefix(S[0], 'eng')", 't'},
        {"X in [1, 5] and X not in [1] and V[0] in [1, 0.5] and FLAGS[0] in [false]", 't'},
        {"'a\\n\\t\\\\\\'\\\"' == 'a\\n\\t\\\\\\'\"'", 't'},
        {"'a\\'b' == \"a'b\"", 't'},
        {"true or X == 5 and false", 't'},
        {"(true or X == 5) and false", 'f'},
        {"not X == 4 and not false", 't'},
        /* null */
        {"NULL_INT == 1", 'n'},
        {"NULL_INT[0] + 1 > 2", 'n'},
        {"-NULL_INT < 1.5", 'n'},
        {"rows(NULL_INT) > 0", 'n'},
        {"sum(NULL_INT) > 0", 'n'},
        {"V[NULL_INT] > 0", 'n'},
        {"not (NULL_INT == 1)", 'n'},
        {"NULL_INT in [1]", 'n'},
        {"prefix(NULL_STR, 'a')", 'n'},
        {"abs(NULL_INT) == 1", 'n'},
        {"NULL_INT == 1 and false", 'f'},
        {"false and NULL_INT == 1", 'f'},
        {"NULL_INT == 1 or true", 't'},
        {"true or NULL_INT == 1", 't'},
        {"NULL_INT == 1 and true", 'n'},
        {"false or NULL_INT == 1", 'n'},
        {"present(NULL_INT)", 'f'},
        {"present(X) and not present(NULL_STR)", 't'},
        /* the request, nodes, values */
        {"parameter('lang') == 'en-GB' and prefix(parameter('lang'), 'en')", 't'},
        {"parameter('top', 0) == 5 and parameter('top', 0.5) == 5", 't'},
        {"parameter('share', 0.5) == 0.25 and parameter('debug', false)", 't'},
        {"parameter('none') == '' and parameter('none', 7) == 7", 't'},
        {"present(parameter('top')) and not present(parameter('none'))", 't'},
        {"header('x-user') == '17' and header('x-user', 0) + 1 == 18 and header('x-user', 0.5) == "
         "17",
         't'},
        {"header('none', 'dflt') == 'dflt' and not present(header('none'))", 't'},
        {"status(det) == 'OK' and variant(det) in ['stable', 'cand']", 't'},
        {"20 > 1.2 * stable.p99_ms", 't'},
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct mr_err err = {0};
        struct mr_expr_value v = {0};
        int rc = evaluate(rows[i].text, &v, &err);
        CHECK_ROW(rc == MR_OK, i, "%s: %s", rows[i].text, err.msg);
        char got = v.is_null ? 'n' : v.b ? 't' : 'f';
        CHECK_ROW(v.type == MR_EXPR_BOOL && got == rows[i].result, i, "%s: %c", rows[i].text, got);
    }
}

static void errors(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        const char *message;
    } rows[] = {
        {"V > 1", "column 1: tensor 'V' has 3 elements where one is needed"},
        {"1 < V[3]", "column 5: index 3 of tensor 'V', which has 3 there"},
        {"V[-4] > 1", "index -4 of tensor 'V', which has 3 there"},
        {"V[EDGE[0]] > 1", "index -9223372036854775808 of tensor 'V'"},
        {"M[2,0] == 1", "index 2 of tensor 'M', which has 2 there"},
        {"M[0,3] == 1", "index 3 of tensor 'M', which has 3 there"},
        {"EMPTY[0] == 1", "index 0 of tensor 'EMPTY', which has 0 there"},
        {"U[1] == 1", "the value 18446744073709551615, which is too large for an int"},
        {"sum(U) == 1", "the value 18446744073709551615, which is too large for an int"},
        {"EDGE[1] + 1 == 0", "column 9: the result does not fit into 64 bits"},
        {"EDGE[0] - 1 == 0", "the result does not fit into 64 bits"},
        {"EDGE[1] * 2 == 0", "the result does not fit into 64 bits"},
        {"- -9223372036854775808 == 0", "column 1: the result does not fit into 64 bits"},
        {"-EDGE[0] == 0", "the result does not fit into 64 bits"},
        {"abs(EDGE[0]) == 0", "the result does not fit into 64 bits"},
        {"X % 0 == 0", "column 3: % by zero"},
        {"max(BIG) > 0", "tensor 'BIG' has 65540 bytes; an expression reads at most 65536"},
        {"BIG[0] > 0", "tensor 'BIG' has 65540 bytes; an expression reads at most 65536"},
        {"DEVICE == 0", "tensor 'DEVICE' is not in host memory"},
        {"LIES[0] == 0", "tensor 'LIES' has 8 bytes, which its shape does not have"},
        {"CUT[0] == 'en' and CUT[1] == ''",
         "column 20: tensor 'CUT' has less elements than its shape"},
        {"parameter('top') == '5'", "parameter 'top' of the request is a int that is no string"},
        {"parameter('lang', 1) == 5", "parameter 'lang' of the request is a string that is no int"},
        {"parameter('share', 1) == 5",
         "parameter 'share' of the request is a float that is no int"},
        {"header('x-user', true)", "header 'x-user' of the request is a string that is no bool"},
        {"parameter('broken') == ''", "broken"},
    };
    memset(big, 0, sizeof big);
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct mr_err err = {0};
        struct mr_expr_value v = {0};
        int rc = evaluate(rows[i].text, &v, &err);
        CHECK_ROW(rc < 0, i, "%s", rows[i].text);
        CHECK_ROW(strstr(err.msg, rows[i].message), i, "%s: %s", rows[i].text, err.msg);
    }
}

/* What the left side decides is not fetched on the right. */
static void operands_are_fetched_when_needed(void **state)
{
    (void)state;
    struct mr_err err = {0};
    struct mr_expr_value v = {0};

    world.fetches = 0;
    assert_int_equal(evaluate("X == 1 and V[7] > 0", &v, &err), MR_OK);
    assert_int_equal(world.fetches, 1);
    world.fetches = 0;
    assert_int_equal(evaluate("present(NULL_INT) and NULL_INT == 1 or X == 5", &v, &err), MR_OK);
    assert_true(v.b);
    assert_int_equal(world.fetches, 2);
    world.fetches = 0;
    assert_int_equal(evaluate("X > 1 and X < 9", &v, &err), MR_OK);
    assert_int_equal(world.fetches, 1);
}

/* A model that gives another type than it declared is an error, not a value. */
static int other_type(void *ctx, const struct mr_expr_operand *operand,
                      const struct mr_tensor **out, struct mr_err *err)
{
    (void)operand;
    (void)err;
    *out = ctx;
    return MR_OK;
}

static void types_are_checked(void **state)
{
    (void)state;
    struct mr_expr_options options = {0};
    struct mr_tensor t = {
        .dtype = MR_DTYPE_FP32, .rank = 1, .shape = shape_1, .data = big, .bytes = 4};
    struct mr_expr_source source = {.tensor = other_type, .value = test_value, .ctx = &t};
    struct mr_expr *x = NULL;
    struct mr_expr_value v;
    struct mr_err err = {0};

    assert_int_equal(test_compile(&world, "FLAGS[0]", &options, &x, &err), MR_OK);
    assert_int_equal(mr_expr_run(x, &source, &v, &err), MR_E_INVALID);
    assert_string_equal(err.msg, "column 1: tensor 'FLAGS' is FP32 where BOOL was declared");
    mr_expr_free(&x);
}

static void values(void **state)
{
    (void)state;
    struct mr_err err = {0};
    struct mr_expr_value v = {0};

    assert_int_equal(evaluate("M[1,1] * 2", &v, &err), MR_OK);
    assert_true(v.type == MR_EXPR_INT && v.i == 10);
    assert_int_equal(evaluate("V[0] + X", &v, &err), MR_OK);
    assert_true(v.type == MR_EXPR_FLOAT && v.f == 5.5);
    assert_int_equal(evaluate("S[2]", &v, &err), MR_OK);
    assert_true(v.type == MR_EXPR_STRING && mr_str_eq_c(v.s, "hello"));
    assert_int_equal(evaluate("NULL_INT", &v, &err), MR_OK);
    assert_true(v.type == MR_EXPR_INT && v.is_null);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(conditions),
        cmocka_unit_test(errors),
        cmocka_unit_test(operands_are_fetched_when_needed),
        cmocka_unit_test(types_are_checked),
        cmocka_unit_test(values),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
