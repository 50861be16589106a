/* Which requests are refused, for how long, and how many of them: by a clock of the test's own. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>

#include "exec/quarantine.h"

#define BYTES ((size_t)1 << 20)

static int64_t shape[] = {1, BYTES};

struct request {
    struct mr_tensor inputs[2];
    struct mr_setting parameters[1];
    struct mr_quarantine_key key;
};

static void make(struct request *r, void *data, size_t bytes)
{
    *r = (struct request){
        .inputs =
            {{.dtype = MR_DTYPE_UINT8, .rank = 2, .shape = shape, .data = data, .bytes = bytes},
             {.dtype = MR_DTYPE_INVALID}},
        .parameters = {{"key", "value"}}};
    r->key = (struct mr_quarantine_key){
        .inputs = r->inputs, .input_count = 2, .parameters = r->parameters, .parameter_count = 1};
}

static void test_the_same_request_for_a_while(void **state)
{
    char data[] = "some bytes", other[] = "some bytes", wrong[] = "sane bytes";
    struct request r, same, different;
    struct mr_quarantine q;

    (void)state;
    make(&r, data, sizeof data);
    make(&same, other, sizeof other);
    make(&different, wrong, sizeof wrong);
    mr_quarantine_init(&q);
    assert_false(mr_quarantine_refuses(&q, &r.key, 1000));
    mr_quarantine_add(&q, &r.key, 1000);
    assert_true(mr_quarantine_refuses(&q, &same.key, 1000));
    assert_false(mr_quarantine_refuses(&q, &different.key, 1000));
    assert_true(mr_quarantine_refuses(&q, &same.key, 1000 + MR_QUARANTINE_NS - 1));
    assert_int_equal(mr_quarantine_count(&q, 1000 + MR_QUARANTINE_NS - 1), 1);
    assert_false(mr_quarantine_refuses(&q, &same.key, 1000 + MR_QUARANTINE_NS));
    assert_int_equal(mr_quarantine_count(&q, 1000 + MR_QUARANTINE_NS), 0);
    assert_int_equal(q.refused, 2);
    mr_quarantine_fini(&q);
}

static void test_all_of_a_request_counts(void **state)
{
    static int64_t other_shape[] = {BYTES, 1};
    char data[16] = {0};
    struct request r, other;
    struct mr_quarantine q;

    (void)state;
    make(&r, data, sizeof data);
    mr_quarantine_init(&q);
    mr_quarantine_add(&q, &r.key, 1);
    other = r;
    other.key.inputs = other.inputs;
    other.inputs[0].dtype = MR_DTYPE_INT8;
    assert_false(mr_quarantine_refuses(&q, &other.key, 1));
    other.inputs[0] = r.inputs[0];
    other.inputs[0].shape = other_shape;
    assert_false(mr_quarantine_refuses(&q, &other.key, 1));
    other.inputs[0] = r.inputs[0];
    assert_true(mr_quarantine_refuses(&q, &other.key, 1));
    other.inputs[1] = r.inputs[0];
    assert_false(mr_quarantine_refuses(&q, &other.key, 1));
    other.inputs[1] = r.inputs[1];
    other.parameters[0].value = "values";
    other.key.parameters = other.parameters;
    assert_false(mr_quarantine_refuses(&q, &other.key, 1));
    other.parameters[0] = r.parameters[0];
    other.key.parameter_count = 0;
    assert_false(mr_quarantine_refuses(&q, &other.key, 1));
    mr_quarantine_fini(&q);
}

/* One byte that the quick digest does not see. */
static void test_large_inputs_are_compared_whole(void **state)
{
    uint8_t *data = calloc(2, BYTES);
    struct request r, other;
    struct mr_quarantine q;

    (void)state;
    make(&r, data, BYTES);
    make(&other, data + BYTES, BYTES);
    data[BYTES + 10000] = 1;
    mr_quarantine_init(&q);
    mr_quarantine_add(&q, &r.key, 1);
    assert_true(mr_quarantine_refuses(&q, &r.key, 1));
    assert_false(mr_quarantine_refuses(&q, &other.key, 1));
    data[BYTES + 10000] = 0;
    assert_true(mr_quarantine_refuses(&q, &other.key, 1));
    data[2 * BYTES - 1] = 1;
    assert_false(mr_quarantine_refuses(&q, &other.key, 1));
    mr_quarantine_fini(&q);
    free(data);
}

static void test_the_oldest_goes(void **state)
{
    struct mr_quarantine q;
    struct request r;
    uint32_t n;

    (void)state;
    make(&r, &n, sizeof n);
    mr_quarantine_init(&q);
    for (n = 0; n <= MR_QUARANTINE_MAX; n++) {
        mr_quarantine_add(&q, &r.key, n);
    }
    assert_int_equal(mr_quarantine_count(&q, n), MR_QUARANTINE_MAX);
    n = 0;
    assert_false(mr_quarantine_refuses(&q, &r.key, 1));
    for (n = 1; n <= MR_QUARANTINE_MAX; n++) {
        assert_true(mr_quarantine_refuses(&q, &r.key, 1));
    }
    mr_quarantine_fini(&q);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_same_request_for_a_while),
        cmocka_unit_test(test_all_of_a_request_counts),
        cmocka_unit_test(test_large_inputs_are_compared_whole),
        cmocka_unit_test(test_the_oldest_goes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
