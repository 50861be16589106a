/* Checks of signatures; the copy is independent. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>

#include "exec/exec.h"

static int64_t dims_ok[] = {-1, 16};
static int64_t dims_fixed[] = {2, 16};
static int64_t dims_negative[] = {-1, -2};

static struct mr_io_desc good(const char *name)
{
    return (struct mr_io_desc){.name = name, .dims = dims_ok, .dtype = MR_DTYPE_INT32, .rank = 2};
}

static int copy(const struct mr_signature *s, struct mr_signature **out, struct mr_err *err)
{
    *out = NULL;
    *err = (struct mr_err){0};
    return mr_signature_copy(out, s, MR_BACKEND_NO_INLINE, MR_E_INTERNAL, "who", err);
}

static void copies(void **state)
{
    char name[] = "IN";
    struct mr_io_desc in[] = {good(name), {.name = "S", .dtype = MR_DTYPE_BYTES, .rank = -1}};
    struct mr_io_desc out = {.name = "OUT", .dtype = MR_DTYPE_FP32, .rank = 0};
    const struct mr_signature s = {.size = sizeof s,
                                   .input_count = 2,
                                   .output_count = 1,
                                   .inputs = in,
                                   .outputs = &out,
                                   .flags = MR_BACKEND_DETERMINISTIC};
    struct mr_signature *c;
    struct mr_err err;

    (void)state;
    assert_int_equal(copy(&s, &c, &err), MR_OK);
    name[0] = 'X';
    in[0].dims = NULL;
    assert_string_equal(c->inputs[0].name, "IN");
    assert_int_equal(c->inputs[0].dims[0], -1);
    assert_int_equal(c->inputs[0].dims[1], 16);
    assert_int_equal(c->inputs[1].rank, -1);
    assert_string_equal(c->outputs[0].name, "OUT");
    assert_int_equal(c->flags, MR_BACKEND_DETERMINISTIC | MR_BACKEND_NO_INLINE);
    mr_free(c);
}

static void empty(void **state)
{
    const struct mr_signature s = {.size = sizeof s, .from_config = 1, .batchable = -1};
    struct mr_signature *c;
    struct mr_err err;

    (void)state;
    assert_int_equal(copy(&s, &c, &err), MR_OK);
    assert_int_equal(c->input_count, 0);
    mr_free(c);
    assert_int_equal(copy(NULL, &c, &err), MR_E_INTERNAL);
}

static void broken(void **state)
{
    static char long_name[2000];
    struct mr_io_desc ok = good("ok");
    struct mr_io_desc twins[] = {good("a"), good("b"), good("a")};
    const struct {
        struct mr_io_desc io;
        const char *says;
    } ios[] = {
        {{.name = NULL, .dtype = 1, .rank = 0}, "name is empty"},
        {{.name = "", .dtype = 1, .rank = 0}, "name is empty"},
        {{.name = long_name, .dtype = 1, .rank = 0}, "longer than"},
        {{.name = "\xff", .dtype = 1, .rank = 0}, "not UTF-8"},
        {{.name = "x", .dtype = 0, .rank = 0}, "data type (0)"},
        {{.name = "x", .dtype = 15, .rank = 0}, "data type (15)"},
        {{.name = "x", .dtype = -3, .rank = 0}, "data type (-3)"},
        {{.name = "x", .dtype = 1, .rank = -2}, "rank -2"},
        {{.name = "x", .dtype = 1, .rank = 33}, "rank 33"},
        {{.name = "x", .dtype = 1, .rank = 1}, "no dims"},
        {{.name = "x", .dtype = 1, .rank = 2, .dims = dims_negative}, "dimension 1 is -2"},
    };
    const struct {
        struct mr_signature s;
        const char *says;
    } rows[] = {
        {{.size = 8}, "8 bytes"},
        {{.size = sizeof(struct mr_signature), .from_config = 2}, "from_config"},
        {{.size = sizeof(struct mr_signature), .from_config = 1, .input_count = 1, .inputs = &ok},
         "from_config"},
        {{.size = sizeof(struct mr_signature), .batchable = 2}, "batchable is 2"},
        {{.size = sizeof(struct mr_signature), .input_count = 1}, "1 inputs"},
        {{.size = sizeof(struct mr_signature), .output_count = 1u << 31, .outputs = &ok},
         "outputs"},
        {{.size = sizeof(struct mr_signature), .input_count = 3, .inputs = twins}, "two inputs"},
        {{.size = sizeof(struct mr_signature), .output_count = 3, .outputs = twins}, "two outputs"},
    };
    struct mr_signature *c;
    struct mr_err err;

    (void)state;
    memset(long_name, 'n', sizeof long_name - 1);
    for (size_t i = 0; i < sizeof ios / sizeof *ios; i++) {
        const struct mr_signature s = {.size = sizeof s, .output_count = 1, .outputs = &ios[i].io};
        if (copy(&s, &c, &err) != MR_E_INTERNAL || !strstr(err.msg, ios[i].says) || c) {
            fail_msg("io row %zu: %s", i, err.msg);
        }
    }
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (copy(&rows[i].s, &c, &err) != MR_E_INTERNAL || !strstr(err.msg, rows[i].says) || c) {
            fail_msg("row %zu: %s", i, err.msg);
        }
    }
}

static void batches(void **state)
{
    struct mr_io_desc in = good("in");
    struct mr_io_desc out = good("out");
    struct mr_signature s = {.size = sizeof s,
                             .input_count = 1,
                             .output_count = 1,
                             .inputs = &in,
                             .outputs = &out,
                             .batchable = 1};
    struct mr_signature *c;
    struct mr_err err;

    (void)state;
    assert_int_equal(copy(&s, &c, &err), MR_OK);
    mr_free(c);
    out.dims = dims_fixed;
    assert_int_equal(copy(&s, &c, &err), MR_E_INTERNAL);
    assert_non_null(strstr(err.msg, "not free"));
    out.rank = 0;
    assert_int_equal(copy(&s, &c, &err), MR_E_INTERNAL);
    out.rank = -1;
    assert_int_equal(copy(&s, &c, &err), MR_OK);
    mr_free(c);
    s.batchable = 0;
    out.rank = 2;
    assert_int_equal(copy(&s, &c, &err), MR_OK);
    mr_free(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(copies), cmocka_unit_test(empty),
                                       cmocka_unit_test(broken), cmocka_unit_test(batches)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
