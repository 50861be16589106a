/* The generator: the published sequence, the range of unit, and that the system gives bytes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "base/rng.h"

static void known_sequence(void **state)
{
    /* xoshiro256** from the state {1, 2, 3, 4}, as the reference code prints it. */
    static const uint64_t want[] = {
        UINT64_C(11520),
        UINT64_C(0),
        UINT64_C(1509978240),
        UINT64_C(1215971899390074240),
    };
    struct mr_rng r = {.s = {1, 2, 3, 4}};

    (void)state;
    for (size_t i = 0; i < sizeof want / sizeof want[0]; i++) {
        assert_true(mr_rng_u64(&r) == want[i]);
    }
    /* splitmix64 from 0 begins so. */
    mr_rng_seed(&r, 0);
    assert_true(r.s[0] == UINT64_C(0xe220a8397b1dcdaf));
    assert_true(r.s[1] == UINT64_C(0x6e789e6aa1b965f4));
}

static void unit_is_even(void **state)
{
    struct mr_rng r;
    unsigned tenths[10] = {0};

    (void)state;
    mr_rng_seed(&r, 42);
    for (int i = 0; i < 100000; i++) {
        double x = mr_rng_unit(&r);
        assert_true(x >= 0 && x < 1);
        tenths[(int)(x * 10)]++;
    }
    for (int i = 0; i < 10; i++) {
        assert_true(tenths[i] > 9500 && tenths[i] < 10500);
    }
}

static void system_bytes(void **state)
{
    unsigned char a[1000] = {0};
    unsigned char b[1000] = {0};

    (void)state;
    mr_rng_system(a, sizeof a);
    mr_rng_system(b, sizeof b);
    assert_memory_not_equal(a, b, sizeof a);
    /* The last bytes were written too. */
    unsigned any = 0;
    for (size_t i = sizeof a - 16; i < sizeof a; i++) {
        any |= a[i];
    }
    assert_true(any != 0);
    mr_rng_system(a, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(known_sequence),
        cmocka_unit_test(unit_is_even),
        cmocka_unit_test(system_bytes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
