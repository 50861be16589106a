/* Children that are shells. */
#include <dirent.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "process/spawn.h"

static const char *const env[] = {"ONLY=this", NULL};

static struct mr_process spawn(const char *script, const struct mr_process_fd *fds, size_t count)
{
    const char *const argv[] = {"sh", "-c", script, NULL};
    const struct mr_process_args args = {"/bin/sh", argv, env, fds, count};
    struct mr_process p;
    struct mr_err err;

    assert_int_equal(mr_process_spawn(&p, &args, &err), MR_OK);
    return p;
}

/* All that it writes until it ends. */
static void read_all(const struct mr_process *p, char *text, size_t size)
{
    size_t used = 0;

    for (;;) {
        struct pollfd f = {.fd = p->output, .events = POLLIN};
        poll(&f, 1, -1);
        const ssize_t n = read(p->output, text + used, size - 1 - used);
        if (n <= 0) {
            break;
        }
        used += (size_t)n;
    }
    text[used] = '\0';
}

static struct mr_process_exit end_of(struct mr_process *p)
{
    struct mr_process_exit e;

    assert_true(mr_process_reap(p, true, &e));
    mr_process_close(p);
    return e;
}

static void test_gets_what_it_is_given(void **state)
{
    char text[512];
    int pipes[2];

    (void)state;
    assert_int_equal(pipe(pipes), 0);
    /* crosswise: each has the number that the other had */
    const struct mr_process_fd fds[] = {{pipes[0], pipes[1] + 40}, {pipes[1], pipes[0] + 40}};
    struct mr_process p = spawn("env | grep -v ^PWD= | grep -v ^_=; cat; ls /proc/self/fd | wc -l; "
                                "echo error >&2; exit 3",
                                fds, 2);
    read_all(&p, text, sizeof text);
    /* 0, 1, 2, the two, and the one that ls reads the folder with */
    assert_string_equal(text, "ONLY=this\n6\nerror\n");
    const struct mr_process_exit e = end_of(&p);
    assert_false(e.is_signal);
    assert_int_equal(e.code, 3);
    close(pipes[0]);
    close(pipes[1]);
}

static void test_signals(void **state)
{
    char text[48];
    struct mr_process_exit e;

    (void)state;
    signal(SIGTERM, SIG_IGN); /* not handed on */
    struct mr_process p = spawn("exec sleep 1000", NULL, 0);
    assert_false(mr_process_reap(&p, false, &e));
    mr_process_kill(&p, SIGTERM);
    e = end_of(&p);
    signal(SIGTERM, SIG_DFL);
    assert_true(e.is_signal);
    assert_string_equal(mr_process_exit_text(&e, text), "signal 15 (SIGTERM)");
}

static void test_missing_program(void **state)
{
    const char *const argv[] = {"x", NULL};
    const struct mr_process_args args = {"/no/such/program", argv, env, NULL, 0};
    struct mr_process p;
    struct mr_err err;

    (void)state;
    assert_int_equal(mr_process_spawn(&p, &args, &err), MR_E_NOT_FOUND);
    assert_non_null(strstr(err.msg, "/no/such/program"));
}

static unsigned count_fds(void)
{
    unsigned n = 0;
    DIR *d = opendir("/proc/self/fd");

    while (readdir(d)) {
        n++;
    }
    closedir(d);
    return n;
}

static void test_leaves_nothing_behind(void **state)
{
    const unsigned before = count_fds();

    (void)state;
    for (int i = 0; i < 200; i++) {
        struct mr_process p = spawn("exit 0", NULL, 0);
        end_of(&p);
    }
    assert_int_equal(count_fds(), before);
}

static void test_usage(void **state)
{
    struct mr_process_usage u;

    (void)state;
    struct mr_process p = spawn("echo; exec sleep 1000", NULL, 0);
    char c;
    struct pollfd f = {.fd = p.output, .events = POLLIN};
    poll(&f, 1, -1);
    assert_int_equal(read(p.output, &c, 1), 1);
    mr_process_get_usage(&p, (uint32_t)p.pid, &u);
    assert_true(u.resident_bytes > 0);
    assert_non_null(strchr("RSD", u.thread_state));
    mr_process_kill(&p, SIGKILL);
    end_of(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gets_what_it_is_given),
        cmocka_unit_test(test_signals),
        cmocka_unit_test(test_missing_program),
        cmocka_unit_test(test_leaves_nothing_behind),
        cmocka_unit_test(test_usage),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
