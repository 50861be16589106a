/* A node of an op for tests: created from settings and inputs, run over tensors. */
#ifndef MR_TEST_OP_TEST_H
#define MR_TEST_OP_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "op/op.h"
#include "tensor/tensor.h"

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))
#define CHECK_ROW(cond, row, ...)                                                                  \
    do {                                                                                           \
        if (!(cond)) {                                                                             \
            print_error("row %zu: ", (size_t)(row));                                               \
            print_error(__VA_ARGS__);                                                              \
            print_error("\n");                                                                     \
            fail_msg("%s", #cond);                                                                 \
        }                                                                                          \
    } while (0)

#define NODE_MAX 4

/* An input: what the workflow declares of it, and the tensor of a request. `shape` NULL: as declared. */
struct input {
    const char *name;
    int dtype;
    int rank;
    int64_t dims[5];
    const void *data;
    size_t bytes;
    const int64_t *shape;
};

struct node {
    struct mr_op *op;
    struct mr_arena arena;
    uint32_t inputs, outputs;
    struct mr_exec_output out[NODE_MAX];
};

/* `settings`: key, value, key, value, …, NULL. `inputs`: up to one without a name. `outputs`: names, NULL. */
struct node_case {
    const char *op;
    const char *settings[16];
    struct input inputs[NODE_MAX];
    const char *outputs[NODE_MAX];
};

static struct mr_ops *all_ops;

static inline int ops_setup(void **state)
{
    (void)state;
    return mr_ops_open(NULL, 0, &all_ops, NULL);
}

static inline int ops_teardown(void **state)
{
    (void)state;
    mr_ops_close(&all_ops);
    return 0;
}

static inline int node_open_in(struct node *n, const struct node_case *c, const char *dir,
                               struct mr_err *err)
{
    struct mr_setting settings[8];
    struct mr_op_io inputs[NODE_MAX] = {0}, outputs[NODE_MAX] = {0};
    struct mr_op_desc desc = {.parameters = settings,
                              .workflow = "flow",
                              .node = "node",
                              .inputs = inputs,
                              .outputs = outputs,
                              .model_dir = dir,
                              .version_dir = dir};

    memset(n, 0, sizeof *n);
    for (; c->settings[2 * desc.parameter_count]; desc.parameter_count++) {
        settings[desc.parameter_count] = (struct mr_setting){
            c->settings[2 * desc.parameter_count], c->settings[2 * desc.parameter_count + 1]};
    }
    for (; desc.input_count < NODE_MAX && c->inputs[desc.input_count].name; desc.input_count++) {
        const struct input *in = &c->inputs[desc.input_count];
        inputs[desc.input_count] = (struct mr_op_io){
            .name = in->name, .dims = in->dims, .dtype = in->dtype, .rank = in->rank};
    }
    for (; desc.output_count < NODE_MAX && c->outputs[desc.output_count]; desc.output_count++) {
        outputs[desc.output_count] =
            (struct mr_op_io){.name = c->outputs[desc.output_count], .rank = -1};
    }
    n->inputs = desc.input_count;
    n->outputs = desc.output_count;
    mr_arena_init(&n->arena, 0, 1 << 24);
    int rc = mr_op_create(all_ops, mr_str_c(c->op), &desc, &n->op, err);
    if (rc < 0) {
        mr_arena_fini(&n->arena);
    }
    return rc;
}

static inline int node_open(struct node *n, const struct node_case *c, struct mr_err *err)
{
    return node_open_in(n, c, NULL, err);
}

static inline void node_drop_outputs(struct node *n)
{
    for (uint32_t i = 0; i < n->outputs; i++) {
        mr_block_unref(&n->out[i].block);
        n->out[i] = (struct mr_exec_output){0};
    }
}

static inline void node_close(struct node *n)
{
    node_drop_outputs(n);
    mr_op_free(&n->op);
    mr_arena_fini(&n->arena);
}

static inline struct mr_tensor input_tensor(const struct input *in)
{
    return (struct mr_tensor){.dtype = in->dtype,
                              .rank = in->rank,
                              .shape = in->shape ? in->shape : in->dims,
                              .data = (void *)(uintptr_t)in->data,
                              .bytes = in->bytes};
}

static inline int node_run(struct node *n, const struct input *inputs, struct mr_err *err)
{
    struct mr_tensor tensors[NODE_MAX];
    static const uint8_t wanted[NODE_MAX] = {1, 1, 1, 1};

    for (uint32_t i = 0; i < n->inputs; i++) {
        tensors[i] = input_tensor(&inputs[i]);
    }
    struct mr_op_call call = {
        .inputs = tensors, .wanted = wanted, .outputs = n->out, .arena = &n->arena};
    node_drop_outputs(n);
    return mr_op_run(n->op, &call, err);
}

/* Opens and runs; fails the test if that fails. */
static inline void node_do(struct node *n, const struct node_case *c)
{
    struct mr_err err = {0};

    if (node_open(n, c, &err) < 0 || node_run(n, c->inputs, &err) < 0) {
        fail_msg("%s: %s", c->op, err.msg);
    }
}

/* Output `i` has the shape and bytes. */
static inline void expect_output(const struct node *n, uint32_t i, int dtype, int rank,
                                 const int64_t *shape, const void *data, size_t bytes)
{
    const struct mr_tensor *t = &n->out[i].tensor;
    char have[128], want[128];

    assert_true(n->out[i].is_set);
    assert_int_equal(t->dtype, dtype);
    assert_string_equal(mr_shape_text(t->shape, t->rank, have, sizeof have),
                        mr_shape_text(shape, rank, want, sizeof want));
    assert_int_equal(t->bytes, bytes);
    assert_memory_equal(t->data, data, bytes);
}

#define SHAPE(...) ((const int64_t[]){__VA_ARGS__})
#define RANK(...)  ((int)(sizeof(SHAPE(__VA_ARGS__)) / sizeof(int64_t)))
/* EXPECT(node, output, FP32, (2, 3), array) */
#define EXPECT(n, i, type, shape, array)                                                           \
    expect_output((n), (i), MR_DTYPE_##type, RANK shape, SHAPE shape, (array), sizeof(array))
#define EXPECT_TEXT(n, i, shape, text)                                                             \
    expect_output((n), (i), MR_DTYPE_BYTES, RANK shape, SHAPE shape, (text), sizeof(text) - 1)

/* A request that the op refuses: its words. */
static inline void expect_refused(const struct node_case *c, int status, const char *words)
{
    struct mr_err err = {0};
    struct node n;

    if (node_open(&n, c, &err) < 0) {
        fail_msg("%s: %s", c->op, err.msg);
    }
    int rc = node_run(&n, c->inputs, &err);
    if (rc != status || !strstr(err.msg, words)) {
        fail_msg("%s: %d '%s', expected %d '%s'", c->op, rc, err.msg, status, words);
    }
    assert_false(n.out[0].is_set);
    node_close(&n);
}

/* A node that is refused at load. */
static inline void expect_no_node(const struct node_case *c, const char *words)
{
    struct mr_err err = {0};
    struct node n;

    if (node_open(&n, c, &err) == MR_OK) {
        fail_msg("%s is created, expected '%s'", c->op, words);
    }
    if (!strstr(err.msg, words)) {
        fail_msg("%s: '%s', expected '%s'", c->op, err.msg, words);
    }
}

#endif
