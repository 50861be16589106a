/* When the reader is held. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "batch/policy/readahead.h"

static void held_by_bytes_and_by_calls(void **state)
{
    struct readahead a = {0};

    (void)state;
    assert_false(readahead_holds(&a, 1000, READAHEAD_BYTES - 1, 100));
    assert_true(readahead_holds(&a, 1000, READAHEAD_BYTES, 100));
    assert_false(readahead_holds(&a, 199, 2 * READAHEAD_BYTES, 100)); /* not two calls */
    assert_true(readahead_holds(&a, 200, 2 * READAHEAD_BYTES, 100));
    assert_false(readahead_holds(&a, 200, READAHEAD_BYTES - 1, 100));
}

static void a_source_that_pauses(void **state)
{
    struct readahead a = {0};

    (void)state;
    assert_false(readahead_holds(&a, 0, 0, 1)); /* before the first row: that has no meaning */
    assert_true(readahead_holds(&a, 10, READAHEAD_BYTES, 1));
    assert_false(readahead_holds(&a, 5, READAHEAD_BYTES / 2, 1));
    assert_false(readahead_holds(&a, 0, 0, 1)); /* it was held, and then there were none */
    assert_false(readahead_holds(&a, 10, READAHEAD_BYTES, 1));
    assert_false(readahead_holds(&a, 0, 0, 1)); /* it was not held since */
    assert_true(readahead_holds(&a, 20, 2 * READAHEAD_BYTES, 1));
    assert_false(readahead_holds(&a, 0, 0, 1));
    assert_false(readahead_holds(&a, 0, 0, 1)); /* the same pause */
    assert_true(readahead_holds(&a, 40, 4 * READAHEAD_BYTES, 1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(held_by_bytes_and_by_calls),
        cmocka_unit_test(a_source_that_pauses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
