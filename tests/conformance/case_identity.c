/* The identity backend: pairing, delay, invalid configs. */
#include "harness.h"

#include "base/clock.h"

static const int64_t dims[] = {-1};

static struct mr_io_desc io(const char *name, int dtype)
{
    return (struct mr_io_desc){.name = name, .dims = dims, .dtype = dtype, .rank = 1};
}

static void pairs_by_name(void **state)
{
    const struct mr_io_desc in[] = {io("INPUT0", MR_DTYPE_INT8), io("INPUT1", MR_DTYPE_INT16),
                                    io("x", MR_DTYPE_INT32)};
    const struct mr_io_desc out[] = {io("OUTPUT1", MR_DTYPE_INT16), io("x", MR_DTYPE_INT32),
                                     io("y", MR_DTYPE_INT32)};
    const struct mr_signature s = {.size = sizeof s,
                                   .input_count = 3,
                                   .output_count = 3,
                                   .inputs = in,
                                   .outputs = out,
                                   .batchable = -1};
    struct loaded l = model_load("identity_any", &s);
    const int8_t a = 1;
    const int16_t b = 2;
    const int32_t x = 3;
    struct call c;

    (void)state;
    call_init(&c, &l);
    call_input(&c, 0, MR_DTYPE_INT8, &a, 1, 1, DIMS(1));
    call_input(&c, 1, MR_DTYPE_INT16, &b, 2, 1, DIMS(1));
    call_input(&c, 2, MR_DTYPE_INT32, &x, 4, 1, DIMS(1));
    call_must(&c, &l);
    assert_output(&c, 0, MR_DTYPE_INT16, &b, 2, 1, DIMS(1));
    assert_output(&c, 1, MR_DTYPE_INT32, &x, 4, 1, DIMS(1));
    assert_output(&c, 2, MR_DTYPE_INT32, &x, 4, 1, DIMS(1)); /* by position */

    c.in[1].dtype = MR_DTYPE_INVALID;
    call_must_fail(&c, &l, MR_E_INVALID, "'INPUT1'");
    call_fini(&c);
    model_drop(&l);
}

static void bad_configs(void **state)
{
    const struct mr_io_desc in = io("A", MR_DTYPE_INT8);
    const struct mr_io_desc out[] = {io("B", MR_DTYPE_INT8), io("C", MR_DTYPE_INT8)};
    const struct mr_io_desc other = io("B", MR_DTYPE_INT16);
    struct mr_signature s = {.size = sizeof s,
                             .input_count = 1,
                             .output_count = 2,
                             .inputs = &in,
                             .outputs = out,
                             .batchable = -1};
    struct loaded l;
    struct mr_err err;

    (void)state;
    assert_int_equal(model_try("identity_any", NULL, 0, &s, &l, &err), MR_E_INVALID);
    assert_non_null(strstr(err.msg, "'C'"));
    s.output_count = 1;
    s.outputs = &other;
    assert_int_equal(model_try("identity_any", NULL, 0, &s, &l, &err), MR_E_INVALID);
    assert_non_null(strstr(err.msg, "data types"));
    s.outputs = &in;
    s.inputs = &out[0];
    s.batchable = 1;
    assert_int_equal(model_try("identity_any", NULL, 0, &s, &l, &err), MR_OK);
    model_drop(&l);
}

static void delay(void **state)
{
    const struct mr_setting ok = {"execute_delay_ms", "30"};
    const struct mr_setting bad = {"execute_delay_ms", "soon"};
    struct loaded l;
    struct mr_err err;
    struct call c;
    const float v = 1;

    (void)state;
    assert_int_equal(
        model_try("identity_any", &bad, 1, identity_signature(MR_DTYPE_FP32), &l, &err),
        MR_E_INVALID);
    assert_non_null(strstr(err.msg, "execute_delay_ms"));
    assert_int_equal(model_try("identity_any", &ok, 1, identity_signature(MR_DTYPE_FP32), &l, &err),
                     MR_OK);
    assert_true(l.signature->flags & MR_BACKEND_NO_INLINE);
    call_init(&c, &l);
    call_input(&c, 0, MR_DTYPE_FP32, &v, 4, 2, DIMS(1, 1));
    int64_t before = mr_now_ns();
    call_must(&c, &l);
    assert_true(mr_now_ns() - before >= 30 * MR_NS_PER_MS);
    call_fini(&c);
    model_drop(&l);
}

const struct CMUnitTest identity_cases[] = {
    cmocka_unit_test(pairs_by_name),
    cmocka_unit_test(bad_configs),
    cmocka_unit_test(delay),
};
const size_t identity_case_count = sizeof identity_cases / sizeof *identity_cases;
