/* Operators in plans: types that flow from one to the next, what is refused and in which words, and the proof of what a node may
 * change in place. */
#include "flow_test.h"

static struct mr_ops *ops;

static void types_flow(void **state)
{
    (void)state;
    static const struct node_text nodes[] = {
        {"decode", {"bytes=IN"}, {"image=PIXELS"}},
        {"resize", {"image=PIXELS"}, {"image=SMALL"}},
        {"normalize", {"image=SMALL"}, {"image=OUT"}},
    };
    static const struct mr_setting size[] = {{"width", "8"}, {"height", "4"}};
    static const struct mr_setting chw[] = {{"layout", "CHW"}};
    static const int64_t one[] = {1};
    struct plan *p = plan_make(nodes, 3);
    struct plan_type types[8] = {{0}};
    struct plan_op_desc d = {.op = MR_STR("image.decode")};

    types[tensor_of(p, "IN")] = (struct plan_type){MR_DTYPE_BYTES, 1, one};
    assert_int_equal(plan_op_open(p, 0, ops, &d, types, NULL), MR_OK);
    d = (struct plan_op_desc){
        .op = MR_STR("image.resize"), .parameters = size, .parameter_count = 2};
    assert_int_equal(plan_op_open(p, 1, ops, &d, types, NULL), MR_OK);
    d = (struct plan_op_desc){
        .op = MR_STR("image.normalize"), .parameters = chw, .parameter_count = 1};
    assert_int_equal(plan_op_open(p, 2, ops, &d, types, NULL), MR_OK);
    const struct plan_type *t = &types[tensor_of(p, "OUT")];
    assert_true(t->dtype == MR_DTYPE_FP32 && t->rank == 3);
    assert_true(t->dims[0] == 3 && t->dims[1] == 4 && t->dims[2] == 8);
    plan_free(&p);
}

static void refused(void **state)
{
    (void)state;
    static const struct node_text nodes[] = {{"cut", {"x=IN"}, {"y=OUT"}}};
    static const int64_t one[] = {1};
    static char *const reads[] = {(char *)(uintptr_t) "z"};
    static const struct {
        const char *op;
        size_t read_write_count;
        int dtype;
        const char *words;
    } rows[] = {
        {"image.crop", 0, MR_DTYPE_FP32,
         "workflow 'flow', node 'cut': there is no op 'image.crop'"},
        {"scale", 0, MR_DTYPE_FP32,
         "workflow 'flow', node 'cut': op 'scale': output_map has no 'x'"},
        {"cast", 0, MR_DTYPE_INVALID,
         "node 'cut': the type of tensor 'IN', which it reads, is not known"},
        {"concat", 1, MR_DTYPE_FP32,
         "node 'cut': read_write of 'z', which input_map does not have"},
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct plan *p = plan_make(nodes, 1);
        struct plan_type types[8] = {{0}};
        struct plan_op_desc d = {.op = mr_str_c(rows[i].op),
                                 .read_write = reads,
                                 .read_write_count = rows[i].read_write_count};
        struct mr_err err = {0};
        types[tensor_of(p, "IN")] = (struct plan_type){rows[i].dtype, 1, one};
        assert_true(plan_op_open(p, 0, ops, &d, types, &err) < 0);
        if (!strstr(err.msg, rows[i].words)) {
            fail_msg("'%s', expected '%s'", err.msg, rows[i].words);
        }
        plan_free(&p);
    }
}

static void in_place(void **state)
{
    (void)state;
    static const struct {
        struct node_text nodes[4];
        uint32_t node;
        const char *words; /* NULL: it may */
    } rows[] = {
        {{{"a", {"x=IN"}, {"x=T"}}, {"b", {"x=T"}, {"x=OUT"}}}, 1, NULL},
        /* a reader that ends before */
        {{{"a", {"x=IN"}, {"x=T"}}, {"c", {"x=T"}, {"x=U"}}, {"b", {"x=T", "y=U"}, {"x=OUT"}}},
         2,
         NULL},
        /* the same, seen from that reader: the other one comes after it */
        {{{"a", {"x=IN"}, {"x=T"}}, {"c", {"x=T"}, {"x=U"}}, {"b", {"x=T", "y=U"}, {"x=OUT"}}},
         1,
         "node 'c': read_write of tensor 'T', which node 'b' reads, too, and need not have ended "
         "before"},
        /* a reader at the same time */
        {{{"a", {"x=IN"}, {"x=T"}}, {"b", {"x=T"}, {"x=OUT"}}, {"c", {"x=T"}, {"x=U"}}},
         1,
         "workflow 'flow', node 'b': read_write of tensor 'T', which node 'c' reads, too"},
        {{{"a", {"x=IN"}, {"x=T"}}, {"b", {"x=T", "y=T"}, {"x=OUT"}}},
         1,
         "node 'b': read_write of tensor 'T', which it reads twice"},
        {{{"a", {"x=IN"}, {"x=OUT"}}, {"b", {"x=OUT"}, {"x=U"}}},
         1,
         "node 'b': read_write of tensor 'OUT', which is an output of the workflow"},
        /* far apart */
        {{{"a", {"x=IN"}, {"x=T"}},
          {"c", {"x=T"}, {"x=U"}},
          {"d", {"x=U"}, {"x=V"}},
          {"b", {"x=T", "y=V"}, {"x=OUT"}}},
         3,
         NULL},
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct mr_err err = {0};
        uint32_t count = 0;
        while (count < 4 && rows[i].nodes[count].name) {
            count++;
        }
        struct plan *p = plan_make(rows[i].nodes, count);
        int rc = plan_op_may_write(p, rows[i].node, 0, &err);
        if ((rc == MR_OK) != !rows[i].words || (rows[i].words && !strstr(err.msg, rows[i].words))) {
            fail_msg("row %zu: %d '%s'", i, rc, err.msg);
        }
        plan_free(&p);
    }
}

/* What the client sent is not changed, whatever the configuration says. */
static void inputs_of_the_client(void **state)
{
    (void)state;
    static const struct node_text nodes[] = {{"a", {"x=IN"}, {"x=T"}}, {"b", {"x=T"}, {"x=OUT"}}};
    static char *const reads[] = {(char *)(uintptr_t) "x"};
    static const int64_t four[] = {4};
    struct plan *p = plan_make(nodes, 2);
    struct plan_type types[8] = {{0}};
    struct plan_op_desc d = {.op = MR_STR("scale"), .read_write = reads, .read_write_count = 1};

    types[tensor_of(p, "IN")] = (struct plan_type){MR_DTYPE_FP32, 1, four};
    assert_int_equal(plan_op_open(p, 0, ops, &d, types, NULL), MR_OK);
    assert_int_equal(plan_op_open(p, 1, ops, &d, types, NULL), MR_OK);
    assert_int_equal(p->nodes[0].may_write[0], 0);
    assert_int_equal(p->nodes[1].may_write[0], 1);
    plan_free(&p);
}

static int setup(void **state)
{
    (void)state;
    return mr_ops_open(NULL, 0, &ops, NULL);
}

static int teardown(void **state)
{
    (void)state;
    mr_ops_close(&ops);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(types_flow),
        cmocka_unit_test(refused),
        cmocka_unit_test(in_place),
        cmocka_unit_test(inputs_of_the_client),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
