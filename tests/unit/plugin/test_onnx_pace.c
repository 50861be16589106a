/* The pace at which the ONNX Runtime backend reads, with a clock of the test's own, and its end when the load is
 * cancelled. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <time.h>

#include "onnxruntime/weights/parameters.h"

#define MS INT64_C(1000000)

static int64_t clock_ns = 1000 * MS;
static int64_t slept_ns;
static int64_t unwanted_at_ns = INT64_MAX; /* on that clock */
static uint64_t told_done, told_total;
static const char *told_step;

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

static int is_unwanted(const struct mr_loading *loading)
{
    (void)loading;
    return clock_ns >= unwanted_at_ns;
}

static void progress(struct mr_loading *loading, const char *step, uint64_t done, uint64_t total)
{
    (void)loading;
    told_step = step;
    told_done = done;
    told_total = total;
}

static const struct mr_host host = {
    .size = sizeof host, .load_is_unwanted = is_unwanted, .load_progress = progress};
const struct mr_host *onnx_host = &host;

/* Without low.c. */
const struct onnx_low *onnx_low_here(void)
{
    return NULL;
}

int onnx_give_up(const struct mr_loading *loading, const struct onnx_low *low)
{
    (void)low;
    return is_unwanted(loading);
}

static int setup(void **state)
{
    (void)state;
    slept_ns = 0;
    unwanted_at_ns = INT64_MAX;
    return 0;
}

static void sleeps_when_ahead(void **state)
{
    struct onnx_pace p = {.bytes_per_second = 1000000};

    (void)state;
    for (int i = 0; i < 100; i++) {
        assert_true(onnx_pace_step(&p, 10000, 0)); /* 10 ms each, and no time passes */
    }
    assert_int_equal(slept_ns, 1000 * MS);
    clock_ns += 500 * MS; /* late: no sleep until that is made up for */
    for (int i = 0; i < 50; i++) {
        assert_true(onnx_pace_step(&p, 10000, 0));
    }
    assert_int_equal(slept_ns, 1000 * MS);
    assert_true(onnx_pace_step(&p, 10000, 0));
    assert_int_equal(slept_ns, 1010 * MS);
}

static void no_limit(void **state)
{
    struct onnx_pace p = {0};

    (void)state;
    assert_true(onnx_pace_step(&p, UINT64_C(1) << 60, 0));
    assert_int_equal(slept_ns, 0);
}

static void a_wait_ends_when_nobody_wants_it(void **state)
{
    struct onnx_pace p = {.bytes_per_second = 1000};

    (void)state;
    unwanted_at_ns = clock_ns + 300 * MS;
    assert_false(onnx_pace_step(&p, 1000000, 0)); /* worth a thousand seconds */
    assert_in_range(slept_ns, 300 * MS, 400 * MS);
    assert_false(onnx_pace_step(&(struct onnx_pace){0}, 1, 0)); /* without a limit, too */
}

static void progress_is_told(void **state)
{
    struct onnx_pace p = {0};

    (void)state;
    onnx_pace_plan(&p, "read", 300);
    assert_string_equal(told_step, "read");
    assert_true(told_done == 0 && told_total == 300);
    assert_true(onnx_pace_step(&p, 0, 100));
    assert_true(told_done == 100 && told_total == 300);
    onnx_pace_plan(&p, "copy", 50); /* less than was thought */
    assert_string_equal(told_step, "copy");
    assert_true(told_done == 100 && told_total == 150);
    onnx_pace_done(&p, 1000); /* never past the end */
    assert_true(told_done == 150 && told_total == 150);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(sleeps_when_ahead, setup),
        cmocka_unit_test_setup(no_limit, setup),
        cmocka_unit_test_setup(a_wait_ends_when_nobody_wants_it, setup),
        cmocka_unit_test_setup(progress_is_told, setup),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
