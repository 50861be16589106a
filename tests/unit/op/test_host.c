/* The host's side of the op ABI: libraries, what an op may not do, memory in place, cancelling. */
#include "op_test.h"

#include <unistd.h>

static struct node_case odd_case(int32_t *what)
{
    return (struct node_case){.op = "test.odd",
                              .inputs = {{"x", MR_DTYPE_INT32, 1, {2}, what, 8, NULL}},
                              .outputs = {"y"}};
}

static void contract(void **state)
{
    (void)state;
    static const struct {
        int32_t what;
        int status;
        const char *words;
    } rows[] = {
        {1, MR_E_INTERNAL, "op 'test.odd': run returned 5, which is no status"},
        {2, MR_E_INTERNAL, "op 'test.odd': did not set its output 'y'"},
        {3, MR_E_INTERNAL, "op 'test.odd': output 'y': came as FP32, declared is INT32"},
        {4, MR_E_INTERNAL, "op 'test.odd': output 1 of only 1"},
        {5, MR_E_INTERNAL, "op 'test.odd': output 'y': came as [2,"},
        {6, MR_E_INTERNAL, "op 'test.odd': output 'y': came with 12 bytes, its shape has 8"},
        {7, MR_E_INTERNAL, "op 'test.odd': output 'y': set twice"},
        {8, MR_E_INTERNAL, "op 'test.odd': bytes 4 to 12 of input 0, which has 8"},
        {9, MR_E_INTERNAL, "op 'test.odd': there is no input 3"},
        {10, MR_E_UNSUPPORTED, "op 'test.odd': run failed (not supported) without saying why"},
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        int32_t x[] = {rows[i].what, 0};
        struct node_case c = odd_case(x);
        static const int64_t two_two[] = {2, 2};
        c.inputs[0].shape = rows[i].what == 5 ? two_two : NULL;
        expect_refused(&c, rows[i].status, rows[i].words);
    }
    int32_t x[] = {0, 0};
    struct node_case c = odd_case(x);
    c.op = "test.strings";
    expect_refused(&c, MR_E_INTERNAL, "op 'test.strings': output 'y': ");
    c.op = "test.wrong";
    expect_no_node(&c, "op 'test.wrong' describes its output 'y' wrongly");
    c.op = "test.silent";
    expect_no_node(&c, "op 'test.silent': create failed (not supported) without saying why");
}

/* In place only if the host says that no one else refers to the memory. */
static void in_place(void **state)
{
    (void)state;
    static const uint8_t wanted[] = {1};
    struct mr_block *block = mr_block_new(64);
    struct mr_err err = {0};
    struct node n;
    int32_t none[] = {0, 0};
    struct node_case c = odd_case(none);

    for (uint8_t may = 0; may < 2; may++) {
        assert_int_equal(node_open(&n, &c, &err), MR_OK);
        memset(block->data, 0, 8);
        struct mr_tensor t = {
            .dtype = MR_DTYPE_INT32, .rank = 1, .shape = SHAPE(2), .data = block->data, .bytes = 8};
        struct mr_op_call call = {.inputs = &t,
                                  .blocks = &block,
                                  .may_write = &may,
                                  .wanted = wanted,
                                  .outputs = n.out,
                                  .arena = &n.arena};
        assert_int_equal(mr_op_run(n.op, &call, &err), MR_OK);
        assert_int_equal(((const uint8_t *)n.out[0].tensor.data)[7], 7);
        assert_true((n.out[0].tensor.data == block->data) == may);
        assert_int_equal(mr_block_refs(block), may ? 2 : 1);
        assert_int_equal(block->data[0], may ? 7 : 0);
        node_close(&n);
        assert_int_equal(mr_block_refs(block), 1);
    }
    mr_block_unref(&block);
}

/* One output is the input's memory already: the other one gets its own. */
static void in_place_beside_a_view(void **state)
{
    (void)state;
    static const uint8_t wanted[] = {1, 1}, may = 1;
    struct mr_block *block = mr_block_new(64);
    struct mr_err err = {0};
    struct node n;
    int32_t none[] = {0, 0};
    struct node_case c = odd_case(none);

    c.op = "test.pair";
    c.outputs[1] = "z";
    assert_int_equal(node_open(&n, &c, &err), MR_OK);
    memset(block->data, 0, 8);
    struct mr_tensor t = {
        .dtype = MR_DTYPE_INT32, .rank = 1, .shape = SHAPE(2), .data = block->data, .bytes = 8};
    struct mr_op_call call = {.inputs = &t,
                              .blocks = &block,
                              .may_write = &may,
                              .wanted = wanted,
                              .outputs = n.out,
                              .arena = &n.arena};
    assert_int_equal(mr_op_run(n.op, &call, &err), MR_OK);
    assert_ptr_equal(n.out[0].tensor.data, block->data);
    assert_int_equal(block->data[0], 0);
    assert_int_equal(((const uint8_t *)n.out[1].tensor.data)[0], 7);
    node_close(&n);
    mr_block_unref(&block);
}

static void counters(void **state)
{
    (void)state;
    int32_t x[] = {0, 0};
    struct node_case c = odd_case(x);
    struct mr_err err = {0};
    struct node n;
    uint64_t value = 9;

    assert_int_equal(node_open(&n, &c, &err), MR_OK);
    assert_string_equal(mr_op_counter(n.op, 0, &value), "runs");
    assert_int_equal(value, 0);
    assert_int_equal(node_run(&n, c.inputs, &err), MR_OK);
    assert_int_equal(node_run(&n, c.inputs, &err), MR_OK);
    assert_non_null(mr_op_counter(n.op, 0, &value));
    assert_int_equal(value, 2);
    assert_null(mr_op_counter(n.op, 1, &value));
    node_close(&n);
}

static bool yes(void *ctx)
{
    (void)ctx;
    return true;
}

/* Each long op ends early when its request is cancelled. */
static void cancelled(void **state)
{
    (void)state;
    static float x[3 * 4096];
    static const struct node_case cases[] = {
        {.op = "scale",
         .inputs = {{"x", MR_DTYPE_FP32, 1, {3 * 4096}, x, sizeof x, NULL}},
         .outputs = {"x"}},
        {.op = "image.resize",
         .settings = {"width", "8", "height", "8"},
         .inputs = {{"image", MR_DTYPE_FP32, 3, {64, 64, 3}, x, sizeof x, NULL}},
         .outputs = {"image"}},
        {.op = "image.normalize",
         .inputs = {{"image", MR_DTYPE_FP32, 3, {64, 64, 3}, x, sizeof x, NULL}},
         .outputs = {"image"}},
        {.op = "topk",
         .inputs = {{"scores", MR_DTYPE_FP32, 1, {3 * 4096}, x, sizeof x, NULL}},
         .outputs = {"values"}},
        {.op = "concat",
         .inputs = {{"a", MR_DTYPE_FP32, 1, {3 * 4096}, x, sizeof x, NULL}},
         .outputs = {"y"}},
        {.op = "threshold",
         .settings = {"value", "1"},
         .inputs = {{"x", MR_DTYPE_FP32, 1, {3 * 4096}, x, sizeof x, NULL}},
         .outputs = {"mask"}},
    };
    static const uint8_t wanted[] = {1};
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct mr_err err = {0};
        struct node n;
        CHECK_ROW(node_open(&n, &cases[i], &err) == MR_OK, i, "%s", err.msg);
        struct mr_tensor t = input_tensor(&cases[i].inputs[0]);
        struct mr_op_call call = {.inputs = &t,
                                  .wanted = wanted,
                                  .outputs = n.out,
                                  .arena = &n.arena,
                                  .is_cancelled = yes};
        int rc = mr_op_run(n.op, &call, &err);
        CHECK_ROW(rc == MR_E_CANCELLED && !n.out[0].is_set, i, "%s: %d %s", cases[i].op, rc,
                  err.msg);
        node_close(&n);
    }
}

/* Memory that is refused, at every place where an op asks for it. */
static void without_memory(void **state)
{
    (void)state;
    static float x[3 * 4096];
    static const struct node_case c = {
        .op = "image.resize",
        .settings = {"width", "80", "height", "80"},
        .inputs = {{"image", MR_DTYPE_FP32, 3, {64, 64, 3}, x, sizeof x, NULL}},
        .outputs = {"image"}};
    struct mr_err err = {0};
    struct node n;
    int rc = MR_E_EXHAUSTED;

    assert_int_equal(node_open(&n, &c, &err), MR_OK);
    for (uint64_t i = 1; rc < 0; i++) {
        assert_true(i < 20);
        mr_mem_fail_after(i);
        rc = node_run(&n, c.inputs, &err);
        mr_mem_fail_after(0);
        assert_true(rc == MR_OK || rc == MR_E_EXHAUSTED);
    }
    node_close(&n);
}

static void libraries(void **state)
{
    (void)state;
    char dir[] = "/tmp/op_dir_XXXXXX", path[100];
    const char *dirs[] = {dir};
    const char *twice[] = {MR_ODD_OPS_DIR, MR_ODD_OPS_DIR};
    struct mr_ops *ops = NULL;
    struct mr_err err = {0};

    assert_non_null(mkdtemp(dir));
    assert_int_equal(mr_ops_open(dirs, 1, &ops, &err), MR_OK);
    mr_ops_close(&ops);
    snprintf(path, sizeof path, "%s/libmillrace_op_bad.so", dir);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_int_equal(fclose(f), 0);
    assert_int_equal(mr_ops_open(dirs, 1, &ops, &err), MR_E_INVALID);
    assert_non_null(strstr(err.msg, "libmillrace_op_bad.so"));
    unlink(path);
    rmdir(dir);
    assert_int_equal(mr_ops_open(dirs, 1, &ops, &err), MR_E_NOT_FOUND);
    assert_non_null(strstr(err.msg, "--op-directory /tmp/op_dir_"));
    assert_int_equal(mr_ops_open(twice, 2, &ops, &err), MR_E_INVALID);
    assert_non_null(strstr(err.msg, "there is another op 'test.odd'"));
    assert_null(ops);
}

static int odd_setup(void **state)
{
    const char *dirs[] = {MR_ODD_OPS_DIR};

    (void)state;
    return mr_ops_open(dirs, 1, &all_ops, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(contract),
        cmocka_unit_test(in_place),
        cmocka_unit_test(in_place_beside_a_view),
        cmocka_unit_test(counters),
        cmocka_unit_test(cancelled),
        cmocka_unit_test(without_memory),
        cmocka_unit_test(libraries),
    };
    return cmocka_run_group_tests(tests, odd_setup, ops_teardown);
}
