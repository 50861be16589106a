/* Data types: the tables, both ways. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "tensor/tensor.h"

static void sizes(void **state)
{
    static const size_t want[MR_DTYPE_COUNT] = {0, 1, 1, 2, 4, 8, 1, 2, 4, 8, 2, 4, 8, 0, 2};

    (void)state;
    for (int i = 0; i < MR_DTYPE_COUNT; i++) {
        assert_int_equal(mr_dtype_size(i), want[i]);
    }
}

static void names_both_ways(void **state)
{
    (void)state;
    for (int i = 1; i < MR_DTYPE_COUNT; i++) {
        char config_name[32];
        assert_int_equal(mr_dtype_from_name(mr_str_c(mr_dtype_name(i))), i);
        snprintf(config_name, sizeof config_name, "TYPE_%s",
                 i == MR_DTYPE_BYTES ? "STRING" : mr_dtype_name(i));
        assert_string_equal(mr_dtype_config_name(i), config_name);
    }
    assert_string_equal(mr_dtype_name(MR_DTYPE_INT32), "INT32");
    assert_string_equal(mr_dtype_name(MR_DTYPE_BYTES), "BYTES");
}

static void what_is_no_type(void **state)
{
    static const int odd[] = {0, -1, MR_DTYPE_COUNT, INT_MAX, INT_MIN};
    static const char *const names[] = {"", "INVALID", "int32", "INT3", "INT322", "STRING", "FP8"};

    (void)state;
    for (size_t i = 0; i < sizeof odd / sizeof odd[0]; i++) {
        assert_string_equal(mr_dtype_name(odd[i]), "INVALID");
        assert_string_equal(mr_dtype_config_name(odd[i]), "TYPE_INVALID");
        assert_int_equal(mr_dtype_size(odd[i]), 0);
    }
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        assert_int_equal(mr_dtype_from_name(mr_str_c(names[i])), MR_DTYPE_INVALID);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes),
        cmocka_unit_test(names_both_ways),
        cmocka_unit_test(what_is_no_type),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
