/* What the compiler takes and refuses, with the words and the column; bounds; operands of a program. */
#include "expr_test.h"

static const int64_t shape_any[] = {-1};
static const int64_t shape_1[] = {1};
static const int64_t shape_4[] = {4};
static const int64_t shape_2_3[] = {2, 3};
static const float six[6];

static const struct test_tensor tensors[] = {
    TENSOR("X", INT32, 1, shape_1, six),       TENSOR("V", FP32, 1, shape_4, six),
    TENSOR("M", FP32, 2, shape_2_3, six),      TENSOR("ANY", INT64, 1, shape_any, six),
    TENSOR("S", BYTES, 1, shape_1, six),       TENSOR("FLAG", BOOL, 1, shape_1, six),
    TENSOR("dense/Add:0", FP32, 0, NULL, six), TENSOR("rows", INT32, 1, shape_1, six),
};
static struct test_world world = {.tensors = tensors, .count = COUNT_OF(tensors)};

static void accepts(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        enum mr_expr_type type;
    } rows[] = {
        {"true", MR_EXPR_BOOL},
        {" 1 ", MR_EXPR_INT},
        {"-9223372036854775807", MR_EXPR_INT},
        {"-9223372036854775808", MR_EXPR_INT},
        {"parameter('x', -9223372036854775808)", MR_EXPR_INT},
        {"1.5e3", MR_EXPR_FLOAT},
        {".5", MR_EXPR_FLOAT},
        {"'a\\'b'", MR_EXPR_STRING},
        {"\"\xc3\xa4\"", MR_EXPR_STRING},
        {"X", MR_EXPR_INT},
        {"X == 1", MR_EXPR_BOOL},
        {"X + 1.5", MR_EXPR_FLOAT},
        {"X / 2", MR_EXPR_FLOAT},
        {"X % 2 * 3 - -4", MR_EXPR_INT},
        {"V[0] > V[-1]", MR_EXPR_BOOL},
        {"M[1,2]", MR_EXPR_FLOAT},
        {"M[X, X + 1]", MR_EXPR_FLOAT},
        {"ANY == 3", MR_EXPR_BOOL},
        {"`dense/Add:0` < 1", MR_EXPR_BOOL},
        {"rows == rows(V)", MR_EXPR_BOOL},
        {"`rows` == 1", MR_EXPR_BOOL},
        {"size(M)", MR_EXPR_INT},
        {"max(V) - min(V)", MR_EXPR_FLOAT},
        {"sum(ANY)", MR_EXPR_INT},
        {"sum(FLAG)", MR_EXPR_INT},
        {"any(FLAG) or all(V)", MR_EXPR_BOOL},
        {"FLAG == true", MR_EXPR_BOOL},
        {"not FLAG", MR_EXPR_BOOL},
        {"!FLAG && !!FLAG || FLAG", MR_EXPR_BOOL},
        {"X in [1, -2, 3]", MR_EXPR_BOOL},
        {"V[1] not in [1, 2.5]", MR_EXPR_BOOL},
        {"S in ['a']", MR_EXPR_BOOL},
        {"FLAG in [true]", MR_EXPR_BOOL},
        {"prefix(S, 'a') and startswith(S, \"b\") and suffix(S, 'c') and endswith(S, '')",
         MR_EXPR_BOOL},
        {"abs(X - 3)", MR_EXPR_INT},
        {"parameter('lang')", MR_EXPR_STRING},
        {"parameter('top', 3)", MR_EXPR_INT},
        {"parameter('top', -3.5)", MR_EXPR_FLOAT},
        {"parameter('debug', false)", MR_EXPR_BOOL},
        {"header('x-user') == '17'", MR_EXPR_BOOL},
        {"header('x-user', 0)", MR_EXPR_INT},
        {"present(X) or present(parameter('a')) or present(header('b'))", MR_EXPR_BOOL},
        {"status(det) == 'OK' and variant(det) != ''", MR_EXPR_BOOL},
        {"1.2 * stable.p99_ms", MR_EXPR_FLOAT},
        {"(1 + 2) * 3", MR_EXPR_INT},
        {"X\n>\t1\r\nand true", MR_EXPR_BOOL},
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct mr_expr_options options = {0};
        struct mr_expr *x = NULL;
        struct mr_err err = {0};
        int rc = test_compile(&world, rows[i].text, &options, &x, &err);
        CHECK_ROW(rc == MR_OK, i, "%s: %s", rows[i].text, err.msg);
        CHECK_ROW(mr_expr_result_type(x) == rows[i].type, i, "%s", rows[i].text);
        mr_expr_free(&x);
        assert_null(x);
    }
}

static void refuses(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        const char *message; /* a part of it */
    } rows[] = {
        {"", "an empty expression"},
        {"  \n", "an empty expression"},
        {"X = 1", "column 3: unexpected '=' (a comparison is ==)"},
        {"X ==", "column 5: expected a value, found 'the end'"},
        {"X == 1 2", "column 8: expected an operator or the end, found '2'"},
        {"Y == 1", "column 1: there is no tensor 'Y'"},
        {"X == 1 and Y", "column 12: there is no tensor 'Y'"},
        {"X and FLAG", "column 3: and needs a bool, not a int"},
        {"FLAG or 1", "column 6: or needs a bool, not a int"},
        {"not X", "column 1: not needs a bool, not a int"},
        {"X == 'a'", "column 3: the left side is a int, the right side a string"},
        {"FLAG == 1", "column 6: the left side is a bool, the right side a int"},
        {"FLAG < true", "column 6: bools have no order"},
        {"1 < X < 3", "column 7: comparisons do not chain"},
        {"S + 'a'", "column 3: + needs numbers, not a string"},
        {"-S", "column 1: - needs a number, not a string"},
        {"V[0] % 2", "column 6: % needs whole numbers"},
        {"V > 1", "column 1: tensor 'V' has 4 elements; write V[0], max(V) …"},
        {"V[0.5]", "column 3: an index must be an int, not a float"},
        {"V[]", "column 3: expected a number, a string, true or false, found ']'"},
        {"V[0", "column 4: expected ',' or ']', found 'the end'"},
        {"M[0,1,2]", "column 1: 3 indices of tensor 'M', which has 2 dimensions"},
        {"max(S)", "column 1: max() of a tensor of strings"},
        {"min(FLAG)", "column 1: min() of a tensor of bools"},
        {"max(1)", "column 5: expected the name of a tensor, found '1'"},
        {"max(stable.p99_ms)", "column 5: max() needs a tensor, 'stable.p99_ms' is none"},
        {"rows(`dense/Add:0`)", "column 1: rows() of a tensor without dimensions"},
        {"len(S)", "column 1: there is no function 'len'"},
        {"parameter(X)", "column 11: expected a name in quotes, found 'X'"},
        {"parameter('a', X)", "column 16: expected a number, a string, true or false, found 'X'"},
        {"parameter('top') == 3", "column 18: the left side is a string, the right side a int"},
        {"present(max(V))", "column 9: present() of 'max(…)'"},
        {"status(nobody)", "column 8: there is no node 'nobody'"},
        {"X in []", "column 7: expected a number"},
        {"X in ['a']", "column 7: a string in a list for a int"},
        {"X in [1.5]", "column 7: a float in a list for a int"},
        {"X in [1", "column 8: expected ',' or ']'"},
        {"X not 1", "column 7: expected 'in' after 'not', found '1'"},
        {"prefix(S)", "column 9: expected ',' and a second string, found ')'"},
        {"prefix(S, 1)", "column 1: prefix() needs two strings"},
        {"abs(S)", "column 1: abs() needs a number"},
        {"'abc", "column 1: ' without its end"},
        {"'abc\\'", "column 1: ' without its end"},
        {"`abc", "column 1: ` without its end"},
        {"'a\\qb'", "column 3: unknown escape"},
        {"\xc3\xa4 == 1", "column 1: a character outside of a string"},
        {"'\xc3\xa4' == 1", "column 5: the left side is a string"},
        {"X ; 1", "column 3: unexpected ';'"},
        {"1x", "column 1: '1' is followed by a letter"},
        {"1.2.3", "column 1: '1.2.3' is no number"},
        {"9223372036854775808", "column 1: '9223372036854775808' is no number of 64 bits"},
        {"-9223372036854775809", "column 2: '9223372036854775809' is no number of 64 bits"},
        {"X - 9223372036854775808", "column 5: '9223372036854775808' is no number of 64 bits"},
        {"X in [9223372036854775808]", "column 7: '9223372036854775808' is no number of 64 bits"},
        {"X == \x01", "column 6: a control character"},
        {"X == \xff", "no valid UTF-8"},
        {"(X", "column 3: expected ')', found 'the end'"},
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct mr_expr_options options = {0};
        struct mr_expr *x = NULL;
        struct mr_err err = {0};
        int rc = test_compile(&world, rows[i].text, &options, &x, &err);
        CHECK_ROW(rc == MR_E_INVALID, i, "%s: %d", rows[i].text, rc);
        CHECK_ROW(strstr(err.msg, rows[i].message), i, "%s: %s", rows[i].text, err.msg);
        assert_null(x);
    }
}

static void conditions_are_bools(void **state)
{
    (void)state;
    struct mr_expr_options options = {.want_bool = true};
    struct mr_expr *x = NULL;
    struct mr_err err = {0};

    assert_int_equal(test_compile(&world, "X", &options, &x, &err), MR_E_INVALID);
    assert_string_equal(err.msg,
                        "column 1: a condition must be a bool, this is a int; write … != 0");
    assert_int_equal(test_compile(&world, "X > 0", &options, &x, &err), MR_OK);
    mr_expr_free(&x);
}

/* Each bound of the header is reached, and one more is refused. */
static void bounds(void **state)
{
    (void)state;
    struct mr_expr_options options = {0};
    struct mr_expr *x = NULL;
    struct mr_err err = {0};
    static char text[MR_EXPR_TEXT_MAX + 2];

    memset(text, ' ', MR_EXPR_TEXT_MAX);
    text[0] = '1';
    assert_int_equal(test_compile(&world, text, &options, &x, &err), MR_OK);
    mr_expr_free(&x);
    text[MR_EXPR_TEXT_MAX] = ' ';
    assert_int_equal(test_compile(&world, text, &options, &x, &err), MR_E_INVALID);
    assert_non_null(strstr(err.msg, "at most 4096 are allowed"));

    static const char *const openers[] = {"(", "-", "not ", "!", "abs("};
    for (size_t k = 0; k < COUNT_OF(openers); k++) {
        text[0] = '\0';
        for (int i = 0; i < 500; i++) {
            strcat(text, openers[k]);
        }
        assert_int_equal(test_compile(&world, text, &options, &x, &err), MR_E_INVALID);
        assert_non_null(strstr(err.msg, "more than 64 levels"));
    }
    strcpy(text, "0");
    for (int i = 0; i < 64; i++) {
        memmove(text + 1, text, strlen(text) + 1);
        text[0] = '(';
        strcat(text, ")");
    }
    assert_int_equal(test_compile(&world, text, &options, &x, &err), MR_OK);
    mr_expr_free(&x);

    strcpy(text, "parameter('0') == ''");
    for (int i = 1; i <= MR_EXPR_OPERANDS_MAX; i++) {
        sprintf(text + strlen(text), " or parameter('%d') == ''", i);
    }
    assert_int_equal(test_compile(&world, text, &options, &x, &err), MR_E_INVALID);
    assert_non_null(strstr(err.msg, "more than 64 names"));

    text[0] = '\0';
    for (int i = 0; i < 60; i++) {
        strcat(text, "1 + 2 * (");
    }
    assert_int_equal(test_compile(&world, text, &options, &x, &err), MR_E_INVALID);
    assert_non_null(strstr(err.msg, "more than 64 values at once"));
}

static void operands_are_listed_once(void **state)
{
    (void)state;
    struct mr_expr_options options = {0};
    struct mr_expr *x = NULL;
    struct mr_err err = {0};
    size_t count;

    assert_int_equal(
        test_compile(&world,
                     "present(V) and X > 1 and X < 9 and header('a') == '' and status(det) == 'OK'",
                     &options, &x, &err),
        MR_OK);
    const struct mr_expr_operand *o = mr_expr_operands(x, &count);
    assert_int_equal(count, 4);
    assert_true(mr_str_eq_c(o[0].name, "V") && o[0].is_tensor && !o[0].is_required && o[0].id == 1);
    assert_true(mr_str_eq_c(o[1].name, "X") && o[1].is_tensor && o[1].is_required && o[1].id == 0);
    assert_true(o[2].form == MR_EXPR_HEADER && !o[2].is_tensor && o[2].is_required);
    assert_true(o[3].form == MR_EXPR_STATUS && !o[3].is_tensor && o[3].id == 7);
    mr_expr_free(&x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(accepts),
        cmocka_unit_test(refuses),
        cmocka_unit_test(conditions_are_bools),
        cmocka_unit_test(bounds),
        cmocka_unit_test(operands_are_listed_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
