/* CPU counts: cgroup quotas, alone and along the path of a cgroup. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/thread.h"
#include "base_priv.h"

static void quotas(void **state)
{
    static const struct {
        const char *text;
        unsigned cpus;
    } rows[] = {
        {"max 100000\n", 0},
        {"100000 100000\n", 1},
        {"150000 100000\n", 2},
        {"50000 100000\n", 1},
        {"800000 100000\n", 8},
        {"800001 100000", 9},
        {"", 0},
        {"100000", 0},
        {"100000 0", 0},
        {"0 100000", 0},
        {"-1 100000", 0},
        {"x y", 0},
        {"100000 100000 x", 1},
        {"  1 1  ", 1},
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        unsigned got = mr_cpu_quota_parse(mr_str_c(rows[i].text));
        if (got != rows[i].cpus) {
            fail_msg("'%s': %u, expected %u", rows[i].text, got, rows[i].cpus);
        }
    }
    assert_true(mr_cpu_quota_parse(MR_STR("18446744073709551615 1")) > 0);
}

static void write_file(const char *folder, const char *name, const char *text)
{
    char path[256];

    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static void the_smallest_quota_on_the_path_rules(void **state)
{
    char root[] = "/tmp/mr_test_cpu_XXXXXX";
    char folder[256];

    (void)state;
    assert_non_null(mkdtemp(root));
    snprintf(folder, sizeof folder, "%s/a", root);
    assert_int_equal(mkdir(folder, 0700), 0);
    write_file(folder, "cpu.max", "250000 100000\n");
    snprintf(folder, sizeof folder, "%s/a/b", root);
    assert_int_equal(mkdir(folder, 0700), 0);
    write_file(folder, "cpu.max", "max 100000\n");

    assert_int_equal(mr_cpu_quota_below(root, MR_STR("/a/b")), 3);
    assert_int_equal(mr_cpu_quota_below(root, MR_STR("/a/b/")), 3);
    assert_int_equal(mr_cpu_quota_below(root, MR_STR("/a/missing/x")), 3);
    assert_int_equal(mr_cpu_quota_below(root, MR_STR("/")), 0);
    assert_int_equal(mr_cpu_quota_below(root, MR_STR("")), 0);
    write_file(root, "cpu.max", "100000 100000\n");
    assert_int_equal(mr_cpu_quota_below(root, MR_STR("/a/b")), 1);

    snprintf(folder, sizeof folder, "rm -r %s", root);
    assert_int_equal(system(folder), 0);
}

static void there_is_a_cpu(void **state)
{
    unsigned cpus = mr_cpu_count();

    (void)state;
    assert_true(cpus >= 1 && cpus <= (unsigned)sysconf(_SC_NPROCESSORS_CONF));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(quotas),
        cmocka_unit_test(the_smallest_quota_on_the_path_rules),
        cmocka_unit_test(there_is_a_cpu),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
