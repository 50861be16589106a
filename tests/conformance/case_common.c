/* The cases that every backend has to pass. Each has a model that copies its input, of every type. */
#include "harness.h"

static void entry(void **state)
{
    struct mr_plugin *second = NULL;
    struct mr_err err = {0};

    (void)state;
    assert_string_equal(mr_plugin_name(plugin), subject);
    assert_true(strlen(mr_plugin_version(plugin)) > 0);
    assert_int_equal(mr_plugin_flags(plugin) & ~63u, 0);
    /* an unknown setting is refused by name, and nothing leaks */
    const struct mr_setting odd = {"no_such_setting", "1"};
    assert_int_equal(plugin_open(subject, &odd, 1, &second, &err), MR_E_INVALID);
    assert_non_null(strstr(err.msg, "no_such_setting"));
    assert_null(second);
}

static void model_life(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++) {
        struct loaded l = identity_load(MR_DTYPE_FP32);
        assert_int_equal(l.signature->input_count, 1);
        assert_int_equal(l.signature->output_count, 1);
        assert_string_equal(l.signature->inputs[0].name, "INPUT0");
        assert_string_equal(l.signature->outputs[0].name, "OUTPUT0");
        assert_int_equal(l.signature->inputs[0].dtype, MR_DTYPE_FP32);
        assert_int_equal(l.signature->inputs[0].rank, 2);
        assert_int_equal(l.signature->inputs[0].dims[0], -1);
        assert_string_equal(l.model->backend, mr_plugin_name(plugin));
        (void)l.model->ops->bytes(l.model);
        model_drop(&l);
    }
}

static void many_instances(void **state)
{
    struct loaded l = identity_load(MR_DTYPE_INT32);
    void *instances[20] = {0};
    struct mr_err err;
    struct call c;
    int32_t v;

    (void)state;
    for (uint32_t i = 0; i < 20; i++) {
        assert_int_equal(instance_open(l.model, i + 1, &instances[i], &err), MR_OK);
    }
    for (int32_t i = 19; i >= 0; i--) {
        struct loaded one = l;
        one.instance = instances[i];
        v = i;
        call_init(&c, &one);
        call_input(&c, 0, MR_DTYPE_INT32, &v, 4, 2, DIMS(1, 1));
        call_must(&c, &one);
        assert_output(&c, 0, MR_DTYPE_INT32, &v, 4, 2, DIMS(1, 1));
        call_fini(&c);
        mr_executor_instance_close(l.model, &instances[i]);
    }
    model_drop(&l);
}

static void dtypes(void **state)
{
    static const int64_t shapes[][2] = {{1, 1}, {1, 3}, {3, 1}, {2, 16}, {7, 300}, {1, 20000}};
    (void)state;
    for (int dtype = 1; dtype < MR_DTYPE_COUNT; dtype++) {
        struct loaded l = identity_load(dtype);
        for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
            uint64_t bytes;
            uint8_t *data = sample(dtype, (uint64_t)(shapes[s][0] * shapes[s][1]), &bytes);
            struct call c;
            call_init(&c, &l);
            call_input(&c, 0, dtype, data, bytes, 2, shapes[s]);
            for (int again = 0; again < 3; again++) {
                call_must(&c, &l);
                assert_output(&c, 0, dtype, data, bytes, 2, shapes[s]);
            }
            call_fini(&c);
            mr_free(data);
        }
        model_drop(&l);
    }
}

static void empty_tensors(void **state)
{
    static const int64_t shapes[][2] = {{0, 0}, {0, 5}, {5, 0}};
    (void)state;
    for (int dtype = 1; dtype < MR_DTYPE_COUNT; dtype++) {
        struct loaded l = identity_load(dtype);
        for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
            struct call c;
            call_init(&c, &l);
            call_input(&c, 0, dtype, NULL, 0, 2, shapes[s]);
            call_must(&c, &l);
            assert_output(&c, 0, dtype, NULL, 0, 2, shapes[s]);
            call_fini(&c);
        }
        model_drop(&l);
    }
}

static void batches(void **state)
{
    static const int64_t rows[] = {1, 2, 8, 9, 1, 64, 3, 2};
    struct loaded l = identity_load(MR_DTYPE_INT64);
    struct call c;

    (void)state;
    call_init(&c, &l);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        uint64_t bytes;
        uint8_t *data = sample(MR_DTYPE_INT64, (uint64_t)rows[i] * 16, &bytes);
        const int64_t shape[] = {rows[i], 16};
        c.x.exec.row_count = rows[i];
        call_input(&c, 0, MR_DTYPE_INT64, data, bytes, 2, shape);
        call_must(&c, &l);
        assert_output(&c, 0, MR_DTYPE_INT64, data, bytes, 2, shape);
        mr_free(data);
    }
    call_fini(&c);
    model_drop(&l);
}

static void strings(void **state)
{
    static const uint8_t odd[] = "\0\0\0\0\1\0\0\0\0\3\0\0\0\xff\xfe\xfd\2\0\0\0\0\0";
    struct loaded l = identity_load(MR_DTYPE_BYTES);
    const uint32_t big = 3000000;
    uint8_t *data = mr_alloc(big + 8);
    struct call c;

    (void)state;
    call_init(&c, &l);
    call_input(&c, 0, MR_DTYPE_BYTES, odd, sizeof odd - 1, 2, DIMS(2, 2));
    call_must(&c, &l);
    assert_output(&c, 0, MR_DTYPE_BYTES, odd, sizeof odd - 1, 2, DIMS(2, 2));

    memcpy(data, &big, 4);
    memset(data + 4, 'z', big);
    call_input(&c, 0, MR_DTYPE_BYTES, data, big + 8, 2, DIMS(1, 2));
    call_must(&c, &l);
    assert_output(&c, 0, MR_DTYPE_BYTES, data, big + 8, 2, DIMS(1, 2));
    call_fini(&c);
    mr_free(data);
    model_drop(&l);
}

static void broken_strings(void **state)
{
    static const struct {
        const char *data;
        uint64_t bytes;
    } rows[] = {
        {"\1\0\0\0", 4},
        {"\5\0\0\0abc", 7},
        {"\0\0\0\0\0", 5},
        {"\0\0\0\0\0\0\0", 7},
        {"\0\0\0\0\0\0\0\0z", 9},
        {"\xff\xff\xff\xff....", 8},
        {"\2\0\0\0ab\1\0\0\0", 10},
        {"\0\0\0\0\1\0\0\0ab", 10},
        {"", 0},
    };
    struct loaded l = identity_load(MR_DTYPE_BYTES);
    struct call c;

    (void)state;
    call_init(&c, &l);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        uint8_t *exact = mr_try_alloc(rows[i].bytes + !rows[i].bytes);
        memcpy(exact, rows[i].data, rows[i].bytes);
        call_input(&c, 0, MR_DTYPE_BYTES, exact, rows[i].bytes, 2, DIMS(1, 2));
        /* by the backend as a bad request, or by the host as a bad answer: never an answer */
        int rc = call_run(&c, &l);
        if (rc != MR_E_INVALID && rc != MR_E_INTERNAL) {
            fail_msg("row %zu: %d", i, rc);
        }
        assert_no_outputs(&c);
        mr_free(exact);
    }
    call_fini(&c);
    model_drop(&l);
}

static void missing_input(void **state)
{
    struct loaded l = identity_load(MR_DTYPE_FP32);
    struct call c;

    (void)state;
    call_init(&c, &l);
    call_must_fail(&c, &l, MR_E_INVALID, "");
    call_fini(&c);
    model_drop(&l);
}

static void unwanted_outputs(void **state)
{
    struct loaded l = identity_load(MR_DTYPE_FP32);
    const float v = 1;
    struct call c;

    (void)state;
    call_init(&c, &l);
    c.wanted[0] = 0;
    call_input(&c, 0, MR_DTYPE_FP32, &v, 4, 2, DIMS(1, 1));
    call_must(&c, &l);
    c.wanted[0] = 1;
    call_must(&c, &l);
    assert_output(&c, 0, MR_DTYPE_FP32, &v, 4, 2, DIMS(1, 1));
    call_fini(&c);
    model_drop(&l);
}

const struct CMUnitTest common_cases[] = {
    cmocka_unit_test(entry),          cmocka_unit_test(model_life),
    cmocka_unit_test(many_instances), cmocka_unit_test(dtypes),
    cmocka_unit_test(empty_tensors),  cmocka_unit_test(batches),
    cmocka_unit_test(strings),        cmocka_unit_test(broken_strings),
    cmocka_unit_test(missing_input),  cmocka_unit_test(unwanted_outputs),
};
const size_t common_case_count = sizeof common_cases / sizeof *common_cases;
