/* The ops over tensors: values against constants, shapes, types at their limits, what is refused. */
#include "op_test.h"

#include <limits.h>
#include <math.h>
#include <unistd.h>

static const int32_t ints[] = {1, 2, 3, 4, 5, 6};
static const char abc[] = "\1\0\0\0a\2\0\0\0bb\0\0\0\0";

static void topk(void **state)
{
    (void)state;
    static const float scores[] = {0.1f, 0.7f, 0.7f, 0.2f, NAN, -1, 3, NAN};
    static const float values[] = {0.7f, 0.7f, 3, -1};
    static const int64_t indices[] = {1, 2, 2, 1};
    static const int32_t indices32[] = {1, 2, 2, 1};
    struct node_case c = {
        .op = "topk",
        .settings = {"k", "2", "labels", "zero, one ,two,three"},
        .inputs = {{"scores", MR_DTYPE_FP32, 2, {-1, 4}, scores, sizeof scores, SHAPE(2, 4)}},
        .outputs = {"values", "indices", "labels"}};
    struct node n;

    node_do(&n, &c);
    EXPECT(&n, 0, FP32, (2, 2), values);
    EXPECT(&n, 1, INT64, (2, 2), indices);
    EXPECT_TEXT(&n, 2, (2, 2), "\3\0\0\0one\3\0\0\0two\3\0\0\0two\3\0\0\0one");
    node_close(&n);
    c.settings[4] = "index_dtype";
    c.settings[5] = "INT32";
    node_do(&n, &c);
    EXPECT(&n, 1, INT32, (2, 2), indices32);
    node_close(&n);
    c.settings[3] = "zero,one";
    expect_refused(&c, MR_E_INVALID, "2 has no label; there are 2");
    c.settings[6] = "default";
    c.settings[7] = "?";
    node_do(&n, &c);
    EXPECT_TEXT(&n, 2, (2, 2), "\3\0\0\0one\1\0\0\0?\1\0\0\0?\3\0\0\0one");
    node_close(&n);
    c.settings[1] = "5";
    expect_no_node(&c, "k is 5, input 'scores' has 4 in a row");
    c.inputs[0].dims[1] = -1;
    expect_refused(&c, MR_E_INVALID, "k is 5, a row has 4 scores");
    c.settings[2] = NULL;
    expect_no_node(&c, "needs one of the parameters 'labels' and 'labels_file'");
    c.inputs[0].dtype = MR_DTYPE_BYTES;
    c.outputs[2] = NULL;
    expect_no_node(&c, "input 'scores' is BYTES, expected numbers");
    c.outputs[1] = "indexes";
    expect_no_node(&c, "output_map has 2 names, the op knows 1 of them");
}

static void labels(void **state)
{
    (void)state;
    char dir[] = "/tmp/op_labels_XXXXXX", path[100], link[100];
    static const int8_t numbers[] = {2, 0};
    struct node_case c = {
        .op = "labels",
        .settings = {"labels_file", "names.txt"},
        .inputs = {{"indices", MR_DTYPE_INT8, 1, {2}, numbers, sizeof numbers, NULL}},
        .outputs = {"labels"}};
    struct mr_err err = {0};
    struct node n;

    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/names.txt", dir);
    snprintf(link, sizeof link, "%s/passwd", dir);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_true(fputs("cat\r\ndog\nbird\n", f) >= 0);
    assert_int_equal(fclose(f), 0);
    assert_int_equal(symlink("/etc/passwd", link), 0);
    assert_int_equal(node_open_in(&n, &c, dir, &err), MR_OK);
    assert_int_equal(node_run(&n, c.inputs, &err), MR_OK);
    EXPECT_TEXT(&n, 0, (2), "\4\0\0\0bird\3\0\0\0cat");
    node_close(&n);
    static const struct {
        const char *file, *words;
    } rows[] = {
        {"none.txt", "file 'none.txt' in the model's folder: No such file"},
        {"../names.txt", "file '../names.txt' in the model's folder: No such file"},
        {"../../etc/passwd", "is outside of the model's folder"},
        {"passwd", "file 'passwd' is outside of the model's folder"},
        {"/etc/passwd", "the path must be relative"},
        {".", "is outside of the model's folder"},
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        c.settings[1] = rows[i].file;
        CHECK_ROW(node_open_in(&n, &c, dir, &err) < 0, i, "%s", rows[i].file);
        CHECK_ROW(strstr(err.msg, rows[i].words), i, "%s: %s", rows[i].file, err.msg);
    }
    static const uint64_t outside[] = {UINT64_MAX};
    c.settings[1] = "names.txt";
    c.inputs[0] = (struct input){"indices", MR_DTYPE_UINT64, 1, {1}, outside, 8, NULL};
    assert_int_equal(node_open_in(&n, &c, dir, &err), MR_OK);
    assert_int_equal(node_run(&n, c.inputs, &err), MR_E_INVALID);
    assert_non_null(strstr(err.msg, "18446744073709551615 has no label; there are 3"));
    node_close(&n);
    unlink(link);
    unlink(path);
    rmdir(dir);
}

static void threshold(void **state)
{
    (void)state;
    static const float x[] = {0.5f, 0.4f, NAN, 1};
    static const uint8_t masks[4][4] = {{1, 0, 0, 1}, {0, 0, 0, 1}, {1, 1, 0, 0}, {0, 1, 0, 0}};
    static const int64_t counts[] = {2, 1, 2, 1};
    static const char *const compares[] = {">=", ">", "<=", "<"};
    struct node_case c = {.op = "threshold",
                          .settings = {"value", "0.5", "compare", ">="},
                          .inputs = {{"x", MR_DTYPE_FP32, 2, {2, 2}, x, sizeof x, NULL}},
                          .outputs = {"mask", "count"}};
    struct node n;

    for (size_t i = 0; i < 4; i++) {
        c.settings[3] = compares[i];
        node_do(&n, &c);
        expect_output(&n, 0, MR_DTYPE_BOOL, 2, SHAPE(2, 2), masks[i], 4);
        expect_output(&n, 1, MR_DTYPE_INT64, 1, SHAPE(1), &counts[i], 8);
        node_close(&n);
    }
    c.settings[0] = NULL;
    expect_no_node(&c, "parameter 'value' is missing");
}

/* A double holds no two neighbours beyond 2^53. */
#define BIG (1LL << 53)
static const int64_t wide[] = {BIG, BIG + 1, 5};
static const uint64_t unsigned_wide[] = {UINT64_MAX - 1, UINT64_MAX, 5};
static const struct input wide_x = {"x", MR_DTYPE_INT64, 1, {3}, wide, sizeof wide, NULL};
static const struct input unsigned_wide_x = {"x",           MR_DTYPE_UINT64,      1,   {3},
                                             unsigned_wide, sizeof unsigned_wide, NULL};

static void topk_int64(void **state)
{
    (void)state;
    static const int64_t indices[] = {1, 0};
    struct node_case c = {.op = "topk", .settings = {"k", "2"}, .outputs = {"indices"}};
    struct node n;

    for (int i = 0; i < 2; i++) {
        c.inputs[0] = i ? unsigned_wide_x : wide_x;
        c.inputs[0].name = "scores";
        node_do(&n, &c);
        EXPECT(&n, 0, INT64, (2), indices);
        node_close(&n);
    }
}

static void threshold_int64(void **state)
{
    (void)state;
    static const struct {
        const char *value, *compare;
        uint8_t mask[3], unsigned_mask[3];
    } rows[] = {
        {"9007199254740993", ">=", {0, 1, 0}, {1, 1, 0}},
        {"9007199254740992", ">", {0, 1, 0}, {1, 1, 0}},
        {"9007199254740993", "<", {1, 0, 1}, {0, 0, 1}},
        {"9007199254740992", "<=", {1, 0, 1}, {0, 0, 1}},
        {"9007199254740992.0", ">", {0, 1, 0}, {1, 1, 0}},
        {"18446744073709551615", ">=", {0, 0, 0}, {0, 1, 0}},
        {"18446744073709551615", "<", {1, 1, 1}, {1, 0, 1}},
        {"4.5", ">=", {1, 1, 1}, {1, 1, 1}},
        {"5.5", ">=", {1, 1, 0}, {1, 1, 0}},
        {"5.5", ">", {1, 1, 0}, {1, 1, 0}},
        {"4.5", "<", {0, 0, 0}, {0, 0, 0}},
        {"5.5", "<", {0, 0, 1}, {0, 0, 1}},
        {"5.5", "<=", {0, 0, 1}, {0, 0, 1}},
        {"1e300", "<", {1, 1, 1}, {1, 1, 1}},
        {"-1e300", ">", {1, 1, 1}, {1, 1, 1}},
        {"-9223372036854775808", ">=", {1, 1, 1}, {1, 1, 1}},
    };
    struct node_case c = {.op = "threshold", .outputs = {"mask"}};
    struct node n;

    for (size_t i = 0; i < 2 * COUNT_OF(rows); i++) {
        size_t row = i / 2;
        c.settings[0] = "value";
        c.settings[1] = rows[row].value;
        c.settings[2] = "compare";
        c.settings[3] = rows[row].compare;
        c.inputs[0] = i % 2 ? unsigned_wide_x : wide_x;
        node_do(&n, &c);
        CHECK_ROW(
            memcmp(n.out[0].tensor.data, i % 2 ? rows[row].unsigned_mask : rows[row].mask, 3) == 0,
            row, "%s %s", rows[row].compare, rows[row].value);
        node_close(&n);
    }
}

static void select_rows(void **state)
{
    (void)state;
    static const uint8_t mask[] = {1, 0, 1};
    static const int32_t kept[] = {1, 2, 5, 6};
    struct node_case c = {.op = "select",
                          .inputs = {{"x", MR_DTYPE_INT32, 2, {3, 2}, ints, sizeof ints, NULL},
                                     {"mask", MR_DTYPE_BOOL, 1, {-1}, mask, sizeof mask, SHAPE(3)}},
                          .outputs = {"x"}};
    struct node n;

    node_do(&n, &c);
    EXPECT(&n, 0, INT32, (2, 2), kept);
    node_close(&n);
    c.inputs[1].bytes = 2;
    c.inputs[1].shape = SHAPE(2);
    expect_refused(&c, MR_E_INVALID, "a mask of 2 elements for 3 rows");
    c.inputs[1].bytes = 3;
    c.inputs[1].shape = SHAPE(3);
    c.inputs[0] = (struct input){"x", MR_DTYPE_BYTES, 1, {3}, abc, sizeof abc - 1, NULL};
    node_do(&n, &c);
    EXPECT_TEXT(&n, 0, (2), "\1\0\0\0a\0\0\0\0");
    node_close(&n);
}

/* Without elements the other dimensions may be anything: no memory and no loop follows from them. */
static void no_elements(void **state)
{
    (void)state;
    static const uint8_t mask[500] = {1, 0, 1};
    struct node_case c = {.op = "select",
                          .inputs = {{"x", MR_DTYPE_BYTES, 2, {-1, -1}, "", 0, SHAPE(500, 0)},
                                     {"mask", MR_DTYPE_BOOL, 1, {-1}, mask, 500, SHAPE(500)}},
                          .outputs = {"x"}};
    struct node n;

    node_do(&n, &c);
    EXPECT_TEXT(&n, 0, (2, 0), "");
    node_close(&n);

    const int64_t huge = INT64_C(1) << 62;
    c = (struct node_case){.op = "concat",
                           .settings = {"axis", "1"},
                           .inputs = {{"a", MR_DTYPE_INT32, 2, {-1, -1}, ints, 0, SHAPE(huge, 0)},
                                      {"b", MR_DTYPE_INT32, 2, {-1, -1}, ints, 0, SHAPE(huge, 0)}},
                           .outputs = {"y"}};
    node_do(&n, &c);
    assert_true(n.out[0].tensor.shape[0] == huge && n.out[0].tensor.bytes == 0);
    node_close(&n);
    c.op = "stack";
    node_do(&n, &c);
    assert_true(n.out[0].tensor.shape[0] == huge && n.out[0].tensor.bytes == 0);
    node_close(&n);
}

static void concat(void **state)
{
    (void)state;
    static const int32_t rows[] = {1, 2, 3, 4, 5, 6, 1, 2}, columns[] = {1, 2, 1, 3, 4, 2, 5, 6, 3};
    struct node_case c = {.op = "concat",
                          .inputs = {{"a", MR_DTYPE_INT32, 2, {3, 2}, ints, sizeof ints, NULL},
                                     {"b", MR_DTYPE_INT32, 2, {-1, 2}, ints, 8, SHAPE(1, 2)}},
                          .outputs = {"y"}};
    struct node n;

    node_do(&n, &c);
    EXPECT(&n, 0, INT32, (4, 2), rows);
    assert_int_equal(mr_op_outputs(n.op)[0].dims[0], -1);
    node_close(&n);
    c.settings[0] = "axis";
    c.settings[1] = "-1";
    c.inputs[1] = (struct input){"b", MR_DTYPE_INT32, 2, {3, 1}, ints, 12, NULL};
    node_do(&n, &c);
    EXPECT(&n, 0, INT32, (3, 3), columns);
    assert_int_equal(mr_op_outputs(n.op)[0].dims[1], 3);
    node_close(&n);
    c.settings[1] = "0";
    expect_no_node(&c, "dimension 1 of input 'b' is 1, of others 2");
    c.inputs[1].dims[1] = -1;
    c.inputs[1].shape = SHAPE(3, 1);
    expect_refused(&c, MR_E_INVALID, "dimension 1 of input 1 is 1, of others 2");
    c.settings[1] = "2";
    expect_no_node(&c, "axis 2 of 2 dimensions");
    c.inputs[1].dtype = MR_DTYPE_FP32;
    c.settings[0] = NULL;
    expect_no_node(&c, "input 'b' is FP32 of 2 dimensions, input 'a' is INT32 of 2");
    c.inputs[0] = c.inputs[1] =
        (struct input){"s", MR_DTYPE_BYTES, 1, {3}, abc, sizeof abc - 1, NULL};
    node_do(&n, &c);
    EXPECT_TEXT(&n, 0, (6), "\1\0\0\0a\2\0\0\0bb\0\0\0\0\1\0\0\0a\2\0\0\0bb\0\0\0\0");
    node_close(&n);
}

static void stack(void **state)
{
    (void)state;
    static const int32_t first[] = {1, 2, 3, 1, 2, 3}, last[] = {1, 1, 2, 2, 3, 3};
    struct node_case c = {.op = "stack",
                          .inputs = {{"a", MR_DTYPE_INT32, 1, {3}, ints, 12, NULL},
                                     {"b", MR_DTYPE_INT32, 1, {-1}, ints, 12, SHAPE(3)}},
                          .outputs = {"y"}};
    struct node n;

    node_do(&n, &c);
    EXPECT(&n, 0, INT32, (2, 3), first);
    node_close(&n);
    c.settings[0] = "axis";
    c.settings[1] = "-1";
    node_do(&n, &c);
    EXPECT(&n, 0, INT32, (3, 2), last);
    node_close(&n);
    c.inputs[1].shape = SHAPE(2);
    c.inputs[1].bytes = 8;
    expect_refused(&c, MR_E_INVALID, "input 1 has another shape than input 0");
    c.inputs[1].rank = 2;
    expect_no_node(&c, "input 'b' has another type or shape than input 'a'");
    c.inputs[0] = c.inputs[1] = (struct input){"s", MR_DTYPE_INT32, 0, {0}, ints, 4, NULL};
    c.settings[0] = NULL;
    node_do(&n, &c);
    static const int32_t ones[] = {1, 1};
    EXPECT(&n, 0, INT32, (2), ones);
    node_close(&n);
}

static void split(void **state)
{
    (void)state;
    static const int32_t left[] = {1, 3, 5}, right[] = {2, 4, 6};
    struct node_case c = {
        .op = "split",
        .settings = {"sizes", "1,2"},
        .inputs = {{"x", MR_DTYPE_INT32, 2, {-1, 2}, ints, sizeof ints, SHAPE(3, 2)}},
        .outputs = {"a", "b"}};
    struct node n;

    node_do(&n, &c);
    expect_output(&n, 0, MR_DTYPE_INT32, 2, SHAPE(1, 2), ints, 8);
    expect_output(&n, 1, MR_DTYPE_INT32, 2, SHAPE(2, 2), ints + 2, 16);
    assert_ptr_equal(n.out[1].tensor.data, ints + 2); /* no copy */
    node_close(&n);
    c.settings[0] = "axis";
    c.settings[1] = "1";
    node_do(&n, &c);
    EXPECT(&n, 0, INT32, (3, 1), left);
    EXPECT(&n, 1, INT32, (3, 1), right);
    node_close(&n);
    c.settings[0] = NULL;
    expect_refused(&c, MR_E_INVALID, "a dimension of 3 cannot be split into 2 equal parts");
    c.inputs[0].dims[0] = 3;
    expect_no_node(&c, "a dimension of 3 cannot be split into 2 equal parts");
    c.settings[0] = "sizes";
    c.settings[1] = "2,2";
    expect_no_node(&c, "a dimension of 3 cannot be split into 2 such parts");
    c.settings[1] = "1,1,1";
    expect_no_node(&c, "parameter 'sizes' has 3 numbers for 2 outputs");
    c.settings[1] = "9007199254740991,9007199254740991";
    expect_no_node(&c, "cannot be split");
    c.settings[1] = "0,3";
    expect_no_node(&c, "whole numbers from 1 on");
    c.settings[1] = "1,2";
    c.inputs[0] = (struct input){"x", MR_DTYPE_BYTES, 1, {3}, abc, sizeof abc - 1, NULL};
    node_do(&n, &c);
    EXPECT_TEXT(&n, 0, (1), "\1\0\0\0a");
    EXPECT_TEXT(&n, 1, (2), "\2\0\0\0bb\0\0\0\0");
    node_close(&n);
}

static void cast(void **state)
{
    (void)state;
    static const float x[] = {-1.9f, 300, NAN, INFINITY, -INFINITY, 0.5f};
    static const uint8_t u8[] = {0, 255, 0, 255, 0, 0};
    static const int8_t i8[] = {-1, 127, 0, 127, -128, 0};
    static const int32_t i32[] = {-1, 300, 0, INT_MAX, INT_MIN, 0};
    static const int64_t i64[] = {-1, 300, 0, INT64_MAX, INT64_MIN, 0};
    static const uint64_t u64[] = {0, 300, 0, UINT64_MAX, 0, 0};
    static const uint8_t bools[] = {1, 1, 1, 1, 1, 1};
    static const uint16_t half[] = {0xbf9a, 0x5cb0, 0x7e00, 0x7c00, 0xfc00, 0x3800};
    const struct {
        const char *name;
        int dtype;
        const void *data;
        size_t bytes;
    } rows[] = {
        {"UINT8", MR_DTYPE_UINT8, u8, sizeof u8},     {"INT8", MR_DTYPE_INT8, i8, sizeof i8},
        {"INT32", MR_DTYPE_INT32, i32, sizeof i32},   {"INT64", MR_DTYPE_INT64, i64, sizeof i64},
        {"UINT64", MR_DTYPE_UINT64, u64, sizeof u64}, {"BOOL", MR_DTYPE_BOOL, bools, sizeof bools},
        {"FP32", MR_DTYPE_FP32, x, sizeof x},
    };
    struct node_case c = {.op = "cast",
                          .settings = {"dtype", "FP16"},
                          .inputs = {{"x", MR_DTYPE_FP32, 1, {6}, x, sizeof x, NULL}},
                          .outputs = {"x"}};
    struct node n;

    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        c.settings[1] = rows[i].name;
        node_do(&n, &c);
        CHECK_ROW(memcmp(n.out[0].tensor.data, rows[i].data, rows[i].bytes) == 0, i, "%s",
                  rows[i].name);
        expect_output(&n, 0, rows[i].dtype, 1, SHAPE(6), rows[i].data, rows[i].bytes);
        node_close(&n);
    }
    c.settings[1] = "FP16";
    node_do(&n, &c);
    const uint16_t *h = n.out[0].tensor.data;
    assert_true(h[0] == half[0] && h[1] == half[1] && (h[2] & 0x7fff) > 0x7c00 && h[3] == half[3] &&
                h[4] == half[4]);
    node_close(&n);
    static const int64_t exact[] = {INT64_MAX, INT64_MIN, (1LL << 53) + 1};
    static const uint64_t unsigned_exact[] = {INT64_MAX, 0, (1ULL << 53) + 1};
    c.settings[1] = "UINT64";
    c.inputs[0] = (struct input){"x", MR_DTYPE_INT64, 1, {3}, exact, sizeof exact, NULL};
    node_do(&n, &c);
    EXPECT(&n, 0, UINT64, (3), unsigned_exact);
    node_close(&n);
    static const double beyond[] = {1e300, -1e300, 0.1};
    static const float infinite[] = {INFINITY, -INFINITY, 0.1f};
    c.settings[1] = "FP32";
    c.inputs[0] = (struct input){"x", MR_DTYPE_FP64, 1, {3}, beyond, sizeof beyond, NULL};
    node_do(&n, &c);
    EXPECT(&n, 0, FP32, (3), infinite);
    node_close(&n);
    static const uint8_t truths[] = {2, 0, 255}, ones[] = {1, 0, 1};
    c.settings[1] = "UINT8";
    c.inputs[0] = (struct input){"x", MR_DTYPE_BOOL, 1, {3}, truths, sizeof truths, NULL};
    node_do(&n, &c);
    EXPECT(&n, 0, UINT8, (3), ones);
    node_close(&n);
    /* Beside a tie of halves, nearer than a float. */
    static const double odd[] = {0x1.0020000001p0};
    static const uint16_t above[] = {0x3c01};
    c.settings[1] = "FP16";
    c.inputs[0] = (struct input){"x", MR_DTYPE_FP64, 1, {1}, odd, sizeof odd, NULL};
    node_do(&n, &c);
    EXPECT(&n, 0, FP16, (1), above);
    node_close(&n);
    c.settings[1] = "STRING";
    expect_no_node(&c, "parameter 'dtype' is 'STRING', expected a type such as FP32");
    c.settings[1] = "BYTES";
    expect_no_node(&c, "BYTES are no numbers");
    c.settings[0] = NULL;
    expect_no_node(&c, "parameter 'dtype' is missing");
}

static void scale(void **state)
{
    (void)state;
    static const float x[] = {0, 1, 2, -10}, y[] = {0.5f, 2.5f, 4, -4};
    static const uint8_t bytes[] = {0, 100, 200}, doubled[] = {0, 200, 255};
    struct node_case c = {.op = "scale",
                          .settings = {"multiply", "2", "add", "0.5", "max", "4", "min", "-4"},
                          .inputs = {{"x", MR_DTYPE_FP32, 1, {4}, x, sizeof x, NULL}},
                          .outputs = {"x"}};
    struct node n;

    node_do(&n, &c);
    EXPECT(&n, 0, FP32, (4), y);
    node_close(&n);
    c.settings[2] = NULL;
    c.inputs[0] = (struct input){"x", MR_DTYPE_UINT8, 1, {3}, bytes, sizeof bytes, NULL};
    node_do(&n, &c);
    EXPECT(&n, 0, UINT8, (3), doubled);
    node_close(&n);
    c.settings[0] = "min";
    c.settings[2] = "max";
    c.settings[3] = "1";
    c.settings[4] = NULL;
    expect_no_node(&c, "parameter 'min' is larger than 'max'");
}

static void scale_int64(void **state)
{
    (void)state;
    static const struct {
        const char *settings[9];
        int dtype; /* of the output */
        union {
            int64_t i[3];
            uint64_t u[3];
            double f[3];
        } y, unsigned_y;
    } rows[] = {
        {{"min", "0"}, MR_DTYPE_INT64, {.i = {BIG, BIG + 1, 5}}, {.i = {INT64_MAX, INT64_MAX, 5}}},
        {{"add", "1"},
         MR_DTYPE_UINT64,
         {.u = {BIG + 1, BIG + 2, 6}},
         {.u = {UINT64_MAX, UINT64_MAX, 6}}},
        {{"multiply", "-3", "add", "18446744073709551615"},
         MR_DTYPE_UINT64,
         {.u = {UINT64_MAX - 3 * BIG, UINT64_MAX - 3 * BIG - 3, UINT64_MAX - 15}},
         {.u = {0, 0, UINT64_MAX - 15}}},
        {{"max", "9007199254740993", "min", "6.0"},
         MR_DTYPE_INT64,
         {.i = {BIG, BIG + 1, 6}},
         {.i = {BIG + 1, BIG + 1, 6}}},
        {{"max", "1e300", "min", "-1e300"},
         MR_DTYPE_UINT64,
         {.u = {BIG, BIG + 1, 5}},
         {.u = {UINT64_MAX - 1, UINT64_MAX, 5}}},
        {{"add", "-9007199254740992"},
         MR_DTYPE_FP64,
         {.f = {0, 1, 5 - 0x1p53}},
         {.f = {0x1p64 - 0x1p53, 0x1p64 - 0x1p53, 5 - 0x1p53}}},
        /* the largest of products and sums */
        {{"multiply", "-9223372036854775808", "add", "-9223372036854775808"},
         MR_DTYPE_INT64,
         {.i = {INT64_MIN, INT64_MIN, INT64_MIN}},
         {.i = {INT64_MIN, INT64_MIN, INT64_MIN}}},
        {{"multiply", "9223372036854775807", "add", "18446744073709551615"},
         MR_DTYPE_FP64,
         {.f = {0x1p116 + 0x1p64, 0x1p116 + 0x1p64, 0x1p63 * 7}},
         {.f = {0x1p127, 0x1p127, 0x1p63 * 7}}},
        /* through doubles */
        {{"multiply", "9223372036854775808"},
         MR_DTYPE_FP64,
         {.f = {0x1p116, 0x1p116, 0x1p63 * 5}},
         {.f = {0x1p127, 0x1p127, 0x1p63 * 5}}},
        {{"add", "0.5"}, MR_DTYPE_INT64, {.i = {BIG, BIG, 5}}, {.i = {INT64_MAX, INT64_MAX, 5}}},
    };
    struct node_case c = {.op = "scale", .outputs = {"x"}};
    struct node n;

    for (size_t i = 0; i < 2 * COUNT_OF(rows); i++) {
        size_t row = i / 2, k = 0;
        c.settings[k++] = "dtype";
        c.settings[k++] = mr_dtype_name(rows[row].dtype);
        for (size_t from = 0; rows[row].settings[from]; from++) {
            c.settings[k++] = rows[row].settings[from];
        }
        c.settings[k] = NULL;
        c.inputs[0] = i % 2 ? unsigned_wide_x : wide_x;
        node_do(&n, &c);
        CHECK_ROW(memcmp(n.out[0].tensor.data, i % 2 ? &rows[row].unsigned_y : &rows[row].y, 24) ==
                      0,
                  row, "%s %s, unsigned %zu", rows[row].settings[0], rows[row].settings[1], i % 2);
        node_close(&n);
    }
    static const int32_t two[] = {2, -2, 1};
    static const int64_t product[] = {2 * BIG + 2, -2 * BIG - 2, BIG + 1};
    c = (struct node_case){.op = "scale",
                           .settings = {"multiply", "9007199254740993", "dtype", "INT64"},
                           .inputs = {{"x", MR_DTYPE_INT32, 1, {3}, two, sizeof two, NULL}},
                           .outputs = {"x"}};
    node_do(&n, &c);
    EXPECT(&n, 0, INT64, (3), product);
    node_close(&n);
    c.inputs[0] = wide_x;
    c.settings[0] = "min";
    c.settings[2] = "max";
    c.settings[3] = "9007199254740992";
    expect_no_node(&c, "parameter 'min' is larger than 'max'");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(topk),        cmocka_unit_test(labels),
        cmocka_unit_test(threshold),   cmocka_unit_test(select_rows),
        cmocka_unit_test(no_elements), cmocka_unit_test(concat),
        cmocka_unit_test(stack),       cmocka_unit_test(split),
        cmocka_unit_test(cast),        cmocka_unit_test(scale),
        cmocka_unit_test(topk_int64),  cmocka_unit_test(threshold_int64),
        cmocka_unit_test(scale_int64),
    };
    return cmocka_run_group_tests(tests, ops_setup, ops_teardown);
}
