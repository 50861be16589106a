/* The budget of bytes: what is short, and what is left when some is used otherwise. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "batch/common/credits.h"

static void some_are_used_otherwise(void **state)
{
    struct credits c;

    (void)state;
    credits_init(&c, 1000);
    assert_int_equal(credits_limit(&c), 1000);
    assert_true(credits_take(&c, 700));
    assert_false(credits_are_short(&c));
    credits_reserve(&c, 400);
    assert_int_equal(credits_limit(&c), 600);
    assert_true(credits_are_short(&c));
    credits_move(&c, 700, 600);
    assert_false(credits_are_short(&c));
    credits_reserve(&c, UINT64_MAX); /* half is for rows in any case */
    assert_int_equal(credits_limit(&c), 500);
    credits_give(&c, 600);
    credits_reserve(&c, 0);
    assert_int_equal(credits_limit(&c), 1000);
    credits_fini(&c);
}

static void too_many_go_alone(void **state)
{
    struct credits c;

    (void)state;
    credits_init(&c, 1000);
    credits_reserve(&c, 500);
    assert_true(credits_take(&c, 5000));
    credits_close(&c);
    assert_false(credits_take(&c, 1));
    credits_give(&c, 5000);
    credits_fini(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(some_are_used_otherwise),
        cmocka_unit_test(too_many_go_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
