/* A plain folder stands for one of the cgroup file system, and the test does what the kernel would. What only the kernel does is
 * tested where the machine lets this user make cgroups. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "cgroup_priv.h"
#include "cgroup_text.h"
#include "process/cgroup.h"
#include "process/folder.h"

static const struct mr_cgroup_limits all = {
    .memory_bytes = 1 << 30, .cpu_hundredths = 150, .tasks = 64};
static struct mr_err err;

/* ---- texts ---- */

static void test_own_path(void **state)
{
    char path[16];

    (void)state;
    assert_true(cgroup_path("9:name=systemd:/x\n0::/a/b\n", path, sizeof path));
    assert_string_equal(path, "/a/b");
    assert_true(cgroup_path("0::/\n", path, sizeof path));
    assert_string_equal(path, "/");
    assert_false(cgroup_path("4:memory:/0::/x\n", path, sizeof path));
    assert_false(cgroup_path("0::", path, sizeof path));
    assert_false(cgroup_path("0::/longer/than/that\n", path, sizeof path));
}

static void test_words(void **state)
{
    (void)state;
    assert_true(cgroup_has_word("cpuset cpu io\n", "cpu"));
    assert_true(cgroup_has_word("io memory\n", "memory"));
    assert_false(cgroup_has_word("cpuset io\n", "cpu"));
    assert_false(cgroup_has_word("\n", "cpu"));
}

static void test_events(void **state)
{
    (void)state;
    assert_true(cgroup_is_oom("low 0\nmax 9\noom 1\noom_kill 2\noom_group_kill 1\n"));
    assert_false(cgroup_is_oom("low 0\nmax 9\noom 0\noom_kill 2\n")); /* a limit above it */
    assert_false(cgroup_is_oom("oom 1\noom_kill 0\n"));
    assert_false(cgroup_is_oom("oom_group_kill 1\n"));
    assert_false(cgroup_is_oom(""));
}

static void test_names(void **state)
{
    static const char *const others[] = {"millrace-12",   "millrace-12-", "millrace-12-3x",
                                         "millrace--1-3", "server",       "millrace-0-1"};
    pid_t pid;

    (void)state;
    assert_true(cgroup_name_parse("millrace-12-3", &pid));
    assert_int_equal(pid, 12);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        assert_false(cgroup_name_parse(others[i], &pid));
    }
}

static void test_cpus(void **state)
{
    static const char *const bad[] = {"", "0", "-1", "x", "1x", "nan", "inf", "4097", "0.001"};
    uint32_t cpus;

    (void)state;
    assert_int_equal(mr_cgroup_parse_cpus("1.5", &cpus, &err), MR_OK);
    assert_int_equal(cpus, 150);
    assert_int_equal(mr_cgroup_parse_cpus("0.01", &cpus, &err), MR_OK);
    assert_int_equal(cpus, 1);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(mr_cgroup_parse_cpus(bad[i], &cpus, &err), MR_E_INVALID);
    }
}

/* ---- a folder ---- */

struct fake {
    char *path;
    struct mr_cgroups *groups;
};

static const char *in(const struct fake *f, const char *name, char out[512])
{
    snprintf(out, 512, "%s/%s", f->path, name);
    return out;
}

static void put(const struct fake *f, const char *name, const char *text)
{
    char path[512];
    FILE *file = fopen(in(f, name, path), "we");

    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static void assert_text(const struct fake *f, const char *name, const char *expected)
{
    char path[512], text[64] = "";
    FILE *file = fopen(in(f, name, path), "re");

    assert_non_null(file);
    assert_true(fread(text, 1, sizeof text - 1, file) > 0);
    fclose(file);
    assert_string_equal(text, expected);
}

static bool is_there(const struct fake *f, const char *name)
{
    char path[512];

    return access(in(f, name, path), F_OK) == 0;
}

static struct fake fake_make(const char *controllers)
{
    struct fake f = {0};

    assert_int_equal(mr_folder_new(&f.path, &err), MR_OK);
    put(&f, "cgroup.procs", "");
    put(&f, "cgroup.controllers", controllers);
    return f;
}

static void fake_drop(struct fake *f)
{
    mr_cgroups_close(&f->groups);
    mr_folder_remove(f->path);
    free(f->path);
}

static const char *own_name(uint64_t number, const char *file, char out[128])
{
    snprintf(out, 128, "millrace-%d-%llu%s", (int)getpid(), (unsigned long long)number, file);
    return out;
}

static void test_limits_and_removal(void **state)
{
    struct fake f = fake_make("cpuset cpu io memory hugetlb pids\n");
    char entry[MR_CGROUP_PATH_BYTES], name[128], path[512];
    uint64_t number, next;

    (void)state;
    assert_int_equal(cgroup_open_any(&f.groups, f.path, &all, &err), MR_OK);
    assert_string_equal(mr_cgroups_lacks(f.groups), "");
    assert_true(is_there(&f, "cgroup.subtree_control"));
    assert_int_equal(mr_cgroup_new(f.groups, &number, entry, &err), MR_OK);
    assert_text(&f, own_name(number, "/memory.max", name), "1073741824");
    assert_text(&f, own_name(number, "/memory.oom.group", name), "1");
    assert_text(&f, own_name(number, "/pids.max", name), "64");
    assert_text(&f, own_name(number, "/cpu.max", name), "150000 100000");
    assert_string_equal(entry, in(&f, own_name(number, "/cgroup.procs", name), path));
    assert_int_equal(mr_cgroup_enter(entry, &err), MR_OK);
    assert_text(&f, own_name(number, "/cgroup.procs", name), "0");

    put(&f, own_name(number, "/memory.events", name), "oom 1\noom_kill 1\n");
    assert_true(
        mr_cgroup_end(f.groups, number)); /* a plain folder with files: as if something runs */
    assert_text(&f, own_name(number, "/cgroup.kill", name), "1");
    mr_folder_empty(in(&f, own_name(number, "", name), path));
    assert_int_equal(mr_cgroup_new(f.groups, &next, entry, &err), MR_OK);
    assert_false(is_there(&f, own_name(number, "", name)));
    mr_folder_empty(in(&f, own_name(next, "", name), path));
    assert_false(mr_cgroup_end(f.groups, next));
    assert_false(is_there(&f, own_name(next, "", name)));
    fake_drop(&f);
}

static void test_controllers_that_are_not_there(void **state)
{
    struct fake f = fake_make("hugetlb pids\n");
    char entry[MR_CGROUP_PATH_BYTES], name[128], path[512];
    uint64_t number;

    (void)state;
    assert_int_equal(cgroup_open_any(&f.groups, f.path, &all, &err), MR_OK);
    assert_string_equal(mr_cgroups_lacks(f.groups), "memory cpu");
    assert_text(&f, "cgroup.subtree_control", "+pids");
    assert_int_equal(mr_cgroup_new(f.groups, &number, entry, &err), MR_OK);
    assert_false(is_there(&f, own_name(number, "/memory.max", name)));
    assert_false(is_there(&f, own_name(number, "/memory.oom.group", name)));
    assert_false(is_there(&f, own_name(number, "/cpu.max", name)));
    assert_text(&f, own_name(number, "/pids.max", name), "64");
    mr_folder_empty(in(&f, own_name(number, "", name), path));
    mr_cgroup_end(f.groups, number);
    fake_drop(&f);
}

static void test_leftovers(void **state)
{
    struct fake f = fake_make("\n");
    static const char gone[] = "millrace-999999999-7"; /* more than the kernel counts */
    char lives[64], own[128], path[512];

    (void)state;
    snprintf(lives, sizeof lives, "millrace-%d-7", (int)getppid());
    own_name(7, "", own);
    const char *const names[] = {gone, lives, own, "other"};
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(mkdir(in(&f, names[i], path), 0700), 0);
    }
    assert_int_equal(cgroup_open_any(&f.groups, f.path, &all, &err), MR_OK);
    assert_false(is_there(&f, gone));
    assert_false(is_there(&f, own)); /* of a server that had the same process id */
    assert_true(is_there(&f, lives));
    assert_true(is_there(&f, "other"));
    fake_drop(&f);
}

static void test_folders_that_cannot_be_used(void **state)
{
    struct fake f = fake_make("memory\n");
    char path[512];

    (void)state;
    assert_int_equal(mr_cgroups_open(&f.groups, f.path, &all, &err), MR_E_INVALID);
    assert_non_null(strstr(err.msg, f.path));
    assert_non_null(strstr(err.msg, "not a folder of a cgroup v2"));
    assert_int_equal(mr_cgroups_open(&f.groups, in(&f, "none", path), &all, &err), MR_E_INVALID);
    assert_non_null(strstr(err.msg, "none cannot hold cgroups: No such file"));
    /* writing to it fails */
    assert_int_equal(mkdir(in(&f, "cgroup.subtree_control", path), 0700), 0);
    assert_int_equal(cgroup_open_any(&f.groups, f.path, &all, &err), MR_E_INVALID);
    assert_non_null(strstr(err.msg, f.path));
    assert_int_equal(unlink(in(&f, "cgroup.procs", path)), 0);
    assert_int_equal(cgroup_open_any(&f.groups, f.path, &all, &err), MR_E_INVALID);
    assert_null(f.groups);
    fake_drop(&f);
}

/* ---- the kernel's ---- */

/* A folder below this process's own. False: the machine does not allow it. */
static bool real_make(char out[MR_CGROUP_PATH_BYTES])
{
    char ignored[8], path[MR_CGROUP_PATH_BYTES];

    return mr_cgroup_own(path, ignored, sizeof ignored) &&
           snprintf(out, MR_CGROUP_PATH_BYTES, "%s/cgroup.procs", path) < MR_CGROUP_PATH_BYTES &&
           access(out, W_OK) == 0 &&
           snprintf(out, MR_CGROUP_PATH_BYTES, "%s/unit-%d", path, (int)getpid()) <
               MR_CGROUP_PATH_BYTES &&
           mkdir(out, 0700) == 0;
}

/* Until no process is in the folder or those in it. */
static void wait_empty(const char *dir)
{
    char path[MR_CGROUP_PATH_BYTES + 32], text[128];

    snprintf(path, sizeof path, "%s/cgroup.events", dir);
    struct pollfd changed = {.fd = open(path, O_RDONLY | O_CLOEXEC), .events = POLLPRI};
    assert_true(changed.fd >= 0);
    for (;;) {
        const ssize_t n = pread(changed.fd, text, sizeof text - 1, 0);
        assert_true(n > 0);
        text[n] = '\0';
        if (strstr(text, "populated 0")) {
            break;
        }
        poll(&changed, 1, -1);
    }
    close(changed.fd);
}

/* In the child: enters, leaves something in a session of its own, and ends. */
static void child_run(const char *entry, int held)
{
    if (mr_cgroup_enter(entry, &err) < 0) {
        _exit(1);
    }
    if (fork() == 0) {
        setsid();
        if (write(held, "x", 1) == 1) {
            pause();
        }
    }
    _exit(0);
}

static void test_what_is_left_is_killed(void **state)
{
    char dir[MR_CGROUP_PATH_BYTES], entry[MR_CGROUP_PATH_BYTES], byte;
    struct mr_cgroups *g = NULL;
    uint64_t number;
    int pipes[2], status;

    (void)state;
    if (!real_make(dir)) {
        print_message("skipped: this user cannot make cgroups (v2) here\n");
        skip();
    }
    assert_int_equal(mr_cgroups_open(&g, dir, &all, &err), MR_OK);
    assert_int_equal(mr_cgroup_new(g, &number, entry, &err), MR_OK);
    assert_int_equal(pipe2(pipes, O_CLOEXEC), 0);
    const pid_t pid = fork();
    if (pid == 0) {
        child_run(entry, pipes[1]);
    }
    close(pipes[1]);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    assert_int_equal(read(pipes[0], &byte, 1), 1);
    assert_false(mr_cgroup_end(g, number));
    assert_int_equal(read(pipes[0], &byte, 1), 0); /* all that held it are gone */
    wait_empty(dir);
    mr_cgroups_close(&g);
    assert_int_equal(rmdir(dir), 0); /* it is empty */
    close(pipes[0]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_own_path),
        cmocka_unit_test(test_words),
        cmocka_unit_test(test_events),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_cpus),
        cmocka_unit_test(test_limits_and_removal),
        cmocka_unit_test(test_controllers_that_are_not_there),
        cmocka_unit_test(test_leftovers),
        cmocka_unit_test(test_folders_that_cannot_be_used),
        cmocka_unit_test(test_what_is_left_is_killed),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
