/* A child confines itself and tries what the other tests, of workers, do not. Steps that this kernel or build lacks are
 * skipped by name. */
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "process/confine.h"

enum { REFUSED, ALLOWED, NOT_CONFINED };

static char file[] = "/tmp/test_confine_XXXXXX";

/* The exit code of a child that takes the steps, then tries. */
static int try_in_child(uint32_t steps, int (*attempt)(void))
{
    const struct mr_confine c = {.steps = steps};
    const pid_t pid = fork();
    int status;

    assert_true(pid >= 0);
    if (pid == 0) {
        uint32_t taken;
        struct mr_err err;
        _exit(mr_confine_self(&c, &taken, &err) == MR_OK && taken == steps ? attempt()
                                                                           : NOT_CONFINED);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static int try_parent_limits(void)
{
    struct rlimit limit;

    return prlimit(getppid(), RLIMIT_NOFILE, NULL, &limit) < 0 && errno == EPERM &&
                   getrlimit(RLIMIT_NOFILE, &limit) == 0 &&
                   prlimit(getpid(), RLIMIT_NOFILE, NULL, &limit) == 0
               ? REFUSED
               : ALLOWED;
}

static int try_outlive(void)
{
    return prctl(PR_SET_PDEATHSIG, 0) < 0 && errno == EPERM && prctl(PR_SET_NAME, "name") == 0
               ? REFUSED
               : ALLOWED;
}

static int try_truncate(void)
{
    return truncate(file, 0) < 0 && errno == EACCES ? REFUSED : ALLOWED;
}

static void test_seccomp(void **state)
{
    (void)state;
    if (!(mr_confine_probe() & MR_CONFINE_SECCOMP)) {
        print_message("skipped: seccomp\n");
        skip();
    }
    assert_int_equal(try_in_child(0, try_parent_limits), ALLOWED);
    assert_int_equal(try_in_child(MR_CONFINE_SECCOMP, try_parent_limits), REFUSED);
    assert_int_equal(try_in_child(0, try_outlive), ALLOWED);
    assert_int_equal(try_in_child(MR_CONFINE_SECCOMP, try_outlive), REFUSED);
}

static void test_truncate(void **state)
{
    (void)state;
    if (syscall(444, NULL, (size_t)0, 1u) < 3) {
        print_message("skipped: landlock of version 3, which knows truncate\n");
        skip();
    }
    const int fd = mkstemp(file);
    assert_true(fd >= 0);
    assert_int_equal(try_in_child(0, try_truncate), ALLOWED);
    assert_int_equal(try_in_child(MR_CONFINE_LANDLOCK, try_truncate), REFUSED);
    close(fd);
    unlink(file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_seccomp),
        cmocka_unit_test(test_truncate),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
