/* Parameters of answers, as a backend or a worker process may give them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "exec/exec.h"

static int set(struct mr_answer_parameters *to, struct mr_arena *a, const char *key,
               const char *value, uint8_t kind)
{
    const struct mr_setting s = {key, value};
    struct mr_err err;

    return mr_answer_parameters_set(to, a, &s, &kind, 1, &err);
}

static void test_kinds(void **state)
{
    static const struct {
        const char *key, *value;
        uint8_t kind;
        int rc;
    } cases[] = {
        {"a", "", MR_PARAMETER_TEXT, MR_OK},
        {"a", "gr\xc3\xbc\xc3\x9f", MR_PARAMETER_TEXT, MR_OK},
        {"a", "\xff", MR_PARAMETER_TEXT, MR_E_INVALID},
        {"\xff", "", MR_PARAMETER_TEXT, MR_E_INVALID},
        {"", "a", MR_PARAMETER_TEXT, MR_E_INVALID},
        {"a", "-9223372036854775808", MR_PARAMETER_INT, MR_OK},
        {"a", "9223372036854775808", MR_PARAMETER_INT, MR_E_INVALID},
        {"a", "1.5", MR_PARAMETER_INT, MR_E_INVALID},
        {"a", "", MR_PARAMETER_INT, MR_E_INVALID},
        {"a", "true", MR_PARAMETER_BOOL, MR_OK},
        {"a", "1", MR_PARAMETER_BOOL, MR_E_INVALID},
        {"a", "-1.5e300", MR_PARAMETER_DOUBLE, MR_OK},
        {"a", "nan", MR_PARAMETER_DOUBLE, MR_E_INVALID},
        {"a", "", MR_PARAMETER_DOUBLE, MR_E_INVALID},
        {"a", "a", 4, MR_E_INVALID},
        {"a", "a", 255, MR_E_INVALID},
    };
    struct mr_answer_parameters p = {0};
    struct mr_arena a;

    (void)state;
    mr_arena_init(&a, 0, 1u << 20);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(set(&p, &a, cases[i].key, cases[i].value, cases[i].kind), cases[i].rc);
    }
    assert_int_equal(p.count, 1); /* the last that was good */
    assert_string_equal(p.list[0].value, "-1.5e300");
    assert_int_equal(p.kinds[0], MR_PARAMETER_DOUBLE);
    mr_arena_fini(&a);
}

static void test_limits(void **state)
{
    struct mr_setting list[MR_ANSWER_PARAMETERS_MAX + 1];
    static char text[MR_ANSWER_PARAMETER_BYTES + 1];
    struct mr_answer_parameters p = {0};
    struct mr_err err;
    struct mr_arena a;

    (void)state;
    mr_arena_init(&a, 0, 1u << 20);
    for (uint32_t i = 0; i <= MR_ANSWER_PARAMETERS_MAX; i++) {
        list[i] = (struct mr_setting){"a", "b"};
    }
    assert_int_equal(mr_answer_parameters_set(&p, &a, list, NULL, MR_ANSWER_PARAMETERS_MAX, &err),
                     MR_OK);
    assert_int_equal(
        mr_answer_parameters_set(&p, &a, list, NULL, MR_ANSWER_PARAMETERS_MAX + 1, &err),
        MR_E_INVALID);
    memset(text, 'x', sizeof text - 2);
    assert_int_equal(set(&p, &a, "a", text, MR_PARAMETER_TEXT), MR_OK);
    text[sizeof text - 2] = 'x';
    assert_int_equal(set(&p, &a, "a", text, MR_PARAMETER_TEXT), MR_E_TOO_LARGE);
    mr_arena_fini(&a);
}

static void test_no_memory(void **state)
{
    struct mr_answer_parameters p = {0};
    struct mr_arena a;

    (void)state;
    mr_arena_init(&a, 0, 64);
    assert_int_equal(set(&p, &a, "key",
                         "a text that the arena has no room for, at least not with "
                         "its array of two pointers",
                         MR_PARAMETER_TEXT),
                     MR_E_EXHAUSTED);
    assert_int_equal(p.count, 0);
    mr_arena_fini(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kinds),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
