/* Messages and inferences: the content of a request arrives, and its bytes stay in their place. No backend is needed. */
#include "engine/wire.h"
#include "sched/harness.h"

static const int64_t dims_any[] = {-1};
static const int64_t dims_two[] = {-1, -1};
static int32_t numbers[16];

struct fixture {
    struct harness h;
    struct mr_arena arena;
    struct mr_err err;
    struct mr_oip_tensor body;
    struct mr_oip_request q;
};

static int setup(void **state)
{
    struct fixture *f = mr_alloc_aligned(sizeof *f);

    memset(f, 0, sizeof *f);
    harness_init(&f->h);
    harness_io(&f->h.inputs[0], "X", MR_DTYPE_INT32, dims_any, 1, 0);
    mr_arena_init(&f->arena, 1024, 1u << 20);
    f->q = (struct mr_oip_request){.inputs = &f->body, .input_count = 1, .raw_binary = true};
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;

    mr_arena_fini(&f->arena);
    mr_free(f->h.pins);
    mr_free(f);
    return 0;
}

static int complete(struct fixture *f, uint64_t bytes)
{
    f->body =
        (struct mr_oip_tensor){.name = MR_STR(""), .tensor = {.data = numbers, .bytes = bytes}};
    return mr_wire_complete_raw(&f->q, &f->h.version, &f->arena, &f->err);
}

static int bind(struct fixture *f)
{
    struct mr_infer r = {.version = &f->h.version, .arena = &f->arena};
    struct mr_infer_args args;

    assert_int_equal(mr_wire_args(&f->q, &f->arena, &args, &f->err), MR_OK);
    return mr_infer_validate(&r, &args, &f->err);
}

static void raw_body(void **state)
{
    struct fixture *f = *state;

    assert_int_equal(complete(f, 12), MR_OK);
    assert_true(mr_str_eq_c(f->body.name, "X"));
    assert_int_equal(f->body.tensor.dtype, MR_DTYPE_INT32);
    assert_int_equal(f->body.tensor.rank, 1);
    assert_int_equal(f->body.tensor.shape[0], 3);
    assert_ptr_equal(f->body.tensor.data, numbers);
    assert_int_equal(bind(f), MR_OK);

    assert_int_equal(complete(f, 13), MR_OK);
    assert_int_equal(bind(f), MR_E_INVALID);
    assert_non_null(strstr(f->err.msg, "input byte size mismatch"));
}

static void raw_body_of_a_batch(void **state)
{
    struct fixture *f = *state;

    f->h.version.max_batch_size = 4;
    assert_int_equal(complete(f, 8), MR_OK);
    assert_int_equal(f->body.tensor.rank, 2);
    assert_int_equal(f->body.tensor.shape[0], 1);
    assert_int_equal(f->body.tensor.shape[1], 2);
    assert_int_equal(bind(f), MR_OK);
}

/* The body is the one element: it gets its length in front. */
static void raw_body_of_bytes(void **state)
{
    struct fixture *f = *state;

    harness_io(&f->h.inputs[0], "X", MR_DTYPE_BYTES, dims_any, 1, 0);
    numbers[0] = 77;
    assert_int_equal(complete(f, 4), MR_OK);
    assert_int_equal(f->body.tensor.bytes, 8);
    assert_int_equal(((int32_t *)f->body.tensor.data)[0], 4);
    assert_int_equal(((int32_t *)f->body.tensor.data)[1], 77);
    assert_int_equal(bind(f), MR_OK);
}

static void raw_body_refused(void **state)
{
    struct fixture *f = *state;

    harness_io(&f->h.inputs[0], "X", MR_DTYPE_INT32, dims_two, 2, 0);
    assert_int_equal(complete(f, 12), MR_E_INVALID);
    assert_non_null(strstr(f->err.msg, "more than one variable-sized dimension"));
    f->h.version.input_count = f->h.version.required_input_count = 2;
    assert_int_equal(complete(f, 12), MR_E_INVALID);
    assert_non_null(strstr(f->err.msg, "Raw request must only have 1 input"));
}

static void arguments(void **state)
{
    struct fixture *f = *state;
    const struct mr_oip_param params[] = {{.key = MR_STR("a"), .kind = MR_OIP_BOOL, .b = true},
                                          {.key = MR_STR("b"), .kind = MR_OIP_INT, .i = -7}};
    struct mr_oip_requested_output wanted[] = {{.name = MR_STR("Y")}};
    struct mr_infer_args args;

    f->body = (struct mr_oip_tensor){.name = MR_STR("X"), .tensor = {.data = numbers}};
    f->q = (struct mr_oip_request){.model_name = MR_STR("m"),
                                   .model_version = MR_STR("3"),
                                   .id = MR_STR("r-1"),
                                   .inputs = &f->body,
                                   .input_count = 1,
                                   .outputs = wanted,
                                   .output_count = 1,
                                   .params = params,
                                   .param_count = 2,
                                   .priority = 2,
                                   .timeout_us = 1000,
                                   .has_sequence_id = true,
                                   .sequence_id = 42,
                                   .sequence_end = true};
    assert_int_equal(mr_wire_args(&f->q, &f->arena, &args, &f->err), MR_OK);
    assert_true(mr_str_eq_c(args.model, "m"));
    assert_true(mr_str_eq_c(args.version, "3"));
    assert_true(mr_str_eq_c(args.id, "r-1"));
    assert_ptr_equal(mr_infer_input_tensor(&args, 0), &f->body.tensor);
    assert_true(mr_str_eq_c(mr_infer_input_name(&args, 0), "X"));
    assert_null(args.input_blocks);
    assert_ptr_equal(args.output_names, &wanted[0].name);
    assert_int_equal(args.parameter_count, 2);
    assert_string_equal(args.parameters[0].value, "true");
    assert_string_equal(args.parameters[1].value, "-7");
    assert_int_equal(args.priority, 2);
    assert_int_equal(args.timeout_us, 1000);
    assert_true(args.has_sequence);
    assert_int_equal(args.correlation_id, 42);
    assert_int_equal(args.sequence_flags, MR_SEQUENCE_END);
}

/* What is written can be read, up to the limit. */
static void records(void **state)
{
    struct fixture *f = *state;
    int64_t shape[] = {16};
    struct mr_block *block = NULL;
    struct mr_infer_args args, back;
    uint64_t bytes = 0;

    f->body = (struct mr_oip_tensor){.name = MR_STR("X"),
                                     .tensor = {.dtype = MR_DTYPE_INT32,
                                                .rank = 1,
                                                .shape = shape,
                                                .data = numbers,
                                                .bytes = sizeof numbers}};
    f->q.raw_binary = false;
    assert_int_equal(mr_wire_args(&f->q, &f->arena, &args, &f->err), MR_OK);
    assert_int_equal(mr_wire_records.write(&args, 16, &block, &bytes, &f->err), MR_E_TOO_LARGE);
    assert_null(block);
    assert_int_equal(mr_wire_records.write(&args, 4096, &block, &bytes, &f->err), MR_OK);
    assert_int_equal(
        mr_wire_records.read((mr_bytes){block->data, bytes}, &f->arena, &back, &f->err), MR_OK);
    assert_int_equal(back.input_count, 1);
    assert_memory_equal(mr_infer_input_tensor(&back, 0)->data, numbers, sizeof numbers);
    mr_block_unref(&block);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(raw_body, setup, teardown),
        cmocka_unit_test_setup_teardown(raw_body_of_a_batch, setup, teardown),
        cmocka_unit_test_setup_teardown(raw_body_of_bytes, setup, teardown),
        cmocka_unit_test_setup_teardown(raw_body_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(arguments, setup, teardown),
        cmocka_unit_test_setup_teardown(records, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
