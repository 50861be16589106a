/* A child confines itself and tries what the other tests, of workers, do not. Steps that this kernel or build lacks are
 * skipped by name. */
#include <asm/sockios.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/msg.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <time.h>
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

static bool is_refused(long rc)
{
    return rc < 0 && errno == EPERM;
}

static int try_sockets(void)
{
    int pair[2];

    return is_refused(socket(AF_UNIX, SOCK_STREAM, 0)) &&
                   is_refused(socketpair(AF_UNIX, SOCK_STREAM, 0, pair))
               ? REFUSED
               : ALLOWED;
}

/* A clock that cannot be set: EINVAL. */
static int try_clock(void)
{
    const struct timespec zero = {0};

    return is_refused(clock_settime(CLOCK_MONOTONIC, &zero)) ? REFUSED : ALLOWED;
}

/* Without a flag it opens the folder, which takes no privilege. */
static int try_mount(void)
{
    return is_refused(syscall(428 /* open_tree */, AT_FDCWD, "/", 0u)) ? REFUSED : ALLOWED;
}

/* What is set is what is there already, so that no privilege is missing. */
static int try_parent_priority(void)
{
    const id_t parent = (id_t)getppid();
    const int own = getpriority(PRIO_PROCESS, 0);

    return is_refused(setpriority(PRIO_PROCESS, parent, getpriority(PRIO_PROCESS, parent))) &&
                   is_refused(setpriority(PRIO_PGRP, 0, own)) &&
                   setpriority(PRIO_PROCESS, 0, own) == 0 &&
                   setpriority(PRIO_PROCESS, (id_t)getpid(), own) == 0
               ? REFUSED
               : ALLOWED;
}

/* The owner of a descriptor gets its signals, of the kind that is set. */
static int try_signal_by_owner(void)
{
    const struct f_owner_ex owner = {F_OWNER_PID, getppid()};
    int parent = getppid();
    const int fd = open("/dev/null", O_RDONLY);

    return is_refused(fcntl(fd, F_SETOWN, parent)) && is_refused(fcntl(fd, F_SETOWN_EX, &owner)) &&
                   is_refused(ioctl(fd, FIOSETOWN, &parent)) &&
                   is_refused(ioctl(fd, SIOCSPGRP, &parent)) && fcntl(fd, F_GETFL) >= 0
               ? REFUSED
               : ALLOWED;
}

/* There is no such file: ENOENT. */
static int try_files_of_others(void)
{
    const char *path = "/nonexistent/file";

    return is_refused(chmod(path, 0600)) && is_refused(chown(path, 0, 0)) &&
                   is_refused(lchown(path, 0, 0)) &&
                   is_refused(fchmodat(AT_FDCWD, path, 0600, 0)) &&
                   is_refused(fchownat(AT_FDCWD, path, 0, 0, 0)) &&
                   is_refused(utimensat(AT_FDCWD, path, NULL, 0)) &&
                   is_refused(setxattr(path, "user.a", "b", 1, 0)) &&
                   is_refused(removexattr(path, "user.a"))
               ? REFUSED
               : ALLOWED;
}

/* Finds one, or nothing: none is made. */
static int try_system_v(void)
{
    return is_refused(shmget(1, 1, 0)) && is_refused(msgget(1, 0)) && is_refused(semget(1, 0, 0))
               ? REFUSED
               : ALLOWED;
}

static void *nothing(void *arg)
{
    return arg;
}

/* As thread pools do: pthread_create sets the CPUs of the new thread, and its scheduling class. */
static int try_thread(void)
{
    const struct sched_param priority = {0};
    pthread_attr_t attr;
    pthread_t thread;
    cpu_set_t cpus;

    pthread_attr_init(&attr);
    if (sched_getaffinity(0, sizeof cpus, &cpus) < 0 ||
        pthread_attr_setaffinity_np(&attr, sizeof cpus, &cpus) != 0 ||
        pthread_attr_setinheritsched(&attr, PTHREAD_EXPLICIT_SCHED) != 0 ||
        pthread_attr_setschedpolicy(&attr, SCHED_OTHER) != 0 ||
        pthread_attr_setschedparam(&attr, &priority) != 0 ||
        pthread_create(&thread, &attr, nothing, NULL) != 0) {
        return REFUSED;
    }
    pthread_join(thread, NULL);
    pthread_attr_destroy(&attr);
    return ALLOWED;
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
    static const struct {
        int (*fn)(void);
        bool is_free; /* otherwise a container may refuse it as well */
    } attempts[] = {
        {try_parent_limits, true},   {try_outlive, true},         {try_sockets, true},
        {try_parent_priority, true}, {try_signal_by_owner, true}, {try_files_of_others, true},
        {try_system_v, true},        {try_clock, false},          {try_mount, false}};
    for (size_t i = 0; i < sizeof attempts / sizeof *attempts; i++) {
        assert_true(!attempts[i].is_free || try_in_child(0, attempts[i].fn) == ALLOWED);
        assert_int_equal(try_in_child(MR_CONFINE_SECCOMP, attempts[i].fn), REFUSED);
    }
    assert_int_equal(try_in_child(MR_CONFINE_SECCOMP, try_thread), ALLOWED);
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
