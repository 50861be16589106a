/* CPUs and memory: limits of cgroups, alone and along the path of a cgroup. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/machine.h"
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

static void make_folder(char *out, size_t size, const char *root, const char *name)
{
    snprintf(out, size, "%s/%s", root, name);
    assert_int_equal(mkdir(out, 0700), 0);
}

static unsigned quota_below(const char *root, const char *path)
{
    unsigned cpus = 0;

    mr_cgroups_below(root, mr_str_c(path), mr_cpu_quota_look, &cpus);
    return cpus;
}

static uint64_t memory_below(const char *root, const char *path)
{
    uint64_t bytes = 8000;

    mr_cgroups_below(root, mr_str_c(path), mr_memory_look, &bytes);
    return bytes;
}

static void the_smallest_limit_on_the_path_rules(void **state)
{
    char root[] = "/tmp/mr_test_machine_XXXXXX";
    char folder[256];

    (void)state;
    assert_non_null(mkdtemp(root));
    make_folder(folder, sizeof folder, root, "a");
    write_file(folder, "cpu.max", "250000 100000\n");
    write_file(folder, "memory.max", "4096\n");
    make_folder(folder, sizeof folder, root, "a/b");
    write_file(folder, "cpu.max", "max 100000\n");
    write_file(folder, "memory.max", "max\n");

    static const char *const below[] = {"/a/b", "/a/b/", "/a/missing/x"};
    for (size_t i = 0; i < sizeof below / sizeof below[0]; i++) {
        assert_int_equal(quota_below(root, below[i]), 3);
        assert_int_equal(memory_below(root, below[i]), 4096);
    }
    static const char *const at_root[] = {"/", ""};
    for (size_t i = 0; i < sizeof at_root / sizeof at_root[0]; i++) {
        assert_int_equal(quota_below(root, at_root[i]), 0);
        assert_int_equal(memory_below(root, at_root[i]), 8000);
    }
    write_file(root, "cpu.max", "100000 100000\n");
    write_file(root, "memory.max", "1024\n");
    assert_int_equal(quota_below(root, "/a/b"), 1);
    assert_int_equal(memory_below(root, "/a/b"), 1024);
    write_file(root, "memory.max", "9000\n");
    assert_int_equal(memory_below(root, "/"), 8000);

    snprintf(folder, sizeof folder, "rm -r %s", root);
    assert_int_equal(system(folder), 0);
}

static void there_is_a_cpu(void **state)
{
    unsigned cpus = mr_cpu_count();

    (void)state;
    assert_true(cpus >= 1 && cpus <= (unsigned)sysconf(_SC_NPROCESSORS_CONF));
}

static void there_is_memory(void **state)
{
    const uint64_t bytes = mr_machine_memory();

    (void)state;
    assert_true(bytes > 0 &&
                bytes <= (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(quotas),
        cmocka_unit_test(the_smallest_limit_on_the_path_rules),
        cmocka_unit_test(there_is_a_cpu),
        cmocka_unit_test(there_is_memory),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
