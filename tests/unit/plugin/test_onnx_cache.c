/* How the ONNX Runtime backend keeps from reading too fast, by a clock of the test's own. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <time.h>

#include "parameters.h"

#define MS INT64_C(1000000)

static int64_t clock_ns = 1000 * MS;
static int64_t slept_ns;

int clock_gettime(clockid_t id, struct timespec *ts)
{
    (void)id;
    *ts = (struct timespec){clock_ns / (1000 * MS), clock_ns % (1000 * MS)};
    return 0;
}

int nanosleep(const struct timespec *ts, struct timespec *rest)
{
    (void)rest;
    slept_ns += ts->tv_sec * 1000 * MS + ts->tv_nsec;
    clock_ns += ts->tv_sec * 1000 * MS + ts->tv_nsec;
    return 0;
}

static void sleeps_when_ahead(void **state)
{
    struct onnx_pace p = {.bytes_per_second = 1000000};

    (void)state;
    slept_ns = 0;
    for (int i = 0; i < 100; i++) {
        onnx_pace_step(&p, 10000); /* 10 ms each, and no time passes */
    }
    assert_int_equal(slept_ns, 1000 * MS);
    clock_ns += 500 * MS; /* late: no sleep until that is made up for */
    for (int i = 0; i < 50; i++) {
        onnx_pace_step(&p, 10000);
    }
    assert_int_equal(slept_ns, 1000 * MS);
    onnx_pace_step(&p, 10000);
    assert_int_equal(slept_ns, 1010 * MS);
}

static void no_limit(void **state)
{
    struct onnx_pace p = {0};

    (void)state;
    slept_ns = 0;
    onnx_pace_step(&p, UINT64_C(1) << 60);
    assert_int_equal(slept_ns, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(sleeps_when_ahead),
                                       cmocka_unit_test(no_limit)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
