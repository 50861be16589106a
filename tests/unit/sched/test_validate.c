/* Requests against a model: every refusal with the words that clients look for. No backend is needed. */
#include "harness.h"

static const int64_t dims16[] = {16}, dims_any[] = {-1};
static int64_t shape_ok[] = {1, 16}, shape_long[] = {1, 17}, shape_rank[] = {16},
               shape_9[] = {9, 16}, shape_0[] = {0, 16}, shape_2[] = {2, 16};
static int32_t numbers[9 * 16];

/* Like Triton's `simple`: two INT32[16] inputs, max_batch_size 8. */
static void simple(struct harness *h)
{
    harness_init(h);
    harness_io(&h->inputs[0], "INPUT0", MR_DTYPE_INT32, dims16, 1, 0);
    harness_io(&h->inputs[1], "INPUT1", MR_DTYPE_INT32, dims16, 1, 1);
    harness_io(&h->outputs[0], "OUTPUT0", MR_DTYPE_INT32, dims16, 1, 0);
    h->version.model_name = MR_STR("simple");
    h->version.input_count = h->version.required_input_count = 2;
    h->version.max_batch_size = 8;
}

static struct harness_input tensor(const char *name, int dtype, int64_t *shape, int rank,
                                   uint64_t bytes)
{
    return (struct harness_input){
        .name = mr_str_c(name),
        .tensor = {.dtype = dtype, .rank = rank, .shape = shape, .data = numbers, .bytes = bytes}};
}

static int validate(struct harness *h, const struct mr_infer_args *q, struct mr_err *err)
{
    struct mr_arena arena;
    struct mr_infer r = {.version = &h->version, .reply_loop = &h->reply_loop};

    mr_arena_init(&arena, 4096, 1u << 20);
    r.arena = &arena;
    memset(err, 0, sizeof *err);
    int rc = mr_infer_validate(&r, q, err);
    mr_arena_fini(&arena);
    return rc;
}

static void expect(struct harness *h, struct harness_input *in, size_t n, const char *text)
{
    const struct mr_infer_args q = harness_args(in, n);
    struct mr_err err;
    int rc = validate(h, &q, &err);

    if (!text) {
        if (rc != MR_OK) {
            fail_msg("refused: %s", err.msg);
        }
        return;
    }
    assert_int_equal(rc, MR_E_INVALID);
    if (!strstr(err.msg, text)) {
        fail_msg("'%s' does not contain '%s'", err.msg, text);
    }
}

static void refusals(void **state)
{
    struct harness h;
    (void)state;

    simple(&h);
    struct harness_input good0 = tensor("INPUT0", MR_DTYPE_INT32, shape_ok, 2, 64);
    struct harness_input good1 = tensor("INPUT1", MR_DTYPE_INT32, shape_ok, 2, 64);
    expect(&h, (struct harness_input[]){good0, good1}, 2, NULL);
    expect(&h, (struct harness_input[]){good1, good0}, 2, NULL);
    expect(&h, (struct harness_input[]){good0}, 1,
           "expected 2 inputs but got 1 inputs for model 'simple'. Got input(s) ['INPUT0'], but "
           "missing required "
           "input(s) ['INPUT1']. Please provide all required input(s).");
    expect(&h, (struct harness_input[]){good0, good1, tensor("X", MR_DTYPE_INT32, shape_ok, 2, 64)},
           3, "expected 2 inputs but got 3 inputs for model 'simple'");
    expect(&h, (struct harness_input[]){good0, tensor("X", MR_DTYPE_INT32, shape_ok, 2, 64)}, 2,
           "unexpected inference input 'X' for model 'simple'");
    expect(&h, (struct harness_input[]){good0, tensor("INPUT1", MR_DTYPE_FP32, shape_ok, 2, 64)}, 2,
           "inference input 'INPUT1' data-type is 'FP32', but model 'simple' expects 'INT32'");
    expect(&h, (struct harness_input[]){good0, tensor("INPUT1", MR_DTYPE_INT32, shape_long, 2, 68)},
           2,
           "unexpected shape for input 'INPUT1' for model 'simple'. Expected [-1,16], got [1,17]. "
           "NOTE: Setting a "
           "non-zero max_batch_size");
    expect(&h, (struct harness_input[]){good0, tensor("INPUT1", MR_DTYPE_INT32, shape_rank, 1, 64)},
           2, "batch size does not match other inputs for 'simple'");
    expect(&h,
           (struct harness_input[]){tensor("INPUT0", MR_DTYPE_INT32, shape_9, 2, 576),
                                    tensor("INPUT1", MR_DTYPE_INT32, shape_9, 2, 576)},
           2, "inference request batch-size must be <= 8 for 'simple'");
    expect(&h, (struct harness_input[]){tensor("INPUT0", MR_DTYPE_INT32, shape_0, 2, 0), good1}, 2,
           "inference request batch-size must be >= 1");
    expect(&h, (struct harness_input[]){good0, tensor("INPUT1", MR_DTYPE_INT32, shape_2, 2, 128)},
           2, "input 'INPUT1' batch size does not match other inputs for 'simple'");
    expect(&h, (struct harness_input[]){good0, tensor("INPUT1", MR_DTYPE_INT32, shape_ok, 2, 60)},
           2,
           "input byte size mismatch for input 'INPUT1' for model 'simple'. Expected 64, got 60");
    mr_free(h.pins);
}

static void outputs(void **state)
{
    struct harness h;
    const mr_str wanted[] = {MR_STR("OUTPUT0"), MR_STR("NOPE")};
    struct mr_err err;
    (void)state;

    simple(&h);
    struct harness_input in[] = {tensor("INPUT0", MR_DTYPE_INT32, shape_ok, 2, 64),
                                 tensor("INPUT1", MR_DTYPE_INT32, shape_ok, 2, 64)};
    struct mr_infer_args q = harness_args(in, 2);
    q.output_names = wanted;
    q.output_stride = sizeof *wanted;
    q.output_count = 1;
    assert_int_equal(validate(&h, &q, &err), MR_OK);
    q.output_count = 2;
    assert_int_equal(validate(&h, &q, &err), MR_E_INVALID);
    assert_string_equal(err.msg, "unexpected inference output 'NOPE' for model 'simple'");
    mr_free(h.pins);
}

static void optional_inputs(void **state)
{
    struct harness h;
    (void)state;

    simple(&h);
    h.inputs[1].optional = true;
    h.version.required_input_count = 1;
    struct harness_input a = tensor("INPUT0", MR_DTYPE_INT32, shape_ok, 2, 64);
    struct harness_input b = tensor("INPUT1", MR_DTYPE_INT32, shape_ok, 2, 64);
    expect(&h, &a, 1, NULL);
    expect(&h, (struct harness_input[]){a, b}, 2, NULL);
    expect(&h, &b, 1, "missing required input(s) ['INPUT0']");
    expect(&h, NULL, 0,
           "expected number of inputs between 1 and 2 but got 0 inputs for model 'simple'");
    mr_free(h.pins);
}

static void release_set(void *ctx, void *data)
{
    (void)data;
    *(bool *)ctx = true;
}

/* Blocks of inputs are kept until the arena is reset, whatever the caller does with its references. */
static void blocks(void **state)
{
    struct harness h;
    struct mr_arena arena;
    struct mr_err err = {0};
    bool is_released[2] = {false, false};
    (void)state;

    simple(&h);
    struct {
        mr_str name;
        struct mr_block *block;
        struct mr_tensor tensor;
    } in[2];
    for (int i = 0; i < 2; i++) {
        const struct harness_input from =
            tensor(i == 0 ? "INPUT0" : "INPUT1", MR_DTYPE_INT32, shape_ok, 2, 64);
        in[i].name = from.name;
        in[i].tensor = from.tensor;
        in[i].block = mr_block_wrap(numbers, sizeof numbers, release_set, &is_released[i]);
        assert_non_null(in[i].block);
    }
    struct mr_infer r = {.version = &h.version, .reply_loop = &h.reply_loop, .arena = &arena};
    const struct mr_infer_args q = {.input_names = &in->name,
                                    .input_tensors = &in->tensor,
                                    .input_blocks = &in->block,
                                    .input_stride = sizeof *in,
                                    .input_count = 2};
    mr_arena_init(&arena, 4096, 1u << 20);
    assert_int_equal(mr_infer_validate(&r, &q, &err), MR_OK);
    for (int i = 0; i < 2; i++) {
        mr_block_unref(&in[i].block);
    }
    assert_false(is_released[0] || is_released[1]);
    assert_ptr_equal(r.inputs[1].data, numbers);
    mr_arena_reset(&arena);
    assert_true(is_released[0] && is_released[1]);
    mr_arena_fini(&arena);
    mr_free(h.pins);
}

static void bools_are_zero_or_one(void **state)
{
    static uint8_t bools[3] = {1, 0, 1};
    static int64_t shape[] = {3};
    struct harness h;
    (void)state;

    harness_init(&h);
    harness_io(&h.inputs[0], "X", MR_DTYPE_BOOL, dims_any, 1, 0);
    struct harness_input in = {
        .name = MR_STR("X"),
        .tensor = {.dtype = MR_DTYPE_BOOL, .rank = 1, .shape = shape, .data = bools, .bytes = 3}};
    expect(&h, &in, 1, NULL);
    bools[1] = 2;
    expect(&h, &in, 1, "BOOL element that is neither 0 nor 1");
    mr_free(h.pins);
}

/* No field of a request may take more memory than its arena has. */
static void small_arena(void **state)
{
    struct harness h;
    struct mr_arena arena;
    struct mr_err err = {0};
    (void)state;

    simple(&h);
    struct harness_input in[] = {tensor("INPUT0", MR_DTYPE_INT32, shape_ok, 2, 64),
                                 tensor("INPUT1", MR_DTYPE_INT32, shape_ok, 2, 64)};
    const struct mr_infer_args q = harness_args(in, 2);
    struct mr_infer r = {.version = &h.version, .reply_loop = &h.reply_loop};
    mr_arena_init(&arena, 16, 16);
    r.arena = &arena;
    assert_int_equal(mr_infer_validate(&r, &q, &err), MR_E_EXHAUSTED);
    mr_arena_fini(&arena);
    mr_free(h.pins);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(refusals),
        cmocka_unit_test(outputs),
        cmocka_unit_test(optional_inputs),
        cmocka_unit_test(blocks),
        cmocka_unit_test(bools_are_zero_or_one),
        cmocka_unit_test(small_arena),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
