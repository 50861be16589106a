/* The ONNX Runtime backend on models of every kind. */
#include "harness.h"

#include <stdio.h>

static void load_refused(const char *model, const struct mr_setting *settings, size_t count,
                         int status, const char *says)
{
    struct loaded l;
    struct mr_err err;
    int rc = model_try(model, settings, count, NULL, &l, &err);
    if (rc != status || !strstr(err.msg, says)) {
        fail_msg("%s: expected %d '%s', got %d '%s'", model, status, says, rc, err.msg);
    }
}

/* ---- the example model on every path ---- */

static void simple_run(struct loaded *l, int64_t rows, int64_t row_count)
{
    int32_t a[64][16];
    int32_t b[64][16];
    int32_t sum[64][16];
    int32_t difference[64][16];
    const uint64_t bytes = (uint64_t)rows * 64;
    struct call c;
    for (int i = 0; i < 64 * 16; i++) {
        const int row = i / 16;
        const int column = i % 16;
        a[row][column] = i * 3;
        b[row][column] = 1000 - i;
        sum[row][column] = 1000 + i * 2;
        difference[row][column] = i * 4 - 1000;
    }
    call_init(&c, l);
    c.x.exec.row_count = row_count;
    call_input(&c, 0, MR_DTYPE_INT32, a, bytes, 2, DIMS(rows, 16));
    call_input(&c, 1, MR_DTYPE_INT32, b, bytes, 2, DIMS(rows, 16));
    for (uint8_t wanted = 3; wanted <= 3; wanted--) { /* both, the second, the first, none */
        c.wanted[0] = wanted & 1;
        c.wanted[1] = wanted >> 1;
        call_must(&c, l);
        if (c.wanted[0]) {
            assert_output(&c, 0, MR_DTYPE_INT32, sum, bytes, 2, DIMS(rows, 16));
        }
        if (c.wanted[1]) {
            assert_output(&c, 1, MR_DTYPE_INT32, difference, bytes, 2, DIMS(rows, 16));
        }
    }
    call_fini(&c);
}

static void simple(void **state)
{
    struct loaded l = model_load("simple", NULL);
    (void)state;
    assert_int_equal(l.signature->batchable, 1);
    assert_int_equal(l.signature->input_count, 2);
    assert_string_equal(l.signature->inputs[1].name, "INPUT1");
    assert_true(l.model->ops->bytes(l.model) > 200);
    for (int64_t rows = 0; rows <= 12; rows++) {
        simple_run(&l, rows, rows);
        simple_run(&l, rows, 0);
    }
    simple_run(&l, 64, 64);
    model_drop(&l);
    l = model_load("simple_fixed", NULL);
    assert_int_equal(l.signature->batchable, 0);
    simple_run(&l, 1, 0);
    simple_run(&l, 1, 0);
    model_drop(&l);
    l = model_load("folder", NULL);
    simple_run(&l, 2, 2);
    model_drop(&l);
}

static void wrong_inputs(void **state)
{
    struct loaded l = model_load("simple", NULL);
    static const int32_t v[64];
    struct call c;

    (void)state;
    call_init(&c, &l);
    for (int warm = 0; warm < 3; warm++) { /* before and after outputs are bound */
        call_input(&c, 0, MR_DTYPE_INT32, v, 64, 2, DIMS(1, 16));
        call_must_fail(&c, &l, MR_E_INVALID, "INPUT1");
        call_input(&c, 1, MR_DTYPE_INT32, v, 60, 2, DIMS(1, 15));
        call_must_fail(&c, &l, MR_E_INVALID, "INPUT1");
        call_input(&c, 1, MR_DTYPE_INT32, v, 64, 1, DIMS(16));
        call_must_fail(&c, &l, MR_E_INVALID, "INPUT1");
        call_input(&c, 1, MR_DTYPE_FP32, v, 64, 2, DIMS(1, 16));
        call_must_fail(&c, &l, MR_E_INVALID, "INPUT1");
        call_input(&c, 1, MR_DTYPE_INT32, v, 32, 2, DIMS(1, 16)); /* lying length */
        call_must_fail(&c, &l, MR_E_INVALID, "INPUT1");
        c.in[1].dtype = MR_DTYPE_INVALID;
        simple_run(&l, 1, 1);
    }
    call_fini(&c);
    model_drop(&l);
}

/* ---- strings, maps, scalars, shapes ---- */

static void simple_string(void **state)
{
    struct loaded l = model_load("simple_string", NULL);
    uint8_t in[16 * 8];
    uint8_t out[16 * 8];
    size_t n = 0;
    struct call c;

    (void)state;
    for (int i = 0; i < 16; i++) { /* "10" + "10" = "20" */
        memcpy(in + n,
               "\2\0\0\0"
               "10",
               6);
        memcpy(out + n,
               "\2\0\0\0"
               "20",
               6);
        n += 6;
    }
    call_init(&c, &l);
    call_input(&c, 0, MR_DTYPE_BYTES, in, n, 2, DIMS(1, 16));
    call_input(&c, 1, MR_DTYPE_BYTES, in, n, 2, DIMS(1, 16));
    c.x.exec.row_count = 1;
    call_must(&c, &l);
    assert_output(&c, 0, MR_DTYPE_BYTES, out, n, 2, DIMS(1, 16));
    assert_int_equal(c.out[1].tensor.bytes, 16 * 5);
    memcpy(in + 4, "xx", 2);
    assert_true(call_run(&c, &l) < 0);
    assert_no_outputs(&c);
    call_fini(&c);
    model_drop(&l);
}

static void zipmap(void **state)
{
    struct loaded l = model_load("zipmap", NULL);
    const float x[] = {3, 0, 0, 0, 3, 0};
    struct call c;

    (void)state;
    assert_int_equal(l.signature->outputs[1].dtype, MR_DTYPE_FP32);
    assert_int_equal(l.signature->outputs[1].rank, 2);
    assert_int_equal(l.signature->batchable, 1);
    call_init(&c, &l);
    for (int64_t rows = 2; rows >= 1; rows--) {
        c.x.exec.row_count = rows;
        call_input(&c, 0, MR_DTYPE_FP32, x, (uint64_t)rows * 12, 2, DIMS(rows, 3));
        call_must(&c, &l);
        const float *p = c.out[1].tensor.data;
        const int64_t *label = c.out[0].tensor.data;
        assert_int_equal(c.out[1].tensor.shape[0], rows);
        assert_int_equal(c.out[1].tensor.shape[1], 2);
        assert_int_equal(label[0], 3);
        assert_true(p[0] > 0.9f && p[1] < 0.1f);
        assert_true(rows == 1 || (label[1] == 7 && p[2] < 0.1f && p[3] > 0.9f));
    }
    call_fini(&c);
    model_drop(&l);
}

static void scalar(void **state)
{
    struct loaded l = model_load("scalar", NULL);
    const float x[] = {1, 2, 3};
    const float sum = 6;
    struct call c;

    (void)state;
    assert_int_equal(l.signature->batchable, l.signature->outputs[0].rank == 0 ? 0 : -1);
    call_init(&c, &l);
    call_input(&c, 0, MR_DTYPE_FP32, x, 12, 1, DIMS(3));
    for (int i = 0; i < 3; i++) {
        call_must(&c, &l);
        assert_output(&c, 0, MR_DTYPE_FP32, &sum, 4, 0, NULL);
    }
    call_fini(&c);
    model_drop(&l);
}

static void dynamic(void **state)
{
    struct loaded l = model_load("dynamic", NULL);
    struct call c;

    (void)state;
    call_init(&c, &l);
    for (int64_t rows = 0; rows < 300; rows += 13) {
        const int64_t columns = 20;
        uint64_t bytes;
        uint8_t *data = sample(MR_DTYPE_FP32, (uint64_t)(rows * columns), &bytes);
        call_input(&c, 0, MR_DTYPE_FP32, data, bytes, 2, DIMS(rows, columns));
        call_must(&c, &l);
        assert_int_equal(c.out[0].tensor.shape[0], columns);
        assert_int_equal(c.out[0].tensor.shape[1], rows);
        assert_int_equal(c.out[0].tensor.bytes, bytes);
        if (rows > 0) {
            const uint32_t *t = c.out[0].tensor.data;
            assert_int_equal(t[rows - 1], ((const uint32_t *)(void *)data)[(rows - 1) * columns]);
        }
        assert_output(&c, 1, MR_DTYPE_INT64, DIMS(rows, columns), 16, 1, DIMS(2));
        mr_free(data);
    }
    call_fini(&c);
    model_drop(&l);
}

static void optional_input(void **state)
{
    struct loaded l = model_load("optional", NULL);
    const float x[] = {1, 2, 3, 4};
    const float scale = 10;
    struct call c;

    (void)state;
    assert_int_equal(l.signature->input_count, 2);
    assert_int_equal(l.signature->inputs[0].flags, 0);
    assert_int_equal(l.signature->inputs[1].flags, MR_IO_OPTIONAL);
    call_init(&c, &l);
    for (int i = 0; i < 4; i++) {
        c.in[1].dtype = MR_DTYPE_INVALID;
        if (i % 2 == 1) {
            call_input(&c, 1, MR_DTYPE_FP32, &scale, 4, 1, DIMS(1));
        }
        call_input(&c, 0, MR_DTYPE_FP32, x, 16, 1, DIMS(4));
        call_must(&c, &l);
        const float *y = c.out[0].tensor.data;
        assert_true(y[3] == (i % 2 == 1 ? 40.0f : 8.0f));
    }
    call_fini(&c);
    model_drop(&l);
}

/* An output that is an input must not point into the caller's memory, and is that of this execution. */
static void passthrough(void **state)
{
    struct loaded l = model_load("passthrough", NULL);
    uint64_t bytes;
    uint8_t *data = sample(MR_DTYPE_FP32, 5000, &bytes);
    struct call c;

    (void)state;
    call_init(&c, &l);
    for (int i = 0; i < 3; i++) {
        ((float *)(void *)data)[0] = (float)i;
        call_input(&c, 0, MR_DTYPE_FP32, data, bytes, 1, DIMS(5000));
        call_must(&c, &l);
        for (uint32_t k = 0; k < 2; k++) {
            const uint8_t *out = c.out[k].tensor.data;
            assert_true(out + bytes <= data || out >= data + bytes);
            assert_output(&c, k, MR_DTYPE_FP32, data, bytes, 1, DIMS(5000));
        }
        assert_output(&c, 2, MR_DTYPE_INT64, DIMS(1, 2, 3), 24, 1, DIMS(3));
    }
    call_fini(&c);
    mr_free(data);
    model_drop(&l);
}

/* A model whose output shape is not what it declares is answered all the same, with more rows than are staged, too. */
static void lying(void **state)
{
    static const int32_t full[] = {1, 1, 1, 1, 1, 1, 1, 1, 1};
    static const int32_t sparse[] = {0, 0, 5, 0, 0, 0, 0, 0, 0};

    (void)state;
    for (int rows = 3; rows <= 9; rows += 6) {
        const uint64_t bytes = (uint64_t)rows * 4;
        struct loaded l = model_load("lying", NULL);
        struct call c;
        call_init(&c, &l);
        for (int i = 0; i < 6; i++) {
            call_input(&c, 0, MR_DTYPE_INT32, i < 3 ? full : sparse, bytes, 1, DIMS(rows));
            call_must(&c, &l);
            if (i < 3) {
                assert_output(&c, 0, MR_DTYPE_INT64, DIMS(0, 1, 2, 3, 4, 5, 6, 7, 8), bytes * 2, 1,
                              DIMS(rows));
            } else {
                assert_output(&c, 0, MR_DTYPE_INT64, DIMS(2), 8, 1, DIMS(1));
            }
        }
        call_fini(&c);
        model_drop(&l);
    }
}

static void external(void **state)
{
    struct loaded l = model_load("external", NULL);
    float x[32] = {0};
    struct call c;

    (void)state;
    call_init(&c, &l);
    call_input(&c, 0, MR_DTYPE_FP32, x, sizeof x, 2, DIMS(1, 32));
    call_must(&c, &l);
    assert_true(((const float *)c.out[0].tensor.data)[31] == 31.0f);
    call_fini(&c);
    model_drop(&l);
}

/* A small file with much to compute is opened again with the thread pool. */
static void slow(void **state)
{
    struct loaded l = model_load("slow", NULL);
    const float x = 2;
    const float y = 4096;
    struct call c;

    (void)state;
    call_init(&c, &l);
    call_input(&c, 0, MR_DTYPE_FP32, &x, 4, 1, DIMS(1));
    call_must(&c, &l);
    assert_output(&c, 0, MR_DTYPE_FP32, &y, 4, 1, DIMS(1));
    assert_true(c.x.exec.infer_end_ns > c.x.exec.infer_start_ns && c.x.exec.infer_start_ns > 0);
    call_fini(&c);
    model_drop(&l);
}

/* The models of the demonstration open and can be batched. */
static void demo_models(void **state)
{
    static const struct {
        const char *name;
        uint32_t inputs;
        uint32_t outputs;
    } rows[] = {{"digits", 1, 2}, {"wine", 1, 2}, {"diabetes", 10, 1}};
    char path[64];

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        snprintf(path, sizeof path, "../../../examples/models/%s", rows[i].name);
        struct loaded l = model_load(path, NULL);
        assert_int_equal(l.signature->batchable, 1);
        assert_int_equal(l.signature->input_count, rows[i].inputs);
        assert_int_equal(l.signature->output_count, rows[i].outputs);
        model_drop(&l);
    }
}

/* ---- what is refused ---- */

static void bad_models(void **state)
{
    (void)state;
    load_refused("absent", NULL, 0, MR_E_NOT_FOUND, "cannot open the model file");
    load_refused("broken", NULL, 0, MR_E_INVALID, "rotobuf");
    load_refused("truncated", NULL, 0, MR_E_INVALID, "rotobuf");
    load_refused("sequence", NULL, 0, MR_E_UNSUPPORTED, "zipmap=False");
    load_refused("complex64", NULL, 0, MR_E_INVALID, "complex64");
}

static void model_settings(void **state)
{
    static const struct mr_setting good[] = {
        {"intra_op_thread_count", "2"},    {"inter_op_thread_count", "2"},
        {"execution_mode", "1"},           {"enable_mem_arena", "0"},
        {"enable_mem_pattern", "0"},       {"memory.enable_memory_arena_shrinkage", "cpu:0"},
        {"optimization.graph.level", "1"}, {"session.disable_prepacking", "1"},
        {"enable_mem_arena", "1"},         {"optimization.graph.level", "-1"},
        {"my_own_parameter", "whatever"},  {"intra_op_thread_count", "1"},
    };
    static const struct mr_setting bad[] = {
        {"intra_op_thread_count", "many"}, {"inter_op_thread_count", "-1"},
        {"execution_mode", "2"},           {"enable_mem_arena", "x"},
        {"enable_mem_pattern", ""},        {"optimization.graph.level", "7"},
    };
    struct loaded l;
    struct mr_err err;
    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        if (model_try("simple", &good[i], 1, NULL, &l, &err) < 0) {
            fail_msg("%s: %s", good[i].key, err.msg);
        }
        simple_run(&l, 3, 3);
        model_drop(&l);
    }
    const struct mr_setting contrary[] = {{"enable_mem_arena", "0"},
                                          {"memory.enable_memory_arena_shrinkage", "cpu:0"}};
    load_refused("simple", contrary, 2, MR_E_INVALID, "nothing to shrink");
    assert_int_equal(model_try("simple", good, 3, NULL, &l, &err), MR_OK);
    simple_run(&l, 3, 3);
    model_drop(&l);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        load_refused("simple", &bad[i], 1, MR_E_INVALID, bad[i].key);
    }
}

/* Closes the backend, opens it with other settings, and puts things back. */
static void backend_settings(void **state)
{
    static const struct mr_setting rows[][2] = {
        {{"intra_op_thread_count", "3"}, {"allow_spinning", "1"}},
        {{"enable-global-threadpool", "0"}, {"default-max-batch-size", "4"}},
        {{"inter_op_thread_count", "2"}, {"intra_op_thread_count", "0"}},
    };
    const struct mr_setting mode = {"execution_mode", "1"};
    struct mr_err err = {0};
    struct loaded l;
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        mr_plugin_close(&plugin);
        if (plugin_open(subject, rows[i], 2, &plugin, &err) < 0) {
            fail_msg("%s", err.msg);
        }
        assert_int_equal(model_try("simple", &mode, 1, NULL, &l, &err), MR_OK);
        simple_run(&l, 2, 2);
        model_drop(&l);
    }
    mr_plugin_close(&plugin);
    assert_int_equal(plugin_open(subject, NULL, 0, &plugin, &err), MR_OK);
}

const struct CMUnitTest onnxruntime_cases[] = {
    cmocka_unit_test(simple),
    cmocka_unit_test(wrong_inputs),
    cmocka_unit_test(simple_string),
    cmocka_unit_test(zipmap),
    cmocka_unit_test(scalar),
    cmocka_unit_test(dynamic),
    cmocka_unit_test(optional_input),
    cmocka_unit_test(passthrough),
    cmocka_unit_test(lying),
    cmocka_unit_test(external),
    cmocka_unit_test(slow),
    cmocka_unit_test(demo_models),
    cmocka_unit_test(bad_models),
    cmocka_unit_test(model_settings),
    cmocka_unit_test(backend_settings),
};
const size_t onnxruntime_case_count = sizeof onnxruntime_cases / sizeof *onnxruntime_cases;
