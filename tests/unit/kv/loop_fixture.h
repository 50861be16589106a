/* A fixture whose connections are on a loop. */
#ifndef KV_LOOP_FIXTURE_H
#define KV_LOOP_FIXTURE_H

#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "base/clock.h"
#include "kv/open.h"
#include "kv_test.h"
#include "net/loop.h"

static inline void kvt_loop_pump(struct kv_fixture *f)
{
    mr_loop_step(f->own, NULL);
}

/* Opens connection number i. */
static inline void kvt_open(struct kv_fixture *f, unsigned i, const char *text)
{
    /* Ten minutes, which a slow machine does not reach. */
    struct mr_kv_options o = {
        .on_state = kvt_on_state, .ctx = &f->state[i], .timeout_ns = 600 * MR_NS_PER_S};
    struct mr_err err = {0};
    if (mr_kv_open(&f->kv[i], f->own, mr_str_c(text), &o, &err) != MR_OK) {
        fail_msg("%s: %s", text, err.msg);
    }
}

static inline struct kv_fixture *kvt_loop_new(void)
{
    struct kv_fixture *f = calloc(1, sizeof *f);
    struct mr_loop *loop;
    assert_int_equal(mr_loop_new(&loop, NULL, NULL), MR_OK);
    f->own = loop;
    f->pump = kvt_loop_pump;
    return f;
}

static inline void kvt_loop_free(struct kv_fixture *f)
{
    struct mr_loop *loop = f->own;
    mr_kv_free(&f->kv[0]);
    mr_kv_free(&f->kv[1]);
    mr_loop_free(&loop);
    free(f);
}

/* Starts a process that runs `run` and ends with this one; what it writes to `out` comes to *out_fd. The caller waits for it. */
static inline pid_t kvt_child(void (*run)(int round, int out), int round, int *out_fd)
{
    int fds[2];

    assert_int_equal(pipe(fds), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        close(fds[0]);
        run(round, fds[1]);
        _exit(1);
    }
    close(fds[1]);
    *out_fd = fds[0];
    return pid;
}

#endif
