/* How often a job commits, and how large its extents are. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/clock.h"
#include "batch/policy/cadence.h"

static void files_become_older_with_the_job(void **state)
{
    (void)state;
    assert_int_equal(cadence_commit_ns(0), 2 * MR_NS_PER_S);
    assert_int_equal(cadence_commit_ns(60 * MR_NS_PER_S), 2 * MR_NS_PER_S);
    assert_int_equal(cadence_commit_ns(90 * MR_NS_PER_S), 3 * MR_NS_PER_S);
    assert_int_equal(cadence_commit_ns(900 * MR_NS_PER_S), 30 * MR_NS_PER_S);
    assert_int_equal(cadence_commit_ns(1800 * MR_NS_PER_S), 60 * MR_NS_PER_S);
    assert_int_equal(cadence_commit_ns(INT64_MAX), 60 * MR_NS_PER_S);
}

/* The start and the end of each file, one after the other, for an hour. */
static void files_of_an_hour(void **state)
{
    int64_t at_ns = 0;
    int files = 0;

    (void)state;
    while (at_ns < 3600 * MR_NS_PER_S) {
        at_ns += cadence_commit_ns(at_ns);
        files++;
    }
    assert_in_range(files, 150, 170);
}

static void extents_are_what_hosts_answer(void **state)
{
    (void)state;
    assert_int_equal(cadence_extent_rows(0, 4096), 64);
    assert_int_equal(cadence_extent_rows(63, 4096), 64);
    assert_int_equal(cadence_extent_rows(1000, 4096), 1000);
    assert_int_equal(cadence_extent_rows(5000, 4096), 4096);
    assert_int_equal(cadence_extent_rows(0, 10), 10); /* an API that takes fewer */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(files_become_older_with_the_job),
        cmocka_unit_test(files_of_an_hour),
        cmocka_unit_test(extents_are_what_hosts_answer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
